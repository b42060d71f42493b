"""The journal of a run: what a resumed run takes from its log instead of doing it again.

It is read once, when the run is opened. What happens afterwards goes through it into the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from coupler.store.run_table import RunEntry
from coupler.workflow.journal.happenings import (
    Decided,
    Happening,
    Place,
    RunResumed,
    StepFinished,
    StepStarted,
)
from coupler.workflow.journal.log import Log
from coupler.workflow.journal.record import happening_in
from coupler.workflow.journal.result import Result
from coupler.workflow.journal.resuming import innermost, places_to_forget
from coupler.workflow.journal.secrecy import Secrecy, UnknownSecretsError
from coupler.workflow.language.definition import Json

JOURNALED = ("step_started", "step_finished", "decided", "run_resumed")
"""The kinds of entries that a journal is read from."""


class Journal:
    """Of one run. What it has forgotten stays in the log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._noted: list[Happening] = []
        self._results: dict[Place, Result] = {}
        self._decisions: dict[tuple[Place, str], Json] = {}

    def read(self, entries: Iterable[RunEntry], secrecy: Secrecy) -> None:
        """Take what earlier processes have noted; raises UnknownSecretsError for references to nothing."""
        missing: set[str] = set()
        for entry in entries:
            happening: Happening = happening_in(entry.body)
            try:
                if isinstance(happening, StepFinished | Decided):
                    happening = secrecy.revealed(happening)
            except UnknownSecretsError as error:
                missing |= error.names
            else:
                self._learn(happening)
        if missing:
            raise UnknownSecretsError(missing)

    def result(self, place: Place) -> Result | None:
        """What became of a step, if it is over; not if it was cancelled."""
        result = self._results.get(place)
        return None if result is None or result.status == "cancelled" else result

    def cancelled(self, place: Place) -> Result | None:
        """What there is of a step that was cancelled."""
        result = self._results.get(place)
        return result if result is not None and result.status == "cancelled" else None

    def decision(self, place: Place, what: str) -> Json:
        """The last decision of this name at a step; UNSET if there was none."""
        return self._decisions.get((place, what), msgspec.UNSET)

    def decisions(self, what: str) -> dict[Place, Json]:
        """The last decision of this name at each step that has one."""
        return {place: value for (place, name), value in self._decisions.items() if name == what}

    def note(self, happening: Happening) -> None:
        """Something happens: into the log, and if it is a result or a decision, to be found here."""
        self._log.append(happening)
        self._learn(happening)

    async def durable(self) -> None:
        """Wait until everything so far survives the death of this process; raises StoreError if it cannot."""
        await self._log.durable()

    def forget_from(self, place: Place) -> bool:
        """Let nothing count any more that came since the run was first at this step; False if it never was.

        The log gets a mark that says so, for those who read it later.
        """
        if not any(noted.place == place for noted in self._noted):
            return False
        self.note(RunResumed(place=place, reason=f"from {place}"))
        return True

    def forget_failure(self, failed_step: str | None) -> None:
        """Let the failure that ended the run have another chance, and the hooks at its end."""
        forgets = places_to_forget(self._results, failed_step)
        if forgets:
            self.note(RunResumed(reason="the failure is tried again", forgets=forgets))

    def _learn(self, happening: Happening) -> None:
        place = happening.place
        match happening:
            case RunResumed(forgets=forgets):
                self._forget(forgets)
                if place is not None:
                    self._forget_from(place)
                return
            case _ if place is None:
                return
            case StepFinished(result=result):
                self._results[place] = result
            case Decided(what=what, value=value):
                self._decisions[place, what] = value
            case StepStarted():
                pass  # only of interest as the moment since which something is forgotten
            case _:
                return
        self._noted.append(happening)

    def _forget(self, places: Sequence[Place]) -> None:
        """Forget results and what was decided on the way to them, but not which attempt a block is at."""
        inner = innermost(places)
        self._relearn(
            noted
            for noted in self._noted
            if noted.place not in places
            or isinstance(noted, StepStarted)
            or (isinstance(noted, Decided) and noted.place not in inner and noted.what != "approved")
        )

    def _forget_from(self, place: Place) -> None:
        first = next((index for index, noted in enumerate(self._noted) if noted.place == place), None)
        if first is not None:
            self._relearn(self._noted[:first])

    def _relearn(self, remembered: Iterable[Happening]) -> None:
        remembered = [*remembered]
        self._noted, self._results, self._decisions = [], {}, {}
        for noted in remembered:
            self._learn(noted)

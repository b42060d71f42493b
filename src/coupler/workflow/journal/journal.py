"""The journal of a run: the results and decisions that a resumed run takes from its log.

It is read once, when the run is opened. What happens afterwards goes through it into the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from coupler.store.runs import RunEntry
from coupler.workflow.errors import RunError
from coupler.workflow.journal.log import RunLog
from coupler.workflow.journal.run_events import (
    Decided,
    Happening,
    Place,
    Result,
    RunResumed,
    StepFinished,
    StepStarted,
    happening_in,
)
from coupler.workflow.journal.run_secrets import RunSecrets, UnknownSecretsError
from coupler.workflow.language.model import Json

JOURNALED = ("step_started", "step_finished", "decided", "run_resumed")
"""The kinds of entries that a journal is read from."""

BEGAN = "began"
"""The decision with the attempt that a step with `once` has begun; 0 while it only waits for somebody."""

MARKED_DONE = "marked_done"
"""The decision that an interrupted step with `once` was done."""

DECIDED_AGAIN = ("approved", BEGAN)
"""Decisions that are made again when a step around the failed one goes on."""

END_HOOKS = ("hooks.error.", "hooks.end.", "hooks.cancel.")
"""Prefixes of the hooks at the end of a workflow, which run again at the next end."""


class RunJournal:
    """The results and decisions of one run; what is forgotten here stays in the log."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._noted: list[Happening] = []
        self._results: dict[Place, Result] = {}
        self._kinds: dict[Place, str] = {}
        self._begun: set[Place] = set()
        self._decisions: dict[tuple[Place | None, str], Json] = {}

    def read(self, entries: Iterable[RunEntry], secrecy: RunSecrets) -> None:
        """Read what earlier processes have recorded; raises UnknownSecretsError for references to nothing."""
        missing: set[str] = set()
        for entry in entries:
            event = _readable(entry)
            try:
                if isinstance(event, StepFinished | Decided):
                    event = secrecy.revealed(event)
            except UnknownSecretsError as error:
                missing |= error.names
            else:
                self._learn(event)
        if missing:
            raise UnknownSecretsError(missing)

    def result(self, place: Place, kind: str | None = None) -> Result | None:
        """Return the result of a step, if it is over; None if it was cancelled.

        None also if it was of another kind than the one that is given: the workflow was changed since.
        """
        result = self._results.get(place)
        if result is None or result.status == "cancelled" or kind not in (None, self._kinds[place]):
            return None
        return result

    @property
    def noted(self) -> tuple[Happening, ...]:
        """The beginnings, ends and decisions that count, in their order."""
        return tuple(self._noted)

    @property
    def begun(self) -> frozenset[Place]:
        """The steps that the run was at, over or not."""
        return frozenset(self._begun)

    def has_begun(self, place: Place) -> bool:
        """Tell whether a step was begun, over or not."""
        return place in self._begun

    def cancelled(self, place: Place) -> Result | None:
        """Return the partial result of a step that was cancelled."""
        result = self._results.get(place)
        return result if result is not None and result.status == "cancelled" else None

    def decision(self, place: Place | None, what: str) -> Json:
        """Return the last decision of this name at a step, or about the run; UNSET if there was none."""
        return self._decisions.get((place, what), msgspec.UNSET)

    def decisions(self, what: str) -> dict[Place, Json]:
        """Return the last decision of this name at each step that has one."""
        return {
            place: value
            for (place, name), value in self._decisions.items()
            if name == what and place is not None
        }

    def note(self, event: Happening) -> None:
        """Append an event to the log, and learn it if it is a result or a decision."""
        self._log.append(event)
        self._learn(event)

    async def durable(self) -> None:
        """Wait until everything so far survives the death of this process; raises StoreError if it cannot."""
        await self._log.durable()

    def stop_waiting_for_locks(self) -> None:
        """Try only once more to write a file that others have locked: somebody wants the run to end."""
        self._log.stop_waiting_for_locks()

    @property
    def interrupted(self) -> tuple[Place, ...]:
        """The steps with `once` that an earlier process was stopped in: somebody has to say what was done."""
        over = [place for place in self._results if self.result(place) is not None]
        return tuple(
            place
            for place, began in self.decisions(BEGAN).items()
            if began == self._decisions.get((place, "attempt"), 1)
            and not any(_is_around(other, str(place)) for other in over)
        )

    def mark_done(self, places: Iterable[Place]) -> None:
        """Note that interrupted steps with `once` were done: they do not run again."""
        for place in places:
            self.note(Decided(place=place, what=MARKED_DONE, value=True))

    def forget_from(self, place: Place) -> bool:
        """Forget everything since the run was first at this step; False if it never was.

        The log gets a mark that says so, for those who read it later.
        """
        if self._first_at(place) is None:
            return False
        self.note(RunResumed(place=place, reason=f"from {place}"))
        return True

    def forget_failure(self, failed_step: str | None) -> None:
        """Forget the failure that ended the run, and its end hooks, so that they run again."""
        forgets = places_to_forget(self._results, failed_step)
        if forgets:
            self.note(RunResumed(reason="the failure is tried again", forgets=forgets))

    def _learn(self, event: Happening) -> None:
        place = event.place
        match event:
            case RunResumed(forgets=forgets):
                self._forget(forgets)
                if place is not None:
                    self._forget_from(place)
                return
            case Decided(what=what, value=value):
                self._decisions[place, what] = value
            case _ if place is None:
                return
            case StepFinished(result=result, kind=kind):
                self._results[place], self._kinds[place] = result, kind
            case StepStarted():
                self._begun.add(place)
            case _:
                return
        self._noted.append(event)

    def _forget(self, places: Sequence[Place]) -> None:
        """Forget the results of these steps, and the decisions of the innermost; approvals and usage stay."""
        inner = innermost(places)
        self._relearn(
            noted
            for noted in self._noted
            if noted.place not in places
            or isinstance(noted, StepStarted)
            or _is_for_good(noted)
            or _is_permission(noted)
            or (isinstance(noted, Decided) and noted.place not in inner and noted.what not in DECIDED_AGAIN)
        )

    def _forget_from(self, place: Place) -> None:
        first = self._first_at(place)
        if first is not None:
            self._relearn([*self._noted[:first], *filter(_is_for_good, self._noted[first:])])

    def _first_at(self, place: Place) -> int | None:
        """The index of the first event at a step, of those that count."""
        numbered = enumerate(self._noted)
        return next(
            (index for index, each in numbered if each.place == place and not _is_for_good(each)), None
        )

    def _relearn(self, remembered: Iterable[Happening]) -> None:
        remembered = [*remembered]
        self._noted, self._results, self._decisions, self._begun = [], {}, {}, set()
        for noted in remembered:
            self._learn(noted)


def _is_for_good(noted: Happening) -> bool:
    return isinstance(noted, Decided) and noted.is_for_good


def _readable(entry: RunEntry) -> Happening:
    try:
        return happening_in(entry.body)
    except (msgspec.MsgspecError, ValueError):
        # Without it a step might run a second time.
        raise RunError(
            f"entry {entry.seq} of the run's journal cannot be read: it is damaged, or another version of "
            "Coupler wrote it: go on with that one, or start a new run"
        ) from None


def _is_permission(noted: Happening) -> bool:
    """True if a step was approved, which also holds for another attempt at it."""
    return isinstance(noted, Decided) and noted.what == "approved" and noted.value is True


def places_to_forget(places: Iterable[Place], failed_step: str | None) -> tuple[Place, ...]:
    """Return the step that failed, those around it, its hooks and the end hooks, of those that are over."""
    return tuple(
        place
        for place in places
        if _is_around(place, failed_step) or _is_hook_of(failed_step, place) or _is_afterwards(place)
    )


def innermost(places: Sequence[Place]) -> set[Place]:
    """Return those steps that have none of the others inside of them."""
    return {
        place
        for place in places
        if not any(_is_around(place, str(other)) for other in places if other != place)
    }


def _is_around(place: Place, step: str | None) -> bool:
    """True if a step is the one at this place, or inside of it."""
    if step is None or not step.startswith(str(place)):
        return False
    rest = step[len(str(place)) :]
    return not rest or rest[0] in ".[~/"


def _is_hook_of(step: str | None, place: Place) -> bool:
    """True if a place is a hook of the agent that a step uses."""
    return step is not None and place.path.startswith(f"{step}.hooks.")


def _is_afterwards(place: Place) -> bool:
    # A hook may call another workflow, whose steps are done again with it.
    return any(name.startswith(END_HOOKS) for name in place.path.split("/"))

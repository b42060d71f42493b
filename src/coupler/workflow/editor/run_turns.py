"""The course of a run in turns: begun by one, shown, parked at a question, and resumed by the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.workflow.editor.chat_messages import answer_meta, cancelled, outcome, question
from coupler.workflow.editor.dialogs import EditorFront, Reply, Waiting
from coupler.workflow.editor.projection import Projection
from coupler.workflow.engine.front import joined
from coupler.workflow.engine.run import CANCELLED, Started, Way, begun, resumed, secrets_of
from coupler.workflow.journal.run_events import RunFinished

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.schema.v1 import StopReason
    from coupler.store.store import Store
    from coupler.workflow.journal.runs import Run
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Json


log = logging.getLogger("coupler.workflow")

LAST_SIGHT = 1.0
"""Seconds in which the end of a cancelled run is shown."""


class Course:
    """One run in one turn; `given` is how the user has named its workflow."""

    def __init__(
        self, turn: Turn, store: Store, bundle: Bundle, given: str, reply: Reply | None = None
    ) -> None:
        self._turn = turn
        self._store = store
        self._bundle = bundle
        self._given = given
        self._front = EditorFront(turn, reply)
        project = turn.session.project
        self._way = Way(
            self._front,
            session_id=turn.session.id,
            mcp_servers=turn.session.mcp_servers,
            choices={project.directory: project.permitting().choices},
        )

    async def begin(self, inputs: Mapping[str, Json]) -> StopReason:
        """Start it; raises WorkflowError if that cannot be done."""
        # From now on nothing of the session shows them, whichever way it takes.
        self._turn.session.secrets.add(secrets_of(self._bundle, inputs))
        cwd = self._turn.session.cwd
        async with begun(self._store, self._bundle, inputs, cwd=cwd, way=self._way) as started:
            return await self._take(started, 0)

    async def go_on(
        self, run: str, secret_inputs: Mapping[str, Json], *, is_forced: bool = False
    ) -> StopReason:
        """Resume it, with the inputs that are not kept; raises WorkflowError if that cannot be done."""
        self._turn.session.secrets.add(secrets_of(self._bundle, secret_inputs))
        async with resumed(
            self._store, run, self._bundle, self._way, secret_inputs=secret_inputs, is_forced=is_forced
        ) as started:
            return await self._take(started, started.run.log.seq)

    async def _take(self, started: Started, after: int) -> StopReason:
        run = started.run
        projection = self._front.projection = Projection(self._turn, run, self._bundle.main)
        if after:
            projection.recall()
        self._remember(run, None)
        self._turn.session.keep_state()
        following = asyncio.ensure_future(projection.follow(after))
        try:
            with joined(self._turn.prompt_meta):
                finished = await started.engine.run()
        except asyncio.CancelledError:
            await self._tell_cancelled(run, following)
            raise
        except BaseException:
            following.cancel()
            raise
        try:
            await following
        except Exception:
            log.exception("the run %s could not be shown to its end", run.id)
        return await self._end(run, run.secrecy.masked(finished))

    async def _end(self, run: Run, finished: RunFinished) -> StopReason:
        turn = self._turn
        turn.meta = answer_meta(run.id, self._bundle.main.name, finished)
        await self._count(finished)
        waiting = self._front.waiting
        if finished.status == "parked":
            waiting = waiting or Waiting(finished.message, "approval", "")
            self._remember(run, waiting.place)
            if self._front.projection is not None:
                self._front.projection.park()
            await turn.say_apart(run.secrecy.masker.mask(question(run.id, waiting)))
            return "end_turn"
        if finished.failed_step is None:
            remember(turn.session, None)
        await turn.say_apart(outcome(run.id, finished))
        return "end_turn" if finished.status == "success" else "refusal"

    async def _tell_cancelled(self, run: Run, following: asyncio.Task[None]) -> None:
        """The run is over, and so is its log: what is left of it comes now, unless the editor is too slow."""
        await asyncio.wait([following], timeout=LAST_SIGHT)
        following.cancel()
        turn = self._turn
        if not turn.is_alive:
            return
        finished = RunFinished(status="cancelled", exit_code=CANCELLED)
        turn.meta = answer_meta(run.id, self._bundle.main.name, finished)
        await turn.say_apart(cancelled(run.id))

    def _remember(self, run: Run, place: str | None) -> None:
        """The session knows of the run as long as it can go on; `place` is the step that waits."""
        remember(self._turn.session, UnfinishedRun(run.id, self._given, place))

    async def _count(self, finished: RunFinished) -> None:
        usage = finished.usage
        if usage is not None and usage.total_tokens and not usage.is_estimated:
            await self._turn.count_tokens(
                usage.input_tokens,
                usage.output_tokens,
                cached_read=usage.cached_tokens or None,
                total=usage.total_tokens,
            )


# The run that a session has begun and not ended: it waits for the user, or was interrupted.


KEY = "run"
"""The part of a session's state that it is kept in; other agents of the session have parts of their own."""


class UnfinishedRun(msgspec.Struct, frozen=True):
    """What a session remembers of its last run, as long as that can go on."""

    run: str
    given: str
    """How its workflow was named."""
    place: str | None = None
    """The step that waits for the user; None: it was cancelled, has failed, or its process died."""

    @classmethod
    def of(cls, state: Any) -> UnfinishedRun | None:
        """The run that a session's state tells of, if there is one."""
        try:
            return msgspec.convert(state.get(KEY) if isinstance(state, Mapping) else None, cls)
        except msgspec.ValidationError:
            return None


def remember(session: Session, unfinished: UnfinishedRun | None) -> None:
    """The session has this run to go on with, or none any more."""
    state = session.state if isinstance(session.state, Mapping) else {}
    others = {key: value for key, value in state.items() if key != KEY}
    run = {} if unfinished is None else {KEY: msgspec.to_builtins(unfinished)}
    session.state = {**others, **run} or None

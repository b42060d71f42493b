"""Runs a workflow in turns of a session: started by a prompt, parked at a question, resumed by the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.workflow.editor.chat_messages import (
    answer_meta,
    images_not_sent,
    run_cancelled,
    run_outcome,
    run_question,
)
from coupler.workflow.editor.dialogs import EditorFrontEnd, PendingQuestion, PromptReply
from coupler.workflow.editor.projection import RunProjection
from coupler.workflow.engine.front import trace_context
from coupler.workflow.engine.run import (
    CANCELLED,
    EngineOptions,
    StartedRun,
    declared_secrets_of,
    resume_run,
    start_run,
)
from coupler.workflow.journal.run_events import RunFinished
from coupler.workflow.language.library import is_path

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.schema.v1 import ImageContent, StopReason
    from coupler.store.store import Store
    from coupler.workflow.journal.runs import OpenRun
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Json


log = logging.getLogger("coupler.workflow")

LAST_DISPLAY_TIMEOUT = 1.0
"""Seconds in which the end of a cancelled run is shown."""

STATE_KEY = "run"
"""Key of the session's state that holds the run; other agents of the session have their own keys."""


class UnfinishedRun(msgspec.Struct, frozen=True):
    """The last run of a session as long as it can go on: it waits for the user, or was interrupted."""

    run: str
    given: str
    """Name or path by which the user called its workflow."""
    place: str | None = None
    """The step that waits for the user; None: it was cancelled, has failed, or its process died."""

    @classmethod
    def of(cls, state: Any) -> UnfinishedRun | None:
        """Return the run in a session's state, if there is one."""
        try:
            return msgspec.convert(state.get(STATE_KEY) if isinstance(state, Mapping) else None, cls)
        except msgspec.ValidationError:
            return None


class RunTurn:
    """One run in one turn; `given` is how the user has named its workflow."""

    def __init__(
        self, turn: Turn, store: Store, bundle: Bundle, given: str, reply: PromptReply | None = None
    ) -> None:
        self._turn = turn
        self._store = store
        self._bundle = bundle
        self._given = given
        self._reply = reply
        self._front = EditorFrontEnd(turn, reply)
        project = turn.session.project
        self._options = EngineOptions(
            self._front,
            session_id=turn.session.id,
            mcp_servers=turn.session.mcp_servers,
            choices={project.directory: project.permissions().choices},
        )

    async def begin(self, inputs: Mapping[str, Json], images: Sequence[ImageContent] = ()) -> StopReason:
        """Start the run, with the prompt's images; raises WorkflowError if that cannot be done."""
        # From now on nothing of the session shows them, whichever way it takes.
        self._turn.session.secrets.add(declared_secrets_of(self._bundle, inputs))
        cwd = self._turn.session.cwd
        by_path = is_path(self._given)
        async with start_run(
            self._store, self._bundle, inputs, images=images, cwd=cwd, way=self._options, by_path=by_path
        ) as started:
            return await self._run_to_end(started, 0)

    async def resume(
        self, run: str, secret_inputs: Mapping[str, Json], *, is_forced: bool = False
    ) -> StopReason:
        """Resume the run, with the inputs that are not kept; raises WorkflowError if that cannot be done."""
        self._turn.session.secrets.add(declared_secrets_of(self._bundle, secret_inputs))
        async with resume_run(
            self._store, run, self._bundle, self._options, secret_inputs=secret_inputs, is_forced=is_forced
        ) as started:
            return await self._run_to_end(started, started.run.log.seq)

    async def _run_to_end(self, started: StartedRun, after: int) -> StopReason:
        run = started.run
        projection = self._front.projection = RunProjection(self._turn, run, self._bundle.main)
        if after:
            projection.recall()
        self._remember(run, None)
        self._turn.session.keep_state()
        following = asyncio.ensure_future(projection.follow(after))
        try:
            with trace_context(self._turn.prompt_meta):
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
        return await self._end(
            run, run.secrecy.masked(finished), has_images_left=started.engine.has_images_left
        )

    async def _end(self, run: OpenRun, finished: RunFinished, *, has_images_left: bool) -> StopReason:
        turn = self._turn
        turn.meta = answer_meta(run.id, self._bundle.main.name, finished)
        await self._count(finished)
        if self._front.has_unread_images or (has_images_left and finished.status == "success"):
            await turn.say_apart(images_not_sent())
        waiting = self._front.waiting
        if finished.status == "parked":
            waiting = waiting or PendingQuestion(finished.message, "approval", "")
            self._remember(run, waiting.place)
            if self._front.projection is not None:
                self._front.projection.park()
            if not self._is_conversation_going_on(waiting):
                await turn.say_apart(run.secrecy.masker.mask(run_question(run.id, waiting)))
            return "end_turn"
        if finished.failed_step is None:
            remember_run(turn.session, None)
        await turn.say_apart(run_outcome(run.id, finished))
        # Also of a run that failed: clients forget a prompt that ends with anything else.
        return "end_turn"

    def _is_conversation_going_on(self, waiting: PendingQuestion) -> bool:
        """Tell whether the user has just written to the agent that waits again, and knows how that goes."""
        is_reply = self._reply is not None and self._reply.place == waiting.place
        return waiting.kind == "message" and is_reply and not waiting.problem

    async def _tell_cancelled(self, run: OpenRun, following: asyncio.Task[None]) -> None:
        """Show the rest of a cancelled run, unless the editor is too slow: its log is over, too."""
        await asyncio.wait([following], timeout=LAST_DISPLAY_TIMEOUT)
        following.cancel()
        turn = self._turn
        if not turn.is_alive:
            return
        finished = RunFinished(status="cancelled", exit_code=CANCELLED)
        turn.meta = answer_meta(run.id, self._bundle.main.name, finished)
        await turn.say_apart(run_cancelled(run.id))

    def _remember(self, run: OpenRun, place: str | None) -> None:
        """Keep the run in the session's state as long as it can go on; `place` is the step that waits."""
        remember_run(self._turn.session, UnfinishedRun(run.id, self._given, place))

    async def _count(self, finished: RunFinished) -> None:
        usage = finished.usage
        if usage is not None and usage.total and not usage.is_estimated:
            await self._turn.count_tokens(
                usage.input,
                usage.output,
                cached_read=usage.cached_read or None,
                total=usage.total,
            )


def remember_run(session: Session, unfinished: UnfinishedRun | None) -> None:
    """Set the run that the session can go on with; None if there is none any more."""
    state = session.state if isinstance(session.state, Mapping) else {}
    others = {key: value for key, value in state.items() if key != STATE_KEY}
    run = {} if unfinished is None else {STATE_KEY: msgspec.to_builtins(unfinished)}
    session.state = {**others, **run} or None

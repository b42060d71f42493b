"""A graph as an agent: prompts run it, from the checkpoint at which the last turn ended.

The agent's state names that checkpoint, and is stored with the turn's end. So a process that is killed in
between goes on from what its client was told, and not from what it was not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph.prebuilt import ToolNode

from coupler.agent.agent import AdoptedAgent
from coupler.agent.errors import store_failed
from coupler.langchain.checkpoints import awaitable, copy_thread, file_beside, savers
from coupler.langchain.current import Current, enter
from coupler.langchain.errors import cannot_be_read, failure_of, listen_for_retries, stop_of_error
from coupler.langchain.graph_run import Graph, GraphRun, have_enough_threads
from coupler.langchain.graph_shape import Shape
from coupler.langchain.listener import Filters, filters_in
from coupler.langchain.mcp_tools import begin as begin_mcp
from coupler.langchain.mcp_tools import tell_if_unused
from coupler.langchain.messages import Look
from coupler.langchain.middleware import declared_in
from coupler.langchain.presentation import Presentation
from coupler.langchain.projection import Projection
from coupler.langchain.tool_arguments import hasten_langchain
from coupler.langchain.tool_calls import STOPPED, ToolCalls
from coupler.langchain.tool_guard import guarded
from coupler.langchain.usage import Usage, context_sizes
from coupler.schema.v1 import StopReason
from coupler.store.errors import StoreError

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from coupler.agent.factory import ForeignSession
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.langchain")


class GraphAgent(AdoptedAgent):
    """One graph, for any number of sessions."""

    def __init__(
        self,
        graph: Graph,
        origin: tuple[str, str],
        called: str,
        *,
        look: Look,
        store: str | None,
        keeps_cut_off: bool = False,
    ) -> None:
        """`keeps_cut_off`: what a kill has cut off is remembered; the graph can begin in the middle of it."""
        super().__init__(origin, called)
        self.graph = guarded(awaitable(graph))
        self.tools = tools_of(graph)
        self.modes, self.options = declared_in(graph)
        self._look = look
        self._store = store
        self._keeps_cut_off = keeps_cut_off
        self._shape = Shape(graph)
        self._sizes = context_sizes(graph)
        self._filters = filters_in(graph)
        listen_for_retries()
        hasten_langchain()
        self._saver: BaseCheckpointSaver[Any] | None = None
        self._kept: Graph | None = None
        self._sessions = 0

    @property
    def has_own_saver(self) -> bool:
        """Whether the graph was compiled with a checkpointer."""
        return self.graph.checkpointer is not None and not isinstance(self.graph.checkpointer, bool)

    async def opened(self, session: Session) -> None:
        """Take the saver, and give a session that was forked a thread of its own."""
        have_enough_threads()
        state = session.state if isinstance(session.state, Mapping) else {}
        thread = state.get("thread")
        if not self.has_own_saver:
            self._saver = savers().take(file_beside(self._store))
            self._sessions += 1
        if thread is not None and state.get("session") != session.id:
            try:
                await self._fork(session, str(thread))
            except BaseException:
                await self.closed(session)
                raise
        elif thread is None:
            session.state = {**state, "session": session.id, "thread": session.id, "checkpoint": None}
        begin_mcp(session)

    async def moved(self, session: Session) -> None:
        """Connect to the servers that the session has now."""
        begin_mcp(session)

    async def closed(self, session: Session) -> None:
        """Let go of the saver."""
        if not self.has_own_saver and self._sessions:
            self._sessions -= 1
            await savers().leave(file_beside(self._store))

    async def forget(self, session_id: str, state: Any) -> None:
        """The session was deleted: delete its thread."""
        thread = state.get("thread") if isinstance(state, Mapping) else None
        if thread is None:
            return
        if self.has_own_saver:
            try:
                await self._checkpointer.adelete_thread(thread)
            except NotImplementedError:
                log.warning("the graph's checkpointer cannot delete the thread %s", thread)
            return
        path = file_beside(self._store)
        saver = savers().take(path)
        try:
            await saver.adelete_thread(thread)
        finally:
            await savers().leave(path)

    async def foreign(self, known: set[str]) -> list[ForeignSession]:
        """Threads that somebody else has begun in the graph's own checkpointer."""
        if not self.has_own_saver:
            return []
        # Imported on use: most graphs have none.
        from coupler.langchain.external_sessions import foreign_threads

        return await foreign_threads(self.graph, self._checkpointer, self._shape, self.tools, known)

    async def perform(self, turn: Turn) -> StopReason | None:
        """Run the graph for one prompt, as often as it stops to ask something."""
        filters = Filters(self._filters) if self._filters else None
        presentation = Presentation(turn.session.cwd, turn.session.roots, filters)
        tools: dict[str, BaseTool] = dict(self.tools)
        current = Current(turn, ToolCalls(turn, presentation, tools), presentation, tools, self._sizes)
        projection = Projection(current, self._look, Usage(turn, current.sizes), filters)
        enter(current)
        run = GraphRun(
            self._with_saver(),
            self._checkpointer,
            self._shape,
            current,
            projection,
            keeps_cut_off=self._keeps_cut_off,
        )
        try:
            stop = await run.perform()
            await tell_if_unused(turn)
            return stop
        except Exception as error:
            return await self._end_with(error, run, projection)
        except BaseException:  # a cancel, or a tool that wants to end the process
            await run.look_where_it_stopped()
            raise

    async def _end_with(self, error: Exception, run: GraphRun, projection: Projection) -> StopReason:
        stop = stop_of_error(error)
        # A turn that was stopped is no failure, so that nobody else says that its calls were not made.
        projection.fail_open(STOPPED if stop is not None else None)
        # A prompt that no model can read would make an end of the conversation.
        is_wasted = not projection.has_spoken and cannot_be_read(error, projection.model_error)
        if stop == "refusal" or is_wasted:
            run.forget_prompt()
        else:
            await run.look_where_it_stopped()
        if stop is not None:
            return stop
        if isinstance(error, StoreError):
            raise store_failed(error) from error
        failure = failure_of(error, projection.model_error)
        if failure is None:
            raise error
        log.warning("the model failed: %s", failure.message)
        raise failure from error

    @property
    def _checkpointer(self) -> BaseCheckpointSaver[Any]:
        own = self.graph.checkpointer
        saver = own if own is not None and not isinstance(own, bool) else self._saver
        assert saver is not None, "a session is open"
        return saver

    def _with_saver(self) -> Graph:
        if self.has_own_saver:
            return self.graph
        if self._kept is None or self._kept.checkpointer is not self._saver:
            self._kept = self.graph.copy({"checkpointer": self._saver})
        return self._kept

    async def _fork(self, session: Session, thread: str) -> None:
        try:
            await self._checkpointer.acopy_thread(thread, session.id)
        except NotImplementedError:
            await copy_thread(self._checkpointer, thread, session.id)
        session.state = {**session.state, "session": session.id, "thread": session.id, "forked": True}


def tools_of(graph: Graph) -> dict[str, BaseTool]:
    """The tools of a graph, as far as it has nodes that run tools."""
    found: dict[str, BaseTool] = {}
    for node in graph.nodes.values():
        if isinstance(node.bound, ToolNode):
            found |= node.bound.tools_by_name
    return found

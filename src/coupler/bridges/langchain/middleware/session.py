"""`acp.session(…)`: a part of the graph's state, kept with the session as its agent's memory.

It is saved with the turn and survives restarts and forks; no update tells of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args
from weakref import WeakSet

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest
from langgraph.runtime import Runtime

from coupler.agent.content import json_value
from coupler.agent.session import Session
from coupler.agent.turn import Turn
from coupler.bridges.langchain.current import Current, current

Snapshots: TypeAlias = Literal["none", "initial", "final", "all"]
SNAPSHOTS: tuple[str, ...] = get_args(Snapshots)
KEPT = "kept"
"""Where in the agent's memory of a session the mapped states are, by their ids."""

State: TypeAlias = Mapping[str, Any]


class SessionMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps what `state` makes of the graph's state, under `id`: a name, or a function of the state.

    Without `state` all of it but the messages is kept, without `id` the session's own. `snapshots` says
    when: before the first model call of a prompt ("initial"), after the agent is done ("final"), at each
    model call too ("all"), or never ("none"). `acp.kept(id)` reads it.
    """

    def __init__(
        self,
        *,
        id: str | Callable[[State], str] | None = None,
        state: Callable[[State], Any] | None = None,
        snapshots: Snapshots = "final",
    ) -> None:
        super().__init__()
        if snapshots not in SNAPSHOTS:
            nearest = difflib.get_close_matches(str(snapshots), SNAPSHOTS, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"it is one of {', '.join(SNAPSHOTS)}"
            raise ValueError(f"`snapshots` of acp.session is not {snapshots!r:.100}: {hint}")
        self._id = id
        self._map = state or _without_messages
        self._snapshots = snapshots
        self._begun: WeakSet[Turn] = WeakSet()

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Keep the state as it is before the model is called."""
        self._before_model(request.state)
        return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """The same."""
        self._before_model(request.state)
        return await handler(request)

    def after_agent(self, state: State, runtime: Runtime[Any]) -> None:
        """Keep the state as it is in the end."""
        served = current()
        if served is not None and self._snapshots in ("final", "all"):
            self._keep(served, state)

    async def aafter_agent(self, state: State, runtime: Runtime[Any]) -> None:
        """The same."""
        self.after_agent(state, runtime)

    def _before_model(self, state: State) -> None:
        served = current()
        if served is None or self._snapshots not in ("initial", "all"):
            return
        if self._snapshots == "all" or served.turn not in self._begun:
            self._begun.add(served.turn)
            self._keep(served, state)

    def _keep(self, served: Current, state: State) -> None:
        name = self._id(state) if callable(self._id) else self._id or served.session.id
        served.call_on_loop(_put, served.session, str(name), json_value(self._map(state)))


def kept(id: str | None = None) -> Any:
    """What `acp.session` kept under this id, or under the session's own; None if that is nothing."""
    served = current()
    if served is None:
        return None
    return _kept_in(served.session).get(id or served.session.id)


def _put(session: Session, name: str, value: Any) -> None:
    memory = session.state if isinstance(session.state, Mapping) else {}
    session.state = {**memory, KEPT: {**_kept_in(session), name: value}}


def _kept_in(session: Session) -> Mapping[str, Any]:
    kept = session.state.get(KEPT) if isinstance(session.state, Mapping) else None
    return kept if isinstance(kept, Mapping) else {}


def _without_messages(state: State) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "messages"}

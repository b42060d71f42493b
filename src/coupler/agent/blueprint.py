"""What is served: how it introduces itself, and how each session gets its agent."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from coupler.agent import adoption
from coupler.agent.agent import AdoptedAgent, Agent, FunctionAgent, is_turn_function
from coupler.agent.introduction import distribution_version, identity, identity_of, introduce
from coupler.agent.login import Login, Logins, own_command
from coupler.agent.serve_options import NO_OPTIONS, ServeOptions
from coupler.schema.v1 import InitializeResponse

if TYPE_CHECKING:
    from coupler.agent.editor import Editor
    from coupler.agent.foreign import ForeignSession
    from coupler.agent.session import Session

WHAT_CAN_BE_SERVED = (
    "serve takes a function with one parameter named `turn`, an Agent subclass or instance, "
    "a graph of LangGraph, or a string such as 'app.py:agent'"
)


class Backing(Protocol):
    """What an agent only passes on to: it is started when the client is known, and says itself what it is."""

    async def introduce(self, editor: Editor) -> InitializeResponse:
        """Start it, and return what the client is told of it; raises what is to be answered if it fails."""

    async def forget(self, session_id: str, state: Any) -> None:
        """A session was deleted, with this as its state: delete what is kept of it behind the agent, too."""

    async def close(self) -> None:
        """The client has left: end it."""


@runtime_checkable
class Servable(Protocol):
    """An object that knows itself how it is served."""

    def blueprint(self, options: ServeOptions) -> Blueprint:
        """How each session gets its agent."""


class Blueprint:
    """A target that was looked at: served to every session in the way its form asks for."""

    def __init__(
        self,
        introduction: InitializeResponse,
        agent_for: Callable[[Session], Awaitable[Agent]],
        *,
        identity: str,
        store: str | None,
        logins: Sequence[Login] | Logins = (),
        backing: Backing | None = None,
        forget: Callable[[str, Any], Awaitable[None]] | None = None,
        foreign: Callable[[set[str]], Awaitable[list[ForeignSession]]] | None = None,
    ) -> None:
        self.introduction = introduction
        self.agent_for = agent_for
        self.identity = identity
        """What this agent's sessions are found by, whatever it is called this time."""
        self.store = store
        """What was said of the file that keeps its sessions: None for the user's, NO_STORE for none."""
        self.logins = logins if isinstance(logins, Logins) else Logins(logins, program=own_command())
        self.backing = backing
        """What is behind the agent, if it is not here."""
        self.forget = forget or (backing.forget if backing is not None else None)
        """Told of sessions that are deleted, with their states, if somebody else keeps something of them."""
        self.foreign = foreign
        """Gives conversations that somebody else keeps, but for those that are known already."""

    @classmethod
    def of(cls, target: Any, options: ServeOptions = NO_OPTIONS) -> Blueprint:
        """The blueprint of a turn function, an `Agent` subclass or an `Agent` instance."""
        is_class = isinstance(target, type) and issubclass(target, Agent)
        described: Agent | type[Agent] = target if is_class else as_agent(target, options)
        if is_class:
            adoption.refuse_graph_options(options)

        async def agent_for(session: Session) -> Agent:
            return described() if isinstance(described, type) else described

        return cls(
            introduce(described, options),
            agent_for,
            identity=identity_of(described),
            store=options.store,
            logins=described.logins,
            forget=described.forget if isinstance(described, AdoptedAgent) else None,
            foreign=described.foreign if isinstance(described, AdoptedAgent) else None,
        )

    @classmethod
    def of_factory(cls, factory: Callable[[Session], Any], options: ServeOptions = NO_OPTIONS) -> Blueprint:
        """The blueprint of a function, plain or async, that gets each session and returns its agent."""
        own_name = getattr(factory, "__name__", type(factory).__name__)
        if own_name == "<lambda>":
            own_name = "agent"
        module = factory.__module__ or ""
        version = options.version or distribution_version(module)
        named = options._replace(name=options.name or own_name, version=version)
        introduction = introduce(adoption.made_by_factories(), named)

        async def agent_for(session: Session) -> Agent:
            made = factory(session)
            return as_agent(await made if inspect.isawaitable(made) else made, options)

        async def forget(session_id: str, state: Any) -> None:
            await adoption.forget(session_id, state, options)

        return cls(
            introduction, agent_for, identity=identity(module, own_name), store=options.store, forget=forget
        )


def as_agent(target: Any, options: ServeOptions = NO_OPTIONS) -> Agent:
    """The target as an agent, or an error that says what can be served."""
    if (adopted := adoption.adopt(target, options)) is not None:
        return adopted
    if isinstance(target, Agent):
        return target
    if isinstance(target, type) and issubclass(target, Agent):
        return target()
    if is_turn_function(target):
        return FunctionAgent(target)
    raise TypeError(f"{WHAT_CAN_BE_SERVED}; this is {target!r}")

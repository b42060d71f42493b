"""What is served: how it introduces itself, and how each session gets its agent."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from coupler.agent.agent import Agent, FunctionAgent, is_turn_function
from coupler.agent.introduction import distribution_version, introduce
from coupler.schema.v1 import InitializeResponse

if TYPE_CHECKING:
    from coupler.agent.session import Session

WHAT_CAN_BE_SERVED = (
    "serve takes a function with one parameter named `turn`, an Agent subclass or instance, "
    "or a string such as 'app.py:agent'"
)


class Blueprint:
    """A target that was looked at: served to every session in the way its form asks for."""

    def __init__(
        self, introduction: InitializeResponse, agent_for: Callable[[Session], Awaitable[Agent]]
    ) -> None:
        self.introduction = introduction
        self.agent_for = agent_for

    @classmethod
    def of(
        cls, target: Any, *, name: str | None = None, title: str | None = None, version: str | None = None
    ) -> Blueprint:
        """The blueprint of a turn function, an `Agent` subclass or an `Agent` instance."""
        is_class = isinstance(target, type) and issubclass(target, Agent)
        described: Agent | type[Agent] = target if is_class else as_agent(target)

        async def agent_for(session: Session) -> Agent:
            return described() if isinstance(described, type) else described

        return cls(introduce(described, name=name, title=title, version=version), agent_for)

    @classmethod
    def of_factory(
        cls,
        factory: Callable[[Session], Any],
        *,
        name: str | None = None,
        title: str | None = None,
        version: str | None = None,
    ) -> Blueprint:
        """The blueprint of a function, plain or async, that gets each session and returns its agent."""
        own_name = getattr(factory, "__name__", type(factory).__name__)
        if own_name == "<lambda>":
            own_name = "agent"
        introduction = introduce(
            Agent,
            name=name or own_name,
            title=title,
            version=version or distribution_version(factory.__module__ or ""),
        )

        async def agent_for(session: Session) -> Agent:
            made = factory(session)
            return as_agent(await made if inspect.isawaitable(made) else made)

        return cls(introduction, agent_for)


def as_agent(target: Any) -> Agent:
    """The target as an agent, or an error that says what can be served."""
    if isinstance(target, Agent):
        return target
    if isinstance(target, type) and issubclass(target, Agent):
        return target()
    if is_turn_function(target):
        return FunctionAgent(target)
    raise TypeError(f"{WHAT_CAN_BE_SERVED}; this is {target!r}")

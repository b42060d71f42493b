"""What an agent is: something that takes a prompt and emits events."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from coupler.schema.v1 import StopReason

if TYPE_CHECKING:
    from coupler.agent.blocking import BlockingTurn
    from coupler.agent.command import Command
    from coupler.agent.foreign import ForeignSession
    from coupler.agent.login import Login
    from coupler.agent.mode import Mode
    from coupler.agent.option import Option
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.schema.v1 import ContentBlock

ALWAYS_ACCEPTED = frozenset({"text", "resource_link"})
CAN_BE_ACCEPTED = frozenset({"image", "audio", "resource"})

TurnFunction: TypeAlias = Callable[["Turn"], Awaitable[StopReason | None]]
BlockingTurnFunction: TypeAlias = Callable[["BlockingTurn"], StopReason | None]


class Agent:
    """Subclass this and write `prompt`. A class is instantiated for each session, an instance is shared."""

    name: ClassVar[str | None] = None
    title: ClassVar[str | None] = None
    version: ClassVar[str | None] = None
    accepts: Collection[str] = ("resource",)
    """What prompts may hold besides text and links: "image", "audio", "resource" (embedded files)."""

    modes: Sequence[Mode] = ()
    """Ways to work that the user can switch between; a session begins in the first."""
    options: Sequence[Option] = ()
    """What the user can choose, such as the model."""
    commands: Sequence[Command] = ()
    """Slash commands; `turn.command` says which one a prompt is."""
    logins: Sequence[Login] = ()
    """Ways to log in; until one of them is satisfied there are no sessions."""

    async def prompt(self, turn: Turn) -> StopReason | None:
        """Answer one prompt. Returning None ends the turn normally.

        A cancel arrives as `asyncio.CancelledError`. A plain `def` works too, in a thread of its own.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `prompt` method")

    async def opened(self, session: Session) -> None:
        """A session begins, or goes on after a restart: `session.state` is what was saved of it."""

    def hidden_in(self, session: Session, blocks: tuple[ContentBlock, ...]) -> Mapping[str, str]:
        """Texts of a prompt that must not be kept, by the names that stand for them. Asked before it is."""
        return {}

    async def moved(self, session: Session) -> None:
        """The client opened the session again with other directories or MCP servers."""

    async def closed(self, session: Session) -> None:
        """A session is left; it may be opened again later."""

    async def mode_changed(self, session: Session) -> None:
        """The user chose another mode: `session.mode`. An exception refuses it."""

    async def option_changed(self, session: Session, option: str) -> None:
        """The user chose another value: `session.options[option]`. An exception refuses it."""

    async def perform(self, turn: Turn) -> StopReason | None:
        """Run `prompt`, whichever way it is written."""
        return await _call(self.prompt, turn)


class FunctionAgent(Agent):
    """A turn function as an agent."""

    def __init__(self, function: TurnFunction | BlockingTurnFunction) -> None:
        self.function = function

    async def perform(self, turn: Turn) -> StopReason | None:
        return await _call(self.function, turn)


class AdoptedAgent(Agent):
    """An object of another framework as an agent: what it is called and found by is the object's."""

    accepts = ("image", "audio", "resource")

    def __init__(self, origin: tuple[str, str], called: str) -> None:
        self.origin = origin
        """The module that the object is in, and its name there."""
        self.called = called

    async def forget(self, session_id: str, state: Any) -> None:
        """A session was deleted, with this as its state: delete what the framework keeps of it."""

    async def foreign(self, known: set[str]) -> list[ForeignSession]:
        """Conversations that the framework keeps and that are none of the known sessions."""
        return []


async def _call(function: Callable[[Any], Any], turn: Turn) -> StopReason | None:
    if _is_coroutine_function(getattr(function, "__func__", function)):
        result: StopReason | None = await function(turn)
        return result
    # Imported on use: most agents are coroutines.
    from coupler.agent.blocking import call_in_thread

    return await call_in_thread(function, turn)


@lru_cache(maxsize=256)
def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    # A decorator may be a plain function around a coroutine function.
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def accepted_blocks(agent: Agent | type[Agent]) -> frozenset[str]:
    """The types of content blocks that a prompt may hold."""
    accepts = frozenset([agent.accepts] if isinstance(agent.accepts, str) else agent.accepts)
    if not accepts <= CAN_BE_ACCEPTED:
        wrong, right = ", ".join(sorted(accepts - CAN_BE_ACCEPTED)), ", ".join(sorted(CAN_BE_ACCEPTED))
        raise ValueError(f"`accepts` names what prompts do not hold: {wrong}; it can name {right}")
    return ALWAYS_ACCEPTED | accepts


def is_turn_function(value: object) -> bool:
    """Whether this is a function whose one parameter is named `turn` or annotated `Turn`."""
    if not inspect.isfunction(value) and not inspect.ismethod(value):
        return False
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        return False  # `yield` says nothing to a client: turn.say does
    parameters = [
        parameter
        for parameter in inspect.signature(value).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(parameters) == 1 and (parameters[0].name == "turn" or _means_turn(parameters[0].annotation))


def _means_turn(annotation: object) -> bool:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2] in ("Turn", "BlockingTurn")

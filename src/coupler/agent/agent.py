"""Defines `Agent`, and the modes, config options and slash commands that an agent can declare."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from msgspec import UNSET

from coupler.agent.content import declared_list, declared_or_none, declared_text, prompt_text
from coupler.fields import readable
from coupler.schema import v1
from coupler.schema.v1 import StopReason

if TYPE_CHECKING:
    from coupler.agent.auth import Login
    from coupler.agent.blocking import BlockingTurn
    from coupler.agent.factory import ExternalSession
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.schema.v1 import ContentBlock

ALWAYS_ACCEPTED = frozenset({"text", "resource_link"})
CAN_BE_ACCEPTED = frozenset({"image", "audio", "resource"})

TurnFunction: TypeAlias = Callable[["Turn"], Awaitable[StopReason | None]]
BlockingTurnFunction: TypeAlias = Callable[["BlockingTurn"], StopReason | None]

OptionValue: TypeAlias = str | bool
"""The value of an option: that of a choice, or True if a toggle is on."""

ON, OFF = "on", "off"
"""A toggle's values, for clients that know no boolean options."""


class Agent:
    """Base class of agents: write `prompt`. A class is instantiated for each session, an instance shared."""

    name: ClassVar[str | None] = None
    title: ClassVar[str | None] = None
    version: ClassVar[str | None] = None
    accepts: Collection[str] = ("resource",)
    """Content that prompts may hold besides text and links: "image", "audio", "resource" (embedded files)."""

    keeps_prompts: bool = False
    """True if the agent keeps prompts in a memory of its own: it gets them once they are durable here."""

    modes: Sequence[Mode] = ()
    """Ways to work that the user can switch between; a session begins in the first."""
    options: Sequence[Option] = ()
    """Config options that the user can change, such as the model."""
    commands: Sequence[Command] = ()
    """Slash commands; `turn.command` is the one that a prompt invokes."""
    logins: Sequence[Login] = ()
    """Authentication methods; until the user has logged in by one of them there are no sessions."""

    async def prompt(self, turn: Turn) -> StopReason | None:
        """Answer one prompt. Returning None ends the turn normally.

        A cancel arrives as `asyncio.CancelledError`. A plain `def` works too, in a thread of its own.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `prompt` method")

    async def opened(self, session: Session) -> None:
        """Called when a session begins or goes on after a restart, with `session.state` as it was saved."""

    def hidden_in(self, session: Session, blocks: tuple[ContentBlock, ...]) -> Mapping[str, str]:
        """Return texts of a prompt that must not be stored, by the names that replace them."""
        return {}

    def can_be_title(self, session: Session, text: str) -> bool:
        """Tell whether a prompt may name its session; a title that may not gives way to a prompt that may."""
        return True

    async def moved(self, session: Session) -> None:
        """Called when the client opens the session again with other directories or MCP servers."""

    async def closed(self, session: Session) -> None:
        """Called when a session is closed; it may be opened again later."""

    async def mode_changed(self, session: Session) -> None:
        """Called when the user chooses another mode: `session.mode`. An exception refuses it."""

    async def option_changed(self, session: Session, option: str) -> None:
        """Called when the user chooses another value: `session.options[option]`. An exception refuses it."""

    async def perform(self, turn: Turn) -> StopReason | None:
        """Run `prompt`, which may be a coroutine function or a plain one."""
        return await _call(self.prompt, turn)


class FunctionAgent(Agent):
    """Serves a turn function as an agent."""

    def __init__(self, function: TurnFunction | BlockingTurnFunction) -> None:
        self.function = function

    async def perform(self, turn: Turn) -> StopReason | None:
        return await _call(self.function, turn)


class FrameworkAgent(Agent):
    """An object of another framework, such as a graph, served as an agent under its own name and identity."""

    accepts = ("image", "audio", "resource")

    def __init__(self, origin: tuple[str, str], called: str) -> None:
        self.origin = origin
        """The module that the object is in, and its name there."""
        self.called = called

    async def forget(self, session_id: str, state: Any) -> None:
        """Delete what the framework keeps of a deleted session; `state` is the state that it had."""

    async def external_sessions(self, known: set[str]) -> list[ExternalSession]:
        """Return conversations that the framework keeps and that are none of the known sessions."""
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
    """Return whether this is a function whose one parameter is named `turn` or annotated `Turn`."""
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


class Mode:
    """A way of working that the user can switch a session into, such as asking before every change.

    Its name is the id made readable, unless it is given.
    """

    def __init__(self, id: str, description: str | None = None, *, name: str | None = None) -> None:
        self.id: Final = declared_text(id, "a mode's id")
        self.description: Final = declared_or_none(description, f"the description of the mode {self.id!r}")
        self.name: Final = (
            readable(self.id) if name is None else declared_text(name, f"the name of the mode {self.id!r}")
        )

    def __repr__(self) -> str:
        return f"Mode({self.id!r})"

    def as_mode(self) -> v1.SessionMode:
        """The mode as clients are told of it."""
        return v1.SessionMode(self.id, self.name, self.description or UNSET)


def declared_modes(modes: Iterable[Mode]) -> tuple[Mode, ...]:
    """Check an agent's modes: no two have the same id. A session begins in the first."""
    return declared_list(modes, (Mode,), lambda mode: mode.id, "modes")


class Choice:
    """One value of a select. Its name is the value made readable, unless it is given."""

    def __init__(self, value: str, name: str | None = None, description: str | None = None) -> None:
        self.value: Final = declared_text(value, "the value of a choice")
        self.name: Final = (
            readable(self.value)
            if name is None
            else declared_text(name, f"the name of the choice {self.value!r}")
        )
        self.description: Final = declared_or_none(
            description, f"the description of the choice {self.value!r}"
        )

    def __repr__(self) -> str:
        return f"Choice({self.value!r})"

    def as_item(self) -> v1.SessionConfigSelectOption:
        """The choice as clients are told of it."""
        return v1.SessionConfigSelectOption(self.value, self.name, self.description or UNSET)


class Group:
    """Choices that belong together, under a name. The id is made from the name, unless it is given."""

    def __init__(
        self, name: str, choices: Mapping[str, str] | Iterable[str | Choice], *, id: str | None = None
    ) -> None:
        self.name: Final = declared_text(name, "the name of a group")
        self.id: Final = (
            _id_from(self.name) if id is None else declared_text(id, f"the id of the group {self.name!r}")
        )
        self.choices: Final = _choices(choices, f"the group {self.name!r}")

    def __repr__(self) -> str:
        return f"Group({self.name!r})"

    def as_item(self) -> v1.SessionConfigSelectGroup:
        """The group as clients are told of it."""
        return v1.SessionConfigSelectGroup(
            self.id, self.name, tuple(choice.as_item() for choice in self.choices)
        )


class Select:
    """An option with one of several values.

    Its choices are plain strings, `Choice`s, a mapping from values to their names, or `Group`s of these.
    The default is the first one, unless it is given. Clients know what to make of some categories: "model",
    "model_config", "thought_level"; those of your own begin with an underscore.
    """

    def __init__(
        self,
        id: str,
        choices: Mapping[str, str] | Iterable[str | Choice | Group],
        *,
        default: str | None = None,
        name: str | None = None,
        description: str | None = None,
        category: str | None = None,
    ) -> None:
        self.id: Final = declared_text(id, "an option's id")
        self.name: Final = _name_of(self.id, name)
        self.description: Final = _description_of(self.id, description)
        self.category: Final = _category_of(self.id, category)
        what = f"the option {self.id!r}"
        items = _items(choices, what)
        self.values: Final = _values_in(items, what)
        self.default: Final = self.values[0] if default is None else self._among_its_own(default)
        self._items = tuple(item.as_item() for item in items)

    def __repr__(self) -> str:
        return f"Select({self.id!r})"

    def offers(self, value: object) -> bool:
        """Return whether this is the value of one of the choices."""
        return isinstance(value, str) and value in self.values

    def as_option(self, value: OptionValue) -> v1.SessionConfigSelect:
        """The option as clients are told of it, at this value."""
        return v1.SessionConfigSelect(
            self.id,
            self.name,
            str(value),
            self._items,
            self.description or UNSET,
            self.category or UNSET,
        )

    def _among_its_own(self, default: object) -> str:
        if not self.offers(default):
            offered = ", ".join(self.values[:20])
            raise ValueError(
                f"the default of the option {self.id!r} is one of its choices ({offered}), "
                f"not {default!r:.100}"
            )
        return declared_text(default, "a default")


class Toggle:
    """An option that is on or off."""

    def __init__(
        self,
        id: str,
        *,
        default: bool = False,
        name: str | None = None,
        description: str | None = None,
        category: str | None = None,
    ) -> None:
        self.id: Final = declared_text(id, "an option's id")
        self.name: Final = _name_of(self.id, name)
        self.description: Final = _description_of(self.id, description)
        self.category: Final = _category_of(self.id, category)
        if not isinstance(default, bool):
            raise ValueError(f"the default of the option {self.id!r} is True or False, not {default!r:.100}")
        self.default: Final[bool] = default

    def __repr__(self) -> str:
        return f"Toggle({self.id!r})"

    def offers(self, value: object) -> bool:
        """Return whether this is True or False."""
        return isinstance(value, bool)

    def as_option(self, value: OptionValue) -> v1.SessionConfigBoolean:
        """The option as clients are told of it that know boolean options."""
        return v1.SessionConfigBoolean(
            self.id, self.name, bool(value), self.description or UNSET, self.category or UNSET
        )

    def as_select(self) -> Select:
        """The option for all other clients: they can still change it, as a choice between on and off."""
        return Select(
            self.id,
            {ON: "On", OFF: "Off"},
            default=ON if self.default else OFF,
            name=self.name,
            description=self.description,
            category=self.category,
        )


Option: TypeAlias = Select | Toggle


def declared_options(options: Iterable[Option]) -> tuple[Option, ...]:
    """Check an agent's options: no two have the same id."""
    return declared_list(options, (Select, Toggle), lambda option: option.id, "options")


def _name_of(id: str, name: str | None) -> str:
    return readable(id) if name is None else declared_text(name, f"the name of the option {id!r}")


def _description_of(id: str, description: str | None) -> str | None:
    return declared_or_none(description, f"the description of the option {id!r}")


def _category_of(id: str, category: str | None) -> str | None:
    return declared_or_none(category, f"the category of the option {id!r}")


def _items(
    choices: Mapping[str, str] | Iterable[str | Choice | Group], what: str
) -> tuple[Choice, ...] | tuple[Group, ...]:
    if isinstance(choices, (Mapping, str)) or not isinstance(choices, Iterable):
        return _choices(choices, what)
    items = tuple(choices)
    groups = [item for item in items if isinstance(item, Group)]
    if not groups:
        return _choices([item for item in items if not isinstance(item, Group)], what)
    if len(groups) < len(items):
        raise ValueError(f"{what} has choices beside groups: put all of its choices into groups, or none")
    return declared_list(groups, (Group,), lambda group: group.id, f"groups of {what}")


def _choices(choices: Mapping[str, str] | Iterable[str | Choice], what: str) -> tuple[Choice, ...]:
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        raise ValueError(f"{what} has a list of choices or a mapping of them to names, not {choices!r:.100}")
    if isinstance(choices, Mapping):
        made = [Choice(value, declared_text(name, f"a name in {what}")) for value, name in choices.items()]
    else:
        made = [_choice(choice, what) for choice in choices]
    if not made:
        raise ValueError(f"{what} has no choices: give it at least one, or leave it out")
    return declared_list(made, (Choice,), lambda choice: choice.value, f"choices of {what}")


def _choice(choice: object, what: str) -> Choice:
    if isinstance(choice, Choice):
        return choice
    if isinstance(choice, str):
        return Choice(choice)
    raise ValueError(f"{what} has choices that are strings or made with Choice(…), not {choice!r:.100}")


def _values_in(items: tuple[Choice, ...] | tuple[Group, ...], what: str) -> tuple[str, ...]:
    choices: list[Choice] = []
    for item in items:
        choices += item.choices if isinstance(item, Group) else [item]
    # A value says which choice is meant, whatever group it stands in.
    distinct = declared_list(choices, (Choice,), lambda choice: choice.value, f"choices of {what}")
    return tuple(choice.value for choice in distinct)


def _id_from(name: str) -> str:
    kept = "".join(character if character.isalnum() else " " for character in name.lower())
    return "-".join(kept.split()) or name


class Command:
    """A slash command. The hint says what to write behind its name.

    Users type it as plain text at the beginning of a prompt: "/plan the release" invokes `plan` with "the
    release".
    """

    def __init__(self, name: str, description: str, *, hint: str | None = None) -> None:
        self.name: Final = _command_name(name)
        self.description: Final = declared_text(description, f"the description of /{self.name}")
        self.hint: Final = declared_or_none(hint, f"the hint of /{self.name}")

    def __repr__(self) -> str:
        return f"Command({self.name!r})"

    def as_available(self) -> v1.AvailableCommand:
        """The command as clients are told of it."""
        expected = UNSET if self.hint is None else v1.UnstructuredCommandInput(self.hint)
        return v1.AvailableCommand(self.name, self.description, expected)


class Invocation(NamedTuple):
    """A slash command that was typed, and the text behind its name."""

    name: str
    arguments: str


def declared_commands(commands: Iterable[Command]) -> tuple[Command, ...]:
    """Check an agent's commands: no two have the same name."""
    return declared_list(commands, (Command,), lambda command: command.name, "commands")


def find_invocation(commands: Iterable[Command], blocks: Iterable[v1.ContentBlock]) -> Invocation | None:
    """Return the command that a prompt invokes, None if its text does not begin with one of them.

    What follows the name is the arguments: the rest of the text, and the blocks behind it as text.
    """
    following = iter(blocks)
    typed = _first_text(following).lstrip()
    if not typed.startswith("/"):
        return None
    word = typed.split(maxsplit=1)[0]
    name = word[1:]
    if name not in {command.name for command in commands}:
        return None
    rest = _without_separator(typed[len(word) :])
    own = (v1.TextContent(rest),) if rest else ()
    return Invocation(name, prompt_text((*own, *following)))


def _command_name(name: object) -> str:
    text = declared_text(name, "a command's name")
    if text.startswith("/"):
        raise ValueError(f"a command's name has no slash before it: write {text.lstrip('/')!r:.100}")
    if len(text.split()) != 1 or text != text.strip():
        raise ValueError(f"a command's name is one word; use '-' in place of the blanks in {text!r:.100}")
    return text


def _first_text(blocks: Iterable[v1.ContentBlock]) -> str:
    """The first text that is not blank. Editors put links to files before what was typed."""
    for block in blocks:
        if isinstance(block, v1.TextContent) and block.text.strip():
            return block.text
    return ""


def _without_separator(rest: str) -> str:
    return rest[2:] if rest.startswith("\r\n") else rest[1:]

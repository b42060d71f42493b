"""Modes, options and commands of the agent behind, as this one declares them.

What the agent says is not trusted to be well-formed: an entry that could not be declared is left out, with a
warning. A model that is offered in the way of before becomes an option.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from coupler.agent.agent import Choice, Command, Group, Mode, Option, Select, Toggle, Value
from coupler.agent.session import MODE, SettingError
from coupler.schema.v1 import (
    AvailableCommand,
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectGroup,
    SessionConfigSelectItem,
    SessionConfigSelectOption,
    SessionMode,
    UnstructuredCommandInput,
)

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.client.settings import LegacyModels, Settings

log = logging.getLogger("coupler.relay")

MODEL = "model"
"""The id of the option that is made of the models of agents of before."""

T = TypeVar("T")
Declared = TypeVar("Declared")


def modes_of(settings: Settings) -> tuple[Mode, ...]:
    """The modes, the current one first: a session begins in the first."""
    ordered = sorted(settings.modes, key=lambda mode: mode.id != settings.mode)
    return _declared(ordered, _mode, lambda mode: mode.id)


def options_of(settings: Settings) -> tuple[Option, ...]:
    """The options. The mode is one of them already where there are modes."""
    told = [option for option in settings.options if not (settings.modes and _id_of(option) == MODE)]
    options: tuple[Option, ...] = _declared(told, _option, _option_id)
    if settings.models is None or settings.model_option is not None:
        return options
    return (*options, *_declared([settings.models], _models, _option_id))


def values_of(settings: Settings) -> dict[str, Value]:
    """What the agent says the options are set to."""
    values: dict[str, Value] = {}
    for option in settings.options:
        if isinstance(option, SessionConfigSelect | SessionConfigBoolean):
            values[option.id] = option.current_value
    if settings.models is not None and settings.models.current_model_id is not None:
        values.setdefault(MODEL, settings.models.current_model_id)
    return values


def commands_of(commands: Sequence[AvailableCommand]) -> tuple[Command, ...]:
    """The slash commands."""
    return _declared(commands, _command, lambda command: command.name)


def adopt(session: Session, settings: Settings) -> None:
    """Have the agent's settings here too, and tell the editor what is new."""
    before = session.settings.as_modes(), session.settings.as_options()
    mode = session.mode
    try:
        session.settings.declare(modes_of(settings) or None, options_of(settings))
    except ValueError as error:
        log.warning("the agent's settings cannot be shown: %s", error)
        return
    if settings.mode is not None and session.mode is not None:
        _taken(lambda: session.settings.set_mode(str(settings.mode)))
    for option, value in values_of(settings).items():
        if option in session.settings.values:
            _taken(partial(session.settings.set, option, value))
    if before != (session.settings.as_modes(), session.settings.as_options()):
        session.tell_settings(mode_changed=session.mode != mode)


def _taken(change: Callable[[], object]) -> None:
    try:
        change()
    except SettingError as error:
        log.warning("the agent is set to something that it does not offer: %s", error)


def _declared(
    told: Iterable[T], declare: Callable[[T], Declared], identify: Callable[[Declared], str]
) -> tuple[Declared, ...]:
    found: dict[str, Declared] = {}
    for each in told:
        try:
            declared = declare(each)
        except ValueError as error:
            log.warning("what the agent offers is left out: %s", error)
            continue
        found.setdefault(identify(declared), declared)
    return tuple(found.values())


def _mode(mode: SessionMode) -> Mode:
    return Mode(mode.id, mode.description or None, name=mode.name)


def _option(option: SessionConfigOption) -> Option:
    match option:
        case SessionConfigSelect(id, name, current, items):
            choices = _items(items)
            default = current if current in _values(choices) else None
            return Select(
                id,
                choices,
                default=default,
                name=name,
                description=option.description or None,
                category=option.category or None,
            )
        case SessionConfigBoolean(id, name, current):
            return Toggle(
                id,
                default=current,
                name=name,
                description=option.description or None,
                category=option.category or None,
            )
        case _:
            raise ValueError("an option of a kind that this version does not know")


def _items(items: Sequence[SessionConfigSelectItem]) -> list[Choice | Group]:
    found: list[Choice | Group] = []
    for item in items:
        match item:
            case SessionConfigSelectOption():
                found.append(_choice(item))
            case SessionConfigSelectGroup(group, name, options):
                found.append(Group(name, [_choice(option) for option in options], id=group))
    return found


def _values(items: Sequence[Choice | Group]) -> set[str]:
    return {
        choice.value for item in items for choice in (item.choices if isinstance(item, Group) else (item,))
    }


def _choice(option: SessionConfigSelectOption) -> Choice:
    return Choice(option.value, option.name, option.description or None)


def _models(models: LegacyModels) -> Option:
    choices = [Choice(model.model_id, model.name or None) for model in models.available_models]
    offered = {choice.value for choice in choices}
    default = models.current_model_id if models.current_model_id in offered else None
    return Select(MODEL, choices, default=default, name="Model", category=MODEL)


def _command(command: AvailableCommand) -> Command:
    hint = command.input.hint if isinstance(command.input, UnstructuredCommandInput) else None
    return Command(command.name, command.description, hint=hint or None)


def _id_of(option: SessionConfigOption) -> str | None:
    return option.id if isinstance(option, SessionConfigSelect | SessionConfigBoolean) else None


def _option_id(option: Option) -> str:
    return option.id

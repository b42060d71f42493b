"""What a session can be set to, as its agent offers it: modes, options, and the model.

A model is an option of the category "model". Agents of before offer `models` of their own, and some have
their modes as an option: each is set the way it wants, and whoever sets them need not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, json

from coupler.client.errors import AgentError
from coupler.schema.v1 import (
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectGroup,
    SessionConfigSelectItem,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

if TYPE_CHECKING:
    from coupler.client.quirks import Quirks

ON = frozenset({"true", "on", "yes"})
OFF = frozenset({"false", "off", "no"})


class LegacyModel(Struct, frozen=True, rename="camel"):
    """A model as agents offered it before models were options."""

    model_id: str
    name: str = ""


class LegacyModels(Struct, frozen=True, rename="camel"):
    """All of them, and the one in use."""

    available_models: tuple[LegacyModel, ...] = ()
    current_model_id: str | None = None


class _Opened(Struct, frozen=True):
    models: LegacyModels | None = None


class Settings:
    """The settings of one session, kept as the agent reports them."""

    def __init__(self) -> None:
        self.mode: str | None = None
        self.modes: tuple[SessionMode, ...] = ()
        self.options: tuple[SessionConfigOption, ...] = ()
        self.models: LegacyModels | None = None

    def opened(
        self,
        modes: SessionModeState | UnsetType | None,
        options: Sequence[SessionConfigOption] | UnsetType | None,
        answer: Raw,
    ) -> None:
        """A session was opened with these; `answer` may hold more than the protocol knows today."""
        if modes:
            self.modes = tuple(modes.available_modes)
            self.mode = modes.current_mode_id
        if options:
            self.options = tuple(options)
        try:
            self.models = json.decode(answer, type=_Opened).models
        except DecodeError:
            self.models = None

    @property
    def model(self) -> str | None:
        """The model in use, if the agent tells."""
        option = self.model_option
        if option is not None:
            return option.current_value
        return None if self.models is None else self.models.current_model_id

    @property
    def model_option(self) -> SessionConfigSelect | None:
        """The option that chooses the model."""
        selects = [option for option in self.options if isinstance(option, SessionConfigSelect)]
        by_category = (option for option in selects if option.category == "model")
        by_id = (option for option in selects if option.id == "model")
        return next(by_category, next(by_id, None))

    @property
    def offered_models(self) -> tuple[str, ...]:
        """What the model can be set to."""
        if (option := self.model_option) is not None:
            return values_of(option.options)
        return () if self.models is None else tuple(model.model_id for model in self.models.available_models)

    @property
    def offered_modes(self) -> tuple[str, ...]:
        """What the mode can be set to."""
        if self.modes:
            return tuple(mode.id for mode in self.modes)
        option = self.mode_option
        return () if option is None else values_of(option.options)

    @property
    def mode_option(self) -> SessionConfigSelect | None:
        """The option that chooses the mode, of agents that have it as one."""
        selects = (option for option in self.options if isinstance(option, SessionConfigSelect))
        return next((option for option in selects if option.category == "mode"), None)

    def model_was_set(self, model: str) -> None:
        """An agent of before has taken the model; it does not report it."""
        if self.models is not None:
            self.models = LegacyModels(self.models.available_models, model)

    def chosen_model(self, wanted: str, quirks: Quirks) -> str:
        """The offered model that is meant; raises with the list of them."""
        offered = self.offered_models
        chosen = quirks.model_for(wanted, offered)
        if chosen is None or chosen not in offered:
            raise _not_offered("model", wanted, offered)
        return chosen

    def chosen_mode(self, wanted: str) -> str:
        """The mode, if it is offered; raises with the list of them."""
        if wanted not in self.offered_modes:
            raise _not_offered("mode", wanted, self.offered_modes)
        return wanted

    def chosen_value(self, id: str, value: Any) -> str | bool:
        """The value for an option, of its type; raises with what can be chosen."""
        option = next((option for option in self.options if _id(option) == id), None)
        match option:
            case SessionConfigBoolean():
                return _boolean(id, value)
            case SessionConfigSelect():
                offered = values_of(option.options)
                if value not in offered:
                    raise _not_offered(f"value for {id!r}", value, offered)
                return str(value)
            case _:
                raise _not_offered("option", id, tuple(filter(None, map(_id, self.options))))


def values_of(items: Sequence[SessionConfigSelectItem]) -> tuple[str, ...]:
    """The values of a selection, groups or no groups."""
    found: list[str] = []
    for item in items:
        match item:
            case SessionConfigSelectOption(value):
                found.append(value)
            case SessionConfigSelectGroup(options=options):
                found.extend(option.value for option in options)
    return tuple(found)


def _id(option: SessionConfigOption) -> str | None:
    named = getattr(option, "id", UNSET)
    return named if isinstance(named, str) else None


def _boolean(id: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in ON | OFF:
        return word in ON
    raise _not_offered(f"value for {id!r}", value, ("true", "false"))


def _not_offered(what: str, wanted: Any, offered: Sequence[str]) -> AgentError:
    choices = f"it offers {', '.join(offered)}" if offered else "it offers none"
    return AgentError("session", f"the agent does not offer the {what} {str(wanted)!r}: {choices}")

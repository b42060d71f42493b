"""A session's settings: its modes and options with their current values, and how they hang together.

The mode is an option too: where there are modes, a select with the id "mode" is made of them, and both
are the same value. Nothing here talks to anyone; whoever changes a setting tells the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from coupler.agent.mode import Mode, declared_modes
from coupler.agent.option import OFF, ON, Choice, Option, Select, Toggle, Value, declared_options
from coupler.schema import v1

MODE = "mode"
"""The id of the option that is made of the modes."""

BOOLEANS = "session.configOptions.boolean"
"""What a client offers that knows boolean options."""

NAMED = 20
"""How many ids or values an error names."""


class SettingError(ValueError):
    """A mode, option or value that there is not. The message names what there is; nothing was changed."""


class Settings:
    """The modes and options of one session. Every value is at all times one of those that are offered."""

    def __init__(self, modes: Iterable[Mode], options: Iterable[Option], *, booleans: bool) -> None:
        """`booleans` says whether the client knows boolean options, see BOOLEANS."""
        self._booleans = booleans
        self._modes: tuple[Mode, ...] = ()
        self._options: dict[str, Option] = {}
        self._values: dict[str, Value] = {}
        # What was saved but is not offered: agents may declare what they offer after they were restored.
        self._awaited: dict[str, Value] = {}
        self.declare(modes, options)

    @property
    def mode(self) -> str | None:
        """The id of the current mode, None if there are no modes."""
        return str(self._values[MODE]) if self._modes else None

    @property
    def values(self) -> Mapping[str, Value]:
        """The current value of every option by its id, without the mode."""
        return {option.id: self._values[option.id] for option in self._own_options()}

    def __getitem__(self, option_id: str) -> Value:
        try:
            return self._values[option_id]
        except KeyError:
            raise KeyError(self._no_option(option_id)) from None

    def declare(self, modes: Iterable[Mode] | None = None, options: Iterable[Option] | None = None) -> None:
        """Have other modes or options from now on; None leaves them as they are.

        Current values are kept where they are still offered, the others become the default.
        """
        new_modes = self._modes if modes is None else declared_modes(modes)
        new_options = self._own_options() if options is None else declared_options(options)
        offered = (*_made_of(new_modes, new_options), *new_options)
        self._modes = new_modes
        self._options = {option.id: option for option in offered}
        self._values = {option.id: self._still_offered(option) for option in offered}
        self._take_awaited()

    def set_mode(self, id: str) -> bool:
        """Change the mode; returns whether it is another one now."""
        if not self._modes:
            raise SettingError(f"there is no mode {id!r:.100}: the agent has no modes")
        if not self._options[MODE].offers(id):
            there_are = _listed(mode.id for mode in self._modes)
            raise SettingError(f"there is no mode {id!r:.100}; there are {there_are}")
        return self._change(MODE, id)

    def set(self, option_id: str, value: Value) -> bool:
        """Change an option, as the agent's own code sees it; returns whether it has another value now."""
        option = self._option(option_id)
        if self._modes and option.id == MODE:
            raise SettingError("the mode is no option of the agent's own: change it with set_mode")
        _refuse_unoffered(option, value)
        return self._change(option.id, value)

    def set_by_client(self, config_id: str, value: Value) -> bool:
        """Change an option, as the client sees it; returns whether it has another value now."""
        option = self._option(config_id)
        shown = self._as_shown(option)
        _refuse_unoffered(shown, value)
        return self._change(option.id, value == ON if shown is not option else value)

    def as_modes(self) -> v1.SessionModeState | UnsetType:
        """The modes as session/new, load and resume tell them; UNSET if there are none."""
        if not self._modes:
            return UNSET
        return v1.SessionModeState(str(self._values[MODE]), tuple(mode.as_mode() for mode in self._modes))

    def as_options(self) -> tuple[v1.SessionConfigOption, ...] | UnsetType:
        """All options with their values, the mode first; UNSET if there are none."""
        return tuple(self._as_option(option) for option in self._options.values()) or UNSET

    def saved(self) -> dict[str, Any]:
        """The current values, for a file."""
        return {"mode": self.mode, "options": dict(self.values)}

    def restore(self, saved: object) -> None:
        """Take over saved values. What is not offered is left at its default; garbage is passed over.

        A value that is offered by a later `declare` is taken over then, unless something else was set before.
        """
        self._awaited.update(_values_saved_in(saved))
        self._take_awaited()

    def _own_options(self) -> tuple[Option, ...]:
        """The options that the agent declared itself."""
        options = tuple(self._options.values())
        return options[1:] if self._modes else options

    def _still_offered(self, option: Option) -> Value:
        value = self._values.get(option.id)
        return value if value is not None and option.offers(value) else option.default

    def _option(self, option_id: str) -> Option:
        try:
            return self._options[option_id]
        except (KeyError, TypeError):
            raise SettingError(self._no_option(option_id)) from None

    def _no_option(self, option_id: object) -> str:
        return f"there is no option {option_id!r:.100}; there are {_listed(self._options)}"

    def _change(self, option_id: str, value: Value) -> bool:
        self._awaited.pop(option_id, None)
        if self._values[option_id] == value:
            return False
        # A subclass of str is welcome, but the encoder knows none.
        self._values[option_id] = str.__str__(value) if isinstance(value, str) else value
        return True

    def _take_awaited(self) -> None:
        for option_id, value in [*self._awaited.items()]:
            option = self._options.get(option_id)
            if option is not None and option.offers(value):
                self._change(option_id, value)

    def _as_shown(self, option: Option) -> Option:
        """The option in the form that this client knows."""
        return option.as_select() if isinstance(option, Toggle) and not self._booleans else option

    def _as_option(self, option: Option) -> v1.SessionConfigOption:
        shown, value = self._as_shown(option), self._values[option.id]
        if shown is not option:
            value = ON if value else OFF
        return shown.as_option(value)


def _made_of(modes: tuple[Mode, ...], options: tuple[Option, ...]) -> tuple[Option, ...]:
    if not modes:
        return ()
    if any(option.id == MODE for option in options):
        raise ValueError(
            f"the option {MODE!r} is made of the agent's modes: take yours out, or give it another id"
        )
    choices = [Choice(mode.id, mode.name, mode.description) for mode in modes]
    return (Select(MODE, choices, name="Mode", category=MODE),)


def _values_saved_in(saved: object) -> dict[str, Value]:
    if not isinstance(saved, dict):
        return {}
    options, mode = saved.get("options"), saved.get("mode")
    values = {**options} if isinstance(options, dict) else {}
    if mode is not None:
        values[MODE] = mode
    return {
        option_id: value
        for option_id, value in values.items()
        if isinstance(option_id, str) and isinstance(value, Value)
    }


def _refuse_unoffered(option: Option, value: object) -> None:
    if option.offers(value):
        return
    if isinstance(option, Toggle):
        raise SettingError(f"the option {option.id!r} is a boolean, true or false, not {value!r:.100}")
    raise SettingError(
        f"the option {option.id!r} has no value {value!r:.100}; it has {_listed(option.values)}"
    )


def _listed(ids: Iterable[str]) -> str:
    names = [*ids]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more if names else "none"

"""Options: what the user can set for a session.

A `Select` is one of several values, a `Toggle` is on or off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import UNSET

from coupler.agent.declaration import declared_list, declared_or_none, declared_text
from coupler.fields import readable
from coupler.schema import v1

Value: TypeAlias = str | bool
"""What an option can be: the value of a choice, or whether a toggle is on."""

ON, OFF = "on", "off"
"""A toggle's values, for clients that know no boolean options."""


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
        """Whether this is the value of one of the choices."""
        return isinstance(value, str) and value in self.values

    def as_option(self, value: Value) -> v1.SessionConfigSelect:
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
        """Whether this is True or False."""
        return isinstance(value, bool)

    def as_option(self, value: Value) -> v1.SessionConfigBoolean:
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
    """An agent's options if they can be told apart."""
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

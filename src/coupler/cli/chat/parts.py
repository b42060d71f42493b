"""What a conversation is made of on a screen: each part is shown once, in order, and scrolls away.

Text in them is clean: nothing that an agent wrote can move a cursor or change what stands elsewhere.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from coupler.events import ToolCall
from coupler.schema.v1 import PermissionOption, PlanEntry


class Asked(Struct, frozen=True):
    """What the user had said, told again."""

    text: str


class Answer(Struct, frozen=True):
    """A whole block of the agent's Markdown: a paragraph, a list, a table."""

    text: str


class Musing(Struct, frozen=True):
    """What the agent thought, to be looked at by its number."""

    number: int
    text: str


class Called(Struct, frozen=True):
    """A tool call as it stands, to be looked at by its number."""

    number: int
    call: ToolCall


class Planned(Struct, frozen=True):
    """The plan as it stands."""

    entries: tuple[PlanEntry, ...]


class Shown(Struct, frozen=True):
    """A note in place of what a terminal cannot show: an image, a sound, a link."""

    note: str


class Remark(Struct, frozen=True):
    """A sentence about the conversation; the severity is one of ACP's notices, or "question"."""

    title: str
    detail: str = ""
    severity: str = "info"


class Wanted(Struct, frozen=True):
    """Something that the agent wants to do, and the answers that it offers."""

    call: ToolCall
    options: tuple[PermissionOption, ...]
    is_whole: bool = False


class Choice(Struct, frozen=True):
    """A line of a listing: what is typed for it, and what it is."""

    word: str
    meaning: str = ""
    is_current: bool = False


class Listing(Struct, frozen=True):
    """What there is to choose from."""

    title: str
    choices: tuple[Choice, ...]
    hint: str = ""


Numbered: TypeAlias = Musing | Called
Part: TypeAlias = Asked | Answer | Musing | Called | Planned | Shown | Remark | Wanted | Listing

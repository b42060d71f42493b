"""The keys of inputs, and of answers to what a workflow asks."""

from __future__ import annotations

from typing import get_args

from coupler.workflow.language.definition import InputType
from coupler.workflow.language.keys_shared import NAME_PATTERN, NAME_WORDS, PLAIN
from coupler.workflow.language.scalars import Boolean, Choice, Number, Text
from coupler.workflow.language.shapes import Anything, Either, ListOf, MappingOf
from coupler.workflow.language.table import Key, Table

TYPES: tuple[str, ...] = get_args(InputType)
CONSTRAINT_KEYS = (
    Key("enum", ListOf(Anything(), "a list of values", 1), "The only values that fit.", "[dev, staging]"),
    Key("pattern", Text("a regular expression"), "What a text must match as a whole.", '"v[0-9]+"'),
    Key("min", Number(), "The least number, or the shortest length of a text or list.", "1"),
    Key("max", Number(), "The greatest number, or the longest length of a text or list.", "5"),
)
TYPE_KEY = Key(
    "type",
    Choice(TYPES),
    "What it is. A file is the path of one that exists, from the working directory on.",
    "integer",
    "`string`",
)
DEFAULT_KEY = Key("default", Anything(), "The value when none is given.", "2")
INPUT = Table(
    "input",
    "an input",
    (
        TYPE_KEY,
        Key("description", PLAIN, "What it is for; shown to whoever starts the workflow.", "Branch or path"),
        Key("required", Boolean(), "Whether the workflow cannot start without it.", "true", "false"),
        DEFAULT_KEY,
        *CONSTRAINT_KEYS,
        Key(
            "secret",
            Boolean(),
            "Whether its value is masked wherever people or files see it.",
            "true",
            "false",
        ),
        Key(
            "rest",
            Boolean(),
            "Whether it takes the text that is left after the named inputs.",
            "true",
            "false",
        ),
    ),
    sentence="A value that whoever starts the workflow gives, or that has a default.",
)
INPUTS = MappingOf(Either((Choice(TYPES), INPUT)), "a mapping of inputs by name", NAME_PATTERN, NAME_WORDS)

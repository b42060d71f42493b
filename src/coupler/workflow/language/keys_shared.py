"""What several keys of the workflow language have in common: names, templates, expressions."""

from __future__ import annotations

from coupler.workflow.language.scalars import AnyText, Boolean, Number, Text, Variable
from coupler.workflow.language.shapes import Either, MappingOf

STEP_ID_PATTERN = "^[a-z_][a-z0-9_]{0,63}$"
NAME_PATTERN = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
FREE_NAME_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
NAME_WORDS = "made of letters, digits and `_`, at most 64 of them, and not begin with a digit"
FREE_NAME_WORDS = "made of letters, digits, `_`, `-` and `.`, at most 64 of them"
NO_CONTROL_PATTERN = r"^[^=\x00-\x1f\x7f]+$"
PLAIN = AnyText(is_template=False)
TEMPLATE = Text(kind="template")
EXPRESSION = Text("an expression", kind="expression")
STEP_ID = Text(
    "the id of a step", STEP_ID_PATTERN, wrong_words="must be made of lower-case letters, digits and `_`"
)
COUNT = Number(minimum=1, maximum=1_000_000, is_whole=True)
VARIABLES = MappingOf(
    Variable(),
    "a mapping of texts",
    NO_CONTROL_PATTERN,
    "a variable's name, without `=` and control characters",
)
CONDITION = Either((Boolean(), EXPRESSION))

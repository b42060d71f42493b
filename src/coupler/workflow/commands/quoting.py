"""Scripts of `run` steps: values arrive as words, whatever is in them.

Each value is assigned to a shell variable before the script begins, and the script has an expansion of that
variable in its place, with the quotes that the place needs (`shell` finds out which). A shell does not read
again what an expansion gives: a wrong guess about the quotes splits words, and never runs anything.

Outside of quotes a list that stands by itself becomes its words; everywhere else its items are joined by
spaces. Mappings are JSON, booleans `true` and `false`. Null and NUL characters are errors. `| raw` puts text
into the script as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from coupler.workflow.commands.marked_text import MARK, PlacementError, Value
from coupler.workflow.commands.shell import place
from coupler.workflow.errors import StepError
from coupler.workflow.expressions.bounds import Bounds, EvaluationError
from coupler.workflow.expressions.values import ShellText, as_text

if TYPE_CHECKING:
    from coupler.workflow.expressions.expression import Expressions


class Script(NamedTuple):
    """What a shell reads from a file; values are in it, so the file is for the user alone."""

    text: bytes


def make_script(
    template: str, names: Mapping[str, object], expressions: Expressions, shell: Literal["sh", "bash"]
) -> Script:
    """The script of a `run` step; raises StepError("template")."""
    if MARK in template:
        raise StepError("template", "the script has a NUL character, which no shell can read: take it out")
    values: list[Value] = []

    def written(value: object, bounds: Bounds, source: str) -> str:
        if isinstance(value, ShellText):
            return _without_nul(value)
        words = value if isinstance(value, list | tuple) else (value,)
        texts = tuple(_without_nul(as_text(word, bounds)) for word in words)
        values.append(Value(texts, isinstance(value, list | tuple), source))
        return f"{MARK}{len(values) - 1}{MARK}"

    marked = expressions.render(template, names, written)
    variables = _Variables(template, marked)
    try:
        placed = place(marked, values, shell, variables.name_of)
        return Script((variables.preamble() + placed).encode("utf-8", "surrogateescape"))
    except PlacementError as error:
        raise StepError("template", str(error)) from None
    except RecursionError:
        raise StepError("template", "the script is nested too deep: split it into steps") from None
    except UnicodeEncodeError:
        raise StepError("template", "a value has half of a character, which cannot be written") from None


def _without_nul(text: str) -> str:
    if MARK in text:
        raise EvaluationError("it has a NUL character, which no shell can hold: hand it over by `stdin`")
    return text


class _Variables:
    """The names that values have in the script: not exported, and not among the script's own."""

    def __init__(self, template: str, script: str) -> None:
        digest = hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()
        self._prefix = f"coupler_{digest[:8]}_"
        while self._prefix in script:
            self._prefix += "_"
        self._names: dict[str, str] = {}

    def name_of(self, text: str) -> str:
        return self._names.setdefault(text, f"{self._prefix}{len(self._names) + 1}")

    def preamble(self) -> str:
        """Stands in the first line of the script, so that a shell counts the script's own lines."""
        return "".join(f"{name}={_single_quoted(text)}; " for text, name in self._names.items())


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"

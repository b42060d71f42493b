"""Parses the inputs of a workflow from a command line, and checks which values fit.

`-i name=value`, `--input name=value`, `--input=name=value` and `name=value` are the same. Other words are
free text for the input that takes the `rest`. A value is what comes after the first `=`, whatever is in it.

Texts are read by the type of their input: booleans are `true`, `yes`, `on`, `1` and their opposites; a list
is a JSON array, or its items with line ends or commas between, or one item each time that the input is given;
an object is JSON; a file is a path from the current directory on, and must be there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import msgspec

from coupler.fields.bounded_regex import Pattern
from coupler.runtime.formatting import printable
from coupler.workflow.errors import InputError
from coupler.workflow.language.model import NEVER_SECRET, Input, InputType, Json, Workflow

LONGEST_NUMBER = 300
"""Characters of a number."""

_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def inputs_in_words(words: Sequence[str], workflow: Workflow) -> dict[str, str]:
    """Return names and texts of the words after a workflow's name; raises InputError with all problems."""
    problems: list[str] = []
    given: dict[str, list[str]] = {}
    free: list[str] = []
    for word, is_option in _words(words, problems):
        pair = _PAIR.fullmatch(word)
        if pair and (pair[1] in workflow.inputs or is_option or _rest(workflow) is None):
            given.setdefault(pair[1], []).append(pair[2])
        elif is_option:
            problems.append(f"`{printable(word, 60)}` is no input: write it as name=value")
        else:
            free.append(word)
    if free:
        _add_free_text(" ".join(free), workflow, given, problems)
    problems += [_unknown(name, workflow) for name in given if name not in workflow.inputs]
    problems += [
        f"input `{name}` is given {len(texts)} times: give it once"
        for name, texts in given.items()
        if len(texts) > 1 and name in workflow.inputs and workflow.inputs[name].type != "list"
    ]
    _raise(problems, workflow)
    return {name: texts[0] if len(texts) == 1 else json.dumps(texts) for name, texts in given.items()}


def bind_inputs(workflow: Workflow, given: Mapping[str, Json], cwd: str) -> dict[str, Json]:
    """Return the value of every input: as given, its default, or null; raises InputError with all problems.

    Texts are read by the type of their input, other values have to be of it.
    """
    problems = [_unknown(name, workflow) for name in given if name not in workflow.inputs]
    values: dict[str, Json] = {}
    for name, declared in workflow.inputs.items():
        try:
            if name in given:
                values[name] = _bound(declared, given[name], cwd)
            elif declared.default is not msgspec.UNSET:
                values[name] = None if declared.default is None else _bound(declared, declared.default, cwd)
            elif declared.required:
                problems.append(f"input `{name}` is missing: give it as {name}={_KINDS[declared.type].usage}")
            else:
                values[name] = None
        except InputError as error:
            problems.append(str(error))
    _raise(problems, workflow)
    return values


def check_given(declared: Input, value: Json) -> None:
    """Raise InputError unless a value can be given for an input."""
    _bound(declared, value, ".")


def parse_input(declared: Input, text: str, cwd: str) -> Json:
    """Parse the text of an input into its value; raises InputError."""
    kind = _KINDS[declared.type]
    problem = f"input `{declared.name}` has to be {kind.words}, not {_quoted(declared, text)}"
    try:
        value = kind.parse(text, cwd)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{problem}{_detail(declared, error)}") from None
    check_value(declared, value)
    return value


def inputs_usage(workflow: Workflow) -> str:
    """Describe the inputs of a workflow, one in a line."""
    if not workflow.inputs:
        return f"`{workflow.name}` takes no inputs"
    rows = [(_spelling(declared), _about(declared)) for declared in workflow.inputs.values()]
    width = max(len(spelling) for spelling, _ in rows)
    return "\n".join(
        [f"inputs of `{workflow.name}`:", *(f"  {name:{width}}  {about}".rstrip() for name, about in rows)]
    )


def unfit_keys(declared: Input) -> Iterator[tuple[str, str]]:
    """Yield the keys of a declaration that do not go together with the others, and why."""
    if problem := _pattern_problem(declared):
        yield "pattern", problem
        return
    if declared.secret and declared.type in NEVER_SECRET:
        yield "secret", f"only texts can be hidden: `secret` does not go with `type: {declared.type}`"
        return
    bounded = [key for key in ("min", "max") if getattr(declared, key) is not None]
    if bounded and declared.type == "boolean":
        yield bounded[0], f"`{bounded[0]}` does not go with `type: boolean`"
    elif declared.min is not None and declared.max is not None and declared.min > declared.max:
        yield "max", "`max` must not be less than `min`"
    # The choices of a list are those of its items.
    elif declared.type != "list" and not all(_is_of(declared.type, value) for value in declared.enum):
        yield "enum", f"`enum` must have values of the type: {_written(declared)}"
    elif problem := _default_problem(declared):
        yield "default", problem


def _default_problem(declared: Input) -> str | None:
    if declared.default is msgspec.UNSET:
        return None
    if declared.required:
        return "`default` is never used, as the input is `required`: leave one of them out"
    if declared.default is None:
        return None
    if not _is_of(declared.type, declared.default):
        return f"`default` must be {_written(declared)}, as the `type` is `{declared.type}`"
    try:
        check_value(declared, declared.default)
    except InputError as error:
        return f"`default` does not fit: {error}"
    return None


def _pattern_problem(declared: Input) -> str | None:
    if declared.pattern is None:
        return None
    if declared.type not in ("string", "file", "list"):
        return f"`pattern` is for texts: it does not go with `type: {declared.type}`"
    try:
        # By itself first, so that a position in the message is one in what was written.
        Pattern(declared.pattern)
        Pattern(f"^(?:{declared.pattern})$")
    except ValueError as error:
        return f"`pattern` cannot be used: {error}"
    return None


def _written(declared: Input) -> str:
    return _KINDS[declared.type].written or _KINDS[declared.type].words


def _words(words: Sequence[str], problems: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield each word that may be an input, and whether an option marks it as one."""
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            yield from ((rest, False) for rest in waiting)
        elif word in ("-i", "--input"):
            following = next(waiting, None)
            if following is None:
                problems.append(f"`{word}` needs an input after it: name=value")
            else:
                yield following, True
        elif word.startswith("--input="):
            yield word.removeprefix("--input="), True
        elif word.startswith("-i") and _PAIR.fullmatch(word[2:]):
            yield word[2:], True
        else:
            yield word, False


def _rest(workflow: Workflow) -> Input | None:
    return next((declared for declared in workflow.inputs.values() if declared.rest), None)


def _add_free_text(text: str, workflow: Workflow, given: dict[str, list[str]], problems: list[str]) -> None:
    rest = _rest(workflow)
    if rest is None:
        problems.append(f"`{printable(text, 60)}` is no input: write inputs as name=value")
    else:
        given.setdefault(rest.name, []).append(text)


def _unknown(name: str, workflow: Workflow) -> str:
    near = get_close_matches(name[:60], workflow.inputs, n=1)
    hint = f": did you mean `{near[0]}`?" if near else ""
    return f"there is no input `{printable(name, 60)}`{hint}"


def _raise(problems: list[str], workflow: Workflow) -> None:
    if problems:
        raise InputError("\n".join([*problems, inputs_usage(workflow)]))


def _bound(declared: Input, value: Json, cwd: str) -> Json:
    if isinstance(value, str):
        return parse_input(declared, value, cwd)
    if not _is_of(declared.type, value):
        raise InputError(f"input `{declared.name}` has to be {_KINDS[declared.type].words}")
    check_value(declared, value)
    return value


def check_value(declared: Input, value: Json) -> None:
    """Raise InputError unless a value of the right type is also allowed."""
    items = list(value) if declared.type == "list" else [value]
    for item in items:
        if declared.enum and not any(_is_same(item, choice) for choice in declared.enum):
            choices = ", ".join(printable(str(choice), 60) for choice in declared.enum)
            raise InputError(
                f"input `{declared.name}` has to be one of {choices}, not {_quoted(declared, item)}"
                f"{_nearest(declared, item)}"
            )
        if declared.pattern is not None and isinstance(item, str):
            _check_pattern(declared, item)
    if declared.min is not None or declared.max is not None:
        _check_size(declared, value)


def _is_same(value: Json, choice: Json) -> bool:
    return bool(value == choice) and isinstance(value, bool) is isinstance(choice, bool)


def _nearest(declared: Input, item: Json) -> str:
    """Return a hint to the nearest choice, as the end of a sentence; empty for a secret input."""
    choices = {str(choice).casefold(): str(choice) for choice in declared.enum or ()}
    near = get_close_matches(str(item)[:60].casefold(), choices, n=1)
    return f"; did you mean `{printable(choices[near[0]], 60)}`?" if near and not declared.secret else ""


def _check_pattern(declared: Input, text: str) -> None:
    try:
        fits = Pattern(f"^(?:{declared.pattern})$").found_in(text)
    except ValueError as error:
        raise InputError(f"input `{declared.name}` cannot be checked: {error}") from None
    if not fits:
        pattern = printable(declared.pattern or "", 60)
        raise InputError(
            f"input `{declared.name}` has to fit the pattern {pattern}, not {_quoted(declared, text)}"
        )


def _check_size(declared: Input, value: Json) -> None:
    """Raise InputError unless a number's value, or the length of anything else, is within its bounds."""
    is_number = declared.type in ("integer", "number")
    size, unit = (value, "") if is_number else (len(value), " long")
    if declared.min is not None and size < declared.min:
        raise InputError(f"input `{declared.name}` has to be at least {declared.min:g}{unit}")
    if declared.max is not None and size > declared.max:
        raise InputError(f"input `{declared.name}` has to be at most {declared.max:g}{unit}")


def _quoted(declared: Input, value: object) -> str:
    return "what was given" if declared.secret else f"`{printable(str(value), 60)}`"


def _detail(declared: Input, error: Exception) -> str:
    """Return the reason why a value cannot be parsed, for types whose errors repeat nothing of the text."""
    if declared.type in ("boolean", "list", "object", "file") and str(error):
        return f": {error}"
    return ""


def _spelling(declared: Input) -> str:
    return f"{declared.name}={_KINDS[declared.type].usage}"


def _about(declared: Input) -> str:
    """Return an input's description, with notes on what may be given."""
    notes = ["required"] if declared.required and declared.default is msgspec.UNSET else []
    if declared.enum:
        notes.append("one of " + ", ".join(printable(str(choice), 60) for choice in declared.enum))
    if declared.default not in (msgspec.UNSET, None) and not declared.secret:
        notes.append(f"default {printable(json.dumps(declared.default, ensure_ascii=False), 60)}")
    if declared.rest:
        notes.append("also the words without a name")
    about = printable(declared.description, 200)
    return f"{about} ({'; '.join(notes)})" if notes and about else about or "; ".join(notes)


def _integer(text: str, cwd: str) -> int:
    if len(text) > LONGEST_NUMBER or not re.fullmatch(r"\s*[-+]?[0-9]+\s*", text):
        raise ValueError
    return int(text)


def _number(text: str, cwd: str) -> float:
    try:
        return _integer(text, cwd)
    except ValueError:
        number = float(text) if len(text) <= LONGEST_NUMBER else math.nan
    if not math.isfinite(number):
        raise ValueError
    return number


def _boolean(text: str, cwd: str) -> bool:
    if text.strip().lower() not in _BOOLEANS:
        raise ValueError("write `true` or `false`")
    return _BOOLEANS[text.strip().lower()]


def _list(text: str, cwd: str) -> list[Json]:
    if text.lstrip().startswith("["):
        items = json.loads(text)
        assert isinstance(items, list)
        return items
    parts = text.splitlines() if "\n" in text else text.split(",")
    return [part.strip() for part in parts if part.strip()]


def _object(text: str, cwd: str) -> dict[str, Json]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError
    return value


def _file(text: str, cwd: str) -> str:
    path = Path(cwd, text).expanduser().absolute()
    if not text or not path.exists():
        raise ValueError("there is no such file")
    return str(path)


class _Kind(NamedTuple):
    """A type of inputs."""

    words: str
    usage: str
    """What stands for a value where it is told how an input is given."""
    types: type | tuple[type, ...]
    parse: Callable[[str, str], Json]
    """Parses a text, with the directory that paths start from."""
    written: str = ""
    """The words for a value in a workflow's file, if they are others."""


_KINDS: Mapping[InputType, _Kind] = {
    "string": _Kind("a text", "TEXT", str, lambda text, cwd: text),
    "integer": _Kind("a whole number", "INTEGER", int, _integer),
    "number": _Kind("a number", "NUMBER", (int, float), _number),
    "boolean": _Kind("true or false", "BOOLEAN", bool, _boolean),
    "list": _Kind("a list", "ITEMS", (list, tuple), _list),
    "object": _Kind("a JSON object", "JSON", Mapping, _object, "a mapping"),
    "file": _Kind("a path", "PATH", str, _file, "the path of a file"),
}


def _is_of(type: InputType, value: Json) -> bool:
    return isinstance(value, bool) is (type == "boolean") and isinstance(value, _KINDS[type].types)

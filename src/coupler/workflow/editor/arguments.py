"""What stands behind a slash command: inputs with names, and free text that stays as it was typed.

`name=value`, `-i name=value`, `--input name=value` and `--input=name=value` may stand anywhere. A value, or a
whole word, may be in quotes; a quote inside of a word is an apostrophe. Everything else is free text, for the
input that takes the `rest`, else for the one input that is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from coupler.workflow.language.definition import Input, Workflow

OPTIONS = ("-i", "--input")

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'"
_WORD = re.compile(rf"(?P<before>(?:[^\s=\"']*=){{0,2}})(?P<quoted>{_QUOTED})(?=\s|$)|\S+", re.DOTALL)
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=")


def words_in(text: str, workflow: Workflow) -> list[str]:
    """The arguments as `pairs_in` takes them: inputs as options, and all free text as one word."""
    inputs: list[str] = []
    free: list[str] = []
    waiting_for_input = False
    end = 0
    for match in _WORD.finditer(text):
        word = _unquoted(match)
        if waiting_for_input:
            inputs.append(word)
            waiting_for_input = False
        elif match[0] in OPTIONS:
            inputs.append(word)
            waiting_for_input = True
        elif _is_input(word, workflow):
            inputs.append(word if word.startswith("--input=") else f"--input={word}")
        else:
            free += [text[end : match.start()], match[0]]
        end = match.end()
    return [*inputs, *_free_words("".join(free).strip(), inputs, workflow)]


def hint_of(workflow: Workflow) -> str:
    """The inputs in a line; those that may be left out are in brackets."""
    return " ".join(_hints(workflow))


def _hints(workflow: Workflow) -> Iterator[str]:
    # What takes the free text is mostly typed last.
    for declared in sorted(workflow.inputs.values(), key=lambda each: each.rest):
        spelled = declared.name if declared.rest else f"{declared.name}={_example(declared)}"
        yield spelled if is_needed(declared) else f"[{spelled}]"


def is_needed(declared: Input) -> bool:
    """Whether there is no run without it."""
    return declared.required and declared.default is msgspec.UNSET


def _example(declared: Input) -> str:
    if declared.enum:
        return "|".join(str(choice) for choice in declared.enum[:6])
    return {"string": "TEXT", "list": "ITEMS", "object": "JSON", "file": "PATH"}.get(
        declared.type, declared.type.upper()
    )


def _unquoted(match: re.Match[str]) -> str:
    quoted = match["quoted"]
    if quoted is None:
        return match[0]
    inside = quoted[1:-1]
    if quoted[0] == '"':
        inside = re.sub(r"\\([\"\\])", r"\1", inside)
    return f"{match['before']}{inside}"


def _is_input(word: str, workflow: Workflow) -> bool:
    if word.startswith("--input="):
        return True
    named = _NAME.match(word)
    return named is not None and (named[1] in workflow.inputs or not _takes_free_text(workflow))


def _takes_free_text(workflow: Workflow) -> bool:
    return any(declared.rest for declared in workflow.inputs.values()) or len(workflow.inputs) == 1


def _free_words(free: str, inputs: list[str], workflow: Workflow) -> list[str]:
    if not free:
        return []
    whole = _WORD.fullmatch(free)
    text = free if whole is None else _unquoted(whole)
    left = _one_left(inputs, workflow)
    return ["--", text] if left is None else [f"--input={left}={text}"]


def _one_left(inputs: list[str], workflow: Workflow) -> str | None:
    """The input that the free text must mean; none if one takes the rest, or if it could mean several."""
    if any(declared.rest for declared in workflow.inputs.values()):
        return None
    named = {found[1] for each in inputs if (found := _NAME.match(each.removeprefix("--input=")))}
    left = [declared for name, declared in workflow.inputs.items() if name not in named]
    needed = [declared for declared in left if is_needed(declared)]
    meant = needed if len(needed) == 1 else left
    return meant[0].name if len(meant) == 1 else None

"""`coupler workflows show`: a workflow for people, from what it takes to what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from coupler.cli.sessions.wording import clean, one_line
from coupler.cli.workflows.check import seen_from

if TYPE_CHECKING:
    from coupler.workflow.language.model import Input, Step, Workflow

LONGEST_LINE = 79
"""Characters of a line, so that it stands whole in the narrowest terminals that are usual."""

LEAST_TITLE = 20
"""Characters of a step's title that are shown however far in it stands."""


def lines_of(workflow: Workflow, given: str, directory: str) -> Iterator[str]:
    """All of it, line by line."""
    yield _heading(workflow)
    yield f"  {one_line(seen_from(directory, workflow.file))}"
    yield ""
    yield f"Usage: {_usage(workflow, given)}"
    yield from _inputs(workflow)
    if workflow.secrets:
        yield from ("", "Secrets, from the environment:", f"  {', '.join(workflow.secrets)}")
    yield from ("", "Steps:")
    yield from _tree(workflow.steps, "  ")
    yield from _hooks(workflow)
    if workflow.outputs:
        yield from ("", "Outputs:")
        width = max(map(len, workflow.outputs))
        for name, value in workflow.outputs.items():
            yield f"  {name:{width}}  {_cut(_text(value), max(LONGEST_LINE - width - 4, LEAST_TITLE))}"


def _heading(workflow: Workflow) -> str:
    description = one_line(workflow.description)
    return f"{workflow.name}: {description}" if description else workflow.name


def _usage(workflow: Workflow, given: str) -> str:
    import shlex

    words = [_word(each) for each in workflow.inputs.values()]
    return " ".join(["coupler run", shlex.quote(one_line(given)), *words])


def _word(declared: Input) -> str:
    word = "TEXT..." if declared.rest else f"{declared.name}={_value_word(declared)}"
    return word if declared.required else f"[{word}]"


def _value_word(declared: Input) -> str:
    if declared.enum and declared.type != "list":
        return "|".join(_cut(str(choice), 20) for choice in declared.enum)
    return {"string": "TEXT", "list": "ITEMS", "object": "JSON", "file": "PATH"}.get(
        declared.type, declared.type.upper()
    )


def _inputs(workflow: Workflow) -> Iterator[str]:
    from coupler.workflow.language.inputs import usage

    if workflow.inputs:
        yield from ("", "Inputs:")
        yield from (clean(line) for line in usage(workflow).splitlines()[1:])


def _tree(steps: Sequence[Step], indent: str) -> Iterator[str]:
    """Steps, and what is inside of them, further in."""
    from coupler.workflow.language.model import Parallel, inner_lists

    width = max((len(step.id) for step in steps), default=0)
    for step in steps:
        kind = str(type(step).__struct_config__.tag)
        yield from _step(f"{indent}{step.id:{width}}  {kind:8}  ", step)
        for number, inner in enumerate(inner_lists(step), 1):
            if isinstance(step, Parallel):
                yield f"{indent}  branch {number}"
            yield from _tree(inner, f"{indent}    ")


def _step(begin: str, step: Step) -> Iterator[str]:
    """A line, or more if there is no room for the ways beside the title."""
    from textwrap import wrap

    line = (begin + _cut(_title(step), max(LONGEST_LINE - len(begin), LEAST_TITLE))).rstrip()
    ways = _ways(step)
    if not ways or len(line) + 2 + len(ways) <= LONGEST_LINE:
        yield f"{line}  {ways}".rstrip()
    else:
        indent = " " * len(begin)
        yield from (line, *wrap(ways, LONGEST_LINE, initial_indent=indent, subsequent_indent=indent))


def _title(step: Step) -> str:
    from coupler.workflow.engine.front import plain_title
    from coupler.workflow.language.model import ForEach

    if isinstance(step, ForEach) and not step.description:
        return f"for each {step.name} of {step.items if isinstance(step.items, str) else _text(step.items)}"
    return plain_title(step)


def _ways(step: Step) -> str:
    """When it runs, and where it goes on if not with the next."""
    from coupler.workflow.validation.views import targets_of

    words = []
    if step.condition is not None:
        words.append(f"if {_cut(str(step.condition), 40)}")
    if step.gate is not None:
        words.append("asks first")
    words += [f"may go to {target.step}" for target in targets_of(step)]
    return f"[{'; '.join(dict.fromkeys(words))}]" if words else ""


def _hooks(workflow: Workflow) -> Iterator[str]:
    hooks = workflow.hooks
    for moment, steps in (
        ("starts", hooks.start),
        ("fails", hooks.error),
        ("is cancelled", hooks.cancel),
        ("ends", hooks.end),
    ):
        if steps:
            yield from ("", f"When it {moment}:")
            yield from _tree(steps, "  ")


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cut(text: str, longest: int) -> str:
    line = one_line(text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"

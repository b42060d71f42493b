"""What a command wrote to stdout, read as what its step says it is: JSON, lines, JSON that fits a schema."""

from __future__ import annotations

import functools
import re

import msgspec

from coupler.mcp.shape import Shape, ShapeError, shape_of
from coupler.runtime.extras import MissingExtraError
from coupler.workflow.errors import StepError
from coupler.workflow.language.definition import Json, Run
from coupler.workflow.language.neighbour import read_neighbour


def parsed_output(step: Run, stdout: str) -> Json | msgspec.UnsetType:
    """What becomes `steps.x.output`, or `UNSET` if the step does not say; raises `StepError`."""
    match step.output:
        case None:
            return msgspec.UNSET
        case "lines":
            return lines_of(stdout)
        case "json":
            return _decoded(stdout, WRITTEN)
        case _:
            return _fitting(_schema(step), _decoded(stdout, WRITTEN))


WRITTEN = "What the command wrote to stdout"


def lines_of(text: str) -> list[str]:
    """Its lines without their ends; the last one may have none."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def _schema(step: Run) -> Json:
    """The one that stands in the workflow, or in a file beside it."""
    if not isinstance(step.output, str):
        return step.output
    return _decoded(read_neighbour(step.output, step.position.file), f"The schema {step.output!r}")


def _fitting(schema: Json, value: Json) -> Json:
    try:
        return _shape(msgspec.json.encode(schema)).read(value)
    except ShapeError as error:
        raise StepError("invalid_output", f"{WRITTEN} does not fit the schema, {error}.") from None


@functools.lru_cache(maxsize=64)
def _shape(schema: bytes) -> Shape:
    """Looked at once: in a loop the same one comes again and again."""
    decoded = msgspec.json.decode(schema)
    if not isinstance(decoded, dict):
        raise StepError("invalid_output", "The step's `output` is no JSON Schema: that is an object.")
    try:
        return shape_of(decoded)
    except TypeError as error:
        raise StepError("invalid_output", f"The step's `output` cannot be used: {error}.") from None
    except MissingExtraError as error:
        raise StepError("not_found", f"{error}.") from None


def _decoded(text: str, what: str) -> Json:
    if not text.strip():
        raise StepError("invalid_output", f"{what} is not JSON: it is empty.")
    try:
        return msgspec.json.decode(text)
    except UnicodeEncodeError as error:
        problem = f"a byte that is not UTF-8{_place(text[: error.start])}"
    except msgspec.DecodeError as error:
        problem = _problem(str(error), text)
    except RecursionError:
        problem = "it is nested too deeply"
    raise StepError("invalid_output", f"{what} is not JSON: {problem}.")


def _problem(message: str, text: str) -> str:
    """What is wrong, and where; what ends too early is wrong at its end."""
    if "truncated" in message:
        return f"it ends too early{_place(text)}"
    found = re.fullmatch(r"JSON is malformed: (.*) \(byte (\d+)\)", message)
    if found is None:
        return message
    return f"{found[1]}{_place(text.encode()[: int(found[2])].decode(errors='ignore'))}"


def _place(before: str) -> str:
    return f" in line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"

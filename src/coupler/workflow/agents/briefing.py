"""What an agent is told: its instructions, and a step's prompt with the files that go before it.

Prompts are texts and nothing else: no shell ever sees them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coupler.workflow.agents.profiles import Plain
from coupler.workflow.errors import StepError
from coupler.workflow.language.definition import Json, Prompted, Template
from coupler.workflow.language.neighbour import read_neighbour

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt

LONGEST = 16 * 1024 * 1024
"""Characters of a prompt, with the files before it."""

INSTRUCTIONS = "[Instructions that hold for this whole conversation:]"
END_OF_INSTRUCTIONS = "[End of the instructions. The user's message follows.]"


class Briefing(NamedTuple):
    """All of it, rendered."""

    system: str | None
    prompt: str | None
    """None for a conversation that the user begins."""
    schema: Json | None
    """The JSON Schema of the answer."""


def briefing_of(set_up: Prompted, attempt: Attempt) -> Briefing:
    """What a step tells its agent; raises `StepError` for files that cannot be read, and templates."""
    system = [] if set_up.system is None else [rendered(set_up.system, attempt)]
    system += [_beside(name, attempt) for name in set_up.skills]
    prompt = _prompt(set_up, attempt)
    if prompt is not None:
        prompt = "\n\n".join([*(_context(name, attempt) for name in set_up.context), prompt])
        if len(prompt) > LONGEST:
            raise StepError("template", f"the prompt is too long: it has {len(prompt):,} characters")
    schema = None if set_up.output is None else schema_of(set_up.output, attempt.workflow.file)
    return Briefing("\n\n".join(filter(None, map(str.strip, system))) or None, prompt, schema)


def rendered(template: Template, attempt: Attempt) -> str:
    """A text of the workflow as a template; one of `coupler.toml` as it is."""
    return str(template) if isinstance(template, Plain) else attempt.text(template)


def instructed(system: str, prompt: str) -> str:
    """A prompt that begins with instructions, for agents that take them in no other way."""
    return "\n\n".join([INSTRUCTIONS, system, END_OF_INSTRUCTIONS, prompt])


def schema_of(output: Json, workflow_file: str) -> Json:
    """The JSON Schema that stands in a step, or in the file that it names; raises `StepError`."""
    schema = _decoded(output, workflow_file) if isinstance(output, str) else output
    if not isinstance(schema, dict):
        raise StepError("invalid_output", "The step's `output` is no JSON Schema: that is an object.")
    _check(msgspec.json.encode(schema))
    return schema


def _decoded(name: str, workflow_file: str) -> Json:
    try:
        return msgspec.json.decode(read_neighbour(name, workflow_file))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise StepError("invalid_output", f"The schema {name!r} is no JSON: {error}.") from None


@lru_cache(maxsize=64)
def _check(schema: bytes) -> None:
    """Raise `StepError` for what cannot be asked for, before an agent is started for it."""
    from coupler.mcp.shape import shape_of
    from coupler.runtime.extras import MissingExtraError

    try:
        shape_of(msgspec.json.decode(schema))
    except TypeError as error:
        raise StepError("invalid_output", f"The step's `output` cannot be used: {error}.") from None
    except MissingExtraError as error:
        raise StepError("not_found", f"{error}.") from None


def _prompt(set_up: Prompted, attempt: Attempt) -> str | None:
    if set_up.prompt is not None:
        return attempt.text(set_up.prompt)
    if set_up.prompt_file is None:
        return None
    return attempt.text(_beside(set_up.prompt_file, attempt))


def _beside(name: str, attempt: Attempt) -> str:
    return read_neighbour(name, attempt.workflow.file)


def _context(name: str, attempt: Attempt) -> str:
    shown = Path(name).name if Path(name).is_absolute() else name
    return f"[The file {shown}:]\n\n{_beside(name, attempt).strip()}\n\n[End of {shown}.]"

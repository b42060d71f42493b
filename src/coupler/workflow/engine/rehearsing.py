"""Steps that are told instead of done, for dry runs, and steps whose results come from files, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coupler.workflow.engine.performing import Performing
from coupler.workflow.errors import InputError, StepError
from coupler.workflow.expressions.flow_expressions import unknown
from coupler.workflow.journal.happenings import Rehearsed
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import (
    Agent,
    Approve,
    Ask,
    Converse,
    Json,
    Prompted,
    Run,
    Set,
    Step,
    Stop,
)

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.running import Performer

NO = frozenset({"no", "n", "deny", "false"})


class Rehearsing:
    """Tells what each step would do, and starts nothing."""

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        match step:
            case Stop() if step.condition is not None:
                # Whether it would stop here is not known, and there is more to tell.
                attempt.emit(Rehearsed(text=f"stop: {attempt.text(step.message)}"))
                return Result(status="skipped")
            case Set() | Stop():
                return await Performing().perform(step, attempt)
            case Run():
                text = attempt.text(step.script) if step.script is not None else f"the script {step.file}"
            case Agent() | Converse():
                text = attempt.text(step.agent) + _prompt(step.set_up, attempt)
            case Approve():
                text = attempt.text(step.question.question or "")
            case Ask():
                text = attempt.text(step.question)
            case _:
                raise AssertionError(f"{step.id} is made of other steps")
        attempt.emit(Rehearsed(text=text, cwd=attempt.cwd, env=dict(attempt.env)))
        return _unknown(step.id)


def _prompt(set_up: Prompted, attempt: Attempt) -> str:
    if set_up.prompt is not None:
        return f": {attempt.text(set_up.prompt)}"
    return f": the prompt in {set_up.prompt_file}" if set_up.prompt_file is not None else ""


def _unknown(id: str) -> Result:
    """What stands for the result of a step that was not run; of typed outputs there is nothing to show."""
    stdout, stderr, text = (unknown(id, field) for field in ("stdout", "stderr", "text"))
    return Result(status="success", exit_code=0, approved=True, stdout=stdout, stderr=stderr, text=text)


class Mocked:
    """Takes the results of some steps from files, and leaves the others to another performer."""

    def __init__(self, files: Mapping[str, Path], performer: Performer) -> None:
        self._contents = {name: _content(name, file) for name, file in files.items()}
        self._performer = performer

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        content = self._contents.get(str(attempt.place), self._contents.get(step.id))
        if content is None:
            return await self._performer.perform(step, attempt)
        return _mocked(step, content)


def _content(name: str, file: Path) -> str:
    try:
        return file.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise InputError(f"--mock {name}: {file} cannot be read: {error.strerror}") from None


def _mocked(step: Step, content: str) -> Result:
    """The file's text in the place of what the step would have written, said or been answered."""
    match step:
        case Run():
            from coupler.workflow.commands.output import parsed_output

            output = parsed_output(step, content)
            return Result(status="success", stdout=content, stderr="", exit_code=0, output=output)
        case Approve():
            is_approved = content.strip().lower() not in NO
            if not is_approved and step.question.on_deny == "fail":
                raise StepError("denied", "it was denied")
            return Result(status="success" if is_approved else "denied", approved=is_approved)
        case Agent():
            output = _json(content) if step.set_up.output is not None else msgspec.UNSET
            return Result(status="success", text=content, output=output)
        case _:
            text = content.removesuffix("\n")
            return Result(status="success", text=text, output=text)


def _json(content: str) -> Json:
    try:
        return msgspec.json.decode(content.encode(errors="surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StepError("invalid_output", f"the file is no JSON: {error}") from None

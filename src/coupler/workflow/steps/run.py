"""The kind `run`: a script of the shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, structs

from coupler.workflow.journal.run_events import Result
from coupler.workflow.language.model import Json, Run, Workflow
from coupler.workflow.steps.kind import StepKind

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt


class RunKind(StepKind[Run]):
    """A script of the shell."""

    struct = Run
    takes_defaults = True
    works = True
    opens_files = True
    call_kind = "execute"
    is_detailed = True

    def fields(self, step: Run, workflow: Workflow) -> Sequence[str]:
        output = ("output",) if step.output is not None else ()
        return ("stdout", "stderr", "exit_code", *output)

    def text_file(self, step: Run) -> str | None:
        return step.file

    def schema(self, step: Run) -> Json | None:
        return None if step.output in ("json", "lines") else step.output

    def title(self, step: Run) -> str:
        return step.script or step.file or "run"

    async def perform(self, step: Run, attempt: Attempt) -> Result:
        from coupler.workflow.steps.shell_command import perform_command

        return await perform_command(step, attempt)

    def rehearsal(self, step: Run, attempt: Attempt) -> str:
        return attempt.text(step.script) if step.script is not None else f"the script {step.file}"

    def mocked(self, step: Run, content: str, attempt: Attempt) -> Result:
        from coupler.workflow.steps.shell_command import parsed_output

        output = parsed_output(step, content)
        return Result(status="success", stdout=content, stderr="", exit_code=0, output=output)

    def result_of_done(self, step: Run) -> Result:
        output: Json = [] if step.output == "lines" else UNSET
        done = super().result_of_done(step)
        return structs.replace(done, exit_code=0, stdout="", stderr="", output=output)

"""Writes the chat messages about workflows and runs, in Markdown, and the `_meta` that goes with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.agent.content import fenced
from coupler.runtime.formatting import printable
from coupler.workflow.errors import InputError
from coupler.workflow.language.inputs import inputs_usage
from coupler.workflow.steps.kinds import kind_named

if TYPE_CHECKING:
    from coupler.agent.agent import Command
    from coupler.store.runs import RunRecord
    from coupler.workflow.editor.dialogs import PendingQuestion
    from coupler.workflow.journal.run_events import PartFinished, PartStarted, RunFinished
    from coupler.workflow.language.model import Json, Workflow


MOST_RUNS = 10
"""Runs that are listed in one message."""

MOST_LISTED = 50
"""Workflows that are listed in one message."""

Meta = dict[str, Any]


def list_of_workflows(commands: Iterable[Command]) -> str:
    """List the workflows, and say how one is run."""
    known = list(commands)
    if not known:
        return (
            "There are no workflows here. `coupler workflows new NAME` makes one in `.coupler/workflows`; "
            "it is a slash command as soon as its file is there."
        )
    lines = [_line(command) for command in known[:MOST_LISTED]]
    if len(known) > MOST_LISTED:
        lines.append(f"- and {len(known) - MOST_LISTED} more: see `coupler workflows list`")
    return "\n".join(["Type one of these workflows, with its inputs behind it:", "", *lines])


def unknown_name(name: str, near: Iterable[str], commands: Iterable[Command]) -> str:
    """Say that there is no such workflow, and which one may be meant."""
    nearest = ", ".join(f"`/{each}`" for each in near)
    hint = f" Did you mean {nearest}?" if nearest else ""
    return f"There is no workflow `/{printable(name, 60)}`.{hint}\n\n{list_of_workflows(commands)}"


def input_problems(error: InputError, workflow: Workflow) -> list[str]:
    """Return what is wrong with the inputs that were typed, a sentence each."""
    return str(error).removesuffix(inputs_usage(workflow)).strip().splitlines()


def wrong_inputs(problems: Iterable[str], workflow: Workflow, call: str) -> str:
    """Say what is wrong with the inputs that were typed, and how they are typed."""
    told = inputs_usage(workflow)
    return "\n".join([*(f"- {problem}" for problem in problems), "", "```text", call, told, "```"])


def unusable_prompt(problems: Iterable[str]) -> str:
    """Say what of a prompt no workflow can take, and what to do instead."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return f"{listed}\n\nNothing was run. Save it as a file and mention that, or say in words what it shows."


def images_not_sent() -> str:
    """Say that no agent got the images of a prompt."""
    return "The image was sent to no agent: no step that ran has one that takes images."


def not_valid(name: str, problems: str) -> str:
    """Say that a file is not a valid workflow, and why."""
    return f"The workflow `{printable(name, 200)}` is not valid:\n\n```text\n{problems}\n```"


def not_trusted(paths: Iterable[str]) -> str:
    """Say that files of the project have to be read and trusted first."""
    named = "\n".join(f"- `{printable(path, 300)}`" for path in paths)
    return (
        "These files came with the project, and are not trusted yet: read them, trust them with "
        f"`coupler trust` in a terminal, and try again.\n\n{named}"
    )


def run_outcome(run: str, finished: RunFinished) -> str:
    """Tell the result of a run that is over."""
    if finished.status != "success":
        return _failure_text(run, finished)
    said = [finished.message] if finished.message else []
    if finished.outputs:
        return "\n\n".join([*said, _outputs_text(finished.outputs)])
    return "\n\n".join([*said, f"Done: `{run}`."])


def run_cancelled(run: str) -> str:
    """Say that a run was cancelled by the user."""
    return f"The run was cancelled.\n\n{_how_to_go_on(run)}"


def was_interrupted(run: str) -> str:
    """Say that the process of a run died, and how it goes on."""
    return f"The run `{run}` was interrupted.\n{_how_to_go_on(run)}"


def run_question(run: str, waiting: PendingQuestion) -> str:
    """Tell what a run waits for, and how it goes on."""
    default = f", and `/done`, or an empty one, means `{waiting.default}`" if waiting.default else ""
    ways = {
        "answer": f"Your next message is the answer{default}",
        "message": "Your next message goes to the agent, and `/done`, or an empty one, ends the conversation",
        "approval": "Your next message asks again",
    }[waiting.kind]
    asked = f"**{waiting.place}**: {waiting.question}" if waiting.question else f"**{waiting.place}**"
    problem = f"That will not do: {waiting.problem}\n\n" if waiting.problem else ""
    return f"{problem}{asked}\n\n{ways}; `/abort` ends the run `{run}`."


def step_call_title(id: str, kind: str, title: str) -> str:
    """Return a step's title, with its id if the title says only of which kind the step is."""
    generic = kind_named(kind).generic_title
    return f"{id}: {title}" if generic is not None and generic.fullmatch(title) else title


def part_number(part: PartStarted | PartFinished) -> int:
    """Return the number of a branch or an iteration in its step, from 0."""
    return part.branch if part.branch is not None else part.iteration or 0


def part_title(block: str, part: PartStarted) -> str:
    """Return the title of a branch or an iteration: `reviews: security`, `fixes [2 of 5]: a.py`."""
    if part.branch is not None and part.title:
        return f"{block}: {part.title}"
    which = f"{part_number(part) + 1}" if part.total is None else f"{part_number(part) + 1} of {part.total}"
    return f"{block} [{which}]: {part.title}" if part.title else f"{block} [{which}]"


def part_line(title: str, finished: PartFinished) -> str:
    """Tell in a line how a branch or an iteration ended that is no tool call of its own."""
    ended = "done" if finished.status == "success" else finished.status
    error = finished.error
    return f"{title}: {ended}\n" if error is None else f"{title}: {ended}: {error.step}: {error.message}\n"


def secret_was_typed(name: str) -> str:
    """Warn that a secret was typed where others may store it; `name` is that of the journal."""
    return (
        f"`{name.removeprefix('inputs.')}` is secret: Coupler keeps it nowhere, but your editor may keep "
        "what you typed. A variable that the workflow lists under `secrets` is never typed."
    )


def secrets_needed(names: Iterable[str], run: str) -> str:
    """Say that a run cannot go on without its secrets, and how they are given again."""
    inputs = sorted(name.removeprefix("inputs.") for name in names if name.startswith("inputs."))
    variables = sorted(name for name in names if not name.startswith("inputs."))
    lines = [f"The run `{run}` cannot go on: what is secret is not kept."]
    if inputs:
        again = " ".join(f"{name}=…" for name in inputs)
        lines.append(f"Give it again with `/resume {again}`.")
    if variables:
        named = ", ".join(f"`{name}`" for name in variables)
        lines.append(f"Set {named} in the environment that the editor starts Coupler in.")
    return " ".join(lines)


def still_waits(run: str, waiting_at: str) -> str:
    """Say that a run could not take an answer, and still waits."""
    return f"The run `{run}` still waits at **{waiting_at}**; `/abort` ends it."


def waits_no_more(run: str, status: str | None) -> str:
    """Say that a run was answered or ended elsewhere."""
    if status is None:
        return f"The run `{run}` does not wait any more: it was deleted."
    ended = {"success": "has ended well", "failed": "has failed", "cancelled": "was cancelled"}.get(
        status, status
    )
    more = "" if status == "success" else " `/resume` goes on with it."
    return f"The run `{run}` does not wait any more: it {ended}, in a terminal or another session.{more}"


def waits_first(run: str, waiting_at: str) -> str:
    """Say that no other workflow can begin while this run waits."""
    return (
        f"The run `{run}` waits at **{waiting_at}**: answer it, leave its conversation by an empty message "
        "or `/done`, or end the run with `/abort`. Then another workflow can begin."
    )


def nothing_waits() -> str:
    """Say that no run could be answered or ended."""
    return "No run of this session waits for you; `/runs` shows those of this directory."


def ended_well(run: str) -> str:
    """Say that a run has nothing left to do."""
    return (
        f"The run `{run}` has ended well. `coupler resume {run} --from STEP` in a terminal does a part of it "
        "again."
    )


def has_changed(run: str) -> str:
    """Say that the files of a run have changed since it began, and what can be done."""
    return (
        f"The workflow of the run `{run}`, or a file that it uses, has changed since the run began. "
        f"`/resume {run} --force` goes on with the changed one."
    )


def list_of_runs(records: Sequence[RunRecord]) -> str:
    """List the newest runs, and say how one goes on."""
    if not records:
        return "No workflow was run in this directory yet."
    lines = [_line_of_run(record) for record in records[:MOST_RUNS]]
    told = "The newest runs of this directory; `/resume RUN` goes on with one that has not ended well:"
    return "\n".join([told, "", *lines])


class CallOrigin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The step of a tool call, or the one it belongs to, as `_meta.coupler`: for clients that show a tree."""

    run: str
    step: str
    """The step's place in the run, as in `fixes[2].fix`."""
    branch: int | None = None
    iteration: int | None = None
    """The branch or iteration that the step itself is, counted from 0."""
    attempt: int = 1
    parent: str | None = None
    """The id of the tool call around this one: that of a block for its steps, of a step for its agent's."""

    def as_meta(self) -> Meta:
        """Return it as the `_meta` of a tool call; the attempt is always told."""
        return {"coupler": {**msgspec.to_builtins(self), "attempt": self.attempt}}


def with_outcome(meta: Meta, outcome: str) -> Meta:
    """Return the `_meta` of a call with an outcome that its status cannot express."""
    return {"coupler": {**meta["coupler"], "outcome": outcome}}


def answer_meta(run: str, workflow: str, finished: RunFinished) -> Meta:
    """Return the `_meta` of a prompt's answer: how the run ended, and its outputs."""
    told: Meta = {
        "run": run,
        "workflow": workflow,
        "status": finished.status,
        "exitCode": finished.exit_code,
        "outputs": dict(finished.outputs),
    }
    if finished.error is not None:
        told["error"] = {"kind": finished.error.kind, "message": finished.error.message}
    if finished.failed_step is not None:
        told["step"] = finished.failed_step
    return {"coupler": told}


def refused_meta(message: str, waiting: str | None = None) -> Meta:
    """Return the `_meta` of the answer to a prompt that ran nothing; `waiting` is a run that still waits."""
    run = {} if waiting is None else {"run": waiting}
    status = "not_started" if waiting is None else "parked"
    return {"coupler": {**run, "status": status, "error": {"kind": "refused", "message": message}}}


def _line_of_run(record: RunRecord) -> str:
    status = "interrupted" if record.is_interrupted else record.status
    return f"- `{record.id}`: {status}, {_local_time(record.updated_at)}"


def _local_time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _line(command: Command) -> str:
    hint = f" {command.hint}" if command.hint else ""
    return f"- `/{command.name}{hint}`: {command.description}"


def _failure_text(run: str, finished: RunFinished) -> str:
    message = finished.message or f"the run is {finished.status}"
    if finished.failed_step is None:
        return f"{message}\n\nAll that happened: `coupler runs logs {run}`."
    return f"{message}\n\n{_how_to_go_on(run)}"


def _how_to_go_on(run: str) -> str:
    return (
        f"`/resume`, or `coupler resume {run}` in a terminal, tries again from there; "
        f"`coupler runs logs {run}` shows all that happened."
    )


def _outputs_text(outputs: Mapping[str, Json]) -> str:
    """Return the outputs as text: a single text as it is, several values behind their names."""
    if len(outputs) == 1 and isinstance(value := next(iter(outputs.values())), str):
        return value
    return "\n".join(_output(name, value) for name, value in outputs.items())


def _output(name: str, value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.rstrip("\n")
    return f"- **{name}**: {text}" if "\n" not in text else f"- **{name}**:\n\n{fenced(text, 'text')}\n"

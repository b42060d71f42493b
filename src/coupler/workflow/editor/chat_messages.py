"""What the user is told about workflows and runs in the chat, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.config.lookup import shown
from coupler.workflow.engine.front import tells_only_kind
from coupler.workflow.errors import InputError
from coupler.workflow.language.inputs import usage

if TYPE_CHECKING:
    from coupler.agent.agent import Command
    from coupler.store.runs import RunRecord
    from coupler.workflow.editor.dialogs import Waiting
    from coupler.workflow.journal.run_events import PartFinished, PartStarted, RunFinished
    from coupler.workflow.language.model import Json, Workflow


MOST_RUNS = 10

MOST_LISTED = 50
"""Workflows that are listed in one message."""


def listed(commands: Iterable[Command]) -> str:
    """The workflows, and how one is run."""
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
    """That there is no such workflow, and what may be meant."""
    nearest = ", ".join(f"`/{each}`" for each in near)
    hint = f" Did you mean {nearest}?" if nearest else ""
    return f"There is no workflow `/{shown(name, 60)}`.{hint}\n\n{listed(commands)}"


def wrong_inputs(error: InputError, workflow: Workflow, call: str) -> str:
    """What is wrong with what was typed, and how it is typed."""
    told = usage(workflow)
    problems = str(error).removesuffix(told).strip().splitlines()
    return "\n".join([*(f"- {problem}" for problem in problems), "", "```text", call, told, "```"])


def not_valid(name: str, problems: str) -> str:
    """That a file is no workflow, and why."""
    return f"The workflow `{shown(name, 200)}` is not valid:\n\n```text\n{problems}\n```"


def not_trusted(paths: Iterable[str]) -> str:
    """That files of the project have to be read and trusted first."""
    named = "\n".join(f"- `{shown(path, 300)}`" for path in paths)
    return (
        "These files came with the project, and are not trusted yet: read them, trust them with "
        f"`coupler trust` in a terminal, and try again.\n\n{named}"
    )


def outcome(run: str, finished: RunFinished) -> str:
    """What came out of a run that is over."""
    if finished.status != "success":
        return _trouble(run, finished)
    said = [finished.message] if finished.message else []
    if finished.outputs:
        return "\n\n".join([*said, _spoken_outputs(finished.outputs)])
    return "\n\n".join([*said, f"Done: `{run}`."])


def cancelled(run: str) -> str:
    """That a run was cancelled by the user."""
    return f"The run was cancelled.\n\n{_how_to_go_on(run)}"


def question(run: str, waiting: Waiting) -> str:
    """What a run waits for, and how it goes on."""
    default = f", and `/done`, or an empty one, means `{waiting.default}`" if waiting.default else ""
    ways = {
        "answer": f"Your next message is the answer{default}",
        "message": "Your next message goes to the agent, and `/done`, or an empty one, ends the conversation",
        "approval": "Your next message asks again",
    }[waiting.kind]
    asked = f"**{waiting.place}**: {waiting.question}" if waiting.question else f"**{waiting.place}**"
    problem = f"That will not do: {waiting.problem}\n\n" if waiting.problem else ""
    return f"{problem}{asked}\n\n{ways}; `/abort` ends the run `{run}`."


def title_of_step(id: str, kind: str, title: str) -> str:
    """What a step is called: with its id, as its parts are, if its title says only what kind it is of."""
    return f"{id}: {title}" if tells_only_kind(kind, title) else title


def number_of(part: PartStarted | PartFinished) -> int:
    """Which one of its step it is, from 0."""
    return part.branch if part.branch is not None else part.iteration or 0


def title_of_part(block: str, part: PartStarted) -> str:
    """What a branch or an iteration of a step is called: `reviews: security`, `fixes [2 of 5]: a.py`."""
    if part.branch is not None and part.title:
        return f"{block}: {part.title}"
    which = f"{number_of(part) + 1}" if part.total is None else f"{number_of(part) + 1} of {part.total}"
    return f"{block} [{which}]: {part.title}" if part.title else f"{block} [{which}]"


def line_of_part(title: str, finished: PartFinished) -> str:
    """How one has ended that is no call of its own."""
    ended = "done" if finished.status == "success" else finished.status
    error = finished.error
    return f"{title}: {ended}\n" if error is None else f"{title}: {ended}: {error.step}: {error.message}\n"


def typed_secret(name: str) -> str:
    """That a secret was typed where others may keep it; its name is that of the journal."""
    return (
        f"`{name.removeprefix('inputs.')}` is secret: Coupler keeps it nowhere, but your editor may keep "
        "what you typed. A variable that the workflow lists under `secrets` is never typed."
    )


def secrets_needed(names: Iterable[str], run: str) -> str:
    """That a run cannot go on without secrets that are kept nowhere, and how they are given again."""
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
    """That a run could not take an answer, and has lost nothing by that."""
    return f"The run `{run}` still waits at **{waiting_at}**; `/abort` ends it."


def waits_no_more(run: str, status: str | None) -> str:
    """That a run was answered or ended elsewhere."""
    if status is None:
        return f"The run `{run}` does not wait any more: it was deleted."
    ended = {"success": "has ended well", "failed": "has failed", "cancelled": "was cancelled"}.get(
        status, status
    )
    more = "" if status == "success" else " `/resume` goes on with it."
    return f"The run `{run}` does not wait any more: it {ended}, in a terminal or another session.{more}"


def waits_first(run: str, waiting_at: str) -> str:
    """That another workflow cannot begin now."""
    return (
        f"The run `{run}` waits at **{waiting_at}**: answer it, leave its conversation by an empty message "
        "or `/done`, or end the run with `/abort`. Then another workflow can begin."
    )


def nothing_waits() -> str:
    """That there is no run that could be answered or ended."""
    return "No run of this session waits for you; `/runs` shows those of this directory."


def ended_well(run: str) -> str:
    """That a run has nothing left to do."""
    return (
        f"The run `{run}` has ended well. `coupler resume {run} --from STEP` in a terminal does a part of it "
        "again."
    )


def has_changed(run: str) -> str:
    """That the files of a run are not those any more that it began with, and what can be done."""
    return (
        f"The workflow of the run `{run}`, or a file that it uses, has changed since the run began. "
        f"`/resume {run} --force` goes on with the changed one."
    )


def told_runs(records: Sequence[RunRecord]) -> str:
    """The newest runs, and how one goes on."""
    if not records:
        return "No workflow was run in this directory yet."
    lines = [_line_of_run(record) for record in records[:MOST_RUNS]]
    told = "The newest runs of this directory; `/resume RUN` goes on with one that has not ended well:"
    return "\n".join([told, "", *lines])


def _line_of_run(record: RunRecord) -> str:
    status = "interrupted" if record.is_interrupted else record.status
    return f"- `{record.id}`: {status}, {_local_time(record.updated_at)}"


def _local_time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _line(command: Command) -> str:
    hint = f" {command.hint}" if command.hint else ""
    return f"- `/{command.name}{hint}`: {command.description}"


def _trouble(run: str, finished: RunFinished) -> str:
    message = finished.message or f"the run is {finished.status}"
    if finished.failed_step is None:
        return f"{message}\n\nAll that happened: `coupler runs logs {run}`."
    return f"{message}\n\n{_how_to_go_on(run)}"


def _how_to_go_on(run: str) -> str:
    return (
        f"`/resume`, or `coupler resume {run}` in a terminal, tries again from there; "
        f"`coupler runs logs {run}` shows all that happened."
    )


def _spoken_outputs(outputs: Mapping[str, Json]) -> str:
    """One text as it is; several values behind their names."""
    if len(outputs) == 1 and isinstance(value := next(iter(outputs.values())), str):
        return value
    return "\n".join(_output(name, value) for name, value in outputs.items())


def _output(name: str, value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.rstrip("\n")
    return f"- **{name}**: {text}" if "\n" not in text else f"- **{name}**:\n\n{_fenced(text)}\n"


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


# `_meta.coupler`: which run and which step something belongs to, for clients that show more than a list.


Meta = dict[str, Any]


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a tool call: the step that it is, or that it belongs to."""

    run: str
    step: str
    """The step's place in the run, as in `fixes[2].fix`."""
    branch: int | None = None
    iteration: int | None = None
    """Both count from 0, and are those of the step itself."""
    attempt: int = 1
    parent: str | None = None
    """The id of the tool call around this one: that of a block for its steps, of a step for its agent's."""

    def as_meta(self) -> Meta:
        """The same as a tool call carries it; the attempt is always told."""
        return {"coupler": {**msgspec.to_builtins(self), "attempt": self.attempt}}


def with_outcome(meta: Meta, outcome: str) -> Meta:
    """The `_meta` of a call whose end means something else than its status says."""
    return {"coupler": {**meta["coupler"], "outcome": outcome}}


def answer_meta(run: str, workflow: str, finished: RunFinished) -> Meta:
    """Of a prompt's answer: how the run ended, and what came out of it."""
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

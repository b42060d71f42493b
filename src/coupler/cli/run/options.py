"""The options that `coupler run` and `coupler resume` share, and what their words mean."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coupler.cli.exit_codes import INTERRUPTED, WRONG_INPUT
from coupler.cli.options import pairs, seconds

if TYPE_CHECKING:
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Limits

BUDGETS = {"tokens": int, "cost": float}
"""What can be limited besides time, and in what kind of number."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class RunOptions:
    """How a run is done and shown, as it was said on the command line."""

    is_json: bool = False
    is_quiet: bool = False
    is_stepwise: bool = False
    is_rehearsal: bool = False
    approval: bool | None = None
    """The answer to every approval; None: somebody is asked."""
    answers: Sequence[tuple[str, str]] = ()
    mocks: Mapping[str, str] | None = None
    tokens: int | None = None
    cost: float | None = None
    time: float | None = None

    def limiting(self, bundle: Bundle) -> Bundle:
        """The bundle with these limits in the place of the workflow's own; its digest stays."""
        given = {"tokens": self.tokens, "cost": self.cost, "time": self.time}
        given = {name: limit for name, limit in given.items() if limit is not None}
        return _limited(bundle, given) if given else bundle


def _limited(bundle: Bundle, given: Mapping[str, Any]) -> Bundle:
    from dataclasses import replace

    import msgspec

    from coupler.workflow.language.model import Limits

    limits: Limits = msgspec.structs.replace(bundle.main.budget or Limits(), **given)
    return replace(bundle, main=msgspec.structs.replace(bundle.main, budget=limits))


class RunCommand(click.Command):
    """Wrong usage ends with the code that runs have for it: 2 means that the workflow is not valid."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except click.UsageError as error:
            raise WrongUsageError(error.format_message(), error.ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Interrupted before it listens for that, it ends with the same code as afterwards."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


def _pairs(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> list[tuple[str, str]]:
    """STEP=TEXT, each; a step may be named several times."""
    pairs(context, parameter, values)
    return [(name, text) for name, _, text in (value.partition("=") for value in values)]


def _budget(context: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, Any]:
    """Limits such as tokens=5000,cost=0.5."""
    limits: dict[str, Any] = {}
    for part in (text or "").split(",") if text is not None else ():
        name, _, value = part.strip().partition("=")
        if name not in BUDGETS:
            raise click.BadParameter(
                f"it limits {', '.join(BUDGETS)}, as in tokens=5000,cost=0.5: not {part!r}"
            )
        try:
            limits[name] = BUDGETS[name](value)
        except ValueError:
            raise click.BadParameter(f"{name} must be a number, not {value!r}") from None
        if not limits[name] >= 0:
            raise click.BadParameter(f"{name} cannot be less than 0")
    return limits


_SHARED = (
    click.option(
        "--yes/--no",
        "approval",
        default=None,
        help="Answer every approval so. Without it somebody is asked at a terminal; without a terminal it is "
        "the approval's default, else no.",
    ),
    click.option(
        "--answer",
        "answers",
        multiple=True,
        callback=_pairs,
        metavar="STEP=TEXT",
        help="Answer an `ask` or `approve` step, or say something in a `converse` step, which ends after the "
        "last one given.",
    ),
    click.option(
        "--mock",
        "mocks",
        multiple=True,
        callback=pairs,
        metavar="STEP=FILE",
        help="Take a step's result from a file instead of running it.",
    ),
    click.option("--step", "is_stepwise", is_flag=True, help="Ask before each step: run, skip or stop."),
    click.option("--json", "is_json", is_flag=True, help="Write a JSON object a line for all that happens."),
    click.option(
        "--quiet",
        "is_quiet",
        is_flag=True,
        help="Write only the outputs: a single text as it is, everything else as JSON.",
    ),
    click.option(
        "--timeout", "time", type=float, callback=seconds, metavar="SECONDS", help="How long it may take."
    ),
    click.option(
        "--budget", callback=_budget, metavar="LIMITS", help="What its agents may use: tokens=5000,cost=0.5."
    ),
)


def shared_options(command: Command) -> Command:
    """Add the options that both commands have."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """What was given of them; raises click.UsageError for what excludes each other."""
    given = {**given, **given["budget"]}
    del given["budget"]
    options = RunOptions(**given)
    if options.is_json and options.is_quiet:
        raise WrongUsageError("--json and --quiet exclude each other")
    if options.is_stepwise and options.is_rehearsal:
        raise WrongUsageError("--step and --dry-run exclude each other: a dry run starts nothing")
    return options


class WrongUsageError(click.UsageError):
    """As click says it, with the exit code of runs."""

    exit_code = WRONG_INPUT

"""`coupler agents doctor`: what works with an agent here, and what to do about the rest."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from coupler.cli.agent_choice import Startable, startable_agent
from coupler.cli.exit_codes import DONE, FAILED, INTERRUPTED
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.cli.agent_doctor.diagnosis import Diagnosis

PROGRAM = "coupler agents doctor"
TIMEOUT = 30.0
STDERR_SHOWN = 1000
"""Characters of the end of stderr that are shown with a problem."""


@click.command(
    short_help="Examine an agent.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("agent")
@click.option("--prompt", metavar="TEXT", help="What to ask it, instead of to call the probe's tool.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long an answer may take; a turn may take six times that, and the start of what is fetched four "
    "times.",
)
@click.option("--json", "as_json", is_flag=True, help="Write what was found as JSON.")
def doctor(agent: str, prompt: str | None, timeout: float, as_json: bool) -> None:
    """Examine an agent: a name of the catalogue, or a command line in one word.

    It is started in an empty directory, greeted, asked, cancelled, left and
    started again to load what was said. The turns are real ones: they may cost
    something. It is told of an MCP server with one tool that does nothing, to
    see whether such servers reach the model.

    \b
    Examples:
      coupler agents doctor gemini
      coupler agents doctor "coupler serve agent.py" --json

    Exit codes: 0 if nothing disturbs clients, 1 if something does, 2 for wrong
    usage, 130 when interrupted.
    """
    found = startable_agent(agent, PROGRAM)
    try:
        diagnosis = _examined(found, prompt, timeout)
    except KeyboardInterrupt:
        refuse("interrupted", PROGRAM, INTERRUPTED)
    if as_json:
        import json

        sys.stdout.write(json.dumps(diagnosis.as_object(), indent=2, default=str) + "\n")
    else:
        _print(diagnosis)
    sys.exit(DONE if diagnosis.is_healthy else FAILED)


def _examined(agent: Startable, prompt: str | None, timeout: float) -> Diagnosis:
    import asyncio
    import tempfile
    from pathlib import Path

    from coupler.cli.agent_doctor.examination import PROMPT, Examined, examine
    from coupler.client_api import usual_startup_timeout

    # Its children may still write there when it ends.
    with tempfile.TemporaryDirectory(prefix="coupler-doctor-", ignore_cleanup_errors=True) as directory:
        return asyncio.run(
            examine(
                Examined(
                    agent.name,
                    agent.command,
                    agent.env,
                    Path(directory).resolve(),
                    timeout,
                    usual_startup_timeout(agent.command) * timeout / TIMEOUT,
                    prompt or PROMPT,
                    None if agent.entry is None else agent.entry.login,
                    has_tools=agent.entry is not None and agent.entry.origin is None,
                )
            )
        )


def _print(diagnosis: Diagnosis) -> None:
    from coupler.cli.sessions.wording import clean, one_line

    lines = [one_line(shlex.join(diagnosis.command)), ""]
    width = max((len(finding.about) for finding in diagnosis.findings), default=0)
    for finding in diagnosis.findings:
        lines.append(f"{finding.level:<8} {finding.about:<{width}}  {one_line(finding.sentence)}")
        if finding.remedy is not None:
            lines.append(f"{'':<9}{'':<{width}}  -> {one_line(finding.remedy)}")
    if not diagnosis.is_healthy and diagnosis.stderr.strip():
        lines += ["", "The last of its stderr:", clean(diagnosis.stderr.strip()[-STDERR_SHOWN:])]
    problems = sum(finding.level == "problem" for finding in diagnosis.findings)
    verdict = "healthy" if not problems else f"{problems} problem{'s' if problems != 1 else ''}"
    lines += ["", f"{one_line(diagnosis.subject)}: {verdict}"]
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write("\n".join(lines) + "\n")

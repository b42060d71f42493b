"""`coupler check --client`: whether a client keeps to the protocol, by itself or in the hands of a person."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.cli.check.options import PROGRAM, CheckOptions
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.conformance.report import Report

HOW = "where the client takes the agent's command: `coupler check --client -- my-client --agent {agent}`"


def main(command: list[str], options: CheckOptions) -> int:
    """Examine a client's command, or be the agent that an editor was told to start."""
    from coupler.cli.check.output import Output, exit_code

    options.refuse_unused("with --client", "auth", "prompt", "slow_prompt")
    if not command:
        options.refuse_unused("without a client's command", "env", "timeout", "save_traces")
    output = Output(options)
    report = _examine(command, options) if command else _serve(options)
    output.write(report)
    return exit_code(report)


def _examine(command: list[str], options: CheckOptions) -> Report:
    from coupler.cli.check.output import save_traces
    from coupler.conformance.candidate import AGENT_WORD, AGENT_WORDS, ClientCandidate
    from coupler.conformance.client_examination import examine_client
    from coupler.conformance.examination import CannotStart

    if not any(AGENT_WORD in word or AGENT_WORDS in word for word in command):
        refuse(f"write {AGENT_WORD} {HOW}", PROGRAM)
    with tempfile.TemporaryDirectory(prefix="coupler-check-", ignore_cleanup_errors=True) as folder:
        candidate = ClientCandidate(command, Path(folder).resolve(), env=options.env, timeout=options.timeout)
        try:
            report = asyncio.run(examine_client(candidate, options.chosen("client")))
        except CannotStart as error:
            refuse(str(error), PROGRAM)
        finally:
            save_traces(candidate.traces, options.save_traces, options.env)
    report.subject = shlex.join(command)
    return report


def _serve(options: CheckOptions) -> Report:
    from coupler.wire.stdio import StdioIsTerminal, take_over

    try:
        incoming, outgoing = take_over()
    except StdioIsTerminal as error:
        refuse(str(error), PROGRAM)
    from coupler.conformance.client_examination import Chat
    from coupler.wire.pipe_transport import PipeTransport

    chat = Chat(PipeTransport(incoming, outgoing), options.chosen("client"))
    # An editor that closes may kill its agents; the report is due all the same.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(chat.hold())
    return chat.report()

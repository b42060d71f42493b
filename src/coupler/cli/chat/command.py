"""`coupler chat`: the command, its options, and the choice between a terminal and plain lines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from coupler.cli.exit_codes import BROKEN_PIPE, INTERRUPTED, TERMINATED, code_of_error
from coupler.cli.mcp_servers import servers_of
from coupler.cli.options import ALLOW, CWD, DENY, FILES, MCP, MODE, MODEL, OPTION, RECORD, TERMINALS, pairs
from coupler.cli.policy_choice import PERMISSIONS, policy_of, refuse_unhonoured
from coupler.cli.signals import signals_heard
from coupler.runtime.extras import MissingExtraError, need

if TYPE_CHECKING:
    from coupler.cli.chat.front import Front
    from coupler.cli.chat.plain import PlainFront
    from coupler.cli.chat.sittings import Sittings
    from coupler.cli.chat.terminal import TerminalFront
    from coupler.client.policy import Policy
    from coupler.client.remote import SessionOptions
    from coupler.schema.v1 import McpServer

PROGRAM = "coupler chat"


@dataclass(frozen=True)
class ChatOptions:
    """The options as they were given."""

    agent: str
    cwd: str
    resume: str | None
    latest: bool
    model: str | None
    mode: str | None
    options: dict[str, str]
    permissions: str | None
    allow: Sequence[str]
    deny: Sequence[str]
    files: Literal["none", "read", "write"] | None
    terminals: bool
    mcp_servers: Sequence[McpServer]
    record: str | None
    env: dict[str, str]
    plain: bool


@click.command(
    short_help="Talk to an agent in this terminal.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("agent")
@CWD
@click.option("--resume", metavar="ID", help="Go on with this earlier session.")
@click.option("--continue", "latest", is_flag=True, help="Go on with the latest session in this directory.")
@MODEL
@MODE
@OPTION
@MCP
@click.option(
    "--permissions",
    type=click.Choice(PERMISSIONS),
    help="What the agent may do of what it asks for.  [default: ask; deny-all without a terminal]",
)
@ALLOW
@DENY
@FILES
@TERMINALS
@RECORD
@click.option(
    "--env",
    multiple=True,
    callback=pairs,
    metavar="NAME=VALUE",
    help="Set a variable for the agent; may be repeated.",
)
@click.option("--plain", is_flag=True, help="Read lines and print text, even in a terminal.")
def chat(**given: Any) -> None:
    """Talk to an agent in this terminal.

    AGENT is a name of the catalogue (`coupler agents` lists them) or a command
    line in one word.

    /help lists what can be typed. Ctrl-C cancels the turn, twice within a
    second leaves; Ctrl-D leaves.

    Without a terminal each line of stdin is a prompt, and the agent's text goes
    to stdout: then nobody is asked, and what --permissions does not allow is
    denied.

    \b
    Examples:
      coupler chat coder
      coupler chat "opencode acp" --continue

    Exit codes: 0 when you leave, 2 for wrong usage, 130 for Ctrl-C twice, else
    those of `coupler exec`: 8 if the agent died, 9 if it cannot be started, 10
    if it wants a login.
    """
    given["mcp_servers"] = servers_of(given.pop("mcp"), PROGRAM)
    given["cwd"] = str(Path(given["cwd"]).absolute())
    options = ChatOptions(**given)
    if not options.agent.strip():
        raise click.UsageError("say which agent to talk to: a name of the catalogue, or a command line")
    if options.resume is not None and options.latest:
        raise click.UsageError("--resume names a session and --continue takes the latest: use one of them")
    try:
        refuse_unhonoured(
            options.agent,
            options.cwd,
            allow=options.allow,
            deny=options.deny,
            files=options.files,
            terminals=options.terminals,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(_exit_code(options))


def _exit_code(options: ChatOptions) -> int:
    try:
        return asyncio.run(_talk(options))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _talk(options: ChatOptions) -> int:
    from coupler.cli.chat.conversation import Conversation, spoken_error
    from coupler.cli.chat.dialogs import Dialogs
    from coupler.cli.chat.plain import PlainFront
    from coupler.cli.chat.sittings import Sittings
    from coupler.client.errors import AgentError
    from coupler.client_api import connect

    cwd = options.cwd
    front = _front(options, cwd, lambda: sittings)
    dialogs = Dialogs(front, lambda: conversation.interrupt())
    try:
        agent = connect(
            options.agent,
            cwd=cwd,
            env=options.env or None,
            files=options.files,
            terminals=options.terminals,
            on_form=dialogs.form if front.can_ask else None,
            on_url=dialogs.page if front.can_ask else None,
            on_event=lambda observation: conversation.notice(observation),
            record=options.record,
        )
    except AgentError as error:
        front.show(spoken_error(error, options.agent))
        return code_of_error(error)
    try:
        callback = dialogs.permission if front.can_ask else None
        policy = policy_of(options.permissions or "ask", options.allow, options.deny, callback)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sittings = Sittings(agent, front, _session_options(options, policy), cwd)
    conversation = Conversation(agent, sittings, front, options.agent)
    with signals_heard(_reaction(front)), _logs_shown(front):
        try:
            code = await conversation.hold(options.resume, options.latest)
        except asyncio.CancelledError:
            return TERMINATED
    return BROKEN_PIPE if isinstance(front, PlainFront) and front.is_unread else code


def _front(options: ChatOptions, cwd: str, sittings: Callable[[], Sittings]) -> PlainFront | TerminalFront:
    """A terminal if there is one that can do what is needed, and what draws on it is installed."""
    from coupler.cli.chat.transcript import Transcript

    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if is_terminal and not options.plain:
        try:
            need("prompt_toolkit", extra="chat", feature="The terminal's line editor")
        except MissingExtraError as error:
            sys.stderr.write(f"{error}\nUntil then there are plain lines, and nobody is asked.\n")
        else:
            from coupler.cli.chat.history import History
            from coupler.cli.chat.terminal import TerminalFront

            return TerminalFront(
                Transcript(),
                cwd=cwd,
                status=lambda: sittings().status(),
                suggest=lambda before: sittings().suggest(before),
                history=History.of(cwd),
            )
    from coupler.cli.chat.plain import PlainFront

    return PlainFront(Transcript())


def _session_options(options: ChatOptions, policy: Policy) -> SessionOptions:
    from coupler.client.remote import SessionOptions

    wanted = SessionOptions(permissions=policy, mcp_servers=options.mcp_servers)
    if options.model is not None:
        wanted["model"] = options.model
    if options.mode is not None:
        wanted["mode"] = options.mode
    if options.options:
        wanted["options"] = options.options
    return wanted


def _reaction(front: PlainFront | TerminalFront) -> Callable[[int], object]:
    """SIGINT interrupts what goes on; SIGTERM, and a terminal that is closed, end it in order."""
    task = asyncio.current_task()
    assert task is not None
    return lambda number: front.signalled() if number == signal.SIGINT else task.cancel()


@contextlib.contextmanager
def _logs_shown(front: Front) -> Iterator[None]:
    """Warnings of the log are remarks of the conversation: written past it, they would spoil the screen."""
    if not front.can_ask:
        yield
        return
    from coupler.cli.chat.shown_logs import ShownLogs

    handler = ShownLogs(front, asyncio.get_running_loop())
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)

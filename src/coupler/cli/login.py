"""`coupler login`: the login that an agent offers, in this terminal or by asking the agent for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from coupler.cli import coder_login
from coupler.cli.agent_choice import Startable, startable_agent
from coupler.cli.exit_codes import AUTH_REQUIRED, FAILED, INTERRUPTED
from coupler.cli.refusal import complain, refuse

if TYPE_CHECKING:
    from coupler.client.remote import RemoteAgent
    from coupler.schema.v1 import AuthMethod

PROGRAM = "coupler login"


@click.command(
    short_help="Log in to an agent.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("agent")
@click.argument("method", required=False)
@click.option("--list", "is_list", is_flag=True, help="List the ways to log in, or what is stored, and exit.")
@click.option("--forget", "is_forget", is_flag=True, help="coder: remove what is stored, or METHOD's alone.")
@click.option("--model", metavar="PROVIDER:NAME", help="coder: the model to begin with.")
@click.option("--base-url", metavar="URL", help="coder: its server, if it is not the provider's own.")
@click.option("--no-check", is_flag=True, help="coder: store the key without trying it out.")
def login(
    agent: str,
    method: str | None,
    is_list: bool,
    is_forget: bool,
    model: str | None,
    base_url: str | None,
    no_check: bool,
) -> None:
    """Log in to an agent: a name of the catalogue, or a command line in one word.

    METHOD is the id of one of the ways that the agent offers; with only one
    there is no need to name it. A way of the kind `terminal` runs the agent's
    own program here; for the others the agent is asked to log in, and may open a
    browser. An agent that is logged in is left alone unless METHOD is given.

    For `coder`, Coupler's own agent, a model and its key are asked for, tried
    out and stored for you alone. Without a terminal, --model names the model,
    and the key is read from stdin.

    \b
    Examples:
      coupler login claude
      coupler login coder
      echo "$KEY" | coupler login coder --model anthropic:claude-sonnet-5-5

    Exit codes: 0 when logged in, 1 if that failed, 2 for wrong usage, 130 when
    interrupted.
    """
    if coder_login.is_coder(agent):
        wanted = coder_login.Wanted(model, base_url, method, not no_check)
        _log_in_to_coder(wanted, is_list=is_list, is_forget=is_forget)
        return
    if is_forget or no_check or model is not None or base_url is not None:
        refuse("--forget, --model, --base-url and --no-check are for the coder", PROGRAM)
    found = startable_agent(agent, PROGRAM)
    try:
        chosen = asyncio.run(_look(found, method, is_list=is_list))
        if chosen is not None:
            _run_in_terminal(found, chosen)
    except KeyboardInterrupt:
        refuse("interrupted", PROGRAM, INTERRUPTED)


def _log_in_to_coder(wanted: coder_login.Wanted, *, is_list: bool, is_forget: bool) -> None:
    from coupler.coder.model.credentials import ModelError

    if is_list and is_forget:
        refuse("--list and --forget exclude each other", PROGRAM)
    try:
        if is_list:
            coder_login.list_logins()
        elif is_forget:
            coder_login.forget(wanted.provider)
        else:
            coder_login.log_in(wanted)
    except ModelError as error:
        refuse(str(error), PROGRAM, FAILED)


async def _look(agent: Startable, method: str | None, *, is_list: bool) -> AuthMethod | None:
    """Ask the agent for its logins, and do it if that needs no terminal; else the method that does."""
    from coupler.client.errors import AgentError
    from coupler.client_api import connect

    try:
        remote = connect([*agent.command], env=agent.env)
        _offer_terminal_logins(remote)
        async with remote:
            if is_list:
                _list(remote.auth_methods)
                return None
            if method is None and await _is_logged_in(remote):
                _say(f"{agent.name} is logged in: it opens sessions. Name a METHOD to log in again.")
                return None
            chosen = _chosen(agent, remote.auth_methods, method)
            if _is_for_terminal(chosen):
                return chosen
            _say(f"Asking {agent.name} to log in: {_name(chosen)}.")
            await remote.authenticate(_id(chosen))
            _say(f"{agent.name} is logged in.")
    except AgentError as error:
        refuse(str(error), PROGRAM, FAILED)
    return None


def _offer_terminal_logins(remote: RemoteAgent) -> None:
    from msgspec import structs

    from coupler.client.remote import Offer
    from coupler.schema.v1 import AuthCapabilities, ClientCapabilities

    class TerminalLogins(Offer):
        """What is offered to an agent that somebody logs in to: this terminal."""

        def capabilities(self) -> ClientCapabilities:
            return structs.replace(super().capabilities(), auth=AuthCapabilities(terminal=True))

    remote.offer_instead(TerminalLogins())


async def _is_logged_in(remote: RemoteAgent) -> bool:
    """Whether the agent opens a session; that is the only thing that tells."""
    from coupler.client.errors import AgentError

    try:
        session = await remote.new(cwd="temporary")
    except AgentError as error:
        if error.code == AUTH_REQUIRED:
            return False
        raise
    await session.close()
    return True


def _chosen(agent: Startable, methods: Sequence[AuthMethod], wanted: str | None) -> AuthMethod:
    if not methods:
        own = agent.entry.login if agent.entry is not None else None
        how = f"run `{own}`" if own else "log in as its manual says"
        refuse(f"{agent.name} offers no login over the protocol: {how}", PROGRAM, FAILED)
    if wanted is None:
        return methods[0] if len(methods) == 1 else _asked(methods)
    found = next((method for method in methods if _id(method) == wanted), None)
    if found is None:
        refuse(f"{agent.name} has no way {wanted!r} to log in, only {', '.join(map(_id, methods))}", PROGRAM)
    return found


def _asked(methods: Sequence[AuthMethod]) -> AuthMethod:
    _list(methods, sys.stderr)
    if not sys.stdin.isatty():
        refuse("there are several ways to log in: name one of them as METHOD", PROGRAM)
    number = click.prompt("Number", type=click.IntRange(1, len(methods)), err=True)
    return methods[number - 1]


def _run_in_terminal(agent: Startable, method: AuthMethod) -> None:
    """The agent's own command with the method's words after it, as the protocol has it."""
    from msgspec import UNSET

    from coupler.schema.v1 import AuthMethodTerminal

    assert isinstance(method, AuthMethodTerminal)
    words = [] if method.args is UNSET else [*method.args]
    env = {} if method.env is UNSET else dict(method.env)
    try:
        code = subprocess.run(
            [*agent.command, *words], env={**os.environ, **agent.env, **env}, check=False
        ).returncode
    except OSError as error:
        refuse(f"{agent.command[0]} cannot be started: {error.strerror}", PROGRAM, FAILED)
    if code != 0:
        refuse(f"the login of {agent.name} ended with exit code {code}", PROGRAM, FAILED)
    _say(f"{agent.name} is logged in.")


def _is_for_terminal(method: AuthMethod) -> bool:
    from coupler.schema.v1 import AuthMethodTerminal

    return isinstance(method, AuthMethodTerminal)


def _list(methods: Sequence[AuthMethod], stream: object = None) -> None:
    from typing import IO, cast

    out = cast("IO[str]", stream or sys.stdout)
    if not methods:
        complain("the agent offers no login over the protocol", PROGRAM)
    for number, method in enumerate(methods, 1):
        kind = "terminal" if _is_for_terminal(method) else "agent"
        description = getattr(method, "description", None) or ""
        about = f": {_clean(str(description))}" if description else ""
        out.write(f"{number}. {_clean(_id(method))} ({kind}) {_name(method)}{about}\n")


def _id(method: AuthMethod) -> str:
    return str(getattr(method, "id", ""))


def _name(method: AuthMethod) -> str:
    return _clean(str(getattr(method, "name", "")))


def _clean(text: str) -> str:
    from coupler.cli.sessions.wording import clean

    return clean(text)


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()

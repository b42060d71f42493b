"""`coupler login`: logs in to an agent, in this terminal or by asking the agent for it.

For `coder`, Coupler's own agent, no process is started: a model and its key are asked for, tried out and
stored. A key is typed where it is not shown, or read from stdin; it is never an argument, because arguments
are in the shell's history and in the system's list of processes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from coupler.cli.agent_options import Startable, startable_agent
from coupler.cli.exit_codes import AUTH_REQUIRED, FAILED, INTERRUPTED, print_error, refuse
from coupler.cli.output import Output, prompt, prompt_number, say, stderr, stdout, tell
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.client.remote import RemoteAgent
    from coupler.coder.model.choice import ModelChoice
    from coupler.coder.model.credentials import Credentials
    from coupler.schema.v1 import AuthMethod


PROGRAM = "coupler login"

LONGEST_KEY = 10_000
"""Characters of a key."""

PATIENCE = 30.0
"""Seconds that a server has to answer when a key is tried out."""


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
    if is_coder(agent):
        wanted = CoderLoginOptions(model, base_url, method, not no_check)
        _log_in_to_coder(wanted, is_list=is_list, is_forget=is_forget)
        return
    if is_forget or no_check or model is not None or base_url is not None:
        refuse("--forget, --model, --base-url and --no-check are for the coder", PROGRAM)
    found = startable_agent(agent, PROGRAM)
    try:
        chosen = asyncio.run(_log_in(found, method, is_list=is_list))
        if chosen is not None:
            _run_in_terminal(found, chosen)
    except KeyboardInterrupt:
        refuse("interrupted", PROGRAM, INTERRUPTED)


async def _log_in(agent: Startable, method: str | None, *, is_list: bool) -> AuthMethod | None:
    """Logs in by asking the agent; returns the method if it needs a terminal instead."""
    from coupler.client.errors import AgentError
    from coupler.client_api import connect

    try:
        remote = connect([*agent.command], env=agent.env)
        _offer_terminal_logins(remote)
        async with remote:
            if is_list:
                _list(remote.auth_methods, stdout())
                return None
            if method is None and await _is_logged_in(remote):
                say(f"{agent.name} is logged in: it opens sessions. Name a METHOD to log in again.")
                return None
            chosen = _choose_method(agent, remote.auth_methods, method)
            if _is_for_terminal(chosen):
                return chosen
            say(f"Asking {agent.name} to log in: {_name(chosen)}.")
            await remote.authenticate(_id(chosen))
            say(f"{agent.name} is logged in.")
    except AgentError as error:
        refuse(str(error), PROGRAM, FAILED)
    return None


def _offer_terminal_logins(remote: RemoteAgent) -> None:
    from msgspec import structs

    from coupler.client.remote import ClientOffer
    from coupler.schema.v1 import AuthCapabilities, ClientCapabilities

    class TerminalLogins(ClientOffer):
        """Client capabilities for a login: this terminal."""

        def capabilities(self) -> ClientCapabilities:
            return structs.replace(super().capabilities(), auth=AuthCapabilities(terminal=True))

    remote.offer_instead(TerminalLogins())


async def _is_logged_in(remote: RemoteAgent) -> bool:
    """True if the agent opens a session; nothing else tells."""
    from coupler.client.errors import AgentError

    try:
        session = await remote.new(cwd="temporary")
    except AgentError as error:
        if error.code == AUTH_REQUIRED:
            return False
        raise
    await session.close()
    return True


def _choose_method(agent: Startable, methods: Sequence[AuthMethod], wanted: str | None) -> AuthMethod:
    if not methods:
        own = agent.entry.login if agent.entry is not None else None
        how = f"run `{own}`" if own else "log in as its manual says"
        refuse(f"{agent.name} offers no login over the protocol: {how}", PROGRAM, FAILED)
    if wanted is None:
        return methods[0] if len(methods) == 1 else _ask_for_method(methods)
    found = next((method for method in methods if _id(method) == wanted), None)
    if found is None:
        refuse(f"{agent.name} has no way {wanted!r} to log in, only {', '.join(map(_id, methods))}", PROGRAM)
    return found


def _ask_for_method(methods: Sequence[AuthMethod]) -> AuthMethod:
    _list(methods, stderr())
    if not sys.stdin.isatty():
        refuse("there are several ways to log in: name one of them as METHOD", PROGRAM)
    return methods[prompt_number("Number", len(methods)) - 1]


def _run_in_terminal(agent: Startable, method: AuthMethod) -> None:
    """Runs the agent's own command with the method's arguments after it, as the protocol has it."""
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
    say(f"{agent.name} is logged in.")


def _is_for_terminal(method: AuthMethod) -> bool:
    from coupler.schema.v1 import AuthMethodTerminal

    return isinstance(method, AuthMethodTerminal)


def _list(methods: Sequence[AuthMethod], output: Output) -> None:
    if not methods:
        print_error("the agent offers no login over the protocol", PROGRAM)
    for number, method in enumerate(methods, 1):
        kind = "terminal" if _is_for_terminal(method) else "agent"
        description = getattr(method, "description", None) or ""
        about = f": {description}" if description else ""
        output.line(f"{number}. {_id(method)} ({kind}) {_name(method)}{about}")


def _id(method: AuthMethod) -> str:
    return str(getattr(method, "id", ""))


def _name(method: AuthMethod) -> str:
    return one_line(str(getattr(method, "name", "")))


class CoderLoginOptions(NamedTuple):
    """The options of `coupler login coder`."""

    model: str | None
    base_url: str | None
    provider: str | None
    """The provider, given in place of an agent's METHOD."""
    is_checked: bool


def is_coder(agent: str) -> bool:
    """True for Coupler's own agent or a profile of it: they share their logins."""
    from coupler.coder.profiles import CODER, profile_names
    from coupler.config import ConfigError
    from coupler.providers.catalogue import configuration

    if agent == CODER:
        return True
    try:
        return agent in profile_names(configuration("."))
    except ConfigError:
        return False  # told by whoever needs the configuration


def _log_in_to_coder(wanted: CoderLoginOptions, *, is_list: bool, is_forget: bool) -> None:
    from coupler.coder.model.credentials import ModelError

    if is_list and is_forget:
        refuse("--list and --forget exclude each other", PROGRAM)
    try:
        if is_list:
            list_coder_logins()
        elif is_forget:
            forget_coder_logins(wanted.provider)
        else:
            store_coder_login(wanted)
    except ModelError as error:
        refuse(str(error), PROGRAM, FAILED)


def store_coder_login(wanted: CoderLoginOptions) -> None:
    """Asks for what was not given, tries it out, and stores it."""
    from coupler.coder.model.credentials import ModelError

    if wanted.provider is not None:
        refuse("the coder has no METHOD: name a model with --model", PROGRAM)
    try:
        choice = _model_choice(wanted)
        key = _read_key(choice)
        if wanted.is_checked:
            _try_model(choice, key)
        _store(choice, wanted.base_url, key)
    except click.Abort:
        refuse("interrupted, nothing was stored", PROGRAM, INTERRUPTED)
    except ModelError as error:
        refuse(str(error), PROGRAM, FAILED)


def list_coder_logins() -> None:
    """Lists what is stored, and the model of this directory; keys are not shown."""
    stored = _stored_credentials()
    for key in stored.keys:
        say(f"{key.provider}{_at(key.base_url)}: a key is stored")
    if stored.model is not None:
        say(f"The model to begin with is {stored.model}{_at(stored.base_url)}.")
    if not stored.keys and stored.model is None:
        say("Nothing is stored.")
    say(_model_in_effect())


def forget_coder_logins(provider: str | None) -> None:
    """Removes what is stored: all of it, or what is for one provider."""
    from coupler.coder.model.choice import parsed_model
    from coupler.coder.model.credentials import remove_credentials, store_credentials

    if provider is None:
        say("Forgotten." if remove_credentials() else "Nothing was stored.")
        return
    stored = _stored_credentials()
    name, _ = parsed_model(f"{provider}:any")
    keys = [key for key in stored.keys if key.provider == name]
    is_models = stored.model is not None and parsed_model(stored.model)[0] == name
    if not keys and not is_models:
        refuse(f"nothing is stored for {provider}: --list shows what is", PROGRAM, FAILED)
    store_credentials(stored.without(keys, model=is_models))
    say(f"What was stored for {provider} is forgotten.")


def _model_choice(wanted: CoderLoginOptions) -> ModelChoice:
    from coupler.coder.model.choice import resolved_model

    text = wanted.model or _ask_for_model()
    return resolved_model(text, wanted.base_url)


def _ask_for_model() -> str:
    from coupler.coder.model.credentials import PROVIDERS

    if not sys.stdin.isatty():
        refuse("there is no terminal to ask on: name the model with --model PROVIDER:NAME", PROGRAM)
    at_hand = [each for each in PROVIDERS.values() if each.example and os.environ.get(each.variables[0])]
    first = (at_hand or [PROVIDERS["anthropic"]])[0]
    suggested = _stored_credentials().model or f"{first.name}:{first.example}"
    tell("Which model? Write PROVIDER:NAME, such as anthropic:…, openai:…, ollama:… or local:FILE.")
    return prompt("Model", default=suggested)


def _read_key(choice: ModelChoice) -> str | None:
    """Reads the key from the terminal or from stdin; None for a model that needs none."""
    from coupler.coder.model.credentials import checked_key, provider_of

    provider = provider_of(choice.provider)
    if not provider.variables and not choice.base_url:
        return None
    is_needed = provider.needs_key and choice.base_url is None
    if not sys.stdin.isatty():
        given = sys.stdin.readline(LONGEST_KEY) if is_needed or choice.provider == "openai" else ""
    else:
        optional = "" if is_needed else ", or nothing if it needs none"
        label = f"Key for {provider.title}{_at(choice.base_url)} (it is not shown{optional})"
        given = prompt(label, is_hidden=True)
    key = given.strip()
    if key:
        return checked_key(key, "what was given")
    if is_needed:
        _refuse_without_key(choice)
    return None


def _refuse_without_key(choice: ModelChoice) -> NoReturn:
    from coupler.coder.model.credentials import provider_of

    usual = [name for name in provider_of(choice.provider).variables if os.environ.get(name)]
    hint = (
        f"; with {usual[0]}, which is set, COUPLER_MODEL={choice.name} works without a login" if usual else ""
    )
    refuse(f"{choice.name} needs a key: type it, or write it to stdin{hint}", PROGRAM, FAILED)


def _try_model(choice: ModelChoice, key: str | None) -> None:
    """Asks the model for a word. What cannot be tried out is stored all the same."""
    from coupler.coder.model.chat_model import TrialResult, try_model

    if choice.provider == "local":
        return
    tell(f"Asking {choice.name}…")
    verdict, sentence = asyncio.run(try_model(choice, key, PATIENCE))
    match verdict:
        case TrialResult.WORKS:
            tell("It answers.")
        case TrialResult.UNKNOWN:
            print_error(f"it could not be tried out, and is stored as it is: {sentence}", PROGRAM)
        case TrialResult.REFUSED:
            refuse(f"nothing was stored: {sentence} (--no-check stores it nevertheless)", PROGRAM, FAILED)


def _store(choice: ModelChoice, base_url: str | None, key: str | None) -> None:
    from coupler.coder.model.credentials import store_credentials

    login = _stored_credentials().with_login(choice.name, base_url, (choice.provider, choice.base_url), key)
    try:
        path = store_credentials(login)
    except OSError as error:
        refuse(f"the login cannot be stored: {error.strerror or error}", PROGRAM, FAILED)
    say(f"{choice.name} is stored in {path}, which only you can read.")
    if not _is_in_effect(choice):
        say(_model_in_effect())


def _is_in_effect(choice: ModelChoice) -> bool:
    found = _choice_in_effect()
    return found is not None and (found.name, found.base_url) == (choice.name, choice.base_url)


def _no_model() -> str:
    from coupler.coder.model.choice import untrusted_model
    from coupler.config import ConfigError
    from coupler.providers.catalogue import configuration

    try:
        untrusted = untrusted_model(configuration("."))
    except ConfigError:
        untrusted = None
    return f"No model is set for this directory: {untrusted or 'run `coupler login coder`'}."


def _model_in_effect() -> str:
    """Says which model holds in this directory, and where it is set."""
    from coupler.coder.model.credentials import Keyring
    from coupler.config import ConfigError
    from coupler.providers.catalogue import configuration

    choice = _choice_in_effect()
    if choice is None:
        return _no_model()
    try:
        setting = configuration(".").settings.get("coder.model")
    except ConfigError as error:
        refuse(str(error), PROGRAM, FAILED)
    origin = "`coupler login coder`" if setting is None else str(setting.origin)
    key = Keyring().key_for(choice)
    source = "without a key" if key is None else f"with the key of {key.source}"
    return f"In this directory {choice.name}{_at(choice.base_url)} is used, as {origin} says, {source}."


def _choice_in_effect() -> ModelChoice | None:
    from coupler.coder.model.choice import chosen_model
    from coupler.coder.profiles import CoderProfile
    from coupler.config import ConfigError
    from coupler.providers.catalogue import configuration

    try:
        return chosen_model(configuration("."), CoderProfile())
    except ConfigError as error:
        refuse(str(error), PROGRAM, FAILED)


def _stored_credentials() -> Credentials:
    from coupler.coder.model.credentials import stored_credentials

    return stored_credentials()


def _at(base_url: str | None) -> str:
    return "" if base_url is None else f" at {base_url}"

"""`coupler login coder`: a model and its key for Coupler's own agent, asked for, tried out and stored.

No process is started for it. A key is typed where it is not shown, or read from stdin; it is never an
argument, because arguments are in the shell's history and in the system's list of processes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from coupler.cli.exit_codes import FAILED, INTERRUPTED
from coupler.cli.refusal import complain, refuse

if TYPE_CHECKING:
    from coupler.coder.model.choice import ModelChoice
    from coupler.coder.model.credentials import Credentials

PROGRAM = "coupler login"

LONGEST_KEY = 10_000
"""Characters of a key."""

PATIENCE = 30.0
"""Seconds that a server has to answer when a key is tried out."""


class Wanted(NamedTuple):
    """What was given on the command line."""

    model: str | None
    base_url: str | None
    provider: str | None
    """In the place of an agent's METHOD."""
    is_checked: bool


def is_coder(agent: str) -> bool:
    """Whether Coupler's own agent is meant, or a profile of it: they share their logins."""
    from coupler.coder.profile import CODER, profile_names
    from coupler.config import ConfigError
    from coupler.providers.catalogue import configuration

    if agent == CODER:
        return True
    try:
        return agent in profile_names(configuration("."))
    except ConfigError:
        return False  # told by whoever needs the configuration


def log_in(wanted: Wanted) -> None:
    """Ask for what was not given, try it out, and store it."""
    from coupler.coder.model.credentials import ModelError

    if wanted.provider is not None:
        refuse("the coder has no METHOD: name a model with --model", PROGRAM)
    try:
        choice = _choice(wanted)
        key = _key(choice)
        if wanted.is_checked:
            _check(choice, key)
        _store(choice, wanted.base_url, key)
    except click.Abort:
        refuse("interrupted, nothing was stored", PROGRAM, INTERRUPTED)
    except ModelError as error:
        refuse(str(error), PROGRAM, FAILED)


def list_logins() -> None:
    """What is stored, and what holds in this directory; keys are not shown."""
    stored = _stored()
    for key in stored.keys:
        _say(f"{key.provider}{_at(key.base_url)}: a key is stored")
    if stored.model is not None:
        _say(f"The model to begin with is {stored.model}{_at(stored.base_url)}.")
    if not stored.keys and stored.model is None:
        _say("Nothing is stored.")
    _say(_in_use())


def forget(provider: str | None) -> None:
    """Remove what is stored: all of it, or what is for one provider."""
    from coupler.coder.model.choice import parsed
    from coupler.coder.model.credentials import remove, store

    if provider is None:
        _say("Forgotten." if remove() else "Nothing was stored.")
        return
    stored = _stored()
    name, _ = parsed(f"{provider}:any")
    keys = [key for key in stored.keys if key.provider == name]
    is_models = stored.model is not None and parsed(stored.model)[0] == name
    if not keys and not is_models:
        refuse(f"nothing is stored for {provider}: --list shows what is", PROGRAM, FAILED)
    store(stored.without(keys, model=is_models))
    _say(f"What was stored for {provider} is forgotten.")


def _choice(wanted: Wanted) -> ModelChoice:
    from coupler.coder.model.choice import resolved

    text = wanted.model or _asked_model()
    return resolved(text, wanted.base_url)


def _asked_model() -> str:
    from coupler.coder.model.credentials import PROVIDERS

    if not sys.stdin.isatty():
        refuse("there is no terminal to ask on: name the model with --model PROVIDER:NAME", PROGRAM)
    at_hand = [each for each in PROVIDERS.values() if each.example and os.environ.get(each.variables[0])]
    first = (at_hand or [PROVIDERS["anthropic"]])[0]
    suggested = _stored().model or f"{first.name}:{first.example}"
    _say("Which model? Write PROVIDER:NAME, such as anthropic:…, openai:…, ollama:… or local:FILE.", err=True)
    return str(click.prompt("Model", default=suggested, err=True)).strip()


def _key(choice: ModelChoice) -> str | None:
    """The key as it was typed, or as it comes on stdin; None for a model that needs none."""
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
        given = click.prompt(label, default="", hide_input=True, show_default=False, err=True)
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


def _check(choice: ModelChoice, key: str | None) -> None:
    """Ask the model for a word. What cannot be tried out is stored all the same."""
    from coupler.coder.model.chat_model import Verdict, tried

    if choice.provider == "local":
        return
    _say(f"Asking {choice.name} for a word…", err=True)
    verdict, sentence = asyncio.run(tried(choice, key, PATIENCE))
    match verdict:
        case Verdict.WORKS:
            _say("It answers.", err=True)
        case Verdict.UNKNOWN:
            complain(f"it could not be tried out, and is stored as it is: {sentence}", PROGRAM)
        case Verdict.REFUSED:
            refuse(f"nothing was stored: {sentence} (--no-check stores it nevertheless)", PROGRAM, FAILED)


def _store(choice: ModelChoice, base_url: str | None, key: str | None) -> None:
    from coupler.coder.model.credentials import store

    login = _stored().with_login(choice.name, base_url, (choice.provider, choice.base_url), key)
    try:
        path = store(login)
    except OSError as error:
        refuse(f"the login cannot be stored: {error.strerror or error}", PROGRAM, FAILED)
    _say(f"{choice.name} is stored in {path}, which only you can read.")
    if not _holds(choice):
        _say(_in_use())


def _holds(choice: ModelChoice) -> bool:
    found = _here()
    return found is not None and (found.name, found.base_url) == (choice.name, choice.base_url)


def _in_use() -> str:
    """What holds in this directory, and who said so."""
    from coupler.coder.model.credentials import Keyring
    from coupler.config import ConfigError, keys
    from coupler.providers.catalogue import configuration

    choice = _here()
    if choice is None:
        return "No model is set for this directory: run `coupler login coder`."
    try:
        setting = configuration(".").settings.get(keys.CODER_MODEL.name)
    except ConfigError as error:
        refuse(str(error), PROGRAM, FAILED)
    origin = "`coupler login coder`" if setting is None else str(setting.origin)
    key = Keyring().key_for(choice)
    source = "without a key" if key is None else f"with the key of {key.source}"
    return f"In this directory {choice.name}{_at(choice.base_url)} is used, as {origin} says, {source}."


def _here() -> ModelChoice | None:
    from coupler.coder.model.choice import chosen
    from coupler.coder.profile import Profile
    from coupler.config import ConfigError
    from coupler.providers.catalogue import configuration

    try:
        return chosen(configuration("."), Profile())
    except ConfigError as error:
        refuse(str(error), PROGRAM, FAILED)


def _stored() -> Credentials:
    from coupler.coder.model.credentials import stored_credentials

    return stored_credentials()


def _at(base_url: str | None) -> str:
    return "" if base_url is None else f" at {base_url}"


def _say(sentence: str, *, err: bool = False) -> None:
    from coupler.cli.sessions.wording import clean

    stream = sys.stderr if err else sys.stdout
    stream.write(f"{clean(sentence)}\n")
    stream.flush()

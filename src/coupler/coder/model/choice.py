"""Chooses the model: that of the command line, the profile, the variables, `coupler.toml`, or the login.

A model is one text, `provider:name`. An address or a key that was set for one provider's model is never used
for another's. Imports no LangChain: a session asks this before it is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

from coupler.agent.errors import TurnFailedError
from coupler.coder.model.credentials import (
    ALIASES,
    LOCAL,
    LOGIN_SOURCE,
    OLLAMA,
    PROVIDERS,
    Credentials,
    Keyring,
    ModelError,
    missing_key,
    needs_key,
    ollama_address,
    provider_of,
    stored_credentials,
)
from coupler.config.shapes import address_problem, model_problem

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from coupler.config import Config
    from coupler.config.files import Layer

_LAYERS: tuple[Layer, ...] = ("user", "project", "environment", "command line")

USUAL_WINDOW, SMALL_WINDOW = 128_000, 32_000
"""Tokens that a model takes in of which nothing else is known; the smaller one on machines of one's own."""

NO_TOOLS = re.compile(
    r"\b(tools?|functions?)\b.*\bsupport|\bsupport\w*\b.*\b(tools?|functions?)\b", re.IGNORECASE
)
"""Words of a provider about a model that cannot use tools."""

NO_MODEL = "No model is set: run `coupler login coder` in a terminal, or set COUPLER_MODEL."

_WAYS = """\
No model is set, so I can only run workflows. To work with one, do one of these:

- **With a key**: run `coupler login coder` in a terminal. It asks for the model and its key, and keeps them \
in a file that only you can read.
- **With variables**: start the editor, or this agent, with `COUPLER_MODEL={anthropic}` (or `{openai}`) and \
`COUPLER_API_KEY=…`. Any server that speaks as OpenAI does goes with `COUPLER_MODEL=openai:NAME` and \
`COUPLER_BASE_URL=https://HOST/v1`.
- **On this machine, without a key**: run `coupler models install`, which fetches a tiny model to try things \
out, and `coupler login coder --model local:smollm2`. For work, start [Ollama](https://ollama.com), and \
write into `{file}`:

```toml
[coder]
model = "ollama:qwen3-coder"
```

{found}Then send your message again: nothing has to be restarted after a login or a change of the file."""


class ModelChoice(Struct, frozen=True, kw_only=True):
    """A model and the settings to reach it, except the key. Equal ones make the same client."""

    name: str
    """The text that it was set by: `provider:model`."""
    provider: str
    """The provider's name in LangChain."""
    model: str
    base_url: str | None = None
    """The server's address; None for the provider's own."""
    context_window: int | None = None
    """Tokens of the context window, if that is set."""
    is_main: bool = True
    """True if COUPLER_API_KEY is for it: its provider and address are those of the model that is set."""
    stored_at: int = 0
    """Time at which keys were stored last, so that a client with an older key is not reused."""


def chosen_model(
    config: Config,
    profile: ModelPreferences,
    model: str | None = None,
    environ: Mapping[str, str] = os.environ,
    credentials: Credentials | None = None,
) -> ModelChoice | None:
    """Return the model that is in effect; None if none is set. Raises ModelError for a misspelled one.

    `model` is that of the command line. What an untrusted project says is not in `config`, so it is not used.
    `credentials` count in place of what is stored.
    """
    credentials = stored_credentials() if credentials is None else credentials
    general = [*_said(config), _Statement(credentials.model, credentials.base_url)]
    own = [_Statement(model, None), _Statement(profile.model, profile.base_url)]
    main = _resolved([own[0], *general], environ)
    found = _resolved([*own, *general], environ)
    if found is None:
        return None
    window = config.coder.context_window if found == main else None
    return _settled(found, main, window, credentials)


def named_model(
    text: str,
    config: Config,
    profile: ModelPreferences,
    model: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ModelChoice:
    """Return another model to choose; it has the address of the one in effect if the provider is the same."""
    provider, name = parsed_model(text)
    main = chosen_model(config, profile, model, environ)
    address = main.base_url if main is not None and main.provider == provider else None
    choice = _choice(text, provider, name, address or _usual_address(provider, environ))
    return _settled(choice, main, None, stored_credentials())


def parsed_model(text: str) -> tuple[str, str]:
    """Split a model into provider and name; raises ModelError."""
    if problem := model_problem(text):
        raise ModelError(f"The model {problem}.")
    provider, _, name = text.partition(":")
    plain = provider.lower().replace("-", "_")
    return ALIASES.get(plain, plain), name.strip()


def resolved_model(text: str, base_url: str | None, environ: Mapping[str, str] = os.environ) -> ModelChoice:
    """Return a model that is given with its address, and depends on no other setting."""
    choice = _resolved([_Statement(text, base_url)], environ)
    assert choice is not None
    return choice


class ModelPreferences(Protocol):
    """The model that a profile wants."""

    @property
    def model(self) -> str | None:
        """The model as one text."""
        ...

    @property
    def base_url(self) -> str | None:
        """The address of the model."""
        ...


class _Statement(NamedTuple):
    """The model and the address of one source of settings."""

    model: str | None
    base_url: str | None
    is_for_others: bool = False
    """True if its address is also for an `openai:` model that a source of higher priority names.

    The user's own address is for all `openai:` models; a project's address is for the project's model.
    """

    def is_for(self, provider: str) -> bool:
        """True if the address goes with another model of this provider."""
        is_same = self.model is None or parsed_model(self.model)[0] == provider
        return self.is_for_others and provider == "openai" and is_same


def _said(config: Config) -> list[_Statement]:
    """Return the settings of files and variables; an address of lower priority may be for another model."""
    model, address = config.settings.get("coder.model"), config.settings.get("coder.base_url")
    if model is None or address is None:
        return [_Statement(config.coder.model, config.coder.base_url)]
    is_users = address.origin.layer != "project"
    if _LAYERS.index(address.origin.layer) >= _LAYERS.index(model.origin.layer):
        return [_Statement(model.value, address.value, is_for_others=is_users)]
    return [_Statement(model.value, None), _Statement(None, address.value, is_for_others=is_users)]


def _resolved(said: list[_Statement], environ: Mapping[str, str]) -> ModelChoice | None:
    """Return the model of highest priority, with the first address that can be meant for it."""
    place = next((number for number, each in enumerate(said) if each.model is not None), None)
    if place is None:
        return None
    text = said[place].model or ""
    provider, name = parsed_model(text)
    fitting = [each.base_url for each in said[: place + 1]]
    fitting += [each.base_url for each in said[place + 1 :] if each.is_for(provider)]
    address = next((each for each in fitting if each is not None), None)
    if address is not None and (problem := address_problem(address)):
        raise ModelError(f"The address of {text} {problem}.")
    return _choice(text, provider, name, address or _usual_address(provider, environ))


def _choice(text: str, provider: str, name: str, address: str | None) -> ModelChoice:
    if provider == LOCAL:
        name, address = str(Path(name).expanduser()), None
    return ModelChoice(
        name=text, provider=provider, model=name, base_url=None if address is None else address.rstrip("/")
    )


def _settled(
    choice: ModelChoice, main: ModelChoice | None, window: int | None, credentials: Credentials
) -> ModelChoice:
    is_main = main is None or (main.provider, main.base_url) == (choice.provider, choice.base_url)
    return ModelChoice(
        name=choice.name,
        provider=choice.provider,
        model=choice.model,
        base_url=choice.base_url,
        context_window=window,
        is_main=is_main,
        stored_at=credentials.stored_at,
    )


def _usual_address(provider: str, environ: Mapping[str, str]) -> str | None:
    if provider == OLLAMA:
        return ollama_address(environ)
    for variable in provider_of(provider).address_variables:
        address = environ.get(variable, "").strip()
        if address and address_problem(address) is None:
            return address
    return None


def window_of(model: BaseChatModel) -> int:
    """Return the tokens that a model can read."""
    known = (model.profile or {}).get("max_input_tokens")
    return known if isinstance(known, int) and known > 0 else USUAL_WINDOW


def untrusted_model(config: Config) -> str | None:
    """Return a sentence about a model that the project sets and that is not used; None if it sets none."""
    set_by = config.untrusted_setting("coder.model")
    if set_by is None:
        return None
    how = "read the file, then run `coupler trust` in its directory"
    return f"the model in {set_by.origin} is not trusted: {how}"


def login_problem(config: Config, choice: ModelChoice | None) -> str | None:
    """Return what a user without a model, or without its key, is told; None if the model can be asked."""
    if choice is None:
        untrusted = untrusted_model(config)
        return NO_MODEL if untrusted is None else f"No model is set: {untrusted}"
    return None if Keyring().has_what_is_needed(choice) else str(missing_key(choice))


def depends_on_login(config: Config, profile: ModelPreferences, model: str | None = None) -> bool:
    """Return whether the model in effect could not be asked without what `coupler login coder` stored."""
    choice = chosen_model(config, profile, model, credentials=Credentials())
    if choice is None:
        return True
    key = Keyring().key_for(choice)
    return needs_key(choice) and key is not None and key.source == LOGIN_SOURCE


def how_to_set_up(environ: Mapping[str, str] = os.environ, config: Config | None = None) -> str:
    """Return the ways to set up a model, in Markdown; the values of variables are not looked at."""
    from coupler.config.lookup import user_file

    examples = {
        name: f"{name}:{provider.example}" for name, provider in PROVIDERS.items() if provider.example
    }
    untrusted = None if config is None else untrusted_model(config)
    ways = _WAYS.format(
        anthropic=examples["anthropic"],
        openai=examples["openai"],
        file=user_file(environ) or "coupler.toml",
        found=_found(environ),
    )
    return ways if untrusted is None else f"{untrusted[0].upper()}{untrusted[1:]}.\n\n{ways}"


def _found(environ: Mapping[str, str]) -> str:
    """List the models that would work with keys that are set already."""
    lines = []
    for provider in PROVIDERS.values():
        variable = next((each for each in provider.variables if environ.get(each, "").strip()), None)
        if variable is not None:
            model = f"{provider.name}:{provider.example or 'NAME'}"
            lines.append(f"`{variable}` is set: `COUPLER_MODEL={model}` would work with it.\n\n")
    return "".join(lines)


def with_remedy(error: TurnFailedError, choice: ModelChoice) -> TurnFailedError:
    """Return the error with what the user can do about it: which model, where, and with whose key."""
    data: dict[str, Any] = {**error.data}
    remedy = _remedy(data.get("kind"), error.message, choice)
    if remedy is None:
        return error
    del data["reason"]
    return TurnFailedError(f"{error.message} {remedy}", **data)


def _remedy(kind: object, said: str, choice: ModelChoice) -> str | None:
    place = choice.name if choice.base_url is None else f"{choice.name} at {choice.base_url}"
    match kind:
        case "auth":
            key = Keyring().key_for(choice)
            used = "without a key" if key is None else f"with the key of {key.source}"
            return f"{place} was asked {used}: correct it, or run `coupler login coder` in a terminal."
        case "network" if choice.provider == OLLAMA:
            return f"{place} was asked: start Ollama, with `ollama serve` if not otherwise."
        case "refused" if NO_TOOLS.search(said):
            return f"{place} was asked. It has to be a model that can use tools."
        case "refused":
            return f"{place} was asked."
        case "network" | "garbled" | "cut_off" if choice.provider != LOCAL:
            return f"{place} was asked."
        case "no_model" if choice.provider == OLLAMA:
            return f"{place} was asked: `ollama pull {choice.model}` gets it."
        case "no_model":
            return f"{place} was asked: choose another one, or run `coupler login coder` in a terminal."
    return None

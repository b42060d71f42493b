"""Credentials of the coder's models: what `coupler login coder` has stored, keys, and providers.

The stored model and keys are one file below Coupler's own directory, which only its user can read; it is
replaced as a whole. A key is given out for exactly the provider and the address that it was stored for.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from coupler.redaction.sources import could_be_secret
from coupler.runtime import directories
from coupler.runtime.directories import NoHomeError

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.coder.model.choice import ModelChoice

log = logging.getLogger("coupler.coder")

LARGEST = 1024 * 1024
"""Bytes of the file, at most."""

KEY_VARIABLE = "COUPLER_API_KEY"
"""Variable with the key of the model that is set, of any provider."""

LOGIN_SOURCE = "`coupler login coder`"
"""The source of a stored key, in words."""

LOCAL = "local"
OLLAMA = "ollama"


class ModelError(Exception):
    """A model cannot be used; the message says what to do. It never holds a key."""


class StoredKey(Struct, frozen=True):
    """A stored key, with its provider and address."""

    provider: str
    base_url: str | None
    key: str

    @property
    def place(self) -> tuple[str, str | None]:
        """The provider and the address that it is for."""
        return self.provider, self.base_url

    def __repr__(self) -> str:
        return f"StoredKey({self.provider!r}, {self.base_url!r}, …)"


class Credentials(Struct, frozen=True):
    """Everything that `coupler login coder` has stored."""

    model: str | None = None
    base_url: str | None = None
    keys: tuple[StoredKey, ...] = ()
    stored_at: int = 0
    """Time of the last change, in nanoseconds; 0 if nothing is stored."""

    def key_for(self, provider: str, base_url: str | None) -> str | None:
        """The key that was stored for this."""
        return next((each.key for each in self.keys if each.place == (provider, base_url)), None)

    def with_login(
        self, model: str, base_url: str | None, place: tuple[str, str | None], key: str | None
    ) -> Credentials:
        """Return them with another model to begin with, and its key for this place if it has one."""
        others = tuple(each for each in self.keys if each.place != place)
        added = () if key is None else (StoredKey(*place, key),)
        return Credentials(model, base_url, (*others, *added))

    def without(self, keys: Iterable[StoredKey], *, model: bool) -> Credentials:
        """Return them without these keys, and without the model to begin with."""
        gone = {each.place for each in keys}
        left = tuple(each for each in self.keys if each.place not in gone)
        return Credentials(None, None, left) if model else structs.replace(self, keys=left)


def credentials_file() -> Path:
    """Return the file of the credentials; raises NoHomeError for a user without a home."""
    return Path(directories.credentials_file())


def stored_credentials() -> Credentials:
    """Return what is stored; nothing if there is no file. Raises ModelError for a broken one."""
    try:
        path = credentials_file()
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read(LARGEST + 1)
    except (FileNotFoundError, NoHomeError):
        return Credentials()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & 0o077:
        log.warning("%s holds keys and others can read it: run `chmod 600` on it", path)
    return _credentials(path, content, status.st_mtime_ns)


def store_credentials(credentials: Credentials) -> Path:
    """Replace what is stored; returns the file. Raises OSError, and then the old one is still whole."""
    path = credentials_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Made for this user alone from its first moment on, whatever the umask is.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(_as_json(credentials), stream, indent=2)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except BaseException:
        new.unlink()
        raise
    return path


def remove_credentials() -> bool:
    """Delete what is stored; returns whether there was something."""
    try:
        credentials_file().unlink()
    except (FileNotFoundError, NoHomeError):
        return False
    return True


def _as_json(credentials: Credentials) -> dict[str, Any]:
    return {
        "model": credentials.model,
        "base_url": credentials.base_url,
        "keys": [
            {"provider": each.provider, "base_url": each.base_url, "key": each.key}
            for each in credentials.keys
        ],
    }


def _credentials(path: Path, content: bytes, stored_at: int) -> Credentials:
    try:
        kept = msgspec.json.decode(content, type=Credentials)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # What is wrong with it is not repeated: it may be a key.
        raise ModelError(
            f"{path} cannot be used: run `coupler login coder` again after removing it."
        ) from None
    return structs.replace(kept, stored_at=stored_at)


class ModelKey(Struct, frozen=True):
    """A key, and its source."""

    value: str
    source: str
    """The source in words: a variable, or `coupler login coder`."""

    @property
    def name(self) -> str:
        """The name that is shown in its place."""
        return self.source if self.source.isidentifier() else KEY_VARIABLE

    def __repr__(self) -> str:
        return f"Key(…, {self.source!r})"


class Keyring:
    """The keys of this user: from COUPLER_API_KEY, the provider's variables, or `coupler login coder`.

    Keys are handed to the client of the model and to nobody else: `conceal` keeps them out of all that a
    session shows and writes, and out of the environment of what it runs.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Read keys from these variables, by default those of the process: sessions run without keys."""
        self._environ = os.environ if environ is None else environ
        self.concealed: dict[str, str] = {}
        """The keys to redact in sessions, by the names that are shown instead."""

    def key_for(self, choice: ModelChoice) -> ModelKey | None:
        """The key of a model; None if there is none, which is right for many servers."""
        variables = (*((KEY_VARIABLE,) if choice.is_main else ()), *provider_of(choice.provider).variables)
        for variable in variables:
            if value := self._environ.get(variable, "").strip():
                return ModelKey(checked_key(value, variable), variable)
        stored = stored_credentials().key_for(choice.provider, choice.base_url)
        return None if stored is None else ModelKey(stored, LOGIN_SOURCE)

    def has_what_is_needed(self, choice: ModelChoice) -> bool:
        """True if a model has its key, or needs none."""
        return not needs_key(choice) or self.key_for(choice) is not None

    def conceal(self, session: Session, choices: Sequence[ModelChoice]) -> None:
        """Redact the keys of models in this session, and withhold them from what it runs.

        That holds for the keys of these models, and for what the variables of other providers hold.
        """
        found = [key for choice in choices if (key := self.key_for(choice)) is not None]
        for key in found:
            self._note(key.name, key.value)
        for variable in sorted(_model_keys()):
            self._note(variable, self._environ.get(variable, "").strip())
        # The same key may stand under other names, and as a part of other values.
        values = tuple(self.concealed.values())
        holding = {name for name, text in self._environ.items() if any(value in text for value in values)}
        used = {variable for choice in choices for variable in provider_of(choice.provider).variables}
        session.withhold({KEY_VARIABLE, *_model_keys(), *used, *holding})
        for name, value in self.concealed.items():
            session.add_secret(name, value)

    def _note(self, name: str, value: str) -> None:
        # Servers that want no key are given words such as "none", which must not vanish from every text.
        if value not in self.concealed.values() and could_be_secret(value):
            self.concealed[name] = value


def _model_keys() -> set[str]:
    """Return the variables that hold keys of models; a provider's general token is not among them."""
    named = {variable for provider in PROVIDERS.values() for variable in provider.variables}
    return {variable for variable in named if variable.endswith("_API_KEY")}


def needs_key(choice: ModelChoice) -> bool:
    """True for a model that its provider's own server gives to nobody without a key."""
    return provider_of(choice.provider).needs_key and choice.base_url is None


def missing_key(choice: ModelChoice) -> ModelError:
    """Return the error for a provider that wants a key, and has none."""
    provider = provider_of(choice.provider)
    usual = f"{provider.variables[0]} or {KEY_VARIABLE}" if provider.variables else KEY_VARIABLE
    return ModelError(
        f"There is no key for {choice.name}: set {usual}, or run `coupler login coder` in a terminal."
    )


def checked_key(value: str, where: str) -> str:
    """Return a key that can be sent: one pasted with a line break or a typographic quote cannot."""
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ModelError(f"The key in {where} cannot be one: it has spaces or other unusual characters.")
    return value


class ModelProvider(NamedTuple):
    """A provider of models: the variables that hold its key, and its address where that must be known.

    Providers that are not listed can be used all the same, if LangChain knows them.
    """

    name: str
    title: str
    variables: tuple[str, ...] = ()
    """Variables that usually hold its key; the first that is set counts."""
    address_variables: tuple[str, ...] = ()
    """Variables that usually hold another address of it."""
    compatible_at: str | None = None
    """An OpenAI-compatible address, for users without the provider's package."""
    example: str | None = None
    """A good model for coding, newest first."""
    needs_key: bool = True


PROVIDERS: Mapping[str, ModelProvider] = {
    provider.name: provider
    for provider in (
        ModelProvider(
            "anthropic",
            "Anthropic",
            ("ANTHROPIC_API_KEY",),
            ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL"),
            example="claude-sonnet-5-5",
        ),
        ModelProvider(
            "openai",
            "OpenAI",
            ("OPENAI_API_KEY",),
            ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            example="gpt-6.1-sol",
        ),
        ModelProvider("google_genai", "Google", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
        ModelProvider(
            "openrouter", "OpenRouter", ("OPENROUTER_API_KEY",), compatible_at="https://openrouter.ai/api/v1"
        ),
        ModelProvider("groq", "Groq", ("GROQ_API_KEY",), compatible_at="https://api.groq.com/openai/v1"),
        ModelProvider(
            "deepseek", "DeepSeek", ("DEEPSEEK_API_KEY",), compatible_at="https://api.deepseek.com/v1"
        ),
        ModelProvider(
            "mistralai", "Mistral", ("MISTRAL_API_KEY",), compatible_at="https://api.mistral.ai/v1"
        ),
        ModelProvider("xai", "xAI", ("XAI_API_KEY",), compatible_at="https://api.x.ai/v1"),
        ModelProvider(
            "together", "Together", ("TOGETHER_API_KEY",), compatible_at="https://api.together.xyz/v1"
        ),
        ModelProvider(
            "fireworks",
            "Fireworks",
            ("FIREWORKS_API_KEY",),
            compatible_at="https://api.fireworks.ai/inference/v1",
        ),
        ModelProvider("cohere", "Cohere", ("COHERE_API_KEY", "CO_API_KEY")),
        ModelProvider("perplexity", "Perplexity", ("PERPLEXITY_API_KEY", "PPLX_API_KEY")),
        ModelProvider("nvidia", "NVIDIA", ("NVIDIA_API_KEY",)),
        ModelProvider("azure_openai", "Azure", ("AZURE_OPENAI_API_KEY",)),
        ModelProvider("huggingface", "Hugging Face", ("HF_TOKEN", "HUGGINGFACEHUB_API_TOKEN")),
        # They use the credentials of their clouds, which their own packages find.
        ModelProvider("bedrock_converse", "Amazon Bedrock", needs_key=False),
        ModelProvider("google_vertexai", "Google Vertex AI", needs_key=False),
        ModelProvider(OLLAMA, "Ollama", ("OLLAMA_API_KEY",), needs_key=False),
        ModelProvider(LOCAL, "this machine", needs_key=False),
    )
}

ALIASES: Mapping[str, str] = {
    "azure": "azure_openai",
    "bedrock": "bedrock_converse",
    "claude": "anthropic",
    "gemini": "google_genai",
    "google": "google_genai",
    "grok": "xai",
    "mistral": "mistralai",
    "vertexai": "google_vertexai",
}
"""Other names of providers that people use."""


def provider_of(name: str) -> ModelProvider:
    """Return what is known of a provider; of one that is not listed only its name."""
    return PROVIDERS.get(name) or ModelProvider(name, name, needs_key=False)


def client_package(name: str) -> str:
    """The package that has LangChain's client of a provider; importing it takes about a second."""
    provider = PROVIDERS.get(name)
    is_compatible = name in ("openai", OLLAMA, LOCAL) or (provider is not None and provider.compatible_at)
    return "langchain_openai" if is_compatible else f"langchain_{name}"


def ollama_address(environ: Mapping[str, str]) -> str:
    """Return where Ollama listens; OLLAMA_HOST has a host, a port, both, or an address."""
    given = environ.get("OLLAMA_HOST", "").strip().rstrip("/")
    scheme, has_scheme, rest = given.partition("://")
    if not has_scheme:
        scheme, rest = "http", given
    place, slash, path = rest.partition("/")
    host, _, port = place.rpartition(":") if ":" in place.rpartition("]")[2] else (place, "", "")
    if host in ("", "0.0.0.0", "[::]"):
        host = "localhost"  # what a server listens on is no place to go to
    usual = "" if has_scheme else ":11434"
    return f"{scheme}://{host}{f':{port}' if port else usual}{slash}{path}/v1"

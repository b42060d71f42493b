"""Where a model's key comes from: COUPLER_API_KEY, the provider's usual variables, or `coupler login coder`.

Keys are handed to the client of the model and to nobody else: `conceal` keeps them out of all that a session
shows and writes, and out of the environment of what it runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from coupler.coder.model.credentials import stored_credentials
from coupler.coder.model.errors import ModelError
from coupler.coder.model.provider import PROVIDERS, provider_of
from coupler.redaction.sources import could_be_secret

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.coder.model.choice import ModelChoice

VARIABLE = "COUPLER_API_KEY"
"""The key of the model that is set, whoever offers it."""


class Key(Struct, frozen=True):
    """A key, and where it is from."""

    value: str
    source: str
    """For people: a variable, or `coupler login coder`."""

    @property
    def name(self) -> str:
        """What is shown in its place."""
        return self.source if self.source.isidentifier() else VARIABLE

    def __repr__(self) -> str:
        return f"Key(…, {self.source!r})"


class Keyring:
    """The keys of this user, as they are now."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Without variables, those of the process: sessions run without keys."""
        self._environ = os.environ if environ is None else environ
        self.concealed: dict[str, str] = {}
        """The keys that sessions do not show, by the names that are shown instead."""

    def key_for(self, choice: ModelChoice) -> Key | None:
        """The key of a model; None if there is none, which is right for many servers."""
        variables = (*((VARIABLE,) if choice.is_main else ()), *provider_of(choice.provider).variables)
        for variable in variables:
            if value := self._environ.get(variable, "").strip():
                return Key(checked_key(value, variable), variable)
        stored = stored_credentials().key_for(choice.provider, choice.base_url)
        return None if stored is None else Key(stored, "`coupler login coder`")

    def has_what_is_needed(self, choice: ModelChoice) -> bool:
        """Whether a model has its key, or needs none."""
        needs_key = provider_of(choice.provider).needs_key and choice.base_url is None
        return not needs_key or self.key_for(choice) is not None

    def conceal(self, session: Session, choices: Sequence[ModelChoice]) -> None:
        """Show nobody the keys of models in this session, and let nothing that it runs have them.

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
        session.withhold({VARIABLE, *_model_keys(), *used, *holding})
        for name, value in self.concealed.items():
            session.add_secret(name, value)

    def _note(self, name: str, value: str) -> None:
        # Servers that want no key are given words such as "none", which must not vanish from every text.
        if value not in self.concealed.values() and could_be_secret(value):
            self.concealed[name] = value


def _model_keys() -> set[str]:
    """The variables that hold keys of models, whoever's; a general token of a provider is not meant."""
    named = {variable for provider in PROVIDERS.values() for variable in provider.variables}
    return {variable for variable in named if variable.endswith("_API_KEY")}


def missing_key(choice: ModelChoice) -> ModelError:
    """There is none, and the provider wants one."""
    provider = provider_of(choice.provider)
    usual = f"{provider.variables[0]} or {VARIABLE}" if provider.variables else VARIABLE
    return ModelError(
        f"There is no key for {choice.name}: set {usual}, or run `coupler login coder` in a terminal."
    )


def checked_key(value: str, where: str) -> str:
    """A key that can be sent: what was pasted with a line break or a typographic quote cannot."""
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ModelError(f"The key in {where} cannot be one: it has spaces or other unusual characters.")
    return value

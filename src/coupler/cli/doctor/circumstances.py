"""What all examiners share: the directory, its configuration, how much time there is, and what is secret."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from coupler.cli.doctor.database import SeenTrust, trust_of

if TYPE_CHECKING:
    from coupler.config import Config, ConfigError
    from coupler.redaction.masker import Masker
    from coupler.redaction.sources import Secret

LONGEST_REQUEST = 10.0
"""Seconds that one server or one model has to answer."""

FAREWELL = 1.0
"""Seconds before the end at which nothing is waited for any more, so that there is time to tell."""


class _Read(NamedTuple):
    """What was read of the settings."""

    config: Config
    trust: SeenTrust
    error: ConfigError | None = None


class Circumstances:
    """What holds here. Examiners of several threads ask it."""

    def __init__(self, seconds: float, *, is_offline: bool) -> None:
        self.is_offline = is_offline
        """Whether no server is to be started or reached, and no model asked."""
        self.deadline = time.monotonic() + seconds
        self.directory = _directory()
        """Where the command was called; None if that directory is gone."""
        self._reading = threading.Lock()
        self._read: _Read | None = None
        self._secrets: list[Secret] = []

    @property
    def patience(self) -> float:
        """Seconds that something may be waited for now."""
        return max(0.1, min(LONGEST_REQUEST, self.deadline - time.monotonic() - FAREWELL))

    @property
    def config(self) -> Config:
        """What holds in the directory, as far as it can be read."""
        return self._settings().config

    @property
    def config_error(self) -> ConfigError | None:
        """Why that is not all."""
        return self._settings().error

    @property
    def trust(self) -> SeenTrust:
        """What the user has trusted."""
        return self._settings().trust

    def keep_secret(self, values: Iterable[Mapping[str, str]]) -> None:
        """Values by their names, which are not shown whatever quotes them."""
        from coupler.redaction.sources import declared_secrets

        for each in values:
            self._secrets += declared_secrets(each)

    def masker(self) -> Masker:
        """Hides what is known to be secret by now. It waits for nobody: whoever reads settings may hang."""
        from coupler.redaction.masker import Masker
        from coupler.redaction.sources import secrets_in_environment

        return Masker([*self._secrets, *secrets_in_environment(os.environ)])

    def _settings(self) -> _Read:
        with self._reading:
            if self._read is None:
                self._read = self._load()
            return self._read

    def _load(self) -> _Read:
        """If a project's file is wrong the user's own still holds, and without that the defaults."""
        from coupler.config import Config, ConfigError, keys, load

        users, trust = Config({}), trust_of(None, self.patience)
        try:
            users = load(None, environ=os.environ)
            trust = trust_of(users[keys.STORE], self.patience)
            return _Read(load(self.directory, environ=os.environ, trust=trust), trust)
        except ConfigError as error:
            return _Read(users, trust, error)


def _directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return None

"""What all examiners share: the directory, its configuration, how much time there is, and what is secret."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coupler.config import Config, ConfigError
    from coupler.secrets import Masker, Secret

LONGEST_REQUEST = 10.0
"""Seconds that one server or one model has to answer."""

FAREWELL = 1.0
"""Seconds before the end at which nothing is waited for any more, so that there is time to tell."""


class Circumstances:
    """What holds here. Examiners of several threads ask it."""

    def __init__(self, seconds: float, *, is_offline: bool) -> None:
        self.is_offline = is_offline
        """Whether no server is to be started or reached, and no model asked."""
        self.deadline = time.monotonic() + seconds
        self.directory = _directory()
        """Where the command was called; None if that directory is gone."""
        self._lock = threading.Lock()
        self._config: tuple[Config, ConfigError | None] | None = None
        self._secrets: list[Secret] = []

    @property
    def patience(self) -> float:
        """Seconds that something may be waited for now."""
        return max(0.1, min(LONGEST_REQUEST, self.deadline - time.monotonic() - FAREWELL))

    @property
    def config(self) -> Config:
        """What holds in the directory, as far as it can be read."""
        return self._loaded()[0]

    @property
    def config_error(self) -> ConfigError | None:
        """Why that is not all."""
        return self._loaded()[1]

    def keep_secret(self, values: Iterable[Mapping[str, str]]) -> None:
        """Values by their names, which are not shown whatever quotes them."""
        from coupler.secrets import declared_secrets

        found = [secret for each in values for secret in declared_secrets(each)]
        with self._lock:
            self._secrets += found

    def masker(self) -> Masker:
        """Hides what is known to be secret by now."""
        from coupler.secrets import Masker, secrets_in_environment

        with self._lock:
            return Masker([*self._secrets, *secrets_in_environment(os.environ)])

    def _loaded(self) -> tuple[Config, ConfigError | None]:
        with self._lock:
            if self._config is None:
                self._config = _load(self.directory)
            return self._config


def _directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return None


def _load(directory: str | None) -> tuple[Config, ConfigError | None]:
    """Where a project's file is wrong the user's own still tells something, and without that the defaults."""
    from coupler.agent.kept_trust import KeptTrust
    from coupler.config import Config, ConfigError, load

    try:
        return load(directory, environ=os.environ, trust=KeptTrust()), None
    except ConfigError as error:
        first = error
    try:
        return load(None, environ=os.environ), first
    except ConfigError:
        return Config({}), first

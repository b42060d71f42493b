"""The secrets that all sessions of a process share, those of a directory, and the maskers for them.

The masker is imported on use, because an agent's first answer does not need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.redaction.masker import Masker
    from coupler.redaction.sources import Secret

_at_start = dict(os.environ)
_seen: Mapping[Any, Any] | None = None
_of_environment: Masker | None = None
_learned: dict[Secret, None] = {}
_of_process: tuple[Masker, int, Masker] | None = None


def environment_masker() -> Masker:
    """The masker for what the environment of the process held at its start and holds now.

    The same object while nothing changes. What was secret once remains so: agents remove their tokens from
    the environment to hide them from their children.
    """
    global _seen, _of_environment
    # The mapping behind it, which is compared in a microsecond; a target may load a file of variables late.
    variables: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
    if _of_environment is None or variables != _seen:
        from coupler.redaction.masker import Masker
        from coupler.redaction.sources import secrets_in_environment

        _seen = {**variables}
        known = _of_environment or Masker(secrets_in_environment(_at_start))
        _of_environment = known.with_secrets(secrets_in_environment(os.environ))
    return _of_environment


def process_masker() -> Masker:
    """The masker for the environment and for what any session has learned: for logs and the like."""
    global _of_process
    base, count = environment_masker(), len(_learned)
    if _of_process is None or _of_process[0] is not base or _of_process[1] != count:
        _of_process = base, count, base.with_secrets([*_learned])
    return _of_process[2]


def masked_beginning(text: str, size: int) -> str:
    """As much of a text as fits, for people: masked before it is cut, as no masker finds half a secret."""
    return process_masker().mask(text)[:size]


def add_process_secrets(secrets: Iterable[Secret]) -> None:
    """Mask these in the whole process from now on: a session has learned of them."""
    _learned.update(dict.fromkeys(secrets))


@cache
def masker_for(directory: str | None) -> Masker:
    """The masker of the secrets that are known in a directory, for what was stored before.

    Nothing that is known to be secret is stored. A variable that was set or named later is redacted by this,
    as far as this process has it: the environment, and `secrets.names` of the user's and the project's
    settings.
    """
    from coupler.redaction.masker import Masker
    from coupler.redaction.sources import declared_secrets, secrets_in_environment

    return Masker([*declared_secrets(named_secrets(directory)), *secrets_in_environment(os.environ)])


def named_secrets(directory: str | None) -> dict[str, str]:
    """The variables of the environment that the settings of a directory declare as secret."""
    return {name: os.environ[name] for name in secret_names(directory) if name in os.environ}


def secret_names(directory: str | None) -> list[str]:
    """The names of variables that the settings of a directory declare as secret."""
    from coupler.config import ConfigError, load

    try:
        return [entry.text for entry in load(directory, environ=os.environ).secrets.names]
    except (ConfigError, OSError, ValueError):
        # A project whose file is wrong or gone must not keep its sessions from being read.
        return [] if directory is None else secret_names(None)

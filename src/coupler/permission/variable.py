"""Shell variables: which a command line may set without changing what its commands are.

Almost any variable of the environment makes some program run something (PATH, LD_PRELOAD, GIT_SSH_COMMAND,
NODE_OPTIONS …), so the harmless ones are listed, not the harmful ones.
"""

from __future__ import annotations

import re

_HARMLESS = frozenset(
    {
        "CI",
        "CLICOLOR",
        "COLUMNS",
        "FORCE_COLOR",
        "LANG",
        "LANGUAGE",
        "LINES",
        "NODE_ENV",
        "NO_COLOR",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "RUST_BACKTRACE",
        "TZ",
    }
)
_LOCALE = re.compile(r"LC_[A-Z]+")
_LOCAL = re.compile(r"[a-z][a-z0-9]*")
_TIED_IN_ZSH = frozenset(
    {"path", "fpath", "cdpath", "manpath", "mailpath", "fignore", "psvar", "watch", "prompt", "argv"}
)


def is_harmless(name: str) -> bool:
    """Whether this variable, given to a command, leaves what the command does as it is."""
    return name in _HARMLESS or _LOCALE.fullmatch(name) is not None


def is_local(name: str) -> bool:
    """Whether this is a plain name of the script's own, such as a loop's variable, that no program reads."""
    return is_harmless(name) or (_LOCAL.fullmatch(name) is not None and name not in _TIED_IN_ZSH)

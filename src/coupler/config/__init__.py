"""What users and projects set in `coupler.toml`: found, checked, merged, and trusted where that is needed.

The table of keys is `keys.py`: a key is declared there once, and gets its validation, its place in the
order of precedence and its line in the manual from that. Nothing here opens the store: whether a project
is trusted is asked of whoever is handed to `load`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.config.config import Config, Note, TrustedFiles, load
    from coupler.config.files import Entry, Origin
    from coupler.config.lookup import ConfigError

__all__ = ["Config", "ConfigError", "Entry", "Note", "Origin", "TrustedFiles", "load"]

_HOMES = {"ConfigError": "coupler.config.lookup"}
_HOMES |= dict.fromkeys(("Entry", "Origin"), "coupler.config.files")
_HOMES |= dict.fromkeys(("Config", "Note", "TrustedFiles", "load"), "coupler.config.config")


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: where the files are is looked up before an editor's first answer."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value

"""Finds, checks and merges the configuration that users and projects write in `coupler.toml`.

`lookup` finds the files that count, `files` reads them with the line and column of every key, `keys` checks
them, and `config` merges them by precedence with the environment and the command line, leaving out what a
project may not set. A key is declared once, as a field of a section in `keys`, with the shapes of values in
`shapes` and the tables `[agents.NAME]` and `[mcp.NAME]` in `agent_tables`: its validation, its place in the
order of precedence and its line in the manual follow from that. Nothing here opens the store: whether a
project is trusted is asked of whoever is handed to `load`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.config.config import Config, IgnoredSetting, TrustedFiles, load
    from coupler.config.files import ListItem, Origin
    from coupler.config.lookup import ConfigError

__all__ = ["Config", "ConfigError", "IgnoredSetting", "ListItem", "Origin", "TrustedFiles", "load"]

_HOMES = {"ConfigError": "coupler.config.lookup"}
_HOMES |= dict.fromkeys(("ListItem", "Origin"), "coupler.config.files")
_HOMES |= dict.fromkeys(("Config", "IgnoredSetting", "TrustedFiles", "load"), "coupler.config.config")


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: an editor's first answer needs only where the files are."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value

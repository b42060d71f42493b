"""What users and projects set in `coupler.toml`: found, checked, merged, and trusted where that is needed.

The table of keys is `keys.py`: a key is declared there once, and gets its validation, its place in the
order of precedence and its line in the manual from that. Nothing here opens the store: whether a project
is trusted is asked of whoever is handed to `load`.
"""

from coupler.config.config import Config, Note, TrustedFiles, load
from coupler.config.errors import ConfigError
from coupler.config.origin import Entry, Origin

__all__ = ["Config", "ConfigError", "Entry", "Note", "Origin", "TrustedFiles", "load"]

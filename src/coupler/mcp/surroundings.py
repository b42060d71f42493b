"""Where a server runs, and which variables it sees: those it was given, and those no program does without."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

_INHERITED = (
    (
        "APPDATA",
        "COMSPEC",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "TMP",
        "USERNAME",
        "USERPROFILE",
    )
    if sys.platform == "win32"
    else ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
)


class Surroundings(NamedTuple):
    """What a session gives its servers. The variables may change until a server starts."""

    cwd: str
    variables: Mapping[str, str]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of a server: keys and tokens of others are none of its business."""
        inherited = {name: self.variables[name] for name in _INHERITED if name in self.variables}
        return {**inherited, **given}

"""The environment policy: a child inherits ours with overrides, or gets exactly what it is given."""

import os
import sys
from collections.abc import Mapping

from coupler.process.errors import SpawnError


class Environment:
    """What variables a child sees. Made by `inherit` or `exact`, resolved when the child starts."""

    __slots__ = ("_inherits", "_variables")

    def __init__(self, variables: Mapping[str, str | None], *, inherits: bool) -> None:
        self._variables = dict(variables)
        self._inherits = inherits

    @classmethod
    def inherit(cls, overrides: Mapping[str, str | None] | None = None) -> "Environment":
        """Ours, with `overrides` on top; None as a value removes the variable."""
        return cls(overrides or {}, inherits=True)

    @classmethod
    def exact(cls, variables: Mapping[str, str]) -> "Environment":
        """These variables and no other."""
        return cls(variables, inherits=False)

    def resolve(self) -> dict[str, str]:
        """The variables as the child will see them."""
        resolved = dict(os.environ) if self._inherits else _indispensable()
        for name, value in self._variables.items():
            _check(name, value)
            if value is None:
                resolved.pop(name, None)
            else:
                resolved[name] = value
        return resolved


def _indispensable() -> dict[str, str]:
    # Windows cannot load its own socket and random libraries without this one.
    if sys.platform == "win32" and "SYSTEMROOT" in os.environ:
        return {"SYSTEMROOT": os.environ["SYSTEMROOT"]}
    return {}


def _check(name: object, value: object) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise SpawnError("bad_environment", f"{name!r} cannot be the name of an environment variable.")
    if value is not None and (not isinstance(value, str) or "\0" in value):
        # The value itself may be a secret: it is not shown.
        raise SpawnError(
            "bad_environment",
            f"The environment variable {name} must be text without NUL characters, or None to remove it.",
        )

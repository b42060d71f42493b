"""The environment of what a session runs: a dict that notices what is put into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self


class SessionEnvironment(dict[str, str]):
    """Variables by name. `noticed` hears of each that is set later, because its value may be a secret."""

    def __init__(self, variables: Mapping[str, str], noticed: Callable[[Mapping[str, str]], None]) -> None:
        super().__init__(variables)
        self._noticed = noticed

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, value)
        self._noticed({name: value})

    def setdefault(self, name: str, default: str = "") -> str:
        """The variable's value, which is set if there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *variables: Any, **more: str) -> None:
        """Set several variables."""
        changes: dict[str, str] = dict(*variables, **more)
        super().update(changes)
        self._noticed(changes)

    def __ior__(self, variables: Any) -> Self:  # type: ignore[override,misc]
        self.update(variables)
        return self

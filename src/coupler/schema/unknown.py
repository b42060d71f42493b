"""A value of a kind this version does not know, kept as it came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Unknown(dict[str, Any]):
    """The JSON object of a variant that only a newer peer knows: a dict, so that it is sent on unchanged."""

    __slots__ = ("tag",)

    def __init__(self, tag: str, raw: Mapping[str, Any]) -> None:
        super().__init__(raw)
        self.tag = tag

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tag!r}, {super().__repr__()})"

    def __reduce__(self) -> tuple[type[Unknown], tuple[str, dict[str, Any]]]:
        return type(self), (self.tag, dict(self))

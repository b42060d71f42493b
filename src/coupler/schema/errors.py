"""The one error of this layer, and how it speaks of JSON values."""

from __future__ import annotations

from collections.abc import Iterable

_KINDS: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a decimal number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_SHOWN = 60


class DecodingError(ValueError):
    """A message does not have the shape its type asks for; `path` says where, spelled as on the wire."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    @classmethod
    def expected(cls, what: str, value: object, path: str = "") -> DecodingError:
        return cls(path, f"expected {what}, got {_KINDS.get(type(value), 'something else')}")

    @classmethod
    def not_among(cls, known: Iterable[object], value: str, path: str) -> DecodingError:
        choices = ", ".join(f'"{choice}"' for choice in known)
        shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
        return cls(path, f'expected one of {choices}, got "{shown}"')

    @classmethod
    def missing(cls, path: str) -> DecodingError:
        return cls(path, "is required")

    def below(self, path: str) -> DecodingError:
        """The same error, seen from further out."""
        return DecodingError(join(path, self.path), self.problem)


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name

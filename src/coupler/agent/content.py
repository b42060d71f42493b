"""Checks and converts the text, content blocks and values that agents hand over.

Declarations (modes, options, commands) are checked where they are written: a mistake is found when the agent
starts, not when a client chokes on it.
"""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import UNSET

from coupler.redaction.known_secrets import masked_beginning
from coupler.schema.v1 import ContentBlock, EmbeddedResource, ResourceLink, TextContent, TextResourceContents

LONGEST_PIECE = 32 * 1024
"""Characters sent at once: a long text must not keep other sessions waiting, or break a client's limit."""

BLOCKS: tuple[type, ...] = get_args(ContentBlock)

MAX_DEPTH = 20
MAX_ITEMS = 1_000
"""Entries of one list or mapping, at most."""

MAX_TEXT = 64 * 1024
"""Characters of one string, at most."""

MAX_VALUES = 10_000
"""Values that `json_value` converts, at most, nested ones included."""

MAX_SIZE = 1024 * 1024
"""Characters that `json_value` converts, at most, in all strings together."""

T = TypeVar("T")


def plain_text(value: object, what: str) -> str:
    """Return the value as a plain `str`: subclasses are accepted here, but the encoder supports none."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{what} is text, not {type(value).__name__}")


def whole_text(value: object, what: str) -> str:
    """Return the text with unpaired surrogates replaced, which no file and no pipe can hold."""
    text = plain_text(value, what)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def block(value: object, what: str) -> ContentBlock:
    """Return the value if it is a content block; raises TypeError if not."""
    if isinstance(value, BLOCKS):
        return value  # type: ignore[return-value]
    raise TypeError(f"{what} is text or a content block, not {type(value).__name__}")


def chosen(value: object, among: tuple[str, ...], what: str) -> str:
    """Return the value if it is among the words that the protocol knows; raises ValueError if not."""
    if value in among:
        return plain_text(value, what)
    raise ValueError(f"{what} is one of {', '.join(among)}, not {value!r}")


def pieces(text: str) -> Iterator[str]:
    """Split a text into parts of at most `LONGEST_PIECE` characters."""
    return (text[start : start + LONGEST_PIECE] for start in range(0, len(text), LONGEST_PIECE))


def prompt_text(blocks: Iterable[ContentBlock]) -> str:
    """Convert a prompt to plain text: text blocks, links and embedded text, joined by blank lines.

    Nothing is fetched. Images, audio and binary resources have no text and are left out.
    """
    return "\n\n".join(text for block in blocks if (text := _text_of(block)) is not None)


def _text_of(block: ContentBlock) -> str | None:
    match block:
        case TextContent(text=text):
            return text
        case ResourceLink(uri=uri, name=name, title=title):
            label = title if title is not UNSET and title else name or uri
            return _link_text(label, uri)
        case EmbeddedResource(resource=TextResourceContents(text=text, uri=uri, mime_type=mime_type)):
            return resource_text(uri, text, mime_type or None)
        case _:
            return None


def resource_text(uri: str, text: str, mime_type: str | None = None) -> str:
    """Return a file that goes to a model within other text: a line with its address, and the fenced text."""
    address = _one_line(uri)
    name = address.rstrip("/").rpartition("/")[2] or address
    return f"{_link_text(name, address)}\n{fenced(text, _one_line(mime_type or '').replace('`', ''))}"


def fenced(text: str, info: str = "") -> str:
    """Put a text as it is into a Markdown fence that is longer than any in it: it cannot pretend to end."""
    # Imported here: an agent's first answer should not wait for it.
    import re

    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{fence}{info}\n{text}{end}{fence}"


def _link_text(label: str, uri: str) -> str:
    return f"[Resource: {_one_line(label)}]({_one_line(uri)})"


def _one_line(text: str) -> str:
    """Replace what could begin another line, such as one that belongs to no attached file."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "\ufffd" for each in text)


def file_path(uri: str) -> str | None:
    """Return the path that a `file:` address means, without the lines that an editor may name behind it."""
    # Imported here: an agent's first answer should not wait for it.
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in path:
        return None
    return path.lstrip("/") if os.name == "nt" else path


def json_value(value: object) -> Any:
    """Convert any Python object to a bounded JSON value.

    Tools report what they were given and what they returned. That may be bytes, NaN, a cycle, somebody's
    class or a gigabyte; the editor gets something it can show, and the agent's turn never an exception.
    """
    return _Conversion().convert(value, 0)


class _Conversion:
    """Converts one value and everything nested in it, and counts what is left of the limits."""

    def __init__(self) -> None:
        self._values_left = MAX_VALUES
        self._size_left = MAX_SIZE
        self._above: set[int] = set()

    def convert(self, value: object, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0 or self._size_left <= 0:
            return "…"
        try:
            return self._plain(value, depth)
        except Exception as error:
            return self._text(f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>")

    def _plain(self, value: object, depth: int) -> Any:
        match value:
            case None | bool():
                return value
            case int():
                # Beyond 64 bits most JSON readers lose digits; a string keeps them.
                return int(value) if -(2**63) <= value < 2**63 else self._text(_int_text(value))
            case float():
                return float(value) if math.isfinite(value) else str(value)
            case str():
                return self._text(str(value))
            case bytes() | bytearray() | memoryview():
                return self._bytes(value)
        return self._container(value, depth)

    def _container(self, value: object, depth: int) -> Any:
        if id(value) in self._above:
            return "<cycle>"
        if depth >= MAX_DEPTH:
            return "<too deep>"
        self._above.add(id(value))
        try:
            return self._open(value, depth + 1)
        finally:
            self._above.discard(id(value))

    def _open(self, value: object, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value.items(), len(value), depth)
        if isinstance(value, Sequence | Set):
            return self._sequence(value, len(value), depth)
        if isinstance(value, msgspec.Struct):
            return self.convert(msgspec.structs.asdict(value), depth)
        if (fields := _dataclass_fields(value)) is not None:
            return self._mapping(((name, getattr(value, name)) for name in fields), len(fields), depth)
        if isinstance(value, os.PathLike):
            return self._text(str(value))
        if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
            return self.convert(dump(), depth)
        return self._text(repr(value))

    def _mapping(self, items: Iterable[tuple[Any, Any]], size: int, depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, item in items:
            if len(shown) >= MAX_ITEMS or self._values_left <= 0:
                shown["…"] = f"{size - len(shown)} more"
                break
            shown[self._text(key if isinstance(key, str) else str(key))] = self.convert(item, depth)
        return shown

    def _sequence(self, items: Iterable[Any], size: int, depth: int) -> list[Any]:
        shown: list[Any] = []
        for item in items:
            if len(shown) >= MAX_ITEMS or self._values_left <= 0:
                shown.append(f"… {size - len(shown)} more")
                break
            shown.append(self.convert(item, depth))
        return shown

    def _text(self, text: str) -> str:
        allowed = min(MAX_TEXT, max(self._size_left, 0))
        if len(text) > allowed:
            text = f"{masked_beginning(text, allowed)}… ({len(text)} characters)"
        self._size_left -= len(text)
        return text

    def _bytes(self, value: bytes | bytearray | memoryview) -> str:
        size = memoryview(value).nbytes
        if size > MAX_TEXT:
            return f"<{size} bytes>"
        return self._text("base64:" + base64.b64encode(value).decode())


def _int_text(value: int) -> str:
    # Python refuses to print integers of many thousand digits.
    return str(value) if value.bit_length() < 10_000 else f"<integer of {value.bit_length()} bits>"


def _dataclass_fields(value: object) -> list[str] | None:
    # Imported here: an agent's first answer should not wait for it.
    import dataclasses

    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    return [field.name for field in dataclasses.fields(value)]


def declared_text(value: object, what: str) -> str:
    """Return the value if it is text that a client can show and send back unchanged.

    The wire replaces unpaired surrogates, so an id with one would come back as another id.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} is text that is not blank, not {value!r:.100}")
    if not _is_encodable(value):
        raise ValueError(f"{what} has an unpaired surrogate, take it out: {value!r:.100}")
    return plain_text(value, what)


def declared_or_none(value: object, what: str) -> str | None:
    """Do the same as `declared_text` for optional text: None and an empty string are None."""
    return None if value is None or value == "" else declared_text(value, what)


def declared_list(
    values: Iterable[T], kinds: tuple[type[T], ...], identify: Callable[[T], str], what: str
) -> tuple[T, ...]:
    """Return the values as a tuple if all are of these kinds and no two have the same id."""
    kind = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{what} are a list of {kind}, not {values!r:.100}")
    declared = tuple(values)
    for value in declared:
        if not isinstance(value, kinds):
            raise ValueError(f"{what} are a list of {kind}; make {value!r:.100} one")
    _refuse_doubles((identify(value) for value in declared), what)
    return declared


def _refuse_doubles(ids: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            raise ValueError(f"two {what} are called {each!r:.100}: rename one of them or take it out")
        seen.add(each)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

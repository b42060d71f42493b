"""Redacts the secrets of a run in its log, so that a resumed run can fill them in again.

What a resumed run takes from its journal (results, decisions, inputs) must come back word for word, so each
secret there becomes `«secret:NAME»`, or `«secret:NAME:3»` for another of its spellings than the plain one.
What is only shown passes the masker, like everything that people see; text in pieces passes its streams. A
declared secret that is too short to be masked is a reference where it is a whole value, as inputs are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec

from coupler.redaction.masker import Masker, StreamMasker
from coupler.redaction.sources import (
    Secret,
    SecretRegion,
    declared_secrets,
    is_too_short,
    secrets_in_environment,
)
from coupler.workflow.errors import RunError
from coupler.workflow.journal.run_events import Decided, Happening, RunFinished, RunStarted, StepFinished

OPENING = "«secret:"
"""The beginning of a reference. In other texts it is written as a reference to nothing."""

NON_TEXT_FIELDS = frozenset(
    {"place", "parent", "id", "kind", "call", "run", "workflow", "status", "by", "stream", "what", "name"}
    | {"session_id", "currency", "failed_step", "step", "forgets"}
)
"""Fields that hold no free text: ids, and words of the language."""

DEEPEST = 200
"""Levels of lists and mappings that are gone through."""

TOO_DEEP = "[left out: nested too deeply to look for secrets]"

_REFERENCE = re.compile(OPENING + r"([^:«»]*)(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?»")

T = TypeVar("T")
H = TypeVar("H", bound=Happening)
TextChange = Callable[[str], str]


class UnknownSecretsError(RunError):
    """A journal refers to secrets that are not set any more."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        super().__init__(
            f"the run has kept references to secrets that are not set now: {', '.join(sorted(self.names))}: "
            "set them, as environment variables or as inputs of that name, and try again"
        )


class RunSecrets:
    """The secrets of one run."""

    def __init__(self, secrets: Iterable[Secret] = (), short: Mapping[str, str] | None = None) -> None:
        """`short` are declared secrets that are too short to be masked, by their names."""
        secrets = tuple(dict.fromkeys(secrets))
        self.masker = Masker(secrets)
        self._spellings: dict[str, list[str]] = {}
        self._references: dict[str, tuple[str, int]] = {}
        for secret in secrets:
            spellings = self._spellings.setdefault(secret.name, [])
            plain = secret.value.strip()
            # In an order that the next process finds again.
            for spelling in sorted(secret.spellings(), key=lambda spelling: (spelling != plain, spelling)):
                self._references.setdefault(spelling, (secret.name, len(spellings)))
                spellings.append(spelling)
        short = short or {}
        self._short = {value: name for name, value in short.items()}
        self._spellings.update({name: [value] for name, value in short.items()})
        self.too_short = (*short,)
        """The names of the declared secrets that are not masked, because they are too short."""

    @classmethod
    def of(cls, declared: Mapping[str, str], *environments: Mapping[str, str]) -> RunSecrets:
        """Collect what a workflow or the settings declare, and what environments hold besides."""
        found = [secret for each in environments for secret in secrets_in_environment(each)]
        short = {name: value for name, value in declared.items() if is_too_short(value)}
        return cls([*declared_secrets(declared), *found], short)

    def stream(self) -> StreamMasker | None:
        """Return a redactor for a text in pieces; None if there are no secrets."""
        return StreamMasker(self.masker) if self._references else None

    def kept(self, event: H) -> H:
        """Redact an event for the log: by references where a resumed run needs the values."""
        match event:
            case StepFinished() | Decided() | RunStarted():
                return self.redacted(event)
            case RunFinished():
                outputs = self.redacted(event.outputs)
                return _replaced(self.masked(event), outputs=outputs)
        return self.masked(event)

    def masked(self, value: T) -> T:
        """Redact a value, or all free texts of a struct, with marks for people."""
        return masked_texts(value, self.masker)

    def redacted(self, value: T) -> T:
        """Redact with references, which `revealed` fills in again."""
        return _walked(value, self._redact, DEEPEST)  # type: ignore[no-any-return]

    def revealed(self, value: T) -> T:
        """Fill in references with today's values; raises UnknownSecretsError with all that are missing."""
        missing: set[str] = set()
        revealed = _walked(value, lambda text: self._reveal(text, missing), DEEPEST)
        if missing:
            raise UnknownSecretsError(missing)
        return revealed  # type: ignore[no-any-return]

    def _redact(self, text: str) -> str:
        if (short := self._short.get(text)) is not None:
            return _reference(short, 0)
        finder = self.masker.finder
        if len(text) < finder.shortest or finder.search(text) is None:
            return _escaped(text)
        pieces: list[str] = []
        position = 0
        for region in finder.find(text).regions:
            pieces.append(_escaped(text[position : region.start]))
            pieces.extend(self._references_for(text, region))
            position = region.end
        pieces.append(_escaped(text[position:]))
        return "".join(pieces)

    def _references_for(self, text: str, region: SecretRegion) -> Iterator[str]:
        """Yield the references for a region: one for a secret, several in a row for secrets that overlap."""
        whole = self._references.get(text[region.start : region.end])
        if whole is not None:
            yield _reference(*whole)
            return
        found = [*self._spellings_in(text, region)]
        position = region.start
        while position < region.end:
            start, end, spelling = max(
                (each for each in found if each[0] <= position < each[1]), key=lambda each: each[1]
            )
            yield _reference(*self._references[spelling], position - start)
            position = end

    def _spellings_in(self, text: str, region: SecretRegion) -> Iterator[tuple[int, int, str]]:
        for spelling in self._references:
            start = text.find(spelling, region.start, region.end)
            while start >= 0:
                yield start, start + len(spelling), spelling
                start = text.find(spelling, start + 1, region.end)

    def _reveal(self, text: str, missing: set[str]) -> str:
        if OPENING not in text:
            return text

        def value_of(reference: re.Match[str]) -> str:
            if not reference[1]:
                return OPENING
            name, index = unquote(reference[1]), int(reference[2] or 0)
            spellings = self._spellings.get(name, [])
            if index >= len(spellings):
                missing.add(name)
                return ""
            return spellings[index][int(reference[3] or 0) :]

        return _REFERENCE.sub(value_of, text)


def masked_texts(value: T, masker: Masker) -> T:
    """Redact a value, or all free texts of a struct, for people."""
    return _walked(value, masker.mask, DEEPEST)  # type: ignore[no-any-return]


def _escaped(text: str) -> str:
    return text.replace(OPENING, f"{OPENING}»") if OPENING in text else text


def _reference(name: str, index: int, start: int = 0) -> str:
    numbers = f":{index}:{start}" if start else f":{index}" if index else ""
    return f"{OPENING}{quote(name, safe='')}{numbers}»"


def _walked(value: Any, change: TextChange, levels: int) -> Any:
    match value:
        case str():
            return change(value)
        case None | bool() | int() | float() | msgspec.UnsetType():
            return value
        case _ if levels == 0:
            return TOO_DEEP
        case msgspec.Raw():
            return _walked(_decoded(value), change, levels - 1)
        case msgspec.Struct():
            return _walked_struct(value, change, levels)
        case Mapping():
            return {
                _walked(key, change, levels - 1): _walked(item, change, levels - 1)
                for key, item in value.items()
            }
        case list() | tuple():
            return type(value)([_walked(item, change, levels - 1) for item in value])
    # Whatever else an agent's code may have put there is kept as something of the above.
    return _walked(msgspec.to_builtins(value), change, levels - 1)


def _decoded(raw: msgspec.Raw) -> Any:
    """Decode raw JSON, as in agents' tool calls; as text if it is invalid."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return bytes(raw).decode("utf-8", "replace")


def _walked_struct(struct: msgspec.Struct, change: TextChange, levels: int) -> msgspec.Struct:
    changes: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        if name not in NON_TEXT_FIELDS:
            value = getattr(struct, name)
            walked = _walked(value, change, levels - 1)
            if walked is not value:
                changes[name] = walked
    return _replaced(struct, **changes) if changes else struct


def _replaced(struct: T, **changes: Any) -> T:
    return msgspec.structs.replace(struct, **changes)  # type: ignore[type-var]

"""The optional packages, as the metadata of this installation names them, and which of them are there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from typing import Any, NamedTuple

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?\s*([^;]*?)\s*(?:;\s*(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_AT_LEAST = re.compile(r">=\s*([0-9][0-9.]*)")
_BELOW = re.compile(r"<\s*([0-9][0-9.]*)")

OWN = "coupler"


class Requirement(NamedTuple):
    """One package that an extra names."""

    package: str
    extras: tuple[str, ...]
    versions: str


@dataclass(frozen=True)
class Extra:
    """A part that is installed on demand, and what keeps it from being used."""

    name: str
    installed: dict[str, str]
    missing: tuple[str, ...]
    unusable: tuple[str, ...]
    """Sentences about packages of a version that cannot be used."""

    @property
    def is_usable(self) -> bool:
        return not self.missing and not self.unusable

    def as_object(self) -> dict[str, Any]:
        """For programs."""
        return {
            "is_usable": self.is_usable,
            "installed": self.installed,
            "missing": [*self.missing],
            "unusable": [*self.unusable],
        }


def extras() -> list[Extra]:
    """All of them, by name; none if Coupler runs without being installed."""
    by_extra = _requirements()
    return [_extra(name, _flat(name, by_extra)) for name in sorted(by_extra)]


def _requirements() -> dict[str, list[Requirement]]:
    try:
        lines = metadata.requires(OWN) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[Requirement]] = {}
    for line in lines:
        match = _REQUIREMENT.fullmatch(line.strip())
        extra = _EXTRA.search(match[4] or "") if match else None
        if match and extra:
            own = tuple(each.strip() for each in (match[2] or "").split(",") if each.strip())
            found.setdefault(extra[1], []).append(Requirement(match[1], own, match[3]))
    return found


def _flat(
    name: str, by_extra: dict[str, list[Requirement]], above: tuple[str, ...] = ()
) -> list[Requirement]:
    """An extra may stand for others."""
    found: list[Requirement] = []
    for each in by_extra.get(name, ()):
        if each.package != OWN:
            found.append(each)
            continue
        for other in each.extras:
            if other not in (name, *above):
                found += _flat(other, by_extra, (*above, name))
    return [*dict.fromkeys(found)]


def _extra(name: str, requirements: list[Requirement]) -> Extra:
    installed: dict[str, str] = {}
    missing, unusable = [], []
    for each in requirements:
        version = _version(each.package)
        if version is None:
            missing.append(each.package)
            continue
        installed[each.package] = version
        if not _fits(version, each.versions):
            unusable.append(f"{each.package} {version} is installed, and {each.versions} is needed")
    return Extra(name, installed, (*missing,), (*unusable,))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _fits(version: str, wanted: str) -> bool:
    """Whether a version is in the range; only what our own metadata says of ranges is understood."""
    has = _numbers(version)
    least, below = _AT_LEAST.search(wanted), _BELOW.search(wanted)
    return (least is None or has >= _numbers(least[1])) and (below is None or has < _numbers(below[1]))


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"[0-9.]*", version)
    return tuple(int(each) for each in (leading[0] if leading else "").split(".") if each)

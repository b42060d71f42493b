"""Writes the software bill of materials (CycloneDX) from the lock of the core and all extras.

    make sbom

It names what Coupler needs and what each extra adds, in the versions that a release was tested with, with
licences and with the hashes of all their files. It has no date and no random number: the same lock gives the
same bytes. `--check` writes nothing and fails if the file is out of date.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SBOM = ROOT / "coupler.cdx.json"
LOCK = ROOT / "requirements.txt"
NAMESPACE = uuid.UUID("6ff5cf0c-43a0-5d0b-9f6a-5b1de42b7d0c")
"""Makes the serial number of a bill from its content."""

LICENCES = {
    "distro": "Apache-2.0",
    "httpx2-jsfetch": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "jsonpointer": "BSD-3-Clause",
    "prompt-toolkit": "BSD-3-Clause",
    "pywin32": "PSF-2.0",
    "requests-toolbelt": "Apache-2.0",
    "tenacity": "Apache-2.0",
    "tiktoken": "MIT",
    "xllamacpp": "MIT",
}
"""SPDX licences of packages that do not say theirs in SPDX, or that development does not install."""

CLASSIFIERS = {"MIT License": "MIT", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0"}
"""SPDX licences by the classifiers that mean one licence."""


class Pinned(NamedTuple):
    """A package in a lock."""

    requirement: Requirement
    hashes: tuple[str, ...]
    """SHA-256 of each of its files."""
    wanted_by: frozenset[str]
    """The packages in the lock that depend on it."""

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        return str(self.requirement.specifier).removeprefix("==")


def read_lock(text: str) -> list[Pinned]:
    """Read the packages of a lock that `make lock` has written."""
    parts = re.split(r"^(?=[A-Za-z0-9])", re.sub(r"\A(#.*\n)+", "", text), flags=re.MULTILINE)
    return [_pinned(part) for part in parts if part.strip()]


def _pinned(part: str) -> Pinned:
    requirement = Requirement(part.splitlines()[0].removesuffix("\\").strip())
    hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", part))
    via = part.partition("# via")[2]
    wanted_by = re.findall(r"([\w.-]+)(?: \(pyproject\.toml\))?$", via, re.MULTILINE)
    return Pinned(requirement, hashes, frozenset(map(canonicalize_name, wanted_by)))


def licence(name: str) -> str:
    """Return the SPDX licence of a package."""
    if name in LICENCES:
        return LICENCES[name]
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        raise SystemExit(f"{name} is not installed here: add its licence to LICENCES in {__file__}") from None
    said = about.get("License-Expression") or about.get("License") or ""
    classified = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier", [])]
    known = [CLASSIFIERS[each] for each in classified if each in CLASSIFIERS]
    candidates = [said, *known] if len(known) == 1 else [said]
    for candidate in candidates:
        made = LicenseFactory().make_from_string(candidate)
        if getattr(made, "id", None) or getattr(made, "value", None):
            return candidate
    raise SystemExit(f"{name} does not say its licence in SPDX: add it to LICENCES in {__file__}")


def extras_of(project: Mapping[str, Any], lock: Sequence[Pinned]) -> dict[str, list[str]]:
    """Return the extras that bring each package; none for what the core needs."""
    needs = {each.name: {other.name for other in lock if each.name in other.wanted_by} for each in lock}
    core = _closure(_names(project["dependencies"], project), needs)
    brought: dict[str, list[str]] = {each.name: [] for each in lock}
    for extra, requirements in sorted(project["optional-dependencies"].items()):
        for name in _closure(_names(requirements, project), needs) - core:
            brought[name].append(extra)
    return brought


def _names(requirements: Iterable[str], project: Mapping[str, Any]) -> set[str]:
    """Return the packages that requirements name, with those of Coupler's own extras."""
    names = set()
    for requirement in map(Requirement, requirements):
        if requirement.name == project["name"]:
            for extra in requirement.extras:
                names |= _names(project["optional-dependencies"][extra], project)
        else:
            names.add(canonicalize_name(requirement.name))
    return names


def _closure(names: Iterable[str], needs: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [*names]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += needs[name]
    return reached


def component(pinned: Pinned, extras: Sequence[str]) -> Component:
    """Describe a package of the lock."""
    purl = PackageURL("pypi", name=pinned.name, version=pinned.version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=each) for each in pinned.hashes]
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(str(purl)),
        comment="the hashes of all files of this version",
        hashes=hashes,
    )
    marker = pinned.requirement.marker
    properties = [Property(name="coupler:extra", value=extra) for extra in extras]
    if marker is not None:
        properties.append(Property(name="coupler:marker", value=str(marker)))
    return Component(
        type=ComponentType.LIBRARY,
        name=pinned.name,
        version=pinned.version,
        bom_ref=str(purl),
        purl=purl,
        scope=ComponentScope.OPTIONAL if extras else ComponentScope.REQUIRED,
        licenses=[LicenseFactory().make_from_string(licence(pinned.name))],
        external_references=[files],
        properties=properties,
    )


def bill() -> str:
    """Return the bill of materials as JSON."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/coupler/__about__.py").read_text())
    assert version is not None
    lock = read_lock(LOCK.read_text())
    brought = extras_of(project, lock)
    purl = PackageURL("pypi", name=project["name"], version=version[1])
    root = Component(
        type=ComponentType.APPLICATION,
        name=project["name"],
        version=version[1],
        bom_ref=str(purl),
        purl=purl,
        description=project["description"],
        licenses=[LicenseFactory().make_from_string(project["license"])],
    )
    bom = Bom()
    bom.metadata.component = root
    components = {each.name: component(each, brought[each.name]) for each in lock}
    bom.components = components.values()
    bom.register_dependency(
        root, [components[each.name] for each in lock if project["name"] in each.wanted_by]
    )
    for name, made in components.items():
        bom.register_dependency(made, [components[each.name] for each in lock if name in each.wanted_by])
    return _reproducible(json.loads(JsonV1Dot6(bom).output_as_string()))


def _reproducible(document: dict[str, Any]) -> str:
    """Return the document without the time, and with a serial number that is made from the rest."""
    document.pop("serialNumber")
    document["metadata"].pop("timestamp")
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}"
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    made = bill()
    if "--check" not in arguments:
        SBOM.write_text(made)
    elif not SBOM.exists() or SBOM.read_text() != made:
        print(f"{SBOM.name} is out of date: run make sbom", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The locks, and their hashes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCKS = [*ROOT.glob("requirements*.txt"), *ROOT.glob("interop/locks/*/requirements.txt")]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def entries(lock: Path) -> list[str]:
    """Return the requirements of a lock, each with all its lines."""
    text = re.sub(r"^ *#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    return [part for part in re.split(r"^(?=\S)", text, flags=re.MULTILINE) if part.strip()]


def pinned(lock: Path) -> dict[str, Requirement]:
    found = [Requirement(entry.splitlines()[0].removesuffix("\\")) for entry in entries(lock)]
    return {canonicalize_name(each.name): each for each in found}


def group(name: str) -> list[Requirement]:
    """Return the requirements of a dependency group, with those of the groups that it includes."""
    found = []
    for each in PROJECT["dependency-groups"][name]:
        found += group(each["include-group"]) if isinstance(each, dict) else [Requirement(each)]
    return found


def extra(name: str) -> list[Requirement]:
    """Return the requirements of an extra, with those of the extras that it includes."""
    found = []
    for each in map(Requirement, PROJECT["project"]["optional-dependencies"][name]):
        if each.name == PROJECT["project"]["name"]:
            found += [inner for other in each.extras for inner in extra(other)]
        else:
            found.append(each)
    return found


def test_every_requirement_of_every_lock_is_one_version_with_hashes() -> None:
    assert {lock.name for lock in LOCKS} >= {"requirements-dev.txt", "requirements-lock.txt"}
    loose = [
        f"{lock.relative_to(ROOT)}: {entry.splitlines()[0]}"
        for lock in LOCKS
        for entry in entries(lock)
        if not re.fullmatch(r"[\w.-]+==\S+(?: ; [^\n]+?)?(?: \\\n +--hash=sha256:[0-9a-f]{64})+\n", entry)
    ]
    assert loose == []


def test_every_package_from_npm_has_its_integrity() -> None:
    places = [
        *ROOT.glob("interop/locks/*/package-lock.json"),
        *ROOT.glob("tests/interop/*/package-lock.json"),
    ]
    locks = [json.loads(place.read_text()) for place in places]
    loose = [
        f"{lock['name']}: {place}"
        for lock in locks
        for place, package in lock["packages"].items()
        if place and not package.get("integrity", "").startswith("sha512-")
    ]
    assert len(locks) == 5
    assert loose == []


def test_the_locks_cover_what_the_project_asks_for() -> None:
    core = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
    backend = [Requirement(each) for each in PROJECT["build-system"]["requires"]]
    wanted = {
        "requirements-dev.txt": [*core, *backend, *group("dev")],
        "requirements-demo.txt": [*core, *backend, *group("demo"), *extra("chat"), *extra("coder")],
        "requirements.txt": core
        + [each for name in PROJECT["project"]["optional-dependencies"] for each in extra(name)],
        "requirements-lock.txt": group("lock"),
    }
    missing = []
    for name, requirements in wanted.items():
        have = pinned(ROOT / name)
        for each in requirements:
            exact = have.get(canonicalize_name(each.name))
            version = str(exact.specifier).removeprefix("==") if exact else None
            if version is None or not each.specifier.contains(version, prereleases=True):
                missing.append(f"{name}: {each}, has {version}")
    assert missing == [], "run `make lock UPGRADE=`"


def test_the_demo_and_the_extras_are_pinned_to_what_is_tested() -> None:
    tested = pinned(ROOT / "requirements-dev.txt")
    others = {
        name: str(each.specifier)
        for lock in ("requirements-demo.txt", "requirements.txt")
        for name, each in pinned(ROOT / lock).items()
        if name not in tested or tested[name].specifier != each.specifier
    }
    assert [*others] == ["xllamacpp"]


def test_what_is_pinned_can_be_installed_with_every_python_that_is_promised() -> None:
    oldest = f"{PROJECT['project']['requires-python'].removeprefix('>=')}.0"
    here = [
        name
        for name, each in pinned(ROOT / "requirements-dev.txt").items()
        if each.marker is None or each.marker.evaluate()
    ]
    wanted = {name: metadata.metadata(name).get("Requires-Python") for name in here}

    assert len(wanted) > 50
    assert [name for name, python in wanted.items() if oldest not in SpecifierSet(python or "")] == []


def test_no_lock_names_a_registry() -> None:
    assert [lock.name for lock in LOCKS if "://" in lock.read_text()] == []


def test_pip_refuses_a_file_whose_hash_is_not_in_the_lock(tmp_path: Path) -> None:
    # Given a package that is not the one of the lock
    source = tmp_path / "click-8.5.1"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        f'[project]\nname = "click"\nversion = "{version_of("click")}"\n'
        "[tool.hatch.build.targets.wheel]\nbypass-selection = true\n"
    )
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=60)
    [line] = [entry for entry in entries(ROOT / "requirements-dev.txt") if entry.startswith("click==")]
    (tmp_path / "lock.txt").write_text(line)

    # When it is installed as `make` installs what is pinned
    install = ["install", "--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "site")]
    options = ["--isolated", "--require-hashes", "--requirement", str(tmp_path / "lock.txt")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *install, *options], capture_output=True, text=True, timeout=60
    )

    # Then nothing is installed
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "site").exists()


def version_of(name: str) -> str:
    return str(pinned(ROOT / "requirements-dev.txt")[name].specifier).removeprefix("==")


def test_make_installs_every_lock_with_its_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installs = [line for line in makefile.splitlines() if "$(PIP_INSTALL)" in line]

    assert re.search(r"^LOCKED := .*--require-hashes --requirement$", makefile, re.MULTILINE)
    assert len(installs) == 5
    assert [
        line for line in installs if "$(LOCKED) requirements" not in line and "--editable ." not in line
    ] == []
    assert [line for line in installs if "--no-deps" not in line and "$(LOCKED)" not in line] == []


def test_nothing_that_is_installed_lacks_what_it_needs() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout

"""The generated modules are what the generator makes of the stripped copies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schema.conformance import definitions

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "scripts" / "generate_schema.py"
PACKAGE = ROOT / "src" / "coupler" / "schema"


def generate(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the generator and of what it works on, free to be changed."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / GENERATOR.name).write_text(
        GENERATOR.read_text(encoding="utf-8"), encoding="utf-8"
    )
    package = tmp_path / "src" / "coupler" / "schema"
    package.mkdir(parents=True)
    for path in PACKAGE.iterdir():
        if path.is_file():
            (package / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_the_generated_files_are_up_to_date() -> None:
    outcome = generate(GENERATOR, "--check")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("name", ["v1.py", "unstable.py", "markers.py"])
def test_an_edited_file_is_noticed_and_restored(checkout: Path, name: str) -> None:
    edited = checkout / "src" / "coupler" / "schema" / name
    original = edited.read_text(encoding="utf-8")
    edited.write_text(original + "# edited\n", encoding="utf-8")

    outcome = generate(checkout / "scripts" / GENERATOR.name, "--check")
    assert outcome.returncode == 1
    assert name in outcome.stdout

    assert generate(checkout / "scripts" / GENERATOR.name).returncode == 0
    assert edited.read_text(encoding="utf-8") == original


def test_a_release_is_copied_without_its_prose(checkout: Path) -> None:
    release = checkout / "release"
    release.mkdir()
    for original, copy in {
        "schema.json": "acp-v1.json",
        "schema.unstable.json": "acp-v1-unstable.json",
    }.items():
        schema = json.loads((PACKAGE / copy).read_text(encoding="utf-8"))
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        for node in schema["$defs"].values():
            node["description"], node["x-docs-ignore"] = "Prose.", True
        (release / original).write_text(json.dumps(schema), encoding="utf-8")

    script = checkout / "scripts" / GENERATOR.name
    assert generate(script, "--check", "--from", str(release)).returncode == 0


@pytest.mark.parametrize("unstable", [False, True])
def test_the_copies_hold_structure_only(unstable: bool) -> None:
    for name, node in definitions(unstable=unstable).items():
        assert not prose_in(node), name


def prose_in(node: Any) -> bool:
    if isinstance(node, list):
        return any(prose_in(item) for item in node)
    if not isinstance(node, dict):
        return False
    own = node.keys() & {"description", "title", "$schema", "x-docs-ignore"}
    nested = [
        *node.get("properties", {}).values(),
        *(value for key, value in node.items() if key != "properties"),
    ]
    return bool(own) or any(prose_in(value) for value in nested)

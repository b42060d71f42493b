"""A project to judge actions in."""

from __future__ import annotations

from pathlib import Path

import pytest

from permission.parts import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    project = tmp_path.resolve() / "app"
    for directory in ("src/deep", "docs"):
        (project / directory).mkdir(parents=True)
    (project / "src" / "main.py").write_text("print()")
    return Bench(project)

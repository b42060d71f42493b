"""What the page about troubles shows is what somebody sees who has them, and what it advises helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.manual import DOCS, Reader, blocks_of

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]
UNSET = ("COUPLER_MODEL", "COUPLER_API_KEY", "COUPLER_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")


def test_every_symptom_shows_and_every_remedy_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    reader = Reader(tmp_path / "project")

    for block in blocks_of(DOCS / "troubleshooting.md"):
        reader.follow(block)

"""Stubs of the vendors' programs for every test here, and nothing of the user's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.stub import Stub, path_with


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Stub]:
    """Make a program of this name, which is found before any other."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", path_with(directory))
    return lambda name: Stub(directory, name)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory for sessions."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture(autouse=True)
def nothing_is_left_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Files for programs are gone when their turn is over."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "OPENCODE_CONFIG_CONTENT",
        "CLAUDECODE",
    ):
        monkeypatch.delenv(name, raising=False)
    yield
    assert not list(directory.glob("coupler-*"))

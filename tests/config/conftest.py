"""A user with a home, a project below it, and what each of them has set."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coupler.config import Config, load


class Place:
    """Directories of one test: the user's home with Coupler's own directory, and a project in it."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.own = self.home / "coupler"
        self.project = self.home / "work" / "app"
        self.own.mkdir(parents=True)
        (self.project / ".git").mkdir(parents=True)
        self.environ = {"HOME": str(self.home), "USERPROFILE": str(self.home), "COUPLER_HOME": str(self.own)}

    def user_says(self, text: str | bytes) -> Path:
        return write(self.own / "coupler.toml", text)

    def project_says(self, text: str | bytes, below: str = ".") -> Path:
        return write(self.project / below / "coupler.toml", text)

    def load(self, cwd: Path | None = None, **options: Any) -> Config:
        options.setdefault("environ", self.environ)
        return load(str(cwd or self.project), **options)


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


@pytest.fixture
def settle() -> Callable[[Path], None]:
    """Makes a file look as if nobody had touched it for a while, which is when it is remembered."""

    def make_old(path: Path) -> None:
        os.utime(path, (1_000_000_000, 1_000_000_000))

    return make_old

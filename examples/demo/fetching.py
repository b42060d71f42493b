"""A model for the demo: the one that is here, or one that is fetched while scripted agents carry the demo."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from coupler.coder.model.local_files import models_directory

NAME = "smollm2"
ENGINE = "xllamacpp"


def model_here() -> Path | None:
    """The model's file, if it can be run."""
    file = models_directory() / f"{NAME}.gguf"
    return file if file.is_file() and find_spec(ENGINE) is not None else None


class Fetching:
    """`coupler models install`, in the background."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "coupler", "models", "install", NAME, "--yes"],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
        )

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self._process.poll() is not None

    @property
    def problem(self) -> str | None:
        """Why there is no model, once it is over."""
        if self._process.returncode == 0:
            return None
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return lines[-1] if lines else "`coupler models install` did not say why."

    def end(self) -> None:
        """Leave nothing of it."""
        if not self.is_over:
            self._process.terminate()
            self._process.wait()
        self._said.close()

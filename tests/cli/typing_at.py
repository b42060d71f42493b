"""A program at a terminal of its own: what a person would see and type."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from types import TracebackType
from typing import Any, Self

import forked

PATIENCE = 60.0
CTRL_C = "\x03"


class Typist:
    """Starts a command with a pseudo-terminal as its controlling one; `stdout` may be a pipe instead."""

    def __init__(self, *command: str, piped_stdout: bool = False, **options: Any) -> None:
        self._own, theirs = pty.openpty()
        self.shown = ""
        self.process = forked.Popen(
            command,
            stdin=theirs,
            stdout=subprocess.PIPE if piped_stdout else theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=forked.take_terminal,
            **options,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self._own)

    def sees(self, text: str) -> str:
        """Wait until the text is on the screen; all that was shown until then."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert self._read(deadline), f"{text!r} did not come: {self.shown!r}"
        return self.shown

    def types(self, text: str) -> None:
        """Press keys."""
        os.write(self._own, text.encode())

    def ends(self) -> int:
        """Wait for the end, and see all that came until then; the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._own], [], [], max(deadline - time.monotonic(), 0))
        try:
            piece = os.read(self._own, 65536) if ready else b""
        except OSError:  # the last one has closed the terminal
            return False
        self.shown += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)

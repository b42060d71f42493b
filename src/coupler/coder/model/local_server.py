"""Runs a model in a process of its own: started when it is first needed, ended when nobody is left."""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import weakref
from typing import IO, TYPE_CHECKING

from coupler.coder.model.credentials import KEY_VARIABLE, PROVIDERS, ModelError
from coupler.coder.model.local_files import ENGINE
from coupler.runtime.guard import start_guarded
from coupler.runtime.process import RingBuffer

if TYPE_CHECKING:
    pass


log = logging.getLogger("coupler.coder")

PROGRAM = [sys.executable, "-P", "-m", "coupler.coder.model.local_program"]

LAST_WORDS_BYTES = 2048
"""Bytes of its stderr that are kept."""

LAST_LINES = 3
"""Lines of its stderr in an error."""

EXIT_TIMEOUT = 1.0
"""Seconds between the end of a process's connections and its own."""

_OUT_OF_MEMORY = ("SIGKILL", "SIGABRT", "SIGSEGV", "SIGBUS")
_WRONG_PROCESSOR = "SIGILL"


class LocalServer:
    """The server of a model in a file: started when it is first needed, and again if it has died."""

    def __init__(self, file: str, window: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._file = file
        self._window = window
        self._loading = threading.Lock()
        self._running: _ModelProcess | None = None
        self._ending: weakref.finalize[[_ModelProcess], LocalServer] | None = None

    def address(self) -> str:
        """Return where it listens; loads the model if needed. Blocks. Raises ModelError."""
        with self._loading:
            if self._running is None or self._running.has_ended:
                self.close()
                self._running = _ModelProcess(_order(self._file, self._window, self.token))
                # Also when Python ends, or nobody has this server any more.
                self._ending = weakref.finalize(self, _ModelProcess.end, self._running)
            try:
                return self._running.address()
            except _FailedError as error:
                self.close()
                raise ModelError(self._complaint(str(error))) from None

    def close(self) -> None:
        """Stop using the model's process."""
        if self._ending is not None:
            self._ending()
        self._running = None

    def death(self) -> ModelError | None:
        """Return the error for a broken connection; None if it is alive. Waits for an ending process."""
        running = self._running
        if running is None or not running.ends_within(EXIT_TIMEOUT):
            return None
        return ModelError(self._complaint(running.last_output()))

    def _complaint(self, said: str) -> str:
        return (
            f"{self._file} could not be run ({said}). Is it a model in GGUF that {ENGINE} knows, "
            f"and is there memory for it? A smaller context_window than {self._window:,} needs less."
        )


class _FailedError(Exception):
    """The model could not be loaded."""


class _ModelProcess:
    """One process of a model."""

    def __init__(self, order: str) -> None:
        # In a session of its own: Ctrl-C is for who uses it. While it loads it does not see that we are gone.
        self._process, self._guard = start_guarded(
            PROGRAM, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
        )
        assert self._process.stdin is not None and self._process.stderr is not None
        self._stderr = RingBuffer(LAST_WORDS_BYTES)
        self._reader = threading.Thread(
            target=_drain, args=(self._process.stderr, self._stderr), name="coupler-local-model", daemon=True
        )
        self._reader.start()
        self._address: str | None = None
        try:
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has died: told by who asks for its address

    @property
    def has_ended(self) -> bool:
        if self._process.poll() is None:
            return False
        self._guard.release()
        return True

    def ends_within(self, seconds: float) -> bool:
        """True if it has ended by then."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def address(self) -> str:
        """Wait until it is loaded."""
        if self._address is None:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                self._process.wait()
                raise _FailedError(self.last_output())
            answer = json.loads(line)
            if "error" in answer:
                self.ends_within(EXIT_TIMEOUT)  # why is on another pipe, and complete at its end
                raise _FailedError(_joined(answer["error"], self._last_lines()))
            self._address = f"{answer['address']}/v1"
        return self._address

    def last_output(self) -> str:
        """Return the exit code or signal, and the last lines of stderr."""
        return _joined(_exit_description(self._process.returncode), self._last_lines())

    def end(self) -> None:
        """Kill the process: it has nothing to save, and nothing is left of it."""
        self._process.kill()
        self._process.wait()
        self._guard.release()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:
                continue  # an order that it never read

    def _last_lines(self) -> str:
        if self.has_ended:
            self._reader.join()
        lines = [line.strip() for line in self._stderr.text().splitlines() if line.strip()]
        return "; ".join(lines[-LAST_LINES:])


def _order(file: str, window: int, token: str) -> str:
    return json.dumps({"file": file, "window": window, "token": token})


def _environment() -> dict[str, str]:
    """Return our environment without keys, and with waiting threads asleep: spinning ones take the CPU."""
    keys = {KEY_VARIABLE, *(variable for provider in PROVIDERS.values() for variable in provider.variables)}
    inherited = {name: value for name, value in os.environ.items() if name not in keys}
    return {"OMP_WAIT_POLICY": "passive", **inherited}


def _drain(stream: IO[bytes], ring: RingBuffer) -> None:
    for line in stream:
        ring.append(line)
        log.debug("local model: %s", line.decode(errors="replace").rstrip())


def _joined(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def _exit_description(code: int) -> str:
    """Return how a process ended, in words."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == _WRONG_PROCESSOR:
        return f"its process was ended by {name}: {ENGINE} wants a newer processor than this one"
    if name in _OUT_OF_MEMORY:
        return f"its process was ended by {name}, as when memory runs out"
    return f"its process was ended by {name}"

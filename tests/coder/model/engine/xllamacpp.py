"""Stands in for the wheel of this name: its server has no model, but listens and answers over HTTP.

What is in the model's file after its first facts says how it behaves: it waits for a file, or dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from labs.langchain.model_server import ModelServer, says

NOTES = "COUPLER_TEST_ENGINE_NOTES"
"""The variable that names the file where loads are noted."""


def CommonParams() -> Any:
    return SimpleNamespace(model=SimpleNamespace(path=""), n_parallel=-1, use_jinja=False, ui=True)


class Server:
    def __init__(self, parameters: Any) -> None:
        given = Path(parameters.model.path).read_bytes()
        print("chatter on stdout")
        if b"broken" in given:
            print("llama: tensor is missing", file=sys.stderr)
            raise RuntimeError("Failed to init server")
        if b"illegal" in given:
            os.kill(os.getpid(), signal.SIGILL)
        self._note(parameters)
        if b"slow" in given:
            _wait_with_the_lock(Path(parameters.model.path).with_name("go on"))
        replies = [_dies] if b"fragile" in given else [says("from ", "here")]
        self._http = ModelServer(replies)
        self._http.__enter__()
        self.listening_address = self._http.url.removesuffix("/v1")

    def _note(self, parameters: Any) -> None:
        told = {name: value for name, value in vars(parameters).items() if name != "model"}
        told |= {"path": parameters.model.path, "pid": os.getpid(), "environment": dict(os.environ)}
        with Path(os.environ[NOTES]).open("a") as notes:
            notes.write(json.dumps(told) + "\n")


def _wait_with_the_lock(sign: Path) -> None:
    """As the real one loads: no other thread of this process runs meanwhile."""
    sys.setswitchinterval(1000)
    sleep = ctypes.PyDLL(None).usleep
    while not os.path.exists(sign):  # noqa: PTH110
        sleep(5000)


def _dies(request: dict[str, Any]) -> Any:
    print("ggml: out of memory", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

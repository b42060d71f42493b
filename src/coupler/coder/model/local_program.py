"""Program that loads a model and serves it on loopback.

It is a process of its own because loading holds Python's lock from beginning to end, for seconds to minutes,
and because a model that does not fit ends the process. One line of JSON on stdin says what to load; one on
stdout says where it listens, or why it does not. It ends with its stdin, so with whoever started it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

ENGINE = "xllamacpp"

WARNINGS = 2
"""Verbosity of llama.cpp on stderr: warnings and errors only."""

KEPT_PROMPTS_MIB = 512
"""Mebibytes for the cached prompts of other conversations."""

_EASY_TO_LIVE_WITHOUT: dict[str, Any] = {
    "n_parallel": 1,  # the window is shared by those who are answered at the same time
    "use_jinja": True,  # without it models cannot call tools
    "cache_ram_mib": KEPT_PROMPTS_MIB,
    "ui": False,
    "endpoint_slots": False,
    "verbosity": WARNINGS,
}
"""Parameters that some versions of the engine do not have."""


def main() -> None:
    """Load the model, report its address, and serve until stdin is closed."""
    answers = _own_stdout()
    order = json.loads(sys.stdin.buffer.readline())
    try:
        server = loaded(order["file"], order["window"], order["token"])
        answer = {"address": server.listening_address}
    except Exception as error:
        # Whatever it is: who started this tells it to a person.
        answer = {"error": str(error) or type(error).__name__}
    os.write(answers, json.dumps(answer).encode() + b"\n")
    if "address" in answer:
        sys.stdin.buffer.read()
    # The engine's threads are not waited for: there is nothing to save.
    os._exit(0)


def loaded(file: str, window: int, token: str) -> Any:
    """Start the engine's server with this model; blocks until it is loaded."""
    engine = importlib.import_module(ENGINE)
    parameters = engine.CommonParams()
    parameters.model.path = file
    parameters.n_ctx = window
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [token]
    for name, value in _EASY_TO_LIVE_WITHOUT.items():
        if hasattr(parameters, name):
            setattr(parameters, name, value)
    return engine.Server(parameters)


def _own_stdout() -> int:
    """Return a descriptor for answers, and redirect all other writes to stdout to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()

"""Program that holds a model in memory, and answers for it on loopback.

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
"""How much llama.cpp writes to stderr: what is wrong, and not what it does."""

KEPT_PROMPTS_MIB = 512
"""Memory for what was read in other conversations than the present one."""

_EASY_TO_LIVE_WITHOUT: dict[str, Any] = {
    "n_parallel": 1,  # the window is shared by those who are answered at the same time
    "use_jinja": True,  # without it models cannot call tools
    "cache_ram_mib": KEPT_PROMPTS_MIB,
    "ui": False,
    "endpoint_slots": False,
    "verbosity": WARNINGS,
}
"""Parameters that versions of the engine may not have."""


def main() -> None:
    """Load the model, tell where it listens, and stay until nobody needs it any more."""
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
    """The engine's server with this model; blocks until it is loaded."""
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
    """A descriptor for answers; what else writes to stdout writes to stderr from now on."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()

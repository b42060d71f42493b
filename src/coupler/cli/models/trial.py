"""Whether an installed model answers: it is loaded and asked for a few words."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from coupler.coder.model.credentials import ModelError

QUESTION = "Say hello in one short sentence."
MOST_TOKENS = 24
PATIENCE = 300.0
"""Seconds for an answer, on a machine that is slow and busy."""

SMALL_WINDOW = 1024


class Heard(NamedTuple):
    """What it said, and after how many seconds."""

    text: str
    seconds: float


def heard(file: Path) -> Heard:
    """Load the model and ask it; raises ModelError."""
    from coupler.coder.model.local import LocalServer

    began = time.monotonic()
    server = LocalServer(str(file), SMALL_WINDOW)
    try:
        text = _asked(server.address(), server.token)
    except (urllib.error.URLError, OSError, ValueError, KeyError, IndexError) as error:
        raise server.death() or ModelError(f"It was loaded, but does not answer: {error}") from None
    finally:
        server.close()
    return Heard(" ".join(text.split()), time.monotonic() - began)


def _asked(address: str, token: str) -> str:
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": MOST_TOKENS}
    request = urllib.request.Request(
        f"{address}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    # What is on this machine is not asked through a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=PATIENCE) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])

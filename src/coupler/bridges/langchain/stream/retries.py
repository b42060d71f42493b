"""Retries that the clients of providers make by themselves, and tell nobody but their logs.

A user who waits half a minute for a busy provider should know why. What those clients log of it is told to
the client of the prompt that waits, and goes no further than before.
"""

from __future__ import annotations

import logging
import re

from coupler.bridges.langchain.current import current

CLIENTS = ("openai._base_client", "anthropic._base_client", "groq._base_client", "cerebras._base_client")
"""Loggers of clients that are made in the same way."""

_RETRY = re.compile(r"Retrying request.* in ([0-9.]+) seconds")


def listen_for_retries() -> None:
    """Hear of retries from now on; once is enough."""
    for name in CLIENTS:
        log = logging.getLogger(name)
        if not any(isinstance(each, _Ear) for each in log.filters):
            log.addFilter(_Ear(log.getEffectiveLevel()))
            if log.getEffectiveLevel() > logging.INFO:
                log.setLevel(logging.INFO)


class _Ear(logging.Filter):
    """Passes on what would have been logged anyway."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        prompt = current()
        if prompt is not None and prompt.when_retried is not None:
            retry = _RETRY.search(record.getMessage())
            if retry is not None:
                prompt.call_on_loop(prompt.when_retried, float(retry[1]))
        return record.levelno >= self._level

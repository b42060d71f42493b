"""The agent's own functions that are called when something happens to a session."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


async def call_hook(hook: Callable[..., Any], *arguments: Any) -> None:
    """Call one of them, whichever way it is written."""
    result = hook(*arguments)
    if inspect.isawaitable(result):
        await result

"""Imports the `mcp` package without holding up the event loop, if it is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import os.path
from functools import cache
from typing import TYPE_CHECKING

from coupler.runtime.extras import import_extra

if TYPE_CHECKING:
    from types import ModuleType

EXTRA = "mcp"

_client: ModuleType | None = None
_loopback: ModuleType | None = None


@cache
def is_installed() -> bool:
    """Return whether a usable version of the package is installed; it is not imported to find out."""
    try:
        spec = importlib.util.find_spec("mcp")
    except (ImportError, ValueError):
        return False
    places = spec.submodule_search_locations if spec is not None and spec.origin is not None else None
    return any(os.path.exists(os.path.join(place, "client", "client.py")) for place in places or ())


async def load_client() -> ModuleType:
    """Import the module that connects to servers.

    Raises MissingExtraError if the package is not installed.
    """
    global _client
    if _client is None:
        # It takes a second: in a thread, so that other sessions are served meanwhile.
        _client = await asyncio.to_thread(_import_client)
    return _client


def _import_client() -> ModuleType:
    import_extra("mcp.client.client", extra=EXTRA, feature="Using MCP servers")
    from coupler.mcp import connection

    return connection


async def load_loopback() -> ModuleType:
    """Import the module that serves our tools; raises MissingExtraError if the package is not installed."""
    global _loopback
    if _loopback is None:
        _loopback = await asyncio.to_thread(_import_loopback)
    return _loopback


def _import_loopback() -> ModuleType:
    import_extra("mcp.server.lowlevel.server", extra=EXTRA, feature="Offering tools to an agent")
    from coupler.mcp import loopback

    return loopback

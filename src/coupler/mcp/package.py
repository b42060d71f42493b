"""The `mcp` package: whether it is there, and loading it without holding up the event loop."""

from __future__ import annotations

import asyncio
import importlib.util
import os.path
from functools import cache
from typing import TYPE_CHECKING

from coupler.runtime.extras import need

if TYPE_CHECKING:
    from types import ModuleType

EXTRA = "mcp"

_connections: ModuleType | None = None
_reception: ModuleType | None = None


@cache
def is_installed() -> bool:
    """Whether the package is there in a version that can be used; it is not imported to find out."""
    try:
        spec = importlib.util.find_spec("mcp")
    except (ImportError, ValueError):
        return False
    places = spec.submodule_search_locations if spec is not None and spec.origin is not None else None
    return any(os.path.exists(os.path.join(place, "client", "client.py")) for place in places or ())


async def load_connections() -> ModuleType:
    """The module that connects; raises MissingExtraError if the package is not installed."""
    global _connections
    if _connections is None:
        # It takes a second: in a thread, so that other sessions are served meanwhile.
        _connections = await asyncio.to_thread(_import)
    return _connections


async def load_reception() -> ModuleType:
    """The module that serves tools of ours; raises MissingExtraError if the package is not installed."""
    global _reception
    if _reception is None:
        _reception = await asyncio.to_thread(_import_reception)
    return _reception


def _import_reception() -> ModuleType:
    need("mcp.server.lowlevel.server", extra=EXTRA, feature="Offering tools to an agent")
    from coupler.mcp import loopback

    return loopback


def _import() -> ModuleType:
    need("mcp.client.client", extra=EXTRA, feature="Using MCP servers")
    from coupler.mcp import connection

    return connection

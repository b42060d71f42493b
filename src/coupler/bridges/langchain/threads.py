"""Threads for the plain functions of graphs: enough of them that some may be left behind.

A cancel waits for no plain function, so its thread goes on until it is done. With asyncio's own few threads
a handful of those would keep all other tools from running.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

MOST_THREADS = 128


def have_enough_threads() -> None:
    """Give the running loop as many threads as that, unless somebody has chosen its threads already."""
    loop = asyncio.get_running_loop()
    if getattr(loop, "_default_executor", None) is None:
        loop.set_default_executor(ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="graph"))

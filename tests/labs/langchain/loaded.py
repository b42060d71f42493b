"""A process to be forked that has imported LangChain, and all that a served graph or coder needs of it."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import coupler
import forked

NEEDED = (
    "langchain.agents",
    "langchain.chat_models",
    "langchain_core.tracers.run_collector",
    "langchain_core.tracers.stdout",
    "langchain_openai",
    "openai.lib.streaming.chat",
    "openai.resources.chat.completions",
    "anyio._backends._asyncio",
    "anyio.streams.tls",
    "httpcore2",
    "truststore",
    "coupler.acp",
)


def loaded() -> forked.Loaded:
    """Start it, which takes seconds."""
    packages = [Path(coupler.__path__[0]) / name for name in ("langchain", "coder")]
    own = [
        module.name
        for package in packages
        for module in pkgutil.walk_packages([str(package)], f"coupler.{package.name}.")
    ]
    return forked.Loaded(*NEEDED, *own)

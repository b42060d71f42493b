"""Agents that are not ACP: vendors' command lines and model servers, each as a Coupler `Agent`.

A provider takes a turn and emits events like any other agent, so `connect(Claude())` drives it, `serve`
offers it to an editor, and cancel, persistence and masking are those of every agent. What differs from one
program to the next is a command line and a parser of its stream, one module each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.providers.catalogue import ENTRIES, provider
    from coupler.providers.catalogue import Provider as Entry
    from coupler.providers.claude import Claude
    from coupler.providers.codex import Codex
    from coupler.providers.copilot import Copilot
    from coupler.providers.gemini import Gemini
    from coupler.providers.openai import OpenAI
    from coupler.providers.opencode import OpenCode
    from coupler.providers.streams import ProviderError

__all__ = [
    "ENTRIES",
    "Claude",
    "Codex",
    "Copilot",
    "Entry",
    "Gemini",
    "OpenAI",
    "OpenCode",
    "ProviderError",
    "provider",
]

_HOMES = {
    "Claude": "claude:Claude",
    "Codex": "codex:Codex",
    "Copilot": "copilot:Copilot",
    "ENTRIES": "catalogue:ENTRIES",
    "Entry": "catalogue:Provider",
    "Gemini": "gemini:Gemini",
    "OpenAI": "openai:OpenAI",
    "OpenCode": "opencode:OpenCode",
    "ProviderError": "streams:ProviderError",
    "provider": "catalogue:provider",
}


def __getattr__(name: str) -> Any:
    # Loaded on use: who drives one program has no need of the others.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)

"""Runs agents that do not speak ACP: vendors' command lines and model servers, each as an `Agent`.

A provider takes a turn and emits events like any other agent: `connect(Claude())` drives it, `serve` offers
it to an editor, and cancellation, persistence and redaction work as for every agent. `command_line` runs a
program for each turn and shows what it says; `claude`, `codex`, `copilot`, `gemini` and `opencode` each add a
command line and a parser of the program's JSON lines, with the readers in `streams`. `openai` talks to a
model server over HTTP. `catalogue` knows all agents by name, with and without ACP: how each is started and
installed.
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

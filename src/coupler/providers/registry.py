"""The providers by name: what each one runs, how to get it, and its ACP form where there is one."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from coupler.agent.agent import Agent


class Entry(NamedTuple):
    """A provider, known without loading it."""

    name: str
    title: str
    program: str | None
    """The program that it runs; None if it asks a server over HTTP."""
    install: str
    """What to do if that is missing, as a sentence."""
    acp: str | None
    """The command line of the same agent's ACP form, which is the better way where it is installed."""
    home: str
    """The module and class, for `provider`."""


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "claude",
            "Claude Code",
            "claude",
            "Install it with `npm install -g @anthropic-ai/claude-code`, then log in with `claude`.",
            "npx -y @agentclientprotocol/claude-agent-acp",
            "claude:Claude",
        ),
        Entry(
            "codex",
            "Codex",
            "codex",
            "Install it with `npm install -g @openai/codex`, then log in with `codex login`.",
            "npx -y @agentclientprotocol/codex-acp",
            "codex:Codex",
        ),
        Entry(
            "gemini",
            "Gemini CLI",
            "gemini",
            "Install it with `npm install -g @google/gemini-cli`, then log in with `gemini`.",
            "gemini --acp",
            "gemini:Gemini",
        ),
        Entry(
            "copilot",
            "GitHub Copilot",
            "copilot",
            "Install it with `npm install -g @github/copilot`, then log in with `copilot login`.",
            "copilot --acp",
            "copilot:Copilot",
        ),
        Entry(
            "opencode",
            "OpenCode",
            "opencode",
            "Install it with `npm install -g opencode-ai`, then log in with `opencode auth login`.",
            "opencode acp",
            "opencode:OpenCode",
        ),
        Entry(
            "openai",
            "OpenAI-compatible server",
            None,
            "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own.",
            None,
            "openai:OpenAI",
        ),
    )
}
"""Every provider, by its name."""


def provider(name: str) -> type[Agent]:
    """The agent class of a provider: call it with what should differ from its defaults."""
    if name not in ENTRIES:
        near = get_close_matches(name, ENTRIES, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no provider {name!r}, only {', '.join(ENTRIES)}{meant}")
    module, _, kind = ENTRIES[name].home.partition(":")
    made: type[Agent] = getattr(import_module(f"coupler.providers.{module}"), kind)
    return made

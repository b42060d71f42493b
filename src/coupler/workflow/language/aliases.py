"""Words that people who know other workflow languages write, and the keys that have that meaning here."""

from __future__ import annotations

from collections.abc import Collection

_MEANINGS: dict[str, tuple[str, ...]] = {
    "args": ("inputs",),
    "arguments": ("inputs",),
    "catch": ("on_error",),
    "cmd": ("run",),
    "command": ("run",),
    "concurrency": ("max_concurrent",),
    "dir": ("cwd",),
    "directory": ("cwd",),
    "environment": ("env",),
    "exec": ("run",),
    "file": ("run_file", "prompt_file"),
    "finally": ("hooks",),
    "for": ("for_each",),
    "foreach": ("for_each",),
    "jobs": ("steps",),
    "loop": ("for_each", "while"),
    "message": ("prompt",),
    "name": ("id", "description"),
    "on_failure": ("on_error",),
    "options": ("enum",),
    "parameters": ("inputs",),
    "params": ("inputs",),
    "question": ("ask", "approve"),
    "repeat": ("while",),
    "retries": ("retry",),
    "script": ("run", "run_file"),
    "sh": ("run",),
    "shell": ("run",),
    "stages": ("steps",),
    "tasks": ("steps",),
    "title": ("description",),
    "until": ("while",),
    "uses": ("call",),
    "values": ("enum",),
    "vars": ("set", "env"),
    "when": ("if",),
    "with": ("inputs",),
    "workflow": ("call",),
    "working_directory": ("cwd",),
}


def meant_by(word: str, keys: Collection[str]) -> str | None:
    """Which of some keys a word means elsewhere, as they stand in a sentence; None if it is none of them."""
    meanings = _MEANINGS.get(word[:60].casefold().replace("-", "_"), ())
    return " or ".join(f"`{key}`" for key in meanings if key in keys) or None

"""Names of middleware: LangChain wants each in an agent to have its own."""

from __future__ import annotations

from collections import Counter

_made: Counter[str] = Counter()


def own_name(name: str) -> str:
    """The name, with a number from the second use on.

    Only for middleware without nodes of its own: those are named in checkpoints, which outlive the process.
    """
    _made[name] += 1
    return name if _made[name] == 1 else f"{name} {_made[name]}"

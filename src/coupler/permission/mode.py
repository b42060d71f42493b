"""The rules of a mode: what holds while a session is in it, besides the rules that somebody has written.

A mode denies as any rule does. What it allows comes last: an ask or deny rule, and what the user has rejected
for good, go before it, and what is in doubt, sensitive or outside of the session's directories is not meant.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from coupler.permission.rule import Rule


class ModeRules(Struct, frozen=True):
    """Of one mode. Made by `parse`, which refuses whatever has no clear meaning."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    """What of it is asked about all the same."""
    deny: tuple[Rule, ...] = ()

    @classmethod
    def parse(
        cls, mode: str, *, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()
    ) -> ModeRules:
        """Rules as in `coupler.toml`; raises ValueError that names the one that is wrong."""
        origin = f"the mode {mode!r}"
        return cls(
            tuple(Rule.parse("allow", text, origin) for text in allow),
            tuple(Rule.parse("ask", text, origin) for text in ask),
            tuple(Rule.parse("deny", text, origin) for text in deny),
        )


NO_MODE = ModeRules()
"""What holds in a session without modes."""

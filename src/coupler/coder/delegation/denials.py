"""What a profile denies its agent, besides what holds for the session: rules as in `permissions.deny`.

They can only take away. What they do not deny is judged by the session's engine, as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from coupler.permission.action import Action
from coupler.permission.engine import Choices, Permissions
from coupler.permission.rules import Rule
from coupler.runtime.threads import in_thread


class Denials:
    """Of one profile; raises ValueError for a rule that is wrong."""

    def __init__(self, agent: str, rules: Sequence[str], project: str) -> None:
        origin = f"the profile {agent}"
        self._rules = [Rule.parse("deny", text, origin) for text in rules]
        self._permissions = Permissions(self._rules, Choices(project), project)

    async def reason(self, action: Action) -> str | None:
        """Why it may not be done; None if no rule is against it, or might be."""
        if not self._rules:
            return None
        verdict = await in_thread(lambda: self._permissions.judge(action))
        if verdict.decision == "deny":
            return verdict.reason
        # What may turn out to be denied, but is not for certain, nobody is there to be asked about.
        return verdict.reason if verdict.is_ruled or verdict.is_doubtful else None

"""Judges an agent's permission requests by rules as in `coupler.toml`, and says what would allow them.

Judging follows symbolic links and may wait for a disk: call it in a thread.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coupler.client.actions import action_of
from coupler.permission.action import Action
from coupler.permission.engine import Choices
from coupler.permission.engine import Permissions as PermissionEngine
from coupler.permission.engine import Verdict as EngineVerdict
from coupler.permission.rules import Rule
from coupler.schema.v1 import Diff

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest


READING_KINDS = frozenset({"read", "search", "think"})


class Rules:
    """The rules of a policy, and others that were parsed already. Raises ValueError for a wrong one."""

    def __init__(
        self, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str], others: Sequence[Rule] = ()
    ) -> None:
        written = {"allow": allow, "ask": ask, "deny": deny}
        for effect, texts in written.items():
            if isinstance(texts, str):
                raise TypeError(f"{effect}= is a list of rules: write {effect}=[{texts!r}]")
        self._rules = [
            Rule.parse(effect, text, f"the policy's {effect} rules")
            for effect, texts in written.items()
            for text in texts
        ] + [*others]

    def judge(self, request: PermissionRequest, choices: Choices | None = None) -> EngineVerdict:
        """Judge a request by the rules, and where they say nothing by the remembered choices."""
        return _judged(self._rules, action_of(request), request, choices)


def never(request: PermissionRequest) -> str | None:
    """Say why a call may not be allowed by anyone: no rule, policy, function or answer. None if it may."""
    verdict = _judged([], action_of(request), request)
    return verdict.reason if verdict.is_final else None


def is_reading(request: PermissionRequest) -> bool:
    """Return whether a call claims only to read ordinary files in the session's directories."""
    if request.tool_call.kind not in READING_KINDS:
        return False
    action = action_of(request)
    if action.command is not None or action.urls or action.env:
        return False
    if any(isinstance(item, Diff) for item in request.tool_call.content):
        return False
    looked_at = Action(kind="read", paths=action.paths, roots=action.roots)
    return not action.paths or _judged([], looked_at, request).decision == "allow"


def is_handed_over(request: PermissionRequest) -> bool:
    """Return whether a call is one of a tool that the user gave to the agent, and nothing else."""
    action = action_of(request)
    return action.is_handed_over and _judged([], action, request).decision == "allow"


def remedy(request: PermissionRequest) -> str:
    """Describe what would allow the call, for people who use Python or the command line."""
    if (reason := never(request)) is not None:
        return reason
    if is_reading(request):
        return "allow it with the policy allow-reads (--permissions allow-reads)"
    everything = "everything with the policy allow-all (--permissions allow-all)"
    texts = _rules_for(request)
    if not texts:
        return f"allow {everything}"
    named = " and ".join(f"`{text}`" for text in texts)
    flags = " ".join(f"--allow {shlex.quote(text)}" for text in texts)
    word = "rule" if len(texts) == 1 else "rules"
    return f"allow it with the {word} {named} ({flags}), or {everything}"


def _rules_for(request: PermissionRequest) -> list[str]:
    """Return the rules that would allow the call, if there are some that say exactly what they allow."""
    verdict = _judged([], action_of(request), request)
    scopes = (scope for offer in verdict.offers if offer.kind == "allow_always" for scope in offer.scopes)
    return [scope.rule_text for scope in scopes]


def _judged(
    rules: Sequence[Rule], action: Action, request: PermissionRequest, choices: Choices | None = None
) -> EngineVerdict:
    project = request.cwd or "/"
    return PermissionEngine(rules, choices or Choices(project), project).judge(action)

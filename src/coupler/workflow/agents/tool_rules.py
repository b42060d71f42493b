"""What the agent of a step may do: permission rules, and who is asked about the rest.

Without rules an agent may look at ordinary files of its directory, and nothing else. What a rule wants to be
asked about, the front is asked; what no rule decides is denied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from coupler.client.action import action_of
from coupler.client.rules import Rules, is_reading
from coupler.permission.choices import Choices
from coupler.permission.engine import Permissions
from coupler.workflow.errors import StepError
from coupler.workflow.language.definition import Gate, Tools

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest
    from coupler.config import Config

Judgement = Literal["allow", "deny", "ask", "undecided"]


class ToolRules:
    """Of one step. They are judged in threads, because links have to be followed."""

    def __init__(self, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str]) -> None:
        self.is_any = bool(allow or ask or deny)
        self._has_denials = bool(ask or deny)
        try:
            self._rules = Rules(allow, ask, deny)
        except (TypeError, ValueError) as error:
            raise StepError("template", f"a rule under `tools` or `approve` is wrong: {error}") from None

    @classmethod
    def of(cls, tools: Tools | None, gate: Gate | None, config: Config | None) -> ToolRules:
        """A step's rules. What the user or the project wants to be denied or asked holds here as well."""
        from coupler.config import keys

        tools = tools or Tools()
        asked = [*(gate.tools if gate is not None else ())]
        denied = [*tools.deny]
        if config is not None:
            asked += [entry.text for entry in config[keys.ASK]]
            denied += [entry.text for entry in config[keys.DENY]]
        return cls(tools.allow, asked, denied)

    def judge(self, request: PermissionRequest) -> Judgement:
        """What the rules say of a call."""
        verdict = self._rules.judge(request)
        if verdict.decision != "ask":
            return verdict.decision
        if verdict.is_ruled:
            return "ask"
        # A look at nothing in particular is no harm, unless it might be what a rule is against.
        return "allow" if not self._has_denials and is_reading(request) else "undecided"

    def remedy(self, request: PermissionRequest) -> str:
        """What would have allowed a call, in the words of the language."""
        verdict = self._rules.judge(request)
        if verdict.decision == "deny":
            return f"{verdict.reason}: take that rule out to allow it"
        if verdict.decision == "ask" and verdict.is_ruled:
            return "nobody has allowed it"
        texts = _rules_that_allow(request)
        if not texts:
            return "allow it with a rule under `tools.allow` of the step"
        return f"to allow it, write under `tools.allow` of the step: {', '.join(texts)}"


def _rules_that_allow(request: PermissionRequest) -> list[str]:
    """The rules that would allow a call, if there are such that say exactly what they allow."""
    project = request.cwd or "/"
    verdict = Permissions([], Choices(project), project).judge(action_of(request))
    scopes = (scope for offer in verdict.offers if offer.kind == "allow_always" for scope in offer.scopes)
    return [scope.rule_text for scope in scopes]

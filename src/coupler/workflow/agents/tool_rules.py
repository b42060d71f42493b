"""What the agent of a step may do: permission rules, and who is asked about the rest.

Without rules an agent may look at ordinary files of its directory, and nothing else is decided. What a rule
wants to be asked about, the front is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from coupler.agent.permission import rules_of
from coupler.client.rules import Rules, action_of, is_reading
from coupler.permission.engine import Choices, Permissions, Verdict
from coupler.providers.command_line import READ_ONLY
from coupler.workflow.errors import StepError
from coupler.workflow.language.definition import Gate, Tools

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest
    from coupler.config import Config
    from coupler.permission.rules import Rule

CHANGING = frozenset({"edit", "delete", "move", "execute"})
"""The kinds of rules that an agent breaks by nothing that only reads."""

Judgement = Literal["allow", "deny", "ask", "undecided"]


class ToolRules:
    """Of one step. They are judged in threads, because links have to be followed."""

    def __init__(
        self, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str], of_config: Sequence[Rule] = ()
    ) -> None:
        """`of_config` are those of the user and the project, which mean their own directories."""
        self.has_own = bool(allow or ask or deny)
        self._of_config = of_config
        self._has_denials = bool(ask or deny or of_config)
        try:
            self._rules = Rules(allow, ask, deny, of_config)
        except (TypeError, ValueError) as error:
            raise StepError("template", f"a rule under `tools` or `approve` is wrong: {error}") from None
        self._of_user = Rules((), (), (), [rule for rule in of_config if rule.effect == "ask"])

    @classmethod
    def of(cls, tools: Tools | None, gate: Gate | None, config: Config | None) -> ToolRules:
        """A step's rules. What the user or the project wants to be denied or asked holds here as well."""
        tools = tools or Tools()
        asked = gate.tools if gate is not None else ()
        return cls(tools.allow, asked, tools.deny, _against(config) if config is not None else ())

    def could_hold_without_asking(self, mode: str | None) -> bool:
        """Whether an agent that asks nobody cannot do in this mode what the user or project is against."""
        return not self._of_config or (
            mode == READ_ONLY and all(rule.subject in CHANGING for rule in self._of_config)
        )

    def judge(self, request: PermissionRequest) -> Judgement:
        """What the rules say of a call."""
        verdict = self._rules.judge(request)
        if verdict.decision != "ask":
            return verdict.decision
        if verdict.is_ruled:
            return "ask"
        # A look at nothing in particular is no harm, unless it might be what a rule is against.
        return "allow" if not self._has_denials and is_reading(request) else "undecided"

    def judge_by_choice(self, request: PermissionRequest, choices: Choices) -> Verdict:
        """What was chosen for good about a call that no rule decides, and what else to offer."""
        return self._rules.judge(request, choices)

    def is_of_user(self, request: PermissionRequest) -> bool:
        """Whether the user or the project wants to be asked about a call, and not the workflow alone."""
        verdict = self._of_user.judge(request)
        return verdict.decision == "ask" and verdict.is_ruled

    def remedy(self, request: PermissionRequest) -> str:
        """What would have allowed a call, in the words of the language."""
        verdict = self._rules.judge(request)
        if verdict.is_final:
            return verdict.reason
        if verdict.decision == "deny":
            return f"{verdict.reason}: take that rule out to allow it"
        if verdict.decision == "ask" and verdict.is_ruled:
            return "nobody has allowed it"
        texts = _rules_that_allow(request)
        if not texts:
            return "allow it with a rule under `tools.allow` of the step"
        return f"to allow it, write under `tools.allow` of the step: {', '.join(texts)}"


def _against(config: Config) -> list[Rule]:
    try:
        return [rule for rule in rules_of(config) if rule.effect != "allow"]
    except ValueError as error:
        raise StepError("template", str(error)) from None


def _rules_that_allow(request: PermissionRequest) -> list[str]:
    """The rules that would allow a call, if there are such that say exactly what they allow."""
    project = request.cwd or "/"
    verdict = Permissions([], Choices(project), project).judge(action_of(request))
    scopes = (scope for offer in verdict.offers if offer.kind == "allow_always" for scope in offer.scopes)
    return [scope.rule_text for scope in scopes]

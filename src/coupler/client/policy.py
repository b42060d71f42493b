"""Answers an agent's permission requests by a policy: rules, a function, or both."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from msgspec import UNSET, Struct
from msgspec.structs import replace

from coupler.client.errors import NOT_PERMITTED, AgentError
from coupler.events import ToolCall
from coupler.mcp.tool_names import NOTHING_GIVEN, GivenTools
from coupler.permission.action import ALLOWING, GRANTED, option_for
from coupler.schema.v1 import (
    CancelledPermissionOutcome,
    PermissionOption,
    RequestPermissionOutcome,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
)
from coupler.wire.messages import RpcError
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.permission.decision import Permission, Permissions, Reads
    from coupler.permission.decision import Verdict as Ruling
    from coupler.permission.rules import Rule


class PermissionRequest(Struct, frozen=True):
    """A tool call that an agent wants to make, and the options that it offers."""

    tool_call: ToolCall
    options: tuple[PermissionOption, ...]
    cwd: str = ""
    roots: tuple[str, ...] = ()
    """The session's directories: its own, and the additional ones."""
    rules: tuple[Rule, ...] = ()
    """Rules that hold for the agent, whatever the policy says."""
    given: GivenTools = NOTHING_GIVEN
    """The MCP servers and Python functions that the session was given."""
    announced: ToolCall | None = None
    """The call as the agent showed it before it asked, if it did."""
    meta: Mapping[str, Any] | None = None
    """The `_meta` of the request."""

    @classmethod
    def of(
        cls, session: RemoteSession, call: ToolCall, options: Sequence[PermissionOption] = ()
    ) -> PermissionRequest:
        """Return the request about a call in a session."""
        announced = session.tool_calls.get(call.id)
        kinds: dict[str, set[str]] = {}
        for option in options:
            kinds.setdefault(option.option_id, set()).add(option.kind)
        return cls(
            call,
            # An id that stands for a yes and for a no says neither.
            tuple(option for option in options if len(kinds[option.option_id]) == 1),
            session.cwd,
            session.roots,
            session.rules,
            session.given_tools,
            announced,
        )

    def option(self, id: str | None) -> PermissionOption | None:
        """Return the offered option with this id."""
        return next((option for option in self.options if option.option_id == id), None)


NOT_ALLOWED = "not permitted"


class Decision(Struct, frozen=True):
    """The decision about a permission request: the chosen option, None if the request was cancelled."""

    tool_call: ToolCall
    option: PermissionOption | None
    remedy: str | None = None
    """The rule, policy or flag that would allow it, if a policy rejected it."""
    meta: Mapping[str, Any] | None = None
    """The `_meta` of the answer."""
    outcome_meta: Mapping[str, Any] | None = None
    """The `_meta` of the outcome in the answer."""
    reason: str = NOT_ALLOWED
    """The reason for which it is not permitted, as the call shows it if the agent says no more of it."""

    @property
    def is_allowed(self) -> bool:
        """True if the agent may do it."""
        return self.option is not None and self.option.kind in ALLOWING

    @property
    def outcome(self) -> RequestPermissionOutcome:
        """The outcome to answer the request with."""
        if self.option is None:
            return CancelledPermissionOutcome()
        return SelectedPermissionOutcome(self.option.option_id, meta=self.outcome_meta or UNSET)


Verdict: TypeAlias = bool | str | None
"""True to allow, False to reject, the id of an option, or None to cancel the request."""

Decide: TypeAlias = Callable[[PermissionRequest], Verdict | Awaitable[Verdict]]

PolicyName: TypeAlias = Literal["allow-reads", "allow-all", "deny-all", "ask"]

YES_OR_NO = (
    PermissionOption("allow_once", "Allow once", "allow_once"),
    PermissionOption("reject_once", "Reject once", "reject_once"),
)
"""The options about something that an agent has not asked about."""

ALWAYS_ALONE = (
    "the agent offers no yes for once, and a policy chooses no `always`: give a function that returns the id "
    "of the option"
)


class Policy:
    """Decides about permission requests. Options are chosen by their kind: once, and never always.

    A function can choose an "always" by the id of that option. What would wreck a machine or a home is
    rejected whoever decides, and tools that you gave to the agent are allowed.
    """

    _rules: tuple[Rule, ...] = ()
    _reads: Reads = "none"
    _unruled: Literal["ask", "allow"] = "ask"
    _denies_all = False

    def __init__(self, decide: Decide | None, *, name: PolicyName | None = None) -> None:
        """`decide` is asked about what no rule decides; None rejects that."""
        self._decide = decide
        self.name = name
        """The policy's name, for agents that only know modes; rules and functions have none."""

    @classmethod
    def named(cls, name: PolicyName | str, callback: Decide | None = None) -> Policy:
        """Return a policy by its name; `ask` asks the callback."""
        match name:
            case "allow-reads":
                return cls.allow_reads()
            case "allow-all":
                return cls.allow_all()
            case "deny-all":
                return cls.deny_all()
            case "ask":
                return cls.ask(callback)
        raise ValueError(f"there is no policy {name!r}: it is one of {', '.join(get_args(PolicyName))}")

    @classmethod
    def allow_all(cls, *, but: Sequence[str] = ()) -> Policy:
        """Allow everything but what would wreck a machine or a home, which nobody can allow.

        What may be such a thing is rejected too, because nobody can be asked. `but` are rules as in
        `permissions.deny`. With such rules, what they cannot judge is rejected as well: it might be what they
        mean.
        """
        policy = cls(None, name=None if but else "allow-all")
        policy._rules = _checked(deny=but)
        policy._unruled = "allow"
        return policy

    @classmethod
    def deny_all(cls) -> Policy:
        """Reject every request but those for tools that you gave to the agent."""
        policy = cls(None, name="deny-all")
        policy._denies_all = True
        return policy

    @classmethod
    def allow_reads(cls) -> Policy:
        """Allow reading the session's files, except those that hold secrets; reject the rest."""
        policy = cls(None, name="allow-reads")
        policy._reads = "claimed"
        return policy

    @classmethod
    def ask(cls, callback: Decide | None = None) -> Policy:
        """Let a function decide; tools that the user gave to the agent are not asked about.

        Without a function everything else is rejected.
        """
        return cls.deny_all() if callback is None else cls(callback, name="ask")

    @classmethod
    def patterns(
        cls,
        *,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        callback: Decide | None = None,
    ) -> Policy:
        """Decide by rules as in `coupler.toml`.

        What they leave open is decided by the callback, or rejected.
        """
        policy = cls(callback)
        policy._rules = _checked(allow=allow, ask=ask, deny=deny)
        policy._reads = "ordinary"
        return policy

    def with_rules(self, rules: Iterable[Rule]) -> Policy:
        """Return this policy with further rules; one that denies everything takes none that allow."""
        changed = copy(self)
        changed._rules = (*self._rules, *self._accepted(rules))
        if any(rule.effect != "allow" for rule in changed._rules):
            changed.name = None  # no mode of an agent that asks for nothing stands for it
        return changed

    def _accepted(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        return tuple(rule for rule in rules if rule.effect != "allow" or not self._denies_all)

    @classmethod
    def of(cls, value: Policy | Decide | PolicyName | None) -> Policy:
        """Return a policy for a policy, its name or a function that decides; None allows reads."""
        if value is None:
            return cls.allow_reads()
        if isinstance(value, Policy):
            return value
        if isinstance(value, str):
            return cls.named(value)
        if not callable(value):
            raise TypeError(
                f"permissions are a Policy, its name or a function that decides; this is {value!r}"
            )
        return cls(value)

    async def decide(self, request: PermissionRequest) -> Decision:
        """Decide about a request, and say what would allow it if a policy rejects it."""
        # Imported on use: deciding needs a parser and more, once an agent asks.
        from coupler.client.actions import action_of
        from coupler.permission.decision import nobody

        function = None if self._decide is None else _Function(self._decide, request)
        permissions = self._permissions(request)
        also = self._accepted(request.rules)
        permission = await permissions.decide(
            action_of(request),
            nobody if function is None else function.asked,
            unruled=self._unruled,
            also=also,
        )
        is_functions = function is not None and function.was_asked
        verdict: Verdict = function.verdict if function is not None and is_functions else permission.is_given
        decision = Decision(request.tool_call, _option(request, verdict))
        if decision.is_allowed or is_functions:
            return decision
        return replace(decision, remedy=self._remedy(permission, bool(self._rules or also)))

    @property
    def has_rules(self) -> bool:
        """True if it has rules, which also hold for what an agent does without asking."""
        return bool(self._rules)

    async def require(self, session: RemoteSession, params: Any) -> None:
        """Raise RpcError unless an agent may do this, which it does through us without having asked."""
        from coupler.client.actions import action_of, unasked_call
        from coupler.permission.decision import Permission, nobody

        call = unasked_call(params)
        if call is None:
            return
        request = PermissionRequest.of(session, call, YES_OR_NO)
        action = action_of(request)
        function = None if self._decide is None else _Function(self._decide, request)

        async def ask(verdict: Ruling) -> Permission:
            if session.grants.include(action):
                return Permission(True, GRANTED)
            permission = await (nobody(verdict) if function is None else function.asked(verdict))
            if permission.is_given:
                session.grants.add(action)
            return permission

        permission = await self._permissions(request).decide(
            action, ask, unruled="allow", also=self._accepted(request.rules)
        )
        if not permission.is_given:
            raise RpcError.because(NOT_PERMITTED, permission.reason)

    def _permissions(self, request: PermissionRequest) -> Permissions:
        from coupler.permission.decision import Permissions
        from coupler.permission.offers import Choices

        project = request.cwd or "/"
        return Permissions(self._rules, Choices(project), project, reads=self._reads)

    def _remedy(self, permission: Permission, has_rules: bool) -> str:
        """Describe what would allow the call, for people who use Python or the command line."""
        verdict = permission.verdict
        if permission.is_given or verdict is None:
            return ALWAYS_ALONE
        if verdict.decision == "deny" or verdict.is_ruled:
            return verdict.remedy  # a rule that asks, or may deny, comes before all that allow
        if verdict.is_vital:
            return f"{verdict.reason}: answer it yourself with --permissions ask, or do it by hand"
        if self._unruled == "allow" and has_rules:
            return f"{verdict.reason}, so that it may be what a rule denies: it has to be written plainly"
        if permission.only_reads:
            return "allow it with the policy allow-reads (--permissions allow-reads)"
        return _rules_that_allow(verdict)


def _rules_that_allow(verdict: Ruling) -> str:
    everything = "everything with the policy allow-all (--permissions allow-all)"
    texts = verdict.allowing_rules
    if not texts:
        return f"allow {everything}"
    named = " and ".join(f"`{text}`" for text in texts)
    flags = " ".join(f"--allow {shlex.quote(text)}" for text in texts)
    word = "rule" if len(texts) == 1 else "rules"
    return f"allow it with the {word} {named} ({flags}), or {everything}"


class _Function:
    """Asks the function of a policy about one request."""

    def __init__(self, decide: Decide, request: PermissionRequest) -> None:
        self.was_asked = False
        self.verdict: Verdict = None
        self._decide = decide
        self._request = request

    async def asked(self, ruling: Ruling) -> Permission:
        from coupler.permission.decision import Permission

        self.was_asked = True
        verdict = self._decide(self._request)
        self.verdict = await verdict if inspect.isawaitable(verdict) else verdict
        option = _option(self._request, self.verdict)
        is_given = option is not None and option.kind in ALLOWING
        return Permission(is_given, "allowed by a function" if is_given else "rejected by a function")


def _checked(
    *, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()
) -> tuple[Rule, ...]:
    """Parse rules; raises ValueError for a wrong one."""
    written = {"allow": allow, "ask": ask, "deny": deny}
    for effect, texts in written.items():
        if isinstance(texts, str):
            raise TypeError(f"{effect}= is a list of rules: write {effect}=[{texts!r}]")
    if not any(written.values()):
        return ()
    from coupler.permission.rules import Rule

    return tuple(
        Rule.parse(effect, text, f"the policy's {effect} rules")
        for effect, texts in written.items()
        for text in texts
    )


def _option(request: PermissionRequest, verdict: Verdict) -> PermissionOption | None:
    if isinstance(verdict, str):
        if (option := request.option(verdict)) is None:
            offered = ", ".join(each.option_id for each in request.options)
            raise ValueError(f"the agent offers no option {verdict!r}, only {offered}")
        return option
    if verdict is None:
        return None
    if not isinstance(verdict, bool):
        # Whatever else is true in Python's eyes has not been meant as a yes.
        raise TypeError(f"a verdict is True, False, the id of an option or None; this is {verdict!r}")
    return option_for(request.options, is_given=verdict)


WITHDRAWN = RequestPermissionResponse(CancelledPermissionOutcome())


class PermissionResponder:
    """Answers `session/request_permission` by the session's policy; a cancel answers first."""

    params = RequestPermissionRequest

    def requested(
        self, request: Request, params: RequestPermissionRequest, session: RemoteSession | None
    ) -> None:
        assert session is not None  # the parameters name one
        if session.is_cancelled or session.has_ended:
            request.answer(WITHDRAWN)
            return
        question = PermissionRequest.of(session, session.asked_call(params.tool_call), params.options)
        question = replace(question, meta=params.meta or None)
        session.questions.ask(
            request, lambda: _decided(session, question), WITHDRAWN, "the permission policy"
        )


async def _decided(session: RemoteSession, question: PermissionRequest) -> RequestPermissionResponse:
    decision = await session.policy.decide(question)
    if decision.is_allowed:
        # Imported on use: deciding needs a parser and more, once an agent asks.
        from coupler.client.actions import action_of

        session.grants.add(action_of(question))
    session.permission_answered(decision)
    return RequestPermissionResponse(decision.outcome, meta=decision.meta or UNSET)


class Confinement(Struct, frozen=True):
    """Maps policies to modes, for agents that ask for no permission and so cannot be answered.

    A policy that no mode stands for is refused, never ignored.
    """

    agent: str
    """The agent's name, for messages."""
    modes: Mapping[PolicyName, str]
    """The mode that enforces each policy."""
    usual: str | None = None
    """The mode that the agent is configured with; used where no policy is named."""

    def mode_for(self, policy: Policy | None, mode: str | None) -> str:
        """Return the mode to open a session in; raises of kind `session`.

        None stands for what was not given.
        """
        if policy is None:
            return mode or self.usual or self.modes["allow-reads"]
        if policy.name is None or policy.name not in self.modes:
            raise AgentError(
                "session",
                f"{self.agent} asks for nothing, so that rules and functions have nothing to decide: use "
                f"{self._named()}, or choose a mode, or drive its ACP form",
            )
        if policy.name == "deny-all" and mode not in (None, self.modes["deny-all"]):
            raise AgentError(
                "session", f"the policy deny-all and the mode {mode!r} contradict each other: leave one out"
            )
        return mode or self.modes[policy.name]

    def _named(self) -> str:
        *others, last = self.modes
        return f"the policy {', '.join(others)} or {last}"

"""Answers an agent's permission requests by a policy or a function, without a user to ask."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from coupler.client.errors import AgentError
from coupler.events import ToolCall
from coupler.events.v1_codec import tool_update_of
from coupler.mcp.tool_names import NOTHING_GIVEN, GivenTools
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    CancelledPermissionOutcome,
    PermissionOption,
    RequestPermissionOutcome,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
)
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession


class PermissionRequest(Struct, frozen=True):
    """A tool call that an agent wants to make, and the options that it offers."""

    tool_call: ToolCall
    options: tuple[PermissionOption, ...]
    cwd: str = ""
    roots: tuple[str, ...] = ()
    """The session's directories: its own, and the additional ones."""
    given: GivenTools = NOTHING_GIVEN
    """The MCP servers and Python functions that the session was given."""
    announced: ToolCall | None = None
    """The call as the agent showed it before it asked, if it did."""

    @classmethod
    def of(
        cls, session: RemoteSession, call: ToolCall, options: Sequence[PermissionOption] = ()
    ) -> PermissionRequest:
        """Return the request about a call in a session."""
        announced = session.tool_calls.get(call.id)
        return cls(call, tuple(options), session.cwd, session.roots, session.given_tools, announced)


class Decision(Struct, frozen=True):
    """The decision about a permission request: the chosen option, None if the request was cancelled."""

    tool_call: ToolCall
    option: PermissionOption | None
    remedy: str | None = None
    """The rule, policy or flag that would allow it, if a policy rejected it."""

    @property
    def is_allowed(self) -> bool:
        """True if the agent may do it."""
        return self.option is not None and self.option.kind in ("allow_once", "allow_always")

    @classmethod
    def of(cls, request: PermissionRequest, outcome: RequestPermissionOutcome) -> Decision:
        """Return the decision for an outcome."""
        chosen = outcome.option_id if isinstance(outcome, SelectedPermissionOutcome) else None
        option = next((option for option in request.options if option.option_id == chosen), None)
        return cls(request.tool_call, option)


Verdict: TypeAlias = bool | str | None
"""True to allow, False to reject, the id of an option, or None to cancel the request."""

Decide: TypeAlias = Callable[[PermissionRequest], Verdict | Awaitable[Verdict]]

Remedy: TypeAlias = Callable[[PermissionRequest], str | None]
"""Describes what would have allowed a request; runs in a thread, because it may wait for a disk."""

PolicyName: TypeAlias = Literal["allow-reads", "allow-all", "deny-all", "ask"]


class Policy:
    """Decides about permission requests. Options are chosen by their kind: once, and never always.

    A function can choose an "always" by the id of that option.
    """

    def __init__(
        self, decide: Decide, remedy: Remedy | None = None, *, name: PolicyName | None = None
    ) -> None:
        self._decide = decide
        self._remedy = remedy
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

        `but` are rules as in `permissions.deny`. With such rules, what they cannot judge is rejected too: it
        might be what they mean.
        """
        if not but:
            return cls(lambda request: True, _always_alone, name="allow-all")
        from coupler.client.rules import Rules

        rules = Rules((), (), but)

        async def decide(request: PermissionRequest) -> Verdict:
            verdict = await in_thread(lambda: rules.judge(request))
            return verdict.decision != "deny" and not (verdict.is_ruled or verdict.is_doubtful)

        return cls(decide, lambda request: f"{rules.judge(request).reason}: take the rule out to allow it")

    @classmethod
    def deny_all(cls) -> Policy:
        """Reject everything but calls of tools that the user gave to the agent."""
        return cls(_is_handed_over, _usual_remedy, name="deny-all")

    @classmethod
    def allow_reads(cls) -> Policy:
        """Allow reading the session's files, except those that hold secrets; reject the rest."""
        return cls(_allow_reads, _usual_remedy, name="allow-reads")

    @classmethod
    def ask(cls, callback: Decide | None = None) -> Policy:
        """Let a function decide; tools that the user gave to the agent are not asked about.

        Without a function everything else is rejected.
        """
        return cls.deny_all() if callback is None else cls(_unless_handed_over(callback), name="ask")

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
        from coupler.client.rules import Rules

        rules = Rules(allow, ask, deny)

        async def decide(request: PermissionRequest) -> Verdict:
            verdict = await in_thread(lambda: rules.judge(request))
            if verdict.decision != "ask" or callback is None:
                return verdict.decision == "allow"
            decided = callback(request)
            return await decided if inspect.isawaitable(decided) else decided

        def remedy(request: PermissionRequest) -> str | None:
            verdict = rules.judge(request)
            if verdict.decision == "deny":
                return f"{verdict.reason}: take that rule out to allow it"
            return None if callback is not None else _usual_remedy(request)

        return cls(decide, remedy)

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
        return cls(_unless_handed_over(value))

    async def answer(self, request: PermissionRequest) -> RequestPermissionOutcome:
        """Return the outcome to send. What would wreck a machine or a home is rejected, whoever decides."""
        verdict: Verdict | Awaitable[Verdict] = False
        if await _never(request) is None:
            verdict = self._decide(request)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        option = _option(request, verdict)
        return CancelledPermissionOutcome() if option is None else SelectedPermissionOutcome(option)

    async def remedy(self, request: PermissionRequest) -> str | None:
        """Say what would allow a rejected request, unless a function rejected it."""
        if (reason := await _never(request)) is not None:
            return reason
        remedy = self._remedy
        return None if remedy is None else await in_thread(lambda: remedy(request))


async def _never(request: PermissionRequest) -> str | None:
    """Say why nobody may allow a call; one that names neither a path nor a command is not concerned."""
    call = request.tool_call
    if not (call.locations or call.content or call.raw_input):
        return None
    # Imported on use: the engine is needed once an agent asks.
    from coupler.client.rules import never

    return await in_thread(lambda: never(request))


async def _allow_reads(request: PermissionRequest) -> bool:
    # Imported on use: the engine is needed once an agent asks.
    from coupler.client.rules import is_reading

    return await in_thread(lambda: is_reading(request)) or await _is_handed_over(request)


async def _is_handed_over(request: PermissionRequest) -> bool:
    if not request.given.functions:
        return False
    # Imported on use: the engine is needed once an agent asks.
    from coupler.client.rules import is_handed_over

    return await in_thread(lambda: is_handed_over(request))


def _unless_handed_over(decide: Decide) -> Decide:
    """Return the function, asked only about what the user has not given to the agent."""

    async def decided(request: PermissionRequest) -> Verdict:
        if await _is_handed_over(request):
            return True
        verdict = decide(request)
        return await verdict if inspect.isawaitable(verdict) else verdict

    return decided


def _always_alone(request: PermissionRequest) -> str:
    """Explain the only rejection of a policy that allows everything."""
    return (
        "the agent offers no yes for once, and a policy chooses no `always`: give a function that returns "
        "the id of the option"
    )


def _usual_remedy(request: PermissionRequest) -> str:
    from coupler.client import rules

    return rules.remedy(request)


def _option(request: PermissionRequest, verdict: Verdict) -> str | None:
    if isinstance(verdict, str):
        offered = [option.option_id for option in request.options]
        if verdict not in offered:
            raise ValueError(f"the agent offers no option {verdict!r}, only {', '.join(offered)}")
        return verdict
    if verdict is None:
        return None
    if not isinstance(verdict, bool):
        # Whatever else is true in Python's eyes has not been meant as a yes.
        raise TypeError(f"a verdict is True, False, the id of an option or None; this is {verdict!r}")
    wanted = "allow_once" if verdict else "reject_once"
    return next((option.option_id for option in request.options if option.kind == wanted), None)


WITHDRAWN = RequestPermissionResponse(CancelledPermissionOutcome())


class Permissions:
    """Answers `session/request_permission` by the session's policy; a cancel answers first."""

    params = RequestPermissionRequest

    def requested(
        self, request: Request, params: RequestPermissionRequest, session: RemoteSession | None
    ) -> None:
        assert session is not None  # the parameters name one
        if session.is_cancelled or session.has_ended:
            request.answer(WITHDRAWN)
            return
        call = session.tool_calls.get(
            params.tool_call.tool_call_id, ToolCall(id=params.tool_call.tool_call_id)
        )
        question = PermissionRequest.of(
            session, call.updated(tool_update_of(params.tool_call)), params.options
        )
        session.questions.ask(
            request, lambda: _decided(session, question), WITHDRAWN, "the permission policy"
        )


async def _decided(session: RemoteSession, question: PermissionRequest) -> RequestPermissionResponse:
    outcome = await session.policy.answer(question)
    decision = Decision.of(question, outcome)
    if not decision.is_allowed:
        decision = replace(decision, remedy=await session.policy.remedy(question))
    session.permission_answered(decision)
    return RequestPermissionResponse(outcome)


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

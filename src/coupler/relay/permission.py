"""Decides what a relayed agent may do: by the rules, by what was chosen before, or by asking the user.

When it asks, the user sees its own options. When it does something through us without asking, that is its own
mode's decision, unless a rule that somebody wrote forbids it or wants it to be asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import UNSET
from msgspec.structs import replace

from coupler.agent.permission import TurnDialog
from coupler.agent.tool_call import ask_about
from coupler.client.actions import action_of
from coupler.client.policy import Decision, PermissionRequest, Policy
from coupler.mcp.tool_names import qualified_name
from coupler.permission.action import GRANTED, KINDS, Action, Grants, option_for, option_label
from coupler.permission.decision import Permission
from coupler.relay.errors import NOT_IN_A_TURN, NOT_PERMITTED
from coupler.schema.v1 import PermissionOption, PermissionOptionKind, PermissionToolCall
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.permission.decision import Verdict
    from coupler.permission.rules import Rule
    from coupler.relay.errors import RelayContext

OPTION_KINDS: tuple[str, ...] = get_args(PermissionOptionKind)


class RelayPolicy(Policy):
    """Has the permission requests of a relayed agent decided as the session decides."""

    def __init__(self, guard: RelayPermissions) -> None:
        super().__init__(None, name="ask")
        self._guard = guard

    async def decide(self, request: PermissionRequest) -> Decision:
        """Decide about a request; nobody who asked the user needs to be told what would allow it."""
        return await self._guard.decide(request)

    async def require(self, session: RemoteSession, params: Any) -> None:
        """Leave it to the relay's own files and terminals to ask."""


class RelayPermissions:
    """Decides the permission requests of one session; what was allowed once holds until its turn ends."""

    _unruled: Literal["ask", "allow"] = "allow"
    """The decision on what no rule is about, if the agent does it without having asked."""

    def __init__(self, relayed: RelayContext, rules: Sequence[Rule] = ()) -> None:
        """`rules` hold for this agent, besides those of the session."""
        self._relayed = relayed
        self._rules = rules
        self._grants = Grants()
        self._rejected: dict[str, str] = {}

    async def decide(self, request: PermissionRequest) -> Decision:
        """Choose the option to answer with; none if nobody can be asked, or there is no option for a no."""
        turn, mirror = self._relayed.turn, self._relayed.mirror
        if turn is None or mirror is None:
            return Decision(request.tool_call, None)
        mirror.flush()
        own = _known_options(request.options)
        action = action_of(request)
        dialog = TurnDialog(turn, lambda: self._named(request, action), own=own, meta=request.meta)
        # A rule allows this call: that is no reason to choose an "always" for the user.
        is_only_for_good = option_for(own, is_given=True) is None
        permission = await turn.session.project.permissions().decide(
            action,
            dialog,
            always_asks=dialog.has_several_ways or is_only_for_good,
            also=(*self._rules, *request.rules),
        )
        if permission.is_given:
            self._grants.add(action)
        else:
            self._rejected[mirror.announced(request.tool_call)] = permission.reason
        answer = dialog.answer
        outcome_meta = getattr(answer.outcome, "meta", None) if answer is not None else None
        chosen = permission.option
        if chosen is None and (option := option_for(own, is_given=permission.is_given)) is not None:
            chosen = option.option_id
        return Decision(
            request.tool_call,
            request.option(chosen),
            meta=(answer.meta or None) if answer is not None else None,
            outcome_meta=outcome_meta or None,
            reason=permission.reason,
        )

    def end_turn(self) -> None:
        """Drop what was allowed once, and fail rejected calls that the agent says no more of."""
        for call_id, reason in self._rejected.items():
            self._relayed.session.outlet.ledger.settle(call_id, "failed", reason)
        self._rejected.clear()
        self._grants.clear()

    async def require(self, action: Action, title: str, rules: Sequence[Rule] = ()) -> None:
        """Raise unless the agent may do this, which it does without having asked.

        `rules` are those of the agent's own table in `coupler.toml`.
        """

        async def ask(verdict: Verdict) -> Permission:
            if self._grants.include(action):
                return Permission(True, GRANTED)
            return await self._ask(verdict, action, title)

        permissions = self._relayed.session.project.permissions()
        permission = await permissions.decide(action, ask, unruled=self._unruled, also=(*self._rules, *rules))
        if not permission.is_given:
            raise RpcError.because(NOT_PERMITTED, permission.reason)

    async def _ask(self, verdict: Verdict, action: Action, title: str) -> Permission:
        turn = self._relayed.turn
        if turn is None:
            raise RpcError.because(NOT_IN_A_TURN, "nobody can be asked for permission outside of a turn")
        path = action.paths[0] if action.paths else None
        kind = "execute" if action.command is not None else action.kind
        async with turn.tool(
            title,
            kind=kind,  # type: ignore[arg-type]  # one of ACP's
            path=path,
            command=action.command,
            cwd=action.cwd,
            env=action.variables,
        ) as call:
            permission = await ask_about(call, verdict)
        if permission.is_given:
            self._grants.add(action)
        return permission

    def _named(self, request: PermissionRequest, action: Action) -> PermissionToolCall:
        """Return the call as the user is asked about it, with the tool's name as it is judged."""
        asked = self._as_asked(request)
        if action.name is None:
            return asked
        # Whoever answers may have rules, too, and does not see what the agent's own id says.
        return replace(asked, name=qualified_name(action.server, action.name))

    def _as_asked(self, request: PermissionRequest) -> PermissionToolCall:
        call, mirror = request.tool_call, self._relayed.mirror
        assert mirror is not None
        known_as = mirror.announced(call)
        return PermissionToolCall(
            known_as,
            kind=call.kind if call.kind in KINDS else "other",  # type: ignore[arg-type]
            status=self._relayed.session.outlet.ledger.status_when_asked(known_as),
            title=call.title or "Tool",
            name=call.name or UNSET,
            content=mirror.content(call) or UNSET,
            locations=call.locations or UNSET,
            raw_input=UNSET if call.raw_input is None else call.raw_input,
            meta=call.meta or UNSET,
        )


def _known_options(options: tuple[PermissionOption, ...]) -> tuple[PermissionOption, ...]:
    """Return the agent's options that an editor can show, each id once, with names that say what they do."""
    known: dict[str, PermissionOption] = {}
    for option in options:
        if option.kind in OPTION_KINDS:
            name = option_label(option.kind, option.name)
            known.setdefault(option.option_id, replace(option, name=name))
    return tuple(known.values())

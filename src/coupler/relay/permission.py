"""Decides what a relayed agent may do: by the rules, by what was chosen before, or by asking the user.

When it asks, the user sees its own options. When it does something through us without asking, that is its own
mode's decision, unless a rule that somebody wrote forbids it or wants it to be asked about.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, get_args

from msgspec import UNSET
from msgspec.structs import replace

from coupler.agent.permission import ALLOWING
from coupler.client.actions import action_of
from coupler.client.policy import PermissionRequest
from coupler.mcp.tool_names import qualified_name
from coupler.permission.action import KINDS, Action, option_label
from coupler.relay.errors import NOT_IN_A_TURN, NOT_PERMITTED
from coupler.schema.v1 import PermissionOption, PermissionOptionKind, PermissionToolCall
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.relay.errors import RelayContext

OPTION_KINDS: tuple[str, ...] = get_args(PermissionOptionKind)
REJECTING = ("reject_once", "reject_always")


class RelayPermissions:
    """Decides the permission requests of one session; what was allowed once holds until its turn ends."""

    def __init__(self, relayed: RelayContext) -> None:
        self._relayed = relayed
        self._granted: list[Action] = []

    def forget_grants(self) -> None:
        """Drop what was allowed once, because the turn is over."""
        self._granted.clear()

    async def decide(self, request: PermissionRequest) -> str | None:
        """Choose the option to answer with; None if nobody can be asked, or there is no option for a no."""
        turn, mirror = self._relayed.turn, self._relayed.mirror
        if turn is None or mirror is None:
            return None
        mirror.flush()
        own = _known_options(request.options)
        action = action_of(request)
        asked = self._as_asked(request)
        if action.name is not None:
            # Whoever answers may have rules, too, and does not see what the agent's own id says.
            asked = replace(asked, name=qualified_name(action.server, action.name))
        permission = await turn.session.project.permitting().decide(turn, asked, action, None, own)
        if permission.is_given:
            self._granted.append(action)
        if permission.option is not None:
            return permission.option
        return _by_kind(own, ALLOWING if permission.is_given else REJECTING)

    def has_granted(self, action: Action) -> bool:
        """Return whether just this was allowed in this turn."""
        return any(_covers(granted, action) for granted in self._granted)

    async def require(self, action: Action, title: str) -> None:
        """Raise unless the agent may do this, which it does without having asked."""
        if self.has_granted(action):
            return
        verdict = await self._relayed.session.project.permitting().judge(action)
        if verdict.decision == "deny":
            raise RpcError.because(NOT_PERMITTED, f"not permitted: {verdict.reason}")
        if verdict.decision == "ask" and verdict.is_ruled:
            await self._ask(self._relayed.turn, action, title)

    async def _ask(self, turn: Turn | None, action: Action, title: str) -> None:
        if turn is None:
            raise RpcError.because(NOT_IN_A_TURN, "nobody can be asked for permission outside of a turn")
        path = action.paths[0] if action.paths else None
        kind = "execute" if action.command is not None else action.kind
        async with turn.tool(title, kind=kind, path=path, command=action.command) as call:  # type: ignore[arg-type]
            if not await call.permitted():
                raise RpcError.because(NOT_PERMITTED, call.refusal or "not permitted")
            self._granted.append(action)

    def _as_asked(self, request: PermissionRequest) -> PermissionToolCall:
        call, mirror = request.tool_call, self._relayed.mirror
        assert mirror is not None
        return PermissionToolCall(
            mirror.announced(call),
            kind=call.kind if call.kind in KINDS else "other",  # type: ignore[arg-type]
            status="pending",
            title=call.title or "Tool",
            name=call.name or UNSET,
            content=mirror.content(call) or UNSET,
            locations=call.locations or UNSET,
            raw_input=UNSET if call.raw_input is None else call.raw_input,
        )


def _known_options(options: tuple[PermissionOption, ...]) -> tuple[PermissionOption, ...]:
    """Return the agent's options that an editor can show, each id once, with names that say what they do."""
    known: dict[str, PermissionOption] = {}
    for option in options:
        if option.kind in OPTION_KINDS:
            name = option_label(option.kind, option.name)
            known.setdefault(option.option_id, replace(option, name=name))
    return tuple(known.values())


def _by_kind(options: tuple[PermissionOption, ...], kinds: tuple[str, ...]) -> str | None:
    by_kind = {option.kind: option.option_id for option in reversed(options)}
    return next((by_kind[kind] for kind in kinds if kind in by_kind), None)


def _covers(granted: Action, action: Action) -> bool:
    """Return whether something that was allowed in this turn is what is done now."""
    if action.command is not None:
        return granted.command is not None and _line(granted.command) in _lines(action.command)
    if not action.paths or not set(action.paths) <= set(granted.paths):
        return False
    return action.kind == "read" or granted.kind not in ("read", "search", "think")


def _line(command: str | tuple[str, ...]) -> str:
    return command.strip() if isinstance(command, str) else shlex.join(command)


def _lines(command: str | tuple[str, ...]) -> set[str]:
    """Return a command line and what a shell in it runs: agents ask for one and run the other."""
    lines = {_line(command)}
    if isinstance(command, tuple):
        lines.add(" ".join(command))
        if len(command) == 3 and command[1] in ("-c", "-lc"):
            lines.add(command[2].strip())
    return lines

"""A tool call of a model, as the block of code that carries it out.

`ToolCalls` announces and settles it; in between, what files, commands and questions of the turn belong to is
the innermost `Call`. This is that call: entering it announces nothing, and leaving it settles nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from coupler.agent.tool_call import Call, step_into, step_out_of
from coupler.schema.v1 import ToolCallContent, ToolKind

if TYPE_CHECKING:
    from coupler.bridges.langchain.current import Current
    from coupler.permission.action import Action


class JoinedCall(Call):
    """Part of a call that was announced with the key `key`."""

    def __init__(
        self,
        current: Current,
        key: str,
        title: str,
        *,
        kind: ToolKind,
        name: str | None = None,
        path: str | None = None,
        line: int | None = None,
        command: str | None = None,
        cwd: str | None = None,
        server: str | None = None,
        url: str | None = None,
        roots: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            current.turn,
            title,
            kind=kind,
            name=name,
            path=path,
            line=line,
            input=current.calls.arguments(key) or None,
            id=current.calls.client_id(key),
            command=command,
            cwd=cwd,
            server=server,
            url=url,
        )
        self._roots = roots
        self._calls = current.calls
        self._key = key

    async def __aenter__(self) -> Self:
        self._turn.check_alive()
        self._is_open = True
        step_into(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        step_out_of(self)
        self._is_open = False

    async def permitted(self, *, deadline: float | None = None) -> bool:
        """Whether the call may go on; it is asked once, here or before."""
        if self._key in self._calls.refused:
            self._refused = self._calls.refused[self._key]
            return False
        if self._key in self._calls.permitted:
            self._is_permitted = True
            return True
        verdict = await self._turn.session.project.permitting().judge(self._action())
        if verdict.decision == "ask":
            self._calls.wait(self._key)
        is_permitted = await super().permitted(deadline=deadline)
        if is_permitted:
            self._calls.permitted.add(self._key)
        return is_permitted

    def _action(self) -> Action:
        action = super()._action()
        return msgspec.structs.replace(action, roots=(*action.roots, *self._roots)) if self._roots else action

    def start(self) -> None:
        """Report that the call runs."""
        self._calls.run(self._key)

    def _go_on(self) -> None:
        self._calls.run(self._key)

    async def _show(self, item: ToolCallContent, *, starts: bool) -> None:
        self._turn.check_alive()
        self._calls.append(self._key, item)
        await self._turn.session.outlet.wait_for_room()

    async def _report(self, *, starts: bool = False, **fields: Any) -> None:
        """How a model's call is presented is decided elsewhere; what is judged is kept here."""
        self._turn.check_alive()

"""From what a stream says to what a turn's client is shown.

The stream's ids of tool calls are kept where they can be: a session knows each id once, and some programs
count from nothing in every turn.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.agent.content import json_value
from coupler.agent.tool_call import Ledger
from coupler.agent.turn import NOTICES
from coupler.events import Notice, Plan, Text, Thought, ToolOutput, ToolUpdate, Usage
from coupler.events.events import CHANGEABLE, OPEN_STATUSES
from coupler.providers.said import Said, Tokens
from coupler.schema.v1 import Cost, Diff, ToolCallContent, ToolCallLocation

if TYPE_CHECKING:
    from coupler.agent.turn import Turn


class Showing:
    """Shows one turn's events, in their order."""

    def __init__(self, turn: Turn, *, cost_before: float = 0.0) -> None:
        self.has_answer = False
        """Whether anything was shown that answers the prompt: text, or a tool call."""
        self._turn = turn
        self._cost = cost_before
        self._usage = Usage(0, 0)
        self._ids: dict[str, str] = {}
        self._message: tuple[type, str | None] | None = None

    async def show(self, said: Said) -> None:
        """Show one event."""
        match said:
            case Text(text, message_id) if text:
                self._continue_message(Text, message_id)
                self.has_answer = self.has_answer or bool(text.strip())
                await self._turn.say(text)
            case Thought(text, message_id) if text:
                self._continue_message(Thought, message_id)
                await self._turn.think(text)
            case ToolUpdate():
                self._show_call(said)
                await self._turn.session.outlet.wait_for_room()
            case ToolOutput(id, item):
                self._ledger.append(self._known(id), self._absolute_item(item))
                await self._turn.session.outlet.wait_for_room()
            case _:
                await self._show_aside(said)

    async def show_tokens(self, spent: Tokens) -> None:
        """Show what the turn has used so far."""
        await self._turn.count_tokens(
            spent.input,
            spent.output,
            cached_read=spent.cached_read,
            cached_write=spent.cached_write,
            thought=spent.thought,
            total=spent.sum,
        )

    async def show_cost(self, cost: float) -> None:
        """Report what the turn has cost, together with all turns before it."""
        total = Cost(round(self._cost + cost, 9), "USD")
        await self._turn.report(msgspec.structs.replace(self._usage, cost=total))

    async def _show_aside(self, said: Said) -> None:
        match said:
            case Plan():
                self._turn.begin_new_message()
                await self._turn.report(said)
            case Usage():
                self._usage = said
                await self._turn.report(said)
            case Notice(_, title, description):
                if self._turn.editor.offers(NOTICES):
                    await self._turn.report(said)
                else:
                    # Not as a message: what the agent answers may be read by a program.
                    self._continue_message(Notice, None)
                    await self._turn.think(f"{title}: {description}" if description else title)
                    self._message = None

    def _continue_message(self, kind: type, message_id: str | None) -> None:
        if self._message != (kind, message_id):
            self._message = (kind, message_id)
            self._turn.begin_new_message()

    def _show_call(self, update: ToolUpdate) -> None:
        self.has_answer = True
        self._message = None
        fields = {name: value for name in CHANGEABLE if (value := getattr(update, name)) is not UNSET}
        for name in ("raw_input", "raw_output"):
            if name in fields:
                fields[name] = json_value(fields[name])
        if update.locations is not UNSET:
            fields["locations"] = tuple(self._absolute_location(each) for each in update.locations)
        if update.id not in self._ids:
            self._announce(update.id, fields)
            if fields.get("status", "pending") in OPEN_STATUSES:
                return
        self._ledger.update(self._ids[update.id], **fields)

    def _announce(self, id: str, fields: dict[str, Any]) -> None:
        self._turn.check_alive()
        self._turn.begin_new_message()
        told = (
            {**fields, "status": "in_progress"} if fields.get("status") not in OPEN_STATUSES else dict(fields)
        )
        title = told.pop("title", "") or "tool"
        told.pop("raw_output", None)
        # An earlier turn may have had this id.
        wanted = f"{id}_{os.urandom(4).hex()}" if self._ledger.knows(id) else id
        self._ids[id] = self._ledger.announce(title, id=wanted or None, **told)

    def _known(self, id: str) -> str:
        """The call's id in the session; one that the stream never announced is announced now."""
        if id not in self._ids:
            self._show_call(ToolUpdate(id=id, status="in_progress"))
        return self._ids[id]

    def _absolute_item(self, item: ToolCallContent) -> ToolCallContent:
        if isinstance(item, Diff):
            return msgspec.structs.replace(item, path=self._absolute(item.path))
        return item

    def _absolute_location(self, location: ToolCallLocation) -> ToolCallLocation:
        return msgspec.structs.replace(location, path=self._absolute(location.path))

    def _absolute(self, path: str) -> str:
        return str(Path(self._turn.session.cwd, path))

    @property
    def _ledger(self) -> Ledger:
        return self._turn.session.outlet.ledger

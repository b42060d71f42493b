"""Another agent at work: started for one task, shown below the tool call, ended with it.

It works in the session's directories, with the editor's files. What it wants to do, the session's engine
decides, and the user where that does not. It gets none of the keys that the session withholds. A program that
asks for nothing could not be kept to any of this, so it may only read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coupler.agent.tool_call import text_content
from coupler.client.errors import AgentError
from coupler.client.observation import Observation, Received
from coupler.client.policy import Policy
from coupler.client.remote import OpeningOptions
from coupler.client_api import connect
from coupler.coder.delegation.delegated_guard import DelegatedGuard
from coupler.coder.delegation.delegated_offer import DelegatedOffer
from coupler.coder.delegation.nested_mirror import NestedMirror
from coupler.coder.delegation.outcome import Outcome
from coupler.mcp.servers import merged
from coupler.providers.catalogue import ENTRIES, chosen_for
from coupler.relay.editor import release
from coupler.relay.mirror import Mirror
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import Terminal, ToolCallContent
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.client.remote import RemoteAgent
    from coupler.client.reply import Reply
    from coupler.client.session import RemoteSession
    from coupler.coder.delegation.denials import Denials
    from coupler.coder.delegation.other_agent import OtherAgent
    from coupler.langchain.current import Current
    from coupler.relay.permission import Guard

log = logging.getLogger("coupler.coder")

LONGEST_TASK = 2 * 60 * 60.0
"""Seconds that an agent may work on one task."""

CANCEL_LIMIT = 2.0
"""Seconds that an agent has at most to end its turn when the user cancels; then its processes are ended."""

LOGIN_WANTED = -32000
"""The code by which agents say that somebody has to log in first."""

DELEGATED = "COUPLER_DELEGATED"
"""The variable that tells a Coupler behind this one that it works for another agent."""

ADDITIONAL_DIRECTORIES = "sessionCapabilities.additionalDirectories"


class RemoteWork:
    """One task of one agent. It has the agent behind it, as responders of the relay know it."""

    def __init__(self, other: OtherAgent, prompt: Current, key: str, denials: Denials) -> None:
        self.session: Session = prompt.session
        self.turn: Turn | None = prompt.turn
        self.editor_terminals: set[str] = set()
        self.guard: Guard = DelegatedGuard(self, other.name, denials)
        self._shown = NestedMirror(
            prompt.turn, prompt.calls, key, terminal=self._terminal, overflowed=self._overflowed
        )
        self.mirror: Mirror | None = self._shown
        self._other = other
        self._remote: RemoteSession | None = None
        self._shown_terminals: set[str] = set()

    def can_ask_editor(self, gate: str) -> bool:
        """Whether the editor offers something."""
        return self.session.editor.offers(gate)

    def editor_made(self, terminal_id: str) -> None:
        """The editor has made a terminal for the agent, and can show it."""
        self.editor_terminals.add(terminal_id)
        self._shown_terminals.add(terminal_id)

    def show_output(self, terminal_id: str, text: str) -> None:
        """There are no terminals but the editor's."""

    async def done(self, task: str) -> Outcome:
        """Have the task carried out; only a cancel is raised."""
        try:
            words = await in_thread(lambda: self._other.prompt(task))
            agent = await in_thread(self._connected)
        except (AgentError, OSError, ValueError) as error:
            return self._failed(error)
        try:
            await agent.__aenter__()
            self._remote = await self._opened(agent)
            reply = await self._answered(agent, self._remote, words)
        except AgentError as error:
            return self._failed(error)
        finally:
            await self._leave(agent)
        is_done = reply.stop_reason == "end_turn"
        return Outcome("completed" if is_done else "stopped", reply.text, self.turns, reply.stop_reason)

    @property
    def turns(self) -> int:
        return self._shown.turns

    def _connected(self) -> RemoteAgent:
        """The agent, not started yet; raises `AgentError` if it is not installed. Looks at the disk."""
        session, other = self.session, self._other
        chosen = chosen_for(other.name, session.cwd)
        if chosen is None:
            raise AgentError("spawn", f"there is no agent {other.name!r} in the catalogue")
        is_in_process = chosen.form == "native" and ENTRIES[chosen.entry.native or ""].program is None
        agent = connect(
            other.name,
            cwd=session.cwd,
            env=None if is_in_process else _environment(session, chosen.entry.env),
        )
        if agent.confinement is None:
            editor = session.editor.capabilities
            agent.offer_instead(
                DelegatedOffer(other.name, editor, lambda session_id: self, agent.wanted_files)
            )
        return agent

    async def _opened(self, agent: RemoteAgent) -> RemoteSession:
        other = self._other
        options = OpeningOptions(cwd=self.session.cwd, permissions=Policy(self.guard.decide))
        if agent.confinement is not None:
            # It would ask nobody: whatever its profile says, it looks and changes nothing.
            return await agent.new(cwd=self.session.cwd, permissions="allow-reads")
        if len(self.session.roots) > 1 and agent.offers(ADDITIONAL_DIRECTORIES):
            options["additional_directories"] = self.session.roots[1:]
        if other.mcp:
            configured = merged(self.session.project.mcp_servers, ())
            options["mcp_servers"] = [configured[name] for name in other.mcp if name in configured]
        if other.model is not None:
            options["model"] = other.model
        if other.mode is not None:
            options["mode"] = other.mode
        options["options"] = {
            name: value if isinstance(value, bool) else str(value) for name, value in other.options.items()
        }
        return await agent.new(**options)

    async def _answered(self, agent: RemoteAgent, remote: RemoteSession, words: str) -> Reply:
        """The reply. When the user cancels, the agent is told so, and has a moment to end what it does."""
        remote.on_event(self._notice)
        remote.roots = self.session.roots
        asking = asyncio.ensure_future(_reply(remote, words))
        try:
            # Shielded, because the agent is to be told of the cancel before anything else.
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            grace = CANCEL_LIMIT if self.turn is None else min(CANCEL_LIMIT, self.turn.grace / 2)
            self.turn = None
            asking.cancel()
            await asyncio.wait([asking], timeout=grace)
            agent.kill()
            await asyncio.wait([asking])
            raise

    def _notice(self, observation: Observation) -> None:
        if isinstance(observation, Received) and not observation.late and self.mirror is not None:
            self.mirror.take(observation.event)

    async def _leave(self, agent: RemoteAgent) -> None:
        """End everything that was begun for the task."""
        turn, self.turn = self.turn, None
        try:
            await self._shown.finish()
            if turn is not None and turn.is_alive:
                self._shown.settle("the agent has ended")
                with contextlib.suppress(RpcError):
                    await release(self)
        finally:
            self.mirror = None
            await agent.close()

    def _failed(self, error: Exception) -> Outcome:
        reason = str(error)
        if isinstance(error, AgentError) and error.code == LOGIN_WANTED:
            reason = f"{reason}\nThe user has to log in first: `coupler login {self._other.name}`"
        log.warning("%s, which a task was delegated to, failed: %s", self._other.name, reason)
        reply = error.reply if isinstance(error, AgentError) else None
        said = f"\n\nBefore that it said:\n{reply.text}" if reply is not None and reply.text.strip() else ""
        kind = error.kind if isinstance(error, AgentError) else None
        return Outcome("failed", f"{reason}{said}", self.turns, "deadline" if kind == "deadline" else None)

    def _terminal(self, id: str) -> ToolCallContent:
        return Terminal(id) if id in self._shown_terminals else text_content("")

    def _overflowed(self, error: AgentError) -> None:
        if self._remote is not None:
            self._remote.end_turn(error)


async def _reply(remote: RemoteSession, words: str) -> Reply:
    return await remote.prompt(words, timeout=LONGEST_TASK)


def _environment(session: Session, own: Mapping[str, str]) -> dict[str, str | None]:
    """What the agent's environment has otherwise than ours: the session's changes, and no keys of models."""
    changes: dict[str, Any] = {
        name: value for name, value in session.env.items() if os.environ.get(name) != value
    }
    missing = {name: None for name in os.environ if name not in session.env}
    withheld = {name: None for name in session.withheld if name not in own}
    return {**changes, **missing, **withheld, DELEGATED: "1"}

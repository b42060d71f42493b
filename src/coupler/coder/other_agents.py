"""Gives tasks to other agents: those of the catalogue, and profiles that stand on such a one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from coupler.client.agent_profile import file_in_prompt, text_of_file, with_instructions
from coupler.client.errors import AgentError
from coupler.client.observation import Observation, Received
from coupler.client.remote import OpeningOptions
from coupler.client_api import connect_bare
from coupler.config.agent_tables import whole_table
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Notice,
    Plan,
    Text,
    Thought,
    ToolCall,
    Usage,
)
from coupler.events.fold import text_content
from coupler.mcp.servers import merge_servers
from coupler.providers.catalogue import ENTRIES, resolve
from coupler.relay.editor import RelayedElicitations, release
from coupler.relay.mirror import TurnMirror
from coupler.relay.permission import RelayPermissions, RelayPolicy
from coupler.relay.relay import RelayOffer
from coupler.runtime.threads import in_thread
from coupler.schema.methods import offers
from coupler.schema.v1 import AuthCapabilities, ClientCapabilities, Terminal
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.client.errors import NotificationListener, Responder
    from coupler.client.files import FileAccess
    from coupler.client.policy import PermissionRequest
    from coupler.client.remote import RemoteAgent
    from coupler.client.reply import Reply
    from coupler.client.session import RemoteSession
    from coupler.config.agent_tables import AgentTable
    from coupler.langchain.current import Current
    from coupler.langchain.tool_calls import ToolCalls
    from coupler.permission.action import Action
    from coupler.permission.rules import Rule
    from coupler.relay.errors import RelayContext
    from coupler.schema.v1 import (
        CreateElicitationResponse,
        CreateFormElicitationRequest,
        CreateUrlElicitationRequest,
        PermissionToolCall,
        ToolCallContent,
    )

log = logging.getLogger("coupler.coder")

TaskStatus: TypeAlias = Literal["completed", "stopped", "failed", "cancelled"]
"""Ends of a task; a stopped agent has answered, but was out of turns or tokens."""

LONGEST_TASK = 2 * 60 * 60.0
"""Seconds that an agent may work on one task."""

CANCEL_LIMIT = 2.0
"""Seconds that an agent has at most to end its turn when the user cancels; then its processes are ended."""

LONGEST_TEXT = 100_000
"""Characters of a report that the model gets."""

LOGIN_WANTED = -32000
"""The code by which agents say that somebody has to log in first."""

DELEGATED = "COUPLER_DELEGATED"
"""The variable that tells a Coupler behind this one that it works for another agent."""

ADDITIONAL_DIRECTORIES = "sessionCapabilities.additionalDirectories"

TERMINAL = "terminal"

SAID_NOTHING = "(It has said nothing.)"

_WORDS: dict[TaskStatus, str] = {"completed": "done"}
_STOPPED = {
    "max_turn_requests": "It was stopped because it has used all turns that it had.",
    "max_tokens": "It was stopped because its answer became too long.",
    "refusal": "It refused to go on.",
    "cancelled": "It was cancelled.",
}


class OtherAgent(Struct, frozen=True, kw_only=True):
    """The setup of another agent; what is None or empty is as the agent itself has it."""

    name: str
    title: str
    system: str | None = None
    model: str | None = None
    mode: str | None = None
    options: Mapping[str, str | int | float | bool] = {}
    deny: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, title: str, tables: Mapping[str, AgentTable]) -> OtherAgent:
        """The agent of this name, with what its table and those below it say."""
        table = whole_table(name.partition(":")[0], tables)
        if table is None:
            return cls(name=name, title=title)
        return cls(
            name=name,
            title=title,
            system=table.system,
            model=table.model,
            mode=table.mode,
            options=table.options,
            deny=table.deny,
            context=table.context,
            skills=table.skills,
            mcp=table.mcp or (),
        )

    def prompt(self, task: str) -> str:
        """The task, after what the agent has to be told before it. Reads files; may raise OSError."""
        system = "\n\n".join(filter(None, [self.system, *map(text_of_file, self.skills)]))
        files = [file_in_prompt(path, text_of_file(path)) for path in self.context]
        whole = "\n\n".join([*files, task])
        return with_instructions(system, whole) if system else whole


class RemoteTask:
    """Runs one task with another agent: starts it, shows its work in the tool call, and ends it.

    The agent works in the session's directories, with the editor's files. What it wants to do, the session's
    engine decides, and the user where that does not. It gets none of the keys that the session withholds. A
    program that asks for nothing could not be kept to any of this, so it may only read.
    """

    def __init__(self, other: OtherAgent, prompt: Current, key: str, denials: Sequence[Rule]) -> None:
        self.session: Session = prompt.session
        self.turn: Turn | None = prompt.turn
        self.editor_terminals: set[str] = set()
        self.guard: RelayPermissions = DelegatedGuard(self, other.name, denials)
        self._shown = NestedMirror(
            prompt.turn, prompt.calls, key, terminal=self._terminal, overflowed=self._overflowed
        )
        self.mirror: TurnMirror | None = self._shown
        self._other = other
        self._remote: RemoteSession | None = None
        self._shown_terminals: set[str] = set()

    def can_ask_editor(self, gate: str) -> bool:
        """True if the editor offers something."""
        return self.session.editor.offers(gate)

    def editor_made(self, terminal_id: str) -> None:
        """Record a terminal that the editor has made for the agent."""
        self.editor_terminals.add(terminal_id)
        self._shown_terminals.add(terminal_id)

    def show_output(self, terminal_id: str, text: str) -> None:
        """Do nothing: there are no terminals but the editor's."""

    async def done(self, task: str) -> TaskOutcome:
        """Run the task; only a cancel is raised."""
        try:
            words = await in_thread(lambda: self._other.prompt(task))
            agent = await in_thread(self._connected)
        except (AgentError, OSError, ValueError) as error:
            return self._failed(error)
        try:
            await agent.__aenter__()
            self._remote = await self._opened(agent)
            self._shown.held_calls = self._remote.tool_calls
            reply = await self._answered(agent, self._remote, words)
        except AgentError as error:
            return self._failed(error)
        finally:
            await self._leave(agent)
        is_done = reply.stop_reason == "end_turn"
        return TaskOutcome("completed" if is_done else "stopped", reply.text, self.turns, reply.stop_reason)

    @property
    def turns(self) -> int:
        return self._shown.turns

    def _connected(self) -> RemoteAgent:
        """The agent, not started yet; raises `AgentError` if it is not installed. Looks at the disk."""
        session, other = self.session, self._other
        chosen = resolve(other.name, session.cwd)
        if chosen is None:
            raise AgentError("spawn", f"there is no agent {other.name!r} in the catalogue")
        is_in_process = chosen.form == "native" and ENTRIES[chosen.entry.native or ""].program is None
        agent = connect_bare(
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
        options = OpeningOptions(cwd=self.session.cwd, permissions=RelayPolicy(self.guard))
        if agent.confinement is not None:
            # It would ask nobody: whatever its profile says, it looks and changes nothing.
            return await agent.new(cwd=self.session.cwd, permissions="allow-reads")
        if len(self.session.roots) > 1 and agent.offers(ADDITIONAL_DIRECTORIES):
            options["additional_directories"] = self.session.roots[1:]
        if other.mcp:
            configured = merge_servers(self.session.project.mcp_servers, ())
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
        """Prompt the agent and return its reply. A cancel is passed on, and it has a moment to end."""
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
        """Settle what is shown, release the terminals, and end the agent."""
        turn, self.turn = self.turn, None
        try:
            await self._shown.finish()
            if turn is not None and turn.is_alive:
                self.guard.end_turn()
                self._shown.settle("the agent has ended")
                with contextlib.suppress(RpcError):
                    await release(self)
        finally:
            self.mirror = None
            await agent.close()

    def _failed(self, error: Exception) -> TaskOutcome:
        reason = str(error)
        if isinstance(error, AgentError) and error.code == LOGIN_WANTED:
            reason = f"{reason}\nThe user has to log in first: `coupler login {self._other.name}`"
        log.warning("%s, which a task was delegated to, failed: %s", self._other.name, reason)
        reply = error.reply if isinstance(error, AgentError) else None
        said = f"\n\nBefore that it said:\n{reply.text}" if reply is not None and reply.text.strip() else ""
        kind = error.kind if isinstance(error, AgentError) else None
        return TaskOutcome(
            "failed", f"{reason}{said}", self.turns, "deadline" if kind == "deadline" else None
        )

    def _terminal(self, id: str) -> ToolCallContent:
        return Terminal(id) if id in self._shown_terminals else text_content("")

    def _overflowed(self, error: AgentError) -> None:
        if self._remote is not None:
            self._remote.end_turn(error)


async def _reply(remote: RemoteSession, words: str) -> Reply:
    return await remote.prompt(words, timeout=LONGEST_TASK)


def _environment(session: Session, own: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes to the agent's environment: the session's own, and no keys of models."""
    changes: dict[str, Any] = {
        name: value for name, value in session.env.items() if os.environ.get(name) != value
    }
    missing = {name: None for name in os.environ if name not in session.env}
    withheld = {name: None for name in session.withheld if name not in own}
    return {**changes, **missing, **withheld, DELEGATED: "1"}


class NestedMirror(TurnMirror):
    """Shows one turn of another agent in the call with the key `key`.

    Its text is output of that call, its tool calls are nested in it. Its plan, thoughts and context usage are
    not shown: the session shows those of its own agent.
    """

    def __init__(
        self,
        turn: Turn,
        calls: ToolCalls,
        key: str,
        *,
        terminal: Callable[[str], ToolCallContent],
        overflowed: Callable[[AgentError], None],
    ) -> None:
        super().__init__(turn, terminal=terminal, overflowed=overflowed)
        self.turns = 0
        """Times that the agent has begun to speak or act, at first and after its tools had ended."""
        self._model_calls = calls
        self._key = key
        self._is_in_turn = False
        self._has_spoken = False

    def settle(self, reason: str) -> None:
        """End the tool calls that the agent has left open."""
        for shown in self._calls.values():
            if self._ledger.is_open(shown.id):
                self._ledger.settle(shown.id, "failed", reason)

    def _show(self, event: Event) -> None:
        self._count(event)
        match event:
            case Content(block, "agent"):
                self._model_calls.append(self._key, block)
            case Text() | ToolCall() | Notice() | Compaction() | CompactionSummary():
                super()._show(event)
            case Thought() | Plan() | Usage() | Content():
                pass

    def _count(self, event: Event) -> None:
        is_beginning = isinstance(event, Text | Thought | Content) or (
            isinstance(event, ToolCall) and event.id not in self._calls
        )
        if is_beginning and not self._is_in_turn:
            self._is_in_turn = True
            self.turns += 1
        if isinstance(event, ToolCall) and not event.is_open:
            self._is_in_turn = False

    def _say(self, said: Text | Thought) -> None:
        message = ("agent", said.message_id, "")
        if self._has_spoken and self._message != message:
            self._model_calls.append(self._key, "\n\n")
        self._message, self._has_spoken = message, True  # type: ignore[assignment]
        self._model_calls.append(self._key, said.text)

    def _send_or_say(self, event: Notice | Compaction | CompactionSummary, gate: str, spoken: str) -> None:
        """Show a notice as text in the call: sent as one, editors would take it for the session's own."""
        if spoken:
            self._message = None
            self._say(Text(spoken))
            self._message = None

    def _show_call(self, call: ToolCall) -> None:
        super()._show_call(msgspec.structs.replace(call, meta=self._nested(call.meta)))

    def _nested(self, meta: dict[str, Any] | None) -> dict[str, Any]:
        """Return the call's `_meta` with its parent: a call of the agent's, or ours."""
        own = (meta or {}).get("coupler")
        own = own if isinstance(own, dict) else {}
        parent = own.get("parent")
        known = self.known(parent) if isinstance(parent, str) else None
        return {**(meta or {}), "coupler": {**own, "parent": known or self._model_calls.client_id(self._key)}}


class DelegatedGuard(RelayPermissions):
    """Decides what an agent may do on a delegated task: what the session allows its own agent, and no more.

    Its permission requests name it. What it does through us without a request is asked about as well, unless
    rules, choices or the mode allow it: permission to start it is no permission for what it does.
    """

    _unruled = "ask"

    def __init__(self, behind: RelayContext, name: str, denials: Sequence[Rule]) -> None:
        super().__init__(behind, denials)
        self._name = name

    async def require(self, action: Action, title: str, rules: Sequence[Rule] = ()) -> None:
        await super().require(action, f"{self._name}: {title}", rules)

    def _as_asked(self, request: PermissionRequest) -> PermissionToolCall:
        asked = super()._as_asked(request)
        return msgspec.structs.replace(asked, title=f"{self._name}: {asked.title}")


class DelegatedOffer(RelayOffer):
    """Offers an agent with a delegated task the editor's files, terminals and forms.

    Terminals only where the editor has them: other commands an agent runs in its own environment.
    """

    def __init__(
        self,
        name: str,
        editor: ClientCapabilities,
        find: Callable[[str], RelayContext | None],
        files: FileAccess | None,
    ) -> None:
        super().__init__(editor, find, files)
        self._name = name

    def capabilities(self) -> ClientCapabilities:
        has_terminals = offers(self._editor, TERMINAL)
        return msgspec.structs.replace(
            super().capabilities(), terminal=has_terminals, auth=AuthCapabilities(), meta=UNSET
        )

    def responders(self) -> Mapping[str, Responder | NotificationListener]:
        responders = dict(super().responders())
        if not offers(self._editor, TERMINAL):
            responders = {each: who for each, who in responders.items() if not each.startswith("terminal/")}
        if offers(self._editor, "elicitation"):
            responders.update(NamedQuestions(self._name, self._find).responders())
        return responders


class NamedQuestions(RelayedElicitations):
    """Passes elicitations on with the agent's name, because the user talks to another one."""

    def __init__(self, name: str, find: Callable[[str], RelayContext | None]) -> None:
        super().__init__(find)
        self._name = name

    async def _passed_on(
        self, asked: CreateFormElicitationRequest | CreateUrlElicitationRequest, relayed: RelayContext
    ) -> CreateElicitationResponse:
        worded = msgspec.structs.replace(asked, message=f"{self._name} asks: {asked.message}")
        return await super()._passed_on(worded, relayed)


class TaskOutcome(NamedTuple):
    """The result of a task: its status, and the agent's report."""

    status: TaskStatus
    text: str
    turns: int
    """Times that its model was asked; of another program, that it spoke or acted after a tool."""
    stop_reason: str | None = None

    @property
    def in_short(self) -> str:
        """The status and the turns, for the end of a title."""
        turns = f"{self.turns} turn{'' if self.turns == 1 else 's'}"
        return f"{_WORDS.get(self.status, self.status)}, {turns}"

    def for_model(self, agent: str) -> str:
        """Return what the model that has given the task reads."""
        text = self.text.strip() or SAID_NOTHING
        if len(text) > LONGEST_TEXT:
            left = len(text) - LONGEST_TEXT
            text = f"{text[:LONGEST_TEXT]}\n… ({left} characters of the report were left out)"
        if self.status == "failed":
            return f"{agent} could not carry out the task: {text}"
        note = _STOPPED.get(self.stop_reason or "")
        return text if note is None else f"{text}\n\n({note} What it says may be incomplete.)"

    def for_programs(self, agent: str) -> dict[str, Any]:
        """Return what clients get as the call's raw output."""
        return {
            "agent": agent,
            "status": self.status,
            "turns": self.turns,
            "stop_reason": self.stop_reason,
        }


class DelegatedTask(Protocol):
    """A task that an agent carries out."""

    @property
    def turns(self) -> int:
        """The number of turns that it has taken so far."""
        ...

    async def done(self, task: str) -> TaskOutcome:
        """Run the task; whatever goes wrong is an outcome, and only a cancel is raised."""
        ...

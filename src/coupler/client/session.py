"""Holds one session with an agent: sends its prompts and folds its updates into state.

`RemoteSettings` are its modes, options and model; `LateEvents` tells which updates came after their turn,
`UnnamedCalls` gives ids to tool calls that have none, and `FinishedCalls` makes sure that the end of a tool
call is told once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, json
from msgspec.structs import replace

from coupler.client.actions import input_of
from coupler.client.errors import NOT_PERMITTED, AgentError, AgentErrorKind
from coupler.client.limits import Cut, EventRecord, HeldCalls, Limits, TurnIntake
from coupler.client.observation import (
    Observers,
    OnEvent,
    PermissionDecided,
    PromptSent,
    Received,
    ToolFinished,
    TurnFinished,
    TurnSpan,
)
from coupler.client.policy import Decision, Policy
from coupler.client.prompt import (
    GRACE,
    MOST_ROUNDS,
    WITHDRAWN,
    Check,
    Goal,
    PendingDialogs,
    Prompt,
    PromptOptions,
    PromptOutcome,
    Until,
)
from coupler.client.reply import Budget, Reply, TokenReports
from coupler.events import (
    Commands,
    Content,
    Event,
    Info,
    Mode,
    Notice,
    Options,
    Plan,
    Text,
    Thought,
    ToolCall,
    Usage,
)
from coupler.events.events import OPEN_STATUSES
from coupler.events.v1_codec import from_update, tool_update_of
from coupler.mcp.tool_names import OWN_SERVER, GivenTools, name_in_id, names_in
from coupler.permission.action import Grants
from coupler.schema import v1
from coupler.schema.base import without_commands
from coupler.schema.v1 import (
    AvailableCommand,
    CancelNotification,
    CloseSessionRequest,
    CloseSessionResponse,
    ContentBlock,
    CreateTerminalRequest,
    PermissionToolCall,
    PlanEntry,
    PromptRequest,
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectGroup,
    SessionConfigSelectItem,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    SessionUpdate,
    SetSessionConfigBooleanRequest,
    SetSessionConfigOptionResponse,
    SetSessionConfigSelectRequest,
    SetSessionModeRequest,
    SetSessionModeResponse,
    TextContent,
    ToolCallUpdate,
)
from coupler.schema.v1 import Content as ToolContent
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.client.agent_profile import AgentProfile
    from coupler.client.connection import ClientConnection
    from coupler.client.quirks import Quirks
    from coupler.client.terminals import ClientTerminal
    from coupler.client.tools import ClientTools
    from coupler.permission.rules import Rule


class RemoteSession:
    """One session with an agent. Updates are applied whether a prompt runs or not."""

    def __init__(
        self,
        connection: ClientConnection,
        id: str,
        cwd: str,
        policy: Policy,
        *,
        roots: Sequence[str] = (),
        servers: Sequence[str] = (),
        quirks: Quirks,
        observers: Observers,
        profile: AgentProfile | None = None,
        preface: str | None = None,
        budget: Budget | None = None,
        token_reports: TokenReports | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Prepare a session; `preface` is the text of the profile that goes before its first prompt.

        `token_reports` are those of the same session before, or that it had one.
        """
        self._profile = profile
        self._preface = preface
        self.id = id
        self.cwd = cwd
        self.roots: tuple[str, ...] = (cwd, *roots)
        self.policy = policy
        self.budget = budget
        """The budget of its prompts that have none of their own."""
        self.meta: Mapping[str, Any] | None = None
        """The `_meta` of the answer that opened the session."""
        self.title: str | None = None
        self.settings = RemoteSettings()
        self.plan: tuple[PlanEntry, ...] = ()
        self.usage: Usage | None = None
        self.commands: tuple[AvailableCommand, ...] = ()
        self.tool_calls: dict[str, ToolCall] = {}
        self.terminals: dict[str, ClientTerminal] = {}
        self.questions = PendingDialogs(connection.peer.start)
        self.grants = Grants()
        """The actions that were allowed in the running turn."""
        self.tools: ClientTools | None = None
        self._servers = tuple(servers)
        self._connection = connection
        self._quirks = quirks
        self._observers = observers
        self.limits = limits or Limits()
        """The limits on what the agent can make us hold of the session."""
        self._intake = TurnIntake(self.limits)
        self._held_calls = HeldCalls(self.limits.held_bytes)
        self._record = EventRecord(self.limits.held_bytes)
        self._late_events = LateEvents(is_ordered=quirks.is_ordered)
        self._unnamed_calls = UnnamedCalls()
        self.token_reports = token_reports or TokenReports(quirks.sums_tokens)
        self._prompt: Prompt | None = None
        self._span: TurnSpan | None = None
        self._is_closed = False
        self._has_ended = False
        self._awaits_room: asyncio.Task[None] | None = None
        self._finished_calls = FinishedCalls()
        self._at_end: list[Callable[[], Coroutine[Any, Any, None]]] = []

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the agent's profile, which hold besides the policy."""
        return () if self._profile is None else self._profile.rules

    @property
    def mode(self) -> str | None:
        """The current mode."""
        return self.settings.mode

    @property
    def model(self) -> str | None:
        """The current model, if the agent reports it."""
        return self.settings.model

    @property
    def record(self) -> tuple[Received, ...]:
        """The events since the session was opened, including late ones: the newest `limits.held_bytes`."""
        return tuple(Received(self.id, event, late) for event, late in self._record.entries())

    @property
    def cut(self) -> Cut | None:
        """Counts what was left out of the last turn because it was over a limit; None if nothing was."""
        return self._intake.cut

    @property
    def given_tools(self) -> GivenTools:
        """The MCP servers and Python functions that the session was given."""
        if self.tools is None:
            return GivenTools(self._servers)
        servers = (*self._servers, self.tools.server)
        # A server of the user's that has the name keeps it.
        numbered = (f"{OWN_SERVER}-{number}" for number in range(2, len(servers) + 2))
        free = next(name for name in (OWN_SERVER, *numbered) if name not in self._servers)
        return GivenTools(servers, self.tools.server, free, self.tools.parameters())

    @property
    def is_over(self) -> bool:
        """True if the agent of this session has ended."""
        return self._connection.is_over

    @property
    def has_ended(self) -> bool:
        """True if the session's resources are being closed: nothing more can be opened for it."""
        return self._has_ended

    @property
    def is_prompted(self) -> bool:
        """True if a prompt runs."""
        return self._prompt is not None

    @property
    def is_cancelled(self) -> bool:
        """True if the running turn was cancelled: its permission requests are answered as cancelled."""
        return self._prompt is not None and self._prompt.is_cancelled

    @property
    def linger(self) -> float:
        """Seconds of silence after the answer that end a turn."""
        return self._quirks.linger

    def prompt(
        self,
        content: str | Sequence[str | ContentBlock],
        *,
        until: Check | None = None,
        rounds: int = MOST_ROUNDS,
        budget: Budget | None = None,
        timeout: float | None = None,
        grace: float = GRACE,
        output: Any = None,
        repairs: int | None = None,
        meta: Mapping[str, Any] | None = None,
        commands: bool = False,
    ) -> Prompt:
        """Prepare a prompt: await it (the reply), iterate it (the events) or enter it (leaving it cancels).

        `until` checks each reply and may send the agent back to work, at most `rounds` times in all. After
        `timeout` seconds, or when the `budget` is spent, the turn is cancelled; an agent that has not ended
        it after `grace` more seconds is ended itself. One that ignores another cancel for so long is given
        up, and ended if it still speaks. The error then has the partial reply. Without a
        `budget` the session's holds. `output` is the type of the answer, or its JSON Schema: the reply's
        `output` is a value of it. An answer that does not fit is sent back, at most `repairs` times (2 by
        default). `meta` is the `_meta` of the request, for agents that know more than the protocol. With
        `commands` a person has typed the prompt: otherwise it is data, and Coupler's coder gives it to its
        model also if it begins like a slash command.
        """
        pieces = [content] if isinstance(content, str) else content
        blocks = tuple(TextContent(piece) if isinstance(piece, str) else piece for piece in pieces)
        if not commands and _begins_with_slash(blocks):
            meta = without_commands(meta)
        blocks = self._with_preface(blocks)
        budget = self.budget if budget is None else budget
        goals: list[Goal] = []
        if output is not None:
            from coupler.client.output import MOST_REPAIRS, OutputGoal  # most prompts ask for none

            if repairs is not None:
                rounds = max(rounds, repairs + 1)
            goals.append(OutputGoal(output, self, rounds, MOST_REPAIRS if repairs is None else repairs))
        if until is not None:
            goals.append(Until(until))
        return Prompt(self, blocks, PromptOptions(tuple(goals), rounds, budget, timeout, grace, meta))

    async def cancel(self) -> None:
        """Cancel the running turn, if there is one, and wait until it has ended."""
        if self._prompt is not None:
            await self._prompt.cancel()

    async def set_mode(self, mode: str) -> None:
        """Change the mode. The error for a mode that is not offered lists those that are."""
        mode = self.settings.chosen_mode(mode)
        if not self.settings.modes and (option := self.settings.mode_option) is not None:
            await self.set_option(option.id, mode)
            return
        await self._set("session/set_mode", SetSessionModeRequest(self.id, mode), SetSessionModeResponse)
        self.settings.mode = mode

    async def set_model(self, model: str) -> None:
        """Change the model. The error for a model that is not offered lists those that are."""
        model = self.settings.chosen_model(model, self._quirks)
        if (option := self.settings.model_option) is not None:
            await self.set_option(option.id, model)
            return
        # Agents of before models were options.
        await self._set("session/set_model", {"sessionId": self.id, "modelId": model}, dict)
        self.settings.model_was_set(model)

    async def set_option(self, id: str, value: str | bool) -> None:
        """Change a config option. The error for a value that is not offered lists those that are."""
        chosen = self.settings.chosen_value(id, value)
        request = (
            SetSessionConfigBooleanRequest(self.id, id, chosen)
            if isinstance(chosen, bool)
            else SetSessionConfigSelectRequest(self.id, id, chosen)
        )
        answer = await self._set("session/set_config_option", request, SetSessionConfigOptionResponse)
        self.settings.options = tuple(answer.config_options)

    async def close(self) -> None:
        """Close the session, if the agent supports it, and everything that was opened for it here."""
        await self.cancel()
        await self.end_belongings()
        self._is_closed = True
        try:
            if not self.is_over and self._connection.offers("sessionCapabilities.close"):
                await self._set("session/close", CloseSessionRequest(self.id), CloseSessionResponse)
        finally:
            self._connection.sessions.pop(self.id, None)

    def on_event(self, observer: OnEvent) -> Callable[[], None]:
        """Call a function for every event from now on; call what is returned to stop that."""
        self._observers.add(observer)
        return lambda: self._observers.remove(observer)

    def at_end(self, clean_up: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Register a function to await when the session is closed or its agent ends."""
        self._at_end.append(clean_up)

    def _with_preface(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        first = blocks[0].text if blocks and isinstance(blocks[0], TextContent) else None
        if self._preface is None or (first is not None and first.startswith("/")):
            return blocks  # a slash command is one only at the beginning of a prompt
        preface, self._preface = self._preface, None
        if first is None:
            return (TextContent(preface), *blocks)
        return (TextContent(f"{preface}\n\n{first}"), *blocks[1:])

    # What follows is for the parts of this layer that make up a session.

    async def refuse_denied(self, params: Any) -> None:
        """Raise RpcError for what the agent does through us without asking, if it may not."""
        if isinstance(params, CreateTerminalRequest) or self.rules or self.policy.has_rules:
            if self.is_cancelled:
                raise RpcError.because(NOT_PERMITTED, WITHDRAWN)
            await self.questions.decided(self.policy.require(self, params))

    def abandon(self) -> None:
        """Drop a session that could not be set up; the agent is told, and not waited for."""
        self._is_closed = True
        self._connection.sessions.pop(self.id, None)
        if self._connection.offers("sessionCapabilities.close"):
            self._connection.peer.ask("session/close", CloseSessionRequest(self.id), lambda answer: None)

    async def cancelled_turn_ended(self) -> None:
        """Wait for the end of a cancelled turn; a turn that goes on is not waited for."""
        while self._prompt is not None and self._prompt.is_cancelled:
            await self._prompt.cancel()

    def take_prompt(self, prompt: Prompt) -> None:
        """Make this the running prompt, which receives the session's events."""
        if self._is_closed:
            raise AgentError("closed", "this session was closed: open another one, or load it again")
        self._connection.refuse_if_over()
        if self._prompt is not None:
            raise AgentError("busy", "this session has a running prompt: await or cancel it first")
        self._prompt = prompt
        self._connection.update_reading()

    def send_prompt(
        self, prompt: Prompt, blocks: tuple[ContentBlock, ...], meta: Mapping[str, Any] | None
    ) -> bytes:
        """Send a round of the prompt, and return the request's id."""
        self._connection.refuse_unaccepted(blocks)
        self._intake.begin_turn()
        self._late_events.turn_began()
        self._finished_calls.turn_began()
        self._record.close_text()
        self._observers.notice(PromptSent(self.id, blocks))
        request = PromptRequest(self.id, blocks, meta=meta or UNSET)
        self._span = self._connection.telemetry.turn(self.id, self.model, self._span)
        if self._span is not None:
            request = self._span.carried_by(request)
        return self._connection.peer.ask("session/prompt", request, prompt.accept_answer)

    def send_cancel(self) -> None:
        """Tell the agent to stop, and withdraw the dialogs that are open."""
        self._connection.update_reading()
        self._connection.peer.notify("session/cancel", CancelNotification(self.id))
        self.questions.withdraw()
        if self._awaits_room is not None:
            self._awaits_room.cancel()
        if self.tools is not None:
            self.tools.cancel_calls()

    def give_up(self, request: bytes, *, kill: bool) -> None:
        """Stop waiting for a prompt's answer.

        With `kill`, or if the agent did not stop to speak, it is ended, if no other session needs it.
        """
        self._connection.peer.give_up(request)
        self._connection.has_ignored_cancel = True
        others = (session for session in self._connection.sessions.values() if session is not self)
        if (kill or self._intake.ignores_cancel) and not any(session.is_prompted for session in others):
            self._connection.kill_soon()

    def hold_back(self, prompt: Prompt) -> None:
        """Let the agent wait: too much of what it said in this prompt's turn is not read."""
        self._connection.hold_back(prompt, self)

    def hold_back_until(self, room: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let the agent wait until there is room for what it says, or its turn is cancelled."""
        if self._awaits_room is None and not self.is_cancelled and not self.is_over:
            self._awaits_room = self.start(room())
            self._connection.hold_back(self)
            self._awaits_room.add_done_callback(self._has_room)

    def _has_room(self, awaited: asyncio.Task[None]) -> None:
        self._awaits_room = None
        self._connection.let_go_on(self)

    def let_go_on(self, prompt: Prompt) -> None:
        """Let the agent go on, as far as this prompt is concerned."""
        self._connection.let_go_on(prompt)

    def prompt_ended(self, prompt: Prompt) -> None:
        """Make room for the next prompt."""
        if self._prompt is prompt:
            self._prompt = self._span = None
            self._connection.let_go_on(prompt)
            self.grants.clear()
            self._late_events.turn_ended()
            if self.tools is not None:
                self.tools.expect(None)

    def turn_ended(self, outcome: PromptOutcome) -> None:
        """Tell observers that a round of the prompt is over."""
        self._late_events.round_ended()
        if isinstance(outcome, Reply):
            self._observers.notice(TurnFinished(self.id, outcome))
        else:
            reply = outcome.reply if isinstance(outcome, AgentError) else None
            self._observers.notice(TurnFinished(self.id, reply, outcome))

    @property
    def span(self) -> TurnSpan | None:
        """The telemetry span of the running turn."""
        return self._span

    def may_refuse_mode(self, mode: str) -> bool:
        """Return whether this agent may refuse a mode without an error."""
        return self._quirks.may_refuse_mode(mode)

    def is_failure(self, reply: Reply) -> bool:
        """Return whether this reply counts as a failure of the agent."""
        return self._quirks.is_failure(reply)

    async def silence(self) -> None:
        """Wait until no update has come for `linger` seconds."""
        await self._late_events.silence(self.linger)

    async def late_text_ended(self) -> None:
        """Wait a moment before the next prompt, if the agent is one whose text comes late."""
        await self._late_events.ended()

    @property
    def awaits_tools(self) -> bool:
        """True if the agent is to be told our tools before the next prompt is sent."""
        return (
            self.tools is not None
            and not self.tools.are_told
            and self._connection.asks_for_tools
            and self._quirks.tools_wait > 0
        )

    async def tools_told(self) -> None:
        """Wait until the agent was told our tools, but not for long: some agents never ask."""
        if self.tools is not None and not await self.tools.told(self._quirks.tools_wait):
            self._connection.asks_for_tools = False

    def refuse_if_over(self) -> None:
        """Raise if nothing can be sent to the agent any more."""
        self._connection.refuse_if_over()

    async def room(self) -> None:
        """Wait until the agent has read enough for a long answer to be sent."""
        await self._connection.room()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in a task that ends with the connection."""
        return self._connection.peer.start(work)

    def update_received(self, update: SessionUpdate, size: int) -> None:
        """Fold an update of `size` bytes into the state and hand it to the running prompt, within limits."""
        if self.is_cancelled and not self._intake.takes_after_cancel(size):
            return
        event = from_update(update, self.tool_calls)
        if isinstance(event, ToolCall) and not event.id:
            if self._intake.has_no_room:
                self._intake.leave_out("items", updates=1)
                return
            event = self._unnamed_calls.named(update, self.tool_calls)
        was_endless = self._intake.is_endless
        is_known = isinstance(event, ToolCall) and event.id in self.tool_calls
        taken = self._intake.taken(event, size, is_known=is_known)
        if taken is not None:
            self._take(taken, size)
        if self._intake.is_endless and not was_endless:
            self._tell_cut()

    def _take(self, event: Event, size: int) -> None:
        if isinstance(event, Text | Thought):  # nearly all of a stream
            late = self._late_events.is_late_text(event)
            self._record.add_text(event, late)
        else:
            late = self._late_events.is_late(event)
            self._fold(event)
            weight = self._hold(event, size) if isinstance(event, ToolCall) else size
            self._record.add(event, late, weight)
        if self._prompt is not None and not late:
            self._prompt.accept(event, size)
            if self._span is not None:
                self._span.see(event)
        if self._observers:
            self._observers.notice(Received(self.id, event, late))
        if isinstance(event, ToolCall):
            self._call_received(event)

    def _hold(self, call: ToolCall, size: int) -> int:
        """Hold a tool call, and drop the oldest for it if all are too much; returns what it weighs."""
        weight = self._held_calls.weigh(call, size)
        for dropped in self._held_calls.excess():
            self.tool_calls.pop(dropped, None)
            self._finished_calls.forget(dropped)
            if self._prompt is not None and self._prompt.forget_call(dropped):
                self._intake.leave_out("held_bytes", tool_calls=1)
        return weight

    def _tell_cut(self) -> None:
        """Tell everybody who looks on that what follows of the turn is not whole."""
        limit = ", ".join(self.cut.limits) if self.cut is not None else ""
        notice = Notice("warning", f"This turn is over a limit ({limit}): what is over it is left out.")
        self._record.add(notice, late=False, size=0)
        if self._prompt is not None:
            self._prompt.accept(notice, 0)
        self._observers.notice(Received(self.id, notice))

    def _call_received(self, call: ToolCall) -> None:
        if self._finished_calls.is_news(call):
            self._observers.notice(ToolFinished(self.id, call))
        elif self._prompt is not None and not call.is_open:
            self._prompt.call_reported(self._finished_calls.ours(call))

    def asked_call(self, asked: PermissionToolCall) -> ToolCall:
        """Return the tool call of a permission request, with what was reported of it before."""
        call_id = asked.tool_call_id or self._unnamed_calls.latest(self.tool_calls)
        return self.tool_calls.get(call_id, ToolCall(id=call_id)).updated(tool_update_of(asked))

    def permission_answered(self, decision: Decision) -> None:
        """Note the decision about a permission request."""
        if self._prompt is not None and (dropped := self._prompt.decided(decision)):
            self._intake.leave_out("held_bytes", permissions=dropped)
        self._observers.notice(PermissionDecided(self.id, decision))

    def fail_rejected(self, rejected: Sequence[Decision]) -> None:
        """Fail calls that were not permitted and of which the agent has said no more: its turn is over."""
        for decision in rejected:
            call = self.tool_calls.get(decision.tool_call.id)
            if call is not None and call.is_open:
                content = (*call.content, ToolContent(TextContent(decision.reason)))
                self.update_received(ToolCallUpdate(call.id, status="failed", content=content), 0)

    def bridged_call_finished(self, call: ToolCall, ids: frozenset[str]) -> None:
        """Note that a Python tool has ended; `ids` are the ids that the agent may have for the call."""
        assert self.tools is not None  # it has run the call
        if self._finished_calls.is_news_of_ours(call, ids, self.tools.server):
            self._observers.notice(ToolFinished(self.id, call, bridged=True))

    def end_turn(self, reason: Exception, *, after_call: str | None = None) -> None:
        """End the running turn: its prompt raises the reason, after everything was received.

        With `after_call`, the id of a Python tool's call, only once the agent has reported the end of that
        call, or a moment later.
        """
        if self._prompt is not None:
            self._prompt.end_with(reason, after_call=after_call)

    def failure(self, kind: AgentErrorKind, what: str, error: RpcError) -> AgentError:
        """Convert an error of the connection or of the agent to an `AgentError`."""
        return self._connection.failure(kind, what, error)

    async def with_exit_details(self, error: AgentError) -> AgentError:
        """Return the error with the exit code and stderr of the agent's process."""
        return await self._connection.with_exit_details(error)

    def disconnected(self) -> None:
        """Close what was opened for the session: its agent has ended."""
        self.questions.withdraw()
        if self._at_end:
            self.start(self.end_belongings())

    async def end_belongings(self) -> None:
        """Close everything that was opened for this session on our side."""
        self._has_ended = True
        self.questions.withdraw()
        while self._at_end:
            await self._at_end.pop()()

    async def _set(self, method: str, params: Any, type: type[Any]) -> Any:
        return await self._connection.ask("session", method, params, type)

    def _fold(self, event: Event) -> None:
        match event:
            case ToolCall():
                self.tool_calls[event.id] = event
            case Plan():
                self.plan = event.entries
            case Usage():
                self.usage = event
            case Commands():
                self.commands = event.commands
            case Mode():
                self.settings.mode = event.id
            case Options():
                self.settings.options = event.options
            case Info() if event.title is not UNSET:
                self.title = event.title


LATE_SILENCE = 0.05
"""Seconds of silence before the second prompt, and before each one once text has come late."""

LONGEST_SILENCE_WAIT = 2.0
"""Seconds after which the next prompt is sent though such an agent goes on speaking."""

MOST_UNPAIRED = 1000
"""Reported calls of a turn that the end of a Python tool's call is compared with."""

TRUE_WORDS = frozenset({"true", "on", "yes"})
FALSE_WORDS = frozenset({"false", "off", "no"})


class LegacyModel(Struct, frozen=True, rename="camel"):
    """A model as agents offered it before models were config options."""

    model_id: str
    name: str = ""


class LegacyModels(Struct, frozen=True, rename="camel"):
    """The offered models, and the current one."""

    available_models: tuple[LegacyModel, ...] = ()
    current_model_id: str | None = None


class _Opened(Struct, frozen=True):
    models: LegacyModels | None = None


class RemoteSettings:
    """The modes, config options and model of a session, as the agent reports them.

    The model is an option of the category "model". Older agents offer `models` of their own, and some have
    their modes as an option: each is set the way the agent wants it, and callers need not know.
    """

    def __init__(self) -> None:
        self.mode: str | None = None
        self.modes: tuple[SessionMode, ...] = ()
        self.options: tuple[SessionConfigOption, ...] = ()
        self.models: LegacyModels | None = None

    def opened(
        self,
        modes: SessionModeState | UnsetType | None,
        options: Sequence[SessionConfigOption] | UnsetType | None,
        answer: Raw,
    ) -> None:
        """Take over the settings from the answer that opened the session.

        `answer` may hold more than the protocol knows today, such as `models`.
        """
        if modes:
            self.modes = tuple(modes.available_modes)
            self.mode = modes.current_mode_id
        if options:
            self.options = tuple(options)
        try:
            self.models = json.decode(answer, type=_Opened).models
        except DecodeError:
            self.models = None

    @property
    def model(self) -> str | None:
        """The current model, if the agent reports it."""
        option = self.model_option
        if option is not None:
            return option.current_value
        return None if self.models is None else self.models.current_model_id

    @property
    def model_option(self) -> SessionConfigSelect | None:
        """The option that chooses the model, if there is one."""
        selects = [option for option in self.options if isinstance(option, SessionConfigSelect)]
        by_category = (option for option in selects if option.category == "model")
        by_id = (option for option in selects if option.id == "model")
        return next(by_category, next(by_id, None))

    @property
    def offered_models(self) -> tuple[str, ...]:
        """The values that the model can be set to."""
        if (option := self.model_option) is not None:
            return values_of(option.options)
        return () if self.models is None else tuple(model.model_id for model in self.models.available_models)

    @property
    def offered_modes(self) -> tuple[str, ...]:
        """The values that the mode can be set to."""
        if self.modes:
            return tuple(mode.id for mode in self.modes)
        option = self.mode_option
        return () if option is None else values_of(option.options)

    @property
    def mode_option(self) -> SessionConfigSelect | None:
        """The option that chooses the mode, of agents that have modes as an option."""
        selects = (option for option in self.options if isinstance(option, SessionConfigSelect))
        return next((option for option in selects if option.category == "mode"), None)

    @property
    def effort_option(self) -> SessionConfigSelect | None:
        """The option that chooses how much the model thinks, if there is one."""
        selects = (option for option in self.options if isinstance(option, SessionConfigSelect))
        return next((option for option in selects if option.category == "thought_level"), None)

    def model_was_set(self, model: str) -> None:
        """Note the model that an older agent has accepted; such agents do not report it."""
        if self.models is not None:
            self.models = LegacyModels(self.models.available_models, model)

    def chosen_model(self, wanted: str, quirks: Quirks) -> str:
        """Return the offered model that a name means; the error lists the offered ones."""
        offered = self.offered_models
        chosen = quirks.model_for(wanted, offered)
        if chosen is None or chosen not in offered:
            raise _not_offered("model", wanted, offered)
        return chosen

    def chosen_mode(self, wanted: str) -> str:
        """Return the mode if it is offered; the error lists the offered ones."""
        if wanted not in self.offered_modes:
            raise _not_offered("mode", wanted, self.offered_modes)
        return wanted

    def chosen_value(self, id: str, value: Any) -> str | bool:
        """Return the value for an option, in the option's type; the error lists what can be chosen."""
        option = next((option for option in self.options if _id(option) == id), None)
        match option:
            case SessionConfigBoolean():
                return _boolean(id, value)
            case SessionConfigSelect():
                offered = values_of(option.options)
                if value not in offered:
                    raise _not_offered(f"value for {id!r}", value, offered)
                return str(value)
            case _:
                raise _not_offered("option", id, tuple(filter(None, map(_id, self.options))))


def values_of(items: Sequence[SessionConfigSelectItem]) -> tuple[str, ...]:
    """Return the values of a select option, in groups or not."""
    found: list[str] = []
    for item in items:
        match item:
            case SessionConfigSelectOption(value):
                found.append(value)
            case SessionConfigSelectGroup(options=options):
                found.extend(option.value for option in options)
    return tuple(found)


def _id(option: SessionConfigOption) -> str | None:
    named = getattr(option, "id", UNSET)
    return named if isinstance(named, str) else None


def _boolean(id: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in TRUE_WORDS | FALSE_WORDS:
        return word in TRUE_WORDS
    raise _not_offered(f"value for {id!r}", value, ("true", "false"))


def _not_offered(what: str, wanted: Any, offered: Sequence[str]) -> AgentError:
    choices = f"it offers {', '.join(offered)}" if offered else "it offers none"
    return AgentError("session", f"the agent does not offer the {what} {str(wanted)!r}: {choices}")


_OF_A_TURN = (Content, ToolCall, Plan)
"""Events besides text that belong to a turn; the others report the session's state at any time."""


class LateEvents:
    """Tells which events came after the answer to their prompt, before the next prompt.

    What comes while a turn is open belongs to it. The ids of messages say nothing about that: some agents
    pass on those of their model, which may count from one in each turn. So the prompt after a turn waits for
    a moment of silence: the second of a session, and every one once text has come late.
    """

    def __init__(self, *, is_ordered: bool = False) -> None:
        """Prepare; `is_ordered` says that this agent sends nothing after its answers."""
        self._is_doubtful = not is_ordered
        """True if it may still be speaking when it answers: its text has come late, or nobody knows yet."""
        self._last = 0.0
        """The time of the last turn's end, or of the last text after it."""
        self._was_late = False
        self._has_turns = False
        self._is_in_turn = False
        self._heard: asyncio.Event | None = None

    def turn_began(self) -> None:
        """Begin a turn."""
        self._has_turns = self._is_in_turn = True

    def round_ended(self) -> None:
        """Note the agent's answer; what else comes of the prompt is still shown with it."""
        self._last = time.monotonic()

    def turn_ended(self) -> None:
        """End the turn: content that comes from now on is late."""
        self._is_in_turn = False
        self._last = time.monotonic()

    async def ended(self) -> None:
        """Wait until an agent that may be late has been silent for a moment after its last answer."""
        if not self._has_turns or not self._is_doubtful:
            return
        if (left := self._last + LATE_SILENCE - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_SILENCE_WAIT):
                    await self.silence(left)
        self._is_doubtful = self._was_late

    def is_late_text(self, event: Text | Thought) -> bool:
        """Return whether a chunk of text is late. Most events are text."""
        if self._heard is not None:
            self._heard.set()
        if self._is_in_turn or not self._has_turns:
            return False
        if event.text:
            self._was_late = self._is_doubtful = True
            self._last = time.monotonic()
        return True

    def is_late(self, event: Event) -> bool:
        """Return whether any other event is late. A tool call that goes on belongs to the later turn."""
        if self._heard is not None:
            self._heard.set()
        return self._has_turns and not self._is_in_turn and isinstance(event, _OF_A_TURN)

    async def silence(self, seconds: float) -> None:
        """Wait until nothing has come for this many seconds."""
        self._heard = asyncio.Event()
        try:
            while True:
                self._heard.clear()
                async with asyncio.timeout(seconds):
                    await self._heard.wait()
        except TimeoutError:
            return
        finally:
            self._heard = None


class UnnamedCalls:
    """Gives ids to the tool calls of agents that send an empty one, which would all be one call."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def named(self, update: SessionUpdate, calls: Mapping[str, ToolCall]) -> Event:
        """Return the event of an update without an id. Results are taken to come in the order of calls."""
        assert isinstance(update, v1.ToolCall | v1.ToolCallUpdate)
        call_id = ""
        if isinstance(update, v1.ToolCallUpdate):
            call_id = next((each for each in self._ids if each in calls and calls[each].is_open), "")
            if not call_id and update.status not in OPEN_STATUSES and self._ids:
                call_id = self._ids[-1]
        return from_update(replace(update, tool_call_id=call_id or self._new_id()), calls)

    def latest(self, calls: Mapping[str, ToolCall]) -> str:
        """Return the id of the call that was announced last, and is open; a new one if there is none."""
        last = self._ids[-1] if self._ids else ""
        return last if last and (last not in calls or calls[last].is_open) else self._new_id()

    def _new_id(self) -> str:
        self._ids.append(f"unnamed_{len(self._ids) + 1}")
        return self._ids[-1]


class FinishedCalls:
    """Reports the end of each tool call once, whoever tells it first and however often.

    A call of a Python tool is known twice: to us, who ran it, and to the agent, which reports it by its own
    id. Some agents tell us that id; for the others the two are paired within a turn, by name, input and
    order.
    """

    def __init__(self) -> None:
        self._reported: set[str] = set()
        self._ours: dict[str, str] = {}
        """The ids of our own calls, by each id that the agent may know them by."""
        self._unpaired: list[ToolCall] = []
        """Our own calls of this turn that the agent has not reported yet, oldest first."""
        self._unpaired_reports: deque[ToolCall] = deque(maxlen=MOST_UNPAIRED)
        self._server = OWN_SERVER

    def forget(self, id: str) -> None:
        """Forget a call that is held no longer."""
        self._reported.discard(id)
        self._ours.pop(id, None)

    def turn_began(self) -> None:
        """Forget unpaired calls: those of an earlier turn are never paired."""
        self._unpaired.clear()
        self._unpaired_reports.clear()

    def is_news(self, call: ToolCall) -> bool:
        """Return whether the agent reports the end of a call that was not known yet."""
        if call.is_open:
            self._reported.discard(call.id)
            return False
        if call.id in self._reported:
            return False
        self._reported.add(call.id)
        if call.id in self._ours:
            self._unpaired = [each for each in self._unpaired if each.id != self._ours[call.id]]
            return False
        for own in self._unpaired:
            if _is_report_of(call, own, self._server):
                self._unpaired.remove(own)
                self._ours[call.id] = own.id
                return False
        # Only who called what is compared: what it has shown is not to be held by this.
        self._unpaired_reports.append(replace(call, content=(), raw_output=None))
        return True

    def is_news_of_ours(self, call: ToolCall, ids: frozenset[str], server: str) -> bool:
        """Return whether the end of a Python tool's call was not known yet.

        The agent may have any of these ids for it; `server` is the name of the MCP server that has the tool.
        """
        self._server = server
        self._ours.update(dict.fromkeys(ids, call.id))
        if not self._reported.isdisjoint(ids):
            return False
        for report in self._unpaired_reports:
            if _is_report_of(report, call, self._server):
                self._unpaired_reports.remove(report)
                self._ours[report.id] = call.id
                return False
        self._unpaired.append(call)
        return True

    def ours(self, call: ToolCall) -> str | None:
        """Return the id of the Python tool's call that the agent reports; None if it is another tool's."""
        return self._ours.get(call.id)


def _is_report_of(report: ToolCall, own: ToolCall, server: str) -> bool:
    return _is_named(report, own.title, server) and _has_input(input_of(report), own.raw_input)


def _is_named(report: ToolCall, tool: str, server: str) -> bool:
    """Return whether a reported call is one of this tool, in the spellings of different agents."""
    words = [each for each in (report.name, report.title) if each] or [name_in_id(report.id) or ""]
    names = [(name.server, name.tool) for each in words for name in names_in(each, [server])]
    return tool in words or (server, tool) in names


def _has_input(reported: object, given: object) -> bool:
    """Return whether the reported input is the given one; some agents report none, or wrap it."""
    if reported is None or reported == given:
        return True
    return isinstance(reported, dict) and (not reported or given in reported.values())


def _begins_with_slash(blocks: Sequence[ContentBlock]) -> bool:
    """Return whether the first text that is not blank begins as slash commands do."""
    texts = (block.text.strip() for block in blocks if isinstance(block, TextContent))
    return next(filter(None, texts), "").startswith("/")

"""A session with a remote agent: prompts go out, events come in and are folded into its state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coupler.client.budget import Budget
from coupler.client.errors import AgentError, Kind
from coupler.client.finished import FinishedCalls
from coupler.client.lateness import Lateness
from coupler.client.observation import (
    Observers,
    OnEvent,
    PermissionDecided,
    PromptSent,
    Received,
    ToolFinished,
    TurnFinished,
)
from coupler.client.policy import Decision, Policy
from coupler.client.prompt import Outcome, Prompt
from coupler.client.questions import Questions
from coupler.client.record import Record
from coupler.client.reply import Reply
from coupler.client.settings import Settings
from coupler.client.telemetry import TurnSpan
from coupler.client.terms import GRACE, MOST_ROUNDS, Check, Goal, Terms, Until
from coupler.events import Commands, Event, Info, Mode, Options, Plan, Text, Thought, ToolCall, Usage
from coupler.events.v1_codec import from_update
from coupler.schema.v1 import (
    AvailableCommand,
    CancelNotification,
    CloseSessionRequest,
    CloseSessionResponse,
    ContentBlock,
    PlanEntry,
    PromptRequest,
    SessionUpdate,
    SetSessionConfigBooleanRequest,
    SetSessionConfigOptionResponse,
    SetSessionConfigSelectRequest,
    SetSessionModeRequest,
    SetSessionModeResponse,
    TextContent,
)
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.client.connection import Connection
    from coupler.client.quirks import Quirks
    from coupler.client.terminals import Terminal
    from coupler.client.tools import SessionTools


class RemoteSession:
    """One conversation. Everything an agent reports is folded in here, prompt or no prompt."""

    def __init__(
        self,
        connection: Connection,
        id: str,
        cwd: str,
        policy: Policy,
        *,
        roots: Sequence[str] = (),
        quirks: Quirks,
        observers: Observers,
    ) -> None:
        self.id = id
        self.cwd = cwd
        self.roots: tuple[str, ...] = (cwd, *roots)
        self.policy = policy
        self.title: str | None = None
        self.settings = Settings()
        self.plan: tuple[PlanEntry, ...] = ()
        self.usage: Usage | None = None
        self.commands: tuple[AvailableCommand, ...] = ()
        self.tool_calls: dict[str, ToolCall] = {}
        self.terminals: dict[str, Terminal] = {}
        self.questions = Questions(connection.peer.start)
        self.tools: SessionTools | None = None
        self._connection = connection
        self._quirks = quirks
        self._observers = observers
        self._record = Record(id)
        self._lateness = Lateness()
        self._prompt: Prompt | None = None
        self._span: TurnSpan | None = None
        self._is_closed = False
        self._has_ended = False
        self._finished = FinishedCalls()
        self._at_end: list[Callable[[], Coroutine[Any, Any, None]]] = []

    @property
    def mode(self) -> str | None:
        """The mode that the session is in."""
        return self.settings.mode

    @property
    def model(self) -> str | None:
        """The model in use, if the agent tells."""
        return self.settings.model

    @property
    def record(self) -> tuple[Received, ...]:
        """All that the agent has reported since the session was opened, also what came late."""
        return self._record.entries()

    @property
    def is_over(self) -> bool:
        """Whether the agent that held this session is gone."""
        return self._connection.is_over

    @property
    def has_ended(self) -> bool:
        """Whether what belongs to this session is being ended: nothing more can be opened for it."""
        return self._has_ended

    @property
    def is_cancelled(self) -> bool:
        """Whether a turn runs that was cancelled: what it asks for has been decided."""
        return self._prompt is not None and self._prompt.is_cancelled

    @property
    def linger(self) -> float:
        """Seconds of silence that end a turn after its answer."""
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
    ) -> Prompt:
        """A prompt, to be awaited (the reply), iterated (the events) or entered (leaving it cancels).

        `until` looks at each reply and may send the agent back to work, for as many `rounds` as are allowed.
        After `timeout` seconds, or when the `budget` is spent, the turn is cancelled; an agent that has not
        ended it after `grace` more seconds is ended itself. The error then has what came.
        `output` is the type of the answer, or its JSON Schema: the reply's `output` is a value of it. An
        answer that does not fit is sent back, `repairs` times at most (2, unless it is said).
        """
        pieces = [content] if isinstance(content, str) else content
        blocks = tuple(TextContent(piece) if isinstance(piece, str) else piece for piece in pieces)
        goals: list[Goal] = []
        if output is not None:
            from coupler.client.output import MOST_REPAIRS, Output  # most prompts ask for none

            if repairs is not None:
                rounds = max(rounds, repairs + 1)
            goals.append(Output(output, self, rounds, MOST_REPAIRS if repairs is None else repairs))
        if until is not None:
            goals.append(Until(until))
        return Prompt(self, blocks, Terms(tuple(goals), rounds, budget, timeout, grace))

    async def cancel(self) -> None:
        """Cancel the running turn, if there is one, and wait until it has ended."""
        if self._prompt is not None:
            await self._prompt.cancel()

    async def set_mode(self, mode: str) -> None:
        """Change the mode. One that is not offered is an error that lists those that are."""
        mode = self.settings.chosen_mode(mode)
        if not self.settings.modes and (option := self.settings.mode_option) is not None:
            await self.set_option(option.id, mode)
            return
        await self._set("session/set_mode", SetSessionModeRequest(self.id, mode), SetSessionModeResponse)
        self.settings.mode = mode

    async def set_model(self, model: str) -> None:
        """Change the model. One that is not offered is an error that lists those that are."""
        model = self.settings.chosen_model(model, self._quirks)
        if (option := self.settings.model_option) is not None:
            await self.set_option(option.id, model)
            return
        # Agents of before models were options.
        await self._set("session/set_model", {"sessionId": self.id, "modelId": model}, dict)
        self.settings.model_was_set(model)

    async def set_option(self, id: str, value: str | bool) -> None:
        """Change an option. A value that is not offered is an error that lists those that are."""
        chosen = self.settings.chosen_value(id, value)
        request = (
            SetSessionConfigBooleanRequest(self.id, id, chosen)
            if isinstance(chosen, bool)
            else SetSessionConfigSelectRequest(self.id, id, chosen)
        )
        answer = await self._set("session/set_config_option", request, SetSessionConfigOptionResponse)
        self.settings.options = tuple(answer.config_options)

    async def close(self) -> None:
        """End the session, where the agent can; what was opened for it here is ended in any case."""
        await self.cancel()
        await self.end_belongings()
        self._is_closed = True
        try:
            if not self.is_over and self._connection.offers("sessionCapabilities.close"):
                await self._set("session/close", CloseSessionRequest(self.id), CloseSessionResponse)
        finally:
            self._connection.sessions.pop(self.id, None)

    def on_event(self, observer: OnEvent) -> Callable[[], None]:
        """Let a function see everything from now on; call what is returned to end that."""
        self._observers.add(observer)
        return lambda: self._observers.remove(observer)

    def at_end(self, clean_up: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What to do when the session is closed or its agent ends."""
        self._at_end.append(clean_up)

    # What follows is for the parts of this layer that make up a session.

    def abandon(self) -> None:
        """Nobody will have this session; the agent is told, and not waited for."""
        self._is_closed = True
        self._connection.sessions.pop(self.id, None)
        if self._connection.offers("sessionCapabilities.close"):
            self._connection.peer.ask("session/close", CloseSessionRequest(self.id), lambda answer: None)

    async def cancelled_turn_ended(self) -> None:
        """Wait for the end of a turn that was cancelled or left; one that goes on is not waited for."""
        while self._prompt is not None and self._prompt.is_cancelled:
            await self._prompt.cancel()

    def take_prompt(self, prompt: Prompt) -> None:
        """From now on this session's events are the prompt's."""
        if self._is_closed:
            raise AgentError("closed", "this session was closed: open another one, or load it again")
        self._connection.refuse_if_over()
        if self._prompt is not None:
            raise AgentError("busy", "this session has a running prompt: await or cancel it first")
        self._prompt = prompt

    def send_prompt(self, prompt: Prompt, blocks: tuple[ContentBlock, ...]) -> bytes:
        """Send a round of the prompt, and return the request's id."""
        self._connection.refuse_unaccepted(blocks)
        self._lateness.turn_began()
        self._finished.turn_began()
        self._record.close_text()
        self._observers.notice(PromptSent(self.id, blocks))
        request = PromptRequest(self.id, blocks)
        self._span = self._connection.telemetry.turn(self.id, self.model, self._span)
        if self._span is not None:
            request = self._span.carried_by(request)
        return self._connection.peer.ask("session/prompt", request, prompt.accept_answer)

    def send_cancel(self) -> None:
        """Tell the agent to stop, and withdraw the dialogs that are open."""
        self._connection.peer.notify("session/cancel", CancelNotification(self.id))
        self.questions.withdraw()
        if self.tools is not None:
            self.tools.cancel_calls()

    def give_up(self, request: bytes, *, kill: bool) -> None:
        """Nobody waits any longer for the answer to a prompt; the agent is ended if nobody else needs it."""
        self._connection.peer.give_up(request)
        others = (session for session in self._connection.sessions.values() if session is not self)
        if kill and not any(session._prompt for session in others):
            self._connection.kill_soon()

    def prompt_ended(self, prompt: Prompt) -> None:
        """The session can take the next prompt."""
        if self._prompt is prompt:
            self._prompt = self._span = None
            self._lateness.turn_ended()
            if self.tools is not None:
                self.tools.expect(None)

    def turn_ended(self, outcome: Outcome) -> None:
        """A round of the prompt is over."""
        if isinstance(outcome, Reply):
            self._observers.notice(TurnFinished(self.id, outcome))
        else:
            reply = outcome.reply if isinstance(outcome, AgentError) else None
            self._observers.notice(TurnFinished(self.id, reply, outcome))

    @property
    def span(self) -> TurnSpan | None:
        """What is traced of the running turn."""
        return self._span

    def may_refuse_mode(self, mode: str) -> bool:
        """Whether this agent may refuse a mode without that being an error."""
        return self._quirks.may_refuse_mode(mode)

    def is_failure(self, reply: Reply) -> bool:
        """Whether the agent hides a failure behind this reply."""
        return self._quirks.is_failure(reply)

    async def silence(self) -> None:
        """Wait until nothing has come for as long as this agent's content may be late."""
        await self._lateness.silence(self.linger)

    async def room(self) -> None:
        """Wait until there is room for a long answer to what the agent asks."""
        await self._connection.room()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that ends with the connection."""
        return self._connection.peer.start(work)

    def update_received(self, update: SessionUpdate, size: int) -> None:
        """Fold an update into the state and hand it to the running prompt."""
        event = from_update(update, self.tool_calls)
        if isinstance(event, Text | Thought):  # nearly all of a stream
            late = self._lateness.is_late_text(event)
            self._record.add_text(event, late)
        else:
            late = self._lateness.is_late(event)
            self._fold(event)
            self._record.add(event, late)
        if self._prompt is not None and not late:
            self._prompt.accept(event, size)
            if self._span is not None:
                self._span.see(event)
        if self._observers:
            self._observers.notice(Received(self.id, event, late))
        if isinstance(event, ToolCall):
            self._call_received(event)

    def _call_received(self, call: ToolCall) -> None:
        if self._finished.is_news(call):
            self._observers.notice(ToolFinished(self.id, call))
        elif self._prompt is not None and not call.is_open:
            self._prompt.call_reported(self._finished.ours(call))

    def permission_answered(self, decision: Decision) -> None:
        """Something that the agent asked for was decided."""
        if self._prompt is not None:
            self._prompt.decided(decision)
        self._observers.notice(PermissionDecided(self.id, decision))

    def bridged_call_finished(self, call: ToolCall, ids: frozenset[str]) -> None:
        """A tool of ours has ended; `ids` are what the agent may know the call by."""
        if self._finished.is_news_of_ours(call, ids):
            self._observers.notice(ToolFinished(self.id, call, bridged=True))

    def end_turn(self, reason: Exception, *, after_call: str | None = None) -> None:
        """End the running turn: its prompt raises the reason, after everything was received.

        With `after_call`, a call of our own, once the agent has reported the end of that, or a moment later.
        """
        if self._prompt is not None:
            self._prompt.end_with(reason, after_call=after_call)

    def failure(self, kind: Kind, what: str, error: RpcError) -> AgentError:
        """An error of the connection or of the agent, in this layer's words."""
        return self._connection.failure(kind, what, error)

    async def with_last_words(self, error: AgentError) -> AgentError:
        """The error with what the agent's process left, if it died."""
        return await self._connection.with_last_words(error)

    def disconnected(self) -> None:
        """The agent is gone, and nobody needs what was opened for it."""
        self.questions.withdraw()
        if self._at_end:
            self.start(self.end_belongings())

    async def end_belongings(self) -> None:
        """End what was opened for this session on our side."""
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

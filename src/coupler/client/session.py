"""A session with a remote agent: prompts go out, events come in and are folded into its state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from coupler.client.errors import AgentError, Kind
from coupler.client.policy import PermissionRequest, Policy
from coupler.client.prompt import Prompt
from coupler.events import Commands, Event, Info, Mode, Plan, Text, Thought, ToolCall, Usage
from coupler.events.v1 import from_update, patch_of
from coupler.schema.v1 import (
    AvailableCommand,
    CancelledPermissionOutcome,
    CancelNotification,
    ContentBlock,
    PlanEntry,
    PromptRequest,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SessionUpdate,
    TextContent,
)
from coupler.wire.errors import CANCELLED, INTERNAL_ERROR, RpcError
from coupler.wire.request import Request

if TYPE_CHECKING:
    from coupler.client.remote import RemoteAgent

WITHDRAWN = RequestPermissionResponse(CancelledPermissionOutcome())


class RemoteSession:
    """One conversation. Everything an agent reports is folded in here, prompt or no prompt."""

    def __init__(self, agent: RemoteAgent, id: str, cwd: str, policy: Policy) -> None:
        self.id = id
        self.cwd = cwd
        self.title: str | None = None
        self.mode: str | None = None
        self.plan: tuple[PlanEntry, ...] = ()
        self.usage: Usage | None = None
        self.commands: tuple[AvailableCommand, ...] = ()
        self.tool_calls: dict[str, ToolCall] = {}
        self._agent = agent
        self._policy = policy
        self._prompt: Prompt | None = None
        self._questions: dict[Request, asyncio.Task[None] | None] = {}

    def prompt(self, content: str | Sequence[str | ContentBlock]) -> Prompt:
        """A prompt, to be awaited (the reply), iterated (the events) or entered (leaving it cancels)."""
        pieces = [content] if isinstance(content, str) else content
        blocks = (TextContent(piece) if isinstance(piece, str) else piece for piece in pieces)
        return Prompt(self, tuple(blocks))

    async def cancel(self) -> None:
        """Cancel the running turn, if there is one, and wait until it has ended."""
        if self._prompt is not None:
            await self._prompt.cancel()

    async def cancelled_turn_ended(self) -> None:
        """Wait for the end of a turn that was cancelled or left; one that goes on is not waited for."""
        while self._prompt is not None and self._prompt.is_cancelled:
            await self._prompt.cancel()

    def send_prompt(self, prompt: Prompt, blocks: tuple[ContentBlock, ...]) -> bytes:
        """Send it, and return its id; from now on this session's events are its own."""
        if self._prompt is not None:
            raise AgentError("busy", "this session has a running prompt: await or cancel it first")
        self._agent.refuse_unaccepted(blocks)
        self._prompt = prompt
        try:
            return self._agent.peer.ask(
                "session/prompt", PromptRequest(self.id, blocks), prompt.accept_answer
            )
        except BaseException:
            self._prompt = None
            raise

    def send_cancel(self) -> None:
        """Tell the agent to stop, and withdraw the dialogs that are open."""
        self._agent.peer.notify("session/cancel", CancelNotification(self.id))
        self.withdraw_questions()

    def give_up(self, request: bytes) -> None:
        """Nobody waits any longer for the answer to a prompt."""
        self._agent.peer.give_up(request)

    def withdraw_questions(self) -> None:
        """Nobody has to decide any more what the agent asked."""
        for request in [*self._questions]:
            self._withdraw(request, WITHDRAWN)

    def prompt_ended(self, prompt: Prompt) -> None:
        """The session can take the next prompt."""
        if self._prompt is prompt:
            self._prompt = None

    def update_received(self, update: SessionUpdate, size: int) -> None:
        """Fold an update into the state and hand it to the running prompt."""
        event = from_update(update, self.tool_calls)
        self._fold(event)
        if self._prompt is not None:
            self._prompt.accept(event, size)

    def permission_requested(self, request: Request, params: RequestPermissionRequest) -> None:
        """Let the policy answer; a cancel answers first."""
        if self._prompt is not None and self._prompt.is_cancelled:
            request.answer(WITHDRAWN)
            return
        call = self.tool_calls.get(params.tool_call.tool_call_id, ToolCall(id=params.tool_call.tool_call_id))
        question = PermissionRequest(call.updated(patch_of(params.tool_call)), tuple(params.options))
        self._questions[request] = None
        deciding = self._agent.peer.start(self._decide(request, question))
        if request in self._questions:  # else an eager task has answered already
            self._questions[request] = deciding
        cancelled = RpcError.because(CANCELLED, "the request was cancelled")
        request.when_cancelled(lambda: self._withdraw(request, cancelled))

    def failure(self, kind: Kind, what: str, error: RpcError) -> AgentError:
        """An error of the connection or of the agent, in this layer's words."""
        return self._agent.failure(kind, what, error)

    async def with_last_words(self, error: AgentError) -> AgentError:
        """The error with what the agent's process left, if it died."""
        return await self._agent.with_last_words(error)

    async def _decide(self, request: Request, question: PermissionRequest) -> None:
        try:
            outcome = await self._policy.answer(question)
        except asyncio.CancelledError:
            self._answer(request, WITHDRAWN)
            raise
        except Exception as error:
            # Whoever cannot decide has not allowed anything.
            message = f"the permission policy failed: {type(error).__name__}: {error}"
            self._answer(request, RpcError.because(INTERNAL_ERROR, message))
            context = {"message": "the permission policy failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        else:
            self._answer(request, RequestPermissionResponse(outcome))

    def _withdraw(self, request: Request, answer: RequestPermissionResponse | RpcError) -> None:
        deciding = self._questions.get(request)
        self._answer(request, answer)
        if deciding is not None:
            deciding.cancel()

    def _answer(self, request: Request, answer: RequestPermissionResponse | RpcError) -> None:
        """Answer a question that is still open; a policy may decide after it was withdrawn."""
        if request not in self._questions:
            return
        del self._questions[request]
        if isinstance(answer, RpcError):
            request.fail(answer)
        else:
            request.answer(answer)

    def _fold(self, event: Event) -> None:
        match event:
            case Text() | Thought():
                return
            case ToolCall():
                self.tool_calls[event.id] = event
            case Plan():
                self.plan = event.entries
            case Usage():
                self.usage = event
            case Commands():
                self.commands = event.commands
            case Mode():
                self.mode = event.id
            case Info() if event.title is not UNSET:
                self.title = event.title

"""Compaction: before the model's window is full, the earlier conversation gives way to a summary.

It happens before a model call that would come too close to the window, when a provider says that a
conversation is too long, and when the user types /compact. Users see it; the graph's state and the transcript
keep every message. This has to be the last middleware: what it counts is what the model gets.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ref

from langchain.agents.middleware.types import (
    AgentMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    hook_config,
)
from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage
from langgraph.runtime import Runtime
from langgraph.types import Command as StateChange

from coupler.agent.agent import Command, invoked
from coupler.agent.errors import describe
from coupler.coder.compaction.conversation import (
    COMPACTED,
    Compacted,
    CompactedState,
    beginning_to_summarize,
    expected_tokens,
    fitting,
    reported_tokens,
    visible_messages,
)
from coupler.coder.compaction.summary import compacted, write_summary
from coupler.coder.model.window import window_of
from coupler.langchain.current import Current, current
from coupler.langchain.errors import CONTEXT, trouble_of

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.coder")

COMMAND = Command(
    "compact", "Summarize the earlier conversation, to make room for more", hint="what to keep in mind"
)

FULL = 0.8
"""Part of the window from which on the conversation is shortened: answers need room, and counts are rough."""

KEPT = 0.2
"""Part of the window that the last messages may fill, which stay as they are."""

WORTHWHILE = 0.05
"""Part of the window that a summary has to free: with a long system prompt it might never be enough."""

NOTHING = "There is nothing to summarize yet."


class CompactionMiddleware(AgentMiddleware[CompactedState, Any, Any]):
    """Keeps one session's conversation within the window of its model.

    `model` writes summaries that are asked for by hand before the first model call.
    """

    state_schema = CompactedState

    def __init__(self, model: BaseChatModel) -> None:
        super().__init__()
        self._model = model
        self._learnt: tuple[BaseChatModel, int] | None = None
        self._failed_in: ref[Turn] | None = None

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Call the model with what it is to see, shortened before if that is too long."""
        self._model = request.model
        conversation = _Conversation(request.state, request, self._window())
        if conversation.is_full and not self._has_failed:
            await self._shorten_in_time(conversation)
        try:
            response = await handler(conversation.request)
        except Exception as error:
            if trouble_of(error) is not CONTEXT:
                raise
            response = await self._ask_again(conversation, handler, error)
        if conversation.change is None:
            return response
        return ExtendedModelResponse(response, StateChange(update={COMPACTED: conversation.change}))

    @hook_config(can_jump_to=["end"])
    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Carry out /compact, which is for us and not for the model."""
        served = current()
        typed = None if served is None or served.call_id is not None else _typed(served)
        if served is None or typed is None:
            return None
        messages = state["messages"]
        gone = [RemoveMessage(str(messages[-1].id))] if isinstance(messages[-1], HumanMessage) else []
        before = {**state, "messages": messages[:-1] if gone else messages}
        conversation = _Conversation(before, None, self._window())
        if len(conversation.messages) < 2:
            await served.turn.say(NOTHING)
            return {"messages": gone, "jump_to": "end"}
        await conversation.shorten(self._model, 0, remark=typed)
        return {"messages": gone, COMPACTED: conversation.change, "jump_to": "end"}

    def _window(self) -> int:
        """The tokens that the model can read, unless its provider has shown that they are fewer."""
        window, learnt = window_of(self._model), self._learnt
        return window if learnt is None or learnt[0] is not self._model else min(window, learnt[1])

    async def _shorten_in_time(self, conversation: _Conversation) -> None:
        """Without a summary there may be room enough for once; the user was told that it failed."""
        try:
            await conversation.shorten(self._model, int(conversation.window * KEPT), WORTHWHILE)
        except Exception as error:
            log.warning("the conversation could not be summarized: %s", describe(error))
            served = current()
            self._failed_in = None if served is None else ref(served.turn)

    async def _ask_again(
        self,
        conversation: _Conversation,
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
        error: Exception,
    ) -> ModelResponse[Any]:
        """The provider knows better what is too long: shorten to less than that, and ask once more."""
        refused = conversation.tokens
        conversation.narrow(refused * 9 // 10)
        self._learnt = self._model, conversation.window
        # Of the messages alone: the system prompt and the tools stay as they are.
        keep = expected_tokens(conversation.messages) // 4
        if not await conversation.shorten(self._model, keep) and not conversation.has_shrunk(refused):
            raise error
        return await handler(conversation.request)

    @property
    def _has_failed(self) -> bool:
        """Whether the turn has seen a summary fail already: it is not tried before each call."""
        served = current()
        return served is not None and self._failed_in is not None and self._failed_in() is served.turn


class _Conversation:
    """What one model call is to see, and how it is made shorter."""

    def __init__(self, state: Mapping[str, Any], request: ModelRequest[Any] | None, window: int) -> None:
        self.window = window
        self.change: Compacted | None = None
        """What has to be written into the state."""
        self._state = state
        self._request = request

    @cached_property
    def messages(self) -> list[AnyMessage]:
        """What the model sees."""
        # Other middleware may have changed what the state has.
        messages = self._request.messages if self._request is not None else self._state["messages"]
        return fitting(visible_messages({"messages": messages, COMPACTED: self._compacted}), self.window)

    @property
    def request(self) -> ModelRequest[Any]:
        """The model call with these messages."""
        assert self._request is not None, "this is asked for while a model is called"
        return self._request.override(messages=self.messages)

    @cached_property
    def tokens(self) -> int:
        """How many there are."""
        return max(self._expected, reported_tokens(self.messages, self._compacted))

    @property
    def is_full(self) -> bool:
        """Whether it comes too close to the window."""
        return self.tokens > self.window * FULL

    def narrow(self, window: int) -> None:
        """The model can read no more than this."""
        self.window = max(min(self.window, window), 1)
        self._look_again()

    def has_shrunk(self, before: int) -> bool:
        """Whether less is to be seen than there was, because the window is taken to be smaller now."""
        return self.tokens < before

    async def shorten(self, model: BaseChatModel, keep: int, worth: float = 0.0, remark: str = "") -> bool:
        """Put a summary in the place of the earlier part; False if there is none that could be shortened.

        About `keep` tokens of the last messages stay. The summary has to free the part `worth` of the window.
        """
        messages = self.messages
        # The provider's tokens are shorter or longer than those that lengths let expect.
        scale = self.tokens / max(self._expected, 1)
        earlier = messages[: beginning_to_summarize(messages, int(keep / scale))]
        least = 2 if self._compacted is not None else 1
        if len(earlier) < least or expected_tokens(earlier) * scale < self.window * worth:
            return False
        summary = await self._shown_summary(model, earlier, remark)
        last = str(self._state["messages"][-1].id)
        self.change = compacted(summary, earlier, self._compacted, self._state.get("todos"), last)
        self._look_again()
        return True

    def _look_again(self) -> None:
        for known in ("messages", "tokens", "_expected"):
            self.__dict__.pop(known, None)

    async def _shown_summary(self, model: BaseChatModel, earlier: list[AnyMessage], remark: str) -> str:
        served = current()
        written = write_summary(model, earlier, self.window, remark)
        if served is None or served.call_id is not None:
            # What an agent in a tool call does with its own conversation is no news for the user.
            return _checked("".join([piece async for piece in written]))
        pieces: list[str] = []
        async with served.turn.compaction() as shown:
            async for piece in written:
                pieces.append(piece)
                await shown.summarize(piece)
            return _checked("".join(pieces))

    @cached_property
    def _expected(self) -> int:
        request = self._request
        if request is None:
            return expected_tokens(self.messages)
        return expected_tokens(self.messages, request.system_message, request.tools)

    @property
    def _compacted(self) -> Compacted | None:
        return self.change if self.change is not None else self._state.get(COMPACTED)


def _typed(served: Current) -> str | None:
    """What stands behind /compact, if the prompt is that."""
    typed = invoked((COMMAND,), served.turn.blocks)
    return None if typed is None else typed.arguments.strip()


def _checked(summary: str) -> str:
    if not summary.strip():
        raise ValueError("the model wrote no summary")
    return summary.strip()

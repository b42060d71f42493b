"""Asks a model again whose provider is busy or fails for a moment, and detects answers that break off.

Providers' own clients do not try again: here is the one place that does, so that users see why they wait and
for how long, and a cancel ends it. What was answered in part is never asked for again, because the user has
read it: the text is kept, and the turn ends with an error that says so.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest
from langchain_core.callbacks import BaseCallbackHandler

from coupler.agent.errors import describe
from coupler.coder.tools.outputs import one_line
from coupler.langchain.current import current
from coupler.langchain.errors import CUT_OFF, NETWORK, AnswerCutOffError, failure_kind_of, retry_after

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ModelResponse
    from langchain_core.language_models import BaseChatModel
    from langchain_core.outputs import ChatGenerationChunk

    from coupler.langchain.middleware import ModelHandler

T = TypeVar("T")

FIRST_WAIT, LONGEST_WAIT = 1.0, 20.0
"""Seconds before the second try, and at most between two; each wait is twice the one before."""

JITTER = 0.25
"""Share of a wait by which it is longer or shorter, so that not all clients come back together."""

LONGEST_REASON = 300
"""Characters of an error in a notice."""

_ENDS = ("stop_reason", "finish_reason")
"""Keys in the metadata of an answer's last chunk."""


class AnswerProgress:
    """The progress of the answer to one model call."""

    def __init__(self) -> None:
        self.has_begun = False
        """True if anything of it has arrived."""
        self.has_text = False
        """True if text of it has been shown."""


_progress: ContextVar[AnswerProgress | None] = ContextVar("answer_progress", default=None)


class AnswerProgressCallback(BaseCallbackHandler):
    """Notes the progress of answers, for whoever may have to ask again."""

    run_inline = True

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Do nothing; without this, LangChain would convert all messages to text."""

    def on_llm_new_token(self, *_: Any, chunk: Any = None, **__: Any) -> None:
        """Note that something has come, and whether it is text."""
        progress = _progress.get()
        message = getattr(chunk, "message", None)
        if progress is None or message is None:
            return
        progress.has_begun = True
        if not progress.has_text:
            progress.has_text = bool(message.text)


class ModelRetries(AgentMiddleware[Any, Any, Any]):
    """Asks the model again for up to so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> ModelResponse[Any]:
        """Call the model, as often as it is worth it."""
        return await asked_with_retries(lambda: handler(request), self._seconds)


async def asked_with_retries(ask: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Ask a model, and again if that may help, until so many seconds after the first failure."""
    retries = _Retries(seconds)
    while True:
        progress = AnswerProgress()
        _progress.set(progress)
        try:
            return await ask()
        except Exception as error:
            failed = _as_what_it_is(error, progress)
            wait = None if progress.has_text else retries.wait_after(failed)
            if wait is None:
                if failed is error:
                    raise
                raise failed from error
            _tell(failed, error, wait)
        finally:
            _progress.set(None)
        await asyncio.sleep(wait)


class _Retries:
    """Decides how long to wait before each try."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._next = FIRST_WAIT

    def wait_after(self, error: Exception) -> float | None:
        """Return the seconds to wait before the next try; None if there is none."""
        kind = failure_kind_of(error, error)
        if kind is None or not kind.is_passing:
            return None
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        left = self._until - now
        asked_for = retry_after(error)
        if asked_for is not None:
            # Sooner would be in vain, and count against the limit.
            return asked_for if asked_for <= left else None
        if left <= 0:
            return None
        wait = self._next * random.uniform(1 - JITTER, 1 + JITTER)
        self._next = min(self._next * 2, LONGEST_WAIT)
        return min(wait, left)


def _as_what_it_is(error: Exception, progress: AnswerProgress) -> Exception:
    """Return the error of a connection that was lost in the middle of an answer as one of the answer."""
    if progress.has_begun and failure_kind_of(error, error) is NETWORK:
        return AnswerCutOffError(describe(error))
    return error


def _tell(failed: Exception, error: Exception, seconds: float) -> None:
    served = current()
    if served is None or served.when_retried is None:
        return
    reason = one_line(str(failed), LONGEST_REASON)
    told = f"({reason})" if reason else ""
    if failure_kind_of(failed, failed) is CUT_OFF:
        told = f"Nothing of it had been said. {told}".rstrip()
    served.call_on_loop(served.when_retried, seconds, failed, told)


class CompleteAnswers:
    """A mixin for chat clients that raises an error if a stream stops before the answer has ended."""

    async def _astream(self, *messages: Any, **more: Any) -> AsyncIterator[ChatGenerationChunk]:
        has_ended = False
        async for chunk in super()._astream(*messages, **more):  # type: ignore[misc]
            about = {**chunk.message.response_metadata, **(chunk.generation_info or {})}
            has_ended = has_ended or any(about.get(name) for name in _ENDS)
            yield chunk
        if not has_ended:
            raise AnswerCutOffError("the stream stopped without a stop reason")


def with_complete_answers(model: BaseChatModel) -> BaseChatModel:
    """Have a client raise an error for an answer that breaks off; LangChain takes it for a whole one."""
    kind = type(model)
    model.__class__ = type(kind.__name__, (CompleteAnswers, kind), {"__module__": kind.__module__})
    return model

"""Maps what ends a run of a graph to a stop reason, or to an error that says what to do next.

Models report the same trouble in many words. What LangChain has sorted already is taken as it is; everything
else is told by its status code or its name, because the packages of the providers may not be installed.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from langgraph.errors import GraphRecursionError

from coupler.agent.errors import TurnFailedError, describe
from coupler.langchain.current import current

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from coupler.schema.v1 import StopReason

LONGEST_RETRY_AFTER = 7 * 24 * 3600
"""Longest wish of a provider to be asked again later, in seconds; longer ones are ignored."""

CLIENT_LOGGERS = (
    "openai._base_client",
    "anthropic._base_client",
    "groq._base_client",
    "cerebras._base_client",
)
"""Loggers of providers' clients that are generated alike, and so log their retries alike."""

_RETRY = re.compile(r"Retrying request.* in ([0-9.]+) seconds")


class FailureKind(NamedTuple):
    """A kind of model failure that users can do something about."""

    kind: str
    what: str
    advice: str
    is_passing: bool
    """True if the same prompt may work later."""


RATE_LIMIT = FailureKind("rate_limit", "The model's provider limits the rate of requests", "try again", True)
QUOTA = FailureKind(
    "quota",
    "The account with the model's provider has no credit left",
    "check its plan and billing",
    False,
)
AUTH = FailureKind(
    "auth", "The model's provider refused the credentials", "check the API key of the agent", False
)
CONTEXT = FailureKind(
    "context_length",
    "The conversation is longer than the model can read",
    "begin a new session, or give the agent a middleware that summarizes",
    False,
)
NETWORK = FailureKind(
    "network", "The model could not be reached", "check the network and the address, then try again", True
)
TIMEOUT = FailureKind("timeout", "The model did not answer in time", "try again", True)
OVERLOADED = FailureKind("unavailable", "The model's provider has failed", "try again later", True)
CUT_OFF = FailureKind(
    "cut_off",
    "The model's answer broke off before its end",
    "prompt again to continue from what it had said, which is kept",
    True,
)
GARBLED = FailureKind(
    "garbled",
    "The address does not answer as a model does",
    "check the address: it must be that of the API, and not of a page or another service",
    False,
)
REFUSED = FailureKind(
    "refused", "The model's provider refused the request", "its message says why, and what to change", False
)
NO_MODEL = FailureKind(
    "no_model", "The provider has no such model", "check the name of the agent's model", False
)


TOO_LONG = FailureKind(
    "too_long",
    "The model's answer did not end and was broken off",
    "prompt again, and say what the answer is to leave out; what it had said is kept",
    False,
)


class AnswerCutOffError(Exception):
    """The stream of a model's answer ended before the answer did."""


class AnswerTooLongError(Exception):
    """A model's answer is over a limit."""


_BY_TYPE: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (AnswerTooLongError, TOO_LONG),
    (AnswerCutOffError, CUT_OFF),
    (ContextOverflowError, CONTEXT),
    (ModelRateLimitError, RATE_LIMIT),
    (ModelAuthenticationError, AUTH),
    (ModelPermissionDeniedError, AUTH),
    (ModelNotFoundError, NO_MODEL),
    (ModelTimeoutError, TIMEOUT),
    (ModelConnectionError, NETWORK),
    (ModelAPIError, OVERLOADED),
)
_BY_STATUS = {401: AUTH, 402: QUOTA, 403: AUTH, 404: NO_MODEL, 408: TIMEOUT, 413: CONTEXT, 429: RATE_LIMIT}
_BUILT_IN: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (TimeoutError, TIMEOUT),
    (ConnectionError, NETWORK),
)
"""Built-in errors that some providers' packages raise; they count only if a model raised them."""
_NOTHING_CAME = "No generations found in stream"
"""LangChain's message about an empty stream."""
_BY_NAME = {
    "AuthenticationError": AUTH,
    "PermissionDeniedError": AUTH,
    "RateLimitError": RATE_LIMIT,
    "ResourceExhausted": RATE_LIMIT,
    "APITimeoutError": TIMEOUT,
    "ReadTimeout": TIMEOUT,
    "ConnectTimeout": NETWORK,
    "APIConnectionError": NETWORK,
    "ConnectError": NETWORK,
    "ConnectionError": NETWORK,
    "EndpointConnectionError": NETWORK,
    "ReadError": NETWORK,
    "RemoteProtocolError": NETWORK,
    "APIError": OVERLOADED,
    "InternalServerError": OVERLOADED,
    "OverloadedError": OVERLOADED,
}
_BY_WORD = {
    "overloaded_error": OVERLOADED,
    "api_error": OVERLOADED,
    "server_error": OVERLOADED,
    "rate_limit_error": RATE_LIMIT,
    "rate_limit_exceeded": RATE_LIMIT,
    "billing_error": QUOTA,
    "insufficient_quota": QUOTA,
    "authentication_error": AUTH,
    "permission_error": AUTH,
    "timeout_error": TIMEOUT,
    "not_found_error": NO_MODEL,
    "context_length_exceeded": CONTEXT,
    "request_too_large": CONTEXT,
    "invalid_request_error": REFUSED,
}
"""Kinds by the names of failures after an answer has begun, which come with the status of a success."""
_SPENT = ("insufficient_quota", "credit balance is too low", "billing_hard_limit_reached")
"""Texts about an account without credit, which some providers send with the status of a rate limit."""
_TOO_LONG = ("context_length_exceeded", "maximum context length", "prompt is too long", "context window")
_NO_KEY = ("API_KEY_INVALID", "API key not valid", "API key expired")
"""Texts by which Google refuses a key, with the status of a request that is not in order."""
_FILTERED = frozenset({"content_filter", "content_policy_violation"})
"""Codes of errors by which providers refuse a prompt because of its content."""
_LIMITS = frozenset({"ModelCallLimitExceededError", "ToolCallLimitExceededError"})

_STOPS: dict[str, StopReason] = {
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "prohibited_content": "refusal",
    "blocklist": "refusal",
    "recitation": "refusal",
    "guardrail_intervened": "refusal",
    "max_turn_requests": "max_turn_requests",
}


def stop_of_error(error: BaseException) -> StopReason | None:
    """Return the stop reason that an exception stands for, if it is no failure."""
    if isinstance(error, GraphRecursionError) or type(error).__name__ in _LIMITS:
        return "max_turn_requests"
    return "refusal" if any(map(_is_filtered, _causes(error))) else None


def stop_of_message(message: BaseMessage) -> StopReason | None:
    """Return the stop reason of a model's message; None if the model simply finished."""
    metadata = message.response_metadata
    details = metadata.get("incomplete_details")
    reasons = (
        metadata.get("finish_reason"),
        metadata.get("stop_reason"),
        details.get("reason") if isinstance(details, Mapping) else None,
    )
    for reason in reasons:
        if isinstance(reason, str) and (stop := _STOPS.get(reason.lower())) is not None:
            return stop
    return "refusal" if message.additional_kwargs.get("refusal") else None


def failure_kind_of(error: BaseException, of_model: BaseException | None = None) -> FailureKind | None:
    """Return the kind of failure that an exception, or one that it came from, tells of.

    `of_model` is what a model has failed with for certain.
    """
    causes = [*_causes(error)]
    # Looked for first, because LangChain has sorted it as a rate limit.
    if any(map(_is_spent, causes)):
        return QUOTA
    # Before the error of the connection that providers' packages make of it.
    if any(isinstance(each, AnswerTooLongError) for each in causes):
        return TOO_LONG
    told = (_told_by(each, is_of_model=each is of_model) for each in causes)
    return next((trouble for trouble in told if trouble is not None), None)


def _told_by(error: BaseException, *, is_of_model: bool) -> FailureKind | None:
    if is_of_model and _is_garbled(error):
        return GARBLED
    if is_of_model and (by_word := _by_word(error)) is not None:
        return by_word
    for kind, trouble in (*_BUILT_IN, *_BY_TYPE) if is_of_model else _BY_TYPE:
        if isinstance(error, kind):
            return trouble
    if (by_status := _by_status(error)) is not None:
        return by_status
    if isinstance(error, ModelInvalidRequestError) and any(words in str(error) for words in _NO_KEY):
        return AUTH
    # Google's client tells what LangChain has sorted without the status.
    if is_of_model and (isinstance(error, ModelInvalidRequestError) or 400 <= (_status(error) or 0) < 500):
        return REFUSED
    is_built_in = type(error).__module__.partition(".")[0] == "builtins"
    return None if is_built_in else _BY_NAME.get(type(error).__name__)


def is_unreadable_prompt(error: BaseException, of_model: BaseException | None) -> bool:
    """True if the model itself failed in a way that would fail every later prompt as well."""
    if of_model is None or not any(each is of_model for each in _causes(error)):
        return False
    return failure_kind_of(error, of_model) in (None, CONTEXT, REFUSED)


def failure_of(error: BaseException, of_model: BaseException | None = None) -> TurnFailedError | None:
    """Return the answer to the prompt for a model's failure; None for what the agent's own code raised."""
    trouble = failure_kind_of(error, of_model)
    if trouble is None:
        return None
    seconds = retry_after(error)
    advice = trouble.advice if seconds is None else f"try again in {math.ceil(seconds)} seconds"
    told: dict[str, Any] = {"kind": trouble.kind, "retryable": trouble.is_passing}
    if seconds is not None:
        told["retryAfter"] = seconds
    return TurnFailedError(f"{trouble.what}: {advice}. ({describe(error)})", **told)


def retry_after(error: BaseException) -> float | None:
    """Return the seconds after which the provider wants to be asked again, if it said so."""
    for each in _causes(error):
        headers = getattr(getattr(each, "response", None), "headers", None)
        if headers is None:
            continue
        for name, read in (
            ("retry-after-ms", _milliseconds),
            ("retry-after", float),
            ("retry-after", _until),
        ):
            try:
                seconds = read(headers.get(name))
            except (TypeError, ValueError, OverflowError):
                continue
            if 0 <= seconds <= LONGEST_RETRY_AFTER:
                return seconds
    return None


def _milliseconds(text: str) -> float:
    return float(text) / 1000


def _until(date: str) -> float:
    """Seconds until a date as HTTP writes it."""
    return parsedate_to_datetime(date).timestamp() - time.time()


def is_refused_request(error: BaseException) -> bool:
    """True if a model's provider refused what it was sent, so that something else may be accepted."""
    if stop_of_error(error) is not None:
        return False
    return failure_kind_of(error, error) in (REFUSED, CONTEXT)


def _is_garbled(error: BaseException) -> bool:
    """True if a model failed because its server sent something invalid or nothing."""
    if isinstance(error, JSONDecodeError | UnicodeDecodeError):
        return True
    return isinstance(error, ValueError) and _NOTHING_CAME in str(error)


def _is_spent(error: BaseException) -> bool:
    text = f"{getattr(error, 'code', None)} {error}".lower()
    return _status(error) in (400, 429) and any(words in text for words in _SPENT)


def _is_filtered(error: BaseException) -> bool:
    if type(error).__name__ == "ContentFilterFinishReasonError":
        return True
    return _status(error) == 400 and getattr(error, "code", None) in _FILTERED


def _status(error: BaseException) -> int | None:
    is_google = type(error).__module__.partition(".")[0] == "google"
    status = getattr(error, "code" if is_google else "status_code", None)
    return status if isinstance(status, int) else None


def _by_status(error: BaseException) -> FailureKind | None:
    status = _status(error)
    if status is None:
        return None
    if status == 400 and any(words in str(error).lower() for words in _TOO_LONG):
        return CONTEXT
    return OVERLOADED if 500 <= status < 600 else _BY_STATUS.get(status)


def _by_word(error: BaseException) -> FailureKind | None:
    """Return the kind that a failure's code, type or text names, if its status does not tell."""
    if (_status(error) or 0) >= 400:
        return None
    told = f"{getattr(error, 'code', '')} {getattr(error, 'type', '')} {error}".lower()
    return next((_BY_WORD[word] for word in re.findall(r"\w+", told) if word in _BY_WORD), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def listen_for_retries() -> None:
    """Report the retries of providers' clients to the prompt that waits; once is enough.

    Those clients retry by themselves, and tell nobody but their logs. A user who waits half a minute for a
    busy provider should know why. What the clients log goes no further than before.
    """
    for name in CLIENT_LOGGERS:
        log = logging.getLogger(name)
        if not any(isinstance(each, _RetryFilter) for each in log.filters):
            log.addFilter(_RetryFilter(log.getEffectiveLevel()))
            if log.getEffectiveLevel() > logging.INFO:
                log.setLevel(logging.INFO)


class _RetryFilter(logging.Filter):
    """Reports logged retries, and passes on only what would have been logged anyway."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        prompt = current()
        if prompt is not None and prompt.when_retried is not None:
            retry = _RETRY.search(record.getMessage())
            if retry is not None:
                prompt.call_on_loop(prompt.when_retried, float(retry[1]), None, "")
        return record.levelno >= self._level

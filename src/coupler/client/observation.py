"""Tells observers, and OpenTelemetry where it is loaded, what happens in sessions.

`on_event` functions get every observation in the order in which it happened.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from coupler.__about__ import __version__
from coupler.client.errors import AgentError, EndTurn
from coupler.client.policy import Decision
from coupler.client.reply import Reply
from coupler.events import Event, ToolCall
from coupler.events.events import TurnEnded, TurnUsage
from coupler.events.json_form import JsonObject, form_of, formed, json_object
from coupler.schema.base import Extensible
from coupler.schema.v1 import ContentBlock, Implementation
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue


log = logging.getLogger("coupler.client")

OTEL_API = "opentelemetry.trace"

OTEL_PROVIDER_VARIABLE = "OTEL_PYTHON_TRACER_PROVIDER"
"""The variable that names a tracer provider: if it is set, the API is loaded here."""

TRACE_KEYS = ("traceparent", "tracestate")
"""The keys of W3C's trace context, which ACP reserves in `_meta`."""

OpenedBy: TypeAlias = Literal["new", "load", "resume", "fork"]


class SessionOpened(Struct, frozen=True):
    """A session was opened. `reason` says why it is not the one that was asked for."""

    session_id: str
    how: OpenedBy
    reason: str | None = None


class PromptSent(Struct, frozen=True):
    """A prompt was sent."""

    session_id: str
    content: tuple[ContentBlock, ...]


class Received(Struct, frozen=True):
    """An update was received. `late` says that it belongs to a turn that is over."""

    session_id: str
    event: Event
    late: bool = False


class ToolFinished(Struct, frozen=True):
    """A tool call has ended; told once for each. `bridged` if it was a Python function of ours."""

    session_id: str
    call: ToolCall
    bridged: bool = False


class PermissionDecided(Struct, frozen=True):
    """A permission request was decided."""

    session_id: str
    decision: Decision


class TurnFinished(Struct, frozen=True):
    """A turn is over; `error` is set if it failed, with the partial reply."""

    session_id: str
    reply: Reply | None
    error: BaseException | None = None


class AgentEnded(Struct, frozen=True):
    """The agent's process has ended by itself."""

    message: str


Observation: TypeAlias = (
    SessionOpened | PromptSent | Received | ToolFinished | PermissionDecided | TurnFinished | AgentEnded
)

OnEvent: TypeAlias = Callable[[Observation], object]


SESSION_OPENED = form_of(SessionOpened, "session", "session_id how reason?")
PROMPT_SENT = form_of(PromptSent, "prompt", "content")
AGENT_ENDED = form_of(AgentEnded, "agent_ended", "message")


class DecisionForm(Struct, frozen=True):
    """A permission request and its decision, as JSON has them."""

    tool_call_id: str
    title: str
    kind: str
    allowed: bool
    option: ChosenOption | None = None


class ChosenOption(Struct, frozen=True):
    """The option of a permission request that was chosen."""

    id: str
    name: str
    kind: str


DECIDED = form_of(DecisionForm, "permission", "tool_call_id title kind allowed option?")

OBSERVED_FORMS = (SESSION_OPENED, PROMPT_SENT, DECIDED, AGENT_ENDED)
"""The JSON forms of what is observed besides events."""


def observation_object(observation: Observation) -> JsonObject | None:
    """Return an observation as JSON; None for what another one tells as well."""
    match observation:
        case Received(event=event, late=late):
            told = json_object(event)
            return {**told, "late": True} if late else told
        case ToolFinished(call=call, bridged=True):
            return {**json_object(call), "bridged": True}
        case TurnFinished(reply=reply) if reply is not None:
            return json_object(TurnEnded(reply.stop_reason, reply.usage))
        case SessionOpened():
            return formed(observation, SESSION_OPENED)
        case PromptSent():
            return formed(observation, PROMPT_SENT)
        case PermissionDecided(decision=decision):
            return {"event": DECIDED.event, **permission_object(decision)}
        case AgentEnded():
            return formed(observation, AGENT_ENDED)
        case _:
            return None


def permission_object(decision: Decision) -> JsonObject:
    """Return a permission request and its decision as JSON."""
    call, option = decision.tool_call, decision.option
    chosen = None if option is None else ChosenOption(option.option_id, option.name, option.kind)
    told = formed(DecisionForm(call.id, call.title, call.kind, decision.is_allowed, chosen), DECIDED)
    del told["event"]
    return told


class Observers:
    """Calls the observers. One that fails is logged and affects no other."""

    def __init__(self, *watching: OnEvent) -> None:
        self._watching = [*watching]

    def copy(self) -> Observers:
        """Return a copy to add others to."""
        return Observers(*self._watching)

    def __bool__(self) -> bool:
        return bool(self._watching)

    def add(self, observer: OnEvent) -> None:
        """Add an observer."""
        self._watching.append(observer)

    def remove(self, observer: OnEvent) -> None:
        """Remove an observer."""
        if observer in self._watching:
            self._watching.remove(observer)

    def notice(self, observation: Observation) -> None:
        """Call all of them."""
        for observer in (*self._watching,):
            try:
                observer(observation)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                # Whatever it is, such as the failure of a test: the messages behind this one are read.
                log.exception("an observer failed")


if TYPE_CHECKING:
    Attributes: TypeAlias = dict[str, AttributeValue]


class Telemetry:
    """Makes the OpenTelemetry spans of one agent: every request, turn and tool call.

    The API is not imported here unless a provider is configured: whoever sets OpenTelemetry up loads it, and
    where it was not loaded there is nobody to report to. Names follow the conventions for generative AI where
    there are such. The words of people, models and tools are never part of a span.
    """

    def __init__(self) -> None:
        self._agent: Attributes = {}
        if OTEL_PROVIDER_VARIABLE in os.environ:
            with contextlib.suppress(ImportError):
                import_module(OTEL_API)

    def introduced(self, info: Implementation | None) -> None:
        """Note the agent's name and version from `initialize`."""
        if info is not None:
            names = {"gen_ai.agent.name": info.name, "gen_ai.provider.name": info.name}
            self._agent = {**names, "gen_ai.agent.version": info.version}

    @contextlib.contextmanager
    def request(self, method: str, params: Any) -> Iterator[Any]:
        """Trace a request of ours until its answer. Yields its parameters with the trace context."""
        if not is_telemetry_loaded():
            yield params
            return
        span = self._begin(method, "CLIENT", _of_request(method, params))
        try:
            yield with_trace_context(params, span)
        except BaseException as error:
            record_failure(span, error)
            raise
        finally:
            span.end()

    def asked(self, request: Request, params: Any, turn: TurnSpan | None) -> None:
        """Trace a request of the agent until it is answered."""
        if not is_telemetry_loaded():
            return
        context = trace_context_of(getattr(params, "meta", UNSET)) or (None if turn is None else turn.context)
        span = self._begin(request.method, "SERVER", _of_request(request.method, params), context)

        def end() -> None:
            if request.error is not None:
                _note_error(span, str(request.error.code), code=request.error.code)
            span.end()

        request.when_answered(end)

    def turn(self, session_id: str, model: str | None, before: TurnSpan | None) -> TurnSpan | None:
        """Begin the span of a turn; `before` is the earlier turn of the same prompt, if there was one."""
        if not is_telemetry_loaded():
            return None
        from opentelemetry.context import get_current

        parent = get_current() if before is None else before.parent
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": session_id,
            **_of_method("session/prompt"),
        }
        if model is not None:
            attributes["gen_ai.request.model"] = model
        name = f"invoke_agent {self._agent.get('gen_ai.agent.name', '')}".rstrip()
        return TurnSpan(self._begin(name, "CLIENT", attributes, parent), parent)

    def _begin(self, name: str, kind: str, attributes: Attributes, context: Context | None = None) -> Span:
        return _begin(name, kind, {**self._agent, **attributes}, context)


class TurnSpan:
    """The span of a turn, with those of its tool calls. Events after its end are ignored."""

    def __init__(self, span: Span, parent: Context) -> None:
        from opentelemetry.trace import set_span_in_context

        self.parent = parent
        self.context = set_span_in_context(span, parent)
        self._span = span
        self._calls: dict[str, Span] = {}
        self._ended_calls: set[str] = set()
        self._has_failed = False
        self._is_over = False

    def carried_by(self, params: Any) -> Any:
        """Return the parameters with the turn's trace context."""
        return with_trace_context(params, self._span)

    def see(self, event: Event) -> None:
        """Trace the tool calls among the turn's events."""
        if self._is_over or not isinstance(event, ToolCall) or event.id in self._ended_calls:
            return
        span = self._calls.get(event.id)
        if span is None:
            span = _begin(_tool_name(event), "INTERNAL", _of_call(event), self.context)
            self._calls[event.id] = span
        if not event.is_open:
            span.update_name(_tool_name(event))  # agents may tell only by and by what a call is
            span.set_attributes(_of_call(event))
            self._end_call(event.id, None if event.status == "completed" else event.status)

    def bridged(self, id: str, name: str) -> BridgedSpan:
        """Begin the span of a Python tool, inside of the agent's own span of the call, if there is one."""
        from opentelemetry.trace import set_span_in_context

        reported = self._calls.get(id)
        context = self.context if reported is None else set_span_in_context(reported, self.context)
        call = ToolCall(id=id, name=name)
        return BridgedSpan(_begin(_tool_name(call), "INTERNAL", _of_call(call), context), context)

    def fail(self, reason: BaseException) -> None:
        """Mark the turn as failed for this reason, whatever the agent answers."""
        self._has_failed = True
        if not isinstance(reason, EndTurn):
            record_failure(self._span, reason)

    def end(self, outcome: Reply | BaseException) -> None:
        """End the spans of the turn and its open tool calls."""
        if self._is_over:
            return
        for call in [*self._calls]:
            self._end_call(call, "unfinished")
        if isinstance(outcome, Reply):
            self._span.set_attributes(_of_reply(outcome))
        elif not self._has_failed:
            record_failure(self._span, outcome)
        self._span.end()
        self._is_over = True

    def _end_call(self, id: str, problem: str | None) -> None:
        span = self._calls.pop(id)
        self._ended_calls.add(id)
        if problem is not None:
            _note_error(span, problem)
        span.end()


class BridgedSpan:
    """The span of a running Python tool. What the tool traces itself, in `variables`, is part of it."""

    def __init__(self, span: Span, parent: Context) -> None:
        from opentelemetry.context import attach
        from opentelemetry.trace import set_span_in_context

        self.variables = contextvars.copy_context()
        self.variables.run(attach, set_span_in_context(span, parent))
        self._span = span

    def end(self, *, has_failed: bool) -> None:
        """End the span when the tool has answered."""
        if has_failed:
            _note_error(self._span, "failed")
        self._span.end()


def is_telemetry_loaded() -> bool:
    """Return whether this program has loaded OpenTelemetry's API."""
    return OTEL_API in sys.modules


def trace_context_of(meta: object) -> Context | None:
    """Return the trace context in the `_meta` of a peer's request, if there is one."""
    if not isinstance(meta, Mapping) or not isinstance(meta.get("traceparent"), str):
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {key: meta[key] for key in TRACE_KEYS if isinstance(meta.get(key), str)}
    return TraceContextTextMapPropagator().extract(carrier)


def with_trace_context(params: Any, span: Span) -> Any:
    """Return the parameters of a request with the span's trace context in their `_meta`."""
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    if not carrier:
        return params
    if isinstance(params, Extensible):
        return msgspec.structs.replace(params, meta={**(params.meta or {}), **carrier})
    return {**params, "_meta": carrier}


def record_failure(span: Span, error: BaseException) -> None:
    """Mark a span as failed, without repeating the words of an agent or a tool."""
    if isinstance(error, AgentError):
        ours = error.message if error.code is None else f"the agent answered with the error {error.code}"
        _note_error(span, error.kind, ours, error.code)
    else:
        _note_error(span, type(error).__qualname__)


def _note_error(span: Span, type: str, message: str | None = None, code: int | None = None) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", type)
    if code is not None:
        span.set_attribute("rpc.response.status_code", str(code))
    span.set_status(Status(StatusCode.ERROR, message))


def _begin(name: str, kind: str, attributes: Attributes, context: Context | None) -> Span:
    from opentelemetry.trace import SpanKind

    return _tracer().start_span(name, context, SpanKind[kind], attributes)


def _tracer() -> Tracer:
    from opentelemetry.trace import get_tracer

    return get_tracer("coupler", __version__)


def _of_method(method: str) -> Attributes:
    return {"rpc.system.name": "jsonrpc", "rpc.method": method}


def _of_request(method: str, params: Any) -> Attributes:
    session_id = getattr(params, "session_id", None)
    return _of_method(method) | (
        {"gen_ai.conversation.id": session_id} if isinstance(session_id, str) else {}
    )


def _tool_name(call: ToolCall) -> str:
    return f"execute_tool {call.name or call.kind}"


def _of_call(call: ToolCall) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name or call.kind,
        "gen_ai.tool.call.id": call.id,
        "coupler.tool.kind": call.kind,
    }


def _of_reply(reply: Reply) -> Attributes:
    return {"gen_ai.response.finish_reasons": [reply.stop_reason], **_of_usage(reply.usage)}


def _of_usage(usage: TurnUsage) -> Attributes:
    """Return the usage that the agent has reported, but no estimates."""
    attributes: Attributes = {}
    if not usage.is_estimated:
        attributes |= {
            "gen_ai.usage.input_tokens": usage.input,
            "gen_ai.usage.output_tokens": usage.output,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_read,
            "gen_ai.usage.cache_creation.input_tokens": usage.cached_write,
        }
    if usage.cost is not None:
        attributes |= {"coupler.usage.cost": usage.cost, "coupler.usage.currency": usage.currency or ""}
    return attributes

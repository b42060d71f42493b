"""What OpenTelemetry gets to see of requests, turns and tool calls; and that nobody else pays for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from client.stage import Scripted, run
from coupler import AgentError, Policy
from coupler.client.errors import EndTurn
from coupler.client.observation import Received

Script = Callable[[str], Scripted]

INTRODUCED = """
send(result(read(), {**HELLO, "agentInfo": {"name": "painter", "version": "1.2"}}))
send(result(read(), {"sessionId": "s1"}))
prompt = read()
"""


class Switched(trace.TracerProvider):
    """A process has one provider for ever: this one traces only during a test that wants it."""

    def __init__(self) -> None:
        self.provider: trace.TracerProvider = trace.NoOpTracerProvider()

    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        return self.provider.get_tracer(*args, **options)


SWITCH = Switched()


class Spans:
    """What was traced, by name."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        return [*self._exporter.get_finished_spans()]

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    if trace.get_tracer_provider() is not SWITCH:
        trace.set_tracer_provider(SWITCH)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(SWITCH, "provider", provider)
    yield Spans(exporter)
    provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def traceparent(span: ReadableSpan) -> str:
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_a_turn_is_a_span_that_says_who_was_asked_and_what_it_used(script: Script, spans: Spans) -> None:
    usage = {"inputTokens": 7, "outputTokens": 5, "totalTokens": 12, "cachedReadTokens": 3}
    agent = script(f"{INTRODUCED}\nsend(say('red'), end(prompt, usage={usage}))")

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new()).prompt("paint the hidden fence")

    run(story())
    turn = spans.one("invoke_agent painter")
    assert turn.kind is SpanKind.CLIENT
    assert turn.status.status_code is StatusCode.UNSET
    told = attributes(turn)
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert (told["gen_ai.agent.name"], told["gen_ai.agent.version"]) == ("painter", "1.2")
    assert told["gen_ai.conversation.id"] == "s1"
    assert told["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (7, 5)
    assert told["gen_ai.usage.cache_read.input_tokens"] == 3


def test_tokens_that_were_only_estimated_are_not_reported(script: Script, spans: Spans) -> None:
    agent = script(f"{INTRODUCED}\nsend(say('red'), end(prompt))")

    async def story() -> None:
        async with agent.connect() as remote:
            reply = await (await remote.new()).prompt("paint")
            assert reply.usage.is_estimated

    run(story())
    assert not [name for name in attributes(spans.one("invoke_agent painter")) if "usage" in name]


def test_every_request_is_a_span_and_carries_its_trace_context(script: Script, spans: Spans) -> None:
    agent = script(f"{INTRODUCED}\nsend(say('red'), end(prompt))")

    async def story() -> None:
        with trace.get_tracer("test").start_as_current_span("mine"):
            async with agent.connect() as remote:
                await (await remote.new()).prompt("paint")

    run(story())
    mine = spans.one("mine")
    for method, name in {
        "initialize": "initialize",
        "session/new": "session/new",
        "session/prompt": "invoke_agent painter",
    }.items():
        span = spans.one(name)
        assert span.parent is not None and span.parent.span_id == mine.context.span_id
        assert attributes(span)["rpc.method"] == method
        [sent] = agent.received_of(method)
        assert sent["params"]["_meta"] == {"traceparent": traceparent(span)}


def test_a_tool_call_is_a_span_in_its_turn_from_its_first_report_to_its_last(
    script: Script, spans: Spans
) -> None:
    agent = script(f"""{INTRODUCED}
send(update("tool_call", toolCallId="c1", title="Mix red", status="pending"))
send(update("tool_call_update", toolCallId="c1", kind="edit", status="in_progress"))
send(update("tool_call_update", toolCallId="c1", status="completed"))
send(update("tool_call_update", toolCallId="c1", title="Mixed"))
send(update("tool_call", toolCallId="c2", title="Spill", kind="execute", status="failed"))
send(end(prompt))""")

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new()).prompt("paint")

    run(story())
    turn, mixing, spilling = map(
        spans.one, ("invoke_agent painter", "execute_tool edit", "execute_tool execute")
    )
    for call in (mixing, spilling):
        assert call.parent is not None and call.parent.span_id == turn.context.span_id
        assert call.kind is SpanKind.INTERNAL
        assert attributes(call)["gen_ai.operation.name"] == "execute_tool"
    assert attributes(mixing)["gen_ai.tool.call.id"] == "c1"
    assert attributes(mixing)["gen_ai.tool.name"] == "edit"
    assert mixing.status.status_code is StatusCode.UNSET
    assert spilling.status.status_code is StatusCode.ERROR
    assert attributes(spilling)["error.type"] == "failed"


def test_a_call_that_its_turn_left_open_is_told_as_unfinished(script: Script, spans: Spans) -> None:
    agent = script(f"""{INTRODUCED}
send(update("tool_call", toolCallId="c1", title="Mix", kind="edit", status="in_progress"), end(prompt))
send(update("tool_call_update", toolCallId="c1", status="completed"))""")

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new()).prompt("paint")

    run(story())
    assert attributes(spans.one("execute_tool edit"))["error.type"] == "unfinished"


def test_a_tool_of_ours_is_a_span_inside_of_what_the_agent_reports_with_all_that_it_traces(
    script: Script, spans: Spans
) -> None:
    agent = script("""
        from mcp_client import opened, turns
        for prompt, entries in turns(http=True):
            server = opened(entries[0])
            send(update("tool_call", toolCallId="c1", title="mix", kind="other", status="in_progress"))
            server.call("mix", {"color": "red"}, _meta={"progressToken": "c1"})
            send(update("tool_call_update", toolCallId="c1", status="completed"))
            server.call("mix", {"color": 5})
            send(end(prompt))
    """)

    def mix(color: str) -> str:
        with trace.get_tracer("test").start_as_current_span("stirring"):
            return color

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new(tools=[mix])).prompt("paint")

    run(story())
    turn, reported, stirring = map(spans.one, ("invoke_agent", "execute_tool other", "stirring"))
    mixing, failing = spans.named("execute_tool mix")
    parents = {span.context.span_id: span.parent and span.parent.span_id for span in spans.all()}
    assert parents[stirring.context.span_id] == mixing.context.span_id
    assert parents[mixing.context.span_id] == reported.context.span_id
    assert parents[failing.context.span_id] == turn.context.span_id
    assert attributes(mixing)["gen_ai.tool.call.id"] == "c1"
    assert (mixing.status.status_code, failing.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)


def test_what_the_agent_asks_for_is_a_span_in_the_turn_or_where_the_agent_says(
    script: Script, spans: Spans
) -> None:
    elsewhere = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    agent = script(f"""{INTRODUCED}
send(permission(1)); answer_to(1)
asked = permission(2); asked["params"]["_meta"] = {{"traceparent": {elsewhere!r}}}
send(asked); answer_to(2)
asked = permission(3); asked["params"]["_meta"] = {{"traceparent": 5}}
send(asked); answer_to(3)
send(end(prompt))""")

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new(permissions=Policy.deny_all())).prompt("paint")

    run(story())
    turn = spans.one("invoke_agent painter")
    plain, said, wrong = spans.named("session/request_permission")
    assert plain.kind is SpanKind.SERVER
    assert plain.parent is not None and plain.parent.span_id == turn.context.span_id
    assert said.parent is not None and said.parent.span_id == int("b" * 16, 16)
    assert wrong.parent is not None and wrong.parent.span_id == turn.context.span_id


def test_a_policy_that_fails_is_an_error_of_the_request(
    script: Script, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    agent = script(f"{INTRODUCED}\nsend(permission(1)); answer_to(1); send(end(prompt))")

    def fail(_: object) -> bool:
        raise ValueError("no idea")

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with agent.connect() as remote:
            await (await remote.new(permissions=fail)).prompt("paint")

    run(story())
    asked = spans.one("session/request_permission")
    assert asked.status.status_code is StatusCode.ERROR
    assert attributes(asked)["error.type"] == "-32603"


def test_a_refused_request_and_a_refused_prompt_are_errors_without_the_agents_words(
    script: Script, spans: Spans
) -> None:
    agent = script("""
hello(); send(error(read(), -32000, "log in as carol first")); send(result(read(), {"sessionId": "s1"}))
send(error(read(), -32603, "carol was here"))""")

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError):
                await remote.new()
            with pytest.raises(AgentError):
                await (await remote.new()).prompt("paint")

    run(story())
    refused, _ = spans.named("session/new")
    turn = spans.one("invoke_agent")
    assert (attributes(refused)["error.type"], attributes(turn)["error.type"]) == ("session", "prompt")
    assert attributes(refused)["rpc.response.status_code"] == "-32000"
    assert refused.status.status_code is turn.status.status_code is StatusCode.ERROR
    assert "carol" not in "".join(span.to_json() for span in spans.all())


def test_an_agent_that_dies_and_a_deadline_are_errors_of_their_turn(script: Script, spans: Spans) -> None:
    dying = script(f"{INTRODUCED}\nos._exit(3)")
    slow = script(f"{INTRODUCED}\nread_until(is_cancel); send(end(prompt, 'cancelled'))")

    async def prompt(agent: Scripted) -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError):
                await (await remote.new()).prompt("paint", timeout=0.2)

    run(prompt(dying))
    run(prompt(slow))
    assert [attributes(span)["error.type"] for span in spans.named("invoke_agent painter")] == [
        "died",
        "deadline",
    ]


def test_a_turn_that_a_tool_has_ended_is_no_error(script: Script, spans: Spans) -> None:
    agent = script(f"{INTRODUCED}\nsend(say('red')); read_until(is_cancel); send(end(prompt, 'cancelled'))")

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            session.on_event(lambda seen: isinstance(seen, Received) and session.end_turn(EndTurn("done")))
            with pytest.raises(EndTurn):
                await session.prompt("paint")

    run(story())
    assert spans.one("invoke_agent painter").status.status_code is StatusCode.UNSET


def test_each_round_of_a_prompt_is_a_turn_below_whoever_prompted(script: Script, spans: Spans) -> None:
    usage = {"inputTokens": 7, "outputTokens": 5, "totalTokens": 12}
    agent = script(
        f"{INTRODUCED}\nsend(say('pink'), end(prompt, usage={usage}))\n"
        f"send(say('red'), end(read(), usage={usage}))"
    )

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with trace.get_tracer("test").start_as_current_span("mine"):
                await session.prompt("paint", until=lambda reply: reply.text == "red")

    run(story())
    turns = spans.named("invoke_agent painter")
    mine = spans.one("mine").context.span_id
    assert [turn.parent.span_id for turn in turns if turn.parent is not None] == [mine, mine]
    assert [attributes(turn)["gen_ai.usage.input_tokens"] for turn in turns] == [7, 7]
    assert turns[0].context.span_id != turns[1].context.span_id


def test_no_span_holds_what_anybody_said(script: Script, spans: Spans) -> None:
    agent = script(f"""{INTRODUCED}
send(say("hidden"), update("agent_thought_chunk", content={{"type": "text", "text": "hidden"}}))
send(update("tool_call", toolCallId="c1", title="hidden", kind="edit", status="pending",
            rawInput={{"path": "hidden"}}, content=[{{"type": "content", "content":
            {{"type": "text", "text": "hidden"}}}}]))
send(update("tool_call_update", toolCallId="c1", status="completed"), end(prompt))""")

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new()).prompt("something hidden")

    run(story())
    assert spans.named("execute_tool edit")
    assert "hidden" not in "".join(span.to_json() for span in spans.all())


def test_where_nobody_loaded_opentelemetry_nothing_of_it_is_loaded_and_nothing_is_sent(
    script: Script,
) -> None:
    agent = script("for prompt in prompts(): send(say('a'), end(prompt))")
    program = f"""
import asyncio, sys
from coupler import connect
async def main():
    async with connect({agent.command!r}) as agent:
        await (await agent.new()).prompt("go")
asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all("_meta" not in frame["params"] for frame in agent.received)


def test_a_provider_that_is_named_in_the_environment_is_loaded(script: Script) -> None:
    agent = script("for prompt in prompts(): send(say('a'), end(prompt))")
    program = f"""
import asyncio, os, sys
os.environ["OTEL_PYTHON_TRACER_PROVIDER"] = "sdk_tracer_provider"
from coupler import connect
async def main():
    async with connect({agent.command!r}) as agent:
        await (await agent.new()).prompt("go")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    [prompt] = agent.received_of("session/prompt")
    assert "traceparent" in prompt["params"]["_meta"]

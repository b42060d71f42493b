"""What becomes of trouble with a model: an error that says what to do, a stop reason, or a visible retry."""

import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ModelCallLimitMiddleware,
    ModelRetryMiddleware,
    ToolCallLimitMiddleware,
)
from langchain_core.exceptions import ModelConnectionError, ModelInvalidRequestError
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from client.stage import run
from coupler import AgentError, connect
from coupler.agent.turn import CANCEL_GRACE
from coupler.events import Notice, Text, Thought
from coupler.langchain.errors import failure_kind_of, failure_of, retry_after
from labs.flooding_server import flooding_server
from labs.langchain.model_server import ModelServer, refuses, says
from labs.langchain.scripted_model import ScriptedModel, call, fail
from tables import table


async def prompted(graph, events=None):
    async with connect(graph, on_event=None if events is None else events.append) as agent:
        session = await agent.new()
        return await session.prompt("hello")


@contextmanager
def graph_of(*replies, **settings):
    with ModelServer(replies) as server:
        model = ChatOpenAI(model="m", base_url=server.url, api_key="key", **{"max_retries": 0, **settings})
        yield create_agent(model, [])


@pytest.mark.parametrize(
    "reply, kind, retryable, words",
    [
        (refuses(404, "no such model", "model_not_found"), "no_model", False, "check the name"),
        (refuses(503, "overloaded"), "unavailable", True, "try again later"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_trouble_with_the_model_is_an_error_that_says_what_to_do(reply, kind, retryable, words):
    with graph_of(reply) as graph, pytest.raises(AgentError) as raised:
        run(prompted(graph))

    assert raised.value.data["kind"] == kind
    assert raised.value.data["retryable"] is retryable
    assert words in raised.value.message


def test_a_retry_of_the_providers_own_client_is_seen():
    with graph_of(refuses(429, "busy", retry_after=0.01), says("At last."), max_retries=1) as graph:
        events = []
        reply = run(prompted(graph, events))

    assert reply.text == "At last."
    assert "is asked again" in told(events, reply)


def test_a_retry_by_middleware_is_seen():
    model = ScriptedModel(script=[["Half ", fail(ModelConnectionError("gone"))], ["Whole."]])
    graph = create_agent(model, [], middleware=[ModelRetryMiddleware(max_retries=1, initial_delay=0.0)])
    events = []

    reply = run(prompted(graph, events))

    assert reply.text == "Half \n\nWhole."
    assert "could not be reached" in told(events, reply)


def test_a_retry_is_seen_while_it_is_waited_for():
    model = ScriptedModel(script=[[fail(ModelConnectionError("gone"))], ["Whole."]])
    patient = ModelRetryMiddleware(max_retries=1, initial_delay=60.0)

    async def look():
        async with connect(create_agent(model, [], middleware=[patient])) as agent:
            prompt, seen = (await agent.new()).prompt("hello"), ""
            async for event in prompt:
                if isinstance(event, Thought | Notice):
                    seen = str(event)
                    await prompt.cancel()
            return seen

    assert "could not be reached" in run(look())


def told(events, reply):
    """What the user is told beside the answer."""
    notices = [event for event in events if isinstance(getattr(event, "event", event), Notice)]
    return " ".join(str(each) for each in notices) + reply.thoughts


def test_the_model_of_a_tool_that_failed_with_it_is_not_said_to_be_asked_again():
    inner = create_agent(ScriptedModel(script=[[fail(ModelConnectionError("gone"))]]), [])

    @tool
    async def delegate() -> str:
        """Have another agent do it."""
        return (await inner.ainvoke({"messages": [("user", "go")]}))["messages"][-1].text

    events = []
    model = ScriptedModel(script=[[call("delegate", "c")], ["Sorry."]])

    reply = run(prompted(create_agent(model, [delegate]), events))

    assert (reply.text, told(events, reply)) == ("Sorry.", "")


def test_a_call_that_broke_off_with_its_model_is_settled():
    half = call("add", "c", a=1)[:2]
    model = ScriptedModel(script=[[*half, fail(ModelConnectionError("gone"))], ["Whole."]])
    graph = create_agent(model, [], middleware=[ModelRetryMiddleware(max_retries=1, initial_delay=0.0)])

    reply = run(prompted(graph))

    assert [each.status for each in reply.tool_calls] == ["failed"]


@tool
def nothing() -> str:
    """Do nothing."""
    return "nothing"


def test_a_limit_of_calls_is_a_stop_reason():
    limit = ModelCallLimitMiddleware(run_limit=1, exit_behavior="error")
    model = ScriptedModel(script=[[call("nothing", "c")], ["never"]])

    reply = run(prompted(create_agent(model, [nothing], middleware=[limit])))

    assert reply.stop_reason == "max_turn_requests"
    assert [each.status for each in reply.tool_calls] == ["completed"]


@pytest.mark.parametrize("limit", ["of calls", "of steps"])
def test_a_call_that_a_limit_has_kept_from_being_made_was_not_completed(limit):
    limits = [ToolCallLimitMiddleware(run_limit=1, exit_behavior="error")] if limit == "of calls" else []
    model = ScriptedModel(script=[[call("nothing", "a"), call("nothing", "b", index=1)], ["never"]])
    graph = create_agent(model, [nothing], middleware=limits)

    reply = run(prompted(graph if limits else graph.with_config(recursion_limit=1)))

    assert reply.stop_reason == "max_turn_requests"
    assert [each.status for each in reply.tool_calls] == ["failed", "failed"]
    assert "stopped before" in reply.tool_calls[0].content[0].content.text


@pytest.mark.parametrize("error, kind", [(ConnectionError("gone"), "network"), (TimeoutError(), "timeout")])
def test_what_everybody_raises_is_trouble_with_a_model_only_if_a_model_did(error, kind):
    with pytest.raises(AgentError) as raised:
        run(prompted(create_agent(ScriptedModel(script=[[fail(error)]]), [])))

    assert raised.value.data["kind"] == kind
    assert failure_of(type(error)("of a node")) is None


def test_what_the_code_of_a_node_raises_is_no_trouble_with_a_model():
    assert failure_of(ValueError("my own")) is None
    assert failure_of(KeyError("RateLimitError")) is None


class Response:
    def __init__(self, **headers):
        self.headers = headers


class RefusedError(Exception):
    def __init__(self, status_code, text="", **headers):
        super().__init__(text)
        self.status_code = status_code
        self.response = Response(**headers)


@table(
    "error, kind",
    [
        (RefusedError(401), "auth"),
        (RefusedError(403), "auth"),
        (RefusedError(408), "timeout"),
        (RefusedError(429), "rate_limit"),
        (RefusedError(429, "{'code': 'insufficient_quota'}"), "quota"),
        (RefusedError(400, "Your credit balance is too low to access the API"), "quota"),
        (RefusedError(402), "quota"),
        (RefusedError(529), "unavailable"),
        (RefusedError(400, "Prompt is too long: 9 tokens"), "context_length"),
        (type("APITimeoutError", (Exception,), {"__module__": "some_provider"})(), "timeout"),
    ],
)
def test_providers_that_langchain_does_not_sort_are_known_by_status_or_name(error, kind):
    wrapped = RuntimeError("the agent gave up")
    wrapped.__cause__ = error

    assert failure_kind_of(wrapped).kind == kind


@table(
    "error, kind",
    [
        (
            RefusedError(200, "{'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}"),
            "unavailable",
        ),
        (RefusedError(200, "{'error': {'type': 'rate_limit_error', 'message': 'Slow'}}"), "rate_limit"),
        (RefusedError(200, "{'error': {'type': 'billing_error', 'message': 'Pay'}}"), "quota"),
        (ValueError("ResponseError(code='server_error', message='It failed')"), "unavailable"),
        (ValueError("rate_limit_exceeded: slow down"), "rate_limit"),
    ],
)
def test_a_failure_in_the_middle_of_an_answer_is_known_by_what_its_provider_calls_it(error, kind):
    assert failure_kind_of(error, of_model=error).kind == kind
    assert failure_kind_of(error) is None


@table(
    "error, kind",
    [
        (ModelInvalidRequestError("400 INVALID_ARGUMENT. Image input is not enabled"), "refused"),
        (ModelInvalidRequestError("400 INVALID_ARGUMENT. API key not valid."), "auth"),
    ],
)
def test_what_googles_client_refuses_is_known_without_a_status(error, kind):
    assert failure_kind_of(error, of_model=error).kind == kind


@table(
    "headers, seconds",
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e99"}, None),
        ({}, None),
    ],
)
def test_a_wish_to_come_back_later_is_read_if_it_is_one(headers, seconds):
    assert retry_after(RefusedError(429, **headers)) == seconds


def test_a_date_to_come_back_at_is_so_many_seconds_away():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < retry_after(RefusedError(429, **{"retry-after": date})) <= 60


@pytest.mark.parametrize(
    ("flood", "limit", "words"),
    [
        ("text", {"LONGEST_ANSWER": 100_000}, "it is over 100,000 characters"),
        ("an-argument", {"LONGEST_ANSWER": 100_000}, "it is over 100,000 characters"),
        ("letters", {"MOST_PIECES": 500}, "it is over 500 pieces"),
    ],
)
def test_an_answer_without_an_end_is_broken_off(flood, limit, words, monkeypatch):
    for name, value in limit.items():
        monkeypatch.setattr(f"coupler.langchain.projection.{name}", value)
    with flooding_server() as address, pytest.raises(AgentError) as raised:
        run(
            prompted(create_agent(ChatOpenAI(model="m", base_url=f"{address}/{flood}/v1", api_key="key"), []))
        )

    assert raised.value.data["kind"] == "too_long"
    assert words in raised.value.message


def test_a_stream_that_never_pauses_ends_with_a_cancel():
    async def story(address):
        graph = create_agent(ChatOpenAI(model="m", base_url=f"{address}/letters/v1", api_key="key"), [])
        async with connect(graph) as agent:
            session = await agent.new()
            prompt = session.prompt("hello")
            async with prompt:
                async for event in prompt:
                    if isinstance(event, Text):
                        break
                began = time.monotonic()
                await session.cancel()
                return time.monotonic() - began

    with flooding_server() as address:
        assert run(story(address)) < CANCEL_GRACE

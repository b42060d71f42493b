"""What the bridge hears in rare cases, told to a projection that writes it down."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import uuid4

from langchain_core.callbacks.manager import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langgraph.prebuilt import ToolRuntime

from client.stage import run
from coupler.langchain import projection as listening_module
from coupler.langchain.messages import DisplayOptions
from coupler.langchain.projection import TOKENS_BEFORE_YIELD, RunListener, TurnProjection
from coupler.langchain.tool_calls import ToolCalls
from coupler.langchain.usage import TokenUsage


class Heard:
    """A projection that only listens."""

    is_alive = True

    def __init__(self, outlet):
        self.told = []
        self._outlet = outlet

    def take(self, *arguments):
        self.told.append(("take", *arguments))
        return self._outlet.has_room()

    def __getattr__(self, name):
        return lambda *arguments, **named: self.told.append((name, *arguments))


class Outlet:
    """The way to a client that may be slower than the model."""

    def __init__(self):
        self.room = asyncio.Event()
        self.room.set()
        self.waits = 0
        self.said = []

    def say(self, text, message_id):
        self.said.append(text)
        return self.has_room()

    def has_room(self):
        return self.room.is_set()

    async def wait_for_room(self):
        self.waits += not self.has_room()
        await self.room.wait()


def listening(outlet=None):
    outlet = outlet or Outlet()
    heard = Heard(outlet)
    calls = SimpleNamespace(key=lambda call_id, parent: call_id)
    current = SimpleNamespace(session=SimpleNamespace(outlet=outlet), namespaces={}, calls=calls)
    return RunListener(current, heard), heard


def test_a_retry_that_langchain_reports_is_told_with_its_pause_and_its_reason():
    error = ValueError("busy")
    outcome = SimpleNamespace(failed=True, exception=lambda: error)
    state = SimpleNamespace(outcome=outcome, next_action=SimpleNamespace(sleep=2.0))

    async def hear():
        listener, heard = listening()
        listener.on_retry(state, run_id=uuid4())
        return heard.told

    assert run(hear()) == [("retry_model", 2.0, error)]


def test_models_whose_answers_are_nobodys_business_are_not_heard():
    async def hear():
        listener, heard = listening()
        for metadata, tags, options in (
            ({"lc_source": "tool_selection"}, [], {}),
            ({}, ["nostream"], {}),
            ({}, [], {"ls_structured_output_format": {}}),
        ):
            run_id = uuid4()
            listener.on_chat_model_start({}, [], run_id=run_id, tags=tags, metadata=metadata, options=options)
        return heard.told

    assert run(hear()) == []


def test_what_a_thread_says_is_told_on_the_loop_in_order():
    async def hear():
        listener, heard = listening()
        chunks = [ChatGenerationChunk(message=AIMessageChunk(content=str(number))) for number in range(3)]

        def speak():
            for chunk in chunks:
                listener.on_llm_new_token("", chunk=chunk, run_id=None)
            listener.on_llm_new_token("", chunk=None, run_id=None)
            listener.on_llm_error(ValueError("gone"), run_id=None)

        await asyncio.to_thread(speak)
        await asyncio.sleep(0)
        return [(told[0], getattr(told[-1], "content", "")) for told in heard.told]

    assert run(hear()) == [("take", "0"), ("take", "1"), ("take", "2"), ("fail_model", "")]


def spoken(text):
    return ChatGenerationChunk(message=AIMessageChunk(content=text))


def reporting_to(kind, listener):
    """What LangChain reports a model's tokens by."""
    return kind(run_id=uuid4(), handlers=[listener], inheritable_handlers=[listener])


def test_a_model_that_is_faster_than_its_client_is_held_up():
    async def hear():
        outlet = Outlet()
        listener, heard = listening(outlet)
        report = reporting_to(AsyncCallbackManagerForLLMRun, listener).on_llm_new_token
        outlet.room.clear()
        await report("a", chunk=spoken("a"))

        held_up = asyncio.create_task(report("b", chunk=spoken("b")))
        while not outlet.waits:
            await asyncio.sleep(0)
        told = len(heard.told), held_up.done()
        outlet.room.set()
        await held_up
        return told

    assert run(hear()) == (2, False)


def test_others_get_their_turn_while_a_model_never_waits():
    async def hear():
        listener, heard = listening()
        report = reporting_to(AsyncCallbackManagerForLLMRun, listener).on_llm_new_token

        async def speak():
            for _ in range(2 * TOKENS_BEFORE_YIELD):
                await report("a", chunk=spoken("a"))

        speaking = asyncio.create_task(speak())
        seen = []
        while not speaking.done():
            await asyncio.sleep(0)
            seen.append(len(heard.told))
        return seen

    assert TOKENS_BEFORE_YIELD + 1 in run(hear())


def test_a_model_that_is_asked_without_awaiting_it_does_not_wait_for_the_loop_that_it_holds_up():
    async def hear():
        outlet = Outlet()
        outlet.room.clear()
        listener, heard = listening(outlet)
        report = reporting_to(CallbackManagerForLLMRun, listener).on_llm_new_token
        for text in "abc":
            report(text, chunk=spoken(text))
        return [message.content for _, _, message in heard.told], outlet.waits

    assert run(hear()) == (["a", "b", "c"], 0)


def test_what_a_tool_puts_out_is_told_under_its_call_and_the_outer_one_goes_on_afterwards():
    async def hear():
        listener, heard = listening()
        outer, inner = uuid4(), uuid4()
        for run_id, name in ((outer, "outer"), (inner, "inner")):
            listener.on_tool_start({"name": name}, "", run_id=run_id, tool_call_id=name)
            emit("begun")
        listener.on_tool_end("", run_id=inner)
        emit("goes on")
        listener.on_tool_end("", run_id=outer)
        emit("nobody's")
        return [told[1:] for told in heard.told if told[0] == "output"]

    emit = ToolRuntime(None, None, {}, None, None, None).emit_output_delta
    assert run(hear()) == [("outer", "begun"), ("inner", "begun"), ("outer", "goes on")]


def both_at_once(monkeypatch, module, function, do):
    """What two threads get that both come to this function before either goes on."""
    meeting = threading.Barrier(2, timeout=30)
    reached = getattr(module, function)

    def meet(*arguments):
        meeting.wait()
        return reached(*arguments)

    monkeypatch.setattr(module, function, meet)
    with ThreadPoolExecutor(2) as threads:
        return [*threads.map(do, range(2))]


def test_a_call_has_one_key_also_if_a_thread_asks_for_it_before_the_loop_has_told_of_it(monkeypatch):
    calls = ToolCalls(None, None, {})

    keys = both_at_once(monkeypatch, os, "urandom", lambda _: calls.key("c", "outer"))

    assert keys[0] == keys[1] == calls.key("c", "outer")


def test_of_two_tools_that_begin_at_once_with_one_id_only_one_is_the_call_that_has_it(monkeypatch):
    async def hear():
        listener, heard = listening()

        def begin(number):
            listener.on_tool_start({"name": str(number)}, "", run_id=uuid4(), tool_call_id="c")

        both_at_once(monkeypatch, listening_module, "write_to", begin)
        await asyncio.sleep(0)
        return [told[1] for told in heard.told]

    keys = run(hear())
    assert len(keys) == len({*keys}) == 2
    assert "c" in keys


def test_a_dead_turn_is_told_nothing():
    async def hear():
        listener, heard = listening()
        heard.is_alive = False
        listener.on_llm_error(ValueError("late"), run_id=uuid4())
        return heard.told

    assert run(hear()) == []


def projecting():
    """A real projection, and the turn and the outlet that it tells."""
    outlet = Outlet()
    turn = SimpleNamespace(is_alive=True, session=SimpleNamespace(outlet=outlet))
    current = SimpleNamespace(turn=turn, calls=None)
    return TurnProjection(current, DisplayOptions(), TokenUsage(turn)), turn, outlet


def test_what_a_model_says_is_told_until_its_turn_is_over():
    projection, turn, outlet = projecting()
    run_id = uuid4()
    projection.begin_model(run_id, None, None)

    projection.take(run_id, AIMessageChunk(content="heard", id="1"))
    turn.is_alive = False
    projection.take(run_id, AIMessageChunk(content="late", id="1"))

    assert outlet.said == ["heard"]


def test_a_model_that_ends_does_not_silence_another_one():
    projection, _, outlet = projecting()
    first, second = uuid4(), uuid4()
    for run_id in (first, second):
        projection.begin_model(run_id, None, None)
        projection.take(run_id, AIMessageChunk(content="a", id="1"))

    projection.end_model(first, AIMessage("a", id="2"))
    projection.take(second, AIMessageChunk(content="b", id="1"))
    projection.take(first, AIMessageChunk(content="nobody's", id="1"))

    assert outlet.said == ["a", "a", "b"]


def test_a_model_is_told_when_its_client_wants_no_more():
    projection, _, outlet = projecting()
    run_id = uuid4()
    projection.begin_model(run_id, None, None)
    piece = AIMessageChunk(content="a", id="1")

    has_room = projection.take(run_id, piece)
    outlet.room.clear()

    assert (has_room, projection.take(run_id, piece)) == (True, False)

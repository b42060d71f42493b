"""What the bridge hears in rare cases, told to a projection that writes it down."""

import asyncio
from types import SimpleNamespace
from uuid import uuid4

from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from client.stage import run
from coupler.bridges.langchain.stream.listener import Listener, ThreadListener


class Heard:
    """A projection that only listens."""

    is_alive = True

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *arguments, **named: self.told.append((name, *arguments))


def listening():
    outlet = SimpleNamespace(has_room=lambda: True)
    heard = Heard()
    current = SimpleNamespace(session=SimpleNamespace(outlet=outlet), namespaces={})
    return Listener(current, heard), heard


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
        in_threads = ThreadListener(listener)
        chunks = [ChatGenerationChunk(message=AIMessageChunk(content=str(number))) for number in range(3)]

        def speak():
            assert listener.ignore_llm
            for chunk in chunks:
                in_threads.on_llm_new_token("", chunk=chunk, run_id=None)
            in_threads.on_llm_new_token("", chunk=None, run_id=None)
            in_threads.on_llm_error(ValueError("gone"), run_id=None)

        await asyncio.to_thread(speak)
        await asyncio.sleep(0)
        assert in_threads.ignore_llm
        return [(told[0], getattr(told[-1], "content", "")) for told in heard.told]

    assert run(hear()) == [("take", "0"), ("take", "1"), ("take", "2"), ("fail_model", "")]


def test_a_dead_turn_is_told_nothing():
    async def hear():
        listener, heard = listening()
        heard.is_alive = False
        chunk = ChatGenerationChunk(message=AIMessageChunk(content="late"))
        await listener.on_llm_new_token("", chunk=chunk, run_id=uuid4())
        listener.on_llm_error(ValueError("late"), run_id=uuid4())
        return heard.told

    assert run(hear()) == []

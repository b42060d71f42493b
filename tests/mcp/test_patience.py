"""Answers that take long are streams with signs of life; others are sent as they are."""

import asyncio

import pytest

from coupler.mcp import loopback
from coupler.mcp.loopback import respond_with_keep_alive

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
BODY = {"type": "http.response.body", "body": b'{"id":\n1}'}


def sent(answer):
    messages = []

    async def send(message):
        messages.append(message)

    asyncio.run(respond_with_keep_alive(answer, send))
    return messages


def test_an_answer_that_comes_soon_is_sent_as_it_is():
    async def answer(send):
        await send(START)
        await send(BODY)

    assert sent(answer) == [START, BODY]


def test_an_answer_that_comes_late_is_the_event_of_a_stream(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loopback, "KEEP_ALIVE_SECONDS", 0.001)
    living = []

    async def answer(send):
        while len(living) < 3:
            await asyncio.sleep(0)
        await send(START)
        await send(BODY)

    async def send(message):
        living.append(message)

    asyncio.run(respond_with_keep_alive(answer, send))

    start, *signs, last = living
    assert (b"content-type", b"text/event-stream") in start["headers"]
    assert {sign["body"] for sign in signs} == {b": working\n\n"}
    assert last == {"type": "http.response.body", "body": b'event: message\ndata: {"id": 1}\n\n'}

"""Answers that take long, over HTTP: sent as a stream that shows signs of life, so that nobody hangs up.

Clients of MCP take an answer as JSON or as a stream of events. What comes soon is sent as it is; else the
stream begins, and the answer is its one event. (The package's own streams leave a task behind in the program
that serves them, which wakes up twice a second for ever.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

SIGN_OF_LIFE = 15.0
"""Seconds of silence until something is sent; the least patient of clients wait for a minute."""

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")],
}


class PatientAnswer:
    """Stands between an application and a client, for one request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_streamed = False
        self._is_answered = False
        self._body = b""

    async def send(self, message: Message) -> None:
        """What the application answers."""
        if message["type"] == "http.response.start":
            self._is_answered = True
        if not self._is_streamed:
            await self._send(message)
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_event()

    async def show_life(self) -> None:
        """Until there is an answer, or this is cancelled."""
        while True:
            await asyncio.sleep(SIGN_OF_LIFE)
            if self._is_answered:
                return
            if not self._is_streamed:
                self._is_streamed = True
                await self._send(_START)
            await self._send({"type": "http.response.body", "body": b": working\n\n", "more_body": True})

    async def _send_event(self) -> None:
        """One line of JSON; an answer without a body just ends the stream."""
        event = b"event: message\ndata: %b\n\n" % self._body.replace(b"\n", b" ") if self._body else b""
        await self._send({"type": "http.response.body", "body": event})


async def answered_patiently(answer: Callable[[Send], Awaitable[None]], send: Send) -> None:
    """Let the application answer a request."""
    patient = PatientAnswer(send)
    living = asyncio.create_task(patient.show_life())
    try:
        await answer(patient.send)
    finally:
        living.cancel()

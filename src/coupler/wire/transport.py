"""Moves the bytes of a peer: the transport's interface, a pair in one process, and one with an observer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Receiver(Protocol):
    """Takes a transport's bytes; called on the event loop's thread only."""

    def data_received(self, data: bytes) -> None:
        """Handle bytes that came in."""

    def input_ended(self, error: Exception | None) -> None:
        """Handle the end of the input, because of an error or in good order."""

    def output_ready(self) -> None:
        """Continue writing: the transport takes bytes again."""


class Transport(Protocol):
    """Moves bytes both ways without ever blocking the loop."""

    def open(self, receiver: Receiver) -> None:
        """Begin to deliver."""

    def write(self, data: bytes | memoryview) -> int:
        """Take as many bytes as go out now; `output_ready` follows when there were more."""

    def pause_reading(self) -> None:
        """Deliver nothing, nor the end of the input, until `resume_reading`."""

    def resume_reading(self) -> None:
        """Deliver again."""

    def end_output(self) -> None:
        """Write no more, so that the other side reads an end; go on delivering."""

    def close(self) -> None:
        """Stop delivering and give up the descriptors."""


class MemoryTransport:
    """One end of a pair that lives in one process and one event loop."""

    def __init__(self) -> None:
        self._partner: MemoryTransport | None = None
        self._receiver: Receiver | None = None
        self._in_flight = False
        self._undelivered: bytes = b""
        """Bytes that the partner has not taken, because it is not open yet or has paused."""
        self._is_paused = False
        self._end_is_due = False
        self._output_ended = False
        self._closed = False

    @classmethod
    def pair(cls) -> tuple[MemoryTransport, MemoryTransport]:
        """Two joined ends."""
        one, other = cls(), cls()
        one._partner, other._partner = other, one
        return one, other

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._take_undelivered()
        if self._partner is not None and self._partner._output_ended:
            self._later(self._end)

    def write(self, data: bytes | memoryview) -> int:
        # One write a tick: the same back-pressure that a full pipe gives.
        if self._in_flight or self._output_ended:
            return 0
        self._in_flight = True
        self._later(self._deliver, bytes(data))
        return len(data)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._take_undelivered()
        if self._end_is_due:
            self._end_is_due = False
            self._later(self._end)

    def end_output(self) -> None:
        if self._output_ended:
            return
        self._output_ended = True
        if self._partner is not None:
            self._later(self._partner._end)

    def close(self) -> None:
        self._closed = True
        self._receiver = None
        self.end_output()

    def _deliver(self, data: bytes) -> None:
        partner = self._partner
        if partner is not None and not partner._closed and (partner._receiver is None or partner._is_paused):
            self._undelivered = data
            return
        self._in_flight = False
        if partner is not None and partner._receiver is not None:
            partner._receiver.data_received(data)
        if self._receiver is not None:
            self._receiver.output_ready()

    def _take_undelivered(self) -> None:
        if self._partner is not None and self._partner._undelivered:
            data, self._partner._undelivered = self._partner._undelivered, b""
            self._later(self._partner._deliver, data)

    def _end(self) -> None:
        if self._is_paused:
            self._end_is_due = True
        elif self._receiver is not None:
            self._receiver.input_ended(None)

    def _later(self, callback: Callable[..., None], *arguments: bytes) -> None:
        asyncio.get_running_loop().call_soon(callback, *arguments)


class TransportObserver(Protocol):
    """Sees bytes as they pass through a transport, in order."""

    def sent(self, data: bytes) -> None:
        """Bytes that we wrote."""

    def received(self, data: bytes) -> None:
        """Bytes that the other side wrote."""

    def output_ended(self) -> None:
        """Called when we write no more."""

    def input_ended(self) -> None:
        """Called when the other side writes no more."""


class TappedTransport:
    """Another transport with an observer; changes nothing of what passes through."""

    def __init__(self, transport: Transport, observer: TransportObserver) -> None:
        self._transport = transport
        self._observer = observer
        self._output_ended = False

    def open(self, receiver: Receiver) -> None:
        self._transport.open(_TappedReceiver(receiver, self._observer))

    def write(self, data: bytes | memoryview) -> int:
        # Only what was taken has passed; the rest comes again.
        taken = self._transport.write(data)
        if taken:
            self._observer.sent(bytes(data[:taken]))
        return taken

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def end_output(self) -> None:
        self._tell_end()
        self._transport.end_output()

    def close(self) -> None:
        self._tell_end()
        self._transport.close()

    def _tell_end(self) -> None:
        if not self._output_ended:
            self._output_ended = True
            self._observer.output_ended()


class _TappedReceiver:
    def __init__(self, receiver: Receiver, observer: TransportObserver) -> None:
        self._receiver = receiver
        self._observer = observer

    def data_received(self, data: bytes) -> None:
        self._observer.received(data)
        self._receiver.data_received(data)

    def input_ended(self, error: Exception | None) -> None:
        self._observer.input_ended()
        self._receiver.input_ended(error)

    def output_ready(self) -> None:
        self._receiver.output_ready()

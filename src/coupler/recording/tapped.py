"""A transport that lets somebody see what passes through it, and changes nothing."""

from __future__ import annotations

from typing import Protocol

from coupler.wire.transport import Receiver, Transport


class Onlooker(Protocol):
    """Sees bytes as they pass, in the order in which they do."""

    def sent(self, data: bytes) -> None:
        """We wrote these."""

    def received(self, data: bytes) -> None:
        """The other side wrote these."""

    def output_ended(self) -> None:
        """We write no more."""

    def input_ended(self) -> None:
        """The other side writes no more."""


class TappedTransport:
    """Another transport, with an onlooker."""

    def __init__(self, transport: Transport, onlooker: Onlooker) -> None:
        self._transport = transport
        self._onlooker = onlooker
        self._output_ended = False

    def open(self, receiver: Receiver) -> None:
        self._transport.open(_TappedReceiver(receiver, self._onlooker))

    def write(self, data: bytes | memoryview) -> int:
        # Only what was taken has passed; the rest comes again.
        taken = self._transport.write(data)
        if taken:
            self._onlooker.sent(bytes(data[:taken]))
        return taken

    def end_output(self) -> None:
        self._tell_end()
        self._transport.end_output()

    def close(self) -> None:
        self._tell_end()
        self._transport.close()

    def _tell_end(self) -> None:
        if not self._output_ended:
            self._output_ended = True
            self._onlooker.output_ended()


class _TappedReceiver:
    def __init__(self, receiver: Receiver, onlooker: Onlooker) -> None:
        self._receiver = receiver
        self._onlooker = onlooker

    def data_received(self, data: bytes) -> None:
        self._onlooker.received(data)
        self._receiver.data_received(data)

    def input_ended(self, error: Exception | None) -> None:
        self._onlooker.input_ended()
        self._receiver.input_ended(error)

    def output_ready(self) -> None:
        self._receiver.output_ready()

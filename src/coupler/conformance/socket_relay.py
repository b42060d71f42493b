"""Joins stdin and stdout to a socket, so that a client's process reaches a script elsewhere.

python -m coupler.conformance.socket_relay PORT TOKEN
"""

from __future__ import annotations

import os
import socket
import sys
import threading

READ_SIZE = 64 * 1024


def main(port: int, token: str) -> None:
    """Pass bytes both ways until either side ends."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(token.encode() + b"\n")
        threading.Thread(target=_pass_input_on, args=(connection,), daemon=True).start()
        while data := connection.recv(READ_SIZE):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]


def _pass_input_on(connection: socket.socket) -> None:
    while data := os.read(0, READ_SIZE):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""Pipes stdin and stdout to the program that offers tools: agents start it as an MCP server.

It starts in a few hundredths of a second, because it imports nothing but what Python has, and understands
nothing of what it carries. Where to connect, and with which token, is in its environment: arguments can be
seen by everybody.
"""

import os
import socket
import sys
import threading

PORT = "COUPLER_SHIM_PORT"
TOKEN = "COUPLER_SHIM_TOKEN"

READ_BYTES = 64 * 1024
WELCOME = b"ok\n"


def main() -> int:
    """Connect, and pass bytes on until either side ends."""
    port, token = os.environ.get(PORT, ""), os.environ.get(TOKEN, "")
    if not port.isdigit() or not token:
        return _fail(f"{PORT} and {TOKEN} are not set: this program is started by agents")
    try:
        connection = socket.create_connection(("127.0.0.1", int(port)), timeout=10)
        connection.sendall(token.encode() + b"\n")
        welcome = connection.recv(len(WELCOME), socket.MSG_WAITALL)
        connection.settimeout(None)
    except OSError as error:
        return _fail(f"the program that offers these tools is gone: {error}")
    if welcome != WELCOME:
        return _fail("the program that offers these tools does not know this session any more")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=_carry_input, args=(connection,), daemon=True).start()
    _carry_output(connection)
    return 0


def _carry_input(connection: socket.socket) -> None:
    try:
        while chunk := os.read(0, READ_BYTES):
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side has ended, which the output shows


def _carry_output(connection: socket.socket) -> None:
    try:
        while chunk := connection.recv(READ_BYTES):
            while chunk:
                chunk = chunk[os.write(1, chunk) :]
    except OSError:
        pass  # nobody reads, or nobody writes, any more


def _fail(message: str) -> int:
    sys.stderr.write(f"coupler: {message}\n")
    return 1


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # a thread may still wait for input

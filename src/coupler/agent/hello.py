"""Answers `initialize` before anything else is imported, when an earlier start taught how.

An editor shows its agent as starting until this answer comes. Only the plain case is answered here: one
well-formed `initialize` that is already in the pipe, for a target whose record holds. Everything else, and
all that follows, is left to the connection, byte for byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, NamedTuple, NoReturn

PATIENCE = 0.05
"""Seconds to wait for the first line; then the imports go ahead."""

LONGEST = 64 * 1024
"""Bytes of the first line; a longer one is not the plain case."""

_MOST_OBJECTS = 100
_PLAIN_KEYS = {"jsonrpc", "id", "method", "params"}


class Greeting(NamedTuple):
    """What was read from the client so far, and whether the `initialize` in it has its answer."""

    already_read: bytes = b""
    answered: bool = False


def say_hello(read_fd: int, write_fd: int, introduction: str) -> Greeting:
    """Answer the first line if it is a plain `initialize`."""
    data = _read_line(read_fd)
    request_id = _id_of_initialize(data)
    if request_id is None:
        return Greeting(data)
    answer = f'{{"jsonrpc":"2.0","id":{json.dumps(request_id)},"result":{introduction}}}\n'.encode()
    # A client that is gone already will be noticed by the connection.
    with contextlib.suppress(OSError):
        while answer:
            answer = answer[os.write(write_fd, answer) :]
    return Greeting(data, True)


def _read_line(fd: int) -> bytes:
    if sys.platform == "win32":
        return b""
    import select

    data = b""
    while b"\n" not in data and len(data) < LONGEST and select.select([fd], [], [], PATIENCE)[0]:
        piece = os.read(fd, LONGEST)
        if not piece:
            break
        data += piece
    return data


def _id_of_initialize(data: bytes) -> int | str | None:
    line, newline, _ = data.partition(b"\n")
    if not newline or line.count(b"{") > _MOST_OBJECTS or b"[" in line or b"\\u" in line:
        return None
    try:
        message: Any = json.loads(line.decode(), parse_constant=_refuse_constant)
        version = message["params"]["protocolVersion"]
        plain = (
            message["jsonrpc"] == "2.0"
            and message["method"] == "initialize"
            and message.keys() == _PLAIN_KEYS
            and type(version) is int
            and 0 <= version <= 65535
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    request_id = message.get("id")
    return request_id if plain and type(request_id) in (int, str) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")

"""A client that sends huge messages, or many that it does not read the answers to, over real pipes."""

import json
import os
import subprocess
import threading
import time

import psutil
import pytest

from coupler.wire.peer import MAX_UNREAD_ANSWERS
from raw_client import COUPLER

AGENT = """
async def agent(turn):
    await turn.say("hi")
"""
BOUND = 5.0
"""Seconds for the answer to a line of 10 MB; alone it is a tenth of a second, but the machine may be busy."""

LOGGED = 50_000
"""Bytes of log that all of one test's messages may cause."""

GROWTH = 200 * 1024 * 1024
"""Bytes of memory by which a flood may make the process grow."""

LONG = 10_000_000


@pytest.fixture
def served(app, tmp_path):
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(
        [*COUPLER, "serve", app(AGENT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    )
    with log, process:
        try:
            ask(process, 0, "initialize", b'{"protocolVersion":1}')
            yield process
        finally:
            process.kill()
    assert (tmp_path / "log").stat().st_size < LOGGED


def line(id, method, params=b"{}"):
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}\n' % (id, method.encode(), params)


def ask(process, id, method, params=b"{}"):
    process.stdin.write(line(id, method, params))
    process.stdin.flush()
    while (answer := json.loads(process.stdout.readline())).get("id") != id:
        pass
    return answer


def new_session(**members):
    given = {"cwd": b'"/"', "mcpServers": b"[]", **members}
    return b"{" + b",".join(b'"%b":%b' % (key.encode(), value) for key, value in given.items()) + b"}"


HUGE = {
    "bad servers": (
        "session/new",
        new_session(mcpServers=b"[" + b"1," * (LONG // 3) + b"1]"),
        "too_many_values",
    ),
    "some bad servers": ("session/new", new_session(mcpServers=b"[" + b"{}," * 100_000 + b"1]"), None),
    "good servers": (
        "session/new",
        new_session(mcpServers=b"[" + b'{"name":"","command":"","args":[],"env":[]},' * 999 + b"1]"),
        "invalid_params",
    ),
    "directories": (
        "session/new",
        new_session(additionalDirectories=b"[" + b'"/",' * 5000 + b'"/"]'),
        "invalid_params",
    ),
    "a map": (
        "session/new",
        new_session(_meta=b"{" + b",".join(b'"k%d":[]' % number for number in range(100_000)) + b"}"),
        None,
    ),
    "a long method": ("m" * LONG, b"{}", "method_not_found"),
    "a long session id": (
        "session/prompt",
        b'{"sessionId":"' + rb"\u0000" * (LONG // 7) + b'","prompt":[]}',
        "unknown_session",
    ),
    "a long directory": ("session/new", new_session(cwd=b'"/' + b"x" * LONG + b'"'), "invalid_params"),
    "lone surrogates": (
        "session/new",
        new_session(_meta=b'"' + rb"\ud800" * (LONG // 7) + b'"'),
        "parse_error",
    ),
    "nested lists": ("session/new", new_session(_meta=b"[" * 100_000 + b"]" * 100_000), "parse_error"),
}


def test_huge_messages_are_answered_at_once_and_hardly_logged(served):
    failures = []
    for id, (name, (method, params, reason)) in enumerate(HUGE.items(), start=1):
        began = time.monotonic()
        answer = ask(served, id, method, params)
        took = time.monotonic() - began
        given = answer.get("error", {}).get("data", {}).get("reason")
        if took > BOUND or given != reason or len(json.dumps(answer)) > 200_000:
            failures.append(f"{name}: {took:.1f} s, {str(answer)[:200]}")
    assert not failures, "\n".join(failures)
    assert "result" in ask(served, 99, "session/new", new_session())


FLOODS = {
    "valid requests": line(7, "session/list"),
    "unknown methods": line(7, "nonsense"),
    "long ids": b'{"jsonrpc":"2.0","id":"%b","method":"nonsense"}\n' % (b"x" * 5000),
    "no JSON": b"garbage\n",
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_whose_answers_nobody_reads_is_held_up_and_then_answered(served, name):
    # given more lines than are answered before somebody reads
    flood = FLOODS[name]
    count = 4 * MAX_UNREAD_ANSWERS
    before = psutil.Process(served.pid).memory_info().rss
    writer = threading.Thread(target=write, args=(served, flood, count), daemon=True)

    # when nothing is read until the process takes no more
    writer.start()
    most, lasted = 0, time.monotonic()
    while time.monotonic() - lasted < 1.0:
        rss = psutil.Process(served.pid).memory_info().rss
        if rss > most or psutil.Process(served.pid).cpu_percent(0.05) > 5:
            most, lasted = max(most, rss), time.monotonic()
    assert writer.is_alive(), "everything was read although no answer was"
    assert most - before < GROWTH, f"{(most - before) >> 20} MiB"

    # then every line has its answer as soon as somebody reads, and the connection goes on
    answers = 0
    while answers < count:
        answers += b'"id"' in served.stdout.readline()
    writer.join()
    assert "result" in ask(served, 8, "session/new", new_session())


def write(process, flood, count):
    rest = memoryview(flood * count)
    while rest:
        rest = rest[os.write(process.stdin.fileno(), rest[: 1 << 16]) :]

"""The parts of a recording: what is left out and told, the library's link, and recordings of other tools."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coupler.client.connection import recorded
from coupler.client.errors import AgentError
from coupler.client_api import link_to
from coupler.recording.traces import Trace, TraceError
from coupler.recording.writer import RecordingFile
from coupler.redaction.sources import Secret
from coupler.wire.peer import Peer
from coupler.wire.tap import RecordingFeed, agent_name
from coupler.wire.transport import MemoryTransport, TappedTransport
from tables import table

ROOT = Path(__file__).parent.parent.parent
ECHO = [sys.executable, str(ROOT / "examples" / "echo.py")]
HELLO: dict[str, Any] = {"protocolVersion": 1, "clientCapabilities": {}}
SECRET = "hunter2-4711-zebra-quartz"


class Nobody:
    """An endpoint that hears nothing."""

    def request_received(self, request: Any) -> None: ...
    def notification_received(self, method: str, params: Any) -> None: ...
    def disconnected(self, error: Any) -> None: ...


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def open_new(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_CREAT)


# Too much for the disk


def test_what_does_not_fit_into_the_queue_is_counted_as_missing(tmp_path: Path) -> None:
    # given a queue that nobody empties yet, and that holds little
    feed = RecordingFeed(limit=500)
    for number in range(100):
        feed.note(number / 100, b"c", b'{"jsonrpc":"2.0","method":"m%d"}\n' % number)
    # a line that is torn by the limit, the rest of which fits again
    feed.note(1.0, b"c", b'{"jsonrpc":"2.0","method":"' + b"x" * 500)

    # when it is emptied, and more comes
    file = open_new(tmp_path / "t.ndjson")
    feed.start(file, b"{}")
    os.close(file)
    while feed.waiting:  # another thread empties it
        time.sleep(0.001)
    feed.note(2.0, b"c", b'rest"}\n{"jsonrpc":"2.0","method":"after"}\n')

    # then what was there is there, and the rest is told
    assert feed.finish(3.0, 0) is False
    lines = lines_of(tmp_path / "t.ndjson")
    (gap,) = [line for line in lines if "missing" in line]
    methods = [line["frame"]["method"] for line in lines if "frame" in line]
    kept = len(methods) - 1
    assert methods == [f"m{number}" for number in range(kept)] + ["after"]
    assert 1 < kept < 20
    assert (gap["missing"], gap["of"]) == (100 - kept + 1, "client")
    assert Trace.load(tmp_path / "t.ndjson").missing == gap["missing"]


def test_a_disk_that_is_full_for_a_while_leaves_whole_lines(tmp_path: Path) -> None:
    # given a disk on which some bytes fit
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    file = RecordingFile(writer)
    line = b'{"at": 1, "text": "' + b"x" * 10_000 + b'"}\n'

    # when more is written than fits, and room is made again
    file.write(0.0, [line] * 20)
    got = os.read(reader, 1 << 20)
    file.write(1.0, [b'{"at": 2, "text": "after"}\n'])
    got += os.read(reader, 1 << 20)
    os.close(reader)
    os.close(writer)

    # then the line that was cut is ended, those that are missing are counted, and it goes on
    assert file.has_lost and file.lost == 0
    lines = [json.loads(each) for each in got.splitlines()]
    told = next(each for each in lines if "missing" in each)
    assert len(lines) - 2 + told["missing"] == 20
    assert lines[-1]["text"] == "after"


# The library's link


async def say_hello(link: Any) -> Any:
    peer = Peer(link.open(), Nobody(), answers_garbage=False)
    peer.open()
    try:
        return await peer.request("initialize", HELLO)
    finally:
        await peer.close()
        await link.close()


def test_a_link_is_recorded_as_the_command_records(tmp_path: Path) -> None:
    link = recorded(link_to(ECHO, cwd=tmp_path), tmp_path / "t.ndjson", label="echo")

    asyncio.run(say_hello(link))

    trace = Trace.load(tmp_path / "t.ndjson")
    (exchange,) = trace.exchanges("initialize")
    assert exchange.result["protocolVersion"] == 1
    assert (trace.label, trace.exit_code) == ("echo", 0)
    assert (tmp_path / "t.ndjson").stat().st_mode & 0o777 == 0o600


def test_a_link_masks_what_only_the_agent_was_given(tmp_path: Path) -> None:
    talkative = [sys.executable, "-c", f"import sys; sys.stderr.write('{SECRET}'); print('{SECRET}')"]

    async def listen() -> None:
        link = recorded(link_to(talkative), tmp_path / "t.ndjson", secrets=[Secret("KEY", SECRET)])
        peer = Peer(link.open(), Nobody(), answers_garbage=False)
        peer.open()
        await link.wait()
        await peer.close()
        await link.close()

    asyncio.run(listen())
    text = (tmp_path / "t.ndjson").read_text()
    assert SECRET not in text
    assert Trace.load(tmp_path / "t.ndjson").stderr == "[secret:KEY]"


def test_a_link_whose_file_cannot_be_made_starts_nothing(tmp_path: Path) -> None:
    link = recorded(link_to(ECHO), tmp_path / "missing" / "t.ndjson")
    with pytest.raises(AgentError, match=r"the recording cannot be begun: .* No such file or directory"):
        link.open()


def test_a_tapped_transport_shows_only_what_was_taken() -> None:
    seen: list[tuple[str, bytes]] = []

    class Onlooker:
        def sent(self, data: bytes) -> None:
            seen.append(("sent", data))

        def received(self, data: bytes) -> None:
            seen.append(("received", data))

        def output_ended(self) -> None:
            seen.append(("output ended", b""))

        def input_ended(self) -> None:
            seen.append(("input ended", b""))

    class Taking(MemoryTransport):
        def write(self, data: bytes | memoryview) -> int:
            return min(len(data), 3)

    tapped = TappedTransport(Taking(), Onlooker())
    assert tapped.write(b"12345") == 3
    assert tapped.write(memoryview(b"45")) == 2
    assert seen == [("sent", b"123"), ("sent", b"45")]


# Names


@table(
    ("command", "name"),
    [
        ("opencode acp", "opencode"),
        ("npx -y @zed-industries/claude-code-acp@0.5.2", "claude-code-acp"),
        ("/usr/bin/python3.12 -m my_agent", "my_agent"),
        ("coupler serve examples/echo.py:agent", "echo"),
        ("node dist/agent.js --acp", "agent"),
        ("uvx --from thing thing-acp", "thing"),
        ("python3", "python3"),
        ("./bin/gemini --experimental-acp", "gemini"),
        ("/", "agent"),
    ],
)
def test_a_recording_is_named_after_its_agent(command: str, name: str) -> None:
    assert agent_name(command.split()) == name


# Recordings of other tools

ACPX = """\
{"schema":"acpx.session.journal.v1","type":"segment","record_id":"s","sequence":0,"message_sequence":0,"request_id":null}
{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}
{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}
{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"}]}}
{"jsonrpc":"2.0","id":2,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/notes.txt"}}
{"jsonrpc":"2.0","id":2,"result":{"content":"notes"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan","entries":[]}}}
{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}
{"schema":"acpx.session.journal.v1","type":"turn_result","request_id":"r","result":{"status":"completed"}}
"""

CONDUCTOR = """\
{"type":"request","ts":0.1,"protocol":"acp","from":"Client","to":"Proxy(0)","id":"a","method":"initialize","params":{"protocolVersion":1}}
{"type":"request","ts":0.2,"protocol":"acp","from":"Proxy(0)","to":"Agent","id":"b","method":"initialize","params":{"protocolVersion":1}}
{"type":"response","ts":0.3,"from":"Agent","to":"Proxy(0)","id":"b","is_error":false,"payload":{"protocolVersion":1}}
{"type":"response","ts":0.4,"from":"Proxy(0)","to":"Client","id":"a","is_error":false,"payload":{"protocolVersion":1}}
{"type":"notification","ts":0.5,"protocol":"acp","from":"Proxy(0)","to":"Client","method":"session/update","params":{"sessionId":"s"}}
{"type":"response","ts":0.6,"from":"Client","to":"Proxy(0)","id":"c","is_error":true,"payload":{"code":-32601,"message":"no"}}
"""


def said(trace: Trace) -> list[tuple[str, Any]]:
    return [
        (entry.sender, entry.method or sorted({"result", "error"} & {*entry.message}))
        for entry in trace.entries
    ]


def test_a_stream_of_acpx_is_read_with_its_two_sides(tmp_path: Path) -> None:
    (tmp_path / "s.stream.ndjson").write_text(ACPX)

    trace = Trace.load(tmp_path / "s.stream.ndjson")

    assert said(trace) == [
        ("client", "initialize"),
        ("agent", ["result"]),
        ("client", "session/prompt"),
        ("agent", "fs/read_text_file"),
        ("client", ["result"]),
        ("agent", "session/update"),
        ("agent", ["result"]),
    ]
    (prompt,) = trace.exchanges("session/prompt")
    assert prompt.result == {"stopReason": "end_turn"}


def test_a_trace_of_the_conductor_is_read_as_the_client_saw_it(tmp_path: Path) -> None:
    (tmp_path / "t.jsons").write_text(CONDUCTOR)

    trace = Trace.load(tmp_path / "t.jsons")

    assert said(trace) == [
        ("client", "initialize"),
        ("agent", ["result"]),
        ("agent", "session/update"),
        ("client", ["error"]),
    ]
    assert [entry.at for entry in trace.entries] == [0.1, 0.4, 0.5, 0.6]


@pytest.mark.parametrize("line", ['{"missing": "x"}', '{"end": "nobody"}', '{"at": 1, "exit": "x"}', "[]"])
def test_a_line_of_no_kind_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    (tmp_path / "t.ndjson").write_text('{"format": "coupler.trace", "version": 1}\n' + line + "\n")
    with pytest.raises(TraceError, match=r"t\.ndjson:2 is no line of a trace"):
        Trace.load(tmp_path / "t.ndjson")


def test_a_recording_that_is_too_long_says_how_many_lines_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coupler.recording.writer.MOST_RECORDED", 10_000)
    with (tmp_path / "trace.jsonl").open("wb") as target:
        file = RecordingFile(target.fileno())
        file.write(0.0, [b"x" * 1_999 + b"\n" for _ in range(20)])
        file.write(1.0, [b"the end\n"])
        file.finish(2.0)
    lines = (tmp_path / "trace.jsonl").read_bytes().splitlines()
    assert (len(lines), lines[5], file.has_lost) == (7, b"the end", True)
    assert b"15" in lines[6] and b"the recording is over 10,000 bytes" in lines[6]

"""Models and servers that send what none should: a turn goes on, or ends with words, and the next works."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridges.model_server import Reply
from coder.script import use
from coder.served_coder import KEY, Coder, tree, write


def test_half_a_character_does_not_spoil_the_conversation(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    editor = coder(
        project,
        [
            ("Half \ud800.", use("read_file", path="\ud800.py"), use("search", pattern="\udc00")),
            use("write_file", path="b.py", content="a \ud83d\ude00 and half \ud83d"),
            "Both halves: \ud83d\ude00",
            "Still here.",
        ],
    )

    first = editor.prompt("Go", "allow_once")
    second = editor.prompt("And now?")

    assert (first.reason, second.reason) == ("end_turn", "end_turn")
    assert tree(project) == {"a.py": "one\n", "b.py": "a 😀 and half \ufffd"}
    assert "Half \ufffd." in coder.model.last.text
    assert "Both halves: 😀" in coder.model.last.text


def test_a_file_whose_name_is_no_text_does_not_spoil_it_either(coder: Coder, project: Path) -> None:
    Path(f"{project}/odd-\udcff.txt").write_text("needle\n")
    editor = coder(
        project,
        [
            (use("find_files", glob="odd*"), use("search", pattern="needle"), use("list_directory")),
            use("run_command", command="ls; cat odd*"),
            "Odd.",
        ],
    )

    turn = editor.prompt("Go", "allow_once")

    assert turn.reason == "end_turn"
    assert "needle" in coder.model.last.result


def call(arguments: str, id: str = "call-1") -> Reply:
    """A call of read_file with arguments as they are."""
    made = {
        "index": 0,
        "id": id,
        "type": "function",
        "function": {"name": "read_file", "arguments": arguments},
    }
    return Reply([{"tool_calls": [made]}], "tool_calls")


@pytest.mark.parametrize("arguments", ['"a.py"', "[1, 2]", "path: a.py", "}{"])
def test_a_model_whose_call_cannot_be_read_is_told_so_and_tries_again(
    coder: Coder, project: Path, arguments: str
) -> None:
    write(project, {"a.py": "one\n"})
    editor = coder(project, [call(arguments), use("read_file", path="a.py", call_id="call-2"), "It is one."])

    turn = editor.prompt("Read it")

    assert turn.messages == ["It is one."]
    assert [use["status"] for use in turn.uses] == ["failed", "completed"]
    assert "not a JSON object" in coder.model.asked[1].result
    assert "one" in coder.model.last.result


def test_a_model_that_never_writes_one_that_can_be_read_is_left_alone(coder: Coder, project: Path) -> None:
    editor = coder(project, [call("7", f"call-{number}") for number in range(4)] + ["I give up."])

    first = editor.prompt("Read it")
    second = editor.prompt("And now?")

    assert [use["status"] for use in first.uses] == ["failed"] * 4
    assert second.messages == ["I give up."]


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>Sign in</html>"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (PAGE, "garbled"),
        (STREAM, "garbled"),
        (STREAM + b"data: not JSON\n\n", "garbled"),
        (STREAM + b'data: {"id": "\xff"}\n\n', "garbled"),
        (STREAM + f'data: {{"error": {{"message": "busy, {KEY}"}}}}\n\n'.encode(), "unavailable"),
        (b"\x00\x01\x02 not HTTP", "network"),
    ],
    ids=["a page", "nothing", "no JSON", "no UTF-8", "an error", "no HTTP"],
)
def test_a_server_that_sends_anything_else_is_named_and_the_session_goes_on(
    coder: Coder, project: Path, answer: bytes, kind: str
) -> None:
    with answering(answer) as address:
        served = coder.served(env={"COUPLER_BASE_URL": address})
        editor = served.opened(project)
        turns = [editor.prompt("Hello"), editor.prompt("Again")]

    for turn in turns:
        assert turn.error["data"]["kind"] == kind
        assert kind == "unavailable" or address in turn.error["message"]
        assert KEY not in str(turn.answer)
    served.leave()


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """The address of a server that answers each request with these bytes."""

    class Answering(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while (line := self.rfile.readline()).strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            self.rfile.read(length)
            self.wfile.write(content)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()

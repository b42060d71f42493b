"""Models and servers that send what none should: a turn goes on, or ends with words, and the next works."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coder.script import use
from coder.served_coder import KEY, Coder, tree, write
from labs.langchain.model_server import Reply


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


def call(
    arguments: str, id: str = "call-1", *, name: str = "read_file", index: int = 0, finish: str = "tool_calls"
) -> Reply:
    """A call of a tool with arguments as they are."""
    made = {
        "index": index,
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return Reply([{"tool_calls": [made]}], finish)


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
        (STREAM, "cut_off"),
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
        served = coder.served(env={"COUPLER_BASE_URL": address}, config="[coder]\nretry_seconds = 0\n")
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


@pytest.mark.parametrize("finish", ["length", "tool_calls"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("run_command", '{"command": "rm -rf build/'),
        ("write_file", '{"path": "b.js", "content": "function b() { return 1 }'),
    ],
)
def test_a_call_that_breaks_off_is_not_made_and_the_model_told_so(
    coder: Coder, project: Path, name: str, arguments: str, finish: str
) -> None:
    write(project, {"build/a.js": "one\n"})
    editor = coder(project, [call(arguments, name=name, finish=finish), "I make it shorter."])
    editor.set_mode("agentic")

    turn = editor.prompt("Go")

    assert tree(project) == {"build/a.js": "one\n"}
    assert turn.use["status"] == "failed"
    assert "breaks off in the middle" in coder.model.last.result
    assert (turn.last_message, turn.reason) == ("I make it shorter.", "end_turn")


def test_calls_before_the_one_that_breaks_off_are_made(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    first = call('{"path": "a.py"}')
    second = call('{"command": "rm a', "call-2", name="run_command", index=1)
    editor = coder(project, [Reply([*first.deltas, *second.deltas], "length"), "It is one."])
    editor.set_mode("agentic")

    turn = editor.prompt("Go")

    assert [use["status"] for use in turn.uses] == ["completed", "failed"]
    assert sorted(each["tool_call_id"] for each in coder.model.last.messages if each["role"] == "tool") == [
        "call-1",
        "call-2",
    ]
    assert tree(project) == {"a.py": "one\n"}


def test_a_model_whose_calls_all_break_off_is_not_asked_for_ever(coder: Coder, project: Path) -> None:
    broken = '{"path": "a'
    editor = coder(project, [call(broken, f"call-{number}", finish="length") for number in range(4)])
    assert editor.prompt("Read it").reason == "max_tokens"


@pytest.mark.parametrize(
    ("arguments", "finish"), [('{"path": "a.py"', "tool_calls"), ('{"path": "a.py"}', "length")]
)
def test_a_call_is_made_if_only_the_last_bracket_or_nothing_of_it_is_missing(
    coder: Coder, project: Path, arguments: str, finish: str
) -> None:
    write(project, {"a.py": "one\n"})
    editor = coder(project, [call(arguments, finish=finish), "It is one."])
    assert editor.prompt("Read it").use["status"] == "completed"


def test_an_argument_that_a_tool_does_not_have_is_not_left_out_unseen(coder: Coder, project: Path) -> None:
    write(project, {"build/a.js": "one\n"})
    elsewhere = use("run_command", command="rm a.js; touch here", cwd="build")
    unset = use("run_command", command="cat a.js", directory="build", cwd=None)
    editor = coder(project, [elsewhere, unset, "It is one."])

    turn = editor.prompt("Go", "allow_once")

    assert tree(project) == {"build/a.js": "one\n"}
    assert [use["status"] for use in turn.uses] == ["failed", "completed"]
    refused, done = coder.model.last.results
    assert "it has no argument cwd; it has command, directory" in refused
    assert done.startswith("one\n")

"""Models that are busy, fail for a moment, or break off: asked again where it helps, and told why."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coder.editor import Editor, Turn
from coder.script import Scripted
from coder.served_coder import Coder, Served
from labs.langchain.model_server import Reply, refuses, says
from raw_client import Frame

BUSY = refuses(429, "Rate limit reached", "rate_limit_exceeded")
DOWN = refuses(503, "overloaded")
CUT_AT_ONCE = Reply([{"role": "assistant", "content": ""}], is_cut=True)


def few_seconds(coder: Coder, project: Path, *script: Scripted, seconds: int = 3) -> tuple[Served, Editor]:
    served = coder.served(config=f"[coder]\nretry_seconds = {seconds}\n")
    coder.model.plays(*script)
    return served, served.opened(project)


def thoughts(turn: Turn) -> str:
    return "\n".join(str(each["content"]["text"]) for each in turn.of("agent_thought_chunk"))


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (BUSY, "The model's provider limits the rate of requests"),
        (DOWN, "The model's provider has failed"),
        (CUT_AT_ONCE, "The model's answer broke off before its end"),
    ],
    ids=["busy", "down", "cut at once"],
)
def test_a_model_that_fails_for_a_moment_is_asked_again_and_the_user_told_why_and_when(
    coder: Coder, project: Path, reply: Reply, why: str
) -> None:
    served, editor = few_seconds(coder, project, reply, "Here I am.")

    turn = editor.prompt("Hello")

    assert (turn.reason, turn.messages) == ("end_turn", ["Here I am."])
    assert why in thoughts(turn)
    assert "It is asked again in a second." in thoughts(turn)
    assert thoughts(turn).count("asked again") == 1
    served.leave()


def test_it_is_asked_again_as_long_as_is_set_and_no_longer(coder: Coder, project: Path) -> None:
    served = coder.served(config="[coder]\nretry_seconds = 2\n")
    editor = served.opened(project)
    coder.model.improvises(lambda asked: DOWN)

    turn = editor.prompt("Hello")

    assert turn.error["data"]["kind"] == "unavailable"
    assert turn.error["data"]["retryable"] is True
    assert len(coder.model.asked) == 1 + thoughts(turn).count("asked again")
    assert 3 <= len(coder.model.asked) <= 4
    served.leave()


def test_a_provider_that_wants_to_be_asked_too_late_is_not_waited_for(coder: Coder, project: Path) -> None:
    later = refuses(429, "Rate limit reached", "rate_limit_exceeded", retry_after=600)
    editor = coder(project, [later])

    turn = editor.prompt("Hello")

    assert turn.error["data"]["retryAfter"] == 600
    assert not thoughts(turn)


def test_a_cancel_ends_the_wait(coder: Coder, project: Path) -> None:
    later = refuses(429, "Rate limit reached", "rate_limit_exceeded", retry_after=50)
    editor = coder(project, [later, "Going on."])
    request = editor.begin("Hello")
    before = editor.until(lambda frame: "asked again in 50 seconds" in str(frame.get("params")))

    editor.cancel()

    assert editor.finish(request, before=before).reason == "cancelled"
    assert editor.prompt("Go on").last_message == "Going on."


@pytest.mark.parametrize("is_orderly", [False, True], ids=["dropped", "closed without an end"])
def test_an_answer_that_breaks_off_after_its_first_words_is_an_error_and_the_words_are_kept(
    coder: Coder, project: Path, is_orderly: bool
) -> None:
    if is_orderly:
        with speaking(sse(*OPENAI[:1])) as address:
            served = coder.served(env={"COUPLER_BASE_URL": address})
            turn = served.opened(project).prompt("Talk")
        served.leave()
    else:
        editor = coder(project, [says("So far", " so good", is_cut=True), "Going on."])
        turn = editor.prompt("Talk")
        assert editor.prompt("Go on").last_message == "Going on."
        assert coder.model.last.messages[-2] == {
            "role": "assistant",
            "content": "So far so good",
        }

    assert turn.error["data"]["kind"] == "cut_off"
    assert "broke off before its end" in turn.error["message"]
    assert "prompt again" in turn.error["message"]
    assert turn.text.startswith("So far")
    assert not thoughts(turn)


def test_a_summary_is_asked_for_again_as_well(coder: Coder, project: Path) -> None:
    editor = coder(project, ["Noted.", "Noted too.", DOWN, "SUMMARY: tea."])
    editor.prompt("I like tea.")
    editor.prompt("I like cake.")

    turn = editor.prompt("/compact")

    assert turn.reason == "end_turn"
    assert coder.model.is_over


def chunk(delta: Frame, finish: str | None = None) -> Frame:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


OPENAI = (
    chunk({"role": "assistant", "content": "So far"}),
    chunk({"content": " so good"}),
    chunk({}, "stop"),
)
ANTHROPIC = (
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "So far so good"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
)
GEMINI = (
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "So far so good"}]}, "index": 0}]},
    {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": "."}]}, "index": 0, "finishReason": "STOP"}
        ]
    },
)


def sse(*events: Frame) -> bytes:
    """A stream that ends in good order after these events."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        lines.append(f"{name}data: {json.dumps(event)}\n\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return head + "".join(lines).encode()


ERROR = b'{"type": "error", "error": {"type": "overloaded_error", "code": 503, "message": "busy"}}'
FAILURE = (
    b"HTTP/1.1 503 Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(ERROR), ERROR)
)


@pytest.mark.parametrize(
    ("model", "events", "middle"),
    [
        ("openai:m", OPENAI, 2),
        ("anthropic:claude-m", ANTHROPIC, 3),
        ("google_genai:gemini-2.5-pro", GEMINI, 1),
    ],
)
def test_every_providers_client_is_asked_again_by_us_alone_and_its_broken_answers_are_found(
    coder: Coder, project: Path, model: str, events: tuple[Frame, ...], middle: int
) -> None:
    whole, broken = sse(*events), sse(*events[:middle])
    with speaking(FAILURE, whole, broken) as address:
        env = {
            "COUPLER_MODEL": model,
            "COUPLER_BASE_URL": address.removesuffix("/v1" * ("openai" not in model)),
        }
        served = coder.served(env=env, config="[coder]\nretry_seconds = 3\n")
        editor = served.opened(project)

        answered, cut = editor.prompt("Hello"), editor.prompt("Again")

    assert answered.text.startswith("So far so good"), answered.answer
    assert thoughts(answered).count("asked again") == 1
    assert cut.error["data"]["kind"] == "cut_off"
    served.leave()


@contextmanager
def speaking(*answers: bytes) -> Iterator[str]:
    """The address of a server that answers with these bytes, one after the other; the last is repeated."""
    left = list(answers)

    class Speaking(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while (line := self.rfile.readline()).strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            self.rfile.read(length)
            self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Speaking) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()

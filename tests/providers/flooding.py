"""A program in a vendor's place, whose stream of one kind never ends. FLOOD names the vendor and the kind.

A flood has a line for each number; those in `BYTES` are no lines. A prompt with the word `sentinel`
is answered.
"""

import json
import os
import sys

TEXT = "All work and no play makes Jack a dull boy. " * 230
"""About 10 KB."""


def assistant(*content, **fields):
    return {"type": "assistant", "message": {"id": "m", "content": [*content]}, "session_id": "s", **fields}


def delta(text):
    grown = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": grown, "session_id": "s"}


def call(number, text=""):
    return {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": text}}


def result(number, text):
    content = [{"type": "tool_result", "tool_use_id": f"c{number}", "content": text}]
    return {"type": "user", "message": {"content": content}, "session_id": "s"}


def todo(number):
    todos = [{"content": f"{number} {TEXT}", "status": "pending"}]
    return {"type": "tool_use", "id": f"t{number}", "name": "TodoWrite", "input": {"todos": todos}}


def item(stage, **fields):
    return {"type": f"item.{stage}", "item": fields}


CLAUDE = {
    "text": lambda n: delta(TEXT),
    "letters": lambda n: delta("x"),
    "thoughts": lambda n: assistant({"type": "thinking", "thinking": f"{n} {TEXT}"}),
    "messages": lambda n: assistant({"type": "text", "text": f"{n}"}, message_id=f"{n}"),
    "calls": lambda n: assistant(call(n)),
    "open calls": lambda n: assistant(call(n, TEXT)),
    "long ids": lambda n: assistant(call(f"{n}{TEXT}")),
    "whole calls": lambda n: result(n // 2, TEXT) if n % 2 else assistant(call(n // 2)),
    "sub-agent": lambda n: {**delta(TEXT), "parent_tool_use_id": "c0"} if n else assistant(call(0)),
    "sub-agents": lambda n: {
        "type": "stream_event",
        "event": {"type": "message_start", "message": {"id": TEXT}},
        "parent_tool_use_id": f"{n}",
    },
    "plans": lambda n: assistant(todo(n)),
    "one call again": lambda n: assistant(
        {"type": "tool_use", "id": "e", "name": "Edit",
         "input": {"file_path": "/x", "old_string": f"{n}", "new_string": TEXT}}
    ),
    "notices": lambda n: {"type": "system", "subtype": "api_retry", "error": f"{n} {TEXT}"},
    "unknown": lambda n: {"type": "of_its_own", "text": TEXT},
}  # fmt: skip
CODEX = {
    "growing output": lambda n: item(
        "updated", id="1", type="command_execution", command="x", aggregated_output=TEXT * min(n, 500)
    ),
    "items": lambda n: item("updated", id=f"{n}", type="agent_message", text=TEXT),
    "nameless items": lambda n: item("started", type="todo_list", items=[]),
}
GEMINI = {
    "text": lambda n: {"type": "message", "role": "assistant", "content": TEXT, "delta": True},
    "letters": lambda n: {"type": "message", "role": "assistant", "content": "x", "delta": True},
    "calls": lambda n: {
        "type": "tool_use",
        "tool_name": "list_directory",
        "tool_id": f"{n}",
        "parameters": {},
    },
    "unknown": lambda n: {"type": "of_its_own", "text": TEXT},
}
FLOODS = {"claude": CLAUDE, "codex": CODEX, "gemini": GEMINI}
ANSWERS = {
    "claude": [assistant({"type": "text", "text": "sentinel"}),
               {"type": "result", "subtype": "success", "result": "sentinel", "session_id": "s"}],
    "codex": [item("completed", id="1", type="agent_message", text="sentinel"), {"type": "turn.completed"}],
    "gemini": [{"type": "init", "session_id": "s"},
               {"type": "message", "role": "assistant", "content": "sentinel", "delta": True},
               {"type": "result", "status": "success"}],
}  # fmt: skip
BYTES = {"a line": b"x" * 65536, "garbage": b"no object\n" * 6000}

vendor, _, kind = os.environ["FLOOD"].partition(":")
if "sentinel" in sys.stdin.read():
    print("\n".join(map(json.dumps, ANSWERS[vendor])))
    sys.exit()
with open(os.environ["FLOOD_PID"], "w") as file:  # noqa: PTH123
    file.write(str(os.getpid()))
number = 0
while True:
    if kind in BYTES:
        sys.stdout.buffer.write(BYTES[kind])
    elif kind == "stderr":
        sys.stderr.write(TEXT + "\n")
    else:
        flood = FLOODS[vendor][kind]
        lines = [json.dumps(flood(each)) for each in range(number, number + 20)]
        sys.stdout.write("\n".join(lines) + "\n")
        number += 20

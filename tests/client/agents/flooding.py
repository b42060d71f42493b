"""An agent that answers a prompt with updates or requests of one kind for ever, and ignores every cancel.

Its arguments are the kind, how many it sends before it ends the turn in good order (0 is endless), and a
directory, in which it makes the file `prompted`. It needs pipes and `json` only, and ends when nobody reads
it any more. Of the kind `silence` it says nothing, and ignores SIGTERM too.
"""

import json
import os
import signal
import sys
import threading

TEXT = "All work and no play makes Jack a dull boy. " * 230
"""About 10 KB."""


def update(**fields):
    """The frame of an update."""
    return {"method": "session/update", "params": {"sessionId": "s1", "update": fields}}


def chunk(kind, text, **fields):
    """The frame of a piece of text."""
    return update(sessionUpdate=kind, content={"type": "text", "text": text}, **fields)


def call(number, **fields):
    """The frame that announces a tool call."""
    return update(sessionUpdate="tool_call", toolCallId=f"c{number}", title="Look", **fields)


def shown(text):
    """The content of a tool call."""
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def asked(number, method, **params):
    """The frame of a request."""
    return {"id": number, "method": method, "params": {"sessionId": "s1", **params}}


def permission(number):
    """The frame of a permission request whose answer is not awaited."""
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
    tool = {"toolCallId": f"c{number}", "title": "Write", "kind": "edit", "rawInput": {"text": TEXT}}
    return asked(number, "session/request_permission", toolCall=tool, options=options)


def select(number):
    """An option of the session."""
    choices = [{"value": f"v{each}", "name": TEXT[:1000]} for each in range(10)]
    return {"id": f"o{number}", "name": "O", "type": "select", "currentValue": "v0", "options": choices}


DIRECTORY = sys.argv[3] if len(sys.argv) > 3 else os.curdir

ENTRY = {"content": TEXT, "priority": "high", "status": "pending"}
COMMAND = {"name": "do", "description": TEXT}

FLOODS = {
    "text": lambda number: chunk("agent_message_chunk", TEXT),
    "small text": lambda number: chunk("agent_message_chunk", "ab"),
    "messages": lambda number: chunk("agent_message_chunk", "ab", messageId=f"m{number}"),
    "text with meta": lambda number: chunk("agent_message_chunk", "ab", _meta={"n": number}),
    "thoughts": lambda number: chunk("agent_thought_chunk", TEXT),
    "user text": lambda number: chunk("user_message_chunk", TEXT),
    "images": lambda number: update(
        sessionUpdate="agent_message_chunk",
        content={"type": "image", "data": "QUJD" * 2500, "mimeType": "image/png"},
    ),
    "calls": lambda number: call(number, status="completed"),
    "long calls": lambda number: call(number, status="completed", content=shown(TEXT)),
    "open calls": lambda number: call(number, status="pending", rawInput={"text": TEXT}),
    "output": lambda number: (
        update(
            sessionUpdate="tool_call_update",
            toolCallId="c0",
            status="in_progress",
            content=shown(f"{number} {TEXT}"),
        )
        if number
        else call(0, status="in_progress")
    ),
    "growing output": lambda number: (
        update(sessionUpdate="tool_call_update", toolCallId="c0", content=shown(TEXT * min(number, 3000)))
        if number
        else call(0, status="in_progress")
    ),
    "terminal output": lambda number: (
        update(
            sessionUpdate="tool_call_update",
            toolCallId="c0",
            _meta={"terminal_output": {"terminal_id": "t", "data": TEXT}},
        )
        if number
        else call(0, status="in_progress", _meta={"terminal_info": {"terminal_id": "t"}})
    ),
    "unnamed calls": lambda number: update(sessionUpdate="tool_call", toolCallId="", title="Look"),
    "plans": lambda number: update(sessionUpdate="plan", entries=[ENTRY]),
    "commands": lambda number: update(
        sessionUpdate="available_commands_update", availableCommands=[{**COMMAND, "name": f"do{number}"}]
    ),
    "options": lambda number: update(sessionUpdate="config_option_update", configOptions=[select(number)]),
    "modes": lambda number: update(sessionUpdate="current_mode_update", currentModeId=f"m{number}"),
    "titles": lambda number: update(sessionUpdate="session_info_update", title=f"{number} {TEXT}"),
    "usage": lambda number: update(sessionUpdate="usage_update", used=number, size=10**9),
    "unknown updates": lambda number: update(sessionUpdate="of_its_own", text=TEXT),
    "notices": lambda number: update(sessionUpdate="notice", severity="info", title=f"{number}"),
    "unknown notifications": lambda number: {"method": "_of/its/own", "params": {"text": TEXT}},
    "other sessions": lambda number: {
        "method": "session/update",
        "params": {**chunk("agent_message_chunk", TEXT)["params"], "sessionId": f"s{number + 2}"},
    },
    "permissions": permission,
    "terminals": lambda number: asked(number, "terminal/create", command="yes", args=[TEXT[:100]]),
    "writes": lambda number: asked(number, "fs/write_text_file", path=f"{DIRECTORY}/f", content=TEXT),
    "unknown requests": lambda number: asked(number, "_of/its/own", text=TEXT),
}


def send(*frames):
    """Send frames in one write."""
    data = b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def flood(prompt, kind, most):
    """Send so many of a kind, then end the turn."""
    if len(sys.argv) > 3:
        open(f"{DIRECTORY}/prompted", "w").close()  # noqa: PTH123
    if kind == "silence":
        threading.Event().wait()
    make, number = FLOODS[kind], 0
    while not most or number < most:
        send(*(make(each) for each in range(number, number + 20)))
        number += 20
    send({"id": prompt["id"], "result": {"stopReason": "end_turn"}})


def main():
    """Answer what opens a session; flood on the first prompt, and read on without a reaction."""
    kind, most = sys.argv[1], int(sys.argv[2])
    if kind == "silence":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        frame = json.loads(line)
        match frame.get("method"):
            case "initialize":
                send({"id": frame["id"], "result": {"protocolVersion": 1, "agentCapabilities": {}}})
            case "session/new":
                modes = {"currentModeId": "m0", "availableModes": [{"id": "m0", "name": "M"}]}
                send({"id": frame["id"], "result": {"sessionId": "s1", "modes": modes}})
            case "session/prompt":
                threading.Thread(target=flood, args=(frame, kind, most), daemon=True).start()
    threading.Event().wait(0 if most else 60)


main()

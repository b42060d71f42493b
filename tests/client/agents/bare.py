"""What scripted agents share: pipes and `json`, nothing of Coupler.

An agent is a script that begins with `from bare import *`. Its first argument is a file: everything that it
receives, every request that it sends, and the process's number are written there, for the test to look at.
"""

import json
import os
import sys

_log = open(sys.argv[1], "a", encoding="utf-8")  # noqa: PTH123
_lines = iter(sys.stdin.buffer.readline, b"")

HELLO = {"protocolVersion": 1, "agentCapabilities": {}}


def note(kind, value):
    """Write something down for the test, before anything else can happen."""
    _log.write(json.dumps({kind: value}) + "\n")
    _log.flush()


def write(data):
    """Write bytes to stdout as they are, in one piece as far as the pipe has room."""
    while data:
        data = data[os.write(1, data) :]


def send(*frames):
    """Send frames in one write."""
    for frame in frames:
        if "method" in frame and "id" in frame:
            note("asked", {"id": frame["id"], "method": frame["method"]})
    write(b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames))


def read():
    """The next frame; at the end of the input the script ends."""
    line = next(_lines, None)
    if line is None:
        raise SystemExit(0)
    frame = json.loads(line)
    note("got", frame)
    return frame


def read_until(matches):
    """Read up to the first frame that matches."""
    while not matches(frame := read()):
        pass
    return frame


def result(request, value):
    """The frame that answers a request."""
    return {"id": request["id"], "result": value}


def error(request, code, message, **more):
    """The frame that refuses a request."""
    return {"id": request["id"], "error": {"code": code, "message": message, **more}}


def end(prompt, reason="end_turn", **more):
    """The frame that ends a turn."""
    return result(prompt, {"stopReason": reason, **more})


def update(kind, session="s1", /, **fields):
    """The frame of an update."""
    return {
        "method": "session/update",
        "params": {"sessionId": session, "update": {"sessionUpdate": kind, **fields}},
    }


def say(text, session="s1", **fields):
    """The frame of a piece of text."""
    return update("agent_message_chunk", session, content={"type": "text", "text": text}, **fields)


def request(id, method, /, **params):
    """The frame of a request to the client."""
    return {"id": id, "method": method, "params": params}


def permission(id, options=None, session="s1", /, **call):
    """The frame that asks whether a tool may run."""
    options = options or [("yes", "allow_once"), ("no", "reject_once")]
    return request(
        id,
        "session/request_permission",
        sessionId=session,
        toolCall={"toolCallId": "c1", **call},
        options=[{"optionId": option, "name": option, "kind": kind} for option, kind in options],
    )


def answer_to(id):
    """Read up to the answer to a request of ours."""
    return read_until(lambda frame: frame.get("id") == id and "method" not in frame)


def is_cancel(frame):
    """Whether this is the client's cancel."""
    return frame.get("method") == "session/cancel"


def text_of(prompt):
    """The text of a prompt."""
    return "".join(block.get("text", "") for block in prompt["params"]["prompt"])


def hello():
    """Answer `initialize`."""
    send(result(read(), HELLO))


def open_sessions(count=1):
    """Answer `initialize`, and open sessions s1, s2 and so on."""
    hello()
    for number in range(1, count + 1):
        send(result(read(), {"sessionId": f"s{number}"}))


def prompts():
    """Say hello, open as many sessions as are wanted, and yield each prompt."""
    opened = 0
    while True:
        frame = read()
        if frame.get("method") == "initialize":
            send(result(frame, HELLO))
        elif frame.get("method") == "session/new":
            opened += 1
            send(result(frame, {"sessionId": f"s{opened}"}))
        elif frame.get("method") == "session/prompt":
            yield frame


note("pid", os.getpid())

"""An agent without Coupler whose turns never end: it writes chunks, requests or complaints as fast as it can.

With `terminals` it runs a command without an end in a terminal, and asks for its output without an end.
The prompt says which; `sentinel` and what follows is repeated at once, whatever else goes on.
"""

import collections
import itertools
import json
import os
import sys
import threading

CHUNK = "x" * 10_240
writing = threading.Lock()
urgent = collections.deque()
"""Frames that whoever writes next writes first: the flood of a session keeps no other waiting in here."""
sessions = 0
terminal = ""
looks = itertools.count()


def send(*frames):
    data = encoded(frames)
    with writing:
        while urgent:
            data = urgent.popleft() + data
        while data:
            data = data[os.write(1, data) :]


def encoded(frames):
    return b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)


def said(session, text):
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": session, "update": update}}


def flood(kind, session):
    number = 0
    while True:
        number += 1
        match kind:
            case "stderr":
                os.write(2, CHUNK.encode() + b"\n")
            case "requests":
                params = {"sessionId": session, "path": f"/nowhere/{number}"}
                send({"id": f"r{number}", "method": "fs/read_text_file", "params": params})
            case "calls":
                call = {
                    "sessionUpdate": "tool_call",
                    "toolCallId": f"c{number}",
                    "title": CHUNK,
                    "status": "pending",
                }
                send({"method": "session/update", "params": {"sessionId": session, "update": call}})
            case "letters":
                send(*[said(session, "x")] * 500)
            case _:
                send(said(session, CHUNK))


for line in sys.stdin:
    asked = json.loads(line)
    if "result" in asked and str(asked.get("id", "")).startswith("terminal"):
        terminal = asked["result"].get("terminalId", terminal)
        look = {"sessionId": "s1", "terminalId": terminal}
        send({"id": f"terminal-{next(looks)}", "method": "terminal/output", "params": look})
        continue
    if "id" not in asked or "method" not in asked:
        continue
    match asked["method"]:
        case "initialize":
            send({"id": asked["id"], "result": {"protocolVersion": 1, "agentCapabilities": {}}})
        case "session/new":
            sessions += 1
            send({"id": asked["id"], "result": {"sessionId": f"s{sessions}"}})
        case "session/prompt":
            session, text = asked["params"]["sessionId"], asked["params"]["prompt"][0]["text"]
            if text == "terminals":
                command = {"sessionId": session, "command": "yes", "args": []}
                send({"id": "terminal", "method": "terminal/create", "params": command})
            elif text.startswith("sentinel"):
                answer = {"id": asked["id"], "result": {"stopReason": "end_turn"}}
                urgent.append(encoded([said(session, text), answer]))
                send()
            else:
                threading.Thread(target=flood, args=(text, session), daemon=True).start()
        case _:
            send({"id": asked["id"], "result": {}})
os._exit(0)

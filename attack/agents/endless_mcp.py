"""An MCP server without any package, one side of which never ends.

KIND says which; BEGUN is made when it begins.

endless_mcp.py KIND BEGUN
"""

import collections
import itertools
import json
import os
import sys
import threading
from pathlib import Path

KIND, BEGUN = sys.argv[1:]
TEXT = "x" * 10_240
BYTES = b"x" * 65_536
LARGE = "x" * 9_000_000
writing = threading.Lock()
urgent = collections.deque()
"""Answers that whoever writes next writes first: a flood keeps none of them waiting in here."""


def send(*frames):
    write(encoded(frames))


def encoded(frames):
    return b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)


def answer(id, result):
    urgent.append(encoded([{"id": id, "result": result}]))
    send()


def write(data, descriptor=1):
    with writing:
        while urgent:
            data = urgent.popleft() + data
        while data:
            data = data[os.write(descriptor, data) :]


def begin():
    Path(BEGUN).touch()


def notify():
    begin()
    for number in itertools.count():
        params = {"level": "info", "data": f"{number} {TEXT[:200]}"}
        send(*[{"method": "notifications/message", "params": params}] * 50)


def bytes_for_ever(descriptor=1):
    begin()
    while True:
        write(BYTES, descriptor)


def listed(cursor):
    tool = {"name": "endless", "inputSchema": {"type": "object", "properties": {}}}
    match KIND:
        case "pages":
            begin()
            return {"tools": [{**tool, "name": f"tool{cursor}"}], "nextCursor": f"{cursor + 1}"}
        case "long pages":
            begin()
            return {
                "tools": [{**tool, "name": f"t{cursor}", "description": LARGE}],
                "nextCursor": f"{cursor + 1}",
            }
    return {"tools": [tool]}


def call(id, params):
    """Answer a call, or never."""
    match KIND:
        case "progress":
            begin()
            token = params.get("_meta", {}).get("progressToken", id)
            for number in itertools.count():
                send(*[progress(token, number * 50 + each) for each in range(50)])
        case "requests":
            begin()
            for number in itertools.count():
                send(*[{"id": f"p{number}-{each}", "method": "ping"} for each in range(50)])
        case "a result":
            os.write(1, b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % id)
            bytes_for_ever()
        case "a line":
            bytes_for_ever()
        case "stderr":
            bytes_for_ever(2)
        case "large results":
            begin()
            answer(id, {"content": [{"type": "text", "text": LARGE}]})
        case _:
            answer(id, {"content": [{"type": "text", "text": "endless is done"}]})


def progress(token, number):
    params = {"progressToken": token, "progress": number, "message": f"{number} {TEXT[:1000]}"}
    return {"method": "notifications/progress", "params": params}


if KIND == "notifications":
    threading.Thread(target=notify, daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    params = message.get("params", {})
    match message.get("method"):
        case "initialize" if KIND == "hello":
            bytes_for_ever()
        case "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "endless", "version": "1"},
            }
            answer(message["id"], result)
        case "tools/list":
            answer(message["id"], listed(int(params.get("cursor") or 0)))
        case "tools/call":
            call(message["id"], params)
        case str() if "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
os._exit(0)

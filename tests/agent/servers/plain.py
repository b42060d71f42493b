"""A small MCP server without any package, which starts fast and misbehaves as its arguments say.

    plain.py MANNER [FILE]

Every start adds a line to FILE.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MANNER = sys.argv[1]
SCHEMA = {"type": "object"}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tool(name, **more):
    return {"name": name, "description": f"The tool {name}", "inputSchema": SCHEMA, **more}


def initialize(params):
    return {
        "protocolVersion": params.get("protocolVersion", "2025-06-18"),
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "plain", "version": "1"},
    }


def tools(params):
    if MANNER == "thousand":
        start = int(params.get("cursor", 0))
        listed = {"tools": [tool(f"t{number}") for number in range(start, start + 250)]}
        return listed | ({"nextCursor": str(start + 250)} if start < 750 else {})
    if MANNER == "endless":
        return {"tools": [tool("again")], "nextCursor": "more"}
    if MANNER == "malformed":
        return {"tools": [{"name": 5}]}
    return {"tools": [tool("echo", annotations={"readOnlyHint": True, "destructiveHint": False})]}


def call(params):
    arguments = params.get("arguments") or {}
    match params["name"]:
        case "echo":
            return {"content": [{"type": "text", "text": json.dumps(arguments)}]}
        case "environment":
            return {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
        case "directory":
            return {"content": [{"type": "text", "text": str(Path.cwd())}]}
        case "pids":
            return {"content": [{"type": "text", "text": json.dumps(pids)}]}
        case "die":
            print("I have to go", file=sys.stderr, flush=True)
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "large":
            return {"content": [{"type": "text", "text": "x" * (11 * 1024 * 1024)}]}
        case "crowded":
            return {"content": [], "structuredContent": {"numbers": [1] * 300_000}}
        case "half":
            return {"content": [{"type": "text", "text": "half \ud83d"}]}
        case "structured":
            return {"content": [], "structuredContent": {"answer": 42}}
        case "wrong":
            return {"content": "no list"}
    return {"error": {"code": -32602, "message": f"no tool {params['name']}"}}


pids = [os.getpid()]
current = None
if len(sys.argv) > 2:
    with Path(sys.argv[2]).open("a") as file:
        file.write(f"{os.getpid()}\n")
match MANNER:
    case "exit":
        print("no licence found", file=sys.stderr, flush=True)
        sys.exit(7)
    case "mute":
        for _ in sys.stdin:
            pass
        sys.exit()
    case "chatty":
        print("Welcome to the server!\n[1, 2]\n\n{]", flush=True)
        print("a line on stderr with s3cr3t-t0ken-value", file=sys.stderr, flush=True)
    case "garbage":
        while True:
            print("garbage " * 100, flush=True)
    case "family":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        pids.append(child.pid)
    case "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

for line in sys.stdin:
    message = json.loads(line)
    current = message.get("id")
    answer = {"initialize": initialize, "tools/list": tools, "tools/call": call}.get(message["method"])
    if current is None:
        continue
    if answer is None:
        send(id=current, error={"code": -32601, "message": "no such method"})
        continue
    result = answer(message.get("params") or {})
    if MANNER == "flood" and message["method"] == "tools/call":
        note = (
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/message",
                    "params": {"level": "info", "data": "x" * 100},
                }
            )
            + "\n"
        )
        end = time.monotonic() + 3
        while time.monotonic() < end:
            sys.stdout.write(note * 100)
    send(id=current, **(result if "error" in result else {"result": result}))

if MANNER == "deaf":
    time.sleep(60)

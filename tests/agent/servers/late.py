"""A small MCP server without any package that is late, or ends, when a test says so.

    late.py WHEN FILE TOOL

WHEN is `hello` or `tools`: what is not answered before FILE is there. `dies` ends in the middle of a call.
"""

import json
import sys
import time
from pathlib import Path

WHEN, FILE, TOOL = sys.argv[1:]


def wait(when):
    while when == WHEN and not Path(FILE).exists():
        time.sleep(0.02)


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            wait("hello")
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "late", "version": "1"},
            }
        case "tools/list":
            wait("tools")
            result = {"tools": [{"name": TOOL, "inputSchema": {"type": "object", "properties": {}}}]}
        case "tools/call" if WHEN == "dies":
            sys.exit(3)
        case "tools/call":
            result = {"content": [{"type": "text", "text": f"{TOOL} is done"}]}
        case _:
            if "id" in message:
                error = {"code": -32601, "message": "unknown"}
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)

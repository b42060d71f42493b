"""An MCP server with one tool that does nothing: it notes how far a connection came.

Run as a script: `mcp_probe.py FILE`. Each method that it is asked for is a line of the file. It imports
nothing of Coupler, so that it starts fast, from anywhere, in whatever environment an agent gives it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NAME = "coupler-doctor"
TOOL = "coupler_doctor_probe"
STARTED = "started"
VERSION = "2025-06-18"


def main(file: Path) -> None:
    """Serve until the input ends."""
    with file.open("a") as notes:
        note(notes, STARTED)
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict) and "method" in message:
                note(notes, str(message["method"]))
                if "id" in message:
                    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply(message)}), flush=True)


def note(notes: Any, method: str) -> None:
    """Note a method before it is answered."""
    notes.write(f"{method}\n")
    notes.flush()


def reply(message: dict[str, Any]) -> dict[str, Any]:
    """Return the result or the error for a request."""
    match message["method"]:
        case "initialize":
            params = message.get("params")
            asked = params.get("protocolVersion") if isinstance(params, dict) else None
            return {
                "result": {
                    "protocolVersion": asked if isinstance(asked, str) else VERSION,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": NAME, "version": "1"},
                }
            }
        case "tools/list":
            tool = {
                "name": TOOL,
                "description": "Does nothing. Call it once when you are asked to.",
                "inputSchema": {"type": "object", "properties": {}},
                "annotations": {"readOnlyHint": True},
            }
            return {"result": {"tools": [tool]}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": "reached"}]}}
        case "ping":
            return {"result": {}}
        case method:
            return {"error": {"code": -32601, "message": f"no method {method!r}"}}


if __name__ == "__main__":
    main(Path(sys.argv[1]))

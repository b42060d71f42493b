"""An MCP server without tools that notes how it was started.

Run as a script: `mcp_witness.py FILE ARGUMENT…`. It imports nothing of Coupler, so that it starts fast, from
anywhere, in whatever environment an agent gives it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

VARIABLE = "COUPLER_CHECK_WITNESS"
"""The environment variable whose value is noted."""

VERSION = "2025-06-18"


def main(file: Path, arguments: list[str]) -> None:
    """Write the notes, then serve until the input ends."""
    testify(file, arguments)
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and "id" in message and "method" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply(message)}), flush=True)


def testify(file: Path, arguments: list[str]) -> None:
    """Write the notes in one step, so that whoever waits for the file finds it complete."""
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"arguments": arguments, "variable": os.environ.get(VARIABLE)}))
    draft.replace(file)


def reply(message: dict[str, Any]) -> dict[str, Any]:
    """Return the result or the error for a request."""
    match message["method"]:
        case "initialize":
            params = message.get("params")
            asked = params.get("protocolVersion") if isinstance(params, dict) else None
            server = {"name": "coupler-check-witness", "version": "1"}
            return {
                "result": {
                    "protocolVersion": asked if isinstance(asked, str) else VERSION,
                    "capabilities": {"tools": {}},
                    "serverInfo": server,
                }
            }
        case "tools/list":
            return {"result": {"tools": []}}
        case "ping":
            return {"result": {}}
        case method:
            return {"error": {"code": -32601, "message": f"no method {method!r}"}}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

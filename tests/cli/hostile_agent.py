"""An agent whose every text is hostile: `python hostile_agent.py [ENDING] [--no-forms]`.

ENDING is how its turns end: `stop` with a stop reason that nobody knows, `error` with an error of JSON-RPC,
`leave` without an answer. What it asks of its client and what it tells are all messages of the schema.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli.hostile import HOSTILE, messages

ERROR = {"code": -32099, "message": HOSTILE, "data": {HOSTILE: [HOSTILE]}}
ASKED = {
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateElicitationRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "terminal/create": "CreateTerminalRequest",
    HOSTILE: "ReadTextFileRequest",
}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask_everything(session: str) -> None:
    for method, name in ASKED.items():
        if method == "elicitation/create" and "--no-forms" in sys.argv:
            continue
        for number, params in enumerate(messages(name)):
            send(id=f"{name}{number}", method=method, params={**params, "sessionId": session})
            while json.loads(sys.stdin.readline()).get("id") != f"{name}{number}":
                pass


def tell_everything(session: str) -> None:
    for update in messages("SessionUpdate"):
        send(method="session/update", params={"sessionId": session, "update": update, HOSTILE: HOSTILE})


def answer(message: dict[str, Any], ending: str) -> None:
    match message.get("method"):
        case "initialize":
            capabilities = {"loadSession": False}
            (whole,) = messages("InitializeResponse")
            send(id=message["id"], result={**whole, "protocolVersion": 1, "agentCapabilities": capabilities})
        case "session/new":
            (whole,) = messages("NewSessionResponse")
            send(id=message["id"], result=whole)
        case "session/prompt":
            session = message["params"]["sessionId"]
            sys.stderr.write(f"{HOSTILE}\n")
            sys.stderr.flush()
            tell_everything(session)
            ask_everything(session)
            if ending == "leave":
                sys.exit(1)
            if ending == "error":
                send(id=message["id"], error=ERROR)
            else:
                send(id=message["id"], result={**messages("PromptResponse")[0], "stopReason": HOSTILE})
        case _ if "id" in message and "method" in message:
            send(id=message["id"], error=ERROR)


def main() -> None:
    ending = sys.argv[1] if len(sys.argv) > 1 else "stop"
    while line := sys.stdin.readline():
        answer(json.loads(line), ending)


if __name__ == "__main__":
    main()

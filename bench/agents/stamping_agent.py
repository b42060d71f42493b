"""An ACP agent whose text is the moments at which it is said, in as many pieces as the prompt wants."""

import json
import sys
import time

INTERVAL = 0.005
"""Seconds between two pieces: about as fast as models are."""


def main() -> None:
    for line in sys.stdin:
        frame = json.loads(line)
        match frame.get("method"):
            case "initialize":
                send(id=frame["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
            case "session/new":
                send(id=frame["id"], result={"sessionId": "s1"})
            case "session/prompt":
                for _ in range(int(frame["params"]["prompt"][0]["text"])):
                    time.sleep(INTERVAL)
                    say(f"{time.monotonic()} ")
                send(id=frame["id"], result={"stopReason": "end_turn"})


def say(text: str) -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": "s1", "update": update})


def send(**frame: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

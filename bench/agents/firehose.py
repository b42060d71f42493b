"""The benchmark agent without any library: prepared lines, as fast as a client can be fed."""

import json
import sys
from itertools import count

BATCH = 1000


def update_lines(session: str, start: int, stop: int) -> bytes:
    head = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":' + json.dumps(session)
    head += ',"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hello token '
    return "".join([f'{head}{i}"}}}}}}}}\n' for i in range(start, stop)]).encode()


def main() -> None:
    numbers = count()
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        params = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                result = {"protocolVersion": 1}
            case "session/new":
                result = {"sessionId": f"session-{next(numbers)}"}
            case "session/prompt":
                chunks = int(params["prompt"][0]["text"])
                for start in range(0, chunks, BATCH):
                    out.write(update_lines(params["sessionId"], start, min(start + BATCH, chunks)))
                result = {"stopReason": "end_turn"}
            case _:
                continue
        out.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()

"""An agent without Coupler that says what a file tells it to: a list of updates for each prompt.

python scripted.py FILE
"""

import json
import sys
from pathlib import Path

SESSION = "scripted-session"


def send(frame):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")


turns = iter(json.loads(Path(sys.argv[1]).read_text()))
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or "method" not in asked:
        continue
    result = {}
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": {}}
        case "session/new":
            result = {"sessionId": SESSION}
        case "session/prompt":
            for update in next(turns, []):
                send({"method": "session/update", "params": {"sessionId": SESSION, "update": update}})
            result = {"stopReason": "end_turn"}
    send({"id": asked["id"], "result": result})
    sys.stdout.flush()

"""An ACP agent that asks whether it may run the command in argv, as often as the prompt wants."""

import json
import sys


def main(command: str) -> None:
    for line in sys.stdin:
        frame = json.loads(line)
        match frame.get("method"):
            case "initialize":
                send(id=frame["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
            case "session/new":
                send(id=frame["id"], result={"sessionId": "s1"})
            case "session/prompt":
                for number in range(int(frame["params"]["prompt"][0]["text"])):
                    ask(number, command)
                    sys.stdin.readline()
                send(id=frame["id"], result={"stopReason": "end_turn"})


def ask(number: int, command: str) -> None:
    call = {"toolCallId": f"c{number}", "kind": "execute", "title": "Run", "rawInput": {"command": command}}
    options = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    params = {"sessionId": "s1", "toolCall": call, "options": options}
    send(id=f"ask-{number}", method="session/request_permission", params=params)


def send(**frame: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])

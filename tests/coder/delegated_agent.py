"""An agent that does what its task says, word by word: pipes and `json`, nothing of Coupler.

Run as `python -I -S delegated_agent.py LOG`. The task is the last line of the prompt: a word, and what it is
about. Everything that it is sent is written to the log, for tests to look at.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "client" / "agents"))

from bare import error, permission, read, read_until, request, result, say, send, update

HELLO = {"protocolVersion": 1, "agentCapabilities": {}}
MODES = {
    "currentModeId": "careful",
    "availableModes": [{"id": "careful", "name": "Careful"}, {"id": "bold", "name": "Bold"}],
}


def asked(frame):
    """Send a request, and give what it was answered with."""
    send(frame)
    return read_until(lambda answer: answer.get("id") == frame["id"] and "method" not in answer)


def outcome(answer):
    return answer["result"]["outcome"].get("optionId", "cancelled")


def act(path):
    call = {"title": f"Edit {path}", "kind": "edit", "locations": [{"path": path}]}
    send(say("I will edit."), update("tool_call", toolCallId="c1", status="pending", **call))
    chosen = outcome(asked(permission("p1", **call)))
    status = "completed" if chosen == "yes" else "failed"
    send(update("tool_call_update", toolCallId="c1", status=status))
    return f"The answer was {chosen}."


def ask_only(path):
    """Ask about a call, and say nothing else of it."""
    call = {"title": f"Edit {path}", "kind": "edit", "locations": [{"path": path}]}
    return f"The answer was {outcome(asked(permission('p1', **call)))}."


def told(answer):
    return json.dumps(answer.get("result", answer.get("error", {}).get("message")))


def form(message):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = {"sessionId": "s1", "mode": "form", "message": message, "requestedSchema": schema}
    return told(asked(request("e1", "elicitation/create", **params)))


def work(prompt, word, about):
    """The report, and why the turn ends."""
    match word:
        case "act":
            return act(about), "end_turn"
        case "ask-only":
            return ask_only(about), "end_turn"
        case "read":
            return told(asked(request("r1", "fs/read_text_file", sessionId="s1", path=about))), "end_turn"
        case "write":
            params = {"sessionId": "s1", "path": about, "content": "by another"}
            return told(asked(request("w1", "fs/write_text_file", **params))), "end_turn"
        case "run":
            params = {"sessionId": "s1", "command": about}
            return told(asked(request("t1", "terminal/create", **params))), "end_turn"
        case "ask":
            return form(about), "end_turn"
        case "environment":
            return json.dumps(dict(os.environ)), "end_turn"
        case "prompt":
            return json.dumps(prompt), "end_turn"
        case "stop":
            return "I stop here.", about
        case "plan":
            entry = {"content": "mine", "priority": "medium", "status": "pending"}
            send(update("plan", entries=[entry]), update("usage_update", used=1, size=2))
            return "planned", "end_turn"
        case "notice":
            send(update("notice", severity="info", title=about))
            return "noticed", "end_turn"
        case "hang":
            send(update("tool_call", toolCallId="h1", title="Hang", kind="think", status="in_progress"))
            read_until(lambda frame: frame.get("method") == "session/cancel")
            return "", "cancelled"
        case "stubborn":
            send(update("tool_call", toolCallId="h1", title="Hang", kind="think", status="in_progress"))
            read_until(lambda frame: False)
        case "die":
            send(say("about to die"))
            os._exit(3)
        case "login":
            return None, "login"
    return f"{word} {about}".strip(), "end_turn"


while True:
    frame = read()
    match frame.get("method"):
        case "initialize":
            send(result(frame, HELLO))
        case "session/new":
            send(result(frame, {"sessionId": "s1", "modes": MODES}))
        case "session/prompt":
            text = "".join(block.get("text", "") for block in frame["params"]["prompt"])
            task_word, _, task_about = text.rstrip().splitlines()[-1].partition(" ")
            report, reason = work(text, task_word, task_about)
            if reason == "login":
                send(error(frame, -32000, "nobody is logged in"))
            else:
                send(*([say(report)] if report else []), result(frame, {"stopReason": reason}))
        case None:
            pass
        case _ if "id" in frame:
            send(result(frame, {}))

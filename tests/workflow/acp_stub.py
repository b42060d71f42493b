"""Programs that stand in for agents that speak ACP: they note what they hear, and answer as a test wants.

Each is a small script of bare Python, found by its name on the PATH. A prompt is answered by the first rule
whose `when` is found in it, and which has not answered as often yet as it says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Rule = dict[str, Any]

PROGRAM = """#!{python} -ISB
import json, os, re, sys
here, name = {here!r}, {name!r}
rules = json.load(open(os.path.join(here, name + ".json")))
log = open(os.path.join(here, name + ".log"), "a")
used, waiting, hanging, sessions = {{}}, [], {{}}, 0

def note(**fields):
    log.write(json.dumps(fields) + "\\n")
    log.flush()

def send(**frame):
    sys.stdout.write(json.dumps({{"jsonrpc": "2.0", **frame}}) + "\\n")
    sys.stdout.flush()

def update(session, what, **fields):
    fields = {{"sessionUpdate": what, **fields}}
    send(method="session/update", params={{"sessionId": session, "update": fields}})

def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

def permitted(session, call):
    options = [
        {{"optionId": "yes", "name": "Allow", "kind": "allow_once"}},
        {{"optionId": "no", "name": "Reject", "kind": "reject_once"}},
    ]
    params = {{"sessionId": session, "toolCall": call, "options": options}}
    send(id="permission", method="session/request_permission", params=params)
    while True:
        frame = read()
        if frame.get("id") == "permission" and "method" not in frame:
            return frame["result"]["outcome"].get("optionId") == "yes"
        waiting.append(frame)

def use_tool(session, id, title, kind, work, **fields):
    call = {{"toolCallId": id, "title": title, "kind": kind, "status": "pending", **fields}}
    update(session, "tool_call", **call)
    allowed = permitted(session, call)
    note(tool=title, allowed=allowed)
    if allowed:
        work()
    update(session, "tool_call_update", toolCallId=id, status="completed" if allowed else "failed")

def write(path, text):
    with open(path, "w") as file:
        file.write(text)

def answer(id, session, text):
    rule = None
    for number, each in enumerate(rules):
        if re.search(each.get("when", ""), text) and used.get(number, 0) < each.get("times", 1000):
            used[number], rule = used.get(number, 0) + 1, each
            break
    if rule is None:
        return send(id=id, error={{"code": -32603, "message": name + " knows no answer"}})
    if "fails" in rule:
        return send(id=id, error={{"code": -32603, "message": rule["fails"]}})
    if "hangs" in rule:
        hanging[session] = id
        return
    for number, (path, content) in enumerate(rule.get("edits", {{}}).items()):
        target = os.path.join(cwds[session], path)
        calls = "edit-%s-%s-%d" % (session, id, number)
        place = [{{"path": target}}]
        use_tool(session, calls, "Edit " + path, "edit", lambda: write(target, content), locations=place)
    for number, command in enumerate(rule.get("runs", [])):
        calls = "run-%s-%s-%d" % (session, id, number)
        use_tool(session, calls, command, "execute", lambda: None, rawInput={{"command": command}})
    for entries in rule.get("plans", []):
        update(session, "plan", entries=entries)
    said = rule["says"] if isinstance(rule["says"], str) else json.dumps(rule["says"])
    half = len(said) // 2
    for piece in (said[:half], said[half:]):
        update(session, "agent_message_chunk", content={{"type": "text", "text": piece}})
    usage = {{"inputTokens": 100, "outputTokens": 20, "totalTokens": 120}}
    send(id=id, result={{"stopReason": "end_turn", "usage": usage}})

note(argv=sys.argv[1:], env=dict(os.environ), cwd=os.getcwd(), pid=os.getpid())
cwds = {{}}
while True:
    frame = waiting.pop(0) if waiting else read()
    method, id, params = frame.get("method"), frame.get("id"), frame.get("params") or {{}}
    if method == "initialize":
        able = {{"loadSession": True}}
        send(id=id, result={{"protocolVersion": 1, "agentCapabilities": able, "authMethods": []}})
    elif method == "session/new":
        sessions += 1
        session = "%s-%d-%d" % (name, os.getpid(), sessions)
        cwds[session] = params["cwd"]
        note(session=session, cwd=params["cwd"])
        send(id=id, result={{"sessionId": session}})
    elif method == "session/load":
        cwds[params["sessionId"]] = params["cwd"]
        note(loaded=params["sessionId"])
        send(id=id, result={{}})
    elif method == "session/prompt":
        text = "".join(block.get("text", "") for block in params["prompt"])
        note(prompt=text, of=params["sessionId"])
        answer(id, params["sessionId"], text)
    elif method == "session/cancel":
        note(cancelled=params["sessionId"])
        if params["sessionId"] in hanging:
            send(id=hanging.pop(params["sessionId"]), result={{"stopReason": "cancelled"}})
    elif id is not None and method is not None:
        send(id=id, error={{"code": -32601, "message": "unknown method"}})
"""


class AcpStub:
    """An agent on the PATH, with all that it has heard so far."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name

    def answers(self, *rules: Rule) -> AcpStub:
        """Answer by these rules: `when` (a pattern), `times`, and one of `says`, `fails` and `hangs`.

        What it says is a text, or a value as JSON. Before, it asks for the tools in `edits` (the contents of
        files by their names) and `runs` (command lines, which it does not run), and tells its `plans`.
        """
        (self._directory / f"{self._name}.json").write_text(json.dumps(rules))
        program = self._directory / self._name
        program.write_text(PROGRAM.format(python=sys.executable, here=str(self._directory), name=self._name))
        program.chmod(0o755)
        return self

    @property
    def starts(self) -> list[dict[str, Any]]:
        """`argv`, `env`, `cwd` and `pid` of each process."""
        return self._noted("argv")

    @property
    def prompts(self) -> list[str]:
        return [each["prompt"] for each in self._noted("prompt")]

    @property
    def sessions(self) -> list[str]:
        """The sessions in which it was prompted, in the order of the prompts."""
        return [each["of"] for each in self._noted("prompt")]

    @property
    def loaded(self) -> list[str]:
        """The sessions that it was told to open again."""
        return [each["loaded"] for each in self._noted("loaded")]

    @property
    def cancelled(self) -> list[str]:
        return [each["cancelled"] for each in self._noted("cancelled")]

    @property
    def tools(self) -> list[tuple[str, bool]]:
        """The tools that it wanted to use, and whether it was allowed to."""
        return [(each["tool"], each["allowed"]) for each in self._noted("tool")]

    def _noted(self, kind: str) -> list[dict[str, Any]]:
        log = self._directory / f"{self._name}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [note for line in lines if kind in (note := json.loads(line))]

"""A small MCP server without any package, for what takes two: progress, questions, and blocks of all kinds.

    clerk.py MANNER

`new` speaks the version of MCP in which a call is answered with what is still to be asked.
"""

import json
import sys
import time

MANNER = sys.argv[1] if len(sys.argv) > 1 else "old"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
COLOUR = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
    "required": ["colour"],
}
QUESTION = {"mode": "form", "message": "Which colour?", "requestedSchema": COLOUR}
PAGE = {"mode": "url", "message": "Please sign", "url": "https://example.com/sign", "elicitationId": "p1"}
SECRET = {
    "mode": "form",
    "message": "Log in",
    "requestedSchema": {"type": "object", "properties": {"password": {"type": "string"}}},
}
BLOCKS = [
    {"type": "text", "text": "some words"},
    {"type": "image", "data": "aW1hZ2U=", "mimeType": "image/png"},
    {"type": "audio", "data": "c291bmQ=", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "memo://1", "mimeType": "text/plain", "text": "a memo"}},
    {"type": "resource", "resource": {"uri": "memo://2", "mimeType": "application/pdf", "blob": "cGRm"}},
    {"type": "resource_link", "uri": "https://example.com/a", "name": "a page"},
]


def tool(name, schema=TEXT, **hints):
    return {"name": name, "description": f"The tool {name}", "inputSchema": schema, "annotations": hints}


TOOLS = [
    tool("read_memo", readOnlyHint=True),
    tool("count"),
    tool("order"),
    tool("sign"),
    tool("pry"),
    tool("show"),
    tool("odd.name/of a tool"),
    tool("refuse"),
    tool("self", {"type": "object", "properties": {"self": {"type": "string"}, "config": {}}}),
    tool("sleep"),
]


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def ask(params):
    send(id="q1", method="elicitation/create", params=params)
    for line in sys.stdin:
        answer = json.loads(line)
        if answer.get("id") == "q1":
            return answer.get("result") or {"action": "error"}
    raise SystemExit


def call(params):
    arguments = params.get("arguments") or {}
    match params["name"]:
        case "count":
            token = params["_meta"]["progressToken"]
            for number in (1, 2, 3):
                note = {"progressToken": token, "progress": number, "total": 3, "message": f"step {number}"}
                send(method="notifications/progress", params=note)
            return text("counted")
        case "order" if MANNER == "new":
            answers = params.get("inputResponses")
            if not answers:
                request = {"method": "elicitation/create", "params": QUESTION}
                return {"resultType": "input_required", "inputRequests": {"c": request}, "requestState": "s"}
            return text(f"{params['requestState']} {json.dumps(answers['c'], sort_keys=True)}")
        case "order":
            return text(json.dumps(ask(QUESTION), sort_keys=True))
        case "sign":
            return text(json.dumps(ask(PAGE), sort_keys=True))
        case "pry":
            return text(json.dumps(ask(SECRET), sort_keys=True))
        case "show":
            image = {**BLOCKS[1], "data": arguments.get("text") or BLOCKS[1]["data"]}
            return {"content": [BLOCKS[0], image, *BLOCKS[2:]], "structuredContent": {"answer": 42}}
        case "refuse":
            return text("sold out", isError=True)
        case "sleep":
            time.sleep(30)
    return text(json.dumps(arguments, sort_keys=True))


def answer(method, params):
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "clerk", "version": "1"},
            }
        case "server/discover" if MANNER == "new":
            return {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
            }
        case "tools/list":
            more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if MANNER == "new" else {}
            return {"tools": TOOLS, **more}
        case "tools/call":
            result = call(params)
            return {"resultType": "complete", **result} if MANNER == "new" else result
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    if result is None:
        send(id=message["id"], error={"code": -32601, "message": "no such method"})
    else:
        send(id=message["id"], result=result)

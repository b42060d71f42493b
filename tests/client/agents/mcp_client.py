"""A client of MCP servers for scripted agents: sockets, pipes and `json`, nothing of Coupler."""

import http.client
import json
import subprocess
import threading
from urllib.parse import urlsplit

from bare import HELLO, read, result, send

VERSION = "2025-06-18"


def turns(**takes):
    """Open sessions as they are wanted; yield each prompt, and the servers of its session."""
    entries = {}
    while True:
        frame = read()
        if frame.get("method") == "initialize":
            send(result(frame, {**HELLO, "agentCapabilities": {"mcpCapabilities": takes}}))
        elif frame.get("method") == "session/new":
            session = f"s{len(entries) + 1}"
            entries[session] = frame["params"]["mcpServers"]
            send(result(frame, {"sessionId": session}))
        elif frame.get("method") == "session/prompt":
            yield frame, entries[frame["params"]["sessionId"]]


def opened(entry):
    """The server of an entry of `mcpServers`, introduced to."""
    server = Http(entry) if entry.get("type") == "http" else Program(entry)
    server.ask(
        "initialize",
        {
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "scripted", "version": "1"},
        },
    )
    server.tell("notifications/initialized")
    return server


class Server:
    def __init__(self):
        self.last = 0

    def tools(self):
        return self.ask("tools/list", {})["tools"]

    def call(self, name, arguments, **more):
        """The result of a tool, or the error."""
        return self.ask("tools/call", {"name": name, "arguments": arguments, **more})

    def request(self, method, params):
        self.last += 1
        return {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}


class Http(Server):
    """One over HTTP; each request has a connection of its own, so that threads may call at once."""

    def __init__(self, entry):
        super().__init__()
        self.address = urlsplit(entry["url"])
        self.headers = {header["name"]: header["value"] for header in entry["headers"]}
        self.session = {}

    def post(self, body, headers=None):
        """The status, the headers and the body of an answer."""
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=30)
        usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        try:
            connection.request(
                "POST", self.address.path, body, {**usual, **self.headers, **self.session, **(headers or {})}
            )
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def ask(self, method, params):
        return self.send(json.dumps(self.request(method, params)).encode())

    def send(self, line, id=None):
        """The answer to a line."""
        status, headers, body = self.post(line)
        if status != 200:
            return {"status": status, "body": body}
        if "mcp-session-id" in headers:
            self.session = {"mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": VERSION}
        lines = [line[5:] for line in body.splitlines() if line.startswith("data:") and line[5:].strip()]
        answer = json.loads(lines[-1] if lines else body)
        return answer.get("result", answer)

    def tell(self, method, params=None):
        self.post(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}))

    def close(self):
        pass


class Program(Server):
    """One that is a program; answers may come in any order."""

    def __init__(self, entry):
        super().__init__()
        self.process = subprocess.Popen(
            [entry["command"], *entry["args"]],
            env={variable["name"]: variable["value"] for variable in entry["env"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.answers = {}
        self.came = threading.Condition()
        self.reading = threading.Thread(target=self.read, daemon=True)
        self.reading.start()

    def read(self):
        for line in self.process.stdout:
            with self.came:
                message = json.loads(line)
                self.answers[message.get("id")] = message
                self.came.notify_all()
        with self.came:
            self.answers["ended"] = True
            self.came.notify_all()

    def ask(self, method, params):
        request = self.request(method, params)
        return self.send(json.dumps(request).encode(), request["id"])

    def send(self, line, id):
        """The answer to a line."""
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        with self.came:
            self.came.wait_for(lambda: id in self.answers or "ended" in self.answers, 30)
            answer = self.answers.get(id, {"error": "ended"})
        return answer.get("result", answer)

    def tell(self, method, params=None):
        line = json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.reading.join(30)
        self.process.stdout.close()

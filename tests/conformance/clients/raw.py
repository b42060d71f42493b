"""A correct client in plain Python: raw.py COMMAND… starts the agent, prompts it once and prints its text.

It serves files, terminals and links, logs in in a terminal, lists sessions, and cancels at Ctrl-C. Its
variants in faulty.py are each wrong in one way.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

THINKING = 0.6
"""Seconds that somebody would need to answer a question."""


class Refusal(Exception):  # noqa: N818
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message


CAPABILITIES = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": {"terminal": True},
    "elicitation": {"url": {}},
}


class RawClient:
    version = 1

    def __init__(self, command):
        self.command = command
        self.directory = Path.cwd().resolve()
        self.writing = threading.Lock()
        self.news = threading.Condition()
        self.answers = {}
        self.is_over = False
        self.is_cancelled = False
        self.last_id = 0
        self.terminals = {}
        self.services = {
            "session/request_permission": self.permit,
            "fs/read_text_file": self.read_file,
            "fs/write_text_file": self.write_file,
            "terminal/create": self.create_terminal,
            "terminal/output": self.terminal_output,
            "terminal/wait_for_exit": self.wait_for_exit,
            "terminal/kill": self.kill_terminal,
            "terminal/release": self.release_terminal,
            "elicitation/create": self.elicit,
        }

    # The conversation

    def run(self):
        self.start()
        hello = self.initialize()
        if hello["protocolVersion"] != self.version:
            sys.exit(f"the agent speaks version {hello['protocolVersion']}, this client only {self.version}")
        self.list_sessions(hello)
        session = self.open_session(hello)
        prompt = {"sessionId": session, "prompt": self.blocks()}
        try:
            answer = self.call("session/prompt", prompt)
        except KeyboardInterrupt:
            answer = self.cancel(session)
        self.end(answer)

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.is_over = False
        self.reader = threading.Thread(target=self.read, args=(self.process,), daemon=True)
        self.reader.start()

    def initialize(self):
        return self.call("initialize", self.hello())

    def hello(self):
        return {"protocolVersion": self.version, "clientCapabilities": CAPABILITIES}

    def list_sessions(self, hello):
        listing = part(part(part(hello, "agentCapabilities"), "sessionCapabilities"), "list")
        cursor = None if isinstance(listing, dict) else "none"
        while cursor != "none":
            page = self.call("session/list", {} if cursor is None else {"cursor": cursor})
            cursor = page.get("nextCursor", "none")

    def open_session(self, hello):
        try:
            return self.call("session/new", self.setup())["sessionId"]
        except Refusal as refusal:
            if refusal.code != -32000:
                raise
        self.log_in(hello)
        return self.call("session/new", self.setup())["sessionId"]

    def setup(self):
        return {"cwd": str(self.directory), "mcpServers": []}

    def blocks(self):
        return [{"type": "text", "text": "hello"}]

    def log_in(self, hello):
        method = next(each for each in hello["authMethods"] if each.get("type") == "terminal")
        self.leave()
        words = [*self.command, *method["args"]]
        subprocess.run(words, env={**os.environ, **method["env"]}, check=True, stdin=subprocess.DEVNULL)
        self.start()
        self.initialize()

    def cancel(self, session):
        self.is_cancelled = True
        self.send({"method": "session/cancel", "params": {"sessionId": session}})
        return self.answer(self.last_id)

    def end(self, answer):
        self.leave()
        print()

    def leave(self):
        self.process.stdin.close()
        self.process.wait()

    # The wire

    def send(self, message):
        with self.writing:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self.process.stdin.flush()

    def call(self, method, params):
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        return self.answer(self.last_id)

    def answer(self, id):
        with self.news:
            self.news.wait_for(lambda: id in self.answers or self.is_over)
        if id not in self.answers:
            sys.exit(f"the agent ended with exit code {self.process.wait()}")
        answer = self.answers[id]
        if "error" in answer:
            raise Refusal(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def read(self, process):
        for line in process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                self.receive(message)
        with self.news:
            self.is_over = True
            self.news.notify_all()

    def receive(self, message):
        if "method" not in message and "id" in message:
            with self.news:
                self.answers[message["id"]] = message
                self.news.notify_all()
        elif "id" in message:
            threading.Thread(target=self.serve, args=(message,), daemon=True).start()
        elif message.get("method") == "session/update":
            self.show(part(message.get("params"), "update"))

    def show(self, update):
        text = part(part(update, "content"), "text")
        if part(update, "sessionUpdate") == "agent_message_chunk" and isinstance(text, str):
            print(text, end="", flush=True)

    def serve(self, request):
        service = self.services.get(request["method"])
        try:
            if service is None:
                raise Refusal(-32601, f"no method {request['method']}")
            self.reply(request, result=service(request["params"]))
        except Refusal as refusal:
            self.reply(request, error={"code": refusal.code, "message": refusal.message})

    def reply(self, request, **answer):
        self.send({"id": request["id"], **answer})

    # What the agent may ask

    def permit(self, params):
        until = time.monotonic() + THINKING
        while time.monotonic() < until and not self.is_cancelled:
            time.sleep(0.01)
        if self.is_cancelled:
            return {"outcome": {"outcome": "cancelled"}}
        option = next(each for each in params["options"] if each["kind"] == "allow_once")
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    def inside(self, path):
        file = Path(path).resolve()
        if not file.is_relative_to(self.directory):
            raise Refusal(-32602, f"{path} is outside")
        return file

    def read_file(self, params):
        file = self.inside(params["path"])
        if not file.exists():
            raise Refusal(-32002, f"there is no file {file}")
        lines = file.read_text().splitlines(keepends=True)[(params.get("line") or 1) - 1 :]
        return {"content": "".join(lines[: params.get("limit")])}

    def write_file(self, params):
        self.inside(params["path"]).write_text(params["content"])
        return {}

    def create_terminal(self, params):
        id = f"terminal {len(self.terminals)}"
        self.terminals[id] = Terminal(params)
        return {"terminalId": id}

    def terminal_output(self, params):
        return self.terminal(params).output()

    def wait_for_exit(self, params):
        return self.terminal(params).wait()

    def kill_terminal(self, params):
        self.terminal(params).process.kill()
        return {}

    def release_terminal(self, params):
        self.terminal(params).process.kill()
        del self.terminals[params["terminalId"]]
        return {}

    def terminal(self, params):
        if params["terminalId"] not in self.terminals:
            raise Refusal(-32002, "no such terminal")
        return self.terminals[params["terminalId"]]

    def elicit(self, params):
        if params["mode"] != "url":
            raise Refusal(-32602, f"the mode {params['mode']} is not supported")
        return {"action": "decline"}


class Terminal:
    def __init__(self, params):
        environment = {each["name"]: each["value"] for each in params.get("env", [])}
        self.limit = params.get("outputByteLimit", 1_000_000)
        self.written = b""
        self.process = subprocess.Popen(
            [params["command"], *params.get("args", [])],
            env={**os.environ, **environment},
            cwd=params.get("cwd"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while chunk := os.read(self.process.stdout.fileno(), 65536):
            self.written += chunk

    def output(self):
        kept = self.kept()
        return {"output": kept.decode(errors="replace"), "truncated": len(kept) < len(self.written)}

    def kept(self):
        kept = self.written[-self.limit :]
        while kept and kept[0] & 0xC0 == 0x80:
            kept = kept[1:]
        return kept

    def wait(self):
        code = self.process.wait()
        self.reader.join()
        return {"exitCode": code} if code >= 0 else {"signal": str(-code)}


def part(value, name):
    return value.get(name) if isinstance(value, dict) else None


def main(kind, command):
    try:
        kind(command).run()
    except Refusal as refusal:
        sys.exit(f"the agent refused: {refusal.message}")


if __name__ == "__main__":
    main(RawClient, sys.argv[1:])

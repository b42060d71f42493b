"""A session with the obedient agent, and somebody who answers what is asked."""

import json
import sys
from pathlib import Path

from raw_client import is_answer_to, texts

SERVERS = Path(__file__).parents[2] / "agent" / "servers"


class Desk:
    """A session, and somebody who answers what is asked."""

    def __init__(self, client, cwd, *servers):
        self.client = client
        answer = client.call("session/new", {"cwd": str(cwd), "mcpServers": list(servers)})
        self.session = answer["result"]["sessionId"]
        self.asked = []
        self.updates = []

    def does(self, *calls, answer="allow_once", replies=None):
        """Have the tools called; what they answered to the model."""
        request = self.begin(*calls)
        self.asked, self.updates = [], []
        while not is_answer_to(frame := self.client.read(), request["id"]):
            if "id" in frame and "method" in frame:
                self.asked.append(frame)
                self.client.send({"id": frame["id"], **self.reply(frame, answer, replies)})
            elif frame.get("method") == "session/update":
                self.updates.append(frame["params"]["update"])
        assert frame.get("result") == {"stopReason": "end_turn"}, frame
        chunks = [update for update in self.updates if update["sessionUpdate"] == "agent_message_chunk"]
        last = [chunk for chunk in chunks if chunk["messageId"] == chunks[-1]["messageId"]]
        return json.loads(texts(last))

    def begin(self, *calls):
        request = self.client.prompt_request(self.session, json.dumps(calls))
        self.client.send(request)
        return request

    def reply(self, frame, answer, replies):
        if frame["method"] == "session/request_permission":
            outcome = {"outcome": "selected", "optionId": answer() if callable(answer) else answer}
            return {"result": {"outcome": outcome}}
        return replies(frame) if callable(replies) else replies[frame["method"]]

    def names(self):
        """The tools that the model is offered."""
        return self.does()


def server(file, *arguments, name):
    words = [str(SERVERS / file), *map(str, arguments)]
    return {"name": name, "command": sys.executable, "args": words, "env": []}


CLERK = server("clerk.py", name="clerk")


def one(answers):
    """The status and the content of the one answer."""
    ((status, content),) = answers
    return status, content


def edit(path, *edits):
    """A call that makes edits, each a pair of old and new text."""
    return ["edit_file", {"path": path, "edits": [{"old_text": old, "new_text": new} for old, new in edits]}]


def read(path):
    return ["read_file", {"path": path}]

"""Coding tasks beyond the project's files: MCP servers, addresses, workflows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coder.editor import finish_together
from coder.script import Asked, use
from coder.served_coder import Coder, clerk, tree, write
from workflow.served_project import write_workflow


def test_a_tool_of_the_sessions_mcp_server_is_asked_about_and_used(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("read_memo", text="the memo"), "Read."], clerk())

    turn = editor.prompt("Read the memo", "allow_once")

    assert "read_memo" in coder.model.asked[0].tools
    assert "the memo" in coder.model.last.result
    assert turn.use["status"] == "completed"
    [question] = editor.asked
    assert "read_memo" in question["toolCall"]["title"]


def test_a_tool_of_an_mcp_server_that_is_refused_is_not_used(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("read_memo", text="the memo"), "Not read."], clerk())
    turn = editor.prompt("Read the memo", "reject_once")
    assert (turn.use["status"], turn.last_message) == ("failed", "Not read.")
    assert "the memo" not in coder.model.last.result


@pytest.fixture
def page() -> Iterator[str]:
    """The address of a page on this machine."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (
                b"<html><head><title>News</title><script>bad()</script></head><body><p>It works.</p></body>"
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_address_of_this_machine_is_refused_unless_a_rule_names_it(
    coder: Coder, project: Path, page: str
) -> None:
    fetching = use("fetch", url=f"{page}/news")
    editor = coder(project, [fetching, "I may not."])
    refused = editor.prompt("What is new?")
    assert refused.use["status"] == "failed"
    assert "It works." not in coder.model.last.text

    served = coder.served(config=f'[permissions]\nallow = ["fetch({page}/*)"]\n')
    coder.model.plays(fetching, "It works.")
    fetched = served.opened(project).prompt("What is new?")

    assert fetched.use["status"] == "completed"
    assert fetched.use["kind"] == "fetch"
    assert page in fetched.use["title"]
    assert "It works." in coder.model.last.result
    assert "bad()" not in coder.model.last.result
    served.leave()


GREET = """
description: Greet somebody
inputs: {name: {rest: true, required: true}}
steps: [{id: greet, run: "echo Hello, {{ inputs.name }}! > greeting.txt"}]
outputs: {said: "{{ inputs.name }} was greeted."}
"""


def test_a_workflow_and_prompts_go_together_in_one_session(coder: Coder, project: Path) -> None:
    served = coder.served()
    write_workflow(served.home / "workflows", "greet", GREET)
    coder.model.plays("I remember tea.", "You like tea.")
    editor = served.opened(project)

    said = editor.prompt("I like tea.")
    ran = editor.prompt("/greet Ada")
    remembered = editor.prompt("What do I like?")

    assert said.last_message == "I remember tea."
    assert ran.last_message == "Ada was greeted."
    assert tree(project) == {"greeting.txt": "Hello, Ada!\n"}
    assert remembered.last_message == "You like tea."
    assert coder.model.last.prompts[0] == "I like tea."
    assert coder.model.last.prompts[-1] == "What do I like?"
    served.leave()


def test_a_workflow_that_is_not_valid_is_told_of_and_never_a_prompt_for_the_model(
    coder: Coder, project: Path
) -> None:
    served = coder.served()
    write_workflow(served.home / "workflows", "greet", "stepz: []")
    coder.model.plays("Good morning.")
    editor = served.opened(project)

    greeted = editor.prompt("hello")
    refused = editor.prompt("/greet Ada")

    assert "`greet` is left out" in greeted.messages[0]
    assert greeted.last_message == "Good morning."
    assert "did you mean `steps`?" in refused.last_message
    assert coder.model.last.prompts[-1] == "hello"
    served.leave()


def test_two_sessions_in_two_folders_know_nothing_of_each_other(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write(project, {"a.txt": "here\n", "AGENTS.md": "We are here.\n"})
    write(other, {"a.txt": "there\n", "AGENTS.md": "We are there.\n"})

    def where(asked: Asked) -> object:
        if asked.results:
            return f"It says {asked.result.strip()[-5:].strip()}"
        return use("read_file", path="a.txt")

    first = coder(project, [where] * 4)
    second = coder.beside(first, other)

    here, there = finish_together((first, first.begin("Where?")), (second, second.begin("Where?")))

    assert (here.last_message, there.last_message) == ("It says here", "It says there")
    for asked in coder.model.asked:
        assert ("We are here." in asked.text) != ("We are there." in asked.text)
        assert asked.prompts[-1:] == ["Where?"]

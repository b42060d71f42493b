"""The examples with LangChain do what they say; their model is behind real HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.steps import leave
from examples.desk import EXAMPLES, Desk, chooses
from labs.langchain.acting import introduced
from labs.langchain.model_server import ModelServer, calls, says
from raw_client import RawClient, serve

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]

KEY = "key-of-the-tests"
NOTES = {"name": "notes", "command": sys.executable, "args": [str(EXAMPLES / "mcp_notes.py")], "env": []}
FORMS = {"elicitation": {"form": {}}}

Served = Callable[..., RawClient]


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer([]) as server:
        yield server


@pytest.fixture
def served(model: ModelServer) -> Iterator[Served]:
    """Starts an example, which ends in good order after the test."""
    with ExitStack() as stack:

        def start(example: str, **capabilities: Any) -> RawClient:
            client = serve(EXAMPLES / example, env={"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": KEY})
            stack.enter_context(client)
            introduced(client, **capabilities)
            stack.callback(lambda: client.process.poll() is None and leave(client))
            return client

        yield start


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., str]:
    """Runs git in the directory of the test, which is a repository with a commit."""

    def git(*words: str) -> str:
        own = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *own, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    git("commit", "--quiet", "--allow-empty", "--message=Begin")
    return git


def test_the_tools_of_mcp_servers_are_used_after_a_yes(
    model: ModelServer, served: Served, tmp_path: Path
) -> None:
    model.replies = [
        calls("notes_add_note", text="Buy\nmilk"),
        calls("notes_find_notes", "call_2", word="MILK"),
        says("It is noted."),
    ]
    desk = Desk(served("langchain_mcp.py"), tmp_path, NOTES)

    said = desk.says("Remember the milk", request_permission=chooses("allow_once"))

    assert said == "It is noted."
    assert len(desk.questions("request_permission")) == 2
    assert (tmp_path / "notes.txt").read_text() == "Buy milk\n"
    system, *_, found = model.asked[2]["messages"]
    assert "notes_add_note" in system["content"] and "notes_find_notes" in system["content"]
    assert "Buy milk" in str(found["content"])


def test_without_servers_the_model_is_told_that_it_has_no_tools(
    model: ModelServer, served: Served, tmp_path: Path
) -> None:
    model.replies = [says("I have no tools.")]

    assert Desk(served("langchain_mcp.py"), tmp_path).says("Hello") == "I have no tools."
    assert "the user should hear that" in model.asked[0]["messages"][0]["content"]


def test_rules_allow_ask_and_deny(
    model: ModelServer, served: Served, tmp_path: Path, repository: Callable[..., str]
) -> None:
    repository("branch", "old")
    model.replies = [
        calls("list_branches", "call_1"),
        calls("delete_branch", "call_2", name="old"),
        calls("push", "call_3", remote="origin", branch="main"),
        says("Done."),
    ]
    desk = Desk(served("langchain_permissions.py"), tmp_path)

    desk.says("Tidy up", request_permission=chooses("allow_once"))

    (question,) = desk.questions("request_permission")
    assert question["toolCall"]["toolCallId"] == "call_2"
    assert "made again from its commit" in str(question)
    assert [(call["kind"], call["status"]) for call in desk.calls] == [
        ("read", "completed"),
        ("delete", "completed"),
        ("other", "failed"),
    ]
    assert "old" in model.asked[1]["messages"][-1]["content"]
    assert repository("branch", "--format=%(refname:short)") == "main"


def test_the_user_corrects_a_call_in_a_form_and_a_failure_is_read_by_the_model(
    model: ModelServer, served: Served, tmp_path: Path, repository: Callable[..., str]
) -> None:
    repository("branch", "old")
    model.replies = [
        calls("rename_branch", "call_1", old="old", new="wrong"),
        calls("rename_branch", "call_2", old="missing", new="x"),
        says("Done."),
    ]
    desk = Desk(served("langchain_permissions.py", **FORMS), tmp_path)

    desk.says(
        "Rename it",
        request_permission=lambda params: chooses(
            "edit" if params["toolCall"]["toolCallId"] == "call_1" else "approve"
        ),
        create={"action": "accept", "content": {"old": "old", "new": "right"}},
    )

    assert repository("branch", "--format=%(refname:short)").split() == ["main", "right"]
    assert "missing" in model.asked[2]["messages"][-1]["content"]
    assert [call["status"] for call in desk.calls] == ["completed", "failed"]


def test_a_graph_waits_for_the_user_drafts_again_and_writes(
    model: ModelServer, served: Served, tmp_path: Path, repository: Callable[..., str]
) -> None:
    repository("commit", "--quiet", "--allow-empty", "--message=Count sheep")
    model.replies = [says("- Sheep are counted."), says("- You can ", "count sheep.")]
    decisions = iter([{"decision": "change", "wish": "Say you"}, {"decision": "write", "wish": ""}])
    desk = Desk(served("langgraph_release_notes.py", **FORMS), tmp_path)

    said = desk.says("HEAD~1", create=lambda _: {"action": "accept", "content": next(decisions)})

    assert said.startswith("- Sheep are counted.")
    assert said.endswith("They are in RELEASE_NOTES.md.")
    assert (tmp_path / "RELEASE_NOTES.md").read_text() == "- You can count sheep.\n"
    assert "Count sheep" in str(model.asked[0]) and "Begin" not in str(model.asked[0])
    assert "Say you" in str(model.asked[1]) and "- Sheep are counted." in str(model.asked[1])


def test_a_graph_forgets_and_says_what_is_missing(
    model: ModelServer, served: Served, tmp_path: Path, repository: Callable[..., str]
) -> None:
    repository("commit", "--quiet", "--allow-empty", "--message=Count sheep")
    model.replies = [says("- Sheep.")]
    desk = Desk(served("langgraph_release_notes.py", **FORMS), tmp_path)

    said = desk.says("HEAD~1", create={"action": "accept", "content": {"decision": "forget"}})

    assert said.endswith("They are forgotten.")
    assert not (tmp_path / "RELEASE_NOTES.md").exists()
    assert "Name a tag or a commit." in desk.says("no-such-tag")
    assert desk.says("HEAD") == "Nothing was committed since HEAD. Name a tag or a commit."


def test_without_forms_the_graph_asks_in_the_chat_and_goes_on_after_a_restart(
    model: ModelServer, served: Served, tmp_path: Path, repository: Callable[..., str]
) -> None:
    repository("commit", "--quiet", "--allow-empty", "--message=Count sheep")
    model.replies = [says("- Sheep."), says("- Few sheep.")]
    first = Desk(served("langgraph_release_notes.py"), tmp_path)
    assert "What shall become of these notes?" in first.says("HEAD~1")

    leave(first.client)
    again = served("langgraph_release_notes.py")
    again.call("session/load", {"sessionId": first.id, "cwd": str(tmp_path), "mcpServers": []})
    again._held.clear()
    first.client = again

    assert "expected one of write, change, forget" in first.says("what else is there")
    assert first.says("change: say few").startswith("- Few sheep.")
    assert "say few" in str(model.asked[1])
    assert first.says("write") == "They are in RELEASE_NOTES.md."
    assert (tmp_path / "RELEASE_NOTES.md").read_text() == "- Few sheep.\n"

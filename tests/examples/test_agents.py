"""The examples that need no model do what they say, served to an editor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.desk import EXAMPLES, Desk, chooses
from raw_client import Frame, RawClient, serve

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("links")

@server.tool()
def check_links() -> str:
    return "fine"

@server.tool()
def check_pages() -> str:
    raise ValueError("a page is empty")

@server.tool()
def check_spelling() -> str:
    return "fine"

@server.tool()
def remove_all() -> str:
    return "gone"

server.run()
"""
YES = chooses("allow_once")
NO = chooses("reject_once")


@pytest.fixture
def checks() -> Iterator[RawClient]:
    with serve(EXAMPLES / "checks.py") as client:
        client.initialize()
        yield client


def test_checks_run_after_a_yes_and_the_plan_advances(checks: RawClient, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n\t@echo fine\n")
    desk = Desk(checks, tmp_path)

    said = desk.says("go", request_permission=YES)

    assert said == "- `make test`: passed\n"
    (question,) = desk.questions("request_permission")
    assert question["toolCall"]["rawInput"]["command"] == ["make", "test"]
    (call,) = desk.calls
    assert (call["kind"], call["status"], call["rawOutput"]) == ("execute", "completed", {"exit_code": 0})
    assert "fine" in str(call["content"])
    plans = [update["entries"][0]["status"] for update in desk.updates if update["sessionUpdate"] == "plan"]
    assert plans == ["pending", "in_progress", "completed"]


def test_a_check_that_fails_and_one_that_is_not_wanted_are_told_apart(
    checks: RawClient, tmp_path: Path
) -> None:
    (tmp_path / "Makefile").write_text("test:\n\t@exit 3\n")
    (tmp_path / "go.mod").touch()
    desk = Desk(checks, tmp_path)

    def only_make(params: Frame) -> Frame:
        return YES if "make" in params["toolCall"]["title"] else NO

    said = desk.says("go", request_permission=only_make)

    assert said == "- `make test`: **failed**, exit code 2\n- `go test ./...`: not run\n"
    assert [call["status"] for call in desk.calls] == ["failed", "failed"]


def test_checks_are_listed_and_not_run(checks: RawClient, tmp_path: Path) -> None:
    (tmp_path / "Cargo.toml").touch()
    desk = Desk(checks, tmp_path)

    assert desk.says("/list") == desk.says("list") == "- `cargo test`"
    assert desk.calls == []


def test_where_there_are_no_checks_it_says_what_it_looks_for(checks: RawClient, tmp_path: Path) -> None:
    said = Desk(checks, tmp_path).says("go")

    assert said.endswith("I look for Makefile, pyproject.toml, package.json, Cargo.toml, go.mod.\n")


def test_checks_of_an_mcp_server_are_run_if_the_user_lets_them(checks: RawClient, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    server = {"name": "links", "command": sys.executable, "args": ["server.py"], "env": []}
    desk = Desk(checks, tmp_path, server)

    said = desk.says("go", request_permission=lambda params: NO if "spelling" in str(params) else YES)

    assert said.splitlines()[1:] == [
        "- links, check_links: passed",
        "- links, check_pages: **failed**",
        "- links, check_spelling: `check_spelling` of the MCP server `links` was not used: "
        "not permitted by the user",
    ]


@pytest.fixture
def rename() -> Iterator[RawClient]:
    with serve(EXAMPLES / "rename.py") as client:
        client.initialize()
        yield client


def test_a_word_is_renamed_in_the_files_that_the_user_says_yes_to(rename: RawClient, tmp_path: Path) -> None:
    for name, text in {
        "a.py": "cat = 1  # a category\n",
        "b.py": "cat = 2\n",
        "deep/c.md": "The cat.\n",
        "build/d.py": "cat = 4\n",
        ".hidden/e.py": "cat = 5\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0cat")
    (tmp_path / "link.py").symlink_to("/etc/hosts")
    desk = Desk(rename, tmp_path)

    said = desk.says(
        "/rename cat dog",
        request_permission=lambda params: NO if "b.py" in params["toolCall"]["title"] else YES,
    )

    assert said == "- a.py: 1 renamed\n- b.py: left as it was\n- deep/c.md: 1 renamed"
    assert (tmp_path / "a.py").read_text() == "dog = 1  # a category\n"
    assert (tmp_path / "b.py").read_text() == "cat = 2\n"
    assert (tmp_path / "deep/c.md").read_text() == "The dog.\n"
    assert [question["toolCall"]["content"][0]["type"] for question in desk.questions("permission")] == [
        "diff"
    ] * 3


def test_only_files_of_the_pattern_are_renamed_in(rename: RawClient, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("cat\n")
    (tmp_path / "a.md").write_text("cat\n")
    desk = Desk(rename, tmp_path)

    assert desk.says("/rename cat dog *.md", request_permission=YES) == "- a.md: 1 renamed"
    assert desk.says("/rename mouse dog") == "`mouse` is in none of the files."
    assert desk.says("/rename mouse").startswith("Say `/rename OLD NEW`")
    assert desk.says("hello").startswith("Say `/rename OLD NEW`")


def test_what_is_not_saved_is_renamed_and_goes_back_to_the_editor(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("old\n")
    shown = {str(tmp_path / "a.py"): "cat, not saved\n"}

    def write(params: Frame) -> Frame:
        shown[params["path"]] = params["content"]
        return {}

    with serve(EXAMPLES / "rename.py") as client:
        client.initialize(fs={"readTextFile": True, "writeTextFile": True})
        said = Desk(client, tmp_path).says(
            "/rename cat dog",
            read_text_file=lambda params: {"content": shown[params["path"]]},
            write_text_file=write,
            request_permission=YES,
        )

    assert said == "- a.py: 1 renamed"
    assert [*shown.values()] == ["dog, not saved\n"]


def test_what_changes_while_the_user_decides_is_not_written_over(rename: RawClient, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("cat\n")

    def types_and_agrees(_: Frame) -> Frame:
        (tmp_path / "a.py").write_text("cat, and more\n")
        return YES

    said = Desk(rename, tmp_path).says("/rename cat dog", request_permission=types_and_agrees)

    assert said == "- a.py: has changed meanwhile, ask me again"
    assert (tmp_path / "a.py").read_text() == "cat, and more\n"

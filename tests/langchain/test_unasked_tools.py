"""Which tools the ready-made modes run unasked, or offer: those that are known to be harmless."""

import json

from tables import table

READING = {
    # FileManagementToolkit, and the file tools of LangChain and deepagents
    "read_file": {"path": "a"},
    "list_directory": {"path": "."},
    "file_search": {"pattern": "*.py"},
    "glob_search": {"pattern": "*.py"},
    "grep_search": {"pattern": "x"},
    "ls": {"path": "."},
    "glob": {"pattern": "*.py"},
    "grep": {"pattern": "x"},
    "write_todos": {"todos": "x"},
    # GmailToolkit, GitHub, Jira, Slack
    "search_gmail": {"query": "x"},
    "get_gmail_message": {"message_id": "1"},
    "get_gmail_thread": {"thread_id": "1"},
    "get_issue": {"number": 1},
    "get_issues": {"state": "open"},
    "Get Pull Request": {"number": 1},
    "list_pull_requests": {"state": "open"},
    "list_commits": {"branch": "main"},
    "get_commit": {"sha": "abc"},
    "search_code": {"query": "x"},
    "search_issues": {"query": "x"},
    "get_channelid_name_dict": {"x": "y"},
    # SQLDatabaseToolkit, Playwright, web search
    "sql_db_list_tables": {"tool_input": ""},
    "sql_db_schema": {"table_names": "a"},
    "get_elements": {"selector": "a"},
    "extract_text": {"x": "y"},
    "current_webpage": {"x": "y"},
    # names as authors choose them
    "lookup_price": {"item": "tea"},
    "find_symbol": {"which": "x"},
    "listFiles": {"path": "."},
    "ReadFile": {"path": "a"},
    "get_deleted_items": {"box": "a"},
    "list_updates": {"since": "x"},
    "get_settings": {"which": "x"},
    "describe_table": {"which": "x"},
    "think": {"thought": "x"},
    "analyze_log": {"text": "x"},
}

NOT_READING = {
    # shells and interpreters
    "bash": {"command": "ls"},
    "shell": {"command": "ls"},
    "terminal": {"commands": "ls"},
    "execute": {"command": "ls"},
    "run_command": {"command": "ls"},
    "python_repl": {"query": "1"},
    "Python_REPL": {"query": "1"},
    "python_repl_ast": {"query": "1"},
    "run_code": {"code": "1"},
    # FileManagementToolkit, deepagents
    "copy_file": {"source_path": "a", "destination_path": "b"},
    "file_delete": {"file_path": "a"},
    "move_file": {"source_path": "a", "destination_path": "b"},
    "write_file": {"file_path": "a", "text": "x"},
    "edit_file": {"file_path": "a", "old_string": "a", "new_string": "b"},
    "delete": {"file_path": "a"},
    "task": {"description": "x", "subagent_type": "y"},
    "compact_conversation": {"x": "y"},
    # GmailToolkit, GitHub, Jira, Slack
    "create_gmail_draft": {"message": "x"},
    "send_gmail_message": {"message": "x"},
    "send_mail": {"message": "x"},
    "comment_on_issue": {"text": "x"},
    "create_pull_request": {"title": "x"},
    "Create File": {"file_path": "a"},
    "set_active_branch": {"branch": "x"},
    "git_commit": {"message": "x"},
    "create_issue": {"title": "x"},
    "jira_api": {"query": "x"},
    "send_slack_message": {"message": "x"},
    "schedule_slack_message": {"message": "x"},
    # SQLDatabaseToolkit, Playwright, requests
    "sql_db_query": {"query": "DROP TABLE a"},
    "drop_table": {"which": "x"},
    "navigate_browser": {"url": "https://example.com"},
    "click_element": {"selector": "a"},
    "requests_get": {"url": "https://example.com"},
    "requests_post": {"text": "x"},
    "requests_delete": {"url": "https://example.com"},
    "fetch_page": {"url": "https://example.com"},
    "download_file": {"url": "https://example.com"},
    "get_url": {"url": "https://example.com"},
    # tools as MCP servers call theirs
    "mcp__github__create_issue": {"title": "x"},
    "mcp__files__read_file": {"path": "a"},
    "github.merge_pull_request": {"number": 1},
    # names that only begin as if they would read
    "get_and_delete": {"key": "x"},
    "getAndDelete": {"key": "x"},
    "read_write_file": {"path": "a"},
    "search_and_replace": {"pattern": "x"},
    "list_then_remove": {"key": "x"},
    "find_or_create_user": {"which": "x"},
    "get_or_update": {"key": "x"},
    "read_and_post": {"text": "x"},
    "lookup_and_email": {"text": "x"},
    "list_and_run": {"which": "x"},
    "analyze_and_fix": {"path": "a"},
    "think_then_send": {"text": "x"},
    "fetch_and_save": {"url": "https://example.com"},
    "listen_on_port": {"port": 1},
    "getaway": {"x": "y"},
    "reader_reset": {"x": "y"},
    "globalize": {"x": "y"},
    # names that read, with arguments that run
    "get_output": {"command": "ls"},
    "list_rows": {"sql": "DROP TABLE a"},
    "read_result": {"steps": [{"shell_command": "ls"}]},
    # names that say nothing
    "lookup": {"topic": "x"},
    "view": {"x": "y"},
    "act": {"x": "y"},
    "book_flight": {"to": "x"},
}

MADE = """
def made(name, arguments):
    fields = {key: (Any, ...) for key in arguments}
    return StructuredTool.from_function(lambda **given: "ran", name=name, description="Acts.",
                                        args_schema=create_model("Arguments", **fields))

from langchain_core.tools import StructuredTool
from pydantic import create_model
tools = [made(*each) for each in TOOLS.items()]
agent = agent_with(acp.modes("interactive", "read-only", "planning"), tools=tools)
"""

THINKING = {"think", "analyze_log", "write_todos"}
UNTOLD = {"read_result"}
"""Tools of whose arguments nothing is known before they are called."""
FETCHING = {"fetch_page", "download_file", "get_url", "requests_get"}


def made(order, tools):
    return order(f"import json\nTOOLS = json.loads({json.dumps(tools)!r})\n{MADE}")


def test_interactive_asks_about_every_tool_that_is_not_known_to_be_harmless(order):
    tools = READING | NOT_READING
    at = made(order, tools)

    answers = at.does(*tools.items())

    asked = {question["params"]["toolCall"]["name"] for question in at.asked}
    assert sorted(asked & READING.keys()) == []
    assert sorted(NOT_READING.keys() - asked) == []
    assert answers == [["success", "ran"]] * len(tools)


def test_a_no_in_interactive_keeps_a_tool_of_no_known_kind_from_running(order):
    at = made(order, {"send_mail": {"message": "x"}})

    ((status, told),) = at.does(("send_mail", {"message": "x"}), reply="reject_once")

    assert status == "error"
    assert "`send_mail` was not run" in told


def test_no_tool_slips_into_a_mode_that_only_reads_by_a_lucky_name(order):
    at = made(order, READING | NOT_READING)

    at.set_mode("read-only")
    assert set(at.tells()["tools"]) - UNTOLD == READING.keys() - THINKING
    at.set_mode("planning")
    assert set(at.tells()["tools"]) - UNTOLD == READING.keys() | FETCHING


@table("mode", ["read-only", "planning"])
def test_a_reading_tool_that_is_given_a_command_does_not_run_in_a_mode_that_only_reads(order, mode):
    at = made(order, {name: NOT_READING[name] for name in UNTOLD})
    at.set_mode(mode)

    ((status, told),) = at.does(*((name, NOT_READING[name]) for name in UNTOLD))

    assert status == "error"
    assert "there is no such tool in the mode" in told


@table(
    ("declaring", "asked"),
    [
        ('acp.tools(kind={"act": "read"})', False),
        ('acp.tools(kind={"act": "search"})', False),
        ('acp.tools(kind={"act": "think"})', False),
        ('acp.tools(kind={"act": "fetch"})', True),
        ('acp.tools(kind={"act": "other"})', True),
        ('acp.permissions({"act": {"effect": "allow", "kind": "read"}})', False),
        ('acp.tools(kind={"get_*": "edit"})', True),
    ],
)
def test_the_kind_that_its_author_declares_decides_in_interactive(order, declaring, asked):
    name = "get_it" if "get_" in declaring else "act"
    source = MADE.replace("agent_with(", f"agent_with({declaring}, ")
    at = order(f"TOOLS = {{{name!r}: {{'x': 'y'}}}}\n{source}")

    assert at.does((name, {"x": "y"})) == [["success", "ran"]]
    assert bool(at.asked) is asked


def test_the_metadata_of_a_tool_declares_its_kind(order):
    at = order(
        """
@tool
async def survey(place: str) -> str:
    "Look at a place."
    return "seen"

survey.metadata = {"coupler": {"kind": "read"}}
agent = agent_with(acp.modes("interactive"), tools=[survey])
"""
    )

    assert at.does(("survey", {"place": "x"})) == [["success", "seen"]]
    assert at.asked == []


def test_the_editor_s_own_tools_are_asked_about_as_before_and_once(order, tmp_path):
    (tmp_path / "a").write_text("text")
    at = order('agent = agent_with(acp.modes("interactive"), tools=acp.editor_tools())')

    at.does(("read_file", {"path": "a"}), ("list_directory", {}), ("search", {"pattern": "x"}))
    assert at.asked == []
    at.does(("run_command", {"command": "echo hi"}))
    assert len(at.asked) == 1

"""How tool calls look: kinds, titles, places, changes, and what an author wants otherwise."""

import logging
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from msgspec import UNSET

from coupler.langchain.presentation import Overrides, Presentation
from coupler.schema.v1 import Content, Diff, ImageContent, TextContent, ToolCallLocation
from tables import table

CWD = "/home/me/project"


def presentation(*overrides: Overrides, cwd: str = CWD) -> Presentation:
    made = Presentation(cwd, (cwd,))
    for each in overrides:
        made.prefer(each)
    return made


def a_tool(name: str = "act", **about: Any) -> StructuredTool:
    return StructuredTool.from_function(
        lambda: "done", name=name, description="Acts.", metadata={"coupler": about}
    )


@table(
    ("name", "kind"),
    [
        ("fetch_page", "fetch"),
        ("download", "fetch"),
        ("get_url", "fetch"),
        ("getPageUrl", "fetch"),
        ("delete_file", "delete"),
        ("remove", "delete"),
        ("move_file", "move"),
        ("rename_symbol", "move"),
        ("write_file", "edit"),
        ("create_issue", "edit"),
        ("update_row", "edit"),
        ("edit_file", "edit"),
        ("run_tests", "execute"),
        ("exec", "execute"),
        ("execute", "execute"),
        ("command_line", "execute"),
        ("think", "think"),
        ("reason_about", "think"),
        ("analyze_log", "think"),
        ("search_code", "search"),
        ("find_symbol", "search"),
        ("grep", "search"),
        ("glob", "search"),
        ("read_file", "read"),
        ("get_price", "read"),
        ("list_directory", "read"),
        ("ReadFile", "read"),
        ("lookup", "other"),
        ("forget_it", "other"),
        ("budget", "other"),
        ("write_todos", "think"),
        ("ls", "read"),
        ("shell", "execute"),
    ],
)
def test_the_kind_of_a_tool_is_told_by_the_beginning_of_its_name(name: str, kind: str) -> None:
    assert presentation().kind(name, None, {}) == kind


@table(
    ("name", "annotations", "kind"),
    [
        ("delete_cache", {"read_only": True}, "read"),
        ("search_mail", {"read_only": True}, "search"),
        ("lookup", {"read_only": True}, "read"),
        ("get_and_lock", {"destructive": True}, "edit"),
        ("remove_all", {"destructive": True}, "delete"),
        ("get_price", {"read_only": None, "destructive": None}, "read"),
        ("get_price", {"read_only": False}, "read"),
        ("get_price", {"read_only": "yes"}, "read"),
        ("delete_all", {"read_only": 1}, "delete"),
    ],
)
def test_what_a_server_claims_of_its_tool_goes_before_the_name(
    name: str, annotations: dict[str, Any], kind: str
) -> None:
    tool = a_tool(f"files_{name}", tool=name, annotations=annotations)
    assert presentation().kind(tool.name, tool, {}) == kind


def test_an_explicit_kind_goes_before_all_claims() -> None:
    tool = a_tool("delete_it", kind="read", annotations={"destructive": True})
    assert presentation().kind("delete_it", tool, {}) == "read"
    wish = Overrides(kind={"delete_*": "think"})
    assert presentation(wish).kind("delete_it", tool, {}) == "think"


@table(
    ("name", "args", "title"),
    [
        ("read_file", {"file_path": f"{CWD}/src/app.py", "limit": 10}, "Read file: src/app.py"),
        ("read_file", {"path": "/etc/hosts"}, "Read file: /etc/hosts"),
        ("run_command", {"timeout": 5, "command": "pytest -q"}, "Run command: pytest -q"),
        ("execute", {"command": ["git", "status"]}, "Execute: git, status"),
        ("fetch", {"verbose": True, "url": "https://example.org"}, "Fetch: https://example.org"),
        ("grep", {"path": "src", "pattern": "TODO"}, "Grep: src"),
        ("search_web", {"query": "acp"}, "Search web: acp"),
        ("add", {"a": 1, "b": 2}, "Add: 1"),
        ("act", {}, "Act"),
        ("act", {"value": {"deep": 1}}, "Act"),
        ("act", {"text": "two\nlines"}, "Act: two…"),
        ("act", {"text": "  "}, "Act"),
    ],
)
def test_a_title_names_the_tool_and_its_key_argument(name: str, args: dict[str, Any], title: str) -> None:
    assert presentation().title(name, None, args) == title


def test_a_title_stays_short_whatever_the_model_writes() -> None:
    title = presentation().title("act", None, {"text": "x" * 100_000})
    assert len(title) < 120
    assert title.endswith("…")


def test_an_argument_that_is_still_written_is_not_shown() -> None:
    shown = presentation()
    args = {"path": "src/app.py", "content": "imp"}
    assert shown.title("write_file", None, {"path": "src/ap"}, partial=True) == "Write file"
    assert shown.title("write_file", None, args, partial=True) == "Write file: src/app.py"
    assert shown.locations("write_file", {"path": "src/ap"}, partial=True) == ()


def test_a_server_s_tool_is_titled_with_its_server_and_its_own_title() -> None:
    tool = a_tool("files_stat", server="files", tool="stat", title="Look at a file")
    assert presentation().title("files_stat", tool, {"path": "a"}) == "files: Look at a file: a"


@table(
    ("name", "args", "places"),
    [
        ("read_file", {"path": "src/app.py"}, [(f"{CWD}/src/app.py", UNSET)]),
        ("read_file", {"filePath": "../other/x", "line": 7}, [("/home/me/other/x", 7)]),
        ("read_files", {"paths": ["a", "b", "a"], "line": 7}, [(f"{CWD}/a", UNSET), (f"{CWD}/b", UNSET)]),
        ("open", {"file": "file:///etc/my%20hosts"}, [("/etc/my hosts", UNSET)]),
        ("open", {"file": "file://[x"}, [(f"{CWD}/file:/[x", UNSET)]),
        ("move_file", {"source": "a", "destination": "b"}, [(f"{CWD}/a", UNSET), (f"{CWD}/b", UNSET)]),
        ("send", {"source": "a", "destination": "b"}, []),
        ("read", {"path": "https://example.org/x"}, []),
        ("read", {"path": "two\nlines"}, []),
        ("read", {"path": ""}, []),
        ("read", {"path": 7, "file": None, "dir": {"a": 1}}, []),
        ("read", {"path": "x" * 5000}, []),
        ("read", {"profile": "me", "filedescriptor": "x"}, []),
    ],
)
def test_arguments_that_are_called_like_paths_become_absolute_places(
    name: str, args: dict[str, Any], places: list[tuple[str, Any]]
) -> None:
    assert presentation().locations(name, args) == tuple(ToolCallLocation(*place) for place in places)


def test_an_edit_that_is_described_by_old_and_new_text_is_shown_as_a_change() -> None:
    args = {"file_path": "app.py", "old_string": "a", "new_string": "b"}
    assert presentation().preview("edit_file", args) == [Diff(f"{CWD}/app.py", "b", "a")]
    assert presentation().preview("read_file", args) == []


def test_a_file_that_is_written_whole_is_shown_as_a_change_of_what_it_was(tmp_path: Any) -> None:
    (tmp_path / "old.txt").write_text("before")
    shown = presentation(cwd=str(tmp_path))
    assert shown.preview("write_file", {"path": "old.txt", "content": "after"}) == [
        Diff(str(tmp_path / "old.txt"), "after", "before")
    ]
    assert shown.preview("write_file", {"path": "new.txt", "content": "after"}) == [
        Diff(str(tmp_path / "new.txt"), "after", None)
    ]


def test_no_old_text_is_read_outside_of_the_session_s_directories(tmp_path: Any) -> None:
    (tmp_path / "secret").write_text("outside")
    inside = tmp_path / "project"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path / "secret")
    shown = presentation(cwd=str(inside))
    assert shown.preview("write_file", {"path": "../secret", "content": "x"}) == []
    assert shown.preview("write_file", {"path": "link", "content": "x"}) == []


def test_titles_contents_and_places_can_be_wanted_otherwise() -> None:
    message = ToolMessage("42", tool_call_id="1")
    shown = presentation(
        Overrides(
            title={"ask_*": "Asking about {topic}", "tell": lambda args: f"Telling {args['who']}"},
            content={
                "ask_*": lambda args, result: [f"It is {result.content}", ImageContent("aa", "image/png")]
            },
            locations={"ask_*": "about", "tell": lambda args: [("x.py", 3)]},
        )
    )
    assert shown.title("ask_now", None, {"topic": "tea"}) == "Asking about tea"
    assert shown.title("ask_now", None, {}) == "Ask now"
    assert shown.title("tell", None, {"who": "me"}) == "Telling me"
    assert shown.content("ask_now", {}, message) == [
        Content(TextContent("It is 42")),
        Content(ImageContent("aa", "image/png")),
    ]
    assert shown.content("other", {}, message) is None
    assert shown.locations("ask_now", {"about": "a.py"}) == (ToolCallLocation(f"{CWD}/a.py"),)
    assert shown.locations("tell", {}) == (ToolCallLocation(f"{CWD}/x.py", 3),)


def test_functions_for_all_tools_leave_alone_what_they_return_nothing_for() -> None:
    shown = presentation(
        Overrides(
            kind=lambda name, args: "think" if name == "a" else None,
            title=lambda name, args: name.upper() if name == "a" else None,
            locations=lambda name, args: ["z"] if name == "a" else None,
            content=lambda name, args, message: "short" if name == "a" else None,
        )
    )
    message = ToolMessage("long", tool_call_id="1")
    assert (shown.kind("a", None, {}), shown.title("a", None, {})) == ("think", "A")
    assert (shown.kind("read", None, {}), shown.title("read", None, {})) == ("read", "Read")
    assert shown.locations("a", {}) == (ToolCallLocation(f"{CWD}/z"),)
    assert shown.content("a", {}, message) == [Content(TextContent("short"))]


def test_what_is_wrong_with_a_wish_costs_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    shown = presentation(
        Overrides(
            kind=lambda name, args: "reading",  # type: ignore[arg-type,return-value]
            title=lambda name, args: 1 / 0,  # type: ignore[arg-type,return-value]
            locations=lambda name, args: [3],  # type: ignore[arg-type,list-item,return-value]
        )
    )
    with caplog.at_level(logging.WARNING, "coupler.langchain"):
        assert shown.kind("read", None, {}) == "read"
        assert shown.title("read", None, {}) == "Read"
        assert shown.locations("read", {"path": "a"}) == (ToolCallLocation(f"{CWD}/a"),)
    assert len(caplog.records) == 3
    assert "did you mean 'read'?" in caplog.text


def test_which_starts_and_results_are_shown_can_be_said_for_all_tools_or_by_pattern() -> None:
    assert presentation().starts("a")
    assert not presentation(Overrides(starts=False)).starts("a")
    shown = presentation(Overrides(results=["read_*", "grep"], starts="run_*"))
    assert [shown.results(name) for name in ("read_file", "grep", "write")] == [True, True, False]
    assert [shown.starts(name) for name in ("run_it", "read")] == [True, False]


@table(
    ("wish", "told"),
    [
        ({"kind": {"a": "reed"}}, "did you mean 'read'?"),
        ({"kind": "read"}, "a mapping from patterns"),
        ({"title": {"a": 3}}, "nothing that it can use at 'a'"),
        ({"content": {"a": "text"}}, "nothing that it can use at 'a'"),
        ({"starts": [3]}, "patterns of tool names"),
    ],
)
def test_a_wish_that_means_nothing_is_refused_where_it_is_written(wish: dict[str, Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told.replace("?", r"\?")):
        Overrides(**wish)

"""Paths of deepagents' tools, judged and shown as the files on disk that their backends make of them."""

import json

import pytest

from labs.langchain.ordering import selected
from tables import table

DEEP = """
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, FilesystemBackend, LocalShellBackend, StateBackend

ROOT = session.cwd
"""

VIRTUAL = "FilesystemBackend(root_dir=ROOT, virtual_mode=True)"
REAL = "FilesystemBackend(root_dir=ROOT, virtual_mode=False)"
OF_STATE = "StateBackend()"
COMPOSITE = f"CompositeBackend(default=StateBackend(), routes={{'/disk/': {VIRTUAL}}})"
INSIDE_OUT = f"CompositeBackend(default={VIRTUAL}, routes={{'/kept/': StateBackend()}})"


@pytest.fixture
def deep(order, tmp_path):
    """Makes a session with a deep agent on a backend, and rules for the project."""

    def make(backend: str, rules: str = "", *, before: str = "", **more: str):
        (tmp_path / "coupler.toml").write_text(f"[permissions]\n{rules}\n")
        (tmp_path / "secret").mkdir(exist_ok=True)
        (tmp_path / "secret" / "a").write_text("hidden\n")
        (tmp_path / "open").mkdir(exist_ok=True)
        (tmp_path / "open" / "a").write_text("plain\n")
        options = "".join(f", {name}=[{value}]" for name, value in more.items())
        return order(f"{DEEP}\n{before}\nagent = create_deep_agent(scripted(), backend={backend}{options})")

    return make


def write(path: str) -> tuple[str, dict]:
    return "write_file", {"file_path": path, "content": "new\n"}


def places(at, call: str = "call_1_0") -> list[str]:
    return [each["path"] for each in at.calls[call].get("locations", [])]


def shown_diffs(at, call: str = "call_1_0") -> list[tuple]:
    """The changes that were shown of a call at any time."""
    updates = [update for update in at.updates if update.get("toolCallId") == call]
    asked = [
        question["params"]["toolCall"]
        for question in at.asked
        if question["params"]["toolCall"]["toolCallId"] == call
    ]
    content = [item for each in (*updates, *asked) for item in each.get("content") or []]
    return [
        (item["path"], item.get("oldText"), item["newText"]) for item in content if item["type"] == "diff"
    ]


@table(
    ("backend", "path"),
    [
        (VIRTUAL, "/secret/b"),
        (VIRTUAL, "secret/b"),
        (VIRTUAL, "/./secret//b"),
        (VIRTUAL, "open\\..\\secret\\b"),
        (VIRTUAL, "/secret\\b"),
        (REAL, "{cwd}/secret/b"),
        (REAL, "{bare}/secret/b"),
        (COMPOSITE, "/disk/secret/b"),
        (COMPOSITE, "disk/secret/b"),
        (INSIDE_OUT, "/secret/b"),
        (f"CompositeBackend(default=StateBackend(), routes={{'/disk': {REAL}}})", "/disk{cwd}/secret/b"),
        ("LocalShellBackend(root_dir=ROOT, virtual_mode=True)", "/secret/b"),
    ],
)
def test_a_rule_against_a_directory_holds_whatever_a_backend_calls_it(deep, tmp_path, backend, path):
    at = deep(backend, 'deny = ["edit(secret/**)"]')
    path = path.format(cwd=tmp_path, bare=str(tmp_path).lstrip("/"))

    ((status, _),) = at.does(write(path), reply="reject_once")

    assert status == "error"
    assert not (tmp_path / "secret" / "b").exists()


@table(
    ("backend", "path", "lands"),
    [
        (VIRTUAL, "/open/b", "open/b"),
        (REAL, "{cwd}/open/b", "open/b"),
        (COMPOSITE, "/disk/open/b", "open/b"),
        (COMPOSITE, "/secret/b", None),
        (COMPOSITE, "/disks/secret/b", None),
        (INSIDE_OUT, "/open/b", "open/b"),
        (INSIDE_OUT, "/kept/secret/b", None),
        (OF_STATE, "/secret/b", None),
        (OF_STATE, "{cwd}/secret/b", None),
    ],
)
def test_what_no_rule_is_against_is_written_unasked(deep, tmp_path, backend, path, lands):
    at = deep(backend, 'deny = ["edit(secret/**)"]')
    for each in ("open/b", "secret/b"):
        (tmp_path / each).unlink(missing_ok=True)

    ((status, told),) = at.does(write(path.format(cwd=tmp_path)))

    assert (status, at.asked) == ("success", []), told
    assert not (tmp_path / "secret" / "b").exists()
    assert (tmp_path / "open" / "b").exists() is (lands is not None)
    assert places(at) == ([str(tmp_path / lands)] if lands else [])


@table(
    ("rule", "status", "questions"),
    [
        ('deny = ["edit"]', "error", 0),
        ('deny = ["*"]', "error", 0),
        ('deny = ["tool:write_file"]', "error", 0),
        ('ask = ["edit"]', "success", 1),
        ('ask = ["edit(secret/**)"]', "success", 0),
        ('deny = ["read", "execute", "delete"]', "success", 0),
    ],
)
def test_a_file_of_the_state_is_kept_to_rules_without_a_path(deep, rule, status, questions):
    at = deep(OF_STATE, rule)

    ((answered, _),) = at.does(write("/secret/b"))

    assert (answered, len(at.asked)) == (status, questions)


@table(
    ("call", "arguments"),
    [
        ("ls", {"path": "/secret"}),
        ("read_file", {"file_path": "/secret/a"}),
        ("glob", {"pattern": "*", "path": "/secret"}),
        ("grep", {"pattern": "hid", "path": "/secret"}),
        ("grep", {"pattern": "hid", "path": "secret"}),
        ("edit_file", {"file_path": "/secret/a", "old_string": "hidden", "new_string": "x"}),
        ("delete", {"file_path": "/secret/a"}),
        ("delete", {"file_path": "/secret"}),
    ],
)
@pytest.mark.parametrize("backend", [VIRTUAL, INSIDE_OUT], ids=["virtual", "composite"])
def test_every_file_tool_is_judged_by_the_file_on_disk(deep, tmp_path, backend, call, arguments):
    at = deep(backend, 'deny = ["read(secret/**)", "edit(secret/**)", "search(secret/**)"]')

    ((status, told),) = at.does((call, arguments), reply="reject_once")

    assert status == "error"
    assert "not run" in told
    assert (tmp_path / "secret" / "a").read_text() == "hidden\n"


@table(
    ("call", "arguments"),
    [
        ("grep", {"pattern": "hid"}),
        ("grep", {"pattern": "hid", "path": None}),
        ("grep", {"pattern": "hid", "path": "/"}),
        ("glob", {"pattern": "**/*"}),
        ("glob", {"pattern": "**/*", "path": "/"}),
    ],
)
@pytest.mark.parametrize("backend", [VIRTUAL, REAL, COMPOSITE, INSIDE_OUT], ids=["a", "b", "c", "d"])
def test_a_search_without_a_path_is_one_of_everything_that_the_backend_has(deep, backend, call, arguments):
    at = deep(backend, 'ask = ["search(secret/**)"]')

    at.does((call, arguments), reply="reject_once")

    assert len(at.asked) == 1


@table(
    "rules, asked",
    [("", 0), ('deny = ["edit(secret/**)"]', 1), ('ask = ["execute"]', 1)],
)
@pytest.mark.parametrize(
    "call",
    [
        write("/open/c"),
        ("read_file", {"file_path": "/open/a"}),
        ("ls", {"path": "/"}),
        ("grep", {"pattern": "x"}),
    ],
    ids=lambda call: call[0],
)
def test_the_path_of_an_unknown_backend_is_asked_about_where_rules_exist(deep, rules, asked, call):
    at = deep(
        "Elsewhere(root_dir=ROOT)",
        rules,
        before="""
class Elsewhere(FilesystemBackend):
    def _resolve_path(self, key):
        return super()._resolve_path("/secret" + key)
""",
    )

    at.does(call, reply="reject_once")

    assert len(at.asked) == asked
    assert places(at) == []
    assert shown_diffs(at) == []


def test_a_path_that_a_backend_refuses_leads_nowhere(deep, tmp_path):
    at = deep(VIRTUAL, 'deny = ["edit(secret/**)"]')

    answers = at.does(write("/open/../secret/b"), write("~/b"), write("C:/secret/b"), write("/x..y"))

    assert {status for status, _ in answers} == {"error"}
    assert not (tmp_path / "secret" / "b").exists()


@table(
    ("backend", "path", "shown"),
    [
        (VIRTUAL, "/open/a", "open/a"),
        (VIRTUAL, "open/a", "open/a"),
        (REAL, "{cwd}/open/a", "open/a"),
        (COMPOSITE, "/disk/open/a", "open/a"),
        (COMPOSITE, "/open/a", None),
        (OF_STATE, "/open/a", None),
        (OF_STATE, "{cwd}/open/a", None),
    ],
)
def test_a_change_is_asked_about_with_the_file_on_disk_and_its_text(deep, tmp_path, backend, path, shown):
    at = deep(backend, middleware='acp.permissions({"write_file": "ask"})')
    path = path.format(cwd=tmp_path)

    at.does(write(path), reply="reject_once")

    (question,) = at.asked
    told = question["params"]["toolCall"]
    file = str(tmp_path / shown) if shown else None
    assert [each["path"] for each in told.get("locations", [])] == ([file] if file else [])
    assert set(shown_diffs(at)) == ({(file, "plain\n", "new\n")} if file else set())
    assert told["title"] == f"Write file: {shown or (path if path.startswith('/open') else 'open/a')}"


def test_a_file_of_the_state_shows_no_text_of_a_file_on_disk_with_its_name(deep, tmp_path):
    at = deep(OF_STATE, middleware='acp.permissions({"edit_file": "ask"})')
    (tmp_path / "open" / "a").write_text("do not show")
    edit = {"file_path": f"{tmp_path}/open/a", "old_string": "x", "new_string": "y"}

    at.does(write(f"{tmp_path}/open/a"), ("edit_file", edit))

    assert "do not show" not in json.dumps([at.updates, at.asked])
    assert (places(at), places(at, "call_1_1")) == ([], [])


@table(
    ("backend", "command", "written"),
    [
        ("LocalShellBackend(root_dir=ROOT + '/secret')", "echo x > b", False),
        ("LocalShellBackend(root_dir=ROOT + '/open')", "echo x > b", True),
        (
            "CompositeBackend(LocalShellBackend(root_dir=ROOT + '/secret'), {'/m/': StateBackend()})",
            "echo x > b",
            False,
        ),
    ],
)
def test_a_command_is_judged_in_the_directory_in_which_the_backend_runs_it(
    deep, tmp_path, backend, command, written
):
    at = deep(backend, 'deny = ["edit(secret/**)"]')

    ((status, told),) = at.does(("execute", {"command": command}), reply="reject_once")

    assert (status == "success") is written, told
    assert not (tmp_path / "secret" / "b").exists()


INNER = """
def obey_once(messages):
    if messages[-1].type == "human":
        return [call("write_file", "deep", file_path=messages[-1].text, content="x")]
    return [json.dumps([messages[-1].status, messages[-1].text])]

inner = create_deep_agent(ScriptedModel(script=obey_once),
                          backend=FilesystemBackend(root_dir=ROOT + "/inner", virtual_mode=True))

@tool
async def awaits(wish: str) -> str:
    "Have another agent write a file."
    return (await inner.ainvoke({"messages": [("user", wish)]}))["messages"][-1].text

@tool
def invokes(wish: str) -> str:
    "Have another agent write a file."
    return inner.invoke({"messages": [("user", wish)]})["messages"][-1].text
"""


@table("delegating", ["awaits", "invokes"])
@pytest.mark.parametrize("outer", [OF_STATE, VIRTUAL, REAL], ids=["state", "virtual", "real"])
def test_the_files_of_an_agent_inside_are_judged_by_its_own_backend(deep, tmp_path, outer, delegating):
    (tmp_path / "inner").mkdir(exist_ok=True)
    at = deep(outer, 'deny = ["edit(inner/secret/**)"]', before=INNER, tools="awaits, invokes")

    refused, written = at.does((delegating, {"wish": "/secret/b"}), (delegating, {"wish": "/open/b"}))

    assert json.loads(refused[1])[0] == "error", refused
    assert json.loads(written[1])[0] == "success", written
    assert at.asked == []
    assert not (tmp_path / "inner" / "secret").exists()
    assert (tmp_path / "inner" / "open" / "b").read_text() == "x"
    told = {each["path"] for update in at.updates for each in update.get("locations") or []}
    assert told == {str(tmp_path / "inner" / each) for each in ("secret/b", "open/b")}
    diffs = {item["path"] for update in at.updates for item in update.get("content") or [] if "path" in item}
    assert diffs <= told


WRITER = """
def obey_once(messages):
    if messages[-1].type == "human":
        return [call("write_file", "deep", file_path=messages[-1].text, content="x")]
    return [json.dumps([messages[-1].status, messages[-1].text])]

writer = {"name": "writer", "description": "Writes.", "system_prompt": "Write.",
          "model": ScriptedModel(script=obey_once)}
"""


@pytest.mark.parametrize("backend", [VIRTUAL, INSIDE_OUT], ids=["virtual", "composite"])
def test_the_sub_agents_of_a_deep_agent_are_kept_to_the_rules(deep, tmp_path, backend):
    at = deep(
        backend,
        'deny = ["edit(secret/**)"]',
        before=WRITER,
        subagents="writer",
    )
    tasks = [{"subagent_type": "writer", "description": path} for path in ("/secret/b", "/open/b")]

    refused, written = at.does(*(("task", task) for task in tasks))

    assert json.loads(refused[1])[0] == "error", refused
    assert json.loads(written[1])[0] == "success", written
    assert at.asked == []
    assert not (tmp_path / "secret" / "b").exists()
    inner = [call for call in at.calls.values() if call.get("title", "").startswith("Write file")]
    assert sorted(each["path"] for call in inner for each in call["locations"]) == [
        str(tmp_path / "open" / "b"),
        str(tmp_path / "secret" / "b"),
    ]


def test_what_was_approved_for_other_files_is_asked_about_again(deep, tmp_path):
    (tmp_path / "inner").mkdir()
    at = deep(
        OF_STATE,
        'ask = ["edit(inner/secret/**)"]',
        before=INNER.replace("virtual_mode=True)", 'virtual_mode=True), interrupt_on={"write_file": True}'),
        tools="awaits",
    )

    def approve_what_shows_no_file(question):
        return selected("reject_once" if "locations" in question["params"]["toolCall"] else "allow_once")

    calls = [("awaits", {"wish": wish}) for wish in ("/secret/b", "/open/b")]
    refused, written = at.does(*calls, reply=approve_what_shows_no_file)

    assert json.loads(refused[1])[0] == "error", refused
    assert json.loads(written[1])[0] == "success", written
    assert len(at.asked) == 3
    assert not (tmp_path / "inner" / "secret").exists()


@pytest.mark.parametrize("rules", ['deny = ["edit(secret/**)"]', 'ask = ["edit"]'], ids=["deny", "ask"])
def test_a_review_of_a_sub_agent_s_call_is_the_only_question_about_it(deep, tmp_path, rules):
    at = deep(
        VIRTUAL,
        rules,
        before=f"{WRITER}\nwriter['interrupt_on'] = {{'write_file': True}}",
        subagents="writer",
    )

    ((_, written),) = at.does(("task", {"subagent_type": "writer", "description": "/open/b"}))

    assert json.loads(written)[0] == "success", written
    assert len(at.asked) == 1
    told = at.asked[0]["params"]["toolCall"]
    assert [each["path"] for each in told["locations"]] == [str(tmp_path / "open" / "b")]


def test_the_tools_of_langchain_s_middleware_are_judged_below_their_root(order, tmp_path):
    (tmp_path / "coupler.toml").write_text('[permissions]\nask = ["search(secret/**)"]\n')
    (tmp_path / "secret").mkdir()
    at = order(
        """
from langchain.agents.middleware import FilesystemFileSearchMiddleware
agent = agent_with(FilesystemFileSearchMiddleware(root_path=session.cwd), tools=[])
"""
    )

    at.does(
        ("grep_search", {"pattern": "x", "path": "/secret"}),
        ("glob_search", {"pattern": "*", "path": "open"}),
    )

    assert [question["params"]["toolCall"]["toolCallId"] for question in at.asked] == ["call_1_0"]
    assert (places(at), places(at, "call_1_1")) == ([str(tmp_path / "secret")], [str(tmp_path / "open")])


@table(
    ("middleware", "arguments", "is_refused"),
    [
        ("FilesystemClaudeTextEditorMiddleware(root_path=session.cwd)", {"path": "/secret/b"}, True),
        ("FilesystemClaudeTextEditorMiddleware(root_path=session.cwd)", {"path": "/open/b"}, False),
        ("StateClaudeTextEditorMiddleware()", {"path": "/secret/b"}, False),
    ],
)
def test_the_text_editor_of_anthropic_is_judged_below_its_root(
    order, tmp_path, middleware, arguments, is_refused
):
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["edit(secret/**)"]\n')
    at = order(
        f"""
from langchain_anthropic.middleware import FilesystemClaudeTextEditorMiddleware
from langchain_anthropic.middleware import StateClaudeTextEditorMiddleware
agent = agent_with({middleware}, tools=[])
"""
    )
    create = {"command": "create", "file_text": "x", **arguments}

    ((status, told),) = at.does(("str_replace_based_edit_tool", create))

    assert ("was not run" in told, at.asked) == (is_refused, []), (status, told)
    assert not (tmp_path / "secret" / "b").exists()

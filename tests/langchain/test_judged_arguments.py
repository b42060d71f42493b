"""What of a tool's arguments is judged: all of it, wherever a model has put it."""

from coupler.langchain.tool_arguments import MOST_VALUES, UNJUDGEABLE, JudgedArguments
from tables import table

PATHS = {
    "plain": ({"path": "a"}, {"/w/a"}),
    "with dots": ({"path": "b/../a"}, {"/w/a", "/w/b/../a"}),
    "an address of a file": ({"file": "file:///etc/hosts"}, {"/etc/hosts"}),
    "an address of a page": ({"file": "https://example.com/a"}, set()),
    "the last of many": ({"files": ["a"] * 100 + ["z"]}, {"/w/a", "/w/z"}),
    "in a list of objects": ({"path": "a", "changes": [{"filePath": "z"}]}, {"/w/a", "/w/z"}),
    "a name in a list of files": (
        {"files": [{"name": "z", "content": "text"}]},
        {"/w/z"},
    ),
    "a key": ({"files": {"z": "text"}}, {"/w/z"}),
    "with an odd letter": ({"path": "z\n"}, {"/w/z\n"}),
    "very long": ({"path": "z" * 5000}, {"/w/" + "z" * 5000}),
    "the target of a change": ({"path": "a", "target": "z"}, {"/w/a", "/w/z"}),
    "no path": ({"content": "z"}, set()),
}


@table("args, paths", PATHS.values(), ids=PATHS)
def test_every_path_is_judged(args, paths):
    assert set(JudgedArguments(args, "edit", "/w").paths) == paths


def test_more_than_can_be_looked_at_cannot_be_judged():
    many = JudgedArguments({"filler": ["x"] * MOST_VALUES, "path": "z"}, "edit", "/w")

    assert UNJUDGEABLE in many.paths


COMMANDS = {
    "a line": ({"command": "rm x"}, "rm x"),
    "words": ({"cmd": ["rm", "x"]}, ("rm", "x")),
    "several": ({"commands": ["ls", "rm x"]}, "ls\nrm x"),
    "under two names": ({"command": "ls", "script": "rm x"}, "ls\nrm x"),
    "words beside a line": ({"command": "ls", "cmd": ["rm", "a b"]}, "ls\nrm 'a b'"),
    "in a list of steps": ({"steps": [{"command": "rm x"}]}, "rm x"),
    "none": ({"command": 3}, None),
}


@table("args, command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_is_judged_whatever_the_tool_is_called(args, command):
    assert JudgedArguments(args, "read", "/w").command == command


def test_every_address_is_judged():
    args = {
        "url": "https://a.example",
        "pages": [{"link": "https://b.example"}],
        "urls": ["https://c.example"],
    }

    assert set(JudgedArguments(args, "read", "/w").addresses) == {
        "https://a.example",
        "https://b.example",
        "https://c.example",
    }

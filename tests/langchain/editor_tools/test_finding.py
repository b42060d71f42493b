"""The tools that find files and lines in a served agent, over stdio: on the disk, and in unsaved buffers."""

import time

import pytest

from agent.steps import cancel, end_of, final_call
from labs.langchain.buffers import FILES, Buffers
from labs.langchain.desk import edit, one, read


@pytest.fixture
def project(tmp_path):
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.txt", ".git/config", "node_modules/x.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import os  # {name}\n")
    (tmp_path / "outside").symlink_to("/proc")
    return tmp_path


class TestFindingFiles:
    @pytest.mark.parametrize(
        ("arguments", "found"),
        [
            ({"glob": "**"}, ["a.py", "src/b.py", "src/d.txt", "src/deep/c.py"]),
            ({"glob": "*.py"}, ["a.py", "src/b.py", "src/deep/c.py"]),
            ({"glob": "src/**/*.py"}, ["src/b.py", "src/deep/c.py"]),
            ({"glob": "./src/*.{py,txt}"}, ["src/b.py", "src/d.txt"]),
            ({"directory": "src", "glob": "?.txt"}, ["src/d.txt"]),
            ({"directory": "node_modules", "glob": "*"}, ["node_modules/x.py"]),
        ],
    )
    def test_files_are_found_by_name(self, desk, project, arguments, found):
        assert one(desk().does(["find_files", arguments])) == ("success", "\n".join(found))

    def test_a_glob_may_be_written_from_the_root_on(self, desk, project):
        answer = one(desk().does(["find_files", {"glob": f"{project}/src/*.py"}]))
        assert answer == ("success", "src/b.py")

    def test_the_call_says_what_is_looked_for_and_how_much_was_found(self, desk, project):
        at = desk()
        at.does(["find_files", {"glob": "*.py", "directory": "src"}])
        call = final_call(at.updates)
        assert (call["kind"], call["title"]) == ("search", "Find '*.py' in src")
        assert call["locations"] == [{"path": str(project / "src")}]
        assert call["rawOutput"] == {"files": 2, "is_cut": False}
        assert at.asked == []

    def test_what_gitignore_leaves_out_is_found_only_where_it_is_named(self, desk, project):
        (project / ".gitignore").write_text("/src/deep/\n*.txt\n")
        at = desk()
        assert one(at.does(["find_files", {"glob": "**"}]))[1] == ".gitignore\na.py\nsrc/b.py"
        assert one(at.does(["find_files", {"glob": "**", "directory": "src/deep"}]))[1] == "src/deep/c.py"
        assert one(at.does(["find_files", {"glob": "*.txt"}]))[1].startswith("No file fits.")

    def test_files_that_only_the_editor_has_are_found(self, desk, project):
        (project / ".gitignore").write_text("ignored.py\n")
        buffers = Buffers(project, src__new_py="x", ignored_py="x")
        at = desk(**FILES)
        at.does(read("src/new.py"), read("ignored.py"), replies=buffers)
        answer = one(at.does(["find_files", {"glob": "*.py"}], replies=buffers))
        assert answer == ("success", "a.py\nsrc/b.py\nsrc/deep/c.py\nsrc/new.py")

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"glob": "*", "directory": "scr"}, "did you mean src?"),
            ({"glob": "../*"}, "leads out of the directory"),
            ({"glob": "/etc/*"}, "leads out of the directory"),
            ({"glob": "{a,b,c,d}" * 5}, "more than 200 patterns"),
            ({"glob": "*", "directory": "outside/self"}, "means something else to every program"),
        ],
    )
    def test_what_cannot_be_looked_for_is_an_error(self, desk, project, arguments, problem):
        status, content = one(desk().does(["find_files", arguments]))
        assert status == "error"
        assert problem in content


class TestSearching:
    def test_lines_are_found_with_their_places(self, desk, project):
        at = desk()

        answer = one(at.does(["search", {"pattern": r"src/\w", "glob": "*.py"}]))

        assert answer == (
            "success",
            "src/b.py:1: import os  # src/b.py\nsrc/deep/c.py:1: import os  # src/deep/c.py",
        )
        call = final_call(at.updates)
        assert (call["kind"], call["title"]) == ("search", r"Search 'src/\w' (*.py)")
        assert call["locations"] == [
            {"path": str(project / "src/b.py"), "line": 1},
            {"path": str(project / "src/deep/c.py"), "line": 1},
        ]
        assert call["rawOutput"] == {"matches": 2, "is_cut": False, "left_out": []}
        assert at.asked == []

    def test_lines_around_are_shown_and_case_ignored_if_wanted(self, desk, project):
        (project / "poem.txt").write_text("a\nb\nC\nd\ne\nf\ng\nH\nc\n")
        arguments = {"pattern": "c", "directory": "poem.txt", "ignore_case": True, "context": 1}
        assert one(desk().does(["search", arguments])) == (
            "success",
            "poem.txt-2- b\npoem.txt:3: C\npoem.txt-4- d\n--\npoem.txt-8- H\npoem.txt:9: c",
        )

    def test_what_python_and_ripgrep_do_not_both_know_is_searched_too(self, desk, project):
        arguments = {"pattern": r"(?<=import )os(?=  # a)"}
        assert one(desk().does(["search", arguments]))[1] == "a.py:1: import os  # a.py"

    def test_nothing_is_said_to_fit_if_nothing_does(self, desk, project):
        assert one(desk().does(["search", {"pattern": "nowhere to be found"}])) == (
            "success",
            "Nothing fits.",
        )

    def test_unsaved_text_is_searched_in_place_of_what_is_on_the_disk(self, desk, project):
        buffers = Buffers(project, a_py="one\nimport new_thing\n", src__new_py="import new_thing\n")
        at = desk(**FILES)
        at.does(read("a.py"), read("src/new.py"), replies=buffers)

        found = one(at.does(["search", {"pattern": "import"}], replies=buffers))[1]
        in_file = one(at.does(["search", {"pattern": "import", "directory": "src/new.py"}], replies=buffers))[
            1
        ]

        assert found.split("\n") == [
            "a.py:2: import new_thing",
            "src/b.py:1: import os  # src/b.py",
            "src/d.txt:1: import os  # src/d.txt",
            "src/deep/c.py:1: import os  # src/deep/c.py",
            "src/new.py:1: import new_thing",
        ]
        assert in_file == "src/new.py:1: import new_thing"

    def test_what_the_agent_has_written_into_the_editor_is_found(self, desk, project):
        buffers = Buffers(project)
        at = desk(**FILES)
        at.does(read("a.py"), replies=buffers)
        at.does(edit("a.py", ("import os", "import sys")), replies=buffers)
        found = one(at.does(["search", {"pattern": "sys"}], replies=buffers))[1]
        assert found == "a.py:1: import sys  # a.py"

    def test_an_editor_that_cannot_tell_costs_only_what_is_not_saved(self, desk, project):
        buffers = Buffers(project)
        at = desk(**FILES)
        at.does(read("a.py"), replies=buffers)
        broken = {"fs/read_text_file": {"error": {"code": -32603, "message": "out of order"}}}
        found = one(at.does(["search", {"pattern": "# a.py"}], replies=broken))
        assert found == ("success", "a.py:1: import os  # a.py")

    def test_a_search_that_finds_too_much_says_so(self, desk, project):
        (project / "many.txt").write_text("hit\n" * 1000)
        at = desk()
        _, content = one(at.does(["search", {"pattern": "^hit$"}]))
        lines = content.split("\n")
        assert lines[-1] == "… (there is more: use a narrower pattern, glob or directory)"
        assert lines[-2] == "many.txt:300: hit"
        assert final_call(at.updates)["rawOutput"]["is_cut"]

    def test_files_that_may_not_be_read_are_left_out_and_said_to_be(self, desk, project):
        (project / ".env").write_text("TOKEN=import os\n")
        at = desk()
        _, content = one(at.does(["search", {"pattern": "import os"}]))
        assert "TOKEN" not in content
        assert "(1 file was left out: reading has to be permitted; use read_file)" in content
        assert final_call(at.updates)["rawOutput"]["left_out"] == [".env"]

    @pytest.mark.parametrize(
        ("rule", "status", "asked"),
        [
            ('ask = ["search"]', "success", 1),
            ('deny = ["search(src/**)"]', "error", 0),
            ('deny = ["read(src/**)"]', "error", 0),
        ],
    )
    def test_rules_about_searching_hold(self, desk, project, rule, status, asked):
        (project / "coupler.toml").write_text(f"[permissions]\n{rule}\n")
        at = desk()
        assert one(at.does(["search", {"pattern": "x", "directory": "src"}]))[0] == status
        assert len(at.asked) == asked

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"pattern": "("}, "no regular expression"),
            ({"pattern": ""}, "the pattern is empty"),
            ({"pattern": "x", "context": -1}, "a number of lines from 0 on"),
            ({"pattern": "x", "directory": "nowhere"}, "nowhere"),
            ({"pattern": "x", "directory": "outside/self"}, "means something else to every program"),
        ],
    )
    def test_what_cannot_be_searched_is_an_error(self, desk, project, arguments, problem):
        status, content = one(desk().does(["search", arguments]))
        assert status == "error"
        assert problem in content

    def test_a_pattern_that_never_ends_can_be_cancelled(self, desk, project):
        (project / "evil.txt").write_text("a" * 60 + "b")
        at = desk()
        request = at.begin(["search", {"pattern": "(?=a)(a+)+$", "glob": "evil.txt"}])
        at.client.read_until(
            lambda frame: frame.get("params", {}).get("update", {}).get("status") == "in_progress"
        )
        at.client.send(cancel(at.session))
        begun = time.monotonic()

        _, answer = end_of(at.client, request)

        assert answer["result"] == {"stopReason": "cancelled"}
        assert time.monotonic() - begun < 5

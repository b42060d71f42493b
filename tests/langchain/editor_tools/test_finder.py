"""The program that looks for files and lines, in this process, and ripgrep beside it: both find the same."""

import asyncio
import io
import json
import os
import re
import shutil
import sys

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from coupler.langchain.editor_tools import search_program, searching
from coupler.langchain.editor_tools.searching import SearchHit, SearchRequest, SearchResult
from tables import table

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")


@pytest.fixture
def find(tmp_path, monkeypatch):
    def find(glob="**", pattern=None, most=10, directory=tmp_path, **more):
        quest = SearchRequest(str(directory), glob, pattern, most, **more)
        answer = io.StringIO()
        task = {**quest._asdict(), "texts": dict(quest.texts)}
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(task)))
        monkeypatch.setattr(sys, "stdout", answer)
        search_program.main()
        found, total = json.loads(answer.getvalue())
        return [(path.removeprefix(f"{tmp_path}/"), line, text) for path, line, text, _ in found], total

    return find


def make(directory, files):
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(
    ("glob", "fits", "fits_not"),
    [
        ("*.py", ["a.py", "deep/b.py"], ["a.pyc"]),
        ("deep/*.py", ["deep/b.py"], ["a.py", "deep/er/b.py"]),
        ("**/*.py", ["a.py", "deep/er/b.py"], []),
        ("deep/**", ["deep/er/b.py"], ["a.py"]),
        ("deep/**/b.py", ["deep/b.py", "deep/er/still/b.py"], ["a.py", "deep/xb.py"]),
        ("?.py", ["a.py"], ["ab.py"]),
        ("a+b.txt", ["a+b.txt"], ["aab.txt"]),
        ("*.{py,js}", ["a.py", "deep/b.js"], ["a.ts"]),
        ("{a,{b,c}}.py", ["a.py", "b.py", "c.py"], ["d.py"]),
        ("[a-c].py", ["a.py", "c.py"], ["d.py"]),
        ("[!a].py", ["b.py"], ["a.py"]),
        ("[z-a].py", [], ["b.py"]),
        ("a[.py", ["a[.py"], ["a.py"]),
        (".git*/*", [".github/x"], [".other/x"]),
    ],
)
def test_names_fit_a_pattern(find, tmp_path, glob, fits, fits_not):
    make(tmp_path, dict.fromkeys((*fits, *fits_not), ""))
    assert sorted(path for path, _, _ in find(glob)[0]) == sorted(fits)


def test_lines_have_their_numbers_and_are_cut_around_what_fits(find, tmp_path):
    make(tmp_path, {"a.txt": f"no\n{'x' * 500}yes{'x' * 500}\n"})
    ((path, line, text),), total = find(pattern="yes")
    assert (path, line, total) == ("a.txt", 2, 1)
    assert text == f"…{'x' * 100}yes{'x' * 197}…"


def test_what_is_too_much_is_cut_and_said(find, tmp_path):
    make(tmp_path, {"a.txt": "x\n" * 5})
    found, total = find(pattern="x", most=3)
    assert (len(found), total > 3) == (3, True)


def test_of_too_many_files_the_newest_are_named_in_the_order_of_their_paths(find, tmp_path):
    make(tmp_path, dict.fromkeys("abcdef", ""))
    for age, name in enumerate("cafedb"):
        os.utime(tmp_path / name, (10_000 - age, 10_000 - age))
    found, total = find(most=3)
    assert ([path for path, _, _ in found], total) == (["a", "c", "f"], 6)


def test_one_file_can_be_searched_alone_however_large_it_is(find, tmp_path, monkeypatch):
    monkeypatch.setattr(search_program, "LARGEST_FILE", 10)
    make(tmp_path, {"a.txt": "no\n" * 10 + "x", "b.txt": "x"})
    assert find(pattern="x", directory=tmp_path / "a.txt", glob="*.py")[0] == [("a.txt", 11, "x")]


def test_bytes_large_files_links_and_others_work_are_passed_over(find, tmp_path, monkeypatch):
    monkeypatch.setattr(search_program, "LARGEST_FILE", 100)
    make(tmp_path, {"bytes": b"x\0", "large": "x" * 101, "real.txt": "x", "node_modules/a.js": "x"})
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    assert find(pattern="x")[0] == [("real.txt", 1, "x")]


def test_names_that_cannot_be_shown_are_passed_over(find, tmp_path):
    make(tmp_path, {"a\nb.txt": "x", "b.txt": "x"})
    (tmp_path / os.fsdecode(b"\xff.txt")).write_text("x")
    assert find()[0] == [("b.txt", 0, "")]


def test_a_file_that_goes_away_meanwhile_is_no_error(find, tmp_path, monkeypatch):
    make(tmp_path, {"a.txt": "x"})
    monkeypatch.setattr(search_program, "files_below", lambda directory: iter([f"{directory}/gone.txt"]))
    assert find(pattern="x") == ([], 0)


IGNORING = {
    ".gitignore": "# comment\n*.log\n!keep.log\n/top.txt\nbuild/\ndocs/*.md\n\\#odd\n"
    "space\\ \ntrailing   \n**/gen/*.c\n",
    "a.log": "", "keep.log": "", "top.txt": "", "sub/top.txt": "", "build/x": "", "sub/build/x": "",
    "sub/not/build": "", "docs/a.md": "", "docs/deep/a.md": "", "#odd": "", "space ": "", "trailing": "",
    "x/gen/a.c": "", "gen/b.c": "", "x/gen/a.h": "",
    "sub/.gitignore": "!*.log\nkeep.log\n", "sub/a.log": "", "sub/keep.log": "",
    "inner/.git/HEAD": "", "inner/a.log": "",
}  # fmt: skip
SEEN = [
    *(".gitignore", "docs/deep/a.md", "inner/a.log", "keep.log", "sub/.gitignore", "sub/a.log"),
    *("sub/not/build", "sub/top.txt", "x/gen/a.h"),
]


def test_what_gitignore_files_leave_out_is_not_found(find, tmp_path):
    make(tmp_path, IGNORING)
    assert [path for path, _, _ in find(most=100)[0]] == SEEN


def test_rules_of_directories_above_hold_up_to_the_root_of_the_repository(find, tmp_path):
    make(tmp_path, {".gitignore": "*.py\n", "repo/.git/HEAD": "", "repo/.gitignore": "*.log\n"})
    make(tmp_path, {"repo/sub/a.py": "", "repo/sub/a.log": "", "repo/sub/a.txt": ""})
    found = find(directory=tmp_path / "repo" / "sub")[0]
    assert [path for path, _, _ in found] == ["repo/sub/a.py", "repo/sub/a.txt"]


def test_texts_of_the_editor_stand_for_files_and_are_ignored_like_them(find, tmp_path):
    make(tmp_path, {".gitignore": "*.log\n", "a.txt": "old\n", "c.txt": "x\n"})
    texts = {f"{tmp_path}/{name}": "new x\n" for name in ("a.txt", "b/b.txt", "a.log", "node_modules/b")}
    assert find(pattern="x", texts=texts)[0] == [
        ("a.txt", 1, "new x"),
        ("b/b.txt", 1, "new x"),
        ("c.txt", 1, "x"),
    ]
    assert find(pattern="x", texts=texts, walks=False)[0] == [("a.txt", 1, "new x"), ("b/b.txt", 1, "new x")]


def test_it_runs_without_our_environment_and_is_told_what_it_cannot_do(tmp_path, monkeypatch):
    make(tmp_path, {"a.txt": "x ü\n"})
    monkeypatch.setenv("PYTHONSTARTUP", "nonsense")
    found = asyncio.run(searching.run_search_program(SearchRequest(str(tmp_path), "*", "ü", 5)))
    assert found == SearchResult([SearchHit(f"{tmp_path}/a.txt", 1, "x ü", True)], 1)


@pytest.fixture
def swapped(tmp_path):
    """A project, and what puts a link to elsewhere in the place of its second directory."""
    project = tmp_path / "project"
    make(project, {"a/x": "mine\n", "b/x": "mine\n", "b/c/x": "mine\n"})
    make(tmp_path / "elsewhere", {"x": "secret\n", "y": "secret\n", "c/x": "secret\n"})

    def swap():
        (project / "b").rename(tmp_path / "away")
        (project / "b").symlink_to(tmp_path / "elsewhere")

    return project, swap


@pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="paths are opened in one step")
class TestALinkThatComesMeanwhile:
    def test_no_name_behind_it_is_found(self, swapped):
        project, swap = swapped
        found = search_program.files_below(str(project))
        assert next(found) == f"{project}/a/x"
        swap()
        assert [*found] == []

    def test_no_line_behind_it_is_read(self, swapped):
        project, swap = swapped
        swap()
        for path in ("b/x", "b/c/x"):
            assert search_program.lines_in(str(project / path)) == []
            with pytest.raises(OSError):
                [*search_program.lines_of_any(str(project / path))]

    def test_no_line_that_ripgrep_found_behind_it_is_told(self, swapped, tmp_path):
        project, swap = swapped
        swap()
        hit = {"lines": {"text": "secret\n"}, "line_number": 1, "submatches": [{"start": 0}]}
        messages = [
            message
            for path in ("a/x", "b/x")
            for message in (
                {"type": "begin", "data": {}},
                {"type": "match", "data": {"path": {"text": f"{project}/{path}"}, **hit}},
                {"type": "end", "data": {"binary_offset": None}},
            )
        ]
        output = "\n".join(map(json.dumps, [*messages, {"type": "summary", "data": {}}]))
        program = tmp_path / "rg"
        program.write_text(f"#!/bin/sh\ncat <<'E'\n{output.replace('secret', 'mine', 1)}\nE\n")
        program.chmod(0o755)
        quest = SearchRequest(str(project), "**", "e", 10)

        found = asyncio.run(searching.run_ripgrep(str(program), quest))

        assert found == SearchResult([SearchHit(f"{project}/a/x", 1, "mine")], 1)


def both(quest):
    """What the program and ripgrep find."""

    async def story():
        assert searching.can_search(quest)
        return await searching.run_search_program(quest), await searching.run_ripgrep(
            searching.find_ripgrep(()), quest
        )

    return asyncio.run(story())


TREE = {
    **{name: content or "alpha\n" for name, content in IGNORING.items() if name != "sub/.gitignore"},
    "sub/.gitignore": IGNORING["sub/.gitignore"],
    "a.py": "Alpha beta\nbeta\n\ngamma (alpha)\n", "a/b.py": "alpha\r\nbeta\r\n", "a.d/x.py": "no end: alpha",
    "b/binary": b"alpha\n" * 10_000 + b"\0", "b/wide.txt": "alpha\n".encode("utf-16"),
    "b/marked.txt": b"\xef\xbb\xbfalpha\n", "b/latin.txt": b"alpha \xe9\n",
    "b/form.txt": "a\x0calpha\u2028b\nbeta\n",
    "b/long.txt": "x" * 900 + "älpha alpha" + "x" * 900, "b/large.txt": "alpha\n" * 400_000,
    ".hidden/x.py": "alpha\n", "node_modules/x.py": "alpha\n",
    "ünïcode/ä.py": "alpha ß\n", "-dash": "alpha --x\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tree")
    make(directory, {**TREE, ".git/HEAD": "alpha"})
    (directory / "link.py").symlink_to("a.py")
    (directory / "linked").symlink_to(directory / "a")
    return directory


@needs_ripgrep
class TestRipgrep:
    @pytest.mark.parametrize(
        ("pattern", "more"),
        [
            ("alpha", {}),
            ("alpha", {"ignore_case": True}),
            ("alpha", {"context": 2}),
            ("alpha", {"most": 4}),
            ("alpha", {"most": 4, "context": 1}),
            ("alpha", {"glob": "*.py"}),
            ("alpha", {"glob": "a/**/*.{py,txt}"}),
            ("alpha", {"glob": "b/*"}),
            ("alpha", {"glob": "*.log"}),
            ("alpha", {"glob": "[ab].py"}),
            ("^beta$", {}),
            ("^$", {}),
            (r"\(alpha\)|ß", {}),
            (r"[a-g]+\s\bbeta", {"ignore_case": True}),
            ("ä.+?ha", {}),
            ("--x", {}),
            ("l{1,2}pha$", {}),
            ("nothing", {}),
        ],
    )
    def test_it_finds_what_the_program_finds(self, tree, pattern, more):
        quest = SearchRequest(str(tree), **{"glob": "**", "pattern": pattern, "most": 100, **more})
        ours, theirs = both(quest)
        assert theirs.hits == ours.hits
        assert theirs.is_cut == ours.is_cut
        assert (pattern == "nothing") == (ours.hits == [])

    @pytest.mark.parametrize("directory", ["a.py", "b/large.txt", "build", "sub", "b/binary"])
    def test_it_finds_the_same_in_what_was_named(self, tree, directory):
        ours, theirs = both(SearchRequest(str(tree / directory), "**", "alpha", 100))
        assert (theirs.hits, theirs.is_cut) == (ours.hits, ours.is_cut)

    def test_its_configuration_and_ignore_files_are_not_believed(self, tmp_path, monkeypatch):
        make(tmp_path, {"a.txt": "x\n", ".ignore": "a.txt\n", "rc": "--invert-match\n"})
        monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
        ours, theirs = both(SearchRequest(str(tmp_path), "*.txt", "x", 5))
        assert theirs.hits == ours.hits == [SearchHit(f"{tmp_path}/a.txt", 1, "x")]

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        ignored=st.lists(
            st.from_regex(r"!?/?(\*\*/)?[ab*?]{1,2}(/[ab*]{1,2}){0,2}/?", fullmatch=True), max_size=4
        ),
        nested=st.lists(st.from_regex(r"!?/?[ab*]{1,2}(/[ab])?/?", fullmatch=True), max_size=2),
    )
    def test_both_read_gitignore_files_alike(self, tmp_path_factory, ignored, nested):
        directory = tmp_path_factory.mktemp("ignoring")
        names = ["a", "b", "ab/a", "ab/b/a", "ba/a/b", "ba/ab/ba", "aa/b", "bb/bb"]
        make(directory, dict.fromkeys(names, "x\n"))
        make(directory, {".gitignore": "\n".join(ignored), "ab/.gitignore": "\n".join(nested)})
        ours, theirs = both(SearchRequest(str(directory), "**", "x", 100))
        assert theirs.hits == ours.hits

    def test_one_that_a_repository_brings_along_is_not_run(self, tmp_path, monkeypatch):
        (tmp_path / "rg").write_text("#!/bin/sh\n")
        (tmp_path / "rg").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert searching.find_ripgrep((str(tmp_path),)) is None
        assert searching.find_ripgrep(()) == os.path.realpath(tmp_path / "rg")


@table(
    "pattern",
    [
        *(r"(?=a)", r"(?P<x>a)", r"a(?i)", r"\1", r"\Z", r"[[:alpha:]]", r"[a&&b]", r"[a--b]", r"a{", r"\<a"),
        *(r"\x41", r"\u0041", r"\n", r"a++", r"[\]", r"(?x) a", r"a{1000}"),
    ],
)
def test_patterns_that_may_mean_something_else_are_left_to_the_program(pattern):
    assert not searching.can_search(SearchRequest("/", "**", pattern, 1))


@given(st.text("ab[]^-*?!{},/\\.~&|", max_size=12))
def test_no_glob_is_an_error_but_one_that_stands_for_too_much(pattern):
    try:
        made = search_program.compiled(pattern)
    except ValueError as error:
        assert "200 patterns" in str(error)
    else:
        assert isinstance(made, re.Pattern)


NAMES = st.text("aab*?", min_size=1, max_size=6).filter(lambda name: "**" not in name)


@given(st.lists(st.just("**") | NAMES, max_size=5), NAMES, st.text("aab/", max_size=12))
@example(["*a*b", "**", "a", "**"], "*a*b", "aabb/b/a/a/aab")
def test_a_glob_matches_what_its_wildcards_stand_for_by_themselves(directories, name, path):
    meanings = {"*": "[^/]*", "?": "[^/]"}
    plain = [
        "(?:.*/)?"
        if each == "**"
        else "".join(meanings.get(character, character) for character in each) + "/"
        for each in [*directories, name]
    ]

    glob = search_program.compiled("/".join([*directories, name]))
    assert bool(glob.fullmatch(path)) == bool(re.fullmatch("".join(plain), f"{path}/"))


@pytest.mark.parametrize("glob", ["*a" * 50 + "b", "**/a" * 50 + "/**/b", "{*a,a*}" * 7 + "*a" * 30 + "b"])
def test_a_glob_with_very_many_wildcards_is_matched_at_once(glob):
    """Tried in every way, each of them would take longer than anybody waits."""
    expression = search_program.compiled(glob)

    for path in ("a" * 250, "a/" * 250 + "a"):
        assert expression.fullmatch(path) is None
    assert expression.fullmatch("a/" * 250 + "b" if "/" in glob else "a" * 250 + "b")


@needs_ripgrep
def test_such_a_glob_does_not_stop_the_reading_of_what_ripgrep_finds(tmp_path):
    make(tmp_path, {"a" * 250: "x\n", "a" * 249 + "b": "x\n"})

    ours, theirs = both(SearchRequest(str(tmp_path), "*a" * 50 + "b", "x", 5))

    assert [hit.path for hit in theirs.hits] == [str(tmp_path / ("a" * 249 + "b"))]
    assert theirs.hits == ours.hits

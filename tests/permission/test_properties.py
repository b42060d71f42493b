"""What holds for all rules, commands and paths."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coupler.permission import shell
from permission.parts import Bench

SEVERITY = {"allow": 0, "ask": 1, "deny": 2}

WORDS = st.sampled_from(
    [
        "ls",
        "git",
        "rm",
        "push",
        "--force",
        "-v",
        "x",
        "'a b'",
        '"$X"',
        "$X",
        "*",
        "src/x",
        "sudo",
        "env",
        "sh",
    ]
)
SIMPLE = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
REDIRECTED = st.tuples(SIMPLE, st.sampled_from(["", " > src/x", " < x", " > /etc/x", " 2>&1"])).map("".join)


def compound(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.tuples(parts, st.sampled_from([" && ", " || ", "; ", " | ", "\n"]), parts).map("".join)
    framed = st.tuples(
        st.sampled_from(
            ["({})", "{{ {}; }}", "! {}", "echo $({})", "if {}; then ls; fi", "for f in a; do {}; done"]
        ),
        parts,
    ).map(lambda pair: pair[0].format(pair[1]))
    return joined | framed


COMMANDS = st.recursive(REDIRECTED, compound, max_leaves=4)
COMMAND_RULES = st.sampled_from(
    [
        *(
            "*",
            "execute",
            "execute(ls *)",
            "execute(git *)",
            "execute(git push *)",
            "execute(git push --force *)",
        ),
        *(
            "execute(rm *)",
            "execute(sudo *)",
            "execute(env *)",
            "execute(sh *)",
            "execute(echo *)",
            "edit(src/**)",
        ),
        *("edit", "edit(/etc/*)", "read", "read(x)", "execute(ls x)"),
    ]
)
NAMES = st.sampled_from(["src", "docs", "a", "b", "..", ".", "link", "Src", ".env", "x.py", "x.py ", "ü"])
PATHS = st.lists(NAMES, min_size=1, max_size=6).map("/".join)
PATH_RULES = st.sampled_from(
    [
        "edit",
        "edit(**)",
        "edit(src/**)",
        "edit(*)",
        "edit(**/*.py)",
        "edit(/**)",
        "*",
        "edit(a/*/b)",
        "edit(.env)",
    ]
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    project = tmp_path_factory.mktemp("properties").resolve() / "app"
    (project / "src").mkdir(parents=True)
    return Bench(project)


@given(COMMANDS, st.lists(COMMAND_RULES, max_size=4), st.lists(COMMAND_RULES, max_size=2), COMMAND_RULES)
def test_one_more_denial_never_makes_a_command_more_allowed(bench, command, allow, deny, further):
    before = bench.run(command, *allow, deny=deny).decision
    after = bench.run(command, *allow, deny=[*deny, further]).decision
    assert SEVERITY[after] >= SEVERITY[before]


@given(PATHS, st.lists(PATH_RULES, max_size=3), st.lists(PATH_RULES, max_size=2), PATH_RULES)
def test_one_more_denial_never_makes_a_path_more_allowed(bench, path, allow, deny, further):
    before = bench.touch("edit", path, *allow, deny=deny).decision
    after = bench.touch("edit", path, *allow, deny=[*deny, further]).decision
    assert SEVERITY[after] >= SEVERITY[before]


@given(
    COMMANDS, COMMANDS, st.sampled_from([" && ", " || ", "; ", " | ", "\n", " & "]), st.lists(COMMAND_RULES)
)
def test_a_further_part_never_makes_a_command_more_allowed(bench, first, second, joint, allow):
    whole = bench.run(f"{first}{joint}{second}", *allow, deny=["execute(rm *)"]).decision
    for part in (first, second):
        assert SEVERITY[whole] >= SEVERITY[bench.run(part, *allow, deny=["execute(rm *)"]).decision]


@given(
    COMMANDS,
    st.sampled_from(["echo $({})", 'echo "$({})"', "cat <({})", "({})", "ls; {}", "cat <<EOF\n$({})\nEOF"]),
)
def test_a_command_within_another_counts_as_much_as_alone(bench, command, frame):
    allow = ["execute(ls *)", "execute(echo *)", "execute(cat *)", "execute(git *)", "edit(src/**)"]
    inner = bench.run(command, *allow).decision
    assert SEVERITY[bench.run(frame.format(command), *allow).decision] >= SEVERITY[inner]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), PATHS), max_size=5),
    PATHS,
    st.lists(PATH_RULES.filter(lambda rule: "/**" not in rule or "src" in rule), min_size=1, max_size=3),
)
def test_a_link_never_leads_out_of_the_roots(links, path, rules):
    with tempfile.TemporaryDirectory() as name:
        project = Path(name).resolve() / "app"
        for directory in ("a", "b", "src"):
            (project / directory).mkdir(parents=True)
        for directory, link, target in links:
            place = project / directory / link
            if place.parent.is_dir() and not os.path.lexists(place):
                place.symlink_to(target)
        bench = Bench(project)
        for kind in ("edit", "read"):
            if bench.touch(kind, path, *rules).decision == "allow":
                for way in (f"{project}/{path}", os.path.normpath(f"{project}/{path}")):
                    real = os.path.realpath(way)
                    assert real == str(project) or real.startswith(f"{project}/")


@given(st.text(max_size=60))
@example("reboot")
@example("/etc/inittab")
def test_any_text_is_judged(bench, text):
    """Some texts are below the floor; these are denied for good, and nothing else is."""
    for verdict in (
        bench.run(text),
        bench.fetch(text),
        bench.touch("edit", text),
        bench.judge(bench.action(text, name=text, server=text)),
    ):
        assert verdict.decision == ("deny" if verdict.is_final else "ask")


@given(COMMANDS, st.lists(COMMAND_RULES, max_size=4))
def test_what_is_allowed_without_the_parser_is_allowed_with_it(bench, command, allow):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shell, "_language", lambda: None)
        without = bench.run(command, *allow).decision
    if without == "allow":
        assert bench.run(command, *allow).decision == "allow"

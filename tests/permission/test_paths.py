"""Paths against rules: what counts is where they lead."""

import unicodedata
from pathlib import Path

import pytest

from permission.parts import Bench
from tables import table


@table(
    ("kind", "path", "rule", "decision"),
    [
        ("edit", "src/main.py", "edit(src/**)", "allow"),
        ("edit", "src/deep/x.py", "edit(src/**)", "allow"),
        ("edit", "src/new/not/there.py", "edit(src/**)", "allow"),
        ("edit", "src", "edit(src/**)", "allow"),
        ("edit", "src/main.py", "edit(src/)", "allow"),
        ("edit", "src/main.py", "edit(./src/*)", "allow"),
        ("edit", "src/deep/x.py", "edit(src/*)", "ask"),
        ("edit", "src/main.py", "edit(src)", "ask"),
        ("edit", "srcs/main.py", "edit(src/**)", "ask"),
        ("edit", "src2/main.py", "edit(src*)", "ask"),
        ("edit", "main.py", "edit(src/**)", "ask"),
        ("edit", "Src/main.py", "edit(src/**)", "ask"),
        ("edit", "SRC/main.py", "edit(src/**)", "ask"),
        ("edit", "src/../main.py", "edit(src/**)", "ask"),
        ("edit", "src/../src/main.py", "edit(src/**)", "allow"),
        ("edit", "src/./main.py", "edit(src/**)", "allow"),
        ("edit", "src//main.py", "edit(src/**)", "allow"),
        ("edit", "src/../../app2/src/x", "edit(src/**)", "ask"),
        ("edit", "docs/../../../etc/hosts", "edit(**)", "ask"),
        ("edit", "a/b/c.py", "edit(**/*.py)", "allow"),
        ("edit", "c.py", "edit(**/*.py)", "allow"),
        ("edit", "c.pyc", "edit(**/*.py)", "ask"),
        ("edit", "a/x/b/y.txt", "edit(a/**/b/*.txt)", "allow"),
        ("edit", "a/b/y.txt", "edit(a/**/b/*.txt)", "allow"),
        ("edit", "a/y.txt", "edit(a/**/b/*.txt)", "ask"),
        ("edit", "a1.txt", "edit(a?.txt)", "allow"),
        ("edit", "a12.txt", "edit(a?.txt)", "ask"),
        ("edit", "b.txt", "edit([ab].txt)", "allow"),
        ("edit", "x.py", "edit", "allow"),
        ("edit", "x.py", "*", "allow"),
        ("edit", "x.py", "read", "ask"),
        ("delete", "x.py", "edit", "ask"),
        ("move", "x.py", "edit(**)", "ask"),
        ("edit", "/etc/hosts", "edit", "ask"),
        ("edit", "/etc/hosts", "edit(**)", "ask"),
        ("edit", "/etc/hosts", "*", "ask"),
        ("edit", "/etc/hosts", "edit(/etc/hosts)", "allow"),
        ("edit", "/etc/hosts.allow", "edit(/etc/hosts)", "ask"),
        ("edit", "/etc/hosts", "edit(/etc/*)", "allow"),
        ("edit", "/etc/../etc/hosts", "edit(/etc/hosts)", "allow"),
        ("edit", "//etc/hosts", "edit(/etc/hosts)", "allow"),
        ("read", "/etc/hosts", "read(**)", "ask"),
        ("read", "/etc/hosts", "read", "ask"),
        ("edit", "src/a\0b", "edit(**)", "ask"),
        ("edit", "src/a\nb", "edit(**)", "ask"),
        ("edit", "src/\u202egnp.exe", "edit(**)", "ask"),
        ("edit", "src/a\ud800", "edit(**)", "ask"),
        ("edit", "src/a ", "edit(src/a)", "ask"),
        ("edit", "src/.git/config", "edit(src/**)", "ask"),
        ("edit", ".git/hooks/pre-commit", "edit(**)", "ask"),
        ("edit", ".GIT/hooks/pre-commit", "edit", "ask"),
        ("edit", ".git/hooks/pre-commit", "edit(.git/hooks/*)", "allow"),
        ("edit", "coupler.toml", "edit(*)", "ask"),
        ("edit", ".env", "edit(**)", "ask"),
        ("edit", ".env", "edit(.env)", "allow"),
        ("read", ".env", "read(**)", "ask"),
        ("read", ".env", "read(.*)", "ask"),
        ("read", ".env", "*", "ask"),
        ("read", ".env.local", "read(.env*)", "allow"),
        ("read", "keys/server.pem", "read(keys/**)", "ask"),
        ("read", "keys/server.pem", "read(**/*.pem)", "allow"),
        ("search", "src", "search(src/**)", "allow"),
        ("search", ".", "search(src/**)", "ask"),
    ],
)
def test_a_rule_covers_the_paths_it_says_and_no_others(
    bench: Bench, kind: str, path: str, rule: str, decision: str
) -> None:
    verdict = bench.touch(kind, path, rule)
    assert verdict.decision == decision, verdict.reason


@table(
    ("kind", "path", "decision"),
    [
        ("read", "src/main.py", "allow"),
        ("read", "not/there", "allow"),
        ("read", "../app2/x", "ask"),
        ("read", "../application", "ask"),
        ("read", "..", "ask"),
        ("read", "/etc/hosts", "ask"),
        ("read", ".env", "ask"),
        ("read", ".ENV", "ask"),
        ("read", ".env.production", "ask"),
        ("read", ".env.example", "allow"),
        ("read", "deploy/id_rsa", "ask"),
        ("read", "deploy/id_ed25519", "ask"),
        ("read", "server.PEM", "ask"),
        ("read", "server.key", "ask"),
        ("read", ".ssh/config", "ask"),
        ("read", ".npmrc", "ask"),
        ("read", ".env ", "ask"),
        ("read", ".e\u200bnv", "ask"),
        ("read", "\uff0eenv", "ask"),
        ("edit", "src/main.py", "ask"),
        ("delete", "src/main.py", "ask"),
        ("move", "src/main.py", "ask"),
        ("search", "src", "ask"),
        ("execute", "src/main.py", "ask"),
        ("other", "src/main.py", "ask"),
        ("unheard of", "src/main.py", "ask"),
    ],
)
def test_without_rules_only_reading_inside_the_roots_is_allowed(
    bench: Bench, kind: str, path: str, decision: str
) -> None:
    assert bench.touch(kind, path).decision == decision


@table(
    ("kind", "path", "rule", "decision"),
    [
        ("edit", "src/main.py", "edit(src/**)", "deny"),
        ("edit", "docs/../src/main.py", "edit(src/**)", "deny"),
        ("edit", "SRC/Main.py", "edit(src/**)", "deny"),
        ("edit", "src/main.py ", "edit(src/main.py)", "deny"),
        ("edit", "src/main.py.", "edit(src/main.py)", "deny"),
        ("edit", "s\u200brc/main.py", "edit(src/**)", "ask"),
        ("edit", unicodedata.normalize("NFD", "größe/x"), "edit(größe/**)", "deny"),
        ("edit", "größe/x", f"edit({unicodedata.normalize('NFD', 'größe')}/**)", "deny"),
        ("edit", "GRÖSSE/x", "edit(größe/**)", "deny"),
        ("delete", "src/main.py", "edit(src/**)", "deny"),
        ("move", "src/main.py", "edit(src/**)", "deny"),
        ("move", "src/main.py", "read(src/**)", "deny"),
        ("search", "src", "read(src/**)", "deny"),
        ("search", ".", "read(src/**)", "ask"),
        ("delete", ".", "edit(src/deep/**)", "ask"),
        ("delete", "src", "edit(**/*.py)", "ask"),
        ("delete", "docs", "edit(src/**)", "allow"),
        ("read", "src/main.py", "edit(src/**)", "allow"),
        ("edit", "docs/x", "edit(src/**)", "allow"),
        ("edit", "src2/x", "edit(src/**)", "allow"),
        ("read", "/etc/shadow", "read(/etc/**)", "deny"),
        ("read", "docs/../../../../../../../etc/shadow", "read(/etc/**)", "deny"),
        ("read", "/ETC/shadow", "read(/etc/**)", "deny"),
        ("edit", "src/main.py", "edit", "deny"),
        ("edit", "src/main.py", "*", "deny"),
    ],
)
def test_what_is_denied_is_denied_by_any_name(
    bench: Bench, kind: str, path: str, rule: str, decision: str
) -> None:
    allow = [
        f"{each}({way})" for each in ("read", "edit", "delete", "move", "search") for way in ("**", "/**")
    ]
    verdict = bench.touch(kind, path, *allow, deny=[rule])
    assert verdict.decision == decision, verdict.reason


class TestLinks:
    def test_a_link_out_of_the_roots_leads_out(self, bench: Bench, tmp_path: Path) -> None:
        (tmp_path / "secret").mkdir()
        (bench.project / "src" / "link").symlink_to(tmp_path / "secret")
        for path in ("src/link", "src/link/x", "src/link/new/x", "src/link/../x"):
            assert bench.touch("edit", path, "edit(src/**)", "edit").decision == "ask"
            assert bench.touch("read", path).decision == "ask"

    def test_dots_after_a_link_are_judged_both_ways(self, bench: Bench, tmp_path: Path) -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (bench.project / "src" / "link").symlink_to(tmp_path / "a" / "b")
        # An editor writes src/x, the system writes a/x.
        assert bench.touch("edit", "src/link/../x", "edit(src/**)").decision == "ask"
        denied = bench.touch("edit", "src/link/../x", "edit(/**)", deny=[f"edit({tmp_path}/a/*)"])
        assert denied.decision == "deny"

    def test_a_link_inside_the_roots_counts_as_what_it_leads_to(self, bench: Bench) -> None:
        (bench.project / "src" / "link").symlink_to(bench.project / "docs")
        assert bench.touch("edit", "src/link/x", "edit(src/**)").decision == "ask"
        assert bench.touch("edit", "src/link/x", "edit(docs/**)").decision == "allow"

    def test_a_link_does_not_lead_around_a_denial(self, bench: Bench) -> None:
        (bench.project / "docs" / "link").symlink_to(bench.project / "src")
        assert bench.touch("edit", "docs/link/x", "edit(**)", deny=["edit(src/**)"]).decision == "deny"
        assert bench.touch("edit", "docs/link/x", "edit(**)", deny=["edit(docs/link/**)"]).decision == "deny"
        assert bench.touch("edit", "src/x", "edit(**)", deny=["edit(docs/link/**)"]).decision == "deny"

    def test_a_link_that_an_agent_made_does_not_widen_a_rule(self, bench: Bench, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        (bench.project / "out").symlink_to(tmp_path / "etc")
        for rule in ("edit(out/**)", f"edit({bench.project}/out/**)"):
            assert bench.touch("edit", "out/passwd", rule).decision == "ask"

    def test_a_link_to_a_secret_is_a_secret(self, bench: Bench) -> None:
        (bench.project / ".env").write_text("KEY=1")
        (bench.project / "notes.txt").symlink_to(bench.project / ".env")
        assert bench.touch("read", "notes.txt").decision == "ask"

    def test_a_link_named_like_a_secret_is_one_too(self, bench: Bench) -> None:
        (bench.project / ".env").symlink_to(bench.project / "docs" / "public")
        assert bench.touch("read", ".env").decision == "ask"

    def test_links_in_a_circle_cannot_be_judged(self, bench: Bench) -> None:
        (bench.project / "a").symlink_to("b")
        (bench.project / "b").symlink_to("a")
        for path in ("a", "a/x", "a/x/../y"):
            verdict = bench.touch("read", path, "read(**)")
            assert verdict.decision == "ask", path

    @pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
    def test_what_each_process_sees_differently_cannot_be_judged(self, bench: Bench) -> None:
        (bench.project / "src" / "here").symlink_to("/proc/self/cwd")
        for path in (
            "src/here/x",
            "/proc/self/root/etc/hosts",
            "/dev/fd/3",
            f"/proc/../{bench.project}/src/x",
        ):
            for kind in ("edit", "read"):
                assert bench.touch(kind, path, "edit(/**)", "read(/**)").decision == "ask", path

    def test_a_broken_link_counts_as_where_it_leads(self, bench: Bench, tmp_path: Path) -> None:
        (bench.project / "src" / "broken").symlink_to(tmp_path / "nowhere" / "x")
        assert bench.touch("edit", "src/broken", "edit(src/**)").decision == "ask"

    def test_a_project_that_is_reached_by_a_link_is_the_project(self, bench: Bench, tmp_path: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(bench.project)
        by_link = Bench(link)
        assert by_link.touch("edit", "src/x", "edit(src/**)").decision == "allow"
        assert by_link.touch("read", "src/x").decision == "allow"
        assert by_link.touch("edit", "src/x", "edit(**)", deny=["edit(src/**)"]).decision == "deny"

    def test_a_redirection_through_a_link_leads_where_the_link_does(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        (bench.project / "src" / "link").symlink_to(tmp_path)
        assert bench.run("echo x > src/link/y", "execute(echo *)", "edit(src/**)").decision == "ask"


def test_names_with_wildcards_in_them_are_names(bench: Bench) -> None:
    odd = Bench(bench.project / "[ab]*")
    odd.project.mkdir()
    assert odd.touch("edit", "src/x", "edit(src/**)").decision == "allow"
    other = odd.action("edit", paths=(str(bench.project / "abc" / "src" / "x"),))
    assert odd.judge(other, ["edit(src/**)"]).decision == "ask"


def test_a_path_in_another_root_is_inside_but_not_the_project(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    roots = (str(bench.project), str(tmp_path / "library"))
    action = bench.action("edit", paths=(f"{tmp_path.resolve()}/library/x",), roots=roots)
    assert bench.judge(action, ["edit"]).decision == "allow"
    assert bench.judge(action, ["edit(**)"]).decision == "ask"


@table("paths", [("relative",), ("",), ("~/x",), ("src/main.py", "/etc/hosts")])
def test_one_path_that_is_not_allowed_is_enough(bench: Bench, paths: tuple[str, ...]) -> None:
    whole = tuple(f"{bench.project}/{path}" if path.startswith("src") else path for path in paths)
    assert bench.judge(bench.action("edit", paths=whole), ["edit", "edit(**)"]).decision == "ask"


@table("roots", [(), ("relative",), ("",), ("/nonexistent",), ("/tmp\0",)])
def test_roots_that_are_none_hold_nothing(bench: Bench, roots: tuple[str, ...]) -> None:
    action = bench.action("read", paths=(f"{bench.project}/src/main.py",), roots=roots)
    assert bench.judge(action).decision == "ask"


def test_the_home_directory_can_be_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path.resolve()))
    assert bench.touch("read", f"{tmp_path.resolve()}/notes/x.md", "read(~/notes/**)").decision == "allow"
    assert bench.run("echo x > ~/.bashrc", "execute", deny=["edit(~/**)"]).decision == "deny"

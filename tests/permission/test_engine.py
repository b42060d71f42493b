"""The order in which it is decided, and what holds without rules."""

import asyncio
from typing import Any

from coupler.permission.offers import Choices, Scope
from coupler.permission.rules import Rule
from permission.parts import Bench, rules
from tables import table


def chosen(bench: Bench, **answers: str) -> Choices:
    """Choices of this session: a rule's text for `allow` or `deny`."""
    choices = Choices(str(bench.project))
    for answer, text in answers.items():
        subject, _, pattern = text.partition("(")
        scope = Scope(subject, pattern.removesuffix(")"), "session", text)
        asyncio.run(choices.remember(answer, [scope]))  # type: ignore[arg-type]
    return choices


class TestOrder:
    def test_deny_beats_ask_and_ask_beats_allow(self, bench: Bench) -> None:
        action = bench.action("execute", command="ls")
        everything = {"allow": ["execute(ls)"], "ask": ["execute(ls)"], "deny": ["execute(ls)"]}
        assert bench.judge(action, **everything).decision == "deny"
        assert bench.judge(action, **{**everything, "deny": []}).decision == "ask"
        assert bench.judge(action, allow=["execute(ls)"]).decision == "allow"

    def test_the_order_of_the_rules_does_not_matter(self, bench: Bench) -> None:
        action = bench.action("execute", command="ls")
        mixed = [*rules("deny", ["execute(ls)"]), *rules("allow", ["execute(ls)"])]
        for given in (mixed, mixed[::-1]):
            assert bench.judge(action, more=given).decision == "deny"

    def test_a_verdict_names_the_rule_and_where_it_stands(self, bench: Bench) -> None:
        action = bench.action("execute", command="ls -l")
        assert bench.judge(action, allow=["execute(ls *)"]).reason == (
            "`ls -l` is allowed by `execute(ls *)` in your coupler.toml"
        )
        assert bench.judge(action, ask=["execute(ls *)"]).reason == (
            "`execute(ls *)` in your coupler.toml asks about `ls -l`"
        )
        assert bench.judge(action).reason == "no rule allows `ls -l`"

    def test_a_verdict_names_file_and_line_if_they_are_known(self, bench: Bench) -> None:
        rule = Rule.parse("deny", "execute(ls)", "user", "/home/me/coupler.toml line 3")
        verdict = bench.judge(bench.action("execute", command="ls"), more=[rule])
        assert verdict.reason == "`ls` is denied by `execute(ls)` in /home/me/coupler.toml line 3"

    def test_a_reason_hides_nothing_and_stays_short(self, bench: Bench) -> None:
        for action in (
            bench.action("execute", command=("echo", "a\nb\u202e\x1b[2K", "x" * 5000)),
            bench.action("other", name="a\nb\u202e" + "x" * 5000, server="\n"),
            bench.action("fetch", urls=("https://x.org/\n\u202e" + "x" * 5000,)),
            bench.action("edit", paths=("/a\n\u202e" + "x" * 5000,)),
        ):
            reason = bench.judge(action).reason
            assert reason.isprintable()
            assert len(reason) < 500

    def test_a_remembered_choice_answers_what_is_asked(self, bench: Bench) -> None:
        action = bench.action("execute", command="ls")
        allowing, rejecting = chosen(bench, allow="execute(ls *)"), chosen(bench, deny="execute(ls *)")
        for ask in ([], ["execute(ls)"]):
            assert bench.judge(action, ask=ask, choices=allowing).decision == "allow"
            assert bench.judge(action, ask=ask, choices=rejecting).decision == "deny"

    @table(
        ("asked", "allowed", "action"),
        [
            ("tool:foo", "edit(/docs/**)", {"kind": "edit", "name": "foo", "paths": ("/docs/a",)}),
            (
                "execute(timeout *)",
                "execute(git status)",
                {"kind": "execute", "command": "timeout 5 git status"},
            ),
            ("execute", "execute(git status)", {"kind": "execute", "command": "git status"}),
            ("*", "execute(git status)", {"kind": "execute", "command": "git status"}),
        ],
    )
    def test_a_choice_about_something_else_answers_nothing(
        self, bench: Bench, asked: str, allowed: str, action: dict[str, Any]
    ) -> None:
        choices = chosen(bench, allow="fetch(https://example.com/*)")
        verdict = bench.judge(bench.action(**action), ask=[asked], allow=[allowed], choices=choices)
        assert verdict.decision == "ask"
        assert asked in verdict.reason

    def test_what_is_asked_about_by_its_kind_can_be_remembered_narrowly(self, bench: Bench) -> None:
        action = bench.action("execute", command="git status")
        offered = [offer.text for offer in bench.judge(action, ask=["execute"]).offers]
        assert "Always allow `git status *` in this project" in offered
        choices = chosen(bench, allow="execute(git status *)")
        assert bench.judge(action, ask=["execute"], choices=choices).decision == "allow"

    def test_a_rule_against_it_beats_a_choice_for_it(self, bench: Bench) -> None:
        choices = chosen(bench, allow="execute(git push *)")
        for command in ("git push --force", "git push origin --force", "git push $X"):
            action = bench.action("execute", command=command)
            verdict = bench.judge(action, deny=["execute(git push --force *)"], choices=choices)
            assert verdict.decision != "allow"

    def test_a_rejection_beats_an_allowance(self, bench: Bench) -> None:
        choices = chosen(bench, allow="execute(git push *)", deny="execute(git push --force *)")
        decisions = {
            command: bench.judge(bench.action("execute", command=command), choices=choices).decision
            for command in ("git push", "git push --force", "git push $X")
        }
        assert decisions == {"git push": "allow", "git push --force": "deny", "git push $X": "ask"}

    def test_a_choice_does_not_answer_for_what_cannot_be_judged(self, bench: Bench) -> None:
        choices = chosen(bench, allow="execute(ls *)")
        for command in ("PATH=/tmp ls", "ls > $X", "f() { ls; }; f", "ls; $X"):
            action = bench.action("execute", command=command)
            assert bench.judge(action, choices=choices).decision == "ask"


class TestDefaults:
    @table("kind", ["edit", "delete", "move", "search", "execute", "fetch", "switch_mode", "x"])
    def test_everything_but_thinking_and_reading_is_asked_about(self, bench: Bench, kind: str) -> None:
        assert bench.judge(bench.action(kind)).decision == "ask"

    def test_thinking_is_allowed(self, bench: Bench) -> None:
        assert bench.judge(bench.action("think")).decision == "allow"

    def test_thinking_that_touches_something_is_no_thinking(self, bench: Bench) -> None:
        for fields in ({"paths": (f"{bench.project}/x",)}, {"command": "ls"}, {"urls": ("https://x.org/",)}):
            assert bench.judge(bench.action("think", **fields)).decision == "ask"

    def test_reading_that_does_not_say_what_is_asked_about(self, bench: Bench) -> None:
        assert bench.judge(bench.action("read")).decision == "ask"

    def test_reading_that_also_runs_something_is_asked_about(self, bench: Bench) -> None:
        action = bench.action("read", paths=(f"{bench.project}/x",), command="rm x")
        assert bench.judge(action).decision == "ask"


class TestProjects:
    def test_a_project_can_deny_and_ask(self, bench: Bench) -> None:
        action = bench.action("execute", command="ls")
        for effect in ("deny", "ask"):
            more = rules(effect, ["execute(ls)"], "project")
            assert bench.judge(action, ["execute"], more=more).decision == effect

    def test_a_project_cannot_allow(self, bench: Bench) -> None:
        more = rules("allow", ["*", "execute(ls)"], "project")
        assert bench.judge(bench.action("execute", command="ls"), more=more).decision == "ask"

    def test_a_rule_of_a_file_above_means_the_directories_of_that_file(self, bench: Bench) -> None:
        inner = Bench(bench.project / "src")
        above = str(bench.project)
        more = [Rule.parse("deny", "edit(src/secret/**)", "project", base=above)]
        action = inner.action("edit", paths=(f"{bench.project}/src/secret/x",))
        assert inner.judge(action, ["edit"]).decision == "allow"
        assert inner.judge(action, ["edit"], more=more).decision == "deny"


class TestVariables:
    @table(
        "name", ["PATH", "LD_PRELOAD", "GIT_SSH_COMMAND", "PYTHONSTARTUP", "HOME", "path", "\0", "A=B", ""]
    )
    def test_one_that_may_change_what_runs_is_always_asked_about(self, bench: Bench, name: str) -> None:
        for command in ("git status", ("git", "status")):
            action = bench.action("execute", command=command, env=("LANG", name))
            verdict = bench.judge(action, ["*", "execute(git status)"])
            assert (verdict.decision, len(verdict.offers)) == ("ask", 2)

    def test_one_that_changes_nothing_is_no_matter(self, bench: Bench) -> None:
        action = bench.action("execute", command="git status", env=("LANG", "LC_ALL", "NO_COLOR"))
        assert bench.judge(action, ["execute(git status)"]).decision == "allow"

    def test_it_does_not_soften_what_is_denied(self, bench: Bench) -> None:
        action = bench.action("execute", command="git push", env=("PATH",))
        assert bench.judge(action, deny=["execute(git push *)"]).decision == "deny"


class TestTools:
    def test_a_tool_is_allowed_by_its_name(self, bench: Bench) -> None:
        action = bench.action("other", name="lookup_price")
        assert bench.judge(action).decision == "ask"
        assert bench.judge(action, ["tool:lookup_price"]).decision == "allow"
        assert bench.judge(action, ["tool:lookup_*"]).decision == "allow"
        assert bench.judge(action, ["tool:lookup"]).decision == "ask"
        assert bench.judge(action, ["tool:Lookup_price"]).decision == "ask"

    def test_a_tool_is_denied_by_its_name_however_written(self, bench: Bench) -> None:
        for name in ("lookup_price", "LOOKUP_PRICE", "lookup_price ", "lookup\u200b_price"):
            verdict = bench.judge(bench.action("other", name=name), ["*"], deny=["tool:lookup_price"])
            assert verdict.decision == "deny"

    def test_the_name_of_a_tool_allows_neither_commands_nor_addresses(self, bench: Bench) -> None:
        for fields in ({"command": "rm x"}, {"urls": ("https://x.org/",)}, {"paths": ("/etc/hosts",)}):
            action = bench.action("other", name="any", **fields)
            assert bench.judge(action, ["tool:any"]).decision == "ask"

    def test_a_denied_kind_is_denied_without_anything_said(self, bench: Bench) -> None:
        for kind in ("edit", "execute", "fetch"):
            assert bench.judge(bench.action(kind, name="x"), ["tool:x"], deny=[kind]).decision == "deny"

    def test_a_tool_that_does_not_say_what_it_touches_may_be_a_denied_one(self, bench: Bench) -> None:
        action = bench.action("edit", name="x")
        assert bench.judge(action, ["tool:x"]).decision == "allow"
        assert bench.judge(action, ["tool:x"], deny=["edit(src/**)"]).decision == "ask"


class TestServers:
    def test_what_a_server_says_of_its_tool_earns_it_nothing(self, bench: Bench) -> None:
        for kind in ("think", "read", "other"):
            action = bench.action(kind, name="x", server="github", paths=(f"{bench.project}/src/x",))
            assert bench.judge(action).decision == "ask"
            assert bench.judge(action, [kind, "tool:x", "mcp:gitlab(*)", "mcp:github(y)"]).decision == "ask"

    def test_a_tool_of_a_server_is_allowed_by_a_rule_for_that_server(self, bench: Bench) -> None:
        action = bench.action("other", name="create_issue", server="github")
        for rule in ("mcp:github", "mcp:github(*)", "mcp:github(create_*)", "mcp:*(create_issue)"):
            assert bench.judge(action, [rule]).decision == "allow"

    def test_a_rule_for_coupler_means_the_server_that_a_client_has_named_for_one_session(
        self, bench: Bench
    ) -> None:
        action = bench.action("other", name="lookup", server="coupler4k2fqa")
        for rule in ("mcp:coupler", "mcp:coupler(look*)", "mcp:coupler4k2fqa"):
            assert bench.judge(action, [rule]).decision == "allow"
            assert bench.judge(action, ["*"], deny=[rule]).decision == "deny"
        for server in ("couplers", "couplerworker", "coupler-4k2fqa", "coupler4k2fq", "mycoupler4k2fqa"):
            other = bench.action("other", name="lookup", server=server)
            assert bench.judge(other, ["mcp:coupler"]).decision == "ask", server

    def test_a_tool_of_a_server_is_denied_by_name_or_server(self, bench: Bench) -> None:
        action = bench.action("other", name="Create_Issue", server="GitHub")
        for rule in ("mcp:github", "mcp:github(create_issue)", "tool:create_issue", "*", "other"):
            assert bench.judge(action, ["*", "mcp:GitHub(*)"], deny=[rule]).decision == "deny"


@table(
    "fields",
    [
        {"kind": "\0", "name": "\ud800", "server": "\0"},
        {"kind": "execute", "command": "\ud800"},
        {"kind": "execute", "command": ("\ud800", "\0")},
        {"kind": "execute", "command": "ls", "cwd": "\0"},
        {"kind": "edit", "paths": ("/" + "a" * 100_000, "/" + "a/" * 10_000)},
        {"kind": "fetch", "urls": ("http://[", "\ud800", "https://" + "a" * 100_000, "http://\u2100/")},
        {"kind": "execute", "command": "(" * 15_000},
        {"kind": "execute", "command": "$(" * 9_000},
        {"kind": "execute", "command": "{" * 15_000 + "}" * 5_000},
        {"kind": "execute", "command": "{a," * 6_000 + "}" * 2_000},
        {"kind": "execute", "command": '"$(' * 6_000},
        {"kind": "execute", "command": "ls;" * 6_000},
        {"kind": "execute", "command": "<<A " * 5_000},
    ],
)
def test_whatever_an_action_says_it_is_judged(bench: Bench, fields: dict[str, object]) -> None:
    assert bench.judge(bench.action(**fields)).decision == "ask"  # type: ignore[arg-type]

"""The hard floor holds for whoever decides: rules, choices, modes, policies, steps, sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from coupler import Policy
from coupler.agent.permission import SessionPermissions
from coupler.client.actions import action_of
from coupler.client.policy import PermissionRequest
from coupler.config import load
from coupler.events import ToolCall
from coupler.permission.offers import Choices, Scope
from coupler.permission.rules import ModeRules
from coupler.schema.v1 import PermissionOption, ToolCallLocation
from coupler.workflow.agents.permission import ToolRules, remedy
from permission.parts import Bench
from tables import table

WIPE = "sudo rm -rf /"
OPTIONS = (PermissionOption("yes", "Yes", "allow_once"), PermissionOption("no", "No", "reject_once"))


def request(bench: Bench, **call: Any) -> PermissionRequest:
    cwd = str(bench.project)
    return PermissionRequest(ToolCall(id="1", **call), OPTIONS, cwd, (cwd,))


def wiping(bench: Bench) -> PermissionRequest:
    return request(bench, kind="execute", raw_input={"command": WIPE})


def chosen(policy: Policy, question: PermissionRequest) -> str:
    option = asyncio.run(policy.decide(question)).option
    assert option is not None
    return option.option_id


def test_a_choice_that_was_made_for_good_does_not_lift_it(bench: Bench) -> None:
    choices = Choices(str(bench.project))
    scopes = [Scope("execute", text, "session", text) for text in ("rm *", "sudo *")]
    asyncio.run(choices.remember("allow", scopes))

    def judged(command: str) -> str:
        return bench.judge(bench.action("execute", command=command), choices=choices).decision

    assert judged("sudo rm -rf build") == "allow"
    assert judged(WIPE) == "deny"


def test_a_mode_does_not_lift_it(bench: Bench) -> None:
    permissions = bench.permissions()
    permissions.follow(lambda: ModeRules.parse("Auto", allow=["*"]))

    assert permissions.judge(bench.action("execute", command="rm -rf build")).decision == "allow"
    assert permissions.judge(bench.action("execute", command="rm -rf /")).decision == "deny"


def test_the_words_of_a_program_without_a_shell_are_judged_as_well(bench: Bench) -> None:
    assert bench.run(("rm", "-rf", "/"), "*").decision == "deny"
    assert bench.run(("sh", "-c", "rm -rf /"), "*").decision == "deny"
    assert bench.run(("rm", "-rf", "/*"), "*").decision == "allow"  # a file of that name


def test_whoever_makes_the_tool_it_is_judged(bench: Bench) -> None:
    for fields in ({"server": "s", "name": "shell"}, {"name": "shell"}, {"is_gated": True}):
        action = bench.action("other", command=WIPE, **fields)
        assert bench.judge(action, ["*", "mcp:s"]).decision == "deny"


@table(
    ("kind", "path", "decision"),
    [
        ("delete", "/", "deny"),
        ("delete", str(Path.home()), "deny"),
        ("delete", "/usr/lib", "deny"),
        ("move", "/etc", "deny"),
        ("edit", "/dev/sda", "deny"),
        ("edit", "/etc/shadow", "deny"),
        ("edit", "/proc/sysrq-trigger", "deny"),
        ("other", "/boot/vmlinuz", "deny"),
        ("read", "/etc/passwd", "allow"),
        ("read", "/usr", "allow"),
        ("edit", "/etc/hosts", "allow"),
        ("delete", "/opt/x/y", "allow"),
    ],
)
def test_files_that_a_system_needs_are_nobodys_to_give(
    bench: Bench, kind: str, path: str, decision: str
) -> None:
    allow = [f"{each}(/**)" for each in ("edit", "delete", "move", "read")]
    assert bench.touch(kind, path, *allow).decision == decision


def test_the_directories_above_a_session_are_not_its_own(bench: Bench) -> None:
    above = bench.project.parent
    for command in (f"rm -rf {above}", f"rm -rf {above}/*", f"mv {above} /tmp/x", "rm -rf ../../*"):
        assert bench.run(command, "*").decision == "deny", command
    assert bench.run(f"rm -rf {above}/other", "*").decision == "allow"


def test_all_of_a_session_is_its_users_to_give_and_asked_about_each_time(bench: Bench) -> None:
    (bench.project / ".git").mkdir()
    for command in (f"rm -rf {bench.project}", "rm -rf ./* ./.git", "rm -rf .git", "rm -r *"):
        verdict = bench.run(command, "*", "execute(rm *)")
        assert verdict.decision == "ask", command
        assert verdict.is_against
    for kind, path in (("delete", "."), ("move", "."), ("delete", ".git"), ("move", ".git")):
        verdict = bench.touch(
            kind, path, *(f"{each}(/**)" for each in ("delete", "move")), "delete(.git)", "*"
        )
        assert verdict.decision == "ask", (kind, path)
        assert verdict.is_against
    assert bench.touch("delete", "src", "delete").decision == "allow"


@table(
    "policy",
    [
        Policy.allow_all(),
        Policy.allow_all(but=["fetch"]),
        Policy.patterns(allow=["*"]),
        Policy.patterns(callback=lambda request: True),
        Policy.ask(lambda request: "yes"),
        Policy(lambda request: True),
    ],
)
def test_no_policy_lifts_it_and_no_function_that_decides(bench: Bench, policy: Policy) -> None:
    harmless = request(bench, kind="execute", raw_input={"command": "git status"})

    assert chosen(policy, harmless) == "yes"
    assert chosen(policy, wiping(bench)) == "no"
    assert "by hand" in (asyncio.run(policy.decide(wiping(bench))).remedy or "")


def test_a_policy_looks_at_paths_and_at_calls_that_say_they_only_read(bench: Bench) -> None:
    policy = Policy.allow_all()

    assert chosen(policy, request(bench, kind="read", raw_input={"cmd": WIPE})) == "no"
    assert chosen(policy, request(bench, kind="delete", locations=(ToolCallLocation("/usr"),))) == "no"
    assert chosen(policy, request(bench, kind="read", locations=(ToolCallLocation("/usr"),))) == "yes"


def test_a_step_of_a_workflow_does_not_lift_it(bench: Bench) -> None:
    permissions = ToolRules(["*"], [], []).permissions(Choices(str(bench.project)), str(bench.project))
    verdict = permissions.judge(action_of(wiping(bench)))

    assert verdict.decision == "deny"
    assert remedy(verdict).endswith("by hand")


def test_a_session_does_not_ask_its_user_about_it(bench: Bench, tmp_path: Path) -> None:
    """There is no turn to ask in: who would be asked would fail the test."""
    user = tmp_path / "coupler.toml"
    user.write_text('[permissions]\nallow = ["*"]\n')
    config = load(str(bench.project), environ={"COUPLER_HOME": str(tmp_path / "home")})
    permissions = SessionPermissions(config, str(bench.project), None)
    action = bench.action("execute", command=WIPE)
    nobody: Any = None

    permission = asyncio.run(permissions.decide(action, nobody))

    assert not permission.is_given
    assert permission.reason.startswith("not permitted: the command would delete /, the root of the file")


def test_a_variable_that_may_be_empty_is_asked_about_and_the_reason_says_how_to_write_it(
    bench: Bench,
) -> None:
    verdict = bench.run('rm -rf "$BUILD_OF_NOBODY/"*', "*")

    assert verdict.decision == "ask"
    assert "would delete /" in verdict.reason
    assert "if a variable is empty (write `${NAME:?}` for it)" in verdict.reason

"""Policies for agents that ask for nothing: each is a mode of the program, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.stage import run
from coupler import AgentError, Policy, Pool, connect
from coupler.providers import Claude, Codex, provider
from providers.stub import Stub
from providers.test_command_lines import MODES, ask

MakeStub = Callable[[str], Stub]

POLICIES: list[tuple[dict[str, Any], str]] = [
    ({}, "read_only"),
    ({"permissions": "deny-all"}, "read_only"),
    ({"permissions": Policy.allow_reads()}, "read_only"),
    ({"permissions": "allow-all"}, "allow_all"),
    ({"permissions": Policy.ask(lambda request: True)}, "deny_asks"),
    ({"mode": "allow_edits"}, "allow_edits"),
    ({"permissions": "allow-reads", "mode": "allow_edits"}, "allow_edits"),
]


@pytest.mark.parametrize("name", MODES)
def test_a_policy_is_the_mode_that_keeps_to_it(name: str, stub: MakeStub, project: Path) -> None:
    program = stub(name).streams(f"{name}-old")

    for options, _ in POLICIES:
        ask(provider(name), "hello", cwd=project, **options)

    for run_of_it, (options, mode) in zip(program.runs, POLICIES, strict=True):
        words = "\0".join(run_of_it["argv"])
        assert "\0".join(MODES[name][mode]) in words, options
        if mode != "allow_all":
            assert not any("dangerously" in word or "yolo" in word for word in run_of_it["argv"]), options
        if name == "opencode":
            denied = json.loads(run_of_it["env"].get("OPENCODE_PERMISSION", "{}"))
            assert (denied == {"edit": "deny", "bash": "deny"}) is (mode == "read_only"), options


@pytest.mark.parametrize(
    "policy",
    [
        lambda request: False,
        Policy.patterns(allow=["read"]),
        Policy.allow_all(but=["execute(rm *)"]),
    ],
)
def test_what_no_mode_keeps_to_is_refused_and_runs_nothing(
    policy: Any, stub: MakeStub, project: Path
) -> None:
    program = stub("claude").streams("claude-old")

    with pytest.raises(AgentError, match="rules and functions have nothing to decide") as caught:
        ask(Claude, "hello", cwd=project, permissions=policy)

    assert caught.value.kind == "session"
    assert program.runs == []


def test_a_mode_that_contradicts_deny_all_is_refused(stub: MakeStub, project: Path) -> None:
    program = stub("claude").streams("claude-old")

    with pytest.raises(AgentError, match="'allow_all' contradict"):
        ask(Claude, "hello", cwd=project, permissions="deny-all", mode="allow_all")
    ask(Claude, "hello", cwd=project, permissions="deny-all", mode="read_only")

    assert len(program.runs) == 1


def test_the_mode_that_it_was_made_with_stands_where_no_policy_is_named(
    stub: MakeStub, project: Path
) -> None:
    program = stub("codex").streams("codex-old")

    ask(Codex(mode="allow_edits"), "hello", cwd=project)
    ask(Codex(mode="allow_edits"), "hello", cwd=project, permissions="deny-all")

    assert ['sandbox_mode="workspace-write"' in run["argv"] for run in program.runs] == [True, False]
    assert 'sandbox_mode="read-only"' in program.runs[1]["argv"]


@pytest.mark.parametrize("options", [{"files": "none"}, {"files": "write"}, {"terminals": True}])
def test_what_is_offered_to_agents_that_use_it_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AgentError, match="cannot keep it from that"):
        connect(Claude(), **options)


def test_a_pool_gives_nobody_a_session_that_was_opened_under_another_policy(
    stub: MakeStub, project: Path
) -> None:
    program = stub("codex").streams("codex-old")

    async def story() -> None:
        agent = Codex()
        async with Pool() as pool:
            for policy in ("allow-all", "deny-all"):
                async with pool.session(agent, cwd=project, permissions=policy) as session:  # type: ignore[arg-type]
                    await session.prompt("hello")

    run(story())
    freed = ["--dangerously-bypass-approvals-and-sandbox" in run["argv"] for run in program.runs]
    assert freed == [True, False]

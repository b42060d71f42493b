"""Policies: who may do what, judged by all that an agent says of a call but its title."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from client.stage import Scripted, run, unhurried
from coupler import Policy
from coupler.client.actions import action_of
from coupler.client.policy import Decision, PermissionRequest, PolicyName
from coupler.events import ToolCall
from coupler.schema.v1 import Diff, PermissionOption, ToolCallLocation

Script = Callable[[str], Scripted]

OPTIONS = (
    PermissionOption("always", "Always", "allow_always"),
    PermissionOption("never", "Never", "reject_always"),
    PermissionOption("yes", "Yes", "allow_once"),
    PermissionOption("no", "No", "reject_once"),
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "src").mkdir(parents=True)
    (directory / "link").symlink_to(tmp_path)
    return directory


def request(project: Path, **call: Any) -> PermissionRequest:
    """A question about a call; `paths` are its locations."""
    locations = tuple(ToolCallLocation(str(project / path)) for path in call.pop("paths", ()))
    call = {"id": "c1", "locations": locations, **call}
    return PermissionRequest(ToolCall(**call), OPTIONS, str(project), (str(project),))


def chosen(policy: Policy, question: PermissionRequest) -> str | None:
    """The id of the option that the policy takes."""
    option = run(policy.decide(question)).option
    return None if option is None else option.option_id


def judged(project: Path, call: dict[str, Any], **patterns: Any) -> str | None:
    return chosen(Policy.patterns(**patterns), request(project, **call))


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("allow-all", "execute", "yes"),
        ("allow-reads", "read", "yes"),
        ("allow-reads", "execute", "no"),
        ("deny-all", "read", "no"),
        ("ask", "read", "no"),
    ],
)
def test_policies_have_names_and_nobody_to_ask_means_no(
    project: Path, name: PolicyName, kind: str, expected: str
) -> None:
    assert chosen(Policy.named(name), request(project, kind=kind)) == expected
    assert chosen(Policy.of(name), request(project, kind=kind)) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status", "yes"),
        ("rm -rf x", "no"),
        ("true && rm x", "no"),
        ("$PROGRAM x", "no"),
        ("unknown-runner 'rm x'", "no"),
    ],
)
def test_all_but_some_is_all_that_is_surely_none_of_them(project: Path, command: str, expected: str) -> None:
    policy = Policy.allow_all(but=["execute(rm *)"])
    question = request(project, kind="execute", raw_input={"command": command})
    assert chosen(policy, question) == expected
    if expected == "no":
        assert "take that rule out to allow it" in str(run(policy.decide(question)).remedy)
    assert chosen(policy, request(project, kind="edit", paths=["../elsewhere"])) == "yes"


def test_an_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match="'allow': it is one of allow-reads, allow-all, deny-all, ask"):
        Policy.named("allow")


def test_allow_all_says_what_it_takes_where_only_always_is_offered(project: Path) -> None:
    asked = replace(request(project), options=OPTIONS[:2])
    assert chosen(Policy.allow_all(), asked) is None
    assert "returns the id of the option" in str(run(Policy.allow_all().decide(asked)).remedy)


def test_ask_lets_the_callback_decide_and_it_may_choose_always(project: Path) -> None:
    assert chosen(Policy.named("ask", lambda question: True), request(project)) == "yes"
    assert chosen(Policy.ask(lambda question: "always"), request(project)) == "always"
    assert chosen(Policy.ask(lambda question: None), request(project)) is None


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"kind": "read", "paths": ["src/a.py"]}, "yes"),
        ({"kind": "read", "raw_input": {"file_path": "src/a.py"}}, "yes"),
        ({"kind": "search", "paths": ["src"]}, "yes"),
        ({"kind": "search", "raw_input": {"query": "how?"}}, "yes"),
        ({"kind": "read", "paths": ["../secret"]}, "no"),
        ({"kind": "read", "paths": ["link/secret"]}, "no"),
        ({"kind": "read", "paths": ["src/a.py", "/etc/passwd"]}, "no"),
        ({"kind": "read", "raw_input": {"path": "~/.ssh/id_rsa"}}, "no"),
        ({"kind": "read", "raw_input": {"edits": [{"filePath": "/etc/passwd"}]}}, "no"),
        ({"kind": "read", "paths": [".env"]}, "no"),
        ({"kind": "read", "raw_input": {"command": "cat a"}}, "no"),
        ({"kind": "read", "raw_input": {"path": 7}}, "no"),
        ({"kind": "search", "raw_input": {"url": "https://example.com"}}, "no"),
        ({"kind": "read", "content": (Diff("src/a.py", "new"),)}, "no"),
    ],
)
def test_to_read_means_ordinary_files_in_the_sessions_directories(
    project: Path, call: dict[str, Any], expected: str
) -> None:
    assert chosen(Policy.allow_reads(), request(project, **call)) == expected


@pytest.mark.parametrize(
    ("allow", "call", "expected"),
    [
        ("edit(src/**)", {"kind": "edit", "paths": ["src/a.py"]}, "yes"),
        ("edit(src/**)", {"kind": "edit", "raw_input": {"filePath": "src/a.py"}}, "yes"),
        ("edit(src/**)", {"kind": "edit", "content": (Diff("src/a.py", "new"),)}, "yes"),
        ("edit(src/**)", {"kind": "edit", "paths": ["src/a.py", "setup.py"]}, "no"),
        ("edit(src/**)", {"kind": "edit", "paths": ["src/a.py"], "raw_input": {"path": "/etc/x"}}, "no"),
        ("edit(src/**)", {"kind": "edit", "paths": ["src/../setup.py"]}, "no"),
        ("edit(src/**)", {"kind": "edit", "paths": ["link/src/a.py"]}, "no"),
        ("edit(src/**)", {"kind": "edit", "title": "Edit src/a.py"}, "no"),
        ("edit(src/**)", {"kind": "delete", "paths": ["src/a.py"]}, "no"),
        ("edit(src/**)", {"kind": "edit", "paths": ["src/a.py"], "raw_input": {"command": "rm x"}}, "no"),
        ("execute(git status)", {"kind": "execute", "raw_input": {"command": "git status"}}, "yes"),
        ("execute(git status)", {"kind": "execute", "raw_input": {"command": ["git", "status"]}}, "yes"),
        (
            "execute(git status)",
            {"kind": "execute", "raw_input": {"command": "git", "args": ["status"]}},
            "yes",
        ),
        ("execute(git status)", {"kind": "execute", "raw_input": {"cmd": "git status; rm x"}}, "no"),
        ("execute(git status)", {"kind": "execute", "raw_input": {"command": "git", "args": ["push"]}}, "no"),
        ("execute(git status)", {"kind": "execute", "title": "git status"}, "no"),
        ("execute(git status)", {"kind": "execute", "title": "`git status`", "raw_input": {}}, "no"),
        (
            "execute(git status)",
            {"kind": "execute", "raw_input": {"command": "git status", "cwd": "/etc"}},
            "no",
        ),
        (
            "execute(git status)",
            {"kind": "execute", "raw_input": {"command": "git status", "env": {"GIT_SSH_COMMAND": "x"}}},
            "no",
        ),
        ("fetch(https://a.example/*)", {"kind": "fetch", "raw_input": {"url": "https://a.example/x"}}, "yes"),
        ("fetch(https://a.example/*)", {"kind": "fetch", "raw_input": {"url": "https://b.example/x"}}, "no"),
        (
            "fetch(https://a.example/*)",
            {"kind": "fetch", "raw_input": {"urls": ["https://a.example/x", "https://b.example"]}},
            "no",
        ),
        ("tool:lookup", {"kind": "other", "name": "lookup"}, "yes"),
        ("tool:lookup", {"kind": "other", "title": "lookup"}, "no"),
        ("mcp:github(get_*)", {"kind": "other", "name": "mcp__github__get_issue"}, "yes"),
        ("mcp:github(get_*)", {"kind": "other", "title": "mcp__github__get_issue"}, "no"),
        ("tool:*", {"kind": "other", "name": "mcp__github__get_issue"}, "no"),
        ("*", {"kind": "edit", "paths": ["src/a.py"]}, "yes"),
        ("*", {"kind": "edit", "paths": ["/etc/passwd"]}, "no"),
        ("think", {"kind": "teleport"}, "no"),
    ],
)
def test_a_rule_allows_only_what_it_means_for_certain(
    project: Path, allow: str, call: dict[str, Any], expected: str
) -> None:
    assert judged(project, call, allow=[allow]) == expected


@pytest.mark.parametrize(
    ("deny", "call"),
    [
        ("execute(git push *)", {"kind": "execute", "raw_input": {"command": "git push"}}),
        ("execute(git push *)", {"kind": "execute", "raw_input": {"command": "env git push"}}),
        ("tool:Bash", {"kind": "other", "name": "Bash"}),
        ("tool:Bash", {"kind": "other", "title": "bash"}),
        ("mcp:github", {"kind": "other", "title": "mcp__github__get_issue", "name": "get_issue"}),
        ("edit(src/**)", {"kind": "move", "paths": ["src/a.py"]}),
    ],
)
def test_a_rule_that_denies_beats_allowances_and_callbacks_and_hears_the_title(
    project: Path, deny: str, call: dict[str, Any]
) -> None:
    assert judged(project, call, allow=["*"], deny=[deny], callback=lambda question: True) == "no"


def test_what_no_rule_decides_or_one_asks_about_is_the_callbacks(project: Path) -> None:
    asked: list[str] = []

    async def decide(question: PermissionRequest) -> bool:
        asked.append(question.tool_call.kind)
        return True

    patterns: dict[str, Any] = {"allow": ["edit"], "ask": ["edit(src/**)", "tool:Deploy"], "callback": decide}
    assert judged(project, {"kind": "edit", "paths": ["src/a.py"]}, **patterns) == "yes"
    assert judged(project, {"kind": "edit", "paths": ["a.py"], "title": "Deploy"}, **patterns) == "yes"
    assert judged(project, {"kind": "execute", "raw_input": {"command": "ls"}}, **patterns) == "yes"
    assert asked == ["edit", "edit", "execute"]
    assert judged(project, {"kind": "edit", "paths": ["a.py"]}, **patterns) == "yes"
    assert len(asked) == 3


def test_without_a_callback_what_a_rule_asks_about_is_rejected(project: Path) -> None:
    call = {"kind": "edit", "paths": ["src/a.py"]}
    assert judged(project, call, allow=["edit"], ask=["edit(src/**)"]) == "no"


def test_without_rules_reading_in_the_sessions_directories_is_allowed(project: Path) -> None:
    assert judged(project, {"kind": "read", "paths": ["src/a.py"]}) == "yes"
    assert judged(project, {"kind": "read", "paths": ["src/a.py"]}, deny=["read(src/**)"]) == "no"


def test_a_wrong_rule_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match=r"`excute\(ls\)` in the policy's allow rules .* `execute`"):
        Policy.patterns(allow=["excute(ls)"])
    with pytest.raises(TypeError, match=r"deny=\['edit'\]"):
        Policy.patterns(deny="edit")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["path", "command", "args", "url", "env", "cwd", "files", "x", "filePath"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@unhurried
@given(values, st.sampled_from(["read", "edit", "execute", "other", "teleport"]))
def test_no_input_breaks_the_judgement_and_none_earns_a_secret(raw: Any, kind: str) -> None:
    call = ToolCall(id="c", kind=kind, raw_input=[raw, {"path": "/srv/secret"}])
    question = PermissionRequest(call, OPTIONS, "/srv/project", ("/srv/project",))
    assert "/srv/secret" in action_of(question).paths
    for policy in (Policy.allow_reads(), Policy.patterns(allow=["*"])):
        decision = asyncio.run(policy.decide(question))
        assert not decision.is_allowed
        assert decision.remedy


def test_an_input_that_is_too_deep_or_too_long_is_not_allowed(project: Path) -> None:
    deep: Any = {"path": "/etc/passwd"}
    for _ in range(100):
        deep = {"x": deep}
    for raw in (deep, [{"x": 1}] * 2000):
        assert judged(project, {"kind": "edit", "paths": ["src/a"], "raw_input": raw}, allow=["*"]) == "no"


def remedy(policy: Policy, question: PermissionRequest) -> str | None:
    return run(policy.decide(question)).remedy


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"kind": "edit", "paths": ["src/a.py"]}, "`edit(src/**)` (--allow 'edit(src/**)')"),
        (
            {"kind": "execute", "raw_input": {"command": "git commit -m x"}},
            "`execute(git commit *)` (--allow 'execute(git commit *)')",
        ),
        ({"kind": "fetch", "raw_input": {"url": "https://a.example/x"}}, "`fetch(https://a.example/*)`"),
        ({"kind": "other", "name": "lookup"}, "`tool:lookup` (--allow tool:lookup)"),
        ({"kind": "other"}, "everything with the policy allow-all (--permissions allow-all)"),
        ({"kind": "read", "paths": ["/etc/passwd"]}, "policy allow-all"),
        ({"kind": "read", "paths": ["a"]}, "policy allow-reads (--permissions allow-reads)"),
    ],
)
def test_a_rejection_tells_what_would_allow_the_call(
    project: Path, call: dict[str, Any], expected: str
) -> None:
    for policy in (Policy.deny_all(), Policy.ask()):
        assert expected in (remedy(policy, request(project, **call)) or "")


@pytest.mark.parametrize(
    "call",
    [
        {"kind": "edit", "paths": ["src/a.py"]},
        {"kind": "edit", "paths": ["src/a.py", "b.py"]},
        {"kind": "execute", "raw_input": {"command": "git commit -m x && make"}},
        {"kind": "other", "name": "mcp__github__get_issue"},
    ],
)
def test_the_rules_that_a_remedy_names_do_allow_the_call(project: Path, call: dict[str, Any]) -> None:
    question = request(project, **call)
    named = (remedy(Policy.deny_all(), question) or "").partition("(--")[0].split("`")[1::2]
    assert named
    assert chosen(Policy.patterns(allow=named), question) == "yes"


def test_a_call_that_a_rule_denies_names_that_rule(project: Path) -> None:
    policy = Policy.patterns(allow=["*"], deny=["execute(git push *)"])
    question = request(project, kind="execute", raw_input={"command": "git push"})
    why = "`git push` is denied by `execute(git push *)` in the policy's deny rules"
    assert remedy(policy, question) == f"{why}: take that rule out to allow it"


@pytest.mark.parametrize("allow", [[], ["execute(git push *)"]])
def test_a_call_that_a_rule_asks_about_names_that_rule_and_none_that_would_not_help(
    project: Path, allow: list[str]
) -> None:
    policy = Policy.patterns(allow=allow, ask=["execute(git push *)"])
    question = request(project, kind="execute", raw_input={"command": "git push origin"})
    why = "`execute(git push *)` in the policy's ask rules asks about `git push origin`"
    assert remedy(policy, question) == f"{why}: take that rule out to allow it"


def test_what_a_function_rejects_needs_no_remedy(project: Path) -> None:
    for policy in (Policy(lambda question: False), Policy.ask(lambda question: False)):
        assert remedy(policy, request(project, kind="edit")) is None


def test_the_reply_lists_what_was_denied_and_what_would_allow_it(script: Script, project: Path) -> None:
    agent = script("""
        for prompt in prompts():
            path = text_of(prompt) + "/src/a.py"
            send(permission(1, kind="edit", title="Edit", locations=[{"path": path}]))
            answer_to(1)
            send(permission(2, kind="read", title="Read"))
            answer_to(2)
            send(end(prompt))
    """)
    found: list[Decision] = []

    async def story() -> None:
        async with agent.connect() as remote:
            reply = await (await remote.new(cwd=project)).prompt(str(project))
            found.extend(reply.permissions)
            assert [decision.tool_call.kind for decision in reply.denied] == ["edit"]

    run(story())
    denied, allowed = found
    assert denied.remedy is not None
    assert "--allow 'edit(src/**)'" in denied.remedy
    assert (allowed.is_allowed, allowed.remedy) == (True, None)


def test_a_slow_disk_does_not_keep_the_loop_from_its_work(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    readlink = os.readlink

    def read_slowly(*given: Any, **more: Any) -> str:
        assert goes_on.wait(30)
        return readlink(*given, **more)

    monkeypatch.setattr(os, "readlink", read_slowly)

    async def story() -> None:
        question = request(project, kind="read", paths=["src/a.py"])
        deciding = asyncio.create_task(Policy.allow_reads().decide(question))
        await asyncio.sleep(0)
        goes_on.set()
        await deciding

    run(story())


WIPE = "rm -rf /usr"
HARMLESS = "ls -a"


@pytest.mark.parametrize(
    "form",
    [
        lambda line: {"raw_input": line},
        lambda line: {"raw_input": line.split()},
        lambda line: {"raw_input": {"argv": line.split()}},
        lambda line: {"raw_input": {"program": line.split()[0], "args": line.split()[1:]}},
        lambda line: {"raw_input": {"executable": line.split()[0], "args": line.split()[1:]}},
        lambda line: {"raw_input": {"commands": ["true", line]}},
        lambda line: {"raw_input": {"command": [line]}},
        lambda line: {"raw_input": {"command": "true <<'X'", "cmd": f"{line}\nX"}},
        *(
            lambda line, key=key: {"raw_input": {key: line}}
            for key in ("input", "code", "bash_command", "command_line", "cmdline", "shellCommand")
        ),
        lambda line: {"title": f"`{line}`"},
        lambda line: {"title": f"$ {line}", "raw_input": {}},
    ],
)
def test_the_floor_finds_a_command_wherever_an_agent_puts_it(
    project: Path, form: Callable[[str], dict[str, Any]]
) -> None:
    assert chosen(Policy.allow_all(), request(project, kind="execute", **form(WIPE))) == "no"
    assert chosen(Policy.allow_all(), request(project, kind="execute", **form(HARMLESS))) == "yes"
    denying = Policy.allow_all(but=["execute(rm *)"])
    assert chosen(denying, request(project, kind="execute", **form("rm x"))) == "no"


def test_a_text_that_may_be_the_command_allows_nothing(project: Path) -> None:
    policy = Policy.patterns(allow=["execute(ls *)"])

    assert chosen(policy, request(project, kind="execute", title="ls -a")) == "no"
    assert chosen(policy, request(project, kind="execute", raw_input={"input": "ls -a"})) == "no"
    assert chosen(policy, request(project, kind="execute", raw_input={"command": "ls -a"})) == "yes"


def test_an_agent_that_names_two_directories_runs_in_an_unknown_one(project: Path) -> None:
    given = {"command": "rm -rf usr", "cwd": "/", "workdir": str(project)}

    assert chosen(Policy.allow_all(), request(project, kind="execute", raw_input=given)) == "no"


def test_a_server_that_the_agent_brought_along_is_denied_in_every_spelling(project: Path) -> None:
    policy = Policy.allow_all(but=["mcp:bank"])
    for call in (
        *({"title": title} for title in ("bank/pay", "bank_pay", "bank: pay", "bank.pay")),
        *({"name": name} for name in ("bank-pay", "mcp__bank__pay", "bank_pay")),
        {"title": "Pay", "meta": {"tool_name": "bank_pay"}},
    ):
        assert chosen(policy, request(project, kind="other", **call)) == "no", call
    for call in ({"title": "Pay the bank"}, {"name": "banking"}, {"title": "riverbank/walk"}):
        assert chosen(policy, request(project, kind="other", **call)) == "yes", call


def test_an_option_that_is_a_yes_and_a_no_is_neither(script: Script, project: Path) -> None:
    agent = script("""
        for prompt in prompts():
            frame = permission(1, kind="execute", title="x", rawInput={"command": "git push"})
            frame["params"]["options"] = [
                {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                {"optionId": "yes", "name": "No", "kind": "reject_once"},
            ]
            send(frame)
            note("outcome", answer_to(1)["result"]["outcome"])
            send(end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new(cwd=project, permissions=Policy.patterns(deny=["execute(git push *)"]))
            await session.prompt("go")

    run(story())
    assert agent.noted("outcome") == [{"outcome": "cancelled"}]

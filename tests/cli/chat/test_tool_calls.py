"""What `coupler chat` shows of commands, their output and plans: a real terminal, the real command."""

from __future__ import annotations

import sys

import pytest

from cli.chat_stage import Chatter
from coder.script import use
from coder.served_coder import surroundings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals"),
]

LINES = """
def lines(first, last):
    text = "\\n".join(f"line {number}" for number in range(first, last + 1))
    return [{"type": "content", "content": {"type": "text", "text": text}}]
"""
COUNT = "for i in $(seq 1 8); do echo line $i; done; until test -e go; do sleep 0.01; done; "


def leaves(person):
    person.says("/quit")
    assert person.ends() == 0


class TestOutput:
    def test_output_that_comes_as_content_is_shown_while_it_comes_and_its_end_afterwards(
        self, scripted, tmp_path
    ):
        agent = scripted(f"""{LINES}
for prompt in prompts():
    send(update("tool_call", toolCallId="c1", title="Run tests", kind="execute", status="in_progress"))
    send(update("tool_call_update", toolCallId="c1", content=lines(1, 9)))
    wait_for("go")
    send(update("tool_call_update", toolCallId="c1", content=lines(1, 20), status="completed"), end(prompt))
""")
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            last = "".join(f"  line {number}\n" for number in range(5, 10))
            person.reads(f"◐ Run tests  execute  #1\n{last}")
            (tmp_path / "go").touch()
            last = "".join(f"  line {number}\n" for number in range(16, 21))
            person.reads(f"✓ Run tests  execute  #1\n  … 15 more lines: /show 1\n{last}")
            person.says("/show 1")
            person.reads("line 1\n  line 2\n")
            leaves(person)

    def test_output_of_a_terminal_is_shown_while_it_comes_and_its_exit_code(self, scripted, tmp_path):
        agent = scripted(f"""
for prompt in prompts():
    send(request(1, "terminal/create", sessionId="s1", command="sh", args=["-c", {COUNT + "exit 4"!r}]))
    terminal = answer_to(1)["result"]["terminalId"]
    shown = [{{"type": "terminal", "terminalId": terminal}}]
    call = dict(toolCallId="c1", title="Run tests", kind="execute")
    send(update("tool_call", **call, status="in_progress", content=shown))
    send(request(2, "terminal/wait_for_exit", sessionId="s1", terminalId=terminal))
    answer_to(2)
    send(request(3, "terminal/release", sessionId="s1", terminalId=terminal))
    answer_to(3)
    send(update("tool_call_update", toolCallId="c1", status="completed"), end(prompt))
""")
        options = ("--terminals", "--permissions", "allow-all")
        with Chatter(agent, *options, cwd=tmp_path) as person:
            person.says("go")
            person.reads("◐ Run tests  execute  #1\n  line 4\n")
            (tmp_path / "go").touch()
            person.reads("✗ Run tests  execute  exit code 4  #1\n  … 3 more lines: /show 1\n  line 4\n")
            leaves(person)

    def test_a_secret_in_running_output_is_masked_also_where_it_has_not_come_whole(self, scripted, tmp_path):
        key = "k9dkq2mvb7w0zx1r"
        agent = scripted("""
            for prompt in prompts():
                script = 'echo "all: $ACME_API_KEY"; printf "part: %.10s" "$ACME_API_KEY"; '
                script += 'until test -e go; do sleep 0.01; done; printf "%s" "${ACME_API_KEY#??????????}"'
                send(request(1, "terminal/create", sessionId="s1", command="sh", args=["-c", script]))
                terminal = answer_to(1)["result"]["terminalId"]
                shown = [{"type": "terminal", "terminalId": terminal}]
                send(update("tool_call", toolCallId="c1", title="Run", status="in_progress", content=shown))
                send(request(2, "terminal/wait_for_exit", sessionId="s1", terminalId=terminal))
                answer_to(2)
                send(update("tool_call_update", toolCallId="c1", status="completed"))
                send(request(3, "terminal/release", sessionId="s1", terminalId=terminal), end(prompt))
        """)
        options = ("--terminals", "--permissions", "allow-all")
        with Chatter(agent, *options, cwd=tmp_path, env={"ACME_API_KEY": key}) as person:
            person.says("go")
            person.reads(r"all: \[secret:ACME_API_KEY\]\n  part:")
            (tmp_path / "go").touch()
            person.reads(r"✓.*\n  all: \[secret:ACME_API_KEY\]\n  part: \[secret:ACME_API_KEY\]")
            leaves(person)
        assert key[:4] not in person.text


class TestFailure:
    def test_a_command_that_the_agent_calls_completed_but_that_failed_is_marked_as_failed(
        self, scripted, tmp_path
    ):
        agent = scripted("""
            for prompt in prompts():
                done = dict(kind="execute", status="completed")
                exited = {"terminal_exit": {"terminal_id": "t", "exit_code": 2, "signal": None}}
                send(update("tool_call", toolCallId="c1", title="One", **done, rawOutput={"exit_code": 1}))
                send(update("tool_call", toolCallId="c2", title="Two", **done, _meta=exited))
                send(update("tool_call", toolCallId="c3", title="Three", kind="read", status="failed",
                            rawOutput="no such file"))
                send(end(prompt))
        """)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads("✗ One  execute  exit code 1  #1\n✗ Two  execute  exit code 2  #2\n")
            person.reads("✗ Three  read  #3\n  no such file")
            leaves(person)
        assert "\x1b[31m✗" in person.shown


class TestPlan:
    def test_of_a_call_that_writes_the_plan_the_plan_alone_is_shown(self, scripted, tmp_path):
        agent = scripted("""
            for prompt in prompts():
                entries = [{"content": "Test", "priority": "high", "status": "pending"}]
                todos = dict(toolCallId="c1", title="TodoWrite", kind="think")
                send(update("tool_call", **todos, status="pending"))
                send(update("plan", entries=entries))
                send(update("tool_call_update", toolCallId="c1", status="completed"))
                send(update("tool_call", toolCallId="c2", title="Look", status="completed"), end(prompt))
        """)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads("Plan\n  ○ Test\n")
            person.reads("✓ Look  other  #1")
            leaves(person)
        assert "TodoWrite" not in person.text


class TestCoder:
    def test_its_commands_and_plans_are_shown_in_the_same_way(self, model, tmp_path):
        todos = [{"content": "Fix it", "status": "in_progress"}]
        model.plays(
            use("write_todos", todos=todos), use("run_command", command=COUNT + "exit 3"), "It failed."
        )
        home, project = tmp_path / "home", tmp_path / "project"
        project.mkdir()
        options = ("--permissions", "allow-all")
        env = surroundings(home, model.server.url)
        with Chatter(["coder"], *options, cwd=project, env=env) as person:
            person.says("Run it")
            person.reads("Plan\n  ◐ Fix it\n")
            person.reads(r"◐ Run for i.*\n?.*#1\n  line 4\n")
            (project / "go").touch()
            person.reads(r"✗ Run for i[^✓]*exit\s+code\s+3\s+#1\n  … 3 more lines: /show 1\n  line 4\n")
            person.reads("It failed.")
            leaves(person)
        assert "Write todos" not in person.text
        assert model.is_over

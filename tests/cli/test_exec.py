"""`coupler exec` as scripts run it: what it prints, what it sends, and how it ends."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from client.stage import Scripted, gone_within
from coupler.cli.exit_codes import EXIT_CODES

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 60.0
EXEC = [sys.executable, "-m", "coupler", "exec"]

ECHO = """
for prompt in prompts():
    send(say(text_of(prompt)), end(prompt))
"""
WANTS_TO_DELETE = """
for prompt in prompts():
    send(
        update("tool_call", toolCallId="c1", title="Delete notes.txt", kind="delete", status="pending"),
        permission(1, title="Delete notes.txt", kind="delete"),
    )
    chosen = answer_to(1)["result"]["outcome"].get("optionId")
    status = "completed" if chosen == "yes" else "failed"
    send(
        update(
            "tool_call_update",
            toolCallId="c1",
            status=status,
            locations=[{"path": "/w/notes.txt"}],
        ),
        say(f"chosen: {chosen}"),
        end(prompt),
    )
"""


PNG = b"\x89PNG\r\n\x1a\n"
SEES = f"""
HELLO["agentCapabilities"] = {{"promptCapabilities": {{"image": True}}}}
{ECHO}"""


@pytest.fixture
def scripted(tmp_path):
    """Agents written in a few lines; what they were sent must be valid, and none may be left running."""
    made = []

    def make(body):
        made.append(Scripted(tmp_path, len(made), body))
        return made[-1]

    yield make
    for agent in made:
        agent.check()


def execute(agent, *words, stdin=subprocess.DEVNULL, env=None, cwd=None, text=None):
    command = shlex.join(agent.command) if isinstance(agent, Scripted) else agent
    return forked.run(
        [sys.executable, "-m", "coupler", "exec", command, *words],
        stdin=None if text is not None else stdin,
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        check=False,
    )


def started(agent, *words):
    """A run that goes on while the test does something else."""
    command = [*EXEC, shlex.join(agent.command), *words]
    return forked.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def image_block(file):
    data = base64.b64encode(file.read_bytes()).decode()
    return {"type": "image", "mimeType": "image/png", "data": data, "uri": file.as_uri()}


def prompts_of(agent):
    return [frame["params"]["prompt"][0]["text"] for frame in agent.received_of("session/prompt")]


class TestThePrompt:
    def test_its_words_are_one_text(self, scripted):
        agent = scripted(ECHO)
        done = execute(agent, "fix", "the tests")
        assert (done.returncode, done.stdout, done.stderr) == (0, "fix the tests\n", "")

    def test_it_is_read_from_a_pipe(self, scripted):
        assert execute(scripted(ECHO), text="from a pipe").stdout == "from a pipe\n"

    def test_a_dash_stands_for_what_is_piped_and_files_come_last(self, scripted, tmp_path):
        agent, file = scripted(ECHO), tmp_path / "more.txt"
        file.write_text("and this")
        execute(agent, "Review this:", "-", "thoroughly", "--file", str(file), text="a diff\n")
        assert prompts_of(agent) == ["Review this:\n\na diff\n\n\nthoroughly\n\nand this"]

    def test_an_empty_one_is_wrong_usage_and_starts_nothing(self, scripted):
        agent = scripted(ECHO)
        done = execute(agent, text=" \n")
        assert (done.returncode, done.stderr) == (
            2,
            "coupler exec: the prompt is empty: say what to ask, after the agent or on stdin\n",
        )
        assert agent.noted("pid") == []

    def test_a_file_that_is_not_there_is_wrong_usage(self, scripted):
        done = execute(scripted(ECHO), "--file", "nowhere.txt")
        assert done.returncode == 2
        assert done.stderr == "coupler exec: nowhere.txt cannot be read: No such file or directory\n"

    @pytest.mark.parametrize("name", ["letter.txt", "report.pdf"])
    def test_a_file_that_is_no_text_is_refused_before_anything_is_started(self, scripted, tmp_path, name):
        agent, file = scripted(ECHO), tmp_path / name
        file.write_bytes("Grüße".encode("latin-1"))
        done = execute(agent, "read this", "--file", str(file))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"coupler exec: {file} is no text in UTF-8 (byte 3): convert it, "
            "or name its path in the prompt for the agent to read\n"
        )
        assert agent.noted("pid") == []

    def test_bytes_on_stdin_that_are_no_text_are_replaced_and_told(self, scripted):
        agent = scripted(ECHO)
        done = forked.run(
            [*EXEC, shlex.join(agent.command), "Review:", "-"],
            input=b"Gr\xfc\xdfe",
            capture_output=True,
            timeout=PATIENCE,
        )
        assert done.stdout.decode() == "Review:\n\nGr\ufffd\ufffde\n"
        assert (
            done.stderr == b"coupler exec: stdin is no text in UTF-8 (byte 3): its other bytes are replaced\n"
        )

    def test_an_image_goes_to_an_agent_that_takes_images(self, scripted, tmp_path):
        agent, file = scripted(SEES), tmp_path / "cat.png"
        file.write_bytes(PNG)
        done = execute(agent, "What is it?", "--file", str(file))
        assert (done.returncode, done.stdout, done.stderr) == (0, "What is it?\n", "")
        [prompt] = agent.received_of("session/prompt")
        assert prompt["params"]["prompt"] == [{"type": "text", "text": "What is it?"}, image_block(file)]

    def test_an_image_alone_is_a_prompt(self, scripted, tmp_path):
        agent, file = scripted(SEES), tmp_path / "cat.png"
        file.write_bytes(PNG)
        assert execute(agent, "--file", str(file)).returncode == 0
        [prompt] = agent.received_of("session/prompt")
        assert prompt["params"]["prompt"] == [image_block(file)]

    def test_an_image_is_refused_for_an_agent_that_takes_none(self, scripted, tmp_path):
        agent, file = scripted(ECHO), tmp_path / "cat.png"
        file.write_bytes(PNG)
        done = execute(agent, "What is it?", "--file", str(file))
        assert done.returncode != 0
        assert done.stderr.startswith("coupler exec: the agent does not take images in prompts")
        assert agent.received_of("session/prompt") == []

    def test_an_image_reaches_the_agent_of_a_workflows_step(self, scripted, tmp_path):
        agent, file = scripted(SEES), tmp_path / "cat.png"
        file.write_bytes(PNG)
        step = {"id": "look", "agent": shlex.join(agent.command), "prompt": "{{ inputs.about }}"}
        flow = {"inputs": {"about": {"rest": True}}, "steps": [step]}
        (tmp_path / "flow.yaml").write_text(json.dumps(flow))
        done = execute("flow.yaml", "What is it?", "--file", str(file), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        [prompt] = agent.received_of("session/prompt")
        assert prompt["params"]["prompt"] == [{"type": "text", "text": "What is it?"}, image_block(file)]


class TestFormats:
    MESSAGES = """
    for prompt in prompts():
        send(
            say("one "), say("message"),
            update("tool_call", toolCallId="c1", title="Look", kind="read", status="completed"),
            say("another"),
            update("agent_thought_chunk", content={"type": "text", "text": "hm"}),
            end(prompt, usage={"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}),
        )
    """

    def test_text_has_a_blank_line_between_messages(self, scripted):
        done = execute(scripted(self.MESSAGES), "go")
        assert (done.stdout, done.stderr) == ("one message\n\nanother\n", "")

    def test_an_empty_piece_of_text_begins_no_message(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            call = update("tool_call", toolCallId="c1", title="Look", status="completed")
            send(say(""), say("one"), call, say("", messageId="m"), end(prompt))
        """)
        assert execute(agent, "go").stdout == "one\n"

    def test_quiet_is_the_same_text_at_the_end(self, scripted):
        assert (
            execute(scripted(self.MESSAGES), "go", "--format", "quiet").stdout == "one message\n\nanother\n"
        )

    def test_json_is_one_object_with_all_of_it(self, scripted):
        done = execute(scripted(self.MESSAGES), "go", "--format", "json")
        assert done.stdout.count("\n") == 1
        result = json.loads(done.stdout)
        assert result["text"] == "one message\n\nanother"
        assert (result["stop_reason"], result["session_id"], result["exit_code"]) == ("end_turn", "s1", 0)
        assert (result["thoughts"], result["error"], result["denied"]) == ("hm", None, [])
        assert (result["usage"]["total"], result["usage"]["is_estimated"]) == (7, False)
        call = {"id": "c1", "title": "Look", "kind": "read", "status": "completed"}
        assert result["tool_calls"] == [call]

    def test_ndjson_is_every_event_in_order_and_the_result(self, scripted):
        done = execute(scripted(self.MESSAGES), "go", "--format", "ndjson")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        kinds = [event["event"] for event in events]
        assert kinds == [
            "session", "prompt", "text", "text", "tool_call", "text", "thought", "turn", "result",
        ]  # fmt: skip
        assert events[-1]["text"] == "one message\n\nanother"

    def test_what_comes_after_the_answer_is_told_as_late(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(end(prompt), say("late"))
        """)
        lines = execute(agent, "go", "--format", "ndjson").stdout.splitlines()
        told = [json.loads(line) for line in lines if '"text":"late"' in line]
        assert told == [{"event": "text", "text": "late", "late": True}]

    def test_a_reply_in_one_burst_is_complete(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(*[say(f"{number} ") for number in range(2000)], end(prompt))
        """)
        assert execute(agent, "go").stdout.split() == [str(number) for number in range(2000)]

    def test_words_of_an_agent_are_passed_on_as_they_are_in_a_pipe(self, scripted):
        agent = scripted(r"""
        for prompt in prompts():
            send(say("\x1b[31mred\x1b[0m \u202ereversed"), end(prompt))
        """)
        assert execute(agent, "go").stdout == "\x1b[31mred\x1b[0m \u202ereversed\n"

    def test_whoever_stops_reading_ends_it_quietly(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            for number in range(20_000):
                send(say(f"line {number}\\n"))
        """)
        command = [sys.executable, "-m", "coupler", "exec", shlex.join(agent.command), "go"]
        with forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"line 0\n"
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(PATIENCE) == 141

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
    @pytest.mark.parametrize("format", ["text", "json", "ndjson", "quiet"])
    def test_an_answer_that_cannot_be_written_is_no_success(self, scripted, format):
        with Path("/dev/full").open("w") as full:
            done = forked.run(
                [*EXEC, shlex.join(scripted(ECHO).command), "hello", "--format", format],
                stdin=subprocess.DEVNULL,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr == "coupler exec: the answer could not be written: No space left on device\n"

    def test_without_a_stdout_nothing_is_started(self, scripted):
        agent = scripted(ECHO)
        command = shlex.join([*EXEC, shlex.join(agent.command), "hello"])
        done = forked.run(
            ["/bin/sh", "-c", f"{command} >&-"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, agent.noted("pid")) == (2, [])
        assert done.stderr == "coupler exec: stdout is closed, so that the answer could be written nowhere\n"


class TestExitCodes:
    @pytest.mark.parametrize(
        ("reason", "code"),
        [
            ("end_turn", 0),
            ("refusal", 3),
            ("max_tokens", 4),
            ("max_turn_requests", 4),
            ("cancelled", 130),
            ("_vendor_reason", 1),
        ],
    )
    def test_each_stop_reason_has_its_own(self, scripted, reason, code):
        agent = scripted(f"""
        for prompt in prompts():
            send(say("partial"), end(prompt, {reason!r}))
        """)
        done = execute(agent, "go")
        assert (done.returncode, done.stdout) == (code, "partial\n")
        assert (reason in done.stderr) == (code != 0)

    def test_an_error_of_the_agent_is_told(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(say("so far"), error(prompt, -32603, "no credit left"))
        """)
        done = execute(agent, "go", "--format", "json")
        result = json.loads(done.stdout)
        assert (done.returncode, result["exit_code"], result["text"]) == (1, 1, "so far")
        assert (result["stop_reason"], result["error"]["code"]) == (None, -32603)
        assert "no credit left" in done.stderr

    def test_an_agent_that_dies_leaves_its_last_words(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(say("so far"))
            sys.stderr.write("out of memory\\n")
            sys.stderr.flush()
            os._exit(3)
        """)
        done = execute(agent, "go", "--format", "quiet")
        assert (done.returncode, done.stdout) == (8, "so far\n")
        assert "exit code: 3" in done.stderr
        assert "out of memory" in done.stderr

    def test_a_command_that_is_not_there_cannot_be_started(self):
        done = execute("/nowhere/agent --acp", "go")
        assert (done.returncode, done.stdout) == (9, "")
        assert "/nowhere/agent" in done.stderr

    def test_a_name_that_is_nearly_one_of_the_catalogue_is_put_right(self):
        done = execute("claud", "go")
        assert done.returncode == 9
        assert "did you mean 'claude'?" in done.stderr

    def test_a_word_that_nobody_knows_leads_to_the_list_of_names(self):
        done = execute("no-such-agent-anywhere", "go")
        assert done.returncode == 9
        assert done.stderr.endswith("`coupler agents` lists them\n")

    def test_an_agent_that_ends_before_it_speaks_cannot_be_started_and_leads_to_the_doctor(self, scripted):
        agent = scripted("sys.stderr.write('no key\\n'); sys.exit(3)")
        done = execute(agent, "go", "--format", "json")
        assert (done.returncode, json.loads(done.stdout)["error"]["kind"]) == (9, "initialize")
        assert "exit code: 3\nstderr: no key\n`coupler agents doctor '" in done.stderr

    def test_long_last_words_begin_with_a_whole_line(self, scripted):
        agent = scripted(
            "sys.stderr.write('one more line of a traceback\\n' * 200 + 'no key\\n'); sys.exit(3)"
        )
        done = execute(agent, "hi")
        assert "\nstderr: one more line of a traceback\none more" in done.stderr
        assert "\nno key\n" in done.stderr

    def test_an_agent_that_ends_when_a_session_is_wanted_has_died(self, scripted):
        assert execute(scripted("hello()\nread()\nos._exit(3)"), "go").returncode == 8

    def test_a_program_that_sends_back_what_it_gets_is_told_to_be_no_agent(self):
        done = execute("cat", "hi")
        assert (done.returncode, done.stdout) == (9, "")
        told, how, doctor = done.stderr.splitlines()
        assert told == "coupler exec: the program sends back what it is sent: it is no ACP agent"
        assert "`acp` or `--acp`" in how and "`coupler agents` lists" in how
        assert doctor == "`coupler agents doctor cat` tells what is wrong with it"

    def test_what_a_program_says_instead_of_acp_is_shown_and_not_obeyed(self, scripted):
        agent = scripted("write(b'usage: \\x1b[31magent FILE\\n')")
        done = execute(agent, "go")
        assert done.returncode == 9
        assert r"and wrote what is no ACP: 'usage: \x1b[31magent FILE'" in done.stderr

    def test_a_program_that_the_catalogue_knows_is_named(self, tmp_path):
        program = tmp_path / "opencode"
        program.write_text("#!/bin/sh\necho 'Welcome'\n")
        program.chmod(0o755)
        done = execute(f"{shlex.quote(str(program))} run", "go")
        assert done.returncode == 9
        assert "OpenCode is in the catalogue: give its name, opencode, instead of a command\n" in done.stderr

    def test_an_agent_that_coupler_serves_is_not_taken_for_the_coder(self, tmp_path):
        program = tmp_path / "coupler"
        program.write_text("#!/bin/sh\necho 'Welcome'\n")
        program.chmod(0o755)
        done = execute(f"{shlex.quote(str(program))} serve -- other", "go")
        assert done.returncode == 9
        assert "catalogue" not in done.stderr

    def test_an_agent_that_wants_a_login_says_which_command_helps(self, scripted):
        agent = scripted("""
        hello()
        send(error(read(), -32000, "log in first"))
        read()
        """)
        done = execute(agent, "go")
        assert done.returncode == 10
        assert "run `coupler login " in done.stderr

    def test_a_deadline_cancels_and_keeps_what_came(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(say("so far"))
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
        """)
        done = execute(agent, "go", "--timeout", "1")
        assert (done.returncode, done.stdout) == (124, "so far\n")
        assert done.stderr == "coupler exec: the agent was not done within 1 s\n"

    def test_a_deadline_counts_from_the_start(self, scripted):
        agent = scripted("""
        read()
        sys.stderr.write("still loading\\n")
        sys.stderr.flush()
        read()
        """)
        done = execute(agent, "go", "--timeout", "1")
        assert done.returncode == 124
        assert "still loading" in done.stderr

    def test_a_spent_budget_cancels(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(say("word " * 100))
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
        """)
        done = execute(agent, "go", "--budget", "tokens=20,turns=3")
        assert done.returncode == 7
        assert "the budget of 20 tokens is spent" in done.stderr

    def test_a_denial_fails_only_if_that_is_wanted(self, scripted):
        assert execute(scripted(WANTS_TO_DELETE), "go").returncode == 0
        assert execute(scripted(WANTS_TO_DELETE), "go", "--fail-on-denial").returncode == 5

    @pytest.mark.parametrize("form", ["text", "quiet", "json", "ndjson"])
    def test_a_denial_that_fails_is_told_once_in_every_format(self, scripted, form):
        done = execute(scripted(WANTS_TO_DELETE), "go", "--fail-on-denial", "--format", form)
        assert (done.returncode, done.stderr.count("coupler exec: denied: ")) == (5, 1)

    def test_all_are_different_and_in_the_manual(self):
        codes = [each.code for each in EXIT_CODES]
        assert len({*codes}) == len(codes)
        manual = (ROOT / "docs" / "exec.md").read_text()
        for each in EXIT_CODES:
            assert f"| {each.code} | {each.sentence} |" in manual

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--budget", "tokens=many"], "--budget tokens must be a number, not 'many'"),
            (["--budget", "patience=3"], "--budget limits tokens, cost, turns"),
            (["--budget", "cost=-1"], "a budget's cost cannot be negative"),
            (["--option", "thoughts"], "'thoughts' is not NAME=VALUE"),
            (["--env", "=x"], "'=x' is not NAME=VALUE"),
            (["--mcp", "files="], "--mcp files: it needs a command or an address after the ="),
            (["--mcp", "nowhere.json"], "or a JSON file; there is no file 'nowhere.json'"),
            (["--mcp", "no name=cat"], "must be called by letters"),
            (["--schema", "nowhere.json"], "nowhere.json cannot be read"),
            (["--permissions", "deny-all", "--allow", "read"], "deny-all denies everything"),
            (["--permissions", "allow-all", "--allow", "read"], "allow-all allows everything"),
            (["--allow", "reed"], "reed"),
            (["--timeout", "0"], "seconds must be more than 0"),
            (["--format", "xml"], "xml"),
            (["--session", " "], "--session is a name to keep the session under"),
            (["--record", "/nowhere/talk.ndjson"], "there is no directory '/nowhere'"),
            (["--record", "."], "'.' is no file"),
        ],
    )
    def test_wrong_usage_is_told_before_anything_starts(self, scripted, words, sentence):
        agent = scripted(ECHO)
        done = execute(agent, "go", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
        assert agent.noted("pid") == []


class TestPermissions:
    def test_what_is_denied_is_listed_with_the_flag_that_would_allow_it(self, scripted):
        done = execute(scripted(WANTS_TO_DELETE), "go", "--format", "json")
        result = json.loads(done.stdout)
        assert result["text"] == "chosen: no"
        [denied] = result["denied"]
        assert (denied["title"], denied["kind"], denied["allowed"]) == ("Delete notes.txt", "delete", False)
        assert "--permissions allow-all" in denied["remedy"]
        assert result["files"] == []

    def test_in_text_it_is_told_beside_the_answer(self, scripted):
        done = execute(scripted(WANTS_TO_DELETE), "go")
        assert done.stdout == "chosen: no\n"
        assert done.stderr.startswith("coupler exec: denied: Delete notes.txt; ")
        assert "--permissions allow-all" in done.stderr

    @pytest.mark.parametrize(
        ("words", "chosen"),
        [
            (["--permissions", "allow-all"], "yes"),
            (["--permissions", "deny-all"], "no"),
            (["--permissions", "allow-reads"], "no"),
            (["--permissions", "allow-all", "--deny", "delete"], "no"),
            (["--deny", "execute", "--permissions", "allow-all"], "yes"),
        ],
    )
    def test_the_policy_decides(self, scripted, words, chosen):
        assert execute(scripted(WANTS_TO_DELETE), "go", *words).stdout == f"chosen: {chosen}\n"

    def test_a_rule_allows_what_it_names(self, scripted, tmp_path):
        for rule, chosen in (("execute(git status)", "yes"), ("execute(git log)", "no")):
            agent = scripted("""
            for prompt in prompts():
                send(permission(1, title="Run", kind="execute", rawInput={"command": "git status"}))
                send(say(str(answer_to(1)["result"]["outcome"].get("optionId"))), end(prompt))
            """)
            assert execute(agent, "go", "--allow", rule, cwd=tmp_path).stdout == f"{chosen}\n"

    def test_to_ask_without_a_terminal_is_to_deny(self, scripted):
        agent = scripted(WANTS_TO_DELETE)
        done = forked.run(
            [
                sys.executable,
                "-m",
                "coupler",
                "exec",
                shlex.join(agent.command),
                "go",
                "--permissions",
                "ask",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            start_new_session=True,
            check=True,
        )
        assert done.stdout == b"chosen: no\n"

    @pytest.fixture
    def claude(self, tmp_path):
        """The PATH with a program that says how it was called."""
        program = tmp_path / "claude"
        program.write_text(
            f"#!{sys.executable}\nimport json, sys\nsys.stdin.read()\n"
            'answer = {"type": "result", "subtype": "success", "is_error": False, "session_id": "x"}\n'
            'print(json.dumps({**answer, "result": " ".join(sys.argv)}))\n'
        )
        program.chmod(0o755)
        return {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    @pytest.mark.parametrize(
        ("words", "said", "unsaid"),
        [
            ([], "--disallowedTools Bash,", "--dangerously-skip-permissions"),
            (["--permissions", "deny-all"], "--disallowedTools Bash,", "--dangerously-skip-permissions"),
            (["--permissions", "allow-all"], "--dangerously-skip-permissions", "--disallowedTools"),
            (["--mode", "allow_edits"], "--permission-mode acceptEdits", "--disallowedTools"),
        ],
    )
    def test_an_agent_that_is_driven_without_acp_gets_the_mode_for_it(self, claude, words, said, unsaid):
        done = execute("claude:native", "go", *words, env=claude)
        assert done.returncode == 0
        assert said in done.stdout
        assert unsaid not in done.stdout

    def test_its_session_goes_on_under_its_name(self, claude, tmp_path):
        words = ["--session", "work", "--cwd", str(tmp_path)]
        told = [execute("claude:native", text, *words, env=claude) for text in ("one", "two")]
        assert [done.returncode for done in told] == [0, 0]
        assert ["--resume=" in done.stdout for done in told] == [False, True]
        assert "new session" not in told[1].stderr

    @pytest.mark.parametrize(
        "words", [["--allow", "read"], ["--deny", "execute"], ["--files", "none"], ["--terminals"]]
    )
    def test_what_such_an_agent_cannot_be_kept_to_is_wrong_usage(self, claude, words):
        done = execute("claude:native", "go", *words, env=claude)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"it cannot be restricted by {words[0]}: use --permissions" in done.stderr

    def test_files_that_were_changed_are_listed(self, scripted):
        done = execute(scripted(WANTS_TO_DELETE), "go", "--permissions", "allow-all", "--format", "json")
        assert json.loads(done.stdout)["files"] == ["/w/notes.txt"]


class TestWhatTheAgentGets:
    @pytest.mark.parametrize(
        ("words", "files", "terminal"),
        [
            ([], {"readTextFile": True}, False),
            (["--files", "none"], {}, False),
            (["--files", "write", "--terminals"], {"readTextFile": True, "writeTextFile": True}, True),
        ],
    )
    def test_exactly_what_was_switched_on_is_advertised(self, scripted, words, files, terminal):
        agent = scripted(ECHO)
        execute(agent, "go", *words)
        [hello] = agent.received_of("initialize")
        told = hello["params"]["clientCapabilities"]
        assert {name for name, value in told.get("fs", {}).items() if value} == files.keys()
        assert told.get("terminal", False) is terminal
        assert "elicitation" not in told  # nobody sits there

    def test_mode_model_and_options_are_set_before_the_prompt(self, scripted):
        agent = scripted("""
        def select(id, category, *values):
            options = [{"value": value, "name": value} for value in values]
            return {"type": "select", "id": id, "name": id, "category": category,
                    "currentValue": values[0], "options": options}
        OPTIONS = [select("model", "model", "small", "large"), select("effort", "other", "low", "high")]
        send(result(read(), HELLO))
        modes = {"currentModeId": "ask", "availableModes": [
            {"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]}
        send(result(read(), {"sessionId": "s1", "modes": modes, "configOptions": OPTIONS}))
        while True:
            frame = read()
            if frame["method"] == "session/set_config_option":
                send(result(frame, {"configOptions": OPTIONS}))
            elif frame["method"] == "session/set_mode":
                send(result(frame, {}))
            else:
                send(say("done"), end(frame))
        """)
        words = ["--model", "large", "--mode", "code", "--option", "effort=high"]
        assert execute(agent, "go", *words).stdout == "done\n"
        methods = [frame["method"] for frame in agent.received]
        assert methods.index("session/prompt") == 5
        [mode] = agent.received_of("session/set_mode")
        assert mode["params"]["modeId"] == "code"
        chosen = [frame["params"] for frame in agent.received_of("session/set_config_option")]
        assert [(each["configId"], each["value"]) for each in chosen] == [
            ("model", "large"),
            ("effort", "high"),
        ]

    def test_a_mode_that_is_not_offered_is_an_error_and_nothing_is_asked(self, scripted):
        agent = scripted(ECHO)
        done = execute(agent, "go", "--mode", "yolo")
        assert done.returncode == 1
        assert "does not offer the mode 'yolo'" in done.stderr
        assert prompts_of(agent) == []

    def test_servers_of_all_spellings_are_passed_on(self, scripted, tmp_path):
        agent = scripted("""
        send(result(read(), {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": True}}}))
        send(result(read(), {"sessionId": "s1"}))
        prompt = read()
        send(end(prompt))
        read()
        """)
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"three": {"command": "c", "env": {"A": "b"}}}}))
        words = [
            "--mcp",
            "one=program 'an argument'",
            "--mcp",
            "two=https://example.com/mcp",
            "--mcp",
            str(file),
        ]
        execute(agent, "go", *words)
        [opened] = agent.received_of("session/new")
        one, two, three = opened["params"]["mcpServers"]
        assert (one["name"], one["command"], one["args"]) == ("one", "program", ["an argument"])
        assert (two["type"], two["url"]) == ("http", "https://example.com/mcp")
        assert three["env"] == [{"name": "A", "value": "b"}]

    def test_variables_and_the_directory_reach_it(self, scripted, tmp_path):
        agent = scripted("""
        for prompt in prompts():
            send(say(os.environ["GREETING"] + " from " + os.getcwd()), end(prompt))
        """)
        place = tmp_path / "work"
        place.mkdir()
        done = execute(agent, "go", "--env", "GREETING=hello", "--cwd", str(place))
        assert done.stdout == f"hello from {place}\n"
        assert agent.received_of("session/new")[0]["params"]["cwd"] == str(place)

    def test_a_recording_has_all_that_was_said(self, scripted, tmp_path):
        file = tmp_path / "said.ndjson"
        execute(scripted(ECHO), "go", "--record", str(file))
        assert "session/prompt" in file.read_text()


class TestKeptSessions:
    WAITS_IN_THE_FIRST = """
    for prompt in prompts():
        send(say(text_of(prompt) + "\\n"))
        if text_of(prompt) == "first":
            read_until(is_cancel)
        send(end(prompt))
    """
    REMEMBERS = """
    from pathlib import Path
    said = Path(sys.argv[1]).with_suffix(".said")
    hi = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    while True:
        frame = read()
        match frame.get("method"):
            case "initialize":
                send(result(frame, hi))
            case "session/new":
                said.write_text("")
                send(result(frame, {"sessionId": "s1"}))
            case "session/load":
                send(say(said.read_text()), result(frame, {}))
            case "session/prompt":
                said.write_text(said.read_text() + text_of(frame) + " ")
                send(say(said.read_text()), end(frame))
    """

    def test_a_name_goes_on_where_it_was_and_the_history_is_not_printed_again(self, scripted, tmp_path):
        agent = scripted(self.REMEMBERS)
        for prompt, printed in (("one", "one \n"), ("two", "one two \n")):
            done = execute(agent, prompt, "--session", "work", "--cwd", str(tmp_path))
            assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
        assert [frame["params"]["sessionId"] for frame in agent.received_of("session/load")] == ["s1"]

    def test_another_name_or_directory_is_another_session(self, scripted, tmp_path):
        agent, other = scripted(self.REMEMBERS), tmp_path / "other"
        other.mkdir()
        execute(agent, "one", "--session", "work", "--cwd", str(tmp_path))
        execute(agent, "two", "--session", "play", "--cwd", str(tmp_path))
        execute(agent, "three", "--session", "work", "--cwd", str(other))
        assert agent.received_of("session/load") == []

    def test_a_name_that_another_run_uses_is_refused_until_that_is_done(self, scripted, tmp_path):
        agent = scripted(self.WAITS_IN_THE_FIRST)
        words = ["--session", "work", "--cwd", str(tmp_path)]
        with started(agent, "first", *words) as first:
            assert first.stdout.readline() == "first\n"
            refused = execute(agent, "second", *words, "--format", "json")
            other = execute(agent, "other", "--session", "play", "--cwd", str(tmp_path))
            first.send_signal(signal.SIGINT)
            assert first.wait(PATIENCE) == 130
        assert (refused.returncode, json.loads(refused.stdout)["error"]["kind"]) == (11, "busy")
        assert refused.stderr == (
            f"coupler exec: the session 'work' is in use by another run in this directory (process "
            f"{first.pid}): wait until that is done, or use another name\n"
        )
        assert other.returncode == 0
        assert execute(agent, "third", *words).returncode == 0
        assert prompts_of(agent) == ["first", "other", "third"]

    @pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
    def test_a_run_that_was_killed_leaves_its_name_to_the_next(self, scripted, tmp_path):
        agent = scripted(self.WAITS_IN_THE_FIRST)
        words = ["--session", "work", "--cwd", str(tmp_path)]
        with started(agent, "first", *words) as first:
            assert first.stdout.readline() == "first\n"
            first.kill()
            first.wait(PATIENCE)
        done = execute(agent, "second", *words)
        assert (done.returncode, done.stdout) == (0, "second\n")
        assert all(gone_within(PATIENCE, pid) for pid in agent.noted("pid"))

    def test_other_circumstances_make_a_new_one_and_that_is_told(self, scripted, tmp_path):
        agent = scripted(self.REMEMBERS)
        words = ["--session", "work", "--cwd", str(tmp_path)]
        execute(agent, "one", *words)
        done = execute(agent, "two", *words, "--mcp", "more=cat")
        assert done.stdout == "two \n"
        assert done.stderr.startswith(
            "coupler exec: this is a new session: the session 'work' was opened under"
        )
        events = execute(agent, "three", *words, "--format", "ndjson").stdout.splitlines()
        assert "other circumstances" in json.loads(events[0])["reason"]

    @pytest.mark.parametrize("form", ["quiet", "json", "ndjson"])
    def test_a_new_one_is_told_in_every_format(self, scripted, tmp_path, form):
        agent = scripted(self.REMEMBERS)
        words = ["--session", "work", "--cwd", str(tmp_path), "--format", form]
        first = execute(agent, "one", *words)
        done = execute(agent, "two", *words, "--mcp", "more=cat")
        assert (first.stderr, done.stderr.count("this is a new session: ")) == ("", 1)
        if form != "quiet":
            results = [json.loads(each.stdout.splitlines()[-1]) for each in (first, done)]
            assert results[0]["session_reason"] is None
            assert "other circumstances" in results[1]["session_reason"]


class TestSchemas:
    SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'

    def test_what_fits_is_printed_instead_of_the_text(self, scripted, tmp_path):
        agent = scripted("""
        answers = iter(['{"n": "four"}', 'Sorry: ```json\\n{"n": 4}\\n```'])
        for prompt in prompts():
            send(say(next(answers)), end(prompt))
        """)
        (tmp_path / "schema.json").write_text(self.SCHEMA)
        done = execute(agent, "how many?", "--schema", str(tmp_path / "schema.json"))
        assert (done.returncode, done.stdout, done.stderr) == (0, '{"n":4}\n', "")

    @pytest.mark.parametrize("words", [[], ["--permissions", "deny-all"], ["--allow", "edit"]])
    def test_the_tool_for_the_answer_needs_no_permission(self, scripted, tmp_path, words):
        agent = scripted("""
        from mcp_client import opened, turns
        for prompt, entries in turns(http=True):
            ours = entries[0]["name"]
            send(permission(1, title=f"structured_output ({ours} MCP Server)", kind="other"))
            if answer_to(1)["result"]["outcome"].get("optionId") == "yes":
                opened(entries[0]).call("structured_output", {"n": 4})
            send(say("I cannot."), end(prompt))
        """)
        (tmp_path / "schema.json").write_text(self.SCHEMA)
        done = execute(agent, "how many?", "--schema", str(tmp_path / "schema.json"), *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, '{"n":4}\n', "")

    def test_what_never_fits_has_its_own_exit_code_and_the_text(self, scripted, tmp_path):
        (tmp_path / "schema.json").write_text(self.SCHEMA)
        agent = scripted("for prompt in prompts():\n    send(say('no idea'), end(prompt))")
        words = ["--schema", str(tmp_path / "schema.json"), "--format", "json"]
        done = execute(agent, "how many?", *words)
        result = json.loads(done.stdout)
        assert (done.returncode, result["output"], result["text"]) == (6, None, "no idea")
        assert "there is no JSON in it\nThe agent said: no idea\n" in done.stderr

    def test_a_file_that_is_no_schema_is_wrong_usage(self, scripted, tmp_path):
        (tmp_path / "schema.json").write_text('{"type": "banana"}')
        agent = scripted(ECHO)
        done = execute(agent, "go", "--schema", str(tmp_path / "schema.json"))
        assert done.returncode == 2
        assert "no JSON Schema" in done.stderr
        assert agent.noted("pid") == []


def test_nothing_is_imported_that_an_answer_does_not_need(scripted):
    agent = scripted(ECHO)
    command = [sys.executable, "-X", "importtime", "-m", "coupler", "exec", shlex.join(agent.command), "go"]
    done = forked.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    heavy = {"rich", "pydantic", "mcp", "sqlite3", "prompt_toolkit", "opentelemetry", "jsonschema"}
    assert imported >= {"coupler.client_api", "click"}
    assert (
        imported & (heavy | {"coupler.providers.catalogue", "coupler.providers", "coupler.agent.turn"})
        == set()
    )


def test_the_help_has_the_table_of_exit_codes():
    done = forked.run(
        [sys.executable, "-m", "coupler", "exec", "--help"], capture_output=True, text=True, check=True
    )
    for each in EXIT_CODES:
        assert f"{each.code:>5}  {each.sentence}" in done.stdout


AGENT_FILE = """
async def agent(turn):
    await turn.say(f"{turn.text} heard in {turn.session.cwd}")
"""


@pytest.mark.parametrize("target", ["agent.py", "agent.py:agent", "./agent.py", "app.agent:agent"])
def test_an_agent_is_given_as_serve_takes_it(tmp_path, target):
    (tmp_path / "app").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for place in ("agent.py", "app/agent.py"):
        (tmp_path / place).write_text(AGENT_FILE)

    def answer(*options):
        command = [*EXEC, *options, target, "hello"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert answer() == f"hello heard in {tmp_path}\n"
    if ".py" in target:
        assert answer("--cwd", "elsewhere") == f"hello heard in {tmp_path / 'elsewhere'}\n"


def test_a_file_that_can_be_executed_is_a_command(tmp_path):
    program = tmp_path / "agent.py"
    program.write_text("#!/bin/sh\necho ran as a program >&2\n")
    program.chmod(0o755)
    done = subprocess.run([*EXEC, "./agent.py", "hi"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "ran as a program" in done.stderr


@pytest.mark.parametrize("format", ["text", "json", "ndjson", "quiet"])
def test_secrets_are_masked_in_every_format_also_in_pieces(scripted, tmp_path, format):
    agent = scripted("""
        for prompt in prompts():
            key = os.environ["ACME_API_KEY"]
            send(say("the key is " + key[:7]), say(key[7:] + " and more"),
                 update("tool_call", toolCallId="c1", title="Use " + key, status="completed"), end(prompt))
    """)
    done = subprocess.run(
        [*EXEC, shlex.join(agent.command), "--format", format, "hello"],
        cwd=tmp_path,
        env={**os.environ, "ACME_API_KEY": "k9dkq2mvb7w0zx1r"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "k9dkq2m" not in done.stdout + done.stderr
    assert "b7w0zx1r" not in done.stdout + done.stderr
    assert "[secret:ACME_API_KEY]" in done.stdout
    assert "and more" in done.stdout


def test_a_workflow_that_fails_is_no_success_although_its_turn_ends(tmp_path):
    flow = tmp_path / "flow.yaml"
    flow.write_text("steps: [{id: bad, run: exit 4}]\n")
    trust = [sys.executable, "-m", "coupler", "trust", str(flow), "--yes"]
    subprocess.run(trust, cwd=tmp_path, check=True, capture_output=True)
    served = shlex.join([sys.executable, "-m", "coupler", "serve", str(flow)])

    done = execute(served, "go", cwd=tmp_path)

    assert done.returncode == 3
    assert "exit code 4" in done.stderr

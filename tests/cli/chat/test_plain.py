"""`coupler chat` without a terminal, or without what draws on one: lines go in, text comes out."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from cli.chat_stage import COUPLER, REFERENCE, Chatter
from client.stage import PATIENCE, Scripted

ECHO = """
for prompt in prompts():
    send(say("# You said\\n\\n*" + text_of(prompt) + "*\\x1b[2J", prompt["params"]["sessionId"]), end(prompt))
"""
ASKS = """
for prompt in prompts():
    where = [{"path": os.path.join(os.getcwd(), "notes.txt")}]
    send(permission(1, title="Delete notes", kind="delete", locations=where))
    send(say("chosen: " + answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
"""
LEAKS = """
for prompt in prompts():
    key = os.environ["ACME_API_KEY"]
    text = {"type": "content", "content": {"type": "text", "text": "printed " + key}}
    send(say("the key is " + key[:7]), say(key[7:] + " and more"),
         update("agent_thought_chunk", content={"type": "text", "text": "hm " + key}),
         update("tool_call", toolCallId="c1", title="Use " + key, status="completed", content=[text]))
    if "ask" in text_of(prompt):
        send(permission(1, title="Delete " + key, kind="delete"))
        answer_to(1)
    sys.stderr.write("bye " + key + "\\n")
    sys.stderr.flush()
    if "die" in text_of(prompt):
        os._exit(3)
    send(end(prompt))
"""


@pytest.fixture
def scripted(tmp_path):
    """Agents written in a few lines, none of which may be left running."""
    made = []

    def make(body):
        made.append(Scripted(tmp_path, len(made), body))
        return made[-1]

    yield make
    for agent in made:
        agent.check()


def chat(agent, *options, typed="", cwd=None, **keywords):
    """The command with a pipe on each side."""
    command = agent if isinstance(agent, list) else agent.command
    return forked.run(
        [*COUPLER, "chat", *options, shlex.join(command)],
        input=typed,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=PATIENCE,
        **keywords,
    )


def test_each_line_is_a_prompt_and_the_text_comes_as_it_was_written(scripted, tmp_path):
    ended = chat(scripted(ECHO), typed="one\n\ntwo", cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "# You said\n\n*one*\n\n# You said\n\n*two*\n"


def test_secrets_are_masked_also_in_pieces_in_questions_and_in_errors(scripted, tmp_path):
    key = "k9dkq2mvb7w0zx1r"
    env = {**os.environ, "ACME_API_KEY": key}

    ended = chat(scripted(LEAKS), typed="ask\n/show 1\n/show 2\ndie\n", cwd=tmp_path, env=env)

    assert ended.returncode == 8
    shown = ended.stdout + ended.stderr
    assert key[:7] not in shown
    assert key[7:] not in shown
    for expected in (
        "the key is [secret:ACME_API_KEY] and more",
        "hm [secret:ACME_API_KEY]",
        "Use [secret:ACME_API_KEY]",
        "printed [secret:ACME_API_KEY]",
        "[Not allowed: Delete [secret:ACME_API_KEY]",
        "bye [secret:ACME_API_KEY]",
    ):
        assert expected in shown, shown


def test_a_file_is_read_like_a_pipe(scripted, tmp_path):
    (tmp_path / "lines").write_text("one\n")
    agent = scripted(ECHO)
    with (tmp_path / "lines").open() as lines:
        ended = forked.run(
            [*COUPLER, "chat", shlex.join(agent.command)],
            stdin=lines,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert (ended.returncode, ended.stdout) == (0, "# You said\n\n*one*\n")


def test_nothing_is_allowed_unless_the_flag_says_so(scripted, tmp_path):
    denied = chat(scripted(ASKS), typed="go\n", cwd=tmp_path)
    assert denied.stdout.startswith(
        "[Not allowed: Delete notes: allow it with the rule `delete(*)` (--allow "
    )
    assert denied.stdout.endswith("chosen: no\n")

    allowed = chat(scripted(ASKS), "--permissions", "allow-all", typed="go\n", cwd=tmp_path)
    assert allowed.stdout == "chosen: yes\n"


def test_rules_decide_and_what_they_leave_open_is_denied(scripted, tmp_path):
    def chosen(*options):
        return chat(scripted(ASKS), *options, typed="go\n", cwd=tmp_path).stdout.splitlines()[-1]

    assert chosen("--allow", "delete(*)") == "chosen: yes"
    assert chosen("--allow", "edit(*)") == "chosen: no"
    assert chosen("--permissions", "allow-all", "--deny", "delete(*)") == "chosen: no"


def test_a_rule_against_something_allows_nothing(scripted, tmp_path):
    agent = scripted(ASKS.replace('kind="delete"', 'kind="read"'))
    ended = chat(agent, "--deny", "delete(*)", typed="go\n", cwd=tmp_path)
    assert ended.stdout.endswith("chosen: no\n")


@pytest.mark.skipif(sys.platform == "win32", reason="programs are found by their endings there")
@pytest.mark.parametrize(("words", "is_free"), [([], False), (["--permissions", "allow-all"], True)])
def test_an_agent_that_is_driven_without_acp_gets_the_mode_for_it(tmp_path, words, is_free):
    program = tmp_path / "claude"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\nsys.stdin.read()\n"
        'answer = {"type": "result", "subtype": "success", "is_error": False, "session_id": "x"}\n'
        'print(json.dumps({**answer, "result": " ".join(sys.argv)}))\n'
    )
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    ended = chat(["claude:native"], *words, typed="go\n", cwd=tmp_path, env=environment)
    assert ended.returncode == 0
    assert ("--dangerously-skip-permissions" in ended.stdout) is is_free


def test_nobody_is_asked_so_nothing_is_advertised_that_asks(scripted, tmp_path):
    agent = scripted(ECHO)
    chat(agent, "--files", "none", typed="one\n", cwd=tmp_path)

    (introduced,) = agent.received_of("initialize")
    offered = introduced["params"]["clientCapabilities"]
    assert "elicitation" not in offered
    assert not any(offered.get("fs", {}).values())
    assert not offered.get("terminal")


def test_what_is_offered_follows_the_flags(scripted, tmp_path):
    agent = scripted(ECHO)
    chat(agent, "--files", "write", "--terminals", typed="one\n", cwd=tmp_path)

    (introduced,) = agent.received_of("initialize")
    offered = introduced["params"]["clientCapabilities"]
    assert offered["fs"] == {"readTextFile": True, "writeTextFile": True}
    assert offered["terminal"] is True


def test_commands_work_and_calls_can_be_seen_in_full(tmp_path):
    typed = "/mode swift\nhello\n/show 1\n/show plan\n/mode nowhere\n/qiut\n/quit\nnot reached\n"
    ended = chat(REFERENCE, typed=typed, cwd=tmp_path)

    assert ended.returncode == 0
    assert "[The mode is swift.]" in ended.stdout
    assert "[completed] Add a line to the notes (edit) #3" in ended.stdout
    assert "\n[x] Read the notes\n[x] Add a line to them\n" in ended.stdout
    assert "Each step of the plan shows another feature." in ended.stdout
    assert "it offers careful, swift" in ended.stderr
    assert "did you mean /quit?" in ended.stdout
    assert "not reached" not in (tmp_path / "notes.txt").read_text()


def test_a_call_shows_what_its_terminal_has_written(tmp_path):
    ended = chat(REFERENCE, "--terminals", typed="hello\n/show 4\n", cwd=tmp_path)
    assert ended.stdout.endswith(f'{{"command":["pwd"]}}\n{tmp_path}\n')


def test_a_dead_agent_ends_the_conversation_with_its_last_words(scripted, tmp_path):
    agent = scripted("""
        for prompt in prompts():
            sys.stderr.write("out of cheese\\n")
            sys.stderr.flush()
            os._exit(3)
    """)
    ended = chat(agent, typed="one\ntwo\n", cwd=tmp_path)
    assert ended.returncode == 8
    assert ended.stderr.endswith("exit code: 3\nout of cheese\n")
    assert ended.stdout == ""


def test_an_agent_that_dies_while_nobody_types_is_told_of_at_once(scripted, tmp_path):
    agent = scripted("""
        for prompt in prompts():
            send(say("done"), end(prompt))
            os._exit(3)
    """)
    command = [*COUPLER, "chat", shlex.join(agent.command)]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with forked.Popen(command, cwd=tmp_path, text=True, **pipe) as process:
        process.stdin.write("one\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        assert process.stderr.readline() == "coupler chat: the agent has ended\n"
        assert process.stderr.readline() == "exit code: 3\n"
        process.stdin.write("two\n")
        process.stdin.flush()
        assert process.wait(PATIENCE) == 8
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_servers_are_passed_on_and_all_is_recorded(scripted, tmp_path):
    agent = scripted(ECHO)
    chat(agent, "--mcp", "shop=shop-server --all", "--record", "talk.ndjson", typed="one\n", cwd=tmp_path)

    (opened,) = agent.received_of("session/new")
    (server,) = opened["params"]["mcpServers"]
    assert (server["name"], server["args"]) == ("shop", ["--all"])
    assert '"session/prompt"' in (tmp_path / "talk.ndjson").read_text()


def test_an_agent_that_wants_a_login_says_how(tmp_path):
    ended = chat(REFERENCE, "--env", "REFERENCE_WANTS_LOGIN=1", typed="one\n", cwd=tmp_path)
    assert ended.returncode == 10
    assert "coupler login" in ended.stderr


def test_a_reader_that_leaves_ends_it_quietly(scripted, tmp_path):
    agent = scripted(ECHO)
    command = [*COUPLER, "chat", shlex.join(agent.command)]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with forked.Popen(command, cwd=tmp_path, **pipe) as process:
        process.stdout.close()
        process.stdin.write(b"one\ntwo\n")
        process.stdin.close()
        errors = process.stderr.read()
        assert process.wait(PATIENCE) == 141
    assert errors == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk at hand")
def test_an_answer_that_cannot_be_written_is_no_success(scripted, tmp_path):
    with Path("/dev/full").open("w") as full:
        ended = forked.run(
            [*COUPLER, "chat", shlex.join(scripted(ECHO).command)],
            cwd=tmp_path,
            input="one\n",
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    assert (ended.returncode, ended.stderr) == (
        1,
        "coupler: the output cannot be written: no space left on device\n",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_sigint_cancels_the_turn_and_then_leaves(scripted, tmp_path):
    agent = scripted("""
        for prompt in prompts():
            send(update("tool_call", toolCallId="c1", title="Begun", status="completed"))
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
    """)
    command = [*COUPLER, "chat", shlex.join(agent.command)]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with forked.Popen(command, cwd=tmp_path, text=True, **pipe) as process:
        process.stdin.write("go\n")
        process.stdin.flush()
        assert "Begun" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "[The turn was cancelled.]\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--resume", "x", "--continue"), "use one of them"),
        (("--permissions", "deny-all", "--allow", "edit(*)"), "deny-all denies everything"),
        (("--permissions", "deny-all", "--deny", "edit(*)"), "deny-all denies everything"),
        (("--permissions", "allow-all", "--allow", "edit(*)"), "allow-all allows everything"),
        (("--option", "x"), "'x' is not NAME=VALUE"),
        (("--mcp", "x"), "coupler chat: --mcp takes NAME=COMMAND"),
        (("--allow", "edit(("), "edit(("),
    ],
)
def test_wrong_usage_ends_with_a_sentence(scripted, tmp_path, options, sentence):
    ended = chat(scripted(ECHO), *options, cwd=tmp_path)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
class TestPlainTerminals:
    def leaves(self, person):
        person.types("/quit\n")
        assert person.ends() == 0

    def test_a_terminal_is_spoken_to_plainly_if_that_is_wanted(self, scripted, tmp_path):
        with Chatter(scripted(ECHO), "--plain", cwd=tmp_path) as person:
            person.types("one\n")
            person.reads(r"# You said\n\n\*one\*")
            self.leaves(person)

    def test_a_terminal_that_can_do_nothing_is_spoken_to_plainly(self, scripted, tmp_path):
        with Chatter(scripted(ECHO), cwd=tmp_path, env={"TERM": "dumb"}) as person:
            person.types("one\n")
            person.reads(r"# You said\n\n\*one\*")
            self.leaves(person)

    def test_without_the_extra_a_terminal_gets_plain_lines_and_is_told_what_to_install(
        self, scripted, tmp_path
    ):
        missing = tmp_path / "missing"
        missing.mkdir()
        (missing / "sitecustomize.py").write_text("import sys\nsys.modules['prompt_toolkit'] = None\n")
        path = os.pathsep.join([str(missing), os.environ.get("PYTHONPATH", "")])
        with Chatter(scripted(ECHO), cwd=tmp_path, env={"PYTHONPATH": path}) as person:
            person.reads(r'pip install "coupler\[chat\]"')
            person.types("one\n")
            person.reads(r"# You said\n\n\*one\*")
            self.leaves(person)

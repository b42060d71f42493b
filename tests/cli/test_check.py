"""`coupler check` as a user runs it: over real pipes, on agents good and bad."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest
from click.testing import CliRunner

import forked
from coupler.cli.main import command

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
CHECK = [sys.executable, "-m", "coupler", "check"]
ECHO = [sys.executable, "-m", "coupler", "serve", str(ROOT / "examples" / "echo.py")]
PATIENCE = 120.0

WRONG = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = {"protocolVersion": "<script>1</script>", "agentCapabilities": {}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


def check(*arguments, **keywords):
    return forked.run(
        [*CHECK, *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        env={**os.environ, "COLUMNS": "80"},
        **keywords,
    )


@pytest.fixture
def wrong(tmp_path):
    """An agent that answers initialize wrongly."""
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    return [sys.executable, str(file)]


@pytest.fixture
def own_signals():
    """What a command does to signals lasts as long as its process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, action in before.items():
        signal.signal(number, action)


def assert_refused(ended, sentence):
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


# The verdict


def test_an_agent_of_coupler_conforms():
    ended = check("--", *ECHO)

    assert ended.returncode == 0, ended.stdout
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[-1].startswith("✔ ACP v1 agent: conforms (")
    assert "\x1b" not in ended.stdout


def test_an_agent_that_answers_initialize_wrongly_does_not(wrong):
    ended = check("--only", "A01", "--", *wrong)

    assert ended.returncode == 1
    assert "FAIL A01  must   initialize with version 1" in ended.stdout
    assert "✘ ACP v1 agent: does not conform (1 failed)" in ended.stdout.splitlines()
    assert "Add --only A01 -v" in ended.stdout


def test_a_failure_that_is_not_mandatory_is_a_warning_and_passes(wrong):
    ended = check("--only", "A06", "--", *wrong)

    assert ended.returncode == 0
    assert "WARN A06  should agentInfo" in ended.stdout
    assert "conforms (1 warned)" in ended.stdout


@pytest.mark.parametrize("arguments", [["--only", "A01,a02", "--only", " A06 "], ["--only=A01,A02,A06,"]])
def test_only_some_assertions_are_judged(arguments, tmp_path):
    report = tmp_path / "report.json"
    ended = check(*arguments, "--json", report, "--", *ECHO)

    assert ended.returncode == 0
    assert [each["id"] for each in json.loads(report.read_text())["results"]] == ["A01", "A02", "A06"]


def test_an_agents_own_options_are_its_own():
    """Also without `--` before the command."""
    ended = check("--only", "A01", *ECHO, "--timeout", "5")
    assert ended.returncode == 1
    assert "coupler serve: there is no option --timeout" in ended.stdout


def test_variables_are_set_for_the_agent(tmp_path):
    agent = tmp_path / "agent.py"
    agent.write_text("import os, sys; sys.stderr.write(os.environ['GIVEN'])")

    ended = check("--only", "A01", "--env", "GIVEN=a=b", "--", sys.executable, agent)

    assert "stderr: a=b" in ended.stdout


def test_sessions_work_in_a_project_that_is_gone_afterwards(tmp_path):
    seen = tmp_path / "seen"
    agent = tmp_path / "agent.py"
    agent.write_text(f"""
import pathlib
from coupler import serve
async def agent(turn):
    files = sorted(file.name for file in pathlib.Path(turn.session.cwd).iterdir())
    pathlib.Path({str(seen)!r}).write_text(" ".join([str(turn.session.cwd), *files]))
serve(agent)
""")
    check("--only", "A44", "--", sys.executable, agent)

    directory, *files = seen.read_text().split()
    assert files == ["README.md", "app.py"]
    assert Path(directory).name.startswith("coupler-check-")
    assert not Path(directory).exists()


# Agents that are none


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such programs")
@pytest.mark.parametrize(
    "command", [["cat"], ["sleep", "60"], ["yes"], ["false"]], ids=lambda words: words[0]
)
def test_a_program_that_is_no_agent_fails_soon(command):
    began = time.monotonic()
    ended = check("--timeout", "0.5", "--only", "A01,A02", "--", *command)

    assert ended.returncode == 1
    assert "FAIL A01" in ended.stdout
    assert ended.stderr == ""
    assert time.monotonic() - began < 60


@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
@pytest.mark.parametrize("ignored", [False, True], ids=["in the foreground", "in the background"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_check_leaves_no_process_behind(number, ignored, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    checking = forked.Popen(
        [*CHECK, "--", "sleep", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )
    deadline = time.monotonic() + PATIENCE
    while not (
        agents := [each for each in psutil.Process(checking.pid).children() if each.name() == "sleep"]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    checking.send_signal(number)
    out, err = checking.communicate(timeout=PATIENCE)

    assert (checking.returncode, out, err) == (130, b"", b"coupler check: interrupted\n")
    assert not any(agent.is_running() for agent in agents)
    assert [*tmp_path.glob("coupler-check-*")] == []


# The forms of the report


def test_json_on_stdout_is_alone_there(wrong):
    ended = check("--only", "A01,A06", "--json", "--", *wrong)

    document = json.loads(ended.stdout)
    assert document["format"] == "coupler.report"
    assert document["subject"] == " ".join(wrong)
    assert document["results"][0]["frames"][1]["cause"] is True
    assert "✘ ACP v1 agent: does not conform" in ended.stderr
    assert ended.returncode == 1


def test_junit_is_xml(wrong, tmp_path):
    file = tmp_path / "check.xml"
    to_file = check("--only", "A01,A06", "--junit", file, "--", *wrong)
    to_stdout = check("--only", "A01,A06", "--junit", "-", "--", *wrong)

    for text in (file.read_text(), to_stdout.stdout):
        (suite,) = ET.fromstring(text.encode())
        assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert "does not conform" in to_file.stdout
    assert "does not conform" in to_stdout.stderr


def test_html_shows_frames_escaped(wrong, tmp_path):
    file = tmp_path / "check.html"
    check("--only", "A01", "--html", file, "--", *wrong)

    page = file.read_text()
    assert "&lt;script&gt;1&lt;/script&gt;" in page
    assert "<script" not in page


def test_all_forms_can_be_written_at_once(tmp_path):
    files = [tmp_path / name for name in ("a.json", "a.xml", "a.html")]
    options = zip(("--json", "--junit", "--html"), files, strict=True)

    ended = check("--only", "A01", *(word for pair in options for word in pair), "--", *ECHO)

    assert ended.returncode == 0
    assert all(file.stat().st_size for file in files)


# Recordings


def test_what_was_said_is_kept_and_can_be_graded_without_the_agent(wrong, tmp_path):
    traces = tmp_path / "kept" / "traces"
    check("--only", "A01,A02", "--save-traces", traces, "--", *wrong)
    files = sorted(traces.iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert [file.name for file in files] == ["001-conversation.ndjson", "002-A02.ndjson"]

    ended = check("--only", "A01,A02", "--trace", files[0], "--trace", files[1])

    assert ended.returncode == 1
    assert "FAIL A01" in ended.stdout
    assert "A02: needs the agent itself, not a recording" in ended.stdout
    assert "(1 failed, 1 skipped)" in ended.stdout


def test_a_recording_may_be_written_by_hand(tmp_path):
    """As docs/check.md describes it."""
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    answer = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}}
    lines = [
        {"at": 0, "from": "client", "frame": hello},
        {"at": 0.1, "from": "agent", "text": "no JSON"},
        {"at": 0.2, "from": "agent", "bytes": "/w=="},
        {"at": 0.3, "from": "agent", "frame": answer},
        {"stderr": "bye"},
        {"exit": 0},
    ]
    file = tmp_path / "by-hand.ndjson"
    file.write_text("\n".join(map(json.dumps, lines)))

    ended = check("--only", "A01", "--trace", file)

    assert ended.returncode == 0
    assert "conforms (1 passed)" in ended.stdout


# The catalogue


def test_the_assertions_are_listed():
    ended = check("--list")
    assert ended.returncode == 0
    assert ended.stdout.startswith("A01  must   initialize with version 1")
    assert "(initialization)" in ended.stdout


def test_the_assertions_about_clients_are_listed():
    ended = check("--list", "--client")
    assert ended.returncode == 0
    assert ended.stdout.startswith("C01  ")


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give the agent's command, as in `coupler check -- my-agent`"),
        (["--trace", "x", "--", "cat"], "give either a command or recordings"),
        (["--list", "--auth", "key"], "--auth has no use with --list"),
        (["--list", "--json"], "--json has no use with --list"),
        (["--list", "--", "cat"], "--list takes no command"),
        (["--only", ",", "--", "cat"], "it names no assertion"),
        (["--trace", "x", "--timeout", "3"], "--timeout has no use with --trace"),
        (["--trace", "x", "--slow-prompt", "go"], "--slow-prompt has no use with --trace"),
        (["--trace", "x", "--env", "A=b"], "--env has no use with --trace"),
        (["--client", "--prompt", "go", "--", "cat", "{agent}"], "--prompt has no use with --client"),
        (["--client", "--save-traces", "x"], "--save-traces has no use without a client's command"),
        (["--", "no-such-agent-anywhere"], "The program 'no-such-agent-anywhere' was not found"),
        (["--", "./no/such/agent"], "does not exist"),
        (["--only", "A0", "--", "cat"], "there is no assertion A0; the nearest are A"),
        (["--only", "nonsense", "--", "cat"], "there is no assertion NONSENSE; --list shows them all"),
        (["--only", "A9999", "--list"], "there is no assertion A9999"),
        (["--trace", "no-such-file"], "no-such-file cannot be read: No such file or directory"),
        (["--trace", __file__], "test_check.py:1 is no line of a trace"),
        (["--env", "NOTHING", "--", "cat"], "'NOTHING' is not NAME=VALUE"),
        (["--env", "=x", "--", "cat"], "'=x' is not NAME=VALUE"),
        (["--timeout", "0", "--", "cat"], "more than 0"),
        (["--timeout", "nan", "--", "cat"], "more than 0"),
        (["--json", "--junit", "--", "cat"], "--json and --junit cannot both go to stdout"),
        (["--html", "/no/such/place/x.html", "--", "cat"], "/no/such/place is no directory"),
        (["--nonsense"], "No such option"),
    ],
)
def test_wrong_usage_ends_with_a_sentence_and_code_2(arguments, sentence, own_signals):
    """In this process: a process for each line of the table would show the same."""
    ended = CliRunner(env={"COLUMNS": "80"}).invoke(command, ["check", *arguments])

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert sentence in ended.stderr


def test_a_report_that_cannot_be_written_is_refused(tmp_path):
    assert_refused(
        check("--only", "A01", "--html", tmp_path, "--", *ECHO), "cannot be written: Is a directory"
    )


def test_traces_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    ended = check("--only", "A01", "--save-traces", tmp_path / "file" / "x", "--", *ECHO)
    assert_refused(ended, "cannot be written")


def test_a_check_that_could_judge_nothing_is_no_success():
    ended = check("--only", "A28", "--timeout", "0.3", "--", "sleep", "600")

    assert ended.returncode == 2
    assert "nothing was judged" in ended.stdout

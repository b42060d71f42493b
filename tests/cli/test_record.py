"""`coupler record` as an editor runs it: over real pipes, between it and agents good and bad."""

import base64
import contextlib
import json
import os
import random
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forked
from coupler.recording.traces import Trace
from tables import table

ROOT = Path(__file__).parent.parent.parent
RECORD = [sys.executable, "-m", "coupler", "record"]
PATIENCE = 60.0
SECRET = "hunter2-4711-zebra-quartz"

ECHO = """
import os
while data := os.read(0, 1 << 16):
    while data:
        data = data[os.write(1, data):]
"""
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
os.write(1, b"%d\\n" % child.pid)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def _unmeasured():
    """The tap is run by these tests and hardly any others, so it is measured here."""


def python(code):
    return [sys.executable, "-c", code]


class Tapped:
    """An agent behind a tap, with the editor's ends of its pipes."""

    def __init__(self, file, *command, options=(), env=None, **keywords):
        self.file = Path(file)
        self.process = forked.Popen(
            [*RECORD, "-o", str(file), *options, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **(env or {})},
            **keywords,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def read_line(self):
        line = b""
        while not line.endswith(b"\n"):
            assert select.select([self.process.stdout], [], [], PATIENCE)[0], "nothing came"
            piece = self.process.stdout.read(1)
            assert piece, f"the output ended after {line!r}"
            line += piece
        return line

    def read(self, size):
        data = b""
        while len(data) < size:
            data += self.process.stdout.read(size - len(data))
        return data

    def leave(self):
        """Close stdin and read the rest; what the agent wrote, and its exit code."""
        out, _ = self.process.communicate(timeout=PATIENCE)
        return out, self.process.returncode

    @property
    def writer(self):
        """The process that writes the file."""
        return until(
            lambda: next(
                (
                    child
                    for child in psutil.Process(self.process.pid).children()
                    if "coupler.recording.writer" in child.cmdline()
                ),
                None,
            )
        )

    def lines(self):
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]


def end_of(file, size):
    """The last bytes of a file that is too long to be read again and again."""
    with file.open("rb") as opened:
        opened.seek(max(file.stat().st_size - size, 0))
        return opened.read()


def until(look):
    """Wait for something outside of this process, which cannot tell us."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            if found := look():
                return found
        time.sleep(0.01)
    raise AssertionError("it did not come to be")


def record(file, command, data=b"", *options, env=None):
    """Run an agent behind the tap with this as its input; what came out, and the lines of the file."""
    done = forked.run(
        [*RECORD, "-o", str(file), *options, "--", *command],
        input=data,
        capture_output=True,
        timeout=PATIENCE,
        env={**os.environ, **(env or {})},
    )
    return done, [json.loads(line) for line in Path(file).read_bytes().splitlines()]


def frame(**message):
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def chunk(text, session="s"):
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return frame(method="session/update", params={"sessionId": session, "update": update})


# Every byte


@pytest.mark.long
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=200),
            st.just(b'{"jsonrpc": "2.0", "method": "m"}\n'),
            st.just(b"\r\n\n\x00\xff"),
            st.builds(lambda size: os.urandom(size), st.integers(60_000, 200_000)),
        ),
        max_size=8,
    )
)
def test_what_goes_in_comes_out_however_it_is_cut(pieces, tmp_path_factory):
    file = tmp_path_factory.mktemp("record") / "trace.ndjson"
    with Tapped(file, *python(ECHO)) as tapped:
        writing = threading.Thread(target=lambda: [tapped.write(piece) for piece in pieces])
        writing.start()
        got = b""
        while len(got) < len(b"".join(pieces)):
            got += tapped.process.stdout.read(1 << 16)
        writing.join()
        rest, code = tapped.leave()

    assert (got + rest, code) == (b"".join(pieces), 0)


def test_what_is_no_message_is_passed_on_and_recorded_as_it_is(tmp_path):
    garbage = b'no json\n[1, 2]\n{"half": \n\xff\xfe\x00\n  {"jsonrpc": "2.0"}\r\nwithout an end'

    done, lines = record(tmp_path / "t.ndjson", python(ECHO), garbage)

    assert done.stdout == garbage
    said = [line for line in lines if line.get("from") == "client"]
    assert [line.get("text", line.get("frame", line.get("bytes"))) for line in said] == [
        "no json",
        [1, 2],
        '{"half":',
        base64.b64encode(b"\xff\xfe\x00").decode(),
        {"jsonrpc": "2.0"},
        "without an end",
    ]
    assert all(line["invalid"] for line in said[:4])


@pytest.mark.long
def test_a_line_of_60_megabytes_passes_and_is_recorded(tmp_path):
    text = "".join(random.Random(1).choices("abcdefgh ", k=1000)) * 60_000
    long = frame(method="m", params={"text": text})

    file = tmp_path / "t.ndjson"
    command = [*RECORD, "-o", str(file), "--", *python(ECHO)]
    done = forked.run(command, input=long, capture_output=True, timeout=PATIENCE)

    assert done.stdout == long
    # The tap does not wait long for so much, but the process that writes it does its work.
    until(lambda: b'"exit"' in end_of(file, 100))
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [line["frame"]["params"]["text"] == text for line in lines if "frame" in line] == [True, True]


def test_both_sides_of_a_conversation_stand_in_the_order_in_which_they_were_said(tmp_path):
    with Tapped(tmp_path / "t.ndjson", *python(ECHO)) as tapped:
        for number in range(200):
            tapped.write(b'{"jsonrpc":"2.0","id":%d}\n' % number)
            tapped.read_line()
        tapped.leave()

    said = [(line["frame"]["id"], line["from"]) for line in tapped.lines() if "frame" in line]
    assert said == [(number, side) for number in range(200) for side in ("client", "agent")]
    times = [line["at"] for line in tapped.lines() if "at" in line]
    assert times == sorted(times)


# How it ends


def test_the_end_of_the_editors_input_is_that_of_the_agents_and_its_exit_code_is_ours(tmp_path):
    agent = python("import sys; sys.stderr.write('bye\\n'); sys.exit(len(sys.stdin.read()))")

    done, lines = record(tmp_path / "t.ndjson", agent, b"1234567")

    assert done.returncode == 7
    assert done.stderr.endswith(b"bye\n")
    assert [line["stderr"] for line in lines if "stderr" in line] == ["bye\n"]
    assert lines[-1]["exit"] == 7


def test_an_agent_that_a_signal_ended_gives_the_exit_code_that_a_shell_would_give(tmp_path):
    done, lines = record(tmp_path / "t.ndjson", python("import os; os.kill(os.getpid(), 9)"))
    assert (done.returncode, lines[-1]["exit"]) == (128 + 9, -9)


def test_an_agent_answers_after_the_editor_has_closed_its_input(tmp_path):
    agent = python("import sys, time; sys.stdin.read(); time.sleep(0.6); print('late', flush=True)")
    done, _ = record(tmp_path / "t.ndjson", agent, b"x")
    assert (done.stdout, done.returncode) == (b"late\n", 0)


def test_an_agent_that_closes_its_output_is_seen_to_while_it_lives_on(tmp_path):
    agent = python("import os, sys; os.write(1, b'over\\n'); os.close(1); sys.stdin.read(); sys.exit(3)")
    with Tapped(tmp_path / "t.ndjson", *agent) as tapped:
        assert tapped.process.stdout.read(5) == b"over\n"
        assert tapped.process.stdout.read() == b""  # returns only at the end
        assert tapped.process.poll() is None
        tapped.process.stdin.close()
        assert tapped.process.wait(PATIENCE) == 3


def test_an_agent_that_closes_its_input_breaks_the_editors_pipe(tmp_path):
    agent = python("import os, time; os.close(0); os.write(1, b'closed\\n'); time.sleep(600)")
    with Tapped(tmp_path / "t.ndjson", *agent) as tapped:
        tapped.read_line()
        with pytest.raises(BrokenPipeError):
            until(lambda: tapped.process.stdin.write(b"x") and None)


def test_an_editor_that_reads_no_more_breaks_the_agents_pipe(tmp_path):
    agent = python(
        "import os, sys\n"
        "try:\n"
        "    while True: os.write(1, b'x' * 1000)\n"
        "except BrokenPipeError: sys.exit(5)\n"
    )
    with Tapped(tmp_path / "t.ndjson", *agent) as tapped:
        tapped.process.stdout.read(10)
        tapped.process.stdout.close()
        assert tapped.process.wait(PATIENCE) == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_agent_as_it_would_without_a_tap(number, tmp_path):
    agent = python(
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    with Tapped(tmp_path / "t.ndjson", *agent) as tapped:
        tapped.read_line()
        tapped.process.send_signal(number)
        assert tapped.process.wait(PATIENCE) == 9
        assert tapped.lines()[-1]["exit"] == 9


def test_an_agent_that_ignores_a_signal_is_killed_with_all_that_it_started(tmp_path):
    with Tapped(tmp_path / "t.ndjson", *python(STUBBORN)) as tapped:
        grandchild = psutil.Process(int(tapped.read_line()))
        tapped.process.terminate()
        assert tapped.process.wait(PATIENCE) == 128 + 9
    until(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_also_ends_what_the_agent_has_started_in_a_session_of_its_own(number, tmp_path):
    with Tapped(tmp_path / "t.ndjson", "sh", "-c", "setsid sh -c 'echo $$; sleep 600' & wait") as tapped:
        stray = psutil.Process(int(tapped.read_line()))
        tapped.process.send_signal(number)
        tapped.process.wait(PATIENCE)
    until(lambda: not stray.is_running() or stray.status() == psutil.STATUS_ZOMBIE)


def test_what_an_agent_leaves_running_ends_with_it(tmp_path):
    agent = python(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "os.write(1, b'%d\\n' % child.pid)"
    )
    with Tapped(tmp_path / "t.ndjson", *agent) as tapped:
        left = psutil.Process(int(tapped.read_line()))
        assert tapped.process.wait(PATIENCE) == 0
    until(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE)


def test_an_agent_whose_editor_is_gone_ends(tmp_path):
    with Tapped(tmp_path / "t.ndjson", *python(STUBBORN)) as tapped:
        tapped.read_line()
        tapped.process.stdin.close()
        tapped.process.stdout.close()
        assert tapped.process.wait(PATIENCE) == 128 + 9


def test_a_killed_recorder_leaves_a_readable_trace_and_no_agent(tmp_path):
    with Tapped(tmp_path / "t.ndjson", *python(STUBBORN)) as tapped:
        tapped.write(frame(method="m") * 100)
        grandchild = psutil.Process(int(tapped.read_line()))
        agent = grandchild.parent()
        tapped.process.kill()
        until(lambda: not psutil.pid_exists(agent.pid) or agent.status() == psutil.STATUS_ZOMBIE)
        until(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE)

    trace = Trace.load(tmp_path / "t.ndjson")
    assert [entry.method for entry in trace.entries if entry.sender == "client"] == ["m"] * 100


def test_a_tap_without_any_standard_streams_keeps_them_apart_from_its_file(tmp_path):
    agent = python(
        "import sys; print('said'); print('told', file=sys.stderr); sys.exit(4 + len(sys.stdin.read()))"
    )
    command = [*RECORD, "-o", str(tmp_path / "t.ndjson"), "--", *agent]
    script = "import os, sys; os.closerange(0, 3); os.execv(sys.argv[1], sys.argv[1:])"

    done = subprocess.run([sys.executable, "-c", script, *command], timeout=PATIENCE)

    trace = Trace.load(tmp_path / "t.ndjson")
    assert done.returncode == trace.exit_code == 4
    assert ([entry.line for entry in trace.entries], trace.stderr) == ([b"said"], "told\n")


# Where the recording goes


def test_the_file_is_the_users_alone_and_named_after_the_time_and_the_agent(coupler_home):
    done = forked.run(
        [*RECORD, "--", sys.executable, str(ROOT / "examples" / "echo.py")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )

    (file,) = (coupler_home / "recordings").iterdir()
    assert file.name.endswith("-echo.ndjson") and file.name.startswith("20")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert done.stderr.decode() == f"coupler record: the recording is in {file}\n"
    first = json.loads(file.read_bytes().splitlines()[0])
    assert (first["format"], first["version"], first["label"]) == ("coupler.trace", 1, "echo")
    assert first["command"][-1].endswith("echo.py")


def test_a_recording_never_overwrites_another(tmp_path):
    for word in ("one", "two", "three"):
        done, _ = record(tmp_path / "t.ndjson", python(f"print({word!r})"), b"", "-q")
        assert done.stderr == b""

    names = ["t.ndjson", "t-2.ndjson", "t-3.ndjson"]
    texts = [Trace.load(tmp_path / name).entries[0].line for name in names]
    assert texts == [b"one", b"two", b"three"]


@table(
    ("arguments", "sentence"),
    [
        ([], "say how the agent is started, as in: coupler record -- my-agent --acp"),
        (["--"], "say how the agent is started"),
        (
            ["--outptu", "x", "agent"],
            "there is no option --outptu; there are --output, --no-mask and --quiet",
        ),
        (["-o"], "-o needs a file"),
        (["-o", "-", "agent"], "stdout belongs to the editor and the agent"),
        (["-o", "/no/such/directory/t.ndjson", "agent"], "cannot be written: No such file or directory"),
        (["-o", "/", "agent"], "/ is a directory: name a file in it"),
    ],
)
def test_wrong_usage_is_told_and_starts_nothing(arguments, sentence):
    done = forked.run(
        [*RECORD, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert done.stderr.startswith("coupler record: ") and sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_does_not_start_is_told(tmp_path):
    done, _ = record(tmp_path / "t.ndjson", ["no-such-agent-4711", "--acp"])
    assert done.returncode == 127
    assert b"The program 'no-such-agent-4711' was not found. Install it" in done.stderr


# When it cannot be written


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_costs_the_recording_and_not_the_session():
    done = forked.run(
        [*RECORD, "-o", "/dev/full", "--", *python(ECHO)],
        input=frame(method="m") * 1000,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (done.stdout, done.returncode) == (frame(method="m") * 1000, 0)
    assert b"the recording is not complete" in done.stderr


def test_a_disk_that_takes_nothing_delays_nothing(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with Tapped(tmp_path / "pipe", *python(ECHO)) as tapped:
        for _ in range(200):  # more than the pipes hold
            tapped.write(b"x" * 20_000 + b"\n")
            assert tapped.read(20_001) == b"x" * 20_000 + b"\n"
        tapped.process.stdin.close()
        assert tapped.process.wait(PATIENCE) == 0
        assert b"the recording is not complete" in tapped.process.stderr.read()


def test_the_session_goes_on_when_the_writing_process_dies(tmp_path):
    with Tapped(tmp_path / "t.ndjson", *python(ECHO)) as tapped:
        tapped.write(b"before\n")
        tapped.read_line()
        tapped.writer.kill()
        for _ in range(100):
            tapped.write(b"after\n")
            assert tapped.read_line() == b"after\n"
        out, code = tapped.leave()
    assert (out, code) == (b"", 0)


# What it says and hides


def test_secrets_are_masked_in_the_file_and_passed_on_as_they_are(tmp_path):
    said = frame(id=1, method="session/prompt", params={"prompt": [{"text": f"use {SECRET}"}], "n": 12345678})
    agent = python(f"{ECHO}\nos.write(2, b'token is {SECRET}\\n')")

    done, lines = record(
        tmp_path / "t.ndjson", agent, said + f"{SECRET} alone\n".encode(), env={"DEPLOY_TOKEN": SECRET}
    )

    assert done.stdout.count(SECRET.encode()) == 2
    assert f"token is {SECRET}".encode() in done.stderr
    text = (tmp_path / "t.ndjson").read_text()
    assert SECRET not in text
    assert text.count("[secret:DEPLOY_TOKEN]") >= 5
    marked = next(line for line in lines if "frame" in line)
    assert marked["masked"] is True
    assert marked["frame"]["params"] == {"prompt": [{"text": "use [secret:DEPLOY_TOKEN]"}], "n": 12345678}


def test_a_secret_that_comes_in_pieces_is_masked_too(tmp_path):
    pieces = ["say ", *SECRET, " now"]
    talk = b"".join(chunk(piece) for piece in pieces) + frame(id=1, result={"stopReason": "end_turn"})

    done, lines = record(tmp_path / "t.ndjson", python(ECHO), talk, env={"DEPLOY_TOKEN": SECRET})

    assert done.stdout == talk
    sent = [line["frame"] for line in lines if line.get("from") == "agent"]
    shown = "".join(each["params"]["update"]["content"]["text"] for each in sent[:-1])
    assert shown == f"say {SECRET[:3]}[secret:DEPLOY_TOKEN] now"
    assert len(sent) == len(pieces) + 1


def test_a_beginning_that_is_no_secret_after_all_is_kept(tmp_path):
    talk = b"".join(chunk(piece) for piece in (SECRET[:6], SECRET[6:9], "!")) + frame(id=1, result={})
    _, lines = record(tmp_path / "t.ndjson", python(ECHO), talk, env={"DEPLOY_TOKEN": SECRET})
    sent = [line["frame"] for line in lines if line.get("from") == "agent"]
    assert [each["params"]["update"]["content"]["text"] for each in sent[:-1]] == [
        SECRET[:6],
        SECRET[6:9],
        "!",
    ]


def test_secrets_that_frames_name_themselves_are_masked(tmp_path):
    servers = [{"name": "m", "headers": [{"name": "Authorization", "value": f"Bearer {SECRET}"}], "url": "u"}]
    talk = frame(id=1, method="session/new", params={"cwd": "/", "mcpServers": servers}) + chunk(SECRET)
    record(tmp_path / "t.ndjson", python(ECHO), talk)
    assert SECRET not in (tmp_path / "t.ndjson").read_text()


def test_secrets_are_kept_if_that_is_asked_for(tmp_path):
    said = frame(method="m", params={"text": SECRET})
    _, lines = record(tmp_path / "t.ndjson", python(ECHO), said, "--no-mask", env={"DEPLOY_TOKEN": SECRET})
    assert [line["frame"] for line in lines if "frame" in line] == [json.loads(said)] * 2


def test_frames_that_break_the_schema_are_marked(tmp_path):
    good = frame(id=1, method="session/prompt", params={"sessionId": "s", "prompt": []})
    bad = frame(id=2, method="session/prompt", params={"sessionId": 5, "prompt": []})
    agent = python(
        "import sys\n"
        "sys.stdin.read()\n"
        """print('{"jsonrpc":"2.0","id":1,"result":{"stopReason":"tired"}}')\n"""
        """print('{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}')\n"""
    )

    _, lines = record(tmp_path / "t.ndjson", agent, good + bad)

    marked = {(line["from"], line["frame"]["id"]): line.get("invalid") for line in lines if "frame" in line}
    assert marked["client", 1] is None and marked["agent", 2] is None
    assert "sessionId" in marked["client", 2][0] and "result" in marked["agent", 1][0]


# What it costs


@pytest.mark.usefixtures("unmeasured")
def test_nothing_heavy_is_imported_by_the_tap(tmp_path):
    done = forked.run(
        [
            sys.executable,
            "-X",
            "importtime",
            *RECORD[1:],
            "-q",
            "-o",
            tmp_path / "t.ndjson",
            "--",
            *python("pass"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "coupler.wire.tap" in imported
    assert not imported & {"asyncio", "click", "msgspec", "pathlib", "shutil", "logging", "coupler.schema"}


def test_a_frame_is_passed_on_at_once(tmp_path):
    """The promise is 1 ms in 99 of 100, as bench/record_latency.py measures; here other tests run beside."""
    times = []
    with Tapped(tmp_path / "t.ndjson", *python(ECHO)) as tapped:
        tapped.writer  # noqa: B018 - it is there, and imports what it needs
        for _ in range(300):
            began = time.perf_counter()
            tapped.write(frame(method="m"))
            tapped.process.stdout.read(1000)
            times.append(time.perf_counter() - began)
    assert sorted(times)[len(times) // 2] < 0.002

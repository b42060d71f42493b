"""EOF, SIGINT, SIGTERM, SIGHUP: one orderly end, within two seconds, whatever the agent's code does."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

import forked
from agent.steps import begin
from coupler.agent.startup import serve as serving
from coupler.agent.startup import shutdown
from coupler.agent.startup.shutdown import close_loop
from raw_client import COUPLER, PATIENCE, RawClient, serve

ECHO = """
async def agent(turn):
    await turn.say(turn.text)
"""
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
NEW = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}

PROMISE = 2.0
ALLOWANCE = 3.0
"""Seconds on top of the promise, for a machine that does other things as well."""


def end(client, how):
    if how == "EOF":
        client.close_stdin()
    else:
        client.process.send_signal(signal.Signals[how])


@pytest.mark.parametrize("newline", ["\n", ""])
def test_a_here_document_gets_all_its_answers(app, newline):
    document = "\n".join(map(json.dumps, (HELLO, NEW))) + newline

    ended = forked.run(
        [*COUPLER, "serve", app(ECHO)], input=document, capture_output=True, text=True, timeout=PATIENCE
    )

    first, second = map(json.loads, ended.stdout.splitlines())
    assert first["result"]["protocolVersion"] == 1
    assert second["result"]["sessionId"]
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_file_as_input_gets_all_its_answers(app, tmp_path):
    app(json.dumps(HELLO) + "\n" + json.dumps(NEW) + "\n", "input")
    with (tmp_path / "input").open() as file, (tmp_path / "output").open("w") as output:
        code = forked.run(
            [*COUPLER, "serve", app(ECHO)], stdin=file, stdout=output, timeout=PATIENCE
        ).returncode

    assert [json.loads(line)["id"] for line in (tmp_path / "output").read_text().splitlines()] == [1, 2]
    assert code == 0


def test_a_here_document_gets_its_answers_again_at_the_second_start(app):
    document = "\n".join(map(json.dumps, (HELLO, NEW))).encode()
    command = [*COUPLER, "serve", app(ECHO)]

    outputs = [
        forked.run(command, input=document, capture_output=True, timeout=PATIENCE).stdout for _ in range(2)
    ]

    first, second = ([json.loads(line) for line in output.splitlines()] for output in outputs)
    assert first[0] == second[0]
    assert [frame["id"] for frame in second] == [1, 2]


def test_no_input_at_all_is_an_orderly_end(app):
    ended = forked.run(
        [*COUPLER, "serve", app(ECHO)], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stdout) == (0, b"")


def test_errors_in_a_here_document_are_answered_too(app):
    document = b"nonsense\n" + json.dumps(HELLO).encode() + b'\n{"jsonrpc":"2.0","id":3,"method":"x"}'

    ended = forked.run([*COUPLER, "serve", app(ECHO)], input=document, capture_output=True, timeout=PATIENCE)

    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(answer["id"], "error" in answer) for answer in answers] == [(None, True), (1, False), (3, True)]
    assert ended.returncode == 0


@pytest.mark.parametrize("how", ["EOF", "SIGINT", "SIGTERM", "SIGHUP"])
def test_an_idle_agent_ends_at_once(start, how):
    client = start(ECHO)
    client.initialize()
    client.new_session()

    end(client, how)

    assert client.wait() == 0
    assert client.stderr == b""


def test_an_agent_under_nohup_does_not_end_with_its_terminal(app):
    with RawClient("nohup", *COUPLER, "serve", str(app(ECHO))) as client:
        client.initialize()
        client.process.send_signal(signal.SIGHUP)
        client.new_session()
        client.close_stdin()
        assert client.wait() == 0


@pytest.mark.parametrize("how", ["EOF", "SIGINT", "SIGTERM", "SIGHUP"])
def test_turns_are_cancelled_and_answered(converse, how):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            await turn.say("started")
            try:
                await asyncio.Event().wait()
            finally:
                await turn.say("cleaned up")
    """)
    other = client.new_session()
    requests = [begin(client, session), begin(client, other)]

    end(client, how)

    assert client.wait() == 0
    frames = client.rest()
    assert {frame["id"]: frame["result"]["stopReason"] for frame in frames if "id" in frame} == {
        request["id"]: "cancelled" for request in requests
    }
    said = [frame["params"]["update"]["content"]["text"] for frame in frames if "id" not in frame]
    assert said == ["cleaned up", "cleaned up"]


UNRULY = {
    "ignores the cancel": """
        import asyncio
        async def agent(turn):
            await turn.say("started")
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
    """,
    "ignores the cancel in a busy loop": """
        import asyncio
        async def agent(turn):
            await turn.say("started")
            while True:
                try:
                    await asyncio.sleep(0)
                except BaseException:
                    pass
    """,
    "blocks the loop when it is cancelled": """
        import asyncio, time
        async def agent(turn):
            await turn.say("started")
            try:
                await asyncio.sleep(60)
            finally:
                time.sleep(60)
    """,
    "hangs in a thread": """
        import threading
        def agent(turn):
            turn.say("started")
            threading.Event().wait()
    """,
    "left a thread that hangs": """
        import asyncio, threading
        async def agent(turn):
            threading.Thread(target=threading.Event().wait).start()
            await turn.say("started")
            await asyncio.Event().wait()
    """,
    "waits in the default executor": """
        import asyncio, time
        async def agent(turn):
            await turn.say("started")
            await asyncio.to_thread(time.sleep, 60)
    """,
    "left a background task": """
        import asyncio
        tasks = []
        async def forever():
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
        async def agent(turn):
            tasks.append(asyncio.create_task(forever()))
            await turn.say("started")
    """,
}


@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
@pytest.mark.parametrize("behaviour", UNRULY)
def test_the_process_is_gone_in_time_even_if_its_code(app, behaviour, how):
    with serve(app(UNRULY[behaviour])) as client:
        client.initialize()
        begin(client, client.new_session())

        began = time.monotonic()
        end(client, how)

        assert client.wait() == 0
        assert time.monotonic() - began < PROMISE + ALLOWANCE


@pytest.mark.parametrize("bytes_read", [0, 100_000])
def test_a_client_that_closes_its_reading_end_ends_the_agent(app, bytes_read):
    path = app("""
        from coupler import serve
        from coupler.events import Text
        def factory(session):
            async def agent(turn): ...
            for _ in range(1000):
                session.outlet.ledger.announce("x" * 1000)
            return agent
        serve(factory=factory)
    """)
    process = forked.Popen(
        [*COUPLER, "serve", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        process.stdin.write(b"".join(json.dumps(frame).encode() + b"\n" for frame in (HELLO, NEW)))
        process.stdin.flush()
        assert len(process.stdout.read(bytes_read)) == bytes_read
        process.stdout.close()

        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == b""


def test_the_process_is_gone_in_time_even_if_its_code_blocks_the_loop(app, tmp_path):
    os.mkfifo(tmp_path / "blocking")
    path = app("""
        import time
        async def agent(turn):
            open("blocking", "w").close()
            time.sleep(60)
    """)
    for how in ("EOF", "SIGTERM"):
        with serve(path, cwd=tmp_path) as client:
            client.initialize()
            client.send(client.prompt_request(client.new_session(), ""))
            (tmp_path / "blocking").read_text()

            began = time.monotonic()
            end(client, how)

            assert client.wait() == 0
            assert time.monotonic() - began < PROMISE + ALLOWANCE


def test_a_client_that_is_gone_before_the_remembered_answer_is_no_accident(app):
    path = app(ECHO)
    line = json.dumps(HELLO).encode()
    forked.run([*COUPLER, "serve", path], input=line, capture_output=True, timeout=PATIENCE)
    reading, writing = os.pipe()
    os.close(reading)

    ended = forked.run(
        [*COUPLER, "serve", path],
        input=line + b"\n",
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
    )

    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


SLEEPER = '[sys.executable, "-c", "import time; time.sleep(60)"]'
STUBBORN = (
    '[sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"'
    ' "print(flush=True); time.sleep(60)"]'
)
WITH_CHILDREN = {
    "left behind": f"""
        import subprocess, sys
        async def agent(turn):
            child = subprocess.Popen({SLEEPER}, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            await turn.say(str(child.pid))
    """,
    "awaited": f"""
        import asyncio, sys
        async def agent(turn):
            child = await asyncio.create_subprocess_exec(*{SLEEPER}, start_new_session=True)
            await turn.say(str(child.pid))
            await child.wait()
    """,
    "of a plain function": f"""
        import subprocess, sys
        def agent(turn):
            child = subprocess.Popen({SLEEPER})
            turn.say(str(child.pid))
            child.wait()
    """,
    "that ignore SIGTERM": f"""
        import subprocess, sys
        async def agent(turn):
            child = subprocess.Popen({STUBBORN}, stdout=subprocess.PIPE)
            child.stdout.readline()
            await turn.say(str(child.pid))
    """,
    "of code that blocks the loop": f"""
        import asyncio, subprocess, sys, time
        async def agent(turn):
            child = subprocess.Popen({SLEEPER})
            await turn.say(str(child.pid))
            asyncio.get_running_loop().call_later(0.1, time.sleep, 60)
            await asyncio.Event().wait()
    """,
}


@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
@pytest.mark.parametrize("children", WITH_CHILDREN)
def test_no_children_of_the_agent_outlive_it(app, children, how):
    with serve(app(WITH_CHILDREN[children])) as client:
        client.initialize()
        client.send(client.prompt_request(client.new_session(), ""))
        child = psutil.Process(int(client.read()["params"]["update"]["content"]["text"]))
        began = time.monotonic()
        end(client, how)
        assert client.wait() == 0
        assert time.monotonic() - began < PROMISE + ALLOWANCE
        assert_is_gone(child)


def assert_is_gone(process):
    """Dead, or a zombie that its new parent has not looked at."""
    gone, _ = psutil.wait_procs([process], timeout=1)
    try:
        assert gone or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return


def test_children_that_a_script_had_before_it_served_are_left_to_it(app):
    script = app(f"""
        import subprocess, sys
        from coupler import serve
        async def agent(turn): ...
        child = subprocess.Popen({SLEEPER})
        serve(agent)
        sys.stderr.write(f"afterwards {{child.poll()}}")
        child.kill()
    """)
    with RawClient(sys.executable, str(script)) as client:
        client.initialize()
        client.close_stdin()
        assert client.wait() == 0
        assert client.stderr == b"afterwards None"


def test_an_idle_worker_thread_does_not_keep_a_script_from_going_on(app):
    script = app("""
        import asyncio, atexit, sys
        from coupler import serve
        async def agent(turn):
            await asyncio.to_thread(int)
        atexit.register(lambda: sys.stderr.write("at exit"))
        serve(agent)
        sys.stderr.write("afterwards, ")
    """)
    with RawClient(sys.executable, str(script)) as client:
        client.initialize()
        client.prompt(client.new_session())
        client.close_stdin()
        assert client.wait() == 0
        assert client.stderr == b"afterwards, at exit"


SLOW_IMPORT = """
import os, time
async def agent(turn): ...
if os.path.exists("importing"):
    open("importing", "w").close()
    time.sleep(60)
"""


@pytest.mark.parametrize("start", ["first", "later"])
@pytest.mark.parametrize("how", ["EOF", "SIGINT", "SIGTERM", "SIGHUP"])
def test_an_import_without_end_ends_with_its_client(app, tmp_path, start, how):
    path = app(SLOW_IMPORT)
    if start == "later":
        forked.run([*COUPLER, "serve", path], stdin=subprocess.DEVNULL, cwd=tmp_path, timeout=PATIENCE)
    os.mkfifo(tmp_path / "importing")
    with serve(path, cwd=tmp_path) as client:
        if start == "later":
            client.initialize()
        (tmp_path / "importing").read_text()

        began = time.monotonic()
        end(client, how)

        assert client.wait() == 0
        assert time.monotonic() - began < PROMISE + ALLOWANCE
        assert client.stderr == b""


@pytest.mark.parametrize("is_answer_wanted", [True, False])
def test_an_import_is_waited_for_only_while_somebody_wants_an_answer(monkeypatch, is_answer_wanted):
    moments = []
    monkeypatch.setattr(serving, "exit_soon", moments.append)
    reading, writing = os.pipe()

    serving._exit_while_loading(is_answer_wanted=is_answer_wanted, write_fd=writing)
    os.close(reading)
    serving._exit_while_loading(is_answer_wanted=is_answer_wanted, write_fd=writing)

    os.close(writing)
    assert moments == [
        serving.LOADING_TIMEOUT if is_answer_wanted else serving.WATCHDOG_DELAY,
        serving.WATCHDOG_DELAY,
    ]


def test_prints_of_the_agent_are_not_lost_at_the_end(app):
    with serve(
        app("""
        import threading
        async def agent(turn):
            threading.Thread(target=threading.Event().wait).start()
            print("the last words")
    """)
    ) as client:
        client.initialize()
        client.prompt(client.new_session())
        client.close_stdin()
        assert client.wait() == 0
        assert b"the last words" in client.stderr


def test_a_second_signal_does_no_harm(converse):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            await turn.say("started")
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.1)
                await turn.say("cleaned up")
    """)
    begin(client, session)

    for _ in range(3):
        end(client, "SIGINT")
    end(client, "SIGTERM")

    assert client.wait() == 0
    said = [frame for frame in client.rest() if "method" in frame]
    assert [frame["params"]["update"]["content"]["text"] for frame in said] == ["cleaned up"]


def test_prompts_after_the_signal_are_refused(converse):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            await turn.say("started")
            try:
                await asyncio.Event().wait()
            finally:
                await turn.say("ending")
                await asyncio.sleep(0.3)
    """)
    other = client.new_session()
    begin(client, session)
    end(client, "SIGTERM")
    client.read_until(lambda frame: frame["params"]["update"]["content"]["text"] == "ending")

    answer = client.call("session/prompt", {"sessionId": other, "prompt": []})

    assert answer["error"]["data"]["reason"] == "shutting_down"
    assert client.wait() == 0


def test_a_script_that_serves_goes_on_after_it_as_if_nothing_had_been(app):
    script = app("""
        import signal, sys, threading
        from coupler import serve
        async def agent(turn): ...
        handlers = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
        serve(agent)
        assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == handlers
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()  # one that was not called off would end the script here
        sys.stderr.write("afterwards")
    """)
    with RawClient(sys.executable, str(script)) as client:
        client.initialize()
        client.close_stdin()
        assert client.wait() == 0
        assert client.stderr == b"afterwards"


@pytest.mark.parametrize(
    "behaviour", ["a task that does not let go", "a thread that does not let go", "nothing"]
)
def test_what_does_not_let_go_is_left_behind(monkeypatch, behaviour):
    released = threading.Event()
    exits, tasks = [], []
    monkeypatch.setattr(os, "_exit", exits.append)
    # Other tests may have left threads in this process, which are none of the agent's.
    monkeypatch.setattr(shutdown, "_before", shutdown.ProcessBaseline(may_have_children=True))
    loop = asyncio.new_event_loop()

    async def stubborn():
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=released.wait)
    if behaviour == "a task that does not let go":
        tasks.append(loop.create_task(stubborn()))
        loop.run_until_complete(asyncio.sleep(0))
    elif behaviour == "a thread that does not let go":
        thread.start()

    close_loop(loop)

    released.set()
    if behaviour == "a thread that does not let go":
        thread.join()
    assert exits == ([] if behaviour == "nothing" else [0])
    assert loop.is_closed()


def test_a_script_may_serve_from_another_thread(app):
    script = app("""
        import threading
        from coupler import serve
        async def agent(turn): ...
        thread = threading.Thread(target=serve, args=[agent])
        thread.start()
        thread.join()
    """)
    with RawClient(sys.executable, str(script)) as client:
        client.initialize()
        assert client.new_session()
        client.close_stdin()
        assert client.wait() == 0

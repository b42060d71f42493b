"""The commands of a turn: where they run, what is seen of them, and that none outlives its turn."""

import json
import sys
import time

import psutil
import pytest

from agent.steps import (
    OBEDIENT,
    cancel,
    end_of,
    error_of,
    final_call,
    text_of,
    tool_updates,
    update_of,
)
from coder.waiting import until
from raw_client import texts
from runtime.test_child import gone_within, is_running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these commands are POSIX programs")

# Commands for `python -c`, which say when they are ready, so that no test has to guess.
DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid" + f" {os.getpid()} " + "pid", flush=True)
time.sleep(60)
"""
FAMILY = """
import os, subprocess, sys, time
program = "import os, time; print('pid', os.getpid(), 'pid', flush=True); time.sleep(60)"
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", program])
time.sleep(60)
"""
STRAY = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    print("pid" + f" {os.getpid()} " + "pid", flush=True)
time.sleep(60)
"""
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("bye") or 7))
print("ready", flush=True)
time.sleep(60)
"""

# Runs the Python of the prompt in a process of its own, and says how it ended.
AGENT = """
import sys
async def agent(turn):
    finished = await turn.terminal.run(sys.executable, "-c", turn.text)
    await turn.say(repr(tuple(finished)))
"""


def ended(client, session, statement):
    """How the command ended that this expression runs, in a turn of its own."""
    updates, answer = client.prompt(session, f"import sys\nawait turn.say(repr(tuple({statement})))")
    assert answer.get("result") == {"stopReason": "end_turn"}, answer
    return eval(texts(updates)), updates


def shell(script, options=""):
    return f"await turn.terminal.run('/bin/sh', '-c', {script!r}{options})"


def start_until_pids(client, session, program, count=1):
    """Begin a turn that runs the program, and wait for the numbers of its processes."""
    request = client.prompt_request(session, program)
    client.send(request)
    while True:
        *_, frame = client.read_until(lambda frame: "pid" in json.dumps(frame))
        words = text_of(update_of(frame)).split("pid")
        pids = [int(word) for word in words if word.strip().isdigit()]
        if len(pids) == count:
            return request, pids


class TestRunning:
    def test_it_tells_how_the_command_ended_and_what_it_wrote(self, share):
        client, session = share(OBEDIENT)

        finished, _ = ended(client, session, shell("echo out; echo err >&2; exit 3"))

        assert finished == (3, None, "out\nerr\n", False, False)

    def test_a_signal_is_named(self, share):
        client, session = share(OBEDIENT)
        assert ended(client, session, shell("kill -KILL $$"))[0][:2] == (None, "SIGKILL")

    def test_it_runs_in_the_sessions_directory(self, share, tmp_path):
        client, _ = share(OBEDIENT)
        (tmp_path / "below").mkdir()
        session = client.new_session(str(tmp_path))

        assert ended(client, session, shell("pwd -P"))[0][2].strip() == str(tmp_path.resolve())
        below = ended(client, session, shell("pwd -P", ", cwd='below'"))[0][2].strip()
        assert below == str((tmp_path / "below").resolve())
        assert ended(client, session, shell("pwd", ", cwd='/'"))[0][2] == "/\n"

    def test_it_runs_in_the_sessions_environment(self, share):
        client, session = share(OBEDIENT)
        script = "echo $SESSION $OWN ${GONE-none} ${HOME-none}"
        statement = shell(script, ", env={'OWN': 'mine', 'HOME': None}")

        client.prompt(session, "turn.session.env.update(SESSION='a', OWN='theirs')")

        assert ended(client, session, statement)[0][2] == "a mine none none\n"
        assert ended(client, client.new_session(), shell("echo ${SESSION-none}"))[0][2] == "none\n"

    def test_without_input_there_is_nothing_to_read(self, share):
        client, session = share(OBEDIENT)
        assert ended(client, session, "await turn.terminal.run('cat')")[0] == (0, None, "", False, False)

    @pytest.mark.parametrize("given", ["'é\\n'", "'é\\n'.encode()"])
    def test_it_reads_its_input(self, share, given):
        client, session = share(OBEDIENT)
        assert ended(client, session, f"await turn.terminal.run('cat', input={given})")[0][2] == "é\n"

    def test_words_are_words_and_no_shell_looks_at_them(self, share):
        client, session = share(OBEDIENT)
        finished, _ = ended(client, session, "await turn.terminal.run('echo', '$HOME', 'a  b', ';', '*')")
        assert finished[2] == "$HOME a  b ; *\n"

    def test_of_long_output_the_caller_gets_the_end(self, share):
        client, session = share(OBEDIENT)

        finished, updates = ended(client, session, shell("seq 100000", ", output_limit=12"))

        assert finished == (0, None, "100000\n", True, False)
        text = text_of(final_call(tool_updates(updates)))
        assert text.startswith("1\n2\n")
        assert text.endswith("99999\n100000\n")
        assert "left out" in text

    def test_who_listens_hears_all_of_it_as_it_was_written(self, share):
        client, session = share(OBEDIENT)
        script = shell(r"seq 100000; printf '\377'", ", output_limit=12, heard=heard.append")
        said = "len(b''.join(heard)), b''.join(heard)[:4], b''.join(heard)[-8:]"

        updates, _ = client.prompt(session, f"heard = []\n{script}\nawait turn.say(repr(({said})))")

        assert eval(texts(updates)) == (588_896, b"1\n2\n", b"100000\n\xff")

    def test_bytes_that_are_no_text_are_replaced_and_characters_are_not_torn(self, share):
        client, session = share(OBEDIENT)
        script = r"printf '\303'; sleep 0.1; printf '\251 \377 \303'"

        finished, updates = ended(client, session, shell(script))

        assert finished[2] == "é \ufffd \ufffd"
        assert text_of(final_call(tool_updates(updates))) == "é \ufffd \ufffd"

    def test_after_its_time_it_is_ended(self, share):
        client, session = share(OBEDIENT)
        statement = f"await turn.terminal.run(sys.executable, '-c', {POLITE!r}, timeout=1)"

        finished, updates = ended(client, session, statement)

        assert finished == (7, None, "ready\nbye\n", False, True)
        call = final_call(tool_updates(updates))
        assert (call["status"], text_of(call)) == ("failed", "ready\nbye\n\nit was ended after its time")

    def test_a_command_that_closes_its_output_is_waited_for(self, share):
        client, session = share(OBEDIENT)
        assert ended(client, session, shell("exec >&- 2>&-; sleep 0.3; exit 4"))[0][0] == 4

    def test_what_it_leaves_running_neither_holds_it_up_nor_outlives_it(self, share):
        client, session = share(OBEDIENT)
        start = time.monotonic()

        finished, _ = ended(client, session, shell("sleep 60 & echo $!"))

        assert time.monotonic() - start < 10
        assert gone_within(5, int(finished[2]))

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("run('no-such-program')", "The program 'no-such-program' was not found"),
            ("run('./no-such-program')", "no-such-program' does not exist"),
            ("run('true', cwd='no/such/directory')", "no/such/directory' does not exist"),
            ("run('true', cwd='/dev/null')", "'/dev/null' is not a directory"),
            ("run('\\0true')", "holds a NUL character"),
            ("run('true', 'a\\0b')", "holds a NUL character"),
            ("run('')", "The command is empty"),
            ("run('true', env={'A=B': 'c'})", "cannot be the name of an environment variable"),
            ("run('true', input=5)", "a command's input is text or bytes, not int"),
            ("run('true', output_limit=-1)", "an output limit is a number of bytes from 0 on, not -1"),
            ("run('true', timeout=float('nan'))", "a timeout is a number of seconds from 0 on, not nan"),
        ],
    )
    def test_what_cannot_be_started_says_why(self, share, statement, message):
        client, session = share(OBEDIENT)

        updates, answer = client.prompt(session, f"await turn.terminal.{statement}")

        assert error_of(answer) == (-32603, "agent_failed")
        assert message in answer["error"]["message"]
        for call in tool_updates(updates)[-1:]:
            assert call["status"] == "failed"


class TestShowing:
    def test_it_opens_a_call_if_there_is_none(self, share):
        client, session = share(OBEDIENT)

        _, updates = ended(client, session, "await turn.terminal.run('printf', 'a b')")

        call = final_call(tool_updates(updates))
        assert (call["title"], call["kind"], call["status"]) == ("printf 'a b'", "execute", "completed")
        assert call["rawInput"] == {"command": "printf 'a b'"}
        assert call["rawOutput"] == {"exitCode": 0, "signal": None}
        assert text_of(call) == "a b"

    def test_it_shows_in_the_innermost_open_call(self, share):
        client, session = share(OBEDIENT)

        updates, _ = client.prompt(
            session,
            "async with turn.tool('Outer', id='o' + turn.session.id):\n"
            "    async with turn.tool('Inner', id='i' + turn.session.id):\n"
            "        await turn.terminal.run('echo', 'inside')\n"
            "    await turn.terminal.run('echo', 'outside')\n",
        )

        assert shown_by_id(updates) == {f"i{session}": "inside\n", f"o{session}": "outside\n"}

    def test_parallel_tasks_show_in_their_own_calls(self, share):
        client, session = share(OBEDIENT)

        updates, _ = client.prompt(
            session,
            "import asyncio\n"
            "async def work(i):\n"
            "    async with turn.tool(f'Work {i}', id=f'{i}{turn.session.id}'):\n"
            "        await turn.terminal.run('/bin/sh', '-c', f'sleep 0.1; echo {i}')\n"
            "async with turn.tool('All', id='all' + turn.session.id):\n"
            "    await asyncio.gather(*map(work, range(4)), turn.terminal.run('echo', 'all'))\n",
        )

        expected = {f"{i}{session}": f"{i}\n" for i in range(4)}
        assert shown_by_id(updates) == {**expected, f"all{session}": "all\n"}

    def test_calls_that_end_in_another_order_are_no_problem(self, share):
        client, session = share(OBEDIENT)

        updates, answer = client.prompt(
            session,
            "one = await turn.tool('One', id='1' + turn.session.id).__aenter__()\n"
            "two = await turn.tool('Two', id='2' + turn.session.id).__aenter__()\n"
            "await one.__aexit__(None, None, None)\n"
            "await turn.terminal.run('echo', 'two')\n"
            "await two.__aexit__(None, None, None)\n"
            "await turn.terminal.run('echo', 'alone')\n",
        )

        assert answer["result"] == {"stopReason": "end_turn"}
        shown = shown_by_id(updates)
        assert shown.pop(f"2{session}") == "two\n"
        assert [*shown.values()] == ["alone\n"]

    def test_output_is_seen_while_the_command_runs(self, converse):
        client, session = converse(AGENT)
        request, _ = start_until_pids(client, session, DEAF.replace("SIG_IGN", "SIG_DFL"))

        client.send(cancel(session))

        updates, answer = end_of(client, request)
        assert answer["result"] == {"stopReason": "cancelled"}
        assert updates[-1]["status"] == "failed"
        assert updates[-1]["_meta"] == {"coupler": {"outcome": "cancelled"}}


def shown_by_id(updates):
    return {update["toolCallId"]: text_of(update) for update in tool_updates(updates) if text_of(update)}


class TestEnding:
    def test_a_command_that_heeds_sigterm_is_gone_at_once(self, converse):
        client, session = converse(AGENT)
        request, pids = start_until_pids(client, session, DEAF.replace("SIG_IGN", "SIG_DFL"))
        start = time.monotonic()

        client.send(cancel(session))

        assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}
        assert time.monotonic() - start < 2
        assert not is_running(pids[0])

    def test_a_command_that_ignores_sigterm_is_gone_within_six_seconds(self, converse):
        client, session = converse(AGENT)
        request, pids = start_until_pids(client, session, DEAF)
        start = time.monotonic()

        client.send(cancel(session))

        assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}
        assert not is_running(pids[0])
        assert 4.9 < time.monotonic() - start < 6

    def test_what_it_started_is_gone_too(self, converse):
        client, session = converse(AGENT)
        request, pids = start_until_pids(client, session, FAMILY, 3)

        client.send(cancel(session))

        assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}
        assert not any(map(is_running, pids))
        assert psutil.Process(client.process.pid).children(recursive=True) == []

    def test_what_left_its_group_is_gone_too(self, converse):
        client, session = converse(AGENT.replace("finished", "turn.grace = 0.3; finished", 1))
        request, pids = start_until_pids(client, session, STRAY)

        client.send(cancel(session))

        assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}
        assert not is_running(pids[0])

    def test_when_the_client_leaves_it_is_gone_within_two_seconds(self, converse):
        client, session = converse(AGENT)
        _, pids = start_until_pids(client, session, DEAF)
        start = time.monotonic()

        client.close_stdin()

        assert client.wait() == 0
        assert time.monotonic() - start < 2.5
        assert gone_within(1, pids[0])

    def test_a_turn_that_ends_while_a_task_still_runs_one_ends_it(self, converse):
        client, session = converse("""
            import asyncio, sys
            tasks = []
            async def agent(turn):
                if turn.text == "wait":
                    (outcome,) = await asyncio.gather(*tasks, return_exceptions=True)
                    await turn.say(type(outcome).__name__)
                else:
                    program = "while true; do echo $$; sleep 0.05; done"
                    tasks.append(asyncio.create_task(turn.terminal.run("/bin/sh", "-c", program)))
                    await asyncio.sleep(0.2)
        """)
        client.prompt(session)

        assert texts(client.prompt(session, "wait")[0]) == "CancelledError"
        assert psutil.Process(client.process.pid).children() == []

    @pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
    def test_neither_finished_nor_cancelled_commands_leave_anything(self, converse, coupler_home):
        client, session = converse("""
            import asyncio, os, threading
            async def agent(turn):
                if turn.text == "count":
                    await asyncio.sleep(0.1)
                    descriptors, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
                    await turn.say(f"{descriptors} {tasks} {threading.active_count()}")
                elif turn.text == "finish":
                    await turn.terminal.run("cat", input="x")
                    await turn.terminal.run("true", timeout=5)
                else:
                    asyncio.get_running_loop().call_later(0.02, asyncio.current_task().cancel)
                    await turn.terminal.run("sleep", "60")
        """)
        for _ in range(20):
            client.prompt(session, "finish")
        # Then the store's thread has done something, and has its connection.
        until(lambda: (coupler_home / "coupler.db-wal").stat().st_size == 0)
        before = texts(client.prompt(session, "count")[0])

        for _ in range(20):
            client.prompt(session, "finish")
            client.prompt(session, "cancel")

        assert texts(client.prompt(session, "count")[0]) == before
        assert psutil.Process(client.process.pid).children() == []

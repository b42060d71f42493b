"""Commands in the editor's terminals: what the editor is asked, what comes back, and that all are freed."""

import json
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest

from agent.steps import (
    OBEDIENT,
    asks,
    cancel,
    error_of,
    final_call,
    leave,
    text_of,
    tool_updates,
)
from raw_client import is_answer_to, texts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these commands are POSIX programs")

TERMINAL = {"terminal": True}
EVERYTHING = {"create", "wait_for_exit", "output", "kill", "release"}


class Terminals:
    """An editor with terminals: it answers the methods in `answers` at once, and keeps an account."""

    def __init__(self, client, session, answers=EVERYTHING):
        self.client, self.session = client, session
        self.answers = set(answers)
        self.replies = {
            "wait_for_exit": {"result": {"exitCode": 0}},
            "output": {"result": {"output": "said\n", "truncated": False}},
        }
        self.asked = []
        self.unanswered = []
        self.taken_back = []
        self.created = []
        self.released = Counter()
        self.updates = []

    def prompt(self, text):
        """Send a prompt and serve the terminals until its answer."""
        return self.serve_until_answered(self.begin(text))

    def begin(self, text=""):
        request = self.client.prompt_request(self.session, text)
        self.client.send(request)
        return request

    def serve_until_answered(self, request):
        return self.serve_until(lambda frame: is_answer_to(frame, request["id"]))

    def serve_until_asked(self, method):
        return self.serve_until(asks(f"terminal/{method}"))

    def serve_until(self, matches):
        while True:
            frame = self.client.read()
            self.take(frame)
            if matches(frame):
                return frame

    def take(self, frame):
        method = frame.get("method", "")
        if method == "session/update":
            self.updates.append(frame["params"]["update"])
        elif method == "$/cancel_request":
            self.taken_back.append(frame["params"]["requestId"])
        elif method.startswith("terminal/"):
            self._asked_for(method.removeprefix("terminal/"), frame)

    def answer_rest(self):
        """Answer what was left unanswered so far."""
        rest, self.unanswered = self.unanswered, []
        for method, frame in rest:
            self.answer(method, frame)

    def answer(self, method, frame):
        if method == "create" and "create" not in self.replies:
            self.created.append(f"term-{len(self.created)}")
            reply = {"result": {"terminalId": self.created[-1]}}
        else:
            reply = self.replies.get(method, {"result": {}})
        self.client.send({"id": frame["id"], **reply})

    def methods(self):
        return [method for method, _ in self.asked]

    def all_released(self):
        """Each once, and none that was never made."""
        return self.released == Counter(self.created)

    def _asked_for(self, method, frame):
        params = frame["params"]
        self.asked.append((method, params))
        if method == "release":
            self.released[params["terminalId"]] += 1
        elif method != "create":
            assert params["terminalId"] in self.created
            assert params["terminalId"] not in self.released or method == "kill", "used after its release"
        if method in self.answers:
            self.answer(method, frame)
        else:
            self.unanswered.append((method, frame))


@pytest.fixture
def editor(share):
    """An editor with terminals; its agent does what the prompt says."""

    def start(**capabilities):
        return Terminals(*share(OBEDIENT, **{**TERMINAL, **capabilities}))

    return start()


def finished(editor, statement):
    answer = editor.prompt(f"await turn.say(repr(tuple(await turn.terminal.run({statement}))))")
    assert answer.get("result") == {"stopReason": "end_turn"}, answer
    return eval(texts(editor.updates))


class TestRunning:
    def test_the_editor_runs_it_and_the_result_is_the_same(self, editor):
        assert finished(editor, "'echo', 'said'") == (0, None, "said\n", False, False)

        assert editor.methods() == ["create", "wait_for_exit", "output", "release"]
        assert editor.all_released()

    def test_the_command_comes_in_words_with_directory_and_limit(self, share, tmp_path):
        client, _ = share(OBEDIENT, **TERMINAL)
        (tmp_path / "below").mkdir()
        editor = Terminals(client, client.new_session(str(tmp_path)))

        finished(editor, "'printf', '$HOME', 'a b', cwd='below', output_limit=99")

        assert editor.asked[0][1] == {
            "sessionId": editor.session,
            "command": "printf",
            "args": ["$HOME", "a b"],
            "env": [],
            "cwd": str(tmp_path / "below"),
            "outputByteLimit": 99,
        }

    def test_only_what_differs_in_the_environment_is_sent(self, editor):
        editor.prompt("turn.session.env.update(SESSION='a', OWN='theirs')")

        finished(editor, "'true', env={'OWN': 'mine', 'ALSO': 'b'}")

        env = [(variable["name"], variable["value"]) for variable in editor.asked[0][1]["env"]]
        assert sorted(env) == [("ALSO", "b"), ("OWN", "mine"), ("SESSION", "a")]

    @pytest.mark.parametrize(
        ("ending", "expected"),
        [
            ({"exitCode": 3}, (3, None)),
            ({"exitCode": 3, "signal": None}, (3, None)),
            ({"exitCode": None, "signal": "SIGKILL"}, (None, "SIGKILL")),
            ({"exitCode": 0, "signal": "SIGTERM"}, (None, "SIGTERM")),
            ({"exitCode": 0, "signal": ""}, (0, None)),
            ({"exitCode": -1}, (None, None)),
            ({"exitCode": "3"}, (None, None)),
            ({}, (None, None)),
            (None, (None, None)),
        ],
    )
    def test_it_tells_how_the_command_ended(self, editor, ending, expected):
        editor.replies["wait_for_exit"] = {"result": ending}
        assert finished(editor, "'true'")[:2] == expected

    @pytest.mark.parametrize("ending", [None, {}, {"exitCode": None}, {"exitCode": "7"}])
    def test_what_the_wait_does_not_tell_comes_with_the_output(self, editor, ending):
        editor.replies["wait_for_exit"] = {"result": ending}
        status = {"exitCode": 7, "signal": None}
        editor.replies["output"] = {"result": {"output": "", "truncated": False, "exitStatus": status}}
        assert finished(editor, "'true'")[:2] == (7, None)

    def test_truncated_output_is_said_to_be(self, editor):
        editor.replies["output"] = {"result": {"output": "end", "truncated": True}}
        assert finished(editor, "'true'")[2:4] == ("end", True)

    def test_an_editor_that_does_not_heed_the_limit_is_cut_short(self, editor):
        editor.replies["output"] = {"result": {"output": "one\ntwo é\n", "truncated": False}}
        assert finished(editor, "'true', output_limit=8")[2:4] == ("two é\n", True)

    def test_after_its_time_it_is_killed_and_what_it_wrote_is_taken(self, editor):
        editor.answers.remove("wait_for_exit")
        status = {"exitCode": None, "signal": "SIGTERM"}
        editor.replies["output"] = {"result": {"output": "so far", "truncated": False, "exitStatus": status}}

        assert finished(editor, "'sleep', '60', timeout=0.1") == (None, "SIGTERM", "so far", False, True)

        assert editor.methods() == ["create", "wait_for_exit", "kill", "output", "release"]
        assert editor.all_released()
        assert len(editor.taken_back) == 1

    def test_a_plain_function_has_it_too(self, converse):
        client, session = converse("def agent(turn): turn.say(turn.terminal.run('true').output)", **TERMINAL)
        editor = Terminals(client, session)

        editor.prompt("")

        assert texts(editor.updates) == "said\n"
        assert editor.all_released()


class TestShowing:
    def test_the_terminal_is_in_the_call_before_the_command_is_waited_for(self, editor):
        editor.answers.remove("wait_for_exit")
        request = editor.begin("await turn.terminal.run('sleep', '1')")

        editor.serve_until_asked("wait_for_exit")

        call = final_call(editor.updates)
        assert (call["title"], call["kind"], call["status"]) == ("sleep 1", "execute", "in_progress")
        assert call["content"] == [{"type": "terminal", "terminalId": "term-0"}]
        editor.answer_rest()
        editor.serve_until_answered(request)
        call = final_call(editor.updates)
        assert call["status"] == "completed"
        assert call["content"] == [{"type": "terminal", "terminalId": "term-0"}]
        assert call["rawOutput"] == {"exitCode": 0, "signal": None}

    def test_it_is_in_the_innermost_open_call_at_once_also_after_other_output(self, editor):
        editor.prompt(
            "async with turn.tool('Outer'):\n"
            "    async with turn.tool('Inner') as call:\n"
            "        await call.output('first')\n"
            "        await turn.terminal.run('true')\n"
            "        await call.output('last')\n"
        )

        shown = [update["content"] for update in tool_updates(editor.updates) if update.get("content")]
        terminal = {"type": "terminal", "terminalId": "term-0"}
        assert [[part["type"] for part in content] for content in shown[:2]] == [
            ["content"],
            ["content", "terminal"],
        ]
        assert shown[-1][1] == terminal
        assert [part["type"] for part in shown[-1]] == ["content", "terminal", "content"]

    def test_a_loaded_session_shows_the_output_because_the_terminal_is_gone(self, editor):
        finished(editor, "'echo', 'said'")
        client = editor.client
        client.call("session/close", {"sessionId": editor.session})

        request = client.request("session/load", {"sessionId": editor.session, "cwd": "/", "mcpServers": []})
        client.send(request)
        frames = client.read_until(lambda frame: is_answer_to(frame, request["id"]))

        replayed = [frame["params"]["update"] for frame in frames if "method" in frame]
        assert text_of(final_call(tool_updates(replayed))) == "said\n"
        assert "term-0" not in json.dumps(replayed)


class TestWhatATerminalCannotDo:
    @pytest.mark.parametrize(
        "statement",
        [
            "'cat', input='said\\n'",
            "'/bin/sh', '-c', 'echo said', env={'HOME': None}",
            "'/bin/sh', '-c', 'echo said', 'bytes that are no UTF-8: \\udcff'",
            "'/bin/sh', '-c', 'echo said', env={'BYTES': '\\udcff'}",
        ],
    )
    def test_input_removed_variables_and_bytes_that_are_no_text_run_here(self, editor, statement):
        assert finished(editor, statement) == (0, None, "said\n", False, False)
        assert editor.asked == []

    def test_an_editor_that_does_not_know_terminals_after_all_is_not_needed(self, editor):
        editor.replies["create"] = {"error": {"code": -32601, "message": "Method not found"}}

        assert finished(editor, "'echo', 'here'")[2] == "here\n"

        assert editor.methods() == ["create"]
        assert text_of(final_call(tool_updates(editor.updates))) == "here\n"

    def test_an_editor_that_offers_none_is_never_asked(self, share):
        editor = Terminals(*share(OBEDIENT, terminal=False))
        assert finished(editor, "'echo', 'here'")[2] == "here\n"
        assert editor.asked == []

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("'\\0true'", "holds a NUL character"),
            ("''", "The command is empty"),
            ("'true', env={'A=B': 'c'}", "cannot be the name of an environment variable"),
            ("'true', env={'A': 5}", "The environment variable A must be text"),
            ("'true', cwd='a\\0b'", "holds a NUL character"),
            ("'true', input=5", "a command's input is text or bytes, not int"),
            ("'true', output_limit=-1", "an output limit is a number of bytes from 0 on, not -1"),
            ("'true', output_limit=1.5", "'float' object cannot be interpreted as an integer"),
            (
                "'true', output_limit=2**64",
                "an output limit is a number of bytes from 0 on, not 18446744073709551616",
            ),
            ("'true', timeout=-1", "a timeout is a number of seconds from 0 on, not -1"),
            ("'true', timeout=float('nan')", "a timeout is a number of seconds from 0 on, not nan"),
        ],
    )
    def test_what_is_no_command_is_refused_before_the_editor_is_asked(self, editor, statement, message):
        answer = editor.prompt(f"await turn.terminal.run({statement})")
        assert message in answer["error"]["message"]
        assert editor.asked == []


class TestAfterAYes:
    @pytest.mark.parametrize("offered", [TERMINAL, {}])
    @pytest.mark.parametrize(
        ("judged", "given", "is_run"),
        [
            ({}, {"PATH": "/tmp"}, False),
            ({}, {"LANG": "C"}, True),
            ({}, {"FOO": "1"}, True),
            ({}, {"FOO": "/tmp/x"}, False),
            ({"OWN": "a"}, {"OWN": "b"}, False),
            ({"OWN": "a"}, {"OWN": "a", "LANG": "C"}, True),
            ({"OWN": "a"}, {"OWN": None}, False),
            ({}, {"HOME": None}, False),
        ],
    )
    def test_a_command_gets_only_variables_that_were_judged(
        self, share, tmp_path, offered, judged, given, is_run
    ):
        client, _ = share(OBEDIENT, **offered)
        editor = Terminals(client, client.new_session(str(tmp_path)))
        request = editor.begin(
            f"async with turn.tool('Look', kind='execute', command='true', env={judged!r}) as call:\n"
            "    await call.permitted()\n"
            f"    await turn.terminal.run('/bin/true', env={given!r})\n"
        )
        question = editor.serve_until(asks("session/request_permission"))
        outcome = {"outcome": "selected", "optionId": "allow_once"}
        client.send({"id": question["id"], "result": {"outcome": outcome}})

        answer = editor.serve_until_answered(request)

        if is_run:
            assert answer["result"] == {"stopReason": "end_turn"}
        else:
            assert "NotPermittedError: the tool call 'Look' was permitted without the variable" in str(answer)
            assert editor.asked == []

    @pytest.mark.parametrize(
        ("judged", "given", "is_run"),
        [("", "sub", False), ("", ".", True), ("sub", "sub", True), ("sub", "", False)],
    )
    def test_a_command_runs_only_where_it_was_judged(self, share, tmp_path, judged, given, is_run):
        client, _ = share(OBEDIENT)
        (tmp_path / "sub").mkdir()
        editor = Terminals(client, client.new_session(str(tmp_path)))
        request = editor.begin(
            f"async with turn.tool('Look', kind='execute', command='true', cwd={judged!r}) as call:\n"
            "    await call.permitted()\n"
            f"    await turn.terminal.run('/bin/true', cwd={given!r})\n"
        )
        question = editor.serve_until(asks("session/request_permission"))
        assert ("cwd" in question["params"]["toolCall"]["rawInput"]) == bool(judged)
        outcome = {"outcome": "selected", "optionId": "allow_once"}
        client.send({"id": question["id"], "result": {"outcome": outcome}})

        answer = editor.serve_until_answered(request)

        if is_run:
            assert answer["result"] == {"stopReason": "end_turn"}
        else:
            assert "was permitted for a command in" in str(answer)


class TestAfterANo:
    @pytest.mark.parametrize("offered", [TERMINAL, {}])
    @pytest.mark.parametrize("options", ["", ", input='x'"])
    def test_in_the_block_of_the_call_nothing_is_run(self, share, tmp_path, offered, options):
        client, _ = share(OBEDIENT, **offered)
        editor = Terminals(client, client.new_session(str(tmp_path)))
        request = editor.begin(
            "async with turn.tool('Heedless', kind='execute', command='touch here') as call:\n"
            "    await call.permitted()\n"
            f"    await turn.terminal.run('touch', 'here'{options})\n"
        )
        question = editor.serve_until(asks("session/request_permission"))
        outcome = {"outcome": "selected", "optionId": "reject_once"}
        client.send({"id": question["id"], "result": {"outcome": outcome}})

        answer = editor.serve_until_answered(request)

        assert "NotPermittedError: the tool call 'Heedless' may do nothing more" in answer["error"]["message"]
        assert final_call(tool_updates(editor.updates))["status"] == "failed"
        assert editor.asked == []
        assert [*tmp_path.iterdir()] == []


class TestFailing:
    @pytest.mark.parametrize(
        "reply",
        [
            {"error": {"code": -32603, "message": "no such program"}},
            {"result": {}},
            {"result": {"terminalId": 5}},
        ],
    )
    def test_a_terminal_that_cannot_be_made_fails_the_call(self, editor, reply):
        editor.replies["create"] = reply

        answer = editor.prompt("await turn.terminal.run('true')")

        assert error_of(answer) == (-32603, "agent_failed")
        assert "EditorError" in answer["error"]["message"]
        assert final_call(tool_updates(editor.updates))["status"] == "failed"
        assert editor.methods() == ["create"]

    @pytest.mark.parametrize("method", ["wait_for_exit", "output"])
    @pytest.mark.parametrize("code", [-32603, -32601])
    def test_whatever_fails_later_it_is_killed_and_released(self, editor, method, code):
        editor.replies[method] = {"error": {"code": code, "message": "oops"}}

        answer = editor.prompt("await turn.terminal.run('true')")

        assert "oops" in answer["error"]["message"]
        assert editor.methods()[-2:] == ["kill", "release"]
        assert editor.all_released()

    def test_a_kill_and_a_release_that_fail_change_nothing(self, editor):
        editor.answers.remove("wait_for_exit")
        editor.replies["kill"] = editor.replies["release"] = {"error": {"code": -32603, "message": "oops"}}
        assert finished(editor, "'sleep', '9', timeout=0.05")[4] is True
        assert editor.all_released()

    def test_nobody_waits_for_the_answer_to_a_release(self, editor):
        editor.answers.remove("release")
        assert finished(editor, "'true'")[0] == 0
        assert editor.all_released()

    def test_an_editor_that_never_makes_it_ends_the_wait_and_a_late_one_is_released(self, converse):
        client, session = converse(
            "from coupler.agent import terminal as editor_terminal\neditor_terminal.TIME_TO_CREATE = 0.1\n"
            + OBEDIENT,
            **TERMINAL,
        )
        editor = Terminals(client, session, EVERYTHING - {"create"})

        answer = editor.prompt("await turn.terminal.run('true')")
        assert "terminal/create was not answered within 0.1 s" in answer["error"]["message"]

        editor.answer_rest()
        editor.serve_until_asked("release")
        assert editor.all_released()


class TestCancelling:
    @pytest.mark.parametrize("silent", [set(), {"wait_for_exit"}, {"wait_for_exit", "kill", "release"}])
    def test_a_cancel_kills_and_releases_before_it_is_answered(self, editor, silent):
        editor.answers -= {"wait_for_exit", *silent}
        request = editor.begin("await turn.terminal.run('sleep', '60')")
        editor.serve_until_asked("wait_for_exit")
        start = time.monotonic()

        editor.client.send(cancel(editor.session))

        assert editor.serve_until_answered(request)["result"] == {"stopReason": "cancelled"}
        assert time.monotonic() - start < 1
        assert editor.methods() == ["create", "wait_for_exit", "kill", "release"]
        assert editor.all_released()
        call = final_call(editor.updates)
        assert (call["status"], call["_meta"]) == ("failed", {"coupler": {"outcome": "cancelled"}})

    def test_a_terminal_that_is_made_after_the_cancel_is_released(self, editor):
        editor.answers.remove("create")
        request = editor.begin("await turn.terminal.run('sleep', '60')")
        editor.serve_until_asked("create")
        editor.client.send(cancel(editor.session))
        assert editor.serve_until_answered(request)["result"] == {"stopReason": "cancelled"}

        editor.answer_rest()

        editor.serve_until_asked("release")
        assert editor.all_released()
        assert "term-0" not in json.dumps(editor.updates)

    def test_a_terminal_that_is_made_in_the_moment_of_the_cancel_is_released(self, editor):
        editor.answers.remove("create")
        for _ in range(20):
            request = editor.begin("await turn.terminal.run('sleep', '60')")
            _, (_, frame) = editor.serve_until_asked("create"), editor.unanswered.pop()
            editor.created.append(f"term-{len(editor.created)}")
            answer = {"id": frame["id"], "result": {"terminalId": editor.created[-1]}}
            editor.client.send(*sorted([answer, cancel(editor.session)], key=str))
            editor.serve_until_answered(request)
            while not editor.all_released():
                editor.take(editor.client.read())

    def test_closing_the_session_releases_too(self, editor):
        editor.answers.remove("wait_for_exit")
        editor.begin("await turn.terminal.run('sleep', '60')")
        editor.serve_until_asked("wait_for_exit")

        close = editor.client.request("session/close", {"sessionId": editor.session})
        editor.client.send(close)

        editor.serve_until_answered(close)
        assert editor.all_released()

    def test_a_task_that_the_turn_leaves_behind_releases_too(self, editor):
        editor.answers.remove("wait_for_exit")
        request = editor.begin(
            "import asyncio\n"
            "turn.session.task = asyncio.ensure_future(turn.terminal.run('sleep', '60'))\n"
            "await asyncio.sleep(0.2)"
        )
        editor.serve_until_answered(request)
        if not editor.all_released():
            editor.serve_until_asked("release")
        assert editor.all_released()

    def test_an_editor_that_leaves_is_no_problem(self, converse):
        for silent in ({"create"}, {"wait_for_exit"}):
            client, session = converse(OBEDIENT, **TERMINAL)
            editor = Terminals(client, session, EVERYTHING - silent)
            editor.begin("await turn.terminal.run('sleep', '60')")
            editor.serve_until_asked(*silent)
            start = time.monotonic()

            leave(client)

            assert time.monotonic() - start < 2
            assert b"Traceback" not in client.stderr

    def test_a_sigterm_releases_what_is_open(self, converse):
        client, session = converse(OBEDIENT, **TERMINAL)
        editor = Terminals(client, session, {"create"})  # nobody reads answers in the end
        editor.begin("await turn.terminal.run('sleep', '60')")
        editor.serve_until_asked("wait_for_exit")

        client.process.terminate()

        editor.serve_until_asked("release")
        assert editor.all_released()


COUNTING = """
import asyncio, gc
async def agent(turn):
    if turn.text == "count":
        gc.collect()
        await turn.say(f"{len(asyncio.all_tasks())}")
    else:
        await turn.terminal.run("sleep", "60")
"""


@pytest.mark.long
class TestFiveHundredCancelledCommands:
    """In one process, the editor's habits differing from one to the next."""

    COUNT = 500
    HABITS = (
        EVERYTHING - {"wait_for_exit"},
        EVERYTHING - {"create"},
        EVERYTHING - {"wait_for_exit", "kill", "release"},
        {"create"},
        EVERYTHING,
    )

    def test_every_terminal_is_released_and_nothing_is_left(self, converse):
        client, session = converse(COUNTING, **TERMINAL)
        editor = Terminals(client, session)
        before = self.tasks(editor)

        for number in range(self.COUNT):
            editor.answers = set(self.HABITS[number % len(self.HABITS)])
            self.cancel_one(editor, is_running=number % 2 == 1)

        while not editor.all_released():
            editor.take(client.read())
        assert len(editor.created) == editor.released.total() == self.COUNT
        assert self.tasks(editor) == before
        assert psutil.Process(client.process.pid).children() == []
        assert b"Traceback" not in client.stderr
        assert b"never retrieved" not in client.stderr

    def cancel_one(self, editor, is_running):
        """Cancelled when the terminal is being made, or while the command runs or has just ended."""
        request = editor.begin()
        is_running = is_running and "create" in editor.answers
        editor.serve_until_asked("wait_for_exit" if is_running else "create")
        editor.client.send(cancel(editor.session))
        assert editor.serve_until_answered(request)["result"]["stopReason"] in ("cancelled", "end_turn")
        # The answers of an editor that is late come when all is over.
        editor.answer_rest()

    def tasks(self, editor):
        editor.updates.clear()
        editor.serve_until_answered(editor.begin("count"))
        return texts(editor.updates)


class RealTerminals(Terminals):
    """An editor that really runs commands: in words, or joined for a shell as the VS Code ACP Client does."""

    def __init__(self, client, session, *, joins):
        super().__init__(client, session)
        self.joins = joins
        self.outputs = {}

    def answer(self, method, frame):
        params = frame["params"]
        if method == "create":
            words = [params["command"], *params["args"]]
            done = subprocess.run(
                " ".join(words) if self.joins else words,
                shell=self.joins,
                cwd=params["cwd"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.outputs[f"term-{len(self.created)}"] = done
        elif method in ("wait_for_exit", "output"):
            done = self.outputs[params["terminalId"]]
            self.replies["wait_for_exit"] = {"result": {"exitCode": done.returncode}}
            self.replies["output"] = {"result": {"output": done.stdout, "truncated": False}}
        super().answer(method, frame)


class TestUnknownClients:
    """A client that is not known shows with a harmless command whether it passes arguments on unchanged."""

    REMOVES = "await turn.terminal.run('bash', '-c', 'cd sub && rmdir build && echo gone', cwd={!r})"

    def directories(self, tmp_path):
        (tmp_path / "build").mkdir()
        (tmp_path / "sub" / "build").mkdir(parents=True)

    def opened(self, converse, *, joins, client="VS Code ACP Client"):
        return RealTerminals(*converse(OBEDIENT, client=client, **TERMINAL), joins=joins)

    def test_one_that_joins_arguments_for_a_shell_runs_nothing_and_its_user_is_told_once(
        self, converse, tmp_path
    ):
        self.directories(tmp_path)
        editor = self.opened(converse, joins=True)
        editor.prompt(self.REMOVES.format(str(tmp_path)))
        assert (tmp_path / "build").exists() and not (tmp_path / "sub" / "build").exists()
        assert "Commands do not run in your editor's terminals" in texts(editor.updates)
        assert "the editor changes the arguments of commands" in texts(editor.updates).lower()
        assert text_of(final_call(editor.updates)) == "gone\n"
        assert editor.methods() == ["create", "wait_for_exit", "output", "release"]

        editor.updates.clear()
        editor.prompt("await turn.terminal.run('echo', 'again')")
        assert texts(editor.updates) == ""
        assert len(editor.created) == 1 and editor.all_released()

    def test_one_that_passes_them_on_runs_commands_and_is_tried_once(self, converse, tmp_path):
        self.directories(tmp_path)
        editor = self.opened(converse, joins=False)
        editor.prompt(self.REMOVES.format(str(tmp_path)))
        editor.prompt("await turn.terminal.run('echo', 'again')")
        assert (tmp_path / "build").exists() and not (tmp_path / "sub" / "build").exists()
        assert texts(editor.updates) == ""
        assert [params["command"] for method, params in editor.asked if method == "create"] == [
            "printf",
            "bash",
            "echo",
        ]
        assert editor.all_released()

    @pytest.mark.parametrize("client", ["Toad", "zed"])
    def test_a_known_one_is_not_tried(self, converse, client):
        editor = self.opened(converse, joins=False, client=client)
        editor.prompt("await turn.terminal.run('echo', 'said')")
        assert len(editor.created) == 1

    def test_commands_at_the_same_time_are_preceded_by_one_trial(self, converse):
        editor = self.opened(converse, joins=False)
        run = "turn.terminal.run('echo', 'a b')"
        editor.prompt(f"import asyncio; await asyncio.gather({run}, {run})")
        assert [params["command"] for method, params in editor.asked if method == "create"] == [
            "printf",
            "echo",
            "echo",
        ]

    @pytest.mark.parametrize("method", ["create", "wait_for_exit", "output"])
    def test_one_that_fails_the_trial_is_not_used(self, converse, method):
        editor = Terminals(*converse(OBEDIENT, client="other", **TERMINAL))
        editor.replies[method] = {"error": {"code": -32603, "message": "Out of terminals"}}
        editor.prompt("await turn.terminal.run('echo', 'said')")
        assert text_of(final_call(editor.updates)) == "said\n"
        assert "harmless command in one: Out of terminals" in texts(editor.updates)
        assert editor.all_released()

    def test_a_cancel_during_the_trial_ends_it_and_the_next_command_tries_again(self, converse):
        editor = self.opened(converse, joins=False)
        editor.answers.discard("wait_for_exit")
        request = editor.begin("await turn.terminal.run('echo', 'said')")
        editor.serve_until_asked("wait_for_exit")
        editor.client.send(cancel(editor.session))
        answer = editor.serve_until_answered(request)
        assert answer["result"] == {"stopReason": "cancelled"}
        editor.answers.add("wait_for_exit")
        assert finished(editor, "'echo', 'said'")[2] == "said\n"
        assert len(editor.created) == 3 and editor.all_released()

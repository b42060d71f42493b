"""`delegate` to other programs, over pipes on both sides: what the user sees of them, and decides."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from agent.steps import cancel, end_of, leave, text_of, update_of
from labs.langchain.acting import Stage
from labs.langchain.ordering import TO_ORDER, Order, accepted, selected
from providers.stub import Stub, path_with
from raw_client import PATIENCE
from runtime.test_child import gone_within

AGENT = Path(__file__).parent / "delegated_agent.py"

SOURCE = """
from coupler.coder.sub_agents import delegate_tools

def make_graph(sub_agent):
    told.append((sub_agent.name, sub_agent.profile.system, sub_agent.is_read_only))
    return create_agent(scripted(), TOOLS, middleware=[*sub_agent.middleware])

told = []
session.withhold(["MODEL_KEY"])
agent = agent_with({middleware}tools=delegate_tools(make_graph, session))
"""

CONFIG = """
[permissions]
deny = ["edit(secret.txt)"]

[agents.other]
command = {command}
title = "Another one"

[agents.tuned]
agent = "other"
system = "Be brief."
mode = "bold"
context = ["notes.md"]
tools.deny = ["edit(kept.txt)"]

[agents.reviewer]
agent = "coder"
system = "You review."
mode = "read-only"

[agents.strict]
agent = "coder"
tools.deny = ["tool:lookup"]

[agents.native]
agent = "claude:native"
mode = "allow_all"

[agents.gone]
command = ["no-such-program-anywhere"]
"""


@pytest.fixture(autouse=True)
def has_all_imported(langchain_loaded):
    """Processes that are started begin with LangChain imported."""
    with langchain_loaded.used():
        yield


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "agent.log"


@pytest.fixture(scope="module")
def own_home(tmp_path_factory, log):
    """Makes homes of users who have set some agents."""
    command = json.dumps([sys.executable, "-I", "-S", "-B", str(AGENT), str(log)])

    def make():
        home = tmp_path_factory.mktemp("home")
        (home / "coupler.toml").write_text(CONFIG.format(command=command))
        (home / "notes.md").write_text("Mind the gap.")
        return home

    return make


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A directory of the PATH."""
    return tmp_path_factory.mktemp("bin")


@pytest.fixture(scope="module")
def claude(programs):
    """A program that stands in for a vendor's command line, which asks nobody."""
    return Stub(programs, "claude").streams("claude-current")


@pytest.fixture(scope="module")
def staged(own_home, programs):
    """One process for each set of capabilities."""
    started = {}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODEL_KEY", "sk-held-back")
        patch.setenv("SEEN", "by all")
        patch.setenv("PATH", path_with(programs))

        def stage(capabilities):
            key = json.dumps(capabilities)
            if key not in started:
                started[key] = Stage(TO_ORDER, own_home(), **capabilities)
                stack.callback(started[key].close)
            return started[key]

        yield stage


@pytest.fixture
def delegating(staged, tmp_path):
    made = []

    def make(*, middleware="", **capabilities):
        made.append(Order(staged(capabilities), tmp_path, SOURCE.format(middleware=middleware)))
        return made[-1]

    yield make
    for each in made:
        each.client.call("session/close", {"sessionId": each.id})


def delegated(at, task, agent="other", *, reply="allow_once"):
    """Give the task away; what the model was told, and how the call looked in the end."""
    ((status, content),) = at.does(("delegate", {"task": task, "agent": agent}), reply=reply)
    return status, content, next(iter(at.calls.values()))


def answering(*, permission="allow_once", agents="yes", **others):
    """A user who lets agents be started, and answers what these ask."""

    def reply(frame):
        if frame["method"] != "session/request_permission":
            return others[frame["method"].rpartition("/")[2]]
        title = frame["params"]["toolCall"]["title"]
        chosen = permission if title.startswith("Delegate to") else agents
        return selected(chosen)

    return reply


def nested_in(calls, id):
    return [call for call in calls.values() if call.get("_meta", {}).get("coupler", {}).get("parent") == id]


class TestStarting:
    def test_the_user_is_asked_with_the_name_and_the_task_before_it_is_started(self, delegating, log):
        at = delegating()

        status, content, call = delegated(at, "say hello")

        assert (status, content) == ("success", "say hello")
        (question,) = at.asked
        asked = question["params"]["toolCall"]
        assert asked["title"] == "Delegate to other: say hello"
        assert asked["kind"] == "execute"
        assert "say hello" in text_of(asked)
        assert call["title"] == "Delegate to other: say hello (done, 1 turn)"
        assert call["rawOutput"] == {
            "agent": "other",
            "status": "completed",
            "turns": 1,
            "stop_reason": "end_turn",
        }

    def test_a_no_starts_nothing(self, delegating, log):
        at = delegating()
        started = log.read_text().count('"pid"') if log.exists() else 0

        status, content, call = delegated(at, "say hello", reply="reject_once")

        assert status == "error"
        assert "not permitted by the user" in content
        assert call["status"] == "failed"
        assert (log.read_text().count('"pid"') if log.exists() else 0) == started

    def test_an_always_holds_for_this_agent_and_no_other(self, delegating):
        at = delegating()

        delegated(at, "say one", reply="allow_always")
        at.does(("delegate", {"task": "say two", "agent": "other"}))
        assert at.asked == []

        at.does(("delegate", {"task": "say three", "agent": "tuned"}))
        assert len(at.asked) == 1

    @pytest.mark.parametrize("mode", ["read-only", "planning"])
    def test_in_a_mode_that_changes_nothing_it_is_not_started(self, delegating, mode):
        at = delegating(middleware='acp.modes("interactive", acp.Mode("read-only"), "planning"), ')
        at.set_mode(mode)

        status, content, _ = delegated(at, "say hello")

        assert status == "error"
        assert "in this mode only sub-agents can look" in content
        assert at.asked == []

    def test_agents_of_a_project_that_is_not_trusted_are_none(self, delegating, tmp_path):
        (tmp_path / "coupler.toml").write_text('[agents.planted]\ncommand = ["touch", "planted"]\n')
        at = delegating()

        status, content, _ = delegated(at, "say hello", "planted")

        assert status == "error"
        assert "there is no agent 'planted'" in content
        assert not (tmp_path / "planted").exists()

    def test_one_that_cannot_be_started_fails_the_call_with_the_reason(self, delegating):
        at = delegating()

        status, content, call = delegated(at, "say hello", "gone")

        assert status == "error"
        assert "no-such-program-anywhere" in content
        assert call["status"] == "failed"
        assert call["rawOutput"]["status"] == "failed"


class TestSurroundings:
    def test_it_has_our_environment_without_the_keys_that_the_session_withholds(self, delegating):
        at = delegating()

        variables = json.loads(delegated(at, "environment")[1])

        assert variables["SEEN"] == "by all"
        assert "MODEL_KEY" not in variables
        assert "sk-held-back" not in json.dumps(variables)
        assert variables["COUPLER_DELEGATED"] == "1"

    def test_it_reads_what_the_editor_has_not_saved(self, delegating, tmp_path):
        (tmp_path / "a.txt").write_text("old")
        at = delegating(fs={"readTextFile": True, "writeTextFile": True})

        content = delegated(
            at, f"read {tmp_path}/a.txt", reply=answering(read_text_file={"content": "unsaved"})
        )[1]

        assert json.loads(content) == {"content": "unsaved"}

    def test_what_it_writes_without_asking_the_user_is_asked_about(self, delegating, tmp_path):
        at = delegating()

        content = delegated(at, f"write {tmp_path}/a.txt", reply=answering(agents="allow_once"))[1]

        assert json.loads(content) == {}
        assert (tmp_path / "a.txt").read_text() == "by another"
        assert at.asked[1]["params"]["toolCall"]["title"] == f"other: Write {tmp_path}/a.txt"

    def test_a_no_keeps_it_from_writing(self, delegating, tmp_path):
        at = delegating()

        content = delegated(at, f"write {tmp_path}/a.txt", reply=answering(agents="reject_once"))[1]

        assert "not permitted by the user" in content
        assert not (tmp_path / "a.txt").exists()

    def test_what_a_rule_denies_it_cannot_write(self, delegating, tmp_path):
        at = delegating()

        content = delegated(at, f"write {tmp_path}/secret.txt")[1]

        assert "edit(secret.txt)" in content
        assert len(at.asked) == 1

    def test_outside_of_the_sessions_directories_there_is_nothing_for_it(self, delegating):
        at = delegating()

        content = delegated(at, "read /etc/hostname", reply=answering(agents="allow_once"))[1]

        assert "outside of the session's directories" in content

    def test_without_terminals_in_the_editor_it_is_offered_none(self, delegating):
        at = delegating()

        assert "terminal/create" in delegated(at, "run ls")[1]

    def test_a_form_says_whose_question_it_is(self, delegating):
        at = delegating(elicitation={"form": {}})

        content = delegated(at, "ask What name?", reply=answering(create=accepted(name="Ada")))[1]

        assert json.loads(content)["content"] == {"name": "Ada"}
        assert at.asked[1]["params"]["message"] == "other asks: What name?"


class TestShowing:
    def test_its_calls_are_nested_and_asked_about_in_its_name(self, delegating, tmp_path):
        at = delegating()

        content, call = delegated(at, f"act {tmp_path}/a.txt", reply=answering())[1:]

        assert content == "I will edit.\n\nThe answer was yes."
        (edit,) = nested_in(at.calls, "call_1_0")
        assert (edit["kind"], edit["status"], edit["title"]) == (
            "edit",
            "completed",
            f"Edit {tmp_path}/a.txt",
        )
        assert at.asked[1]["params"]["toolCall"]["title"] == f"other: Edit {tmp_path}/a.txt"
        assert at.asked[1]["params"]["toolCall"]["toolCallId"] == edit["toolCallId"]
        assert text_of(call).endswith("I will edit.\n\nThe answer was yes.")
        assert call["rawOutput"]["turns"] == 2

    def test_what_rules_deny_is_rejected_without_a_question(self, delegating, tmp_path):
        at = delegating()

        assert delegated(at, f"act {tmp_path}/secret.txt", reply=answering())[1].endswith("was no.")
        assert len(at.asked) == 1

    @pytest.mark.parametrize(
        ("name", "reason"), [("a.txt", "not permitted by the user"), ("secret.txt", "is denied by")]
    )
    def test_a_call_that_it_only_asks_about_fails_with_the_reason_of_the_no(
        self, delegating, tmp_path, name, reason
    ):
        at = delegating()

        content = delegated(at, f"ask-only {tmp_path}/{name}", reply=answering(agents="no"))[1]

        assert content == "The answer was no."
        (edit,) = nested_in(at.calls, "call_1_0")
        assert edit["status"] == "failed"
        assert reason in text_of(edit)

    def test_two_with_the_same_ids_are_not_mixed_up(self, delegating, tmp_path):
        at = delegating()
        tasks = [("delegate", {"task": f"act {tmp_path}/{name}.txt", "agent": "other"}) for name in "ab"]

        answers = at.does(*tasks, reply=answering())

        assert [content for _, content in answers] == ["I will edit.\n\nThe answer was yes."] * 2
        for number, name in enumerate("ab"):
            (edit,) = nested_in(at.calls, f"call_1_{number}")
            assert edit["title"] == f"Edit {tmp_path}/{name}.txt"

    def test_its_plan_and_its_context_are_not_the_sessions(self, delegating):
        at = delegating()

        delegated(at, "plan")

        kinds = {update["sessionUpdate"] for update in at.updates}
        assert not kinds & {"plan", "usage_update"}

    @pytest.mark.parametrize("capabilities", [{}, {"session": {"notices": {}}}], ids=["unknown", "offered"])
    def test_its_notices_are_text_in_its_call_and_not_the_sessions(self, delegating, capabilities):
        at = delegating(**capabilities)

        call = delegated(at, "notice The disk is full.")[2]

        assert text_of(call) == "notice The disk is full.\n\nThe disk is full.\n\nnoticed"
        kinds = {update["sessionUpdate"] for update in at.updates}
        assert "notice" not in kinds

    def test_one_that_stops_early_is_told_to_have_done_so(self, delegating):
        at = delegating()

        content, call = delegated(at, "stop max_tokens")[1:]

        assert content.startswith("I stop here.\n\n(It was stopped because its answer became too long.")
        assert call["title"].endswith("(stopped, 1 turn)")
        assert call["rawOutput"]["stop_reason"] == "max_tokens"


class TestEnding:
    def test_one_that_dies_fails_the_call_with_what_it_said(self, delegating):
        at = delegating()

        status, content, call = delegated(at, "die")

        assert status == "error"
        assert "exit code: 3" in content
        assert "about to die" in content
        assert call["status"] == "failed"

    def test_one_that_wants_a_login_says_how(self, delegating):
        at = delegating()

        assert "coupler login other" in delegated(at, "login")[1]

    def test_nothing_of_it_is_left_when_it_is_done(self, delegating, log):
        at = delegating()

        delegated(at, "say hello")

        assert not _running(log)

    @pytest.mark.parametrize("task", ["hang", "stubborn"])
    def test_a_cancel_ends_it_whether_it_listens_or_not(self, delegating, log, task):
        at = delegating()
        request = _begun(at, task)
        (pid,) = _running(log)

        at.client.send(cancel(at.id))
        updates, answer = end_of(at.client, request)

        assert answer["result"] == {"stopReason": "cancelled"}
        failed = {update["toolCallId"][:2] for update in updates if update.get("status") == "failed"}
        assert failed == {"ca", "h1"}  # the call, and the one that is nested in it
        assert gone_within(PATIENCE, pid)

    def test_it_ends_with_the_editor(self, tmp_path, own_home, log):
        at = Order(Stage(TO_ORDER, own_home()), tmp_path, SOURCE.format(middleware=""))
        with at.client:
            _begun(at, "stubborn")
            (pid,) = _running(log)

            leave(at.client)

        assert gone_within(PATIENCE, pid)


class TestProfiles:
    def test_a_profile_of_another_agent_is_set_up_and_instructed(self, delegating, log):
        at = delegating()

        prompt = json.loads(delegated(at, "prompt", "tuned")[1])

        assert prompt.index("Be brief.") < prompt.index("Mind the gap.") < prompt.rindex("prompt")
        modes = [frame for frame in _received(log) if frame.get("method") == "session/set_mode"]
        assert modes[-1]["params"]["modeId"] == "bold"

    def test_what_a_profile_denies_its_agent_cannot_do(self, delegating, tmp_path):
        at = delegating()

        assert delegated(at, f"act {tmp_path}/kept.txt", "tuned", reply=answering())[1].endswith("was no.")
        content = delegated(at, f"write {tmp_path}/kept.txt", "tuned", reply=answering(agents="allow_once"))[
            1
        ]
        assert "edit(kept.txt)" in content

    def test_a_profile_of_the_coder_is_a_sub_agent_and_a_reading_one_only_reads(self, delegating):
        at = delegating()

        told = json.loads(delegated(at, "tell", "reviewer")[1])

        assert at.asked == []
        assert told["tools"] == ["read_file"]

    def test_what_a_profile_of_the_coder_denies_holds_in_its_sub_agent(self, delegating):
        at = delegating()

        report = json.loads(delegated(at, '[["lookup", {"topic": "tea"}]]', "strict")[1])

        assert report[0][0] == "error"
        assert "the profile strict" in report[0][1]


def test_a_program_that_asks_nobody_may_only_read_whatever_its_profile_says(delegating, claude):
    at = delegating()

    status, content, call = delegated(at, "say hello", "native")

    (run,) = claude.runs
    assert (status, call["status"]) == ("success", "completed"), content
    assert "--dangerously-skip-permissions" not in run["argv"]
    assert "--disallowedTools" in run["argv"]
    assert "say hello" in run["stdin"]
    assert "MODEL_KEY" not in run["env"]


def _begun(at, task):
    """Give a task away, and wait until it is worked on; returns the prompt's request."""
    request = at.client.prompt_request(at.id, json.dumps([["delegate", {"task": task, "agent": "other"}]]))
    at.client.send(request)
    while True:
        frame = at.client.read()
        if "id" in frame:
            at.client.send({"id": frame["id"], "result": selected("allow_once")})
        elif update_of(frame).get("title") == "Hang":
            return request


def _received(log):
    lines = map(json.loads, log.read_text().splitlines())
    return [line["got"] for line in lines if "got" in line]


def _running(log):
    """The numbers of those that still run; a number that somebody else has by now is none of them."""
    pids = [json.loads(line)["pid"] for line in log.read_text().splitlines() if '"pid"' in line]
    running = []
    for pid in pids:
        try:
            if str(AGENT) in psutil.Process(pid).cmdline():
                running.append(pid)
        except psutil.Error:
            continue
    return running

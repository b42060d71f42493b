"""The kit finds what is wrong with a client, and nothing where nothing is."""

import asyncio
import importlib.util
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from coupler.conformance.assertion import catalogue, scenarios
from coupler.conformance.candidate import ClientCandidate, fill_in
from coupler.conformance.client_examination import examine_client, judge_scenarios
from coupler.conformance.examination import CannotStart

HERE = Path(__file__).parent / "clients"
CHECK = [sys.executable, "-m", "coupler", "check", "--client"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unmeasured")]

BY_EYE = {"C09", "C10", "C19"}


def variants(file, table):
    """The names of the clients in a file with the assertion that is meant for each."""
    sys.path.insert(0, str(HERE))
    try:
        spec = importlib.util.spec_from_file_location(file, HERE / f"{file}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(HERE))
    return {name: id for name, (id, _) in getattr(module, table).items()}


FAULTS = variants("faulty", "FAULTS")
MUTE = {"HangsAfterCancel", "LeavesPermissionsOpen", "OneThingAtATime", "StaysSilent", "WaitsForEver"}
"""They are found by what they do not do, which takes as long as the kit waits for it."""
UNUSUAL = variants("unusual", "UNUSUAL")


@pytest.fixture(autouse=True)
def ctrl_c():
    """A shell lets what it starts in the background ignore Ctrl-C, and so would the clients."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def examine(folder, *words, seconds=10.0):
    """The results of the whole kit by their ids."""
    candidate = candidate_of(folder, *words, seconds=seconds)
    report = asyncio.run(examine_client(candidate, catalogue("client")))
    return {result.assertion.id: result for result in report.results}


def judge(id, folder, *words, seconds=4.0):
    """The result of one assertion, from the scenarios that provoke it and up to the first that it fails."""
    candidate = candidate_of(folder, *words, seconds=seconds)
    (assertion,) = [each for each in catalogue("client") if each.id == id]
    traces = []
    for scenario in scenarios():
        if id in scenario.judged_by and not scenario.needs_person:
            traces += asyncio.run(candidate.perform(scenario))
            if judge_scenarios(assertion, traces).outcome == "failed":
                break
    return judge_scenarios(assertion, traces)


def candidate_of(folder, *words, seconds):
    return ClientCandidate([sys.executable, *words, "{agent...}"], folder, timeout=seconds)


def ids_with(results, outcome):
    return {id for id, result in results.items() if result.outcome == outcome}


@pytest.mark.long
def test_a_correct_client_has_no_fault_and_skips_only_what_must_be_seen(tmp_path):
    results = examine(tmp_path, str(HERE / "raw.py"))

    assert {id: results[id].message for id in ids_with(results, "failed")} == {}
    assert ids_with(results, "skipped") == BY_EYE


@pytest.mark.long
def test_couplers_own_client_has_no_fault(tmp_path):
    results = examine(tmp_path, str(HERE / "with_coupler.py"))

    assert {id: results[id].message for id in ids_with(results, "failed")} == {}
    assert len(ids_with(results, "passed")) >= 22


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_the_assertion_that_is_there_for_it(name, tmp_path):
    seconds = 1.5 if name in MUTE else 4.0
    judged = judge(FAULTS[name], tmp_path, str(HERE / "faulty.py"), name, seconds=seconds)

    assert judged.outcome == "failed"
    assert "(scenario " in judged.message


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_and_right_is_no_fault(name, tmp_path):
    judged = judge(UNUSUAL[name], tmp_path, str(HERE / "unusual.py"), name)

    assert judged.message == ""
    assert judged.outcome == "passed"


def test_a_null_for_an_empty_result_is_worth_a_note(tmp_path):
    judged = judge("X04", tmp_path, str(HERE / "unusual.py"), "NullForNothing")

    assert judged.outcome == "passed"
    assert judged.notes == ("a result is null where the schema has an object",)


def test_every_assertion_that_the_wire_shows_has_a_faulty_client():
    # X01, a plain turn, is what all the others stand on.
    assert {each.id for each in catalogue("client")} - set(FAULTS.values()) == BY_EYE | {"X01"}


def test_every_assertion_is_provoked_by_a_scenario():
    judged = {id for each in scenarios() for id in each.judged_by}
    assert {each.id for each in catalogue("client")} == judged


def test_a_client_that_never_starts_the_agent_cannot_be_examined(tmp_path):
    with pytest.raises(CannotStart, match="ended with 3 and sent the agent nothing"):
        examine(tmp_path, "-c", "raise SystemExit(3)")


def test_the_agent_is_filled_in_as_one_word_or_as_many(tmp_path):
    agent = ["python", "a b"]
    filled = fill_in(["client", "--agent={agent}", "--in", "{dir}", "{agent...}"], agent, tmp_path)

    assert filled == ["client", f"--agent={shlex.join(agent)}", "--in", str(tmp_path), *agent]


def test_a_command_without_a_place_for_the_agent_is_refused():
    done = forked.run([*CHECK, "--", "true"], capture_output=True, text=True, timeout=30)

    assert done.returncode == 2
    assert "write {agent} where the client takes the agent's command" in done.stderr


def test_a_terminal_gets_a_sentence_instead_of_a_chat():
    ours, theirs = pty.openpty()
    done = forked.run(CHECK, stdin=theirs, capture_output=True, text=True, timeout=30)
    os.close(ours)
    os.close(theirs)

    assert done.returncode == 2
    assert "stdin is a terminal" in done.stderr


def test_a_person_plays_scenarios_in_a_chat_and_gets_a_report(tmp_path):
    file = tmp_path / "report.json"
    with Editor([*CHECK, "--only", "C09,C20,X01,X03", "--json", str(file)]) as editor:
        editor.call("initialize", {"protocolVersion": 1})
        editor.session = editor.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})["sessionId"]
        said = editor.prompt("go")
        assert "**plain-turn** (1 of 3)" in said
        assert "**Look:** You see text, a plan" in said
        assert "is the plan exactly one entry" in editor.prompt("next")
        editor.prompt("next")
        assert "All scenarios were played" in editor.prompt("next")
        report = editor.prompt("report")
    assert "C09 failed" in report
    assert "C20 failed" not in report
    outcomes = {each["id"]: each["outcome"] for each in json.loads(file.read_text())["results"]}
    assert outcomes == {"C09": "failed", "C20": "passed", "X01": "passed", "X03": "passed"}


def test_an_agent_started_in_the_project_still_asks_for_a_file_outside_of_it(tmp_path):
    with Editor([*CHECK, "--only", "C13"], cwd=tmp_path) as editor:
        abilities = {"fs": {"readTextFile": True}}
        editor.call("initialize", {"protocolVersion": 1, "clientCapabilities": abilities})
        editor.session = editor.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})["sessionId"]
        editor.prompt("files")

    (outside,) = [path for path in editor.was_asked_for if path.name == "coupler-check-outside.txt"]
    assert not outside.is_relative_to(tmp_path)
    assert [*tmp_path.iterdir()] == []


class Editor:
    """Allows what it is asked, except that a person says no to each question about the screen."""

    def __init__(self, command, cwd=None):
        self.process = forked.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=cwd
        )
        self.last_id = 0
        self.was_asked_for = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()

    def prompt(self, text):
        self.said = ""
        block = {"type": "text", "text": text}
        self.call("session/prompt", {"sessionId": self.session, "prompt": [block]})
        return self.said

    def call(self, method, params):
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        while True:
            message = json.loads(self.process.stdout.readline())
            if "method" not in message:
                assert message["id"] == self.last_id
                return message["result"]
            self.take(message)

    def take(self, message):
        if message["method"] == "session/request_permission":
            is_question = message["params"]["toolCall"]["toolCallId"].startswith("question")
            outcome = {"outcome": "selected", "optionId": "no" if is_question else "yes"}
            self.send({"id": message["id"], "result": {"outcome": outcome}})
        elif "id" in message:
            if "path" in message["params"]:
                self.was_asked_for.append(Path(message["params"]["path"]))
            self.send({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
        elif message["params"]["update"]["sessionUpdate"] == "agent_message_chunk":
            self.said += message["params"]["update"]["content"]["text"]

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

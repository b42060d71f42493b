"""The model agent keeps to the protocol: every frame of it is checked against the schema on its way here."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.steps import asks, begin, cancel, end_of, tool_updates
from raw_client import RawClient, is_answer_to, texts

MODEL = Path(__file__).parent / "agents" / "model.py"
EVERYTHING = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
    "session": {"configOptions": {"boolean": {}}, "compaction": {}, "notices": {}},
}
ANSWERS = {
    "fs/read_text_file": {"content": "old\n"},
    "fs/write_text_file": {},
    "terminal/create": {"terminalId": "t1"},
    "terminal/wait_for_exit": {"exitCode": 0},
    "terminal/output": {"output": "/", "truncated": False},
    "terminal/release": {},
    "elicitation/create": {"action": "accept", "content": {"tone": "warm"}},
    "session/request_permission": {"outcome": {"outcome": "selected", "optionId": "allow_once"}},
}


@pytest.fixture
def start(tmp_path):
    """Starts the model agent; its sessions outlive it."""
    clients = []

    def start(**env):
        client = RawClient(
            sys.executable, str(MODEL), env={"MODEL_AGENT_HOME": str(tmp_path / "home"), **env}
        )
        clients.append(client)
        return client

    yield start
    for client in clients:
        with client:
            client.close_stdin()
            assert client.wait(5) == 0


@pytest.fixture
def cwd(tmp_path):
    """A directory for a session."""
    directory = tmp_path / "project"
    directory.mkdir()
    return str(directory)


def converse(client, request, **answers):
    """Answer what the agent asks until it has answered; returns its frames."""
    client.send(request)
    frames = []
    while not frames or not is_answer_to(frames[-1], request["id"]):
        frames.append(client.read())
        if "method" in frames[-1] and "id" in frames[-1]:
            method = frames[-1]["method"]
            client.send({"id": frames[-1]["id"], **answers.get(method, {"result": ANSWERS[method]})})
    return frames


def updates_in(frames):
    return [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]


def final_states(updates):
    return {update["toolCallId"]: update["status"] for update in tool_updates(updates)}


def test_it_agrees_on_version_1_and_names_itself(start):
    answer = start().call("initialize", {"protocolVersion": 65535})

    assert answer["result"]["protocolVersion"] == 1
    assert answer["result"]["agentInfo"]["name"] == "model-agent"


@pytest.mark.parametrize("version", ["1", 70000, True, None])
def test_what_is_no_version_is_refused(start, version):
    assert start().call("initialize", {"protocolVersion": version})["error"]["code"] == -32602


def test_a_turn_uses_all_that_the_client_offers(start, cwd):
    client = start()
    client.initialize(**EVERYTHING)
    session = client.new_session(cwd)

    frames = converse(client, client.prompt_request(session, "go"))

    updates = updates_in(frames)
    asked = {frame["method"] for frame in frames if "id" in frame and "method" in frame}
    assert asked == ANSWERS.keys()
    assert set(final_states(updates).values()) == {"completed"}
    assert {update["sessionUpdate"] for update in updates} >= {
        *("plan", "usage_update", "session_info_update", "agent_thought_chunk"),
        *("notice", "compaction_update", "compaction_summary_chunk"),
    }
    assert cwd in texts(updates)
    assert frames[-1]["result"] == {"stopReason": "end_turn"}


def test_a_client_that_offers_nothing_is_asked_for_nothing_but_permission(start, cwd):
    client = start()
    client.call("initialize", {"protocolVersion": 1})

    frames = converse(client, client.prompt_request(client.new_session(cwd), "go"))

    assert [frame["method"] for frame in frames if "method" in frame and "id" in frame] == [
        "session/request_permission"
    ]
    assert Path(cwd, "notes.txt").read_text() == "prompt 1\n"


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"outcome": {"outcome": "selected", "optionId": "reject_once"}}},
        {"result": {"outcome": {"outcome": "selected", "optionId": "unheard of"}}},
        {"result": {"outcome": {"outcome": "cancelled"}}},
        {"error": {"code": -32603, "message": "no"}},
    ],
    ids=["rejected", "unknown", "cancelled", "error"],
)
def test_only_an_allowing_option_allows(start, cwd, answer):
    client = start()
    client.initialize()
    request = client.prompt_request(client.new_session(cwd), "go")

    frames = converse(client, request, **{"session/request_permission": answer})

    assert list(final_states(updates_in(frames)).values()) == ["completed", "failed"]
    assert not Path(cwd, "notes.txt").exists()


def test_a_cancel_ends_a_stream_and_the_next_prompt_works(start, cwd):
    client = start()
    client.initialize()
    session = client.new_session(cwd)
    request = begin(client, session, "slow", until="tick ")

    client.send(cancel(session), cancel(session), cancel("unknown"))

    assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}
    assert converse(client, client.prompt_request(session, "go"))[-1]["result"] == {"stopReason": "end_turn"}


def test_a_cancel_while_permission_is_asked_takes_the_question_back(start, cwd):
    client = start()
    client.initialize()
    session = client.new_session(cwd)
    request = client.prompt_request(session, "go")
    client.send(request)
    *_, question = client.read_until(asks("session/request_permission"))

    client.send(cancel(session))

    frames = client.read_until(lambda frame: is_answer_to(frame, request["id"]))
    assert {"requestId": question["id"]} in [frame.get("params") for frame in frames]
    assert list(final_states(updates_in(frames)).values()) == ["failed"]
    assert frames[-1]["result"] == {"stopReason": "cancelled"}
    assert not Path(cwd, "notes.txt").exists()


def test_a_terminal_is_released_when_the_turn_is_cancelled(start, cwd):
    client = start()
    client.initialize(terminal=True)
    session = client.new_session(cwd)
    request = client.prompt_request(session, "go")
    client.send(request)
    for method in ("session/request_permission", "terminal/create"):
        *_, question = client.read_until(asks(method))
        client.send({"id": question["id"], "result": ANSWERS[method]})
    client.read_until(asks("terminal/wait_for_exit"))

    client.send(cancel(session))

    *_, release = client.read_until(asks("terminal/release"))
    client.send({"id": release["id"], "result": {}})
    assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}


def test_a_prompt_cancelled_by_its_id_gets_one_error(start, cwd):
    client = start()
    client.initialize()
    request = begin(client, client.new_session(cwd), "slow", until="tick ")

    client.send({"method": "$/cancel_request", "params": {"requestId": request["id"]}})

    assert end_of(client, request)[1]["error"]["code"] == -32800
    client.close_stdin()
    assert client.rest() == []


def test_the_reader_serves_during_a_turn(start, cwd):
    client = start()
    client.initialize()
    session = client.new_session(cwd)
    begin(client, session, "slow", until="tick ")

    mode = {"sessionId": session, "configId": "mode", "value": "auto"}
    answer = client.call("session/set_config_option", mode)

    assert [option["currentValue"] for option in answer["result"]["configOptions"]] == ["auto", "swift"]
    assert client.call("session/prompt", {"sessionId": session, "prompt": []})["error"]["code"] == -32600
    assert client.new_session(cwd) != session


def test_a_close_answers_the_prompt_first(start, cwd):
    client = start()
    client.initialize()
    session = client.new_session(cwd)
    request = begin(client, session, "slow", until="tick ")

    client.send(closing := client.request("session/close", {"sessionId": session}))

    assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}
    assert client.read()["id"] == closing["id"]
    assert client.prompt(session)[1]["error"]["code"] == -32002


def test_a_load_after_a_restart_replays_and_a_resume_does_not(start, cwd):
    first = start()
    first.initialize()
    session = first.new_session(cwd)
    said = updates_in(converse(first, first.prompt_request(session, "remember")))
    second = start()
    second.initialize()
    stored = {"sessionId": session, "cwd": cwd, "mcpServers": []}

    request = second.request("session/load", stored)
    second.send(request)
    replayed, answer = end_of(second, request)

    assert answer["result"]["modes"]["currentModeId"] == "ask"
    assert replayed[0]["content"]["text"] == "remember"
    state = ("usage_update", "session_info_update", "available_commands_update")
    assert replayed[1:] == [update for update in said if update["sessionUpdate"] not in state]
    second.read_until(lambda frame: "available_commands_update" in str(frame))
    second.send(resume := second.request("session/resume", stored))
    assert is_answer_to(second.read(), resume["id"])
    assert "prompt 2" in texts(updates_in(converse(second, second.prompt_request(session, "again"))))
    assert second.call("session/load", {**stored, "sessionId": "ghost"})["error"]["code"] == -32002


def test_a_list_comes_in_pages(start, cwd, tmp_path):
    client = start()
    client.initialize()
    sessions = [client.new_session(cwd) for _ in range(5)]
    client.new_session(str(tmp_path))
    found, cursor = [], {}
    while cursor is not None:
        page = client.call("session/list", {"cwd": cwd, **cursor})["result"]
        found += [entry["sessionId"] for entry in page["sessions"]]
        cursor = {"cursor": page["nextCursor"]} if "nextCursor" in page else None

    assert found == sessions
    assert client.call("session/list", {"cursor": "forged"})["error"]["code"] == -32602
    for _ in range(2):
        assert client.call("session/delete", {"sessionId": sessions[0]})["result"] == {}
    assert client.call("session/list", {"cwd": str(Path(cwd, "none"))})["result"] == {"sessions": []}


def test_a_login_is_wanted_only_where_it_is_configured(start, cwd):
    client = start(MODEL_AGENT_AUTH="1")
    methods = client.initialize(auth={"terminal": True})["result"]["authMethods"]
    opening = {"cwd": cwd, "mcpServers": None}

    assert [method["id"] for method in methods] == ["key", "shell"]
    assert client.call("session/new", opening)["error"]["code"] == -32000
    assert client.call("authenticate", {"methodId": "shell"})["error"]["code"] == -32602
    assert client.call("authenticate", {"methodId": "key"})["result"] == {}
    assert "result" in client.call("session/new", opening)
    assert client.call("logout", {})["result"] == {}
    assert client.call("session/new", opening)["error"]["code"] == -32000
    other = start()
    other.initialize()
    assert other.call("logout", {})["error"]["code"] == -32601


def test_an_mcp_server_is_started_with_its_arguments_and_ends_with_the_session(start, cwd):
    client = start()
    client.initialize()
    code = (
        "import os, sys; line = sys.stdin.readline();"
        "open('seen', 'w').write(line + sys.argv[1] + os.environ['COLOUR']); print('{}', flush=True);"
        "sys.stdin.read()"
    )
    server = {
        "name": "s",
        "command": sys.executable,
        "args": ["-c", code, "blue"],
        "env": [{"name": "COLOUR", "value": "green"}],
    }
    created = client.call("session/new", {"cwd": cwd, "mcpServers": [{"name": "bad"}, server]})

    seen = Path(cwd, "seen")
    wait_until(lambda: seen.exists() and seen.read_text().endswith("bluegreen"))
    assert "result" in client.call("session/close", {"sessionId": created["result"]["sessionId"]})


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'"\xff"', -32700),
        (b"{}", -32600),
        (b'{"id": 1.5, "method": "x"}', -32600),
    ],
)
def test_a_broken_line_is_refused_and_the_next_one_read(start, line, code):
    client = start()
    client.write(line + b"\n")

    refused = client.read()

    assert (refused["id"], refused["error"]["code"]) == (None, code)
    assert "result" in client.initialize()


@pytest.mark.parametrize("identity", [0, "a", 2**53 + 1, None])
def test_an_id_comes_back_as_it_was(start, identity):
    client = start()
    client.send(
        {"id": identity, "method": "_x/y", "params": {}}, {"method": "_x"}, {"method": "session/cancel"}
    )

    answer = client.read()

    assert answer["error"]["code"] == -32601
    assert answer["id"] == identity
    assert type(answer["id"]) is type(identity)


def test_a_prompt_of_eight_megabytes_is_taken(start, cwd):
    client = start()
    client.initialize()

    frames = converse(client, client.prompt_request(client.new_session(cwd), "x" * 8 * 2**20))

    assert frames[-1]["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    "params",
    [
        {"cwd": "relative", "mcpServers": []},
        {"cwd": "/"},
        {"cwd": "/", "mcpServers": [], "additionalDirectories": [""]},
        {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/tmp", "relative"]},
    ],
)
def test_a_bad_setup_is_refused(start, params):
    client = start()
    assert client.call("session/new", params)["error"]["code"] == -32600
    client.initialize()

    assert client.call("session/new", params)["error"]["code"] == -32602


@pytest.mark.parametrize(
    "block", [{"type": "audio", "data": "", "mimeType": "audio/wav"}, {"type": "text"}, 1]
)
def test_a_bad_block_is_refused(start, cwd, block):
    client = start()
    client.initialize()
    session = client.new_session(cwd)

    answer = client.call("session/prompt", {"sessionId": session, "prompt": [block]})

    assert answer["error"]["code"] == -32602


def test_the_end_of_the_input_ends_a_turn_and_the_process(start, cwd):
    client = start()
    client.initialize()
    begin(client, client.new_session(cwd), "slow", until="tick ")

    client.close_stdin()

    assert client.wait(3) == 0


def test_every_fault_names_its_assertion_and_says_what_is_wrong():
    listed = subprocess.run(
        [sys.executable, MODEL.with_name("faulty.py")], capture_output=True, text=True, check=True, timeout=20
    )
    faults = [line.split("\t") for line in listed.stdout.splitlines()]

    assert {f"A{number:02}" for number in range(1, 61)} <= {assertion for assertion, *_ in faults}
    assert all(meaning.endswith(".") for *_, meaning in faults)


def wait_until(holds):
    pause = threading.Event()
    for _ in range(500):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never happened")

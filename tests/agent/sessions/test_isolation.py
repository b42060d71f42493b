"""Two sessions at once in one process: nothing of the one is ever seen in the other."""

import json

import pytest

from agent.sessions.steps import conversation, listed, setup
from agent.steps import asks, cancel, error_of, update_of
from raw_client import is_answer_to

pytestmark = pytest.mark.usefixtures("unmeasured")

# Does what the prompt says, in this order: tells what it sees, changes it, waits until the client says so.
TWIN = """
import json, os
from coupler import Agent, Command, Mode, Select, Toggle
from coupler.schema.v1 import ReadTextFileRequest

class Twin(Agent):
    modes = [Mode("ask"), Mode("act")]
    options = [Select("model", ["fast", "smart"]), Toggle("web")]
    commands = [Command("plan", "Plan first")]

    async def opened(self, session):
        session.env["TWIN"] = session.id
        self.session = session

    async def mode_changed(self, session):
        assert session is self.session

    async def option_changed(self, session, option):
        assert session is self.session

    async def prompt(self, turn):
        session, name = turn.session, turn.text.removeprefix("/own").strip()
        assert session is self.session
        session.state = [*(session.state or []), name]
        await turn.plan(name)
        await turn.usage(len(name), 100)
        session.set_title(f"title {name}")
        session.set_commands([Command("own", name)])
        async with turn.tool(f"tool {name}", id=f"call {len(session.state)}") as call:
            await call.output(name)
            ran = await turn.terminal.run("sh", "-c", "pwd; echo $TWIN")
            content = await turn.call_editor(ReadTextFileRequest(session.id, f"/{name}"))
        await turn.say(json.dumps({
            "name": name, "id": session.id, "cwd": session.cwd, "roots": session.roots,
            "servers": [server.name for server in session.mcp_servers], "mode": session.mode,
            "options": dict(session.options), "state": session.state, "env": session.env["TWIN"],
            "process": [os.environ.get("TWIN"), os.getcwd()], "ran": ran.output.split(),
            "read": content.content, "command": turn.command and turn.command.name,
        }))
"""


@pytest.fixture
def twins(start, tmp_path):
    """A client and two sessions that differ in everything."""
    client = start(TWIN)
    client.initialize(fs={"readTextFile": True}, session={"configOptions": {"boolean": {}}})
    return client, [Twin(client, tmp_path, name) for name in ("anna", "bert")]


class Twin:
    """One of the two sessions, and all that the client has been told about it."""

    def __init__(self, client, directory, name):
        self.name = name
        self.cwd, self.root = directory / name, directory / f"{name}-more"
        self.cwd.mkdir()
        self.root.mkdir()
        server = {"name": f"{name}-tools", "command": "/bin/true", "args": [name], "env": []}
        params = setup(None, self.cwd, mcpServers=[server], additionalDirectories=[str(self.root)])
        self.id = client.call("session/new", params)["result"]["sessionId"]


def test_nothing_of_one_session_is_seen_in_the_other(twins, start, tmp_path):
    client, (anna, bert) = twins

    # When both are asked something in one write, and their turns run side by side,
    requests = {twin.name: client.prompt_request(twin.id, f"{twin.name} 1") for twin in (anna, bert)}
    client.send(*requests.values())
    questions = until_both_wait(client, anna, bert)
    # the mode of one is changed in the middle, an option of the other,
    assert "result" in client.call("session/set_mode", {"sessionId": anna.id, "modeId": "act"})
    change = {"sessionId": bert.id, "configId": "model", "value": "smart"}
    assert "result" in client.call("session/set_config_option", change)
    change = {"sessionId": anna.id, "configId": "web", "type": "boolean", "value": True}
    assert "result" in client.call("session/set_config_option", change)
    # and each is refused a second prompt while its own turn runs,
    assert error_of(client.call("session/prompt", prompt(anna, "busy?"))) == (-32600, "session_busy")
    # then one is cancelled, and the other gets its answer later,
    client.send(cancel(anna.id))
    assert client.answer_to(requests["anna"])["result"] == {"stopReason": "cancelled"}
    assert error_of(client.call("session/prompt", prompt(bert, "busy?"))) == (-32600, "session_busy")
    client.send({"id": questions[bert.id]["id"], "result": {"content": "for bert"}})
    assert client.answer_to(requests["bert"])["result"] == {"stopReason": "end_turn"}
    seen = sorted_out(client, anna, bert)

    # then each was told of its own only,
    assert_told_of_itself(seen[anna.id], "anna 1", mode="act", options={"web": True, "model": "fast"})
    assert_told_of_itself(seen[bert.id], "bert 1", mode=None, options={"web": False, "model": "smart"})
    assert not [update for update in seen[anna.id] if update["sessionUpdate"] == "agent_message_chunk"]
    assert_is_itself(report(seen[bert.id]), bert, "bert 1", mode="ask", model="smart", web=False)

    # and so it goes on: commands and state of its own, in both.
    for twin, mode, model, web in ((anna, "act", "fast", True), (bert, "ask", "smart", False)):
        updates = run_through(client, twin, f"/own {twin.name} 2")
        told = report(updates)
        assert told["command"] == "own"
        assert told["state"] == [f"{twin.name} 1", f"{twin.name} 2"]
        assert_is_itself(told, twin, f"{twin.name} 2", mode=mode, model=model, web=web)

    # What is kept of them is apart as well.
    titles = {each["sessionId"]: each for each in listed(client)}
    for twin in (anna, bert):
        assert titles[twin.id]["title"] == f"title {twin.name} 2"
        assert titles[twin.id]["cwd"] == str(twin.cwd)
        assert titles[twin.id]["additionalDirectories"] == [str(twin.root)]
        assert [each["sessionId"] for each in listed(client, cwd=str(twin.cwd))] == [twin.id]
    client.close_stdin()
    client.wait()
    assert_loaded_apart(start(TWIN), anna, bert)


def test_closing_or_deleting_one_session_leaves_the_turn_of_the_other_alone(twins):
    client, (anna, bert) = twins
    requests = {twin.name: client.prompt_request(twin.id, twin.name) for twin in (anna, bert)}
    client.send(*requests.values())
    questions = until_both_wait(client, anna, bert)

    assert client.call("session/close", {"sessionId": anna.id})["result"] == {}
    assert client.answer_to(requests["anna"])["result"] == {"stopReason": "cancelled"}
    assert error_of(client.call("session/prompt", prompt(anna, "x"))) == (-32002, "unknown_session")
    assert client.call("session/delete", {"sessionId": anna.id})["result"] == {}

    client.send({"id": questions[bert.id]["id"], "result": {"content": "for bert"}})
    assert client.answer_to(requests["bert"])["result"] == {"stopReason": "end_turn"}
    assert [each["sessionId"] for each in listed(client)] == [bert.id]


def test_a_wrong_id_reaches_no_session(twins):
    client, (anna, _) = twins

    for wrong in (anna.id[:-1], anna.id.upper(), f"{anna.id} ", "", "sess_"):
        assert error_of(client.call("session/prompt", {"sessionId": wrong, "prompt": []})) == (
            -32002,
            "unknown_session",
        )
        change = {"sessionId": wrong, "modeId": "act"}
        assert error_of(client.call("session/set_mode", change)) == (-32002, "unknown_session")

    assert report(run_through(client, anna, "anna"))["mode"] == "ask"


def until_both_wait(client, *twins):
    """Read until the turns of both wait for the client; the frames stay to be read."""
    questions, seen = {}, []
    while len(questions) < len(twins):
        frame = client.read()
        if asks("fs/read_text_file")(frame):
            questions[frame["params"]["sessionId"]] = frame
        else:
            seen.append(frame)
    client._held[:0] = seen
    for twin in twins:
        assert questions[twin.id]["params"]["path"].startswith(f"/{twin.name}")
    return questions


def sorted_out(client, *twins):
    """What each session was told, up to now."""
    assert "error" in client.call("_ping", {})
    frames, client._held = client._held, []
    seen = {twin.id: [] for twin in twins}
    for frame in frames:
        if frame.get("method") == "session/update":
            seen[frame["params"]["sessionId"]].append(update_of(frame))
    return seen


def run_through(client, twin, text):
    """A turn of one session, whose question is answered."""
    client._held.clear()
    request = client.prompt_request(twin.id, text)
    client.send(request)
    [*before, question] = client.read_until(asks("fs/read_text_file"))
    client.send({"id": question["id"], "result": {"content": f"for {twin.name}"}})
    [*after, answer] = client.read_until(lambda frame: is_answer_to(frame, request["id"]))
    assert answer["result"] == {"stopReason": "end_turn"}
    frames = [frame for frame in (*before, *after) if frame.get("method") == "session/update"]
    return [update_of(frame) for frame in frames if frame["params"]["sessionId"] == twin.id]


def report(updates):
    """What the agent says that it sees."""
    [(_, told)] = conversation(updates)
    return json.loads(told)


def assert_told_of_itself(updates, name, mode, options):
    by_kind = {update["sessionUpdate"]: update for update in updates}
    assert [entry["content"] for entry in by_kind["plan"]["entries"]] == [name]
    assert by_kind["usage_update"]["used"] == len(name)
    assert by_kind["session_info_update"]["title"] == f"title {name}"
    assert [command["description"] for command in by_kind["available_commands_update"]["availableCommands"]]
    calls = [update for update in updates if update["sessionUpdate"] == "tool_call"]
    assert [(call["toolCallId"], call["title"]) for call in calls] == [("call 1", f"tool {name}")]
    assert by_kind.get("current_mode_update", {}).get("currentModeId") == mode
    told = {each["id"]: each["currentValue"] for each in by_kind["config_option_update"]["configOptions"]}
    assert {id: value for id, value in told.items() if id != "mode"} == options
    other = "bert" if name.startswith("anna") else "anna"
    assert other not in json.dumps(updates)


def assert_is_itself(told, twin, name, *, mode, model, web):
    assert told["name"] == name
    assert told["id"] == told["env"] == twin.id
    assert told["cwd"] == str(twin.cwd)
    assert told["roots"] == [str(twin.cwd), str(twin.root)]
    assert told["servers"] == [f"{twin.name}-tools"]
    assert (told["mode"], told["options"]) == (mode, {"model": model, "web": web})
    assert told["ran"] == [str(twin.cwd), twin.id]
    assert told["read"] == f"for {twin.name}"
    assert told["process"][0] is None
    assert told["process"][1] not in (str(twin.cwd), str(twin.root))


def assert_loaded_apart(client, anna, bert):
    """Both are loaded in one write, and each is told its own past."""
    client.initialize(fs={"readTextFile": True}, session={"configOptions": {"boolean": {}}})
    loads = [client.request("session/load", setup(twin.id, twin.cwd)) for twin in (anna, bert)]
    client.send(*loads)
    answers = [client.answer_to(load) for load in loads]
    assert [answer["result"]["modes"]["currentModeId"] for answer in answers] == ["act", "ask"]
    seen = sorted_out(client, anna, bert)
    for twin, other in ((anna, "bert"), (bert, "anna")):
        said = [text for who, text in conversation(seen[twin.id]) if who == "user"]
        assert said == [f"{twin.name} 1", f"/own {twin.name} 2"]
        assert other not in json.dumps(seen[twin.id])


def prompt(twin, text):
    return {"sessionId": twin.id, "prompt": [{"type": "text", "text": text}]}

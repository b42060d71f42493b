"""What happens while a session is opened: the agent's own part, and the directories that are named."""

from pathlib import Path

import pytest

from agent.sessions.steps import kinds, listed, reopen, setup
from raw_client import is_answer_to, texts

PREPARING = """
import asyncio
from coupler import Agent, Command, Mode, Select

class Preparing(Agent):
    modes = [Mode("ask"), Mode("act")]

    async def opened(self, session):
        session.declare(options=[Select("model", ["small", "large"])])
        session.set_mode("act")
        session.set_commands([Command("go", "Go on")])
        session.set_title("Prepared")
        await asyncio.sleep(0.05)  # as long as everything that was sent needs to be written

    async def prompt(self, turn):
        await turn.say(f"{turn.session.mode} {turn.session.options['model']}")
"""

HOOKED = """
from pathlib import Path
from coupler import Agent

class Hooked(Agent):
    def opened(self, session):
        self.note(session, f"opened {session.state}")

    async def closed(self, session):
        self.note(session, f"closed {session.state}")

    async def prompt(self, turn):
        turn.session.state = turn.text

    def note(self, session, line):
        with Path(session.cwd, "hooks.txt").open("a") as file:
            print(line, file=file)
"""


def test_a_client_hears_nothing_of_a_new_session_before_its_answer(converse, tmp_path):
    client, _ = converse(PREPARING)
    request = client.request("session/new", setup(None, tmp_path))
    client.send(request)

    *before, answer = client.read_until(lambda frame: is_answer_to(frame, request["id"]))

    session = answer["result"]["sessionId"]
    assert not [frame for frame in before if frame.get("params", {}).get("sessionId") == session]
    assert answer["result"]["modes"]["currentModeId"] == "act"
    assert [option["id"] for option in answer["result"]["configOptions"]] == ["mode", "model"]
    updates, _ = client.prompt(session)
    assert "Prepared" in [update.get("title") for update in updates]
    assert texts(updates) == "act small"


def test_a_resume_is_answered_before_anything_is_told(converse, tmp_path):
    client, _ = converse(PREPARING)
    session = client.new_session(str(tmp_path))
    client.prompt(session)
    client.call("session/close", {"sessionId": session})

    updates, answer = reopen(client, "session/resume", session, tmp_path)

    assert set(kinds(updates)) <= {"available_commands_update"}  # of the sessions before
    assert answer["result"]["modes"]["currentModeId"] == "act"


def test_the_hooks_frame_the_time_that_a_session_is_open(start, tmp_path):
    client = start(HOOKED)
    client.initialize()
    session = client.new_session(str(tmp_path))
    client.prompt(session, "one")
    client.call("session/close", {"sessionId": session})
    reopen(client, "session/resume", session, tmp_path)
    client.prompt(session, "two")
    client.close_stdin()
    client.wait()

    noted = Path(tmp_path, "hooks.txt").read_text().splitlines()

    assert noted == ["opened None", "closed one", "opened one", "closed two"]


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_list_shows_the_directories_that_were_named_last(converse, tmp_path, method, is_closed):
    client, _ = converse("async def agent(turn): pass")
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    first = setup(None, tmp_path, additionalDirectories=[str(tmp_path / "old")])
    session = client.call("session/new", first)["result"]["sessionId"]
    for roots in ([str(tmp_path / "new")], []):
        if is_closed:
            client.call("session/close", {"sessionId": session})

        reopen(client, method, session, tmp_path, additionalDirectories=roots)

        [entry] = [each for each in listed(client) if each["sessionId"] == session]
        assert entry.get("additionalDirectories", []) == roots

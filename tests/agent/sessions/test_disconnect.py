"""What happens around the end of a session: nothing is lost, nothing half made, nothing said afterwards."""

import time

from agent.sessions.steps import conversation, listed, reopen, restarted, setup
from agent.steps import OBEDIENT, error_of, still_serves
from raw_client import texts

SLOW_TO_CLOSE = """
import asyncio
from coupler import Agent

class Slow(Agent):
    async def prompt(self, turn):
        await turn.say(turn.text)

    async def closed(self, session):
        await asyncio.sleep(0.3)
"""


def test_a_load_right_behind_a_close_has_the_session_for_itself(start, tmp_path):
    client, other = start(SLOW_TO_CLOSE), start(SLOW_TO_CLOSE)
    client.initialize()
    other.initialize()
    session = client.new_session(str(tmp_path))
    client.prompt(session, "one")

    close = client.request("session/close", {"sessionId": session})
    load = client.request("session/load", setup(session, tmp_path))
    prompt = client.prompt_request(session, "two")
    client.send(close, load, prompt)

    assert client.answer_to(close)["result"] == {}
    assert "result" in client.answer_to(load)
    assert client.answer_to(prompt)["result"] == {"stopReason": "end_turn"}
    assert error_of(reopen(other, "session/load", session, tmp_path)[1]) == (-32600, "session_held")


def test_a_prompt_right_behind_a_close_is_refused(converse, tmp_path):
    client, _ = converse(SLOW_TO_CLOSE)
    session = client.new_session(str(tmp_path))

    close = client.request("session/close", {"sessionId": session})
    prompt = client.prompt_request(session, "late")
    client.send(close, prompt)

    assert client.answer_to(close)["result"] == {}
    assert error_of(client.answer_to(prompt)) == (-32002, "unknown_session")
    assert conversation(reopen(client, "session/load", session, tmp_path)[0]) == []


def test_a_load_right_behind_a_delete_finds_nothing(converse, tmp_path):
    client, _ = converse(SLOW_TO_CLOSE)
    session = client.new_session(str(tmp_path))
    client.prompt(session, "one")

    delete = client.request("session/delete", {"sessionId": session})
    load = client.request("session/load", setup(session, tmp_path))
    client.send(delete, load)

    assert client.answer_to(delete)["result"] == {}
    assert error_of(client.answer_to(load)) == (-32002, "unknown_session")


def test_a_closed_session_says_nothing_more(converse, tmp_path):
    client, _ = converse(
        """
        import asyncio
        from coupler import Agent

        class Restless(Agent):
            async def prompt(self, turn):
                async def rename():
                    await asyncio.sleep(0.05)
                    turn.session.set_title("too late")
                    turn.session.set_commands([])
                self.task = asyncio.create_task(rename())
        """
    )
    session = client.new_session(str(tmp_path))
    client.prompt(session, "in time")
    client.call("session/close", {"sessionId": session})
    time.sleep(0.1)  # silence is to be proven
    still_serves(client)

    assert client._held == []
    assert [each["title"] for each in listed(client) if "title" in each] == ["in time"]


def test_what_could_not_be_forked_is_not_there(start, tmp_path):
    source = """
    from coupler import Agent

    class Once(Agent):
        made = 0

        async def opened(self, session):
            Once.made += 1
            if Once.made > 1:
                raise RuntimeError("no more")

        async def prompt(self, turn):
            await turn.say("fine")
    """
    client = start(source, "--drafts=fork")
    client.initialize()
    session = client.new_session(str(tmp_path))
    client.prompt(session, "one")

    answer = client.call("session/fork", setup(session, tmp_path))

    assert error_of(answer) == (-32603, "agent_failed")
    assert [each["sessionId"] for each in listed(client)] == [session]


def test_state_that_is_set_when_the_session_is_left_is_saved(start, tmp_path):
    source = """
    from coupler import Agent, Mode

    class Last(Agent):
        modes = [Mode("a"), Mode("b")]

        async def prompt(self, turn):
            await turn.say(str(turn.session.state))

        def mode_changed(self, session):
            session.state = f"in {session.mode}"

        def closed(self, session):
            session.state = f"{session.state}, left"
    """
    first = start(source)
    first.initialize()
    session = first.new_session(str(tmp_path))
    first.call("session/set_mode", {"sessionId": session, "modeId": "b"})
    first.close_stdin()
    first.wait()
    second = start(source)
    second.initialize()
    reopen(second, "session/resume", session, tmp_path)

    assert texts(second.prompt(session)[0]) == "in b, left"


def test_a_factory_finds_what_was_saved(start, tmp_path):
    source = """
    from coupler import serve

    def make(session):
        found = (session.title, session.state)

        async def agent(turn):
            turn.session.state = 1
            await turn.say(str(found))

        return agent

    serve(factory=make)
    """
    client, session = restarted(start, source, tmp_path, "hello")
    reopen(client, "session/resume", session, tmp_path)

    assert texts(client.prompt(session)[0]) == "('hello', 1)"


def test_a_command_that_nobody_waits_for_ends_with_its_turn(converse, tmp_path):
    client, session = converse(OBEDIENT)
    source = """
import asyncio, os
task = asyncio.create_task(turn.terminal.run("sh", "-c", "echo $$ > {0}; exec sleep 60"))
while not os.path.exists("{0}") or not open("{0}").read().strip():
    await asyncio.sleep(0.01)
""".format(tmp_path / "pid")

    _, answer = client.prompt(session, source)

    assert answer["result"] == {"stopReason": "end_turn"}
    pid = int((tmp_path / "pid").read_text())
    check = f"import os\nawait turn.say(str(os.path.exists('/proc/{pid}')))"
    deadline = time.monotonic() + 10
    while texts(client.prompt(session, check)[0]) == "True":
        assert time.monotonic() < deadline


def test_the_values_of_options_cannot_be_changed_by_mistake(share):
    client, session = share(OBEDIENT)

    _, answer = client.prompt(session, "turn.session.options['x'] = 1")

    assert "TypeError" in answer["error"]["message"]


def test_a_session_that_is_moved_tells_its_agent(converse, tmp_path):
    client, _ = converse(
        """
        from coupler import Agent

        class Moving(Agent):
            moves = 0

            def moved(self, session):
                self.moves += 1

            async def prompt(self, turn):
                await turn.say(f"{self.moves} {len(turn.session.roots)}")
        """
    )
    (tmp_path / "more").mkdir()
    session = client.new_session(str(tmp_path))

    reopen(client, "session/resume", session, tmp_path)
    assert texts(client.prompt(session)[0]) == "0 1"
    reopen(client, "session/resume", session, tmp_path, additionalDirectories=[str(tmp_path / "more")])
    assert texts(client.prompt(session)[0]) == "1 2"

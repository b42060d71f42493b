"""Slash commands: told after the session is, told again, and parsed for the agent."""

from agent.sessions.steps import reopen, setup
from agent.steps import update_of
from raw_client import is_answer_to, texts

COMMANDING = """
from coupler import Agent, Command

class Commanding(Agent):
    commands = [Command("plan", "Plan only", hint="what to plan"), Command("stop", "Stop it")]

    async def prompt(self, turn):
        if turn.command is None:
            await turn.say("no command")
        elif turn.command.name == "stop":
            turn.session.set_commands([Command("go", "Go on")])
        else:
            await turn.say(f"{turn.command.name}|{turn.command.arguments}")
"""


def next_update(client):
    update = update_of(client.read())
    while update["sessionUpdate"] == "session_info_update":
        update = update_of(client.read())
    return update


def test_they_are_told_right_after_the_session_and_once_more(converse):
    client, _ = converse(COMMANDING)

    first, second = next_update(client), next_update(client)

    assert first == second
    assert first["availableCommands"] == [
        {"name": "plan", "description": "Plan only", "input": {"hint": "what to plan"}},
        {"name": "stop", "description": "Stop it"},
    ]


def test_they_are_told_after_a_load_and_a_resume_too(converse, tmp_path):
    client, _ = converse(COMMANDING)
    session = client.new_session(str(tmp_path))
    for method in ("session/load", "session/resume"):
        client.call("session/close", {"sessionId": session})
        client.read_until(lambda frame: frame.get("method") == "session/update")
        client._held.clear()
        request = client.request(method, setup(session, tmp_path))
        client.send(request)
        client.answer_to(request)

        client.read_until(
            lambda frame: (
                frame.get("method") == "session/update"
                and frame["params"]["sessionId"] == session
                and frame["params"]["update"]["sessionUpdate"] == "available_commands_update"
            )
        )


def test_a_prompt_that_is_a_command_comes_with_its_name_and_arguments(share):
    client, session = share(COMMANDING)

    assert texts(client.prompt(session, "/plan the  thing\nand more")[0]) == "plan|the  thing\nand more"
    assert texts(client.prompt(session, "/plan")[0]) == "plan|"
    assert texts(client.prompt(session, "/planned")[0]) == "no command"
    assert texts(client.prompt(session, "please /plan")[0]) == "no command"


def test_other_commands_are_told_when_they_change(share):
    client, session = share(COMMANDING)

    updates, _ = client.prompt(session, "/stop")

    names = [
        [command["name"] for command in update["availableCommands"]]
        for update in updates
        if update["sessionUpdate"] == "available_commands_update"
    ]
    assert names[-1] == ["go"]


def test_an_agent_without_commands_sends_none(converse, tmp_path):
    client, session = converse("async def agent(turn): pass")
    updates, _ = reopen(client, "session/load", session, "/")
    client.close_stdin()
    client.wait()

    assert updates == []
    assert not [frame for frame in client.rest() if frame.get("method") == "session/update"]


def kinds_behind(client):
    """The kinds of the updates that come until the agent ends."""
    client.close_stdin()
    client.wait()
    return [update_of(frame)["sessionUpdate"] for frame in client.rest() if "method" in frame]


def test_a_load_tells_them_before_its_answer_and_nothing_of_what_is_known_after_it(converse):
    client, session = converse(COMMANDING)
    client.prompt(session, "Name this session")

    updates, answer = reopen(client, "session/load", session, "/")

    assert "error" not in answer
    told = [update["sessionUpdate"] for update in updates]
    assert told[-1] == "available_commands_update"
    assert told.count("session_info_update") == 1
    assert kinds_behind(client) == []


def test_a_turn_that_begins_before_they_are_told_again_has_them_before_its_answer(converse):
    client, session = converse(COMMANDING)
    cancel = {"method": "session/cancel", "params": {"sessionId": session}}
    prompt = client.prompt_request(session, "/plan")

    client.send(prompt, cancel)
    *before, _ = client.read_until(lambda frame: is_answer_to(frame, prompt["id"]))

    told = [update_of(frame)["sessionUpdate"] for frame in before]
    assert told.count("available_commands_update") == 2
    assert kinds_behind(client) == []


def test_commands_and_titles_that_are_the_same_are_no_news(share):
    client, session = share("""
    from coupler import Agent, Command

    class Repeating(Agent):
        async def prompt(self, turn):
            for _ in range(3):
                turn.session.set_title("A title")
                turn.session.set_commands([Command("go", "Go on")])
    """)
    updates, _ = client.prompt(session, "")

    assert sorted(update["sessionUpdate"] for update in updates) == [
        "available_commands_update",
        "session_info_update",
    ]

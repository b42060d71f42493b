"""Opening sessions."""

import os
import stat

import pytest

from agent.steps import error_of

AGENT = """
async def agent(turn):
    session = turn.session
    await turn.say(f"{session.cwd} {[server.name for server in session.mcp_servers]}")
"""


@pytest.fixture
def client(share):
    client, _ = share(AGENT)
    return client


def said_about(client, params):
    answer = client.call("session/new", params)
    updates, _ = client.prompt(answer["result"]["sessionId"])
    return updates[-1]["content"]["text"]


def test_a_session_works_in_the_directory_it_was_given(client, tmp_path):
    assert said_about(client, {"cwd": str(tmp_path), "mcpServers": []}) == f"{tmp_path} []"


@pytest.mark.parametrize(
    ("cwd", "problem"),
    [
        ("", "expected an absolute path"),
        (".", "expected an absolute path"),
        ("src/app", "expected an absolute path"),
        ("/no/such/place", "does not exist"),
        (__file__, "is not a directory"),
        ("/a\0b", "does not exist"),
        ("/" + "x" * 5000, "does not exist"),
        ("/" + "x/" * 5000, "does not exist"),
        ("/\ud800", "does not exist"),
    ],
)
def test_a_directory_that_cannot_be_worked_in_is_refused(client, cwd, problem):
    answer = client.call("session/new", {"cwd": cwd, "mcpServers": []})

    assert error_of(answer) == (-32602, "invalid_params")
    assert answer["error"]["data"]["path"] == "cwd"
    assert problem in answer["error"]["message"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_in_a_forbidden_place_is_refused(client, tmp_path):
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    try:
        answer = client.call("session/new", {"cwd": str(tmp_path / "closed" / "inner"), "mcpServers": []})
    finally:
        (tmp_path / "closed").chmod(stat.S_IRWXU)
    assert error_of(answer) == (-32602, "invalid_params")


GOOD = {"name": "good", "command": "/bin/true", "args": [], "env": []}


@pytest.mark.parametrize(
    ("servers", "kept"),
    [
        (None, []),
        ([GOOD], ["good"]),
        ([5, None, "x", {"name": "half"}, GOOD], ["good"]),
        ([{**GOOD, "name": 7}], []),
        ([{"type": "http", "name": "web", "url": "http://localhost/", "headers": []}], ["web"]),
        ([{"type": "telepathy", "name": "odd"}, GOOD], ["good"]),
    ],
)
def test_a_bad_mcp_server_costs_only_itself(client, servers, kept):
    assert said_about(client, {"cwd": "/", "mcpServers": servers}) == f"/ {kept}"


@pytest.mark.parametrize("servers", [{}, 5, "none"])
def test_mcp_servers_that_are_no_list_are_refused(client, servers):
    answer = client.call("session/new", {"cwd": "/", "mcpServers": servers})

    assert error_of(answer) == (-32602, "invalid_params")
    assert answer["error"]["data"]["path"] == "mcpServers"


@pytest.mark.parametrize("directories", [None, []])
def test_no_more_directories_are_no_problem(client, directories):
    params = {"cwd": "/", "mcpServers": [], "additionalDirectories": directories}

    assert "result" in client.call("session/new", params)


def test_a_hundred_sessions_have_a_hundred_ids(client):
    requests = [client.request("session/new", {"cwd": "/", "mcpServers": []}) for _ in range(100)]

    client.send(*requests)

    ids = {client.answer_to(request)["result"]["sessionId"] for request in requests}
    assert len(ids) == 100


def test_nothing_of_a_session_comes_before_its_answer(start):
    """Neovim's client drops updates of a session that it was not told about."""
    client = start("""
        import asyncio
        from coupler import serve
        from coupler.events import Text

        tasks = []

        def factory(session):
            session.outlet.ledger.announce("Eager", status="completed")
            session.outlet.send(Text("eager"))
            async def agent(turn): ...
            return agent

        serve(factory=factory)
    """)
    client.initialize()

    for _ in range(20):
        new = client.request("session/new", {"cwd": "/", "mcpServers": []})
        client.send(new)
        first, second, third = client.read(), client.read(), client.read()

        session = first["result"]["sessionId"]
        assert [second["params"]["sessionId"], third["params"]["sessionId"]] == [session, session]


@pytest.mark.parametrize(
    "statement", ["raise OSError('no disk')", "import sys; sys.exit(3)", "raise KeyboardInterrupt"]
)
def test_an_agent_that_cannot_be_made_fails_its_session_alone(start, statement):
    client = start(f"""
        from coupler import Agent
        attempts = []
        class Fragile(Agent):
            def __init__(self):
                attempts.append(self)
                if len(attempts) == 1:
                    {statement}
            async def prompt(self, turn):
                await turn.say("here")
    """)
    client.initialize()

    answer = client.call("session/new", {"cwd": "/", "mcpServers": []})

    assert error_of(answer) == (-32603, "agent_failed")
    updates, _ = client.prompt(client.new_session())
    assert updates[0]["content"]["text"] == "here"

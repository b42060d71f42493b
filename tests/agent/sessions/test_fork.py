"""`session/fork`, a draft: only for those who ask for it."""

from agent.sessions.steps import REMEMBERS, conversation, reopen, setup
from agent.steps import begin, error_of


def test_it_is_not_there_unless_it_is_asked_for(share, tmp_path):
    client, session = share(REMEMBERS)

    assert client.call("session/fork", setup(session, tmp_path))["error"]["code"] == -32601


def test_a_fork_has_the_history_and_goes_its_own_way(start, tmp_path):
    client = start(REMEMBERS, "--drafts", "fork")
    hello = client.initialize()["result"]
    assert hello["agentCapabilities"]["sessionCapabilities"]["fork"] == {}
    session = client.new_session(str(tmp_path))
    client.prompt(session, "one")

    fork = client.call("session/fork", setup(session, tmp_path))["result"]["sessionId"]
    client.prompt(fork, "two")
    client.prompt(session, "other two")

    assert fork != session
    ours, _ = reopen(client, "session/load", session, tmp_path)
    theirs, _ = reopen(client, "session/load", fork, tmp_path)
    assert conversation(ours)[-1] == ("agent", "2: other two")
    assert conversation(theirs) == [
        ("user", "one"),
        ("agent", "1: one"),
        ("user", "two"),
        ("agent", "2: two"),
    ]


def test_a_running_turn_is_not_part_of_the_fork(start, tmp_path):
    source = """
    import asyncio

    async def agent(turn):
        await turn.say("started")
        if turn.text == "wait":
            await asyncio.Event().wait()
    """
    client = start(source, "--drafts=fork")
    client.initialize()
    session = client.new_session(str(tmp_path))
    client.prompt(session, "one")
    begin(client, session, "wait")

    fork = client.call("session/fork", setup(session, tmp_path))["result"]["sessionId"]

    assert conversation(reopen(client, "session/load", fork, tmp_path)[0]) == [
        ("user", "one"),
        ("agent", "started"),
    ]


def test_a_fork_of_nothing_is_refused(start, tmp_path):
    client = start(REMEMBERS, "--drafts=fork")
    client.initialize()

    assert error_of(client.call("session/fork", setup("sess_none", tmp_path))) == (-32002, "unknown_session")

"""Sessions as plain functions see them, from their threads."""

from agent.sessions.steps import kinds
from raw_client import texts

PLAIN = """
from coupler import Agent, Command, Mode, Select

class Plain(Agent):
    modes = [Mode("ask"), Mode("act")]
    options = [Select("model", ["a", "b"])]

    def opened(self, session):
        session.env["GREETING"] = "hello"

    def prompt(self, turn):
        session = turn.session
        session.set_mode("act")
        session.set_option("model", "b")
        session.set_title("Mine")
        session.set_commands([Command("go", "Go")])
        session.declare(options=[Select("model", ["b", "c"])])
        session.state = [session.mode, session.options["model"]]
        found = [session.id[:5], session.cwd, session.roots, session.title, session.state]
        turn.say(f"{found} {session.env['GREETING']} {session.mcp_servers} {session.commands[0].name}")
        turn.say(str(session.editor is turn.editor))
"""


def test_they_can_use_everything_of_their_session(share):
    client, session = share(PLAIN)

    updates, answer = client.prompt(session)

    assert answer["result"] == {"stopReason": "end_turn"}
    assert kinds(updates)[:6] == [
        "current_mode_update",
        "config_option_update",
        "config_option_update",
        "session_info_update",
        "available_commands_update",
        "config_option_update",
    ]
    assert texts(updates) == "['sess_', '/', ('/',), 'Mine', ['act', 'b']] hello () goTrue"

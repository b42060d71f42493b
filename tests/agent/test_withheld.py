"""Variables of the process that a session withholds: nothing that it runs gets to see them."""

from __future__ import annotations

import json
import sys

import pytest

from agent.steps import OBEDIENT
from agent.test_editor_terminal import Terminals
from raw_client import texts

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="a process is asked in /proc what it was given"
)

VALUE = "withheld-0123456789"
AGENT = f"import os\nos.environ |= {{'HELD_WORD': {VALUE!r}, 'KEPT_WORD': 'yes'}}\n{OBEDIENT}"
WITHHOLD = "turn.session.withhold(['HELD_WORD', 'NOT_THERE'])"
SHOW = "await turn.terminal.run('/bin/cat', '/proc/self/environ')"


def environment_of(client, session, statement=SHOW):
    # Its length, so that no masker stands between what is there and the test.
    words = f"('HELD_WORD=' in shown, {VALUE!r} in shown, 'KEPT_WORD=yes' in shown)"
    updates, answer = client.prompt(session, f"shown = ({statement}).output\nawait turn.say(repr({words}))")
    assert answer.get("result") == {"stopReason": "end_turn"}, answer
    return eval(texts(updates))


def test_a_command_does_not_get_it_and_the_process_keeps_it(converse):
    client, session = converse(AGENT)
    before = environment_of(client, session)

    client.prompt(session, WITHHOLD)

    assert before == (True, True, True)
    assert environment_of(client, session) == (False, False, True)
    assert environment_of(client, client.new_session()) == (True, True, True)
    updates, _ = client.prompt(session, "import os\nawait turn.say(repr(len(os.environ['HELD_WORD'])))")
    assert texts(updates) == str(len(VALUE))


def test_the_editors_terminal_gets_it_empty_and_still_runs_the_command(converse):
    editor = Terminals(*converse(AGENT, terminal=True))
    editor.prompt(WITHHOLD)

    editor.prompt("await turn.terminal.run('true')")

    (method, params), *_ = editor.asked
    assert method == "create"
    assert params["env"] == [{"name": "HELD_WORD", "value": ""}]
    assert VALUE not in json.dumps(editor.asked)


def test_whoever_sets_it_for_one_command_means_it(converse):
    client, session = converse(AGENT)
    client.prompt(session, WITHHOLD)

    given = "await turn.terminal.run('/bin/cat', '/proc/self/environ', env={'HELD_WORD': 'own'})"

    assert environment_of(client, session, given)[:2] == (True, False)

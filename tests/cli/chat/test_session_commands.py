"""What is typed into `coupler chat` about sessions and settings, and the line that tells of them."""

from __future__ import annotations

import re
import sys

import pytest

from cli.chat_stage import CTRL_C, CTRL_D, ENTER, MENU, READY, REFERENCE, WORKING, Chatter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals"),
]

THINKS = """
for prompt in prompts():
    send(update("agent_thought_chunk", content={"type": "text", "text": "Let me see.\\n"}))
    wait_for("go")
    send(say("answered " + text_of(prompt)), end(prompt))
"""
FULL = """
def select(name, value, category):
    values = [{"value": value, "name": value}]
    told = {"id": name, "name": name, "type": "select", "currentValue": value, "options": values}
    return {**told, "category": category}
for frame in iter(read, None):
    match frame["method"]:
        case "initialize":
            send(result(frame, {**HELLO, "agentInfo": {"name": "An agent with a name", "version": "1"}}))
        case "session/new":
            mode = select("mode", "interactive", "mode")
            options = [mode, select("model", "openai:scripted-large", "model")]
            send(result(frame, {"sessionId": "s1", "configOptions": options}))
            send(update("session_info_update", title="A title of some words that is too long"))
            send(update("usage_update", used=123400, size=200000))
            send(update("available_commands_update", availableCommands=[
                {"name": name, "description": "Theirs"} for name in ("clear", "plan")]))
        case "session/prompt":
            send(say("You said: " + text_of(frame), ), end(frame))
"""


def leaves(person):
    person.says("/quit")
    assert person.ends() == 0


class TestStatusLine:
    @pytest.mark.parametrize(
        ("columns", "line"),
        [
            (
                160,
                "An agent with a name · A title of some words that is too long · mode interactive"
                " · model openai:scripted-large · 123,400/200,000 tokens · /help",
            ),
            (
                125,
                "An agent with a name · A title of some… · mode interactive"
                " · model openai:scripted-large · 123,400/200,000 tokens · /help",
            ),
            (75, "mode interactive · model openai:scripted-large · 123,400/200,000 tokens"),
            (60, "model openai:scripted-large · 123,400/200,000 tokens"),
            (50, "openai:scripted-large · 123,400/200,000 tokens"),
            (40, "openai:scripted-large · 123.4k/200k"),
            (32, "scripted-large · 123.4k/200k"),
        ],
    )
    def test_model_and_tokens_are_kept_however_narrow_it_is(self, scripted, tmp_path, columns, line):
        with Chatter(scripted(FULL), cwd=tmp_path, columns=columns) as person:
            person.reads(rf"(\n|> +){re.escape(line)}(?=\n|$)")
            person.types(CTRL_D)
            assert person.ends() == 0

    def test_they_are_shown_while_the_agent_works(self, tmp_path):
        with Chatter(REFERENCE, cwd=tmp_path) as person:
            person.says("/note x")
            person.reads(MENU)
            person.types(ENTER)
            person.reads(f"{WORKING} · mode careful · model sparrow")
            leaves(person)


class TestSessions:
    def test_load_offers_the_earlier_sessions(self, tmp_path):
        with Chatter(REFERENCE, "--permissions", "allow-all", cwd=tmp_path) as person:
            person.says("/note first")
            person.reads("✓ Add a line")
            person.says("/new")
            person.reads("This is a new session.")
            person.says("/note second")
            person.reads("✓ Add a line")
            person.says("/load")
            person.reads(r"1 /note second .*\n▸ 2 /note first ")
            person.reads(MENU)
            person.types(ENTER)
            person.reads("> /note first")
            person.says("/load")
            person.reads(MENU)
            person.types(CTRL_C)
            person.says("/sessions")
            person.reads(r"\* 2 +/note first")
            leaves(person)

    def test_clear_begins_a_new_session_on_an_empty_screen(self, tmp_path):
        with Chatter(REFERENCE, "--permissions", "allow-all", cwd=tmp_path) as person:
            person.says("/note first")
            person.reads("✓ Add a line")
            person.says("/clear")
            person.reads("This is a new session.")
            assert "\x1b[2J" in person.shown.rpartition("This is a new session.")[0][-200:]
            person.says("/sessions")
            listed = person.reads("/load N resumes one")
            assert re.search(r"\n  \d +/note first", listed)
            leaves(person)

    def test_two_slashes_lead_to_the_agents_command_of_the_same_name(self, scripted, tmp_path):
        with Chatter(scripted(FULL), cwd=tmp_path, columns=160) as person:
            person.says("//clear")
            person.reads("You said: /clear")
            leaves(person)


class TestThinking:
    def test_thoughts_are_hidden_and_shown_by_the_command_and_the_key(self, scripted, tmp_path):
        with Chatter(scripted(THINKS), cwd=tmp_path) as person:
            person.says("/thinking")
            person.reads("Thoughts are hidden.")
            person.says("one")
            person.reads(WORKING)
            (tmp_path / "go").touch()
            assert "Let me see" not in person.reads("answered one")
            person.says("/show 1")
            person.reads("∴ Let me see.")
            (tmp_path / "go").unlink()
            person.says("two")
            person.reads(WORKING)
            person.types("\x14")
            person.reads("Thoughts are shown.")
            (tmp_path / "go").touch()
            person.reads("answered two")
            person.reads(READY)
            person.types("\x14")
            person.reads("Thoughts are hidden.")
            person.says("/thinking on")
            person.reads("Thoughts are shown.")
            person.says("three")
            person.reads("∴ Let me see.")
            person.reads("answered three")
            leaves(person)

    def test_the_effort_is_listed_and_set_by_the_option_of_its_category(self, tmp_path):
        with Chatter(REFERENCE, "--model", "eagle", cwd=tmp_path) as person:
            person.says("/effort")
            person.reads(r"\* low\n +high")
            person.says("/effort high")
            person.reads("The effort is high.")
            person.says("/effort huge")
            person.reads("huge")
            person.says("/option")
            person.reads(r"effort +high \(of low, high\)")
            leaves(person)

    def test_an_agent_without_levels_of_effort_says_so(self, scripted, tmp_path):
        with Chatter(scripted(THINKS), cwd=tmp_path) as person:
            person.says("/effort high")
            person.reads("The agent offers no levels of effort.")
            leaves(person)


class TestUnknownCommands:
    def test_what_is_no_command_is_answered_here_and_a_path_is_sent(self, scripted, tmp_path):
        agent = scripted(THINKS)
        (tmp_path / "go").touch()
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("/qiut")
            person.reads(r"did you mean /quit\? //qiut is sent to the agent as it is.")
            person.says("/xyzzy this")
            person.reads(r"There is no command /xyzzy. These there are:\n(.*\n)+ +/quit")
            person.says("/etc/hosts is wrong")
            person.reads("answered /etc/hosts is wrong")
            leaves(person)
        (prompt,) = agent.received_of("session/prompt")
        assert prompt["params"]["prompt"] == [{"type": "text", "text": "/etc/hosts is wrong"}]

"""Commands of the user's own in `coupler chat`: `!command`, shown as it runs and told to the agent."""

from __future__ import annotations

import os
import sys

import pytest

from cli.chat_stage import CTRL_C, CTRL_D, ENTER, READY, TAB, UP, WORKING, Chatter
from client.stage import gone_within

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals"),
]

ECHO = """
for prompt in prompts():
    params = prompt["params"]
    send(say("You said: " + params["prompt"][0]["text"], params["sessionId"]), end(prompt))
"""


def leaves(person):
    person.says("/quit")
    assert person.ends() == 0


def texts(agent):
    """The texts of each prompt."""
    prompts = agent.received_of("session/prompt")
    return [[block["text"] for block in frame["params"]["prompt"]] for frame in prompts]


class TestSharing:
    def test_the_output_goes_along_with_the_next_prompt_alone(self, scripted, tmp_path):
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("!echo one; echo two >&2; exit 3")
            person.reads("one\ntwo\n")
            person.reads(r"✗ Exit code 3. It is sent with your next prompt\.")
            person.says("Why?")
            person.reads(r"The output of echo one; echo two >&2; exit 3 is attached \(8 bytes\)\.")
            person.reads("You said: Why")
            person.says("Again?")
            person.reads("You said: Again")
            leaves(person)
        (question, told), again = texts(agent)
        assert (question, again) == ("Why?", ["Again?"])
        assert f"in {tmp_path}, before this prompt (exit code 3)" in told
        assert "```\n$ echo one; echo two >&2; exit 3\none\ntwo\n```" in told

    def test_with_two_marks_the_agent_hears_nothing_of_it(self, scripted, tmp_path):
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("!!echo for me")
            assert "It is sent" not in person.reads("\nfor me\n(.*\n)*.*/help")
            person.types("hello" + ENTER)
            person.reads("You said: hello")
            leaves(person)
        assert texts(agent) == [["hello"]]

    def test_a_command_of_the_agent_and_a_new_session_do_not_get_it(self, scripted, tmp_path):
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("!echo one")
            person.reads("It is sent")
            person.says("//plan it")
            person.reads("You said: /plan it")
            person.says("/new")
            person.reads("This is a new session")
            person.says("hello")
            person.reads("You said: hello")
            leaves(person)
        assert texts(agent) == [["/plan it"], ["hello"]]

    def test_of_long_output_the_agent_gets_the_beginning_and_the_end(self, scripted, tmp_path):
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("!seq 100000")
            person.reads("It is sent")
            person.says("hello")
            person.reads("You said: hello")
            leaves(person)
        ((_, told),) = texts(agent)
        assert len(told) < 20_000
        assert "\n1\n2\n" in told
        assert "bytes left out …]" in told
        assert told.endswith("99999\n100000\n```")

    def test_secrets_are_masked_on_the_screen_and_for_the_agent(self, scripted, tmp_path):
        key = "k9dkq2mvb7w0zx1r"
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path, env={"ACME_API_KEY": key}) as person:
            person.says('!printf "%.10s" "$ACME_API_KEY"; echo "${ACME_API_KEY#??????????}"')
            person.reads(r"\n\[secret:ACME_API_KEY\]\n")
            person.reads("It is sent")
            person.says("hello")
            person.reads("You said: hello")
            leaves(person)
        assert key[:4] not in person.text
        ((_, told),) = texts(agent)
        assert key[:4] not in told
        assert "\n[secret:ACME_API_KEY]\n" in told


class TestRunning:
    def test_the_output_is_shown_as_it_comes_from_the_directory_and_with_the_environment(
        self, scripted, tmp_path
    ):
        with Chatter(scripted(ECHO), cwd=tmp_path, env={"GREETING": "hi there"}) as person:
            person.says('!pwd; echo "$GREETING"; printf "10%%\\r50%%"; until test -e go; do sleep 0.01; done')
            person.reads(f"{tmp_path}\nhi there\n")
            person.reads(r"\n50%\n.*" + WORKING)
            (tmp_path / "go").touch()
            person.reads(r"50%\n\n· It is sent")
            leaves(person)

    @pytest.mark.parametrize("trap", ["", "trap '' INT; "])
    def test_ctrl_c_ends_the_command_and_not_the_chat(self, scripted, tmp_path, trap):
        with Chatter(scripted(ECHO), cwd=tmp_path) as person:
            person.says(f'!sh -c "{trap}echo \\$\\$ > pid; echo begun; while true; do sleep 0.01; done"')
            person.reads("\nbegun\n")
            pid = int((tmp_path / "pid").read_text())
            person.types(CTRL_C)
            person.reads("✗ Ended by SIG(INT|TERM|KILL)|✗ Exit code 130")
            assert gone_within(5, pid)
            person.says("still here")
            person.reads("You said: still here")
            leaves(person)

    def test_what_it_leaves_running_ends_with_it(self, scripted, tmp_path):
        with Chatter(scripted(ECHO), cwd=tmp_path) as person:
            person.says("!sleep 1000 & echo $! > pid")
            person.reads("It is sent")
            assert gone_within(5, int((tmp_path / "pid").read_text()))
            leaves(person)

    def test_what_it_writes_is_not_obeyed_by_the_terminal(self, scripted, tmp_path):
        with Chatter(scripted(ECHO), cwd=tmp_path) as person:
            person.says(r"!printf 'a\033]0;owned\007b \033[?1049hc\n'")
            person.reads("\nab c\n")
            leaves(person)
        assert "\x1b]0;owned" not in person.shown
        assert "\x1b[?1049h" not in person.shown

    def test_a_flood_is_counted_and_can_be_ended(self, scripted, tmp_path):
        with Chatter(scripted(ECHO), cwd=tmp_path) as person:
            person.says("!!yes")
            person.reads("more lines: too many at once to show")
            person.types(CTRL_C)
            person.reads("✗ Ended by SIGINT|✗ Exit code 130")
            leaves(person)

    def test_a_mark_alone_says_what_it_is_for_and_an_image_is_a_prompt(self, scripted, tmp_path):
        with Chatter(scripted(ECHO), cwd=tmp_path) as person:
            person.says("!")
            person.reads("Type a command behind the !, as in !git status")
            person.says("![image](x.png)")
            person.reads("image You said:")
            leaves(person)


class TestTyping:
    def test_programs_and_files_are_completed(self, scripted, tmp_path):
        (tmp_path / "programs").mkdir()
        program = tmp_path / "programs" / "shout-loudly"
        program.write_text('#!/bin/sh\necho "$1!"\n')
        program.chmod(0o755)
        (tmp_path / "notes.txt").touch()
        path = f"{tmp_path / 'programs'}:{os.environ['PATH']}"
        with Chatter(scripted(ECHO), cwd=tmp_path, env={"PATH": path}) as person:
            person.reads(READY)
            person.types("!shout-l")
            person.reads("shout-loudly")
            person.types(TAB + " no")
            person.reads("notes.txt")
            person.types(TAB + ENTER)
            person.reads("\nnotes.txt!\n")
            leaves(person)

    def test_they_are_in_the_history(self, scripted, tmp_path):
        for number in range(2):
            with Chatter(scripted(ECHO), cwd=tmp_path) as person:
                person.reads(READY)
                person.types(("!echo remember" if number == 0 else UP) + ENTER)
                person.reads("\nremember\n")
                person.reads(READY)
                person.types(CTRL_D)
                assert person.ends() == 0

"""`coupler chat` in front of a person: a real terminal, the real command, agents in processes."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import sys
import termios

import psutil
import pytest

from cli.chat_stage import (
    ALT_ENTER,
    CTRL_C,
    CTRL_D,
    CTRL_O,
    DOWN,
    ENTER,
    MENU,
    READY,
    REFERENCE,
    TAB,
    UP,
    WORKING,
    Chatter,
)
from client.stage import gone_within

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals"),
]

ECHO = """
for prompt in prompts():
    send(say("You said: " + text_of(prompt), prompt["params"]["sessionId"]), end(prompt))
"""
SLOW = """
for prompt in prompts():
    send(say("so far"))
    read_until(is_cancel)
    send(say(", and the end"), end(prompt, "cancelled"))
"""
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for prompt in prompts():
    send(say("so far"))
"""
ASKS = """
GIVEN = {"command": "rm notes"}
for prompt in prompts():
    options = [("yes", "allow_once"), ("always", "allow_always"), ("no", "reject_once")]
    send(permission(1, options, title="Delete \\x1b[2Jnotes", kind="delete", rawInput=GIVEN))
    outcome = answer_to(1)["result"]["outcome"]
    if outcome["outcome"] == "cancelled":
        send(end(prompt, "cancelled"))
    else:
        send(say("chosen: " + outcome["optionId"]), end(prompt))
"""
DIES = """
for prompt in prompts():
    if "die" in text_of(prompt):
        sys.stderr.write("out of \\x1b[31mcheese\\n")
        sys.stderr.flush()
        os._exit(3)
    send(say("alive"), end(prompt))
"""
WORKS = """
for prompt in prompts():
    output = "\\n".join(f"line {number}" for number in range(1, 21))
    send(
        update("tool_call", toolCallId="c1", title="Run tests", kind="execute", status="in_progress"),
        update("plan", entries=[{"content": "Test", "priority": "high", "status": "pending"}]),
    )
    read_until(lambda frame: True) if "wait" in text_of(prompt) else None
    send(
        update("tool_call_update", toolCallId="c1", status="completed", content=[
            {"type": "content", "content": {"type": "text", "text": output}},
            {"type": "diff", "path": "/x/app.py", "oldText": "a\\n", "newText": "b\\n"},
        ]),
        say("# All *good*\\n\\nTwenty lines."),
        end(prompt),
    )
"""


def child_of(person):
    """The agent's process."""
    children = psutil.Process(person.process.pid).children(recursive=True)
    return next(child.pid for child in children if REFERENCE[-1] in child.cmdline())


def prompts_of(agent):
    return [frame["params"]["prompt"] for frame in agent.received_of("session/prompt")]


LONG = """
for prompt in prompts():
    output = "\\n".join("x" * 80 for _ in range(5_000)) if "go" in text_of(prompt) else ""
    send(
        update("tool_call", toolCallId="c1", title="Run tests", kind="execute", status="completed", content=[
            {"type": "content", "content": {"type": "text", "text": output}},
        ]),
        say("You said: " + text_of(prompt)),
        end(prompt),
    )
"""
PRINTED = 1_000
"""Characters that have been printed, if there are so many that nobody has read."""


def is_printing(person):
    """True if a print has begun and cannot go on, because the terminal is full and nobody reads."""
    unread = struct.unpack("i", fcntl.ioctl(person._own, termios.FIONREAD, bytes(4)))[0]
    return unread > PRINTED


class TestTalking:
    def test_an_answer_is_shown_and_ctrl_d_leaves(self, scripted, tmp_path):
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("hello")
            person.reads("You said: hello")
            person.says("again")
            person.reads("You said: again")
            person.reads(READY)
            person.types(CTRL_D)
            assert person.ends() == 0

        assert prompts_of(agent) == [[{"type": "text", "text": text}] for text in ("hello", "again")]

    def test_what_is_typed_while_something_is_printed_is_sent_as_it_was_typed(self, scripted, tmp_path):
        agent = scripted(LONG)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads("You said: go")
            person.reads(READY)
            person.types(CTRL_O)
            while not is_printing(person):
                assert person.process.poll() is None
            person.types("again" + ENTER)
            person.reads("You said: again")
            person.reads(READY)
            person.types(CTRL_D)
            assert person.ends() == 0

        assert prompts_of(agent) == [[{"type": "text", "text": text}] for text in ("go", "again")]

    def test_markdown_calls_and_plan_are_shown_and_what_is_long_is_collapsed(self, scripted, tmp_path):
        with Chatter(scripted(WORKS), cwd=tmp_path) as person:
            person.says("go")
            person.reads("Plan\n  ○ Test")
            person.reads("✓ Run tests  execute  #1\n  … 15 more lines: /show 1\n  line 16\n")
            person.reads(r"/x/app.py\n  @@ -1 \+1 @@\n  -a\n  \+b")
            person.reads("All good\n\nTwenty lines.")
            person.says("/show 1")
            person.reads("line 6\n")
            person.reads(READY)
            person.types(CTRL_O)
            person.reads("line 20\n")
            person.reads(READY)
            person.types("/quit" + ENTER)
            assert person.ends() == 0

    def test_each_block_is_printed_once(self, scripted, tmp_path):
        with Chatter(scripted(WORKS), cwd=tmp_path) as person:
            person.says("go")
            person.reads("Twenty lines.")
            person.reads(READY)
            person.types(CTRL_D)
            assert person.ends() == 0
        assert person.text.count("15 more lines") == 1

    def test_several_lines_are_one_prompt(self, scripted, tmp_path):
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path) as person:
            person.reads(READY)
            person.types(f"one{ALT_ENTER}two\x1b[200~\nthree\x1b[201~")
            person.reads("three")
            person.types(ENTER)
            person.reads("You said: one")
            person.says("/quit")
            assert person.ends() == 0
        assert prompts_of(agent) == [[{"type": "text", "text": "one\ntwo\nthree"}]]

    def test_a_mentioned_file_goes_along(self, scripted, tmp_path):
        (tmp_path / "notes.txt").write_text("hi")
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("read @notes.txt ")
            person.reads("notes.txt is attached as a link.")
            person.reads("You said")
            person.says("/quit")
            assert person.ends() == 0
        (prompt,) = prompts_of(agent)
        assert prompt[1]["uri"] == (tmp_path / "notes.txt").as_uri()

    def test_what_was_typed_is_there_again_the_next_time(self, scripted, tmp_path):
        for number in range(2):
            agent = scripted(ECHO)
            with Chatter(agent, cwd=tmp_path) as person:
                person.reads(READY)
                person.types(("remember me" if number == 0 else UP + UP) + ENTER)
                person.reads("You said: remember me")
                person.says("/quit")
                assert person.ends() == 0

    def test_what_is_typed_while_the_agent_works_waits_on_the_next_line(self, scripted, tmp_path):
        agent = scripted(SLOW)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads("so far")
            person.types("typed ahead" + ENTER)
            person.reads("> typed ahead")
            person.types(CTRL_C)
            person.reads("The turn was cancelled.")
            person.reads("> typed ahead")
            person.reads(READY)
            person.types(CTRL_C)
            person.types(CTRL_D)
            assert person.ends() == 0
        assert len(prompts_of(agent)) == 1


class TestPermission:
    @pytest.mark.parametrize(("number", "option"), [("1", "yes"), ("2", "always"), ("3", "no")])
    def test_an_option_is_chosen_by_its_number(self, scripted, tmp_path, number, option):
        agent = scripted(ASKS)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads(r"The agent wants to: Delete notes  delete\n  \$ rm notes\n")
            person.reads(r"▸ 1 Allow once: yes\n +2 Allow always\n +3 Reject once: no\n")
            person.reads(MENU)
            person.types("9" + number + ENTER)
            person.reads(f"chosen: {option}")
            person.says("/quit")
            assert person.ends() == 0
        assert [answer["result"]["outcome"]["optionId"] for answer in agent.answers_to(1)] == [option]
        assert ("Not allowed: Delete notes" in person.text) is (option == "no")

    @pytest.mark.parametrize(
        ("keys", "option"),
        [("", "yes"), (DOWN, "always"), (UP, "no"), (DOWN + DOWN + DOWN, "yes"), ("9", "yes")],
    )
    def test_one_enter_chooses_and_arrows_move(self, scripted, tmp_path, keys, option):
        with Chatter(scripted(ASKS), cwd=tmp_path) as person:
            person.says("go")
            person.reads(MENU)
            person.types(keys + ENTER)
            person.reads(f"chosen: {option}")
            person.says("/quit")
            assert person.ends() == 0

    @pytest.mark.parametrize(
        ("kinds", "chosen"),
        [
            (["allow_always", "reject_once", "allow_once"], 2),
            (["allow_always", "reject_always", "reject_once"], 2),
            (["reject_always", "allow_always"], 1),
        ],
    )
    def test_enter_alone_never_chooses_what_holds_for_always(self, scripted, tmp_path, kinds, chosen):
        agent = scripted(f"""
            for prompt in prompts():
                options = [(str(number), kind) for number, kind in enumerate({kinds!r})]
                send(permission(1, options, title="Delete", kind="delete"))
                send(say("chosen: " + answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
        """)
        is_preselected = any(kind.endswith("once") for kind in kinds)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads("Enter chooses")
            person.types(ENTER if is_preselected else ENTER + "2" + ENTER)
            person.reads(f"chosen: {chosen}")
            person.says("/quit")
            assert person.ends() == 0

    def test_s_shows_all_of_a_long_change(self, scripted, tmp_path):
        agent = scripted("""
            for prompt in prompts():
                text = "".join(f"line {number}\\n" for number in range(1, 41))
                diff = {"type": "diff", "path": "/x/app.py", "oldText": None, "newText": text}
                send(permission(1, title="Write", kind="edit", content=[diff]))
                send(say("chosen: " + answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
        """)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            assert "line 40" not in person.reads(MENU)
            person.types("s")
            person.reads("line 40")
            person.reads(MENU)
            person.types(ENTER)
            person.reads("chosen: yes")
            person.says("/quit")
            assert person.ends() == 0

    def test_ctrl_c_in_a_dialog_cancels_the_turn(self, scripted, tmp_path):
        agent = scripted(ASKS)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads(MENU)
            person.types(CTRL_C)
            person.reads("The turn was cancelled.")
            person.says("/quit")
            assert person.ends() == 0
        assert agent.received_of("session/cancel")
        assert agent.answers_to(1)[0]["result"]["outcome"] == {"outcome": "cancelled"}

    def test_keys_that_were_pressed_before_a_question_do_not_answer_it(self, scripted, tmp_path):
        agent = scripted("""
            for prompt in prompts():
                send(say("thinking"))
                wait_for("go")
                send(permission(1, title="Delete", kind="delete"))
                send(say("chosen: " + answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
        """)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads("thinking")
            person.types("1" + ENTER)
            person.reads("> 1")
            (tmp_path / "go").touch()
            person.reads(r"  1 Allow once")  # nothing is preselected for somebody who types
            person.reads("move, Enter chooses")
            person.types(ENTER + "2" + ENTER)
            person.reads("chosen: no")
            person.reads(READY)
            person.types(CTRL_C + CTRL_D)
            assert person.ends() == 0

    def test_keys_that_came_with_the_prompt_itself_do_not_answer_either(self, scripted, tmp_path):
        with Chatter(scripted(ASKS), cwd=tmp_path) as person:
            person.reads(READY)
            person.types("go" + ENTER + ENTER + ENTER)
            person.reads(MENU)
            person.types(UP + ENTER)
            person.reads("chosen: no")
            person.says("/quit")
            assert person.ends() == 0

    def test_secrets_in_the_dialog_and_in_the_text_are_masked(self, scripted, tmp_path):
        key = "k9dkq2mvb7w0zx1r"
        agent = scripted("""
            for prompt in prompts():
                key = os.environ["ACME_API_KEY"]
                send(say("the key is " + key[:7]), say(key[7:] + ";"))
                send(permission(1, title="Delete " + key, kind="delete", rawInput={"command": "rm " + key}))
                send(say("chosen: " + answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
        """)
        with Chatter(agent, cwd=tmp_path, env={"ACME_API_KEY": key}) as person:
            person.says("go")
            person.reads(MENU)
            person.types("1" + ENTER)
            person.reads("chosen: yes")
            person.says("/quit")
            assert person.ends() == 0
        assert "the key is [secret:ACME_API_KEY];" in person.text
        assert "Delete [secret:ACME_API_KEY]" in person.text
        assert "rm [secret:ACME_API_KEY]" in person.text
        assert key[:7] not in person.text
        assert key[7:] not in person.text

    @pytest.mark.parametrize(("policy", "option"), [("allow-all", "yes"), ("deny-all", "no")])
    def test_a_policy_decides_without_a_dialog(self, scripted, tmp_path, policy, option):
        with Chatter(scripted(ASKS), "--permissions", policy, cwd=tmp_path) as person:
            person.says("go")
            person.reads(f"chosen: {option}")
            person.says("/quit")
            assert person.ends() == 0
        assert MENU not in person.text


class TestInterrupting:
    def test_ctrl_c_cancels_the_turn_and_the_conversation_goes_on(self, scripted, tmp_path):
        agent = scripted(SLOW)
        with Chatter(agent, cwd=tmp_path) as person:
            for _ in range(2):
                person.says("go")
                person.reads("so far")
                person.types(CTRL_C)
                person.reads("so far, and the end")
                person.reads("The turn was cancelled.")
            person.says("/quit")
            assert person.ends() == 0
        assert len(agent.received_of("session/cancel")) == 2

    def test_sigint_from_elsewhere_is_the_same(self, scripted, tmp_path):
        with Chatter(scripted(SLOW), cwd=tmp_path) as person:
            person.says("go")
            person.reads("so far")
            person.process.send_signal(signal.SIGINT)
            person.reads("The turn was cancelled.")
            person.says("/quit")
            assert person.ends() == 0

    def test_ctrl_c_twice_leaves_an_agent_that_does_not_listen(self, scripted, tmp_path):
        agent = scripted(DEAF)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads("so far")
            person.types(CTRL_C + CTRL_C)
            assert person.ends() == 130
        assert gone_within(5, agent.noted("pid")[0])

    def test_ctrl_c_twice_on_an_empty_line_leaves(self, scripted, tmp_path):
        with Chatter(scripted(ECHO), cwd=tmp_path) as person:
            person.reads(READY)
            person.types(CTRL_C)
            person.reads("Ctrl-C again leaves")
            person.types(CTRL_C)
            assert person.ends() == 130

    def test_ctrl_c_takes_back_what_was_typed(self, scripted, tmp_path):
        agent = scripted(ECHO)
        with Chatter(agent, cwd=tmp_path) as person:
            person.reads(READY)
            person.types("wrong" + CTRL_C + "right" + ENTER)
            person.reads("You said: right")
            person.says("/quit")
            assert person.ends() == 0

    def test_ctrl_c_leaves_while_the_agent_does_not_start(self, scripted, tmp_path):
        with Chatter(scripted("read()\nread()"), cwd=tmp_path) as person:
            person.reads(WORKING)
            person.types(CTRL_C)
            assert person.ends() == 130

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_ends_it_in_order_and_gives_the_terminal_back(self, scripted, tmp_path, number):
        with Chatter(scripted(SLOW), cwd=tmp_path) as person:
            person.says("go")
            person.reads("so far")
            person.process.send_signal(number)
            assert person.ends() == 143
        assert person.shown.rfind("\x1b[?25h") > person.shown.rfind("\x1b[?25l")  # the cursor is shown


class TestDeath:
    def test_a_dead_agent_is_explained_and_started_again(self, scripted, tmp_path):
        agent = scripted(DIES)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("die")
            person.reads("the agent ended before it answered session/prompt\n  exit code: 3\n  out of cheese")
            person.reads(r"Start it again\?")
            person.types(ENTER)
            person.reads("The agent was restarted, with a new session")
            person.says("hello")
            person.reads("alive")
            person.says("/quit")
            assert person.ends() == 0
        assert len(agent.received_of("initialize")) == 2

    def test_whoever_does_not_want_it_again_leaves(self, scripted, tmp_path):
        with Chatter(scripted(DIES), cwd=tmp_path) as person:
            person.says("die")
            person.reads(r"Start it again\?")
            person.types("n" + ENTER)
            assert person.ends() == 8

    def test_a_session_goes_on_where_the_agent_can(self, tmp_path):
        with Chatter(REFERENCE, "--permissions", "allow-all", cwd=tmp_path) as person:
            person.says("/note first")
            person.reads("Add a line to the notes")
            person.reads(READY)
            os.kill(child_of(person), signal.SIGKILL)
            person.reads("the agent has ended\n  exit code: -9")
            person.reads("Send something to start it again")
            person.says("/note second")
            person.reads(r"Start it again\?")
            person.types("y" + ENTER)
            person.reads("The agent was restarted, and the session was resumed.")
            person.reads("Add a line to the notes")
            person.says("/quit")
            assert person.ends() == 0
        assert (tmp_path / "notes.txt").read_text() == "'first'\n'second'\n"

    def test_an_agent_that_cannot_be_started_says_why(self, tmp_path):
        with Chatter(["no-such-agent-anywhere"], cwd=tmp_path) as person:
            assert person.ends() == 9
        assert "no-such-agent-anywhere" in person.text

    def test_a_dialog_that_the_death_closes_is_in_nobodys_way(self, scripted, tmp_path):
        agent = scripted("""
            for prompt in prompts():
                send(permission(1, title="Delete", kind="delete"))
                wait_for("go")
                os._exit(3)
        """)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads(MENU)
            (tmp_path / "go").touch()
            person.reads(r"exit code: 3\nStart it again\?")
            person.types("n" + ENTER)
            assert person.ends() == 8


class TestOutsideOfTurns:
    def test_what_comes_late_is_shown_above_the_line(self, scripted, tmp_path):
        agent = scripted("""
            for prompt in prompts():
                send(say("answer"), end(prompt))
                wait_for("go")
                send(update("tool_call", toolCallId="c1", title="Clean up", status="completed"))
        """)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("hello")
            person.reads("answer")
            person.reads(READY)
            person.types("half a li")
            person.reads("half a li")
            (tmp_path / "go").touch()
            person.reads("✓ Clean up")
            person.reads("> half a li")
            person.reads(READY)
            person.types(CTRL_C + CTRL_D)
            assert person.ends() == 0

    def test_a_question_waits_until_the_line_is_free(self, scripted, tmp_path):
        agent = scripted("""
            for prompt in prompts():
                send(say("answer"), end(prompt))
                wait_for("go")
                send(permission(1, title="Clean up", kind="delete"))
        """)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("hello")
            person.reads("answer")
            person.reads(READY)
            (tmp_path / "go").touch()
            person.reads("The agent wants to: Clean up")
            person.reads("press Enter on an empty line")
            person.reads(READY)
            person.types(ENTER)
            person.reads(MENU)
            person.types("1" + ENTER)
            person.says("/quit")
            assert person.ends() == 0
        assert agent.answers_to(1)[0]["result"]["outcome"]["optionId"] == "yes"


class TestSettings:
    def test_modes_models_and_options_are_listed_and_set(self, tmp_path):
        with Chatter(REFERENCE, cwd=tmp_path) as person:
            person.reads(r"mode careful · model sparrow · /help")
            person.types("/mode" + ENTER)
            person.reads(r"\* careful +Careful: Asks before")
            person.says("/mode swift")
            person.reads("The mode is swift.")
            person.reads("mode swift")
            person.says("/model eagle")
            person.reads("The model is eagle.")
            person.says("/option effort high")
            person.reads("effort is high.")
            person.says("/option effort huge")
            person.reads("huge")
            person.says("/option")
            person.reads(r"effort +high \(of low, high\)")
            person.says("/quit")
            assert person.ends() == 0
        assert person.text.count("The mode is") == 1

    def test_flags_set_them_before_the_first_prompt(self, tmp_path):
        options = ("--mode", "swift", "--model", "eagle", "--option", "thoughts=off")
        with Chatter(REFERENCE, *options, cwd=tmp_path) as person:
            person.reads("The mode is now swift")
            person.reads("mode swift · model eagle")
            person.types("/option" + ENTER)
            person.reads(r"thoughts +off")
            person.says("/quit")
            assert person.ends() == 0

    def test_commands_are_completed(self, tmp_path):
        with Chatter(REFERENCE, cwd=tmp_path) as person:
            person.reads(READY)
            person.types("/no")
            person.reads("Add a line to the notes and do nothing else")
            person.types(TAB + " by tab" + ENTER)
            person.reads("The agent wants to: Add a line")
            person.reads("'by tab'")
            person.reads(MENU)
            person.types("1" + ENTER)
            person.reads("✓ Add a line")
            person.says("/quit")
            assert person.ends() == 0

    def test_forms_and_pages_are_dialogs(self, tmp_path):
        with Chatter(REFERENCE, "--permissions", "allow-all", cwd=tmp_path) as person:
            person.says("go")
            person.reads("How shall I write")
            person.reads(r"▸ 1 plain\n +2 warm\n")
            person.reads(MENU)
            person.types("w" + ENTER)
            person.reads("→ warm")
            person.reads(r"a whole number \[3\]:")
            person.types("many" + ENTER)
            person.reads("that is no whole number")
            person.reads(r"a whole number \[3\]:")
            person.types(ENTER)
            person.reads("Thanks.")
            person.reads("a page of example.com\n  Please look.\n  https://example.com/")
            person.reads("n declines:")
            person.types("y" + ENTER)
            person.reads(r"This was prompt\s1")
            person.says("/quit")
            assert person.ends() == 0

    def test_a_form_can_be_declined(self, tmp_path):
        with Chatter(REFERENCE, "--permissions", "allow-all", cwd=tmp_path) as person:
            person.says("go")
            person.reads(MENU)
            person.types(CTRL_D)
            person.reads("Never mind.")
            person.reads("n declines:")
            person.types(CTRL_D)
            person.reads(r"This was prompt\s1")
            person.says("/quit")
            assert person.ends() == 0


class TestSessions:
    def talk(self, tmp_path, *options, first, then):
        with Chatter(REFERENCE, "--permissions", "allow-all", *options, cwd=tmp_path) as person:
            person.says(first)
            person.reads(then)
            person.says("/quit")
            assert person.ends() == 0
        return person.text

    def test_the_latest_session_goes_on_with_its_history(self, tmp_path):
        self.talk(tmp_path, first="/note first", then="Add a line")
        shown = self.talk(tmp_path, "--continue", first="/note second", then="second")
        assert re.search(r"> /note first\n\n✓ Add a line to the notes", shown)

    def test_without_an_earlier_session_a_new_one_begins(self, tmp_path):
        shown = self.talk(tmp_path, "--continue", first="/note first", then="Add a line")
        assert "There is no earlier session in this directory: this is a new one." in shown

    def test_sessions_are_listed_and_loaded_by_number_or_id(self, tmp_path):
        self.talk(tmp_path, first="/note first", then="Add a line")
        with Chatter(REFERENCE, cwd=tmp_path) as person:
            person.says("/sessions")
            listed = person.reads("/load N resumes one")
            number, id = re.search(r"(\d+) +/note first +(sess_[0-9a-f]+)", listed).groups()
            person.says(f"/load {number}")
            person.reads("> /note first")
            person.reads("Add a line to the notes")
            person.says("/new")
            person.says("/quit")
            assert person.ends() == 0
        with Chatter(REFERENCE, "--resume", id[:12], cwd=tmp_path) as person:
            person.reads("> /note first")
            person.says("/quit")
            assert person.ends() == 0

    def test_an_unknown_session_is_an_error_at_the_start_and_a_remark_later(self, tmp_path):
        with Chatter(REFERENCE, "--resume", "sess_none", cwd=tmp_path) as person:
            assert person.ends() == 1
        assert "session/load" in person.text
        with Chatter(REFERENCE, cwd=tmp_path) as person:
            person.says("/load sess_none")
            person.reads("the agent refused session/load")
            person.says("/quit")
            assert person.ends() == 0

    def test_an_agent_without_sessions_says_so(self, scripted, tmp_path):
        with Chatter(scripted(ECHO), cwd=tmp_path) as person:
            person.says("/sessions")
            person.reads("the agent cannot list its sessions")
            person.says("/load s9")
            person.reads("the agent cannot resume earlier sessions")
            person.says("still here")
            person.reads("You said: still here")
            person.says("/quit")
            assert person.ends() == 0


class TestTerminals:
    def test_a_narrow_terminal_is_enough(self, scripted, tmp_path):
        with Chatter(scripted(WORKS), cwd=tmp_path, columns=20) as person:
            person.says("go")
            person.reads("Twenty lines")
            person.says("/quit")
            assert person.ends() == 0

    def test_no_colour_is_used_where_none_is_wanted(self, scripted, tmp_path):
        with Chatter(scripted(WORKS), cwd=tmp_path, env={"NO_COLOR": "1"}) as person:
            person.says("go")
            person.reads("Twenty lines")
            person.says("/quit")
            assert person.ends() == 0
        assert not re.search(r"\x1b\[(?:[0-9;]*;)?3[1-7]m", person.shown)

    def test_what_an_agent_writes_is_not_obeyed(self, scripted, tmp_path):
        agent = scripted("""
            for prompt in prompts():
                send(say("a \\x1b]0;own"))
                send(say("ed\\x07b \\x1b[?1049h&#x202e;c\\n"), end(prompt))
        """)
        with Chatter(agent, cwd=tmp_path) as person:
            person.says("go")
            person.reads("a b c")
            person.says("/quit")
            assert person.ends() == 0
        assert "owned" not in person.shown
        assert "\x1b[?1049h" not in person.shown
        assert "\u202e" not in person.shown

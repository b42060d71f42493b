"""`coupler exec` in front of a person: Ctrl-C, questions, and what is shown beside the answer."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

import forked
from cli.typing_at import CTRL_C, PATIENCE, Typist
from client.stage import Scripted, gone_within

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

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
for prompt in prompts():
    options = [("yes", "allow_once"), ("always", "allow_always"), ("no", "reject_once")]
    send(permission(1, options, title="Delete \\x1b[2Jnotes", kind="delete"))
    send(say("chosen: " + str(answer_to(1)["result"]["outcome"].get("optionId"))), end(prompt))
"""


@pytest.fixture
def scripted(tmp_path):
    """Agents written in a few lines, none of which may be left running."""
    made = []

    def make(body):
        made.append(Scripted(tmp_path, len(made), body))
        return made[-1]

    yield make
    for agent in made:
        agent.check()


def at_terminal(agent, *words, **options):
    command = shlex.join(agent.command)
    return Typist(sys.executable, "-m", "coupler", "exec", command, "go", *words, **options)


class TestInterrupting:
    def test_ctrl_c_cancels_the_turn_and_what_came_is_shown(self, scripted):
        agent = scripted(SLOW)
        with at_terminal(agent) as person:
            person.sees("so far")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert ", and the end\n" in person.shown
        assert person.shown.endswith("coupler exec: cancelled\n")
        assert len(agent.received_of("session/cancel")) == 1

    def test_ctrl_c_twice_ends_an_agent_that_does_not_listen(self, scripted):
        agent = scripted(DEAF)
        with at_terminal(agent) as person:
            person.sees("so far")
            person.types(CTRL_C)
            person.sees("Ctrl-C again ends the agent")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert all(gone_within(5.0, pid) for pid in agent.noted("pid"))

    def test_ctrl_c_before_the_prompt_ends_it_all(self, scripted):
        agent = scripted("""
        read()
        sys.stderr.write("loading\\n")
        note("is", "loading")
        read()
        """)
        with at_terminal(agent) as person:
            agent.wait_for("is")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert agent.received_of("session/prompt") == []

    def test_sigterm_cancels_as_well_and_has_its_own_exit_code(self, scripted):
        agent = scripted(SLOW)
        command = [sys.executable, "-m", "coupler", "exec", shlex.join(agent.command), "go"]
        with forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout.read(6) == b"so far"
            process.send_signal(signal.SIGTERM)
            assert process.stdout.read() == b", and the end\n"
            assert process.wait(PATIENCE) == 143

    def test_a_terminal_that_is_closed_ends_the_agent_in_order(self, scripted):
        agent = scripted(SLOW)
        with at_terminal(agent) as person:
            person.sees("so far")
            person.process.send_signal(signal.SIGHUP)
            assert person.ends() == 143
        assert len(agent.received_of("session/cancel")) == 1


class TestQuestions:
    @pytest.mark.parametrize(
        ("keys", "chosen"), [("1\n", "yes"), ("2\n", "always"), ("\n", "no"), ("9\nx\n3\n", "no")]
    )
    def test_the_person_chooses_while_the_answer_goes_to_a_pipe(self, scripted, keys, chosen):
        with at_terminal(scripted(ASKS), "--permissions", "ask", piped_stdout=True) as person:
            person.sees("Number (nothing denies it): ")
            person.types(keys)
            assert person.process.stdout.read() == f"chosen: {chosen}\n".encode()
            assert person.ends() == 0
        assert "The agent asks: Delete notes (delete)" in person.shown
        assert "  2. Allow always\n" in person.shown

    def test_secrets_in_a_question_are_masked(self, scripted):
        key = "k9dkq2mvb7w0zx1r"
        agent = scripted("""
        for prompt in prompts():
            key = os.environ["ACME_API_KEY"]
            title = "x" * 392 + key  # cut in its middle
            send(permission(1, title=title, kind="execute", rawInput={"command": "use " + key}))
            answer_to(1)
            send(end(prompt))
        """)
        env = {**os.environ, "ACME_API_KEY": key}
        with at_terminal(agent, "--permissions", "ask", env=env) as person:
            person.sees("Number (nothing denies it): ")
            person.types("1\n")
            assert person.ends() == 0
        assert "use [secret:ACME_API_KEY]" in person.shown
        assert key[:4] not in person.shown

    def test_an_option_says_what_it_does_whatever_the_agent_calls_it(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            options = [("Reject", "allow_always"), ("Allow", "allow_once"), ("Never", "reject_once")]
            send(permission(1, options))
            send(say(answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
        """)
        with at_terminal(agent, "--permissions", "ask", piped_stdout=True) as person:
            person.sees("1. Allow always: Reject")
            person.sees("2. Allow once")
            person.sees("3. Reject once: Never")
            person.sees("Number (nothing denies it): ")
            person.types("2\n")
            assert person.ends() == 0

    def test_what_was_typed_before_a_question_was_seen_does_not_answer_it(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(permission(1, title="First"), permission(2, title="Second"))
            chosen = [answer_to(id)["result"]["outcome"].get("optionId") for id in (1, 2)]
            send(say(" ".join(chosen)), end(prompt))
        """)
        with at_terminal(agent, "--permissions", "ask", piped_stdout=True) as person:
            person.sees("Number (nothing denies it): ")
            person.types("1\n1\n")
            person.sees("The agent asks: Second")
            person.sees("Number (nothing denies it): ")
            person.types("\n")
            assert person.process.stdout.read() == b"yes no\n"
            assert person.ends() == 0

    def test_a_command_is_shown_in_whatever_form_it_comes_and_what_is_cut_is_told(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            words = ["sh", "-c", "true " + "x" * 1000]
            send(permission(1, title="Look", kind="execute", rawInput={"cmd": words}))
            send(say(answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
        """)
        with at_terminal(agent, "--permissions", "ask", piped_stdout=True) as person:
            person.sees("Number (nothing denies it): ")
            person.types("\n")
            assert person.ends() == 0
        assert "  sh -c 'true xxx" in person.shown
        assert "… (613 characters more)" in person.shown

    def test_ctrl_c_withdraws_the_question(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(permission(1, title="Delete", kind="delete"))
            outcome = answer_to(1)["result"]["outcome"]["outcome"]
            send(say(outcome), end(prompt, "cancelled"))
        """)
        with at_terminal(agent, "--permissions", "ask") as person:
            person.sees("Number (nothing denies it): ")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert "cancelled" in person.shown


class TestForms:
    FORM = """
    for prompt in prompts():
        schema = {
            "type": "object",
            "properties": {
                "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"]},
                "count": {"type": "integer", "title": "How \\x1b[31mmany", "minimum": 1},
            },
            "required": ["colour", "count"],
        }
        form = {"mode": "form", "message": "Which \\x1b[2Jone?", "requestedSchema": schema}
        send(say("one moment"), request(1, "elicitation/create", sessionId="s1", **form))
        send(say(json.dumps(answer_to(1)["result"])), end(prompt))
    """
    PAGE = """
    for prompt in prompts():
        page = {"mode": "url", "message": "Pay here", "url": "https://pay.example/42", "elicitationId": "e1"}
        send(request(1, "elicitation/create", sessionId="s1", **page))
        send(say(answer_to(1)["result"]["action"]), end(prompt))
    """

    def test_a_form_is_filled_in_while_the_answer_goes_to_a_pipe(self, scripted):
        with at_terminal(scripted(self.FORM), piped_stdout=True) as person:
            person.sees("  1-2: ")
            person.types("2\n")
            person.sees("How many\n  a whole number: ")
            person.types("none\n")
            person.sees("that is no whole number")
            person.types("3\n")
            answer = {"action": "accept", "content": {"colour": "blue", "count": 3}}
            assert person.process.stdout.read().decode() == f"one moment{json.dumps(answer)}\n"
            assert person.ends() == 0
        assert "\nThe agent asks: Which one?\nCtrl-D declines, Ctrl-C cancels the turn.\n" in person.shown
        assert "Colour\n  1  red\n  2  blue\n" in person.shown

    def test_ctrl_d_declines_a_form_and_the_turn_goes_on(self, scripted):
        with at_terminal(scripted(self.FORM), "--format", "json", piped_stdout=True) as person:
            person.sees("  1-2: ")
            person.types("\x04")
            assert '{"action": "decline"}' in json.loads(person.process.stdout.read())["text"]
            assert person.ends() == 0

    def test_ctrl_c_takes_a_form_back_and_cancels_the_turn(self, scripted):
        agent = scripted(self.FORM)
        with at_terminal(agent) as person:
            person.sees("  1-2: ")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert agent.answers_to(1)[0]["result"] == {"action": "cancel"}

    @pytest.mark.parametrize(("keys", "action"), [("y\n", "accept"), ("n\n", "decline")])
    def test_a_page_is_shown_with_its_host_and_agreed_to(self, scripted, keys, action):
        with at_terminal(scripted(self.PAGE), piped_stdout=True) as person:
            person.sees("then answer y; n declines: ")
            person.types(keys)
            assert person.process.stdout.read().decode() == f"{action}\n"
            assert person.ends() == 0
        assert "The agent asks you to open a page of pay.example\nPay here\nhttps://pay.example/42\n" in (
            person.shown
        )

    @pytest.mark.parametrize("words", [["--no-forms"], ["-"]], ids=["switched off", "stdin is the prompt"])
    def test_nothing_is_offered_where_nobody_is_to_be_asked(self, scripted, words):
        agent = scripted("for prompt in prompts():\n    send(say('done'), end(prompt))")
        with at_terminal(agent, *words) as person:
            person.types("more\n\x04")  # the rest of the prompt, where it is read
            assert person.ends() == 0
        [hello] = agent.received_of("initialize")
        assert "elicitation" not in hello["params"]["clientCapabilities"]


class TestWhatIsShownBeside:
    WORKS = r"""
    def plan(*statuses):
        steps = [{"content": f"Step {n}", "priority": "low", "status": s} for n, s in enumerate(statuses, 1)]
        return update("plan", entries=steps)
    def call(news, /, **fields):
        return update(news, toolCallId="c1", **fields)
    for prompt in prompts():
        send(
            plan("in_progress", "pending"),
            say("I \x1b[31mlook"),
            call("tool_call", title="Read \x1b]0;title\x07a.txt", kind="read", status="pending"),
            call("tool_call_update", status="failed"),
            plan("completed", "pending"),
            say("Done"),
            end(prompt),
        )
    """

    def test_calls_and_steps_are_told_once_and_nothing_is_obeyed(self, scripted):
        environment = {**os.environ, "NO_COLOR": "1"}
        with at_terminal(scripted(self.WORKS), env=environment) as person:
            assert person.ends() == 0
        assert person.shown == (
            "[>] Step 1\n[ ] Step 2\nI look\nread: Read a.txt\nfailed: Read a.txt\n[x] Step 1\n\nDone\n"
        )

    def test_a_pipe_gets_the_text_alone(self, scripted):
        with at_terminal(scripted(self.WORKS), piped_stdout=True) as person:
            assert person.process.stdout.read() == b"I \x1b[31mlook\n\nDone\n"
            assert person.ends() == 0
        assert "read: Read a.txt" in person.shown

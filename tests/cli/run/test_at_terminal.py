"""`coupler run` in front of a person: what is seen while it goes on, what is asked, and Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import struct
import sys
import termios
import textwrap
import time
from pathlib import Path

import pytest

from cli.screen import screen_of
from cli.typing_at import CTRL_C, PATIENCE, Typist
from client.stage import Scripted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

CTRL_D = "\x04"
ECHO = shlex.join([sys.executable, str(Path(__file__).parents[3] / "examples" / "echo.py"), "acp"])


class Person(Typist):
    """Somebody in front of a terminal of 24 lines with 80 characters."""

    def __init__(self, directory: Path, text: str, *words: str, command: str = "run", **env: str) -> None:
        (directory / "flow.yaml").write_text(textwrap.dedent(text))
        unset = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")
        inherited = {name: value for name, value in os.environ.items() if name not in unset}
        first = ["./flow.yaml"] if command == "run" else []
        super().__init__(
            *(sys.executable, "-m", "coupler", command, *first, *words),
            cwd=directory,
            env={**inherited, "TERM": "xterm-256color", **env},
        )
        self._read_up_to = 0
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    @property
    def screen(self) -> list[str]:
        """What stands there; sentences of the end may be longer than the lines."""
        return screen_of(self.shown.replace("^C", "").replace("^D\b\b", ""), 200)

    def reads(self, text: str) -> None:
        """Wait until this is shown, after all that was read before."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.shown.find(text, self._read_up_to)) < 0:
            assert self._read(deadline), f"no {text!r} in {self.shown[self._read_up_to :]!r}"
        self._read_up_to = found + len(text)

    def answers(self, question: str, answer: str) -> None:
        self.reads(question)
        self.types(answer)


class TestProgress:
    FLOW = r"""
        steps:
          - {id: hello, run: echo hello}
          - id: both
            parallel:
              - {id: slow, run: "printf 'one\\033[2J [red]two\\n'; cat fifo > /dev/null; echo last"}
              - {id: fast, run: echo quick}
          - id: each
            for_each: [1, 2]
            steps: [{id: work, run: "echo {{ item }}"}]
          - {id: never, if: false, run: echo never}
        outputs: {said: "{{ steps.slow.stdout }}"}
    """

    def test_the_steps_are_a_tree_that_is_drawn_anew_and_stays_at_the_end(self, tmp_path):
        os.mkfifo(tmp_path / "fifo")
        with Person(tmp_path, self.FLOW) as person:
            person.reads("| one")
            person.reads("Ctrl-C cancels\x1b[0m\n")
            during = person.screen
            (tmp_path / "fifo").write_text("")
            assert person.ends() == 0

        spinning = [re.sub("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "*", line) for line in during]
        assert re.fullmatch(r"✓ hello  echo hello +\d\.\d s", spinning[0])
        assert re.fullmatch(r"\* both  2 branches +\d\.\d s", spinning[1])
        assert spinning[2].startswith("  * slow  printf")
        assert "    | one [red]two" in spinning
        assert re.fullmatch(r"\* flow-\w+ · \d\.\d s · Ctrl-C cancels", spinning[-2])
        assert all(len(line) <= 80 for line in during)
        shown = "\n".join(person.screen)
        assert shown.startswith("✓ hello  echo hello")
        assert re.search(
            r"✓ each  for each item .*\n  ✓ \[0\]\.work  echo 1 .*\n  ✓ \[1\]\.work  echo 2 ", shown
        )
        assert re.search(r"- never +skipped\n\n✓ flow-\w+ succeeded after \d\.\d s\n", shown)
        assert shown.endswith("  said: one [red]two\n    last\n")

    def test_a_failure_is_shown_with_its_last_words(self, tmp_path):
        flow = "steps: [{id: bad, run: 'echo why >&2; exit 3', retry: {attempts: 2, delay: 0}}]"
        with Person(tmp_path, flow, NO_COLOR="1") as person:
            assert person.ends() == 3
        shown = "\n".join(person.screen)
        assert re.search(r"✗ bad  The command ended with exit code 3: why +attempt 2(/2)?, \d\.\d s\n", shown)
        assert "coupler run: bad: The command ended with exit code 3: why\n  | why\n" in shown
        assert re.search(r"\nTry again from there with: coupler resume flow-\w+\n", shown)
        assert re.search(r"\x1b\[[0-9;]*3[0-9][;m]", person.shown) is None, "no colours"

    def test_a_run_without_outputs_says_where_to_read_what_was_written(self, tmp_path):
        with Person(tmp_path, "steps: [{run: echo hello}]") as person:
            assert person.ends() == 0
        assert re.search(r"\n  What its steps wrote: coupler runs logs flow-\w+\n", "\n".join(person.screen))

    def test_a_dumb_terminal_gets_lines(self, tmp_path):
        with Person(tmp_path, "steps: [{run: echo hello}]", TERM="dumb") as person:
            assert person.ends() == 0
        assert "\x1b" not in person.shown
        assert "  run_1 | hello\n" in person.shown


class TestQuestions:
    def test_missing_inputs_are_asked_for_and_secrets_are_not_shown(self, tmp_path):
        flow = """
            inputs:
              who: {required: true, description: Whom to greet}
              token: {required: true, secret: true}
              given: {required: true}
            steps:
              - {id: gate, approve: "Use {{ inputs.token }}?"}
              - {id: name, ask: "Who has {{ inputs.token }}?"}
              - {id: say, run: "echo {{ inputs.who }} {{ inputs.token }} {{ inputs.given }} > said"}
        """
        with Person(tmp_path, flow, "given=3", "--step") as person:
            person.answers("? who: Whom to greet\n  > ", "Ann\n")
            person.answers("? token: it is needed\n  > ", "correct-horse\n")
            person.answers("? gate: Use [secret:inputs.token]? [y/N] ", "y\n")
            person.answers("? name: Who has [secret:inputs.token]?\n  > ", "me\n")
            person.answers("? say: echo Ann [secret:inputs.token] 3 > said [R]un", "\n")
            assert person.ends() == 0
        assert (tmp_path / "said").read_text() == "Ann correct-horse 3\n"
        assert "horse" not in person.shown

    def test_approvals_and_answers_are_asked_for_until_they_fit(self, tmp_path):
        flow = """
            steps:
              - {id: gate, approve: "Ship \\e[2J it?\\nReally?"}
              - {id: size, ask: How many?, type: integer, max: 5}
              - {id: color, ask: Which?, enum: [red, green], default: red}
              - {id: more, ask: More?, enum: [red, green], default: red}
            outputs: {all: "{{ steps.size.output }} {{ steps.color.text }} {{ steps.more.text }}"}
        """
        with Person(tmp_path, flow, "--quiet") as person:
            person.answers("? gate: Ship  it?\n    Really? [y/N] ", "perhaps\n")
            person.answers("Answer y or n [y/N] ", "y\n")
            person.answers("? size: How many?\n  (a whole number) > ", "\n")
            person.answers("it needs an answer\n  > ", "many\n")
            person.answers("has to be a whole number, not `many`\n  > ", "4\n")
            person.answers("  1. red\n  2. green\n  (1 to 2, nothing for red) > ", "2\n")
            person.answers("? more: More?\n  1. red\n  2. green\n  (1 to 2, nothing for red) > ", "\n")
            assert person.ends() == 0
        assert person.shown.endswith("4 green red\n")

    def test_enter_is_no_unless_the_default_is_yes_and_leaving_parks_the_run(self, tmp_path):
        flow = """
            steps:
              - {id: first, approve: First?, default: allow}
              - {id: second, approve: Second?, on_deny: skip}
              - {id: third, approve: Third?}
        """
        with Person(tmp_path, flow) as person:
            person.answers("? first: First? [Y/n] ", "\n")
            person.answers("? second: Second? [y/N] ", "\n")
            person.answers("? third: Third? [y/N] ", CTRL_D)
            assert person.ends() == 5
        assert re.search(r"✓ first .*\n✗ second .*denied\n", "\n".join(person.screen))
        assert "third waits for a yes or no" in person.shown
        run = re.search(r"coupler resume (\S+)", person.shown)
        assert run is not None
        with Person(tmp_path, flow, run[1], "--yes", command="resume") as person:
            assert person.ends() == 0
        assert re.search(r"✓ first .*\n✗ second .*denied\n✓ third ", "\n".join(person.screen))

    def test_a_question_that_nobody_answers_in_time_has_its_default(self, tmp_path):
        flow = "steps: [{id: gate, approve: Go?, default: allow, timeout: 300ms}]"
        with Person(tmp_path, flow) as person:
            person.sees("? gate: Go? [Y/n] ")
            assert person.ends() == 0

    def test_a_conversation_shows_replies_and_reads_messages_until_it_is_left(self, tmp_path):
        flow = f"""
            steps: [{{id: talk, converse: {json.dumps(ECHO)}, prompt: Hello}}]
            outputs: {{last: "{{{{ steps.talk.text }}}}"}}
        """
        with Person(tmp_path, flow, "--quiet") as person:
            person.answers("  You said: Hello\n> ", "one \\\n")
            person.answers("… ", "two\n")
            person.answers("talk:\n  You said: one\n  two\n> ", "/done\n")
            assert person.ends() == 0
        assert person.shown.endswith("You said: one \ntwo\n")

    def test_files_of_the_project_are_trusted_once(self, tmp_path):
        workflows = tmp_path / ".coupler" / "workflows"
        workflows.mkdir(parents=True)
        (workflows / "tidy.yaml").write_text("steps: [{run: echo ran >> log}]")
        command = (sys.executable, "-m", "coupler", "run", "tidy")
        question = "Trust them as they are now? [y/N] "
        for answer, code in (("n\n", 1), ("y\n", 0), (None, 0)):
            with Typist(*command, cwd=tmp_path) as person:
                if answer is not None:
                    assert "tidy.yaml" in person.sees(question)
                    person.types(answer)
                assert person.ends() == code
        assert question not in person.shown
        assert (tmp_path / "log").read_text() == "ran\nran\n"

    def test_step_by_step_each_step_is_run_skipped_or_the_end(self, tmp_path):
        flow = (
            "steps: [{id: a, run: echo a >> log}, {id: b, run: echo b >> log}, {id: c, run: echo c >> log}]"
        )
        with Person(tmp_path, flow, "--step") as person:
            person.answers("? a: echo a >> log [R]un, [s]kip or [q]uit? ", "what\n")
            person.answers("  Answer r, s or q: ", "r\n")
            person.answers("? b: echo b >> log [R]un, [s]kip or [q]uit? ", "s\n")
            person.answers("? c: echo c >> log [R]un, [s]kip or [q]uit? ", "quit\n")
            assert person.ends() == 130
        assert (tmp_path / "log").read_text() == "a\n"


class TestAgents:
    """What the agent of a step asks, which no rule decides."""

    EDITING = """
        for prompt in prompts():
            path = os.path.join(os.getcwd(), "app.py")
            change = {"type": "diff", "path": path, "oldText": "x = 1\\n", "newText": "x = 2\\n"}
            call = {"title": "Edit it", "kind": "edit", "locations": [{"path": path}], "content": [change]}
            session = prompt["params"]["sessionId"]
            send(permission(session, None, session, **call))
            send(say(answer_to(session)["result"]["outcome"]["optionId"], session), end(prompt))
    """
    TWICE = """
        steps:
          - {id: first, agent: AGENT, prompt: go}
          - {id: second, agent: AGENT, prompt: go}
        outputs: {said: "{{ steps.first.text }} {{ steps.second.text }}"}
    """

    def flow(self, directory, body, text):
        agent = Scripted(directory, 1, body)
        return text.replace("AGENT", json.dumps(shlex.join(agent.command)))

    def test_it_is_asked_with_the_change_and_a_yes_for_good_is_not_asked_for_again(self, tmp_path):
        flow = self.flow(tmp_path, self.EDITING, self.TWICE)
        with Person(tmp_path, flow) as person:
            person.reads("? first: May the agent do this? Edit it\n")
            person.reads(f"changes {tmp_path / 'app.py'}\n")
            person.reads("-x = 1\n")
            person.reads("+x = 2\n")
            person.answers(
                "  a: Always allow edits directly in the project's directory in this session\n", "a\n"
            )
            assert person.ends() == 0
        assert "\n".join(person.screen).endswith("  said: yes yes\n")
        assert person.shown.count("May the agent do this?") == 1

    def test_it_is_denied_where_all_questions_are_answered_by_an_option(self, tmp_path):
        flow = self.flow(tmp_path, self.EDITING, self.TWICE)
        with Person(tmp_path, flow, "--yes") as person:
            assert person.ends() == 0
        assert "\n".join(person.screen).endswith("  said: no no\n")
        assert "May the agent do this?" not in person.shown

    @pytest.mark.parametrize(("on_deny", "code"), [("fail", 3), ("skip", 0), ("stop", 130)])
    def test_a_no_of_the_person_ends_the_step_as_on_deny_says(self, tmp_path, on_deny, code):
        gate = f"approve: {{tools: [edit], on_deny: {on_deny}}}"
        steps = f"steps: [{{id: first, agent: AGENT, prompt: go, {gate}}}, {{run: touch after}}]"
        body = self.EDITING.replace('["result"]["outcome"]["optionId"]', '.get("result", {}).get("x", "")')
        with Person(tmp_path, self.flow(tmp_path, body, steps)) as person:
            person.answers("[y/N] ", "n\n")
            assert person.ends() == code
        assert (tmp_path / "after").exists() is (on_deny == "skip")

    def test_its_form_is_filled_in_field_by_field(self, tmp_path):
        asking = """
            for prompt in prompts():
                fields = {"name": {"type": "string"}, "age": {"type": "integer"}}
                schema = {"type": "object", "required": ["name", "age"], "properties": fields}
                form = {"mode": "form", "sessionId": "s1", "message": "Who?", "requestedSchema": schema}
                send(request(1, "elicitation/create", **form))
                send(say(json.dumps(answer_to(1)["result"]["content"])), end(prompt))
        """
        flow = 'steps: [{id: x, agent: AGENT, prompt: go}]\noutputs: {who: "{{ steps.x.text }}"}'
        with Person(tmp_path, self.flow(tmp_path, asking, flow)) as person:
            person.reads("The agent asks: x: Who?\n")
            person.answers("name", "Ann\n")
            person.answers("age", "7\n")
            assert person.ends() == 0
        assert '{"name": "Ann", "age": 7}' in "\n".join(person.screen)


class TestInterrupting:
    FLOW = """
        steps: [{id: work, run: "echo begun; sleep 60 & wait"}]
        hooks: {cancel: [{id: mend, run: "echo mended > mended; echo mending; test ! -e slow || sleep 60"}]}
    """

    def test_ctrl_c_cancels_the_run_and_its_hooks_run(self, tmp_path):
        with Person(tmp_path, self.FLOW) as person:
            person.sees("| begun")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert re.search(r"○ work .*cancelled\n✓ hooks.cancel.mend ", "\n".join(person.screen))
        assert (tmp_path / "mended").exists()

    def test_ctrl_c_twice_ends_the_hooks_too(self, tmp_path):
        (tmp_path / "slow").touch()
        with Person(tmp_path, self.FLOW) as person:
            person.sees("| begun")
            person.types(CTRL_C)
            person.sees("| mending")
            person.sees("Ctrl-C again ends it at once")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert re.search(r"○ hooks.cancel.mend .*cancelled\n", "\n".join(person.screen))

    def test_ctrl_c_at_a_question_cancels_as_well(self, tmp_path):
        with Person(tmp_path, "{inputs: {a: {required: true}}, steps: [{id: gate, approve: Go?}]}") as person:
            person.answers("? a: it is needed\n  > ", "1\n")
            person.sees("? gate: Go? [y/N] ")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert re.search(r"\? gate: Go\? \[y/N\] *\n○ gate ", "\n".join(person.screen))
        with Person(tmp_path, "{inputs: {a: {required: true}}, steps: [{run: echo}]}") as person:
            person.sees("? a: it is needed\n  > ")
            person.types(CTRL_C)
            assert person.ends() == 130
        assert "\ncoupler run: cancelled\n" in person.shown

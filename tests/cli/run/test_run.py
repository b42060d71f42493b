"""`coupler run` and `coupler resume` in scripts and pipes: nobody is there, and options say everything."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import forked
from client.stage import gone_within
from coupler.cli.exit_codes import RUN_EXIT_CODES
from coupler.cli.run.run import resume, run
from coupler.cli.trust import trust
from coupler.store.store import Store
from coupler.workflow.engine import run as engine
from raw_client import COUPLER, PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="`run` steps need a POSIX shell")

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ECHO = shlex.join([sys.executable, str(Path(__file__).parents[3] / "examples" / "echo.py"), "acp"])


class Place:
    """A directory with workflows, in which commands are called."""

    def __init__(self, directory: Path, store_file: Path) -> None:
        self.directory = directory
        self.store_file = store_file

    def write(self, text: str, name: str = "flow.yaml") -> Path:
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def run(self, *words: str, code: int = 0, text: str | None = None) -> Result:
        if text is not None:
            self.write(text)
        return self._call(run, *(words if text is None else ("./flow.yaml", *words)), code=code)

    def resume(self, *words: str, code: int = 0) -> Result:
        return self._call(resume, self.ids[0], *words, code=code)

    def _call(self, command: Any, *words: str, code: int) -> Result:
        done = CliRunner().invoke(command, words, catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done

    @property
    def ids(self) -> list[str]:
        """Of all runs that are kept, the newest first."""
        if not self.store_file.exists():
            return []
        store = Store.open(str(self.store_file))
        try:
            return store.runs.blocking.ids()
        finally:
            store.close()

    def hears(self, name: str) -> str:
        """Wait until a step writes into a named pipe; what it wrote."""
        descriptor = os.open(self.directory / name, os.O_RDWR)
        try:
            ready, _, _ = select.select([descriptor], [], [], PATIENCE)
            assert ready, f"nobody wrote to {name}"
            return os.read(descriptor, 1000).decode()
        finally:
            os.close(descriptor)

    def read(self, name: str) -> str:
        file = self.directory / name
        return file.read_text() if file.exists() else ""


@pytest.fixture
def place(tmp_path: Path, coupler_home: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, coupler_home / "coupler.db")


class TestShowing:
    EVIL = r"""
        steps:
          - id: evil
            run: printf 'one\033[2J\033]0;owned\007 [red]two\n'; printf 'oh\n' >&2
          - {id: no, if: false, run: echo no}
        outputs: {said: "{{ steps.evil.stdout }}", number: "{{ 1 + 1 }}"}
    """

    def test_a_pipe_gets_a_line_for_each_thing_that_happens_and_then_the_outputs(self, place):
        shown = place.run(text=self.EVIL).stdout

        assert CONTROL.search(shown) is None
        lines = [re.sub(r"^[0-9:]{8} ", "", line) for line in shown.splitlines()]
        assert lines[0] == f"the run {place.ids[0]} of flow started"
        assert "  evil | one [red]two" in lines
        assert "  evil ! oh" in lines
        assert "no: skipped" in lines
        assert lines[-3:] == ["the run is over, success", "  said: one [red]two", "  number: 2"]

    def test_json_is_all_that_happens_a_line_each(self, place):
        told = [json.loads(line) for line in place.run("--json", text=self.EVIL).stdout.splitlines()]

        assert [each["seq"] for each in told] == [*range(1, len(told) + 1)]
        assert told[0]["event"] == "run_started"
        assert (
            "".join(e["text"] for e in told if e["event"] == "output" and e["stream"] == "stderr") == "oh\n"
        )
        assert (told[-1]["event"], told[-1]["outputs"]["number"]) == ("run_finished", 2)

    @pytest.mark.parametrize(
        ("outputs", "written"),
        [
            ('{text: "{{ steps.one.stdout }}"}', "plain\n"),
            ('{number: "{{ 1 }}"}', '{"number": 1}\n'),
            ('{a: ä, b: "{{ none }}"}', '{"a": "ä", "b": null}\n'),
            ("{}", ""),
        ],
    )
    def test_quiet_is_a_single_text_or_json(self, place, outputs, written):
        done = place.run("--quiet", text=f"{{steps: [{{id: one, run: echo plain}}], outputs: {outputs}}}")
        assert (done.stdout, done.stderr) == (written, "")

    def test_what_a_program_wrote_goes_to_a_pipe_byte_for_byte(self, place):
        place.write(r"""
            steps: [{id: one, run: "printf 'a\\377b'"}]
            outputs: {bytes: "{{ steps.one.stdout }}"}
        """)
        done = forked.run([*COUPLER, "run", "./flow.yaml", "--quiet"], capture_output=True, check=True)
        assert done.stdout == b"a\xffb\n"

    def test_a_million_lines_of_a_step_take_seconds(self, place):
        before = os.times()
        place.write("steps: [{id: a, run: 'yes | head -n 1500000'}]")
        done = subprocess.run([*COUPLER, "run", "./flow.yaml"], capture_output=True, check=True)
        after = os.times()
        assert done.stdout.count(b"\n  a | y") == 1_500_000
        assert after.children_user + after.children_system - before.children_user - before.children_system < 5

    def test_secrets_are_masked_in_the_outputs(self, place):
        done = place.run(
            "token=correct-horse-battery",
            "--quiet",
            text="""
                inputs: {token: {secret: true}}
                steps: [{run: "true"}]
                outputs: {t: "<{{ inputs.token }}>"}
            """,
        )
        assert "horse" not in done.output
        assert done.stdout.startswith("<[")

    def test_an_input_with_the_name_of_a_secret_is_one_whatever_its_value_looks_like(self, place):
        done = place.run(
            "PASSWORD_X=swordfishes",
            "--quiet",
            text="""
                inputs: {PASSWORD_X: {}, secret_word: {default: open, secret: false}}
                steps: [{id: x, run: "echo {{ inputs.PASSWORD_X }} {{ inputs.secret_word }}"}]
                outputs: {x: "{{ steps.x.stdout }}"}
            """,
        )
        assert "swordfishes" not in done.output
        assert done.stdout.startswith("[secret:inputs.PASSWORD_X] open")

    def test_a_secret_of_less_than_four_characters_does_not_spoil_the_output(self, place):
        place.write("""
            inputs: {PASSWORD: {}, pin: {secret: true}}
            steps:
              - {id: x, run: "echo 1 of 142, and ${PASSWORD:-nothing}"}
              - {id: gate, run: "test {{ inputs.pin }} = 42 && test -e mended"}
        """)
        env = {**os.environ, "PASSWORD": "1"}

        def called(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([*COUPLER, *words], env=env, capture_output=True, text=True)

        shown = called("run", "./flow.yaml", "PASSWORD=1", "pin=42").stdout
        # The value as such is kept nowhere all the same, and commands are not given the variable.
        place.write("", "mended")
        again = called("resume", place.ids[0]).stderr
        resumed = called("resume", place.ids[0], "-i", "PASSWORD=1", "-i", "pin=42")

        assert "1 of 142, and nothing" in shown
        assert "[secret" not in shown
        assert "inputs.pin is secret, and too short to be masked where it is shown" in shown
        assert "give the secret input again, which is not kept: -i PASSWORD=VALUE" in again
        assert resumed.returncode == 0, resumed.stderr

    def test_secret_inputs_that_hold_several_texts_are_shown_and_kept_nowhere(self, place):
        flow = """
            inputs: {keys: {type: list, secret: true}, login: {type: object, secret: true}}
            steps:
              - {id: use, run: "echo {{ inputs.keys }} {{ inputs.login.password }}"}
              - {id: gate, run: test -e mended}
            outputs: {said: "{{ steps.use.stdout }}"}
        """
        given = ("keys=correct-horse,battery-staple", 'login={"password": "hunter2-hunter2"}')
        shown = place.run(*given, code=3, text=flow).output
        place.write("", "mended")
        shown += place.resume("-i", given[0], "-i", given[1]).output

        assert "said: [secret:inputs.keys.0] [secret:inputs.keys.1] [secret:inputs.login.password]" in shown
        kept = b"".join(
            file.read_bytes() for file in place.store_file.parent.glob("coupler.db*") if file.is_file()
        )
        for secret in ("correct-horse", "battery-staple", "hunter2-hunter2"):
            assert secret not in shown
            assert secret.encode() not in kept
        assert "write it as text" in place.run("./flow.yaml", 'login={"pin": 4711}', code=1).stderr

    def test_variables_that_the_settings_name_are_shown_and_kept_nowhere(self, place, monkeypatch):
        monkeypatch.setenv("PLAIN_NAME", "blue elephant")
        place.write('secrets.names = ["PLAIN_NAME"]', "coupler.toml")
        flow = "steps: [{id: x, run: 'echo $PLAIN_NAME; test -e mended'}]"
        shown = place.run(code=3, text=flow).output
        place.write("", "mended")
        shown += place.resume().output

        assert shown.count("x | [secret:PLAIN_NAME]") == 2
        kept = place.store_file.read_bytes()
        assert b"elephant" not in kept

    def test_a_failure_is_told_with_what_the_step_wrote_last_and_how_to_go_on(self, place):
        done = place.run(
            "--quiet", code=3, text="{steps: [{id: bad, run: 'echo no way >&2; echo broken >&2; exit 7'}]}"
        )
        assert done.stdout == ""
        assert done.stderr.splitlines() == [
            "coupler run: bad: The command ended with exit code 7: broken",
            "  | no way",
            "  | broken",
            f"Try again from there with: coupler resume {place.ids[0]}",
            f"All that happened: coupler runs logs {place.ids[0]}",
        ]

    def test_a_run_goes_on_when_nobody_reads_what_it_writes(self, place):
        place.write("steps: [{run: yes | head -c 300000}, {run: echo done > done}]")
        reader, writer = os.pipe()
        process = forked.Popen([*COUPLER, "run", "./flow.yaml"], stdout=writer)
        os.close(writer)
        os.close(reader)
        assert process.wait(PATIENCE) == 0
        assert place.read("done") == "done\n"

    def test_a_reader_that_does_not_read_holds_up_nothing(self, place):
        place.write("steps: [{run: yes | head -c 300000}, {run: echo done > done.fifo}]")
        os.mkfifo("done.fifo")
        with forked.Popen([*COUPLER, "run", "./flow.yaml"], stdout=subprocess.PIPE) as process:
            try:
                # The pipe holds 64 KiB of what is shown, and the last step comes all the same.
                assert place.hears("done.fifo") == "done\n"
                assert process.stdout is not None
                shown = process.stdout.read().decode()
            finally:
                process.kill()
        assert "the run is over, success" in shown


class TestInputs:
    FLOW = """
        inputs:
          name: {required: true, description: Who it is}
          size: {type: integer, default: 1}
          notes: {rest: true}
        steps: [{run: "true"}]
        outputs: {all: "{{ inputs.name }}/{{ inputs.size + 1 }}/{{ inputs.notes or '' }}"}
    """

    @pytest.mark.parametrize(
        ("words", "all"),
        [
            (["name=Ann"], "Ann/2/"),
            (["-i", "name=a=b 'c' \"d\"", "--input", "size=5"], "a=b 'c' \"d\"/6/"),
            (["--input=name=Ann", "see", "x=1", "there"], "Ann/2/see x=1 there"),
            (["name=Ann", "--", "--quiet", "-i"], "Ann/2/--quiet -i"),
        ],
    )
    def test_all_spellings_mean_the_same(self, place, words, all):
        assert place.run("--quiet", *words, text=self.FLOW).stdout == f"{all}\n"

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            ([], "input `name` is missing"),
            (["name=a", "-i", "sise=2"], "did you mean `size`?"),
            (["name=a", "size=x"], "has to be a whole number, not `x`"),
        ],
    )
    def test_what_is_missing_or_wrong_is_told_with_all_inputs(self, place, words, told):
        shown = place.run(*words, code=1, text=self.FLOW).stderr
        assert told in shown
        assert re.search(r"name=TEXT +Who it is \(required\)", shown)
        assert place.ids == []


class TestExitCodes:
    @pytest.mark.parametrize(
        ("code", "steps", "words"),
        [
            (0, "[{stop: enough}]", []),
            (3, "[{run: exit 9}]", []),
            (7, "[{stop: {status: failure, exit_code: 7}}]", []),
            (5, "[{id: who, ask: Who?}]", []),
            (130, "[{id: gate, approve: Go?, on_deny: stop}]", []),
            (3, "[{run: sleep 20}]", ["--timeout", "0.2"]),
            (1, "[{run: 'true'}]", ["--no-such-option"]),
            (1, "[{run: 'true'}]", ["--json", "--quiet"]),
            (1, "[{run: 'true'}]", ["--step"]),
            (1, "[{run: 'true'}]", ["--step", "--dry-run"]),
            (1, "[{run: 'true'}]", ["--budget", "turns=3"]),
            (1, "[{run: 'true'}]", ["--budget", "cost=-1"]),
            (1, "[{run: 'true'}]", ["--cwd", "nowhere"]),
        ],
    )
    def test_a_run_ends_with(self, place, code, steps, words):
        place.run(*words, code=code, text=f"steps: {steps}")

    def test_an_invalid_workflow_is_told_with_all_problems_and_their_places(self, place):
        place.write("steps:\n  - {run: echo, tiemout: 3}\n  - run: echo {{ inputs.x }}\n")
        told = place.run("./flow.yaml", code=2).stderr
        assert "\nflow.yaml:2:17: error: " in told
        assert "timeout" in told
        place.run("./missing.yaml", code=1)
        place.run("missing", code=1)

    def test_a_store_that_cannot_be_used_is_none_of_the_workflows_faults(self, place, coupler_home):
        (coupler_home / "coupler.db").mkdir(parents=True)
        place.run(code=4, text='steps: [{run: "true"}]')

    def test_a_package_that_is_missing_is_named(self, place, monkeypatch):
        monkeypatch.setitem(sys.modules, "jinja2", None)
        told = place.run(code=4, text='steps: [{run: "true"}]').stderr
        assert 'pip install "coupler[workflows]"' in told

    def test_the_help_has_them_as_the_engine_does(self, place):
        shown = place.run("--help").stdout + CliRunner().invoke(resume, ["--help"]).stdout
        for each in RUN_EXIT_CODES:
            assert shown.count(f"{each.code:>5}  {each.sentence}") == 2
        codes = {each.code for each in RUN_EXIT_CODES}
        ends = {engine.DONE, engine.FAILED, engine.BROKEN, engine.PARKED, engine.CANCELLED}
        assert codes == ends | {1, 2}


class TestAnswers:
    @pytest.mark.parametrize(
        ("gate", "words", "ran"),
        [
            ("Go?", [], False),
            ("Go?", ["--yes"], True),
            ("Go?, default: allow", [], True),
            ("Go?, default: allow", ["--no"], False),
            ("Go?", ["--no", "--answer", "gate=yes"], True),
            ("Go?", ["--yes", "--answer", "gate=no"], False),
        ],
    )
    def test_an_approval_is_an_option_its_default_or_no(self, place, gate, words, ran):
        text = f"steps: [{{id: gate, approve: {gate}, on_deny: stop}}, {{run: touch ran}}]"
        place.run(*words, text=text, code=0 if ran else 130)
        assert (place.directory / "ran").exists() is ran

    def test_a_gate_of_a_step_is_an_approval_like_any_other(self, place):
        text = "steps: [{id: deploy, run: echo deployed > log, approve: Now?}]"
        told = place.run(code=3, text=text).stderr
        assert place.read("log") == ""
        assert f"Allow it with: coupler resume {place.ids[0]} --yes\n" in told
        place.resume("--yes")
        assert place.read("log") == "deployed\n"

    ASKS = """
        steps:
          - {run: echo begun >> log}
          - {id: size, ask: How many?, type: integer, max: 5}
          - {id: color, ask: Which color?, default: red}
        outputs: {both: "{{ steps.size.output + 1 }} {{ steps.color.text }}"}
    """

    def test_an_ask_takes_its_answer_or_its_default(self, place):
        assert place.run("--quiet", "--answer", "size=2", text=self.ASKS).stdout == "3 red\n"
        done = place.run("--quiet", "--answer", "size=2", "--answer", "color=a=b", text=self.ASKS)
        assert done.stdout == "3 a=b\n"

    def test_without_an_answer_the_run_waits_and_is_resumed_with_it(self, place):
        told = place.run(code=5, text=self.ASKS).stderr
        assert "size waits for an answer" in told
        assert f"coupler resume {place.ids[0]}" in told
        place.resume(code=5)

        assert place.resume("--quiet", "--answer", "size=4").stdout == "5 red\n"
        assert place.read("log") == "begun\n"

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            ("sise=2", "did you mean size?"),
            ("size=9", "has to be at most 5"),
            ("run_1=2", "no step of that name asks anything: there is size, color"),
            ("size", "not NAME=VALUE"),
        ],
    )
    def test_an_answer_that_fits_nothing_is_refused_before_anything_runs(self, place, answer, told):
        assert told in place.run("--answer", answer, code=1, text=self.ASKS).stderr
        assert place.read("log") == ""

    def test_a_conversation_says_what_was_given_and_ends_or_waits(self, place):
        text = f"""
            steps: [{{id: talk, converse: {json.dumps(ECHO)}, prompt: Hello}}]
            outputs: {{last: "{{{{ steps.talk.text }}}}"}}
        """
        first = place.run("--json", code=5, text=text).stdout
        then = place.resume("--json", "--answer", "talk=one", "--answer", "talk=two").stdout

        said = [_said(told) for told in (first, then)]
        assert said == ["You said: Hello", "You said: oneYou said: two"]
        assert json.loads(then.splitlines()[-1])["outputs"] == {"last": "You said: two"}


def _said(told: str) -> str:
    return "".join(each["text"] for each in map(json.loads, told.splitlines()) if each["event"] == "text")


class TestTheGuide:
    PAGE = (Path(__file__).parents[3] / "docs" / "running-workflows.md").read_text()

    def test_its_example_runs_as_it_says(self, place):
        (workflow,) = re.findall(r"```yaml\n(.*?)```", self.PAGE, re.DOTALL)
        place.write(workflow, "release.yaml")
        first, second = (
            shlex.split(line)[2:]
            for line in re.findall(r"^coupler \w+ .*", self.PAGE, re.MULTILINE)
            if "--yes" in line or "--answer" in line
        )
        place.run(*first, code=5)
        assert second.pop(0) == "release-7f3k2"
        assert place.resume(*second, "--quiet").stdout == "1.2\n"
        assert place.read("releases.txt") == "1.2: Faster\n"

    def test_it_has_the_exit_codes(self):
        for each in RUN_EXIT_CODES:
            assert f"| {each.code} | {each.sentence} |" in self.PAGE


class TestRehearsing:
    def test_a_dry_run_goes_through_what_has_only_a_default_so_far(self, place):
        told = place.run(
            "--dry-run",
            text="""
            steps:
              - {id: list, run: ls, output: lines}
              - id: each
                for_each: steps.list.output | default([])
                steps: [{id: work, run: "echo {{ item }}"}]
              - {id: last, run: "echo {{ steps.list.output[0] | default('nothing') }}"}
            """,
        ).stdout

        assert "| echo «item»" in told
        assert "| echo {{ steps.list.output[0] | default('nothing') }}" in told

    def test_a_dry_run_shows_what_would_be_done_and_does_nothing(self, place):
        shown = place.run(
            "--dry-run",
            text="""
                steps:
                  - {id: one, run: "touch made {{ 1 + 1 }}\\necho more", env: {MODE: fast}}
                  - id: both
                    parallel: [{id: a, run: touch a}, {id: b, approve: Go?, run: touch b}]
                  - {id: gate, approve: Sure?}
                  - {id: no, if: false, run: touch no}
                  - {id: end, if: not steps.one.stdout, stop: Nothing to do}
                  - {id: perhaps, if: steps.one.stdout, stop: Enough}
            """,
        ).stdout

        assert shown.splitlines() == [
            "one  run",
            "  with MODE=fast",
            "  | touch made 2",
            "  | echo more",
            "both  parallel  2 branches",
            "  a  run",
            "    | touch a",
            "  b  run",
            "    | touch b",
            "gate  approve",
            "  | Sure?",
            "no  skipped: its `if` is false, as far as is known",
            "end  stop  Nothing to do",
            "  ends the run there if its `if` is true",
            "perhaps  stop  Enough",
            "  ends the run there if its `if` is true",
        ]
        assert [each.name for each in place.directory.iterdir()] == ["flow.yaml"]
        assert place.ids == []

    def test_a_mocked_step_has_its_result_from_a_file(self, place):
        place.write("mocked\n", "result.txt")
        text = """
            steps:
              - {id: costly, run: touch ran}
              - id: each
                for_each: [1, 2]
                steps: [{id: work, run: "echo {{ item }}"}]
            outputs: {a: "{{ steps.costly.stdout }}{{ steps.each.results[1].work.stdout }}"}
        """
        words = ("--mock", "costly=result.txt", "--mock", "each[1].work=result.txt")
        assert place.run("--quiet", *words, text=text).stdout == "mocked\nmocked\n"
        assert not (place.directory / "ran").exists()
        told = place.run("--mock", "costli=result.txt", code=1, text=text).stderr
        assert "did you mean costly?" in told
        assert "no file" in place.run("--mock", "costly=nothing", code=1, text=text).stderr

    def test_a_mocked_result_is_of_the_type_that_the_step_promises(self, place):
        text = """
            steps:
              - {id: count, ask: How many?, type: integer}
              - id: agent
                agent: nobody.py
                prompt: Count
                output: {type: object, properties: {n: {type: integer}}, required: [n]}
              - {id: talk, converse: nobody.py}
            outputs:
              said: "{{ steps.talk.output[0].text }}"
              sum: "{{ steps.count.output + steps.agent.output.n }}"
        """
        place.write("async def agent(turn): ...", "nobody.py")
        place.write("4\n", "four")
        place.write('{"n": 5}', "five")
        place.write('{"n": "many"}', "many")

        mocks = ("--mock", "count=four", "--mock", "agent=five", "--mock", "talk=four")
        done = place.run("--quiet", *mocks, text=text)
        assert json.loads(done.stdout) == {"said": "4", "sum": 9}
        told = place.run("--quiet", "--mock", "count=four", "--mock", "agent=many", code=3, text=text).stderr
        assert "agent: the file does not fit the schema, at `$.n`" in told
        told = place.run("--quiet", "--mock", "count=many", "--mock", "agent=five", code=3, text=text).stderr
        assert "count: the file is no answer: input `count` has to be a whole number" in told


class TestResuming:
    FAILS = """
        inputs: {token: {secret: true}}
        steps:
          - {id: first, run: echo first >> log}
          - id: each
            for_each: [1, 2]
            steps: [{id: work, run: "echo {{ item }} >> log; test {{ item }} = 1 -o -e mended"}]
          - {id: last, run: "echo {{ inputs.token }} >> log"}
    """

    def test_a_failed_run_goes_on_from_the_step_that_failed(self, place):
        place.run("token=correct-horse", code=3, text=self.FAILS)
        place.write("", "mended")

        assert "-i token=VALUE" in place.resume(code=1).stderr
        shown = place.resume("-i", "token=correct-horse").stdout

        assert place.read("log").split() == ["first", "1", "2", "2", "correct-horse"]
        assert "first" not in shown
        assert "horse" not in shown

    def test_all_that_failed_beside_each_other_is_tried_again(self, place):
        # The first that is done ends the others: so each waits until both have begun.
        wait = "until grep -q a log && grep -q b log; do sleep 0.01; done"
        command = f"echo {{0}} >> log; test -e mended && {wait}"
        branch = f"{{{{id: {{0}}, run: '{command}', retry: {{{{attempts: 2, delay: 0}}}}}}}}"
        handled = "{id: h, run: 'echo h >> log; exit 1', on_error: continue}"
        branches = f"{branch.format('a')}, [{handled}, {branch.format('b')}]"
        flow = f"steps: [{{id: both, wait: any, parallel: [{branches}]}}]"
        assert re.match(r"coupler run: both\.[ab]: The command", place.run(code=3, text=flow).stderr)
        place.write("", "mended")
        place.write("", "log")

        told = place.resume("--json").stdout

        assert "both.b" in told
        assert {*place.read("log").split()} == {"a", "b"}

    def test_a_run_that_has_ended_well_is_resumed_only_from_a_step(self, place):
        place.write("", "mended")
        place.run("token=correct-horse", text=self.FAILS)

        secret = ("-i", "token=correct-horse")
        assert "--from STEP" in place.resume(*secret, code=1).stderr
        never = place.resume(*secret, "--from", "each[1].wrok", code=1).stderr
        assert "never at the step each[1].wrok; did you mean `each[1].work`?" in never
        told = place.resume(*secret, "--from", "each[1].work", "--json").stdout.splitlines()

        assert json.loads(told[0])["event"] == "run_resumed"
        assert place.read("log").split() == ["first", "1", "2", "correct-horse", "2", "correct-horse"]

    def test_a_run_whose_process_died_is_resumed_as_interrupted(self, place):
        os.mkfifo("begun.fifo")
        place.write("steps: [{id: slow, run: 'test -e again || (echo > begun.fifo; sleep 60)'}]")
        with forked.Popen([*COUPLER, "run", "./flow.yaml"], stdout=subprocess.DEVNULL) as process:
            place.hears("begun.fifo")
            process.kill()
        place.write("", "again")

        assert json.loads(place.resume("--json").stdout.splitlines()[0])["reason"] == "interrupted"

    def test_a_changed_workflow_is_refused_unless_it_is_wanted(self, place):
        place.run(code=3, text="steps: [{id: one, run: echo one >> log}, {id: two, run: exit 1}]")
        place.write("steps: [{id: one, run: echo one >> log}, {id: two, run: echo new >> log}]")

        assert "--force" in place.resume(code=1).stderr
        assert "`coupler trust flow.yaml`" in place.resume("--force", code=1).stderr
        assert CliRunner().invoke(trust, ["flow.yaml", "--yes"]).exit_code == 0
        place.resume("--force")

        assert place.read("log") == "one\nnew\n"

    def test_what_is_no_run_or_runs_still_is_refused(self, place):
        place.write("steps: [{run: echo begun > fifo; sleep 60}]")
        os.mkfifo("fifo")
        done = CliRunner().invoke(resume, ["nothing"])
        assert (done.exit_code, "no workflow was run yet" in done.stderr) == (1, True)
        with forked.Popen([*COUPLER, "run", "./flow.yaml"], stdout=subprocess.DEVNULL) as process:
            place.hears("fifo")
            assert "is running in the process" in place.resume(code=1).stderr
            assert "did you mean" in CliRunner().invoke(resume, [place.ids[0][:-1] + "0"]).stderr
            process.terminate()

    def test_limits_of_the_command_line_take_the_place_of_the_workflows_own(self, place):
        place.run(
            "--timeout",
            "0.2",
            code=3,
            text="{budget: {time: 1h}, steps: [{run: test -e mended || sleep 20}]}",
        )
        place.write("", "mended")
        place.resume("--timeout", "20", "--budget", "tokens=100,cost=0.5")

    def test_a_budget_of_tokens_ends_the_agent_that_spends_it(self, place):
        text = f"steps: [{{id: say, agent: {json.dumps(ECHO)}, prompt: a word and another one}}]"
        told = place.run("--budget", "tokens=1", code=3, text=text).stderr
        assert "budget" in told
        place.run("--budget", "tokens=100000", text=text)


def test_more_branches_than_files_that_may_be_open_take_turns(place):
    branches = ", ".join("{run: echo x >> log}" for _ in range(30))
    place.write(f"steps: [{{parallel: [{branches}]}}]")
    limited = f"ulimit -n 60; exec {shlex.join(COUPLER)} run ./flow.yaml --quiet"

    subprocess.run(["sh", "-c", limited], check=True, timeout=PATIENCE)

    assert len(place.read("log").split()) == 30


def test_a_directory_that_was_deleted_is_told(place, monkeypatch):
    place.write("steps: [{run: 'true'}]")
    gone = place.directory / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert "was deleted" in place.run("../flow.yaml", code=1).stderr


class TestNames:
    def test_a_workflow_of_the_project_is_run_by_its_name_once_it_is_trusted(self, place):
        place.write("steps: [{run: touch ran}]", ".coupler/workflows/tidy.yaml")

        told = place.run("tidy", code=1).stderr
        assert "coupler trust" in told
        assert "tidy.yaml" in told
        assert "did you mean `tidy`?" in place.run("tiddy", code=1).stderr
        forked.run([*COUPLER, "trust", "--yes"], check=True, capture_output=True)
        (place.directory / "sub").mkdir()
        place.run("tidy", "--cwd", "sub")

        assert (place.directory / "sub" / "ran").exists()

    def test_a_path_is_the_users_word_for_it(self, place):
        place.write("steps: [{run: touch ran}]", ".coupler/workflows/tidy.yaml")
        place.run(".coupler/workflows/tidy.yaml")
        assert (place.directory / "ran").exists()


class TestSignals:
    FLOW = """
        steps: [{id: work, run: "echo $$ > pid; echo $$ > fifo; sleep 60 & wait"}]
        hooks: {cancel: [{run: echo mended >> mended}]}
    """

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_cancels_the_run_and_its_hooks_clean_up(self, place, number):
        place.write(self.FLOW)
        os.mkfifo("fifo")
        process = forked.Popen([*COUPLER, "run", "./flow.yaml"], stderr=subprocess.PIPE, text=True)
        place.hears("fifo")
        process.send_signal(number)
        _, told = process.communicate(timeout=PATIENCE)

        assert process.returncode == 130
        assert f"coupler resume {place.ids[0]}" in told
        assert place.read("mended") == "mended\n"
        assert gone_within(5.0, int(place.read("pid")))

    def test_runs_cancel_ends_it_from_another_terminal(self, place):
        place.write(self.FLOW)
        os.mkfifo("fifo")
        process = forked.Popen([*COUPLER, "run", "./flow.yaml", "--quiet"], stderr=subprocess.DEVNULL)
        place.hears("fifo")
        forked.run([*COUPLER, "runs", "cancel", place.ids[0]], check=True, timeout=PATIENCE)

        assert process.wait(PATIENCE) == 130
        assert place.read("mended") == "mended\n"


class TestCutOff:
    """What a step wrote before its time was up, or before it was cancelled."""

    def test_a_step_whose_time_is_up_has_what_it_wrote_also_after_a_resume(self, place, monkeypatch):
        monkeypatch.setenv("API_TOKEN", "abc-123-DEF")
        parked = place.run(
            "--json",
            text="""
                secrets: [API_TOKEN]
                steps:
                  - id: slow
                    run: echo one; echo two; echo "$API_TOKEN" >&2; sleep 60
                    timeout: 1s
                    on_error: continue
                  - id: loop
                    for_each: [1, 2]
                    timeout: 1s
                    on_error: continue
                    steps: [{id: each, run: "echo {{ item }}; test {{ item }} = 1 || sleep 60"}]
                  - {id: name, ask: Which name?}
                outputs:
                  out: "{{ steps.slow.stdout }}"
                  err: "{{ steps.slow.stderr | replace('abc', 'ABC') }}"
                  kind: "{{ steps.slow.error.kind }}"
                  loop: "{{ steps.loop.results | map(attribute='each') | map(attribute='stdout') | list }}"
            """,
            code=5,
        )

        events = [json.loads(line) for line in parked.stdout.splitlines()]
        (slow,) = (each for each in events if each["event"] == "step_finished" and each["id"] == "slow")
        assert (slow["result"]["status"], slow["result"]["stdout"]) == ("failed", "one\ntwo\n")
        assert "abc-123" not in parked.stdout
        assert json.loads(place.resume("--answer", "name=x", "--quiet").stdout) == {
            "out": "one\ntwo\n",
            "err": "ABC-123-DEF\n",
            "kind": "timeout",
            "loop": ["1\n", "2\n"],
        }
        page = _runs("show", place.ids[0])
        assert "  slow  failed" in page
        assert "\n      | one\n      | two\n      ! «secret:API_TOKEN»\n  loop  failed" in page
        assert "\n        | 2\n" in page
        assert "| 1" not in page, "that one came to its end"

    def test_a_step_that_was_cancelled_has_what_it_wrote(self, place):
        os.mkfifo("fifo")
        place.write("""
            steps: [{id: work, run: "seq 1 30; echo oh >&2; echo $$ > fifo; sleep 60 & wait"}]
            hooks: {cancel: [{id: seen, run: "echo {{ steps.work.stdout | lines | length }} > seen"}]}
        """)
        process = forked.Popen([*COUPLER, "run", "./flow.yaml"], stderr=subprocess.DEVNULL)
        place.hears("fifo")
        process.terminate()
        assert process.wait(PATIENCE) == 130

        told = [json.loads(line) for line in _runs("logs", place.ids[0], "--json").splitlines()]
        (work,) = (each for each in told if each["event"] == "step_finished" and each["id"] == "work")
        written = "".join(f"{n}\n" for n in range(1, 31))
        assert work["result"] == {
            "status": "cancelled",
            "stdout": written,
            "stderr": "oh\n",
            "duration": work["result"]["duration"],
        }
        assert place.read("seen") == "30\n"
        page = _runs("show", place.ids[0])
        assert "\n      … 20 lines left out: --full shows them …\n      | 21\n" in page
        assert "\n      | 30\n      ! oh\n  hooks.cancel.seen  success" in page
        assert "\n      | 1\n      | 2\n" in _runs("show", place.ids[0], "--full")


def test_a_long_output_is_stored_once_and_read_whole(place):
    size = 3_000_000
    place.write(f"""
        steps:
          - {{id: big, run: "seq 1 1000000 | head -c {size}"}}
          - {{id: name, ask: Which name?}}
        outputs: {{out: "{{{{ steps.big.stdout }}}}"}}
    """)
    written = "".join(f"{n}\n" for n in range(1, 500_000))[:size]

    forked.run([*COUPLER, "run", "./flow.yaml", "--quiet"], capture_output=True)
    stored = sum(file.stat().st_size for file in place.store_file.parent.glob("coupler.db*"))
    assert size < stored < 1.1 * size
    told = [json.loads(line) for line in _runs("logs", place.ids[0], "--json").splitlines()]
    (big,) = (each["result"] for each in told if each["event"] == "step_finished" and each["id"] == "big")

    assert big["stdout"] == written
    assert "".join(each["text"] for each in told if each["event"] == "output") == written
    assert place.resume("--answer", "name=x", "--quiet").stdout == f"{written}\n"


def _runs(*words: str) -> str:
    done = forked.run([*COUPLER, "runs", *words], check=True, capture_output=True, text=True)
    return str(done.stdout)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("words", ["run ./flow.yaml --quiet", "run ./flow.yaml", "workflows schema"])
def test_what_a_full_disk_loses_is_told_and_is_no_success(place, words):
    (place.directory / "flow.yaml").write_text("{steps: [{run: echo hi}], outputs: {a: b}}")
    with Path("/dev/full").open("w") as full:
        done = forked.run(
            [*COUPLER, *words.split()], cwd=place.directory, stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert done.returncode != 0
    assert "the output cannot be written: no space left on device" in done.stderr
    assert "Traceback" not in done.stderr

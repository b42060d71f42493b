"""What a check of a workflow finds before anything runs, and where it says that it stands."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from coupler.workflow.errors import InvalidWorkflowError, Problem
from coupler.workflow.language.library import Library
from tables import table


@pytest.fixture
def check(tmp_path: Path):
    """Checks a text as main.yaml, with other files beside it; tells problems as LINE:COLUMN MESSAGE."""

    def check(text: str, **files: str) -> list[str]:
        return [_told(problem, tmp_path) for problem in problems(text, **files)]

    def problems(text: str, **files: str) -> tuple[Problem, ...]:
        for name, content in {"main.yaml": text, **files}.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(content))
        return Library(str(tmp_path), {}).check("main.yaml").problems

    check.problems = problems  # type: ignore[attr-defined]
    return check


def _told(problem: Problem, directory: Path) -> str:
    place = problem.position
    name = Path(place.file).relative_to(directory).as_posix()
    prefix = "" if name == "main.yaml" else f"{name}:"
    severity = "warning: " if problem.severity == "warning" else ""
    return f"{prefix}{place.line}:{place.column} {severity}{problem.message}"


SCENE = """\
inputs:
  target: {required: true}
secrets: [TOKEN]
steps:
  - {id: diff, run: git diff, output: lines}
  - id: both
    parallel:
      - {id: left, run: make left}
      - - {id: right, run: make right}
        - {id: judge, approve: Good?}
  - id: loop
    for_each: [1]
    as: number
    steps:
      - {id: inner, run: make}
      - {id: beside, parallel: [{id: deep, run: make}]}
  - {id: values, set: {tries: 1}}
  - id: here
    run: echo EXPRESSION
  - {id: later, run: make}
"""

UNKNOWN = [
    ("inputs.tarket", "there is no input `tarket`; did you mean `target`?"),
    ("inputs['tarket']", "there is no input `tarket`; did you mean `target`?"),
    ("secrets.TOKN", "there is no secret `TOKN`; did you mean `TOKEN`?"),
    ("secrets.PASSWORD", "there is no secret `PASSWORD`: name the environment variable in `secrets`"),
    ("steps.dif.stdout", "there is no step `dif`; did you mean `diff`?"),
    (
        "steps.x.y",
        "there is no step `x`; use one of `diff`, `both`, `left`, `right`, `judge`, `loop`, `values`",
    ),
    ("steps.dif is defined", "there is no step `dif`; did you mean `diff`?"),
    ("vars.tires", "there is no variable `tires`; did you mean `tries`?"),
    ("run.directry", "`run` has no `directry`; did you mean `directory`?"),
    ("run.status", "`run` has no `status`; use one of `id`, `workflow`, `cwd`, `directory`"),
    ("target", "there is no name `target`; did you mean `inputs.target`?"),
    ("diff.stdout", "there is no name `diff`; did you mean `steps.diff`?"),
    ("tries", "there is no name `tries`; did you mean `vars.tries`?"),
    ("input.target", "there is no name `input`; did you mean `inputs`?"),
    ("item", "`item` is there only inside of a loop"),
    ("steps.diff.stdot", "`steps.diff` has no `stdot`, as it is a `run` step: did you mean `stdout`?"),
    (
        "steps.judge.stdout",
        "`steps.judge` has no `stdout`, as it is an `approve` step: "
        "it has `approved`, `status`, `error`, `duration`",
    ),
    (
        "steps.left.output",
        "`steps.left` has no `output`: say in its step what `output` is, "
        "or use one of `stdout`, `stderr`, `exit_code`, `status`, `error`, `duration`",
    ),
    ("steps.diff.error.kin", "`steps.diff.error` has no `kin`; did you mean `kind`?"),
    ("steps.values.output.x", "`steps.values.output` has no `x`; use one of `tries`"),
    (
        "steps.inner.stdout",
        "`inner` runs inside of the loop `loop`: its results are `steps.loop.results[0].inner` …",
    ),
    ("steps.loop.results.inner", "`steps.loop.results` is a list: write `steps.loop.results[0].inner`"),
    ("steps.loop.results[0].iner", "`steps.loop.results[0]` has no step `iner`; did you mean `inner`?"),
    (
        "steps.loop.results[0].inner.txt",
        "`steps.loop.results[0].inner` has no `txt`, as it is a `run` step: "
        "it has `stdout`, `stderr`, `exit_code`, `status`, `error`, `duration`",
    ),
    (
        "steps.later.stdout",
        "`later` cannot have run yet here: use it later, or write `steps.later is defined`",
    ),
    ("steps.here.stdout", "`here` cannot have run yet here: use it later, or write `steps.here is defined`"),
]
KNOWN = [
    "inputs.target",
    "secrets.TOKEN",
    "run.directory",
    "vars.tries + 1",
    "steps.diff.output[0]",
    "steps.diff.error.kind",
    "steps.right.stdout ~ steps.judge.approved",
    "steps.loop.results[0].inner.stdout",
    "steps.loop.results[0].deep.stdout",
    "steps.loop.results | map(attribute='inner.stdout') | list",
    "steps.loop.results[inputs.target].anything",
    "steps.diff.stdout.upper()",
    "steps.later is defined",
    "steps.later.stdout | default('')",
    "steps.later.stdout if steps.later is defined else ''",
    "(steps | length) + range(3) | length",
    "'steps.nothing'",
]


class TestNames:
    @table(("expression", "sentence"), UNKNOWN)
    def test_a_name_that_means_nothing_is_told_with_the_nearest(self, check, expression, sentence):
        assert check(SCENE.replace("EXPRESSION", f"{{{{ {expression} }}}}")) == [f"19:18 {sentence}"]

    @table("expression", KNOWN)
    def test_a_name_that_can_mean_something_is_none(self, check, expression):
        assert check(SCENE.replace("EXPRESSION", f"{{{{ {expression} }}}}")) == []

    def test_branches_do_not_see_each_other(self, check):
        text = """\
            steps:
              - id: both
                parallel:
                  - {id: left, run: "echo {{ steps.right.stdout }}"}
                  - {id: right, run: make}
            """
        assert check(text) == [
            "4:34 `right` runs beside this, in a branch of `both`: use it after that, "
            "or let this branch have `needs: [right]`"
        ]

    def test_each_scope_of_a_loop_has_its_own_names(self, check):
        text = """\
            steps:
              - id: outer
                for_each: [a]
                as: file
                if: index
                steps:
                  - {id: first, run: "echo {{ file }} {{ index }} {{ item }}"}
                  - for_each: [b]
                    steps:
                      - run: "echo {{ item }} {{ file }} {{ steps.first.stdout }} {{ vars.here }}"
                  - set: {here: index}
              - run: "echo {{ vars.here }}"
            """
        assert check(text) == [
            "5:9 `index` is there only inside of a loop",
            "7:58 `item` is there only inside of a loop",
            "10:74 `vars.here` cannot be set yet: set it before, or write `vars.here | default(…)`",
            "12:19 `vars.here` cannot be set yet: set it before, or write `vars.here | default(…)`",
        ]

    def test_loop_has_the_fields_of_the_loops_around_it(self, check):
        text = """\
            steps:
              - run: echo {{ loop.index }}
              - id: rows
                for_each: [a]
                steps:
                  - run: echo {{ loop.first }} {{ loop.lsat }} {{ loop.outer }}
                  - id: cells
                    while: index
                    steps:
                      - run: echo {{ loop.outer.last }} {{ loop.last }} {{ loop.outer.outer.index }}
                      - run: echo {% for x in [1] %}{{ loop.length }}{% endfor %} {{ loop.index }}
            """
        assert check(text) == [
            "2:18 `loop` is there only inside of a loop",
            "6:39 `loop` has no `lsat`; did you mean `last`?",
            "6:55 `loop.outer` is not there: `rows` is the outermost loop",
            "10:48 `loop.last` is not known in the `while` step `cells`: whether another round comes shows "
            "after this one",
            "10:64 `loop.outer.outer` is not there: `rows` is the outermost loop",
        ]

    @table(
        ("test", "problems"),
        [
            (
                "steps.try.exit_code != 0",
                [
                    "2:12 `steps.try` is not there before the first round: "
                    "write `steps.try is not defined or …`"
                ],
            ),
            ("steps.try is not defined or steps.try.exit_code != 0", []),
            ("(steps.try.exit_code | default(1)) != 0", []),
            (
                "steps.try is not defined or steps.try.text",
                [
                    "2:40 `steps.try` has no `text`, as it is a `run` step: "
                    "it has `stdout`, `stderr`, `exit_code`, `status`, `error`, `duration`"
                ],
            ),
        ],
    )
    def test_a_while_may_name_its_steps_once_there_was_a_round(self, check, test, problems):
        text = f"""\
steps:
  - while: {test}
    steps:
      - {{id: again, run: "echo {{{{ steps.try.stdout | default('') }}}}"}}
      - {{id: try, run: make, ok_codes: [0, 1]}}
      - set: {{done: index}}
  - run: echo {{{{ vars.done }}}}
"""
        assert check(text) == problems

    def test_a_step_sees_later_ones_if_a_way_leads_back(self, check):
        text = """\
            steps:
              - {id: build, run: "echo {{ steps.test.stderr }}"}
              - {id: test, run: make, on_error: {goto: {step: build, max: 2}}}
            """
        assert check(text) == []

    def test_hooks_see_the_steps_and_how_the_run_ended(self, check):
        text = """\
            steps: [{id: work, run: "echo {{ steps.prepare.stdout }}"}]
            outputs: {text: "{{ steps.work.stdout }} {{ steps.clean.stdout }}"}
            hooks:
              start: [{id: prepare, run: "echo {{ steps.work.stdout }}"}]
              error: [{run: "echo {{ run.status }} {{ steps.work.stdout }}"}]
              end: [{id: clean, run: "echo {{ run.message }} {{ steps.wrk.stdout }}"}]
            """
        assert check(text) == [
            "2:45 `clean` cannot have run yet here: use it later, or write `steps.clean is defined`",
            "4:39 `work` cannot have run yet here: use it later, or write `steps.work is defined`",
            "6:53 there is no step `wrk`; did you mean `work`?",
        ]

    def test_what_belongs_to_no_step_sees_what_any_step_may_see(self, check):
        text = """\
            defaults: {cwd: "{{ item }}", env: {A: "{{ steps.b.stdout }}", C: "{{ inputs.none }}"}}
            mcp_servers: {files: {command: "{{ steps.nothing.stdout }}"}}
            steps: [{id: b, for_each: [1], steps: [{run: make}]}]
            """
        assert check(text) == [
            "1:44 `steps.b` has no `stdout`, as it is a `for_each` step: "
            "it has `results`, `status`, `error`, `duration`",
            "1:71 there is no input `none`; `inputs` has none",
            "2:36 there is no step `nothing`; use one of `b`, `run_1`",
        ]


class TestPlaces:
    @table(
        ("script", "place"),
        [
            ("echo {{ inputs.x }}", "2:18"),
            ('"echo \\t{{ inputs.x }}"', "2:21"),
            ("'echo {{ inputs.x }}'", "2:19"),
            ("|\n      echo one\n\n      echo {{ inputs.x }}", "5:15"),
            (">\n      echo one\n      and {{ inputs.x }}", "4:14"),
            ("|\n      echo one\n      {{ inputs.", "4:7"),
        ],
    )
    def test_a_problem_stands_where_it_is_written_in_any_style(self, check, script, place):
        assert [each.split()[0] for each in check(f"steps:\n  - run: {script}\n")] == [place]

    def test_a_prompt_or_script_in_a_file_is_checked_in_its_place(self, check, monkeypatch):
        monkeypatch.setenv("PATH", "")
        text = """\
            steps:
              - run_file: test.sh
              - {agent: "{{ inputs.x }}", prompt_file: fix.md}
            """
        told = check(text, **{"test.sh": "true\necho {{ steps.later.stdout }}\n", "fix.md": "Fix {{ oops"})
        assert told == [
            "3:17 there is no input `x`; `inputs` has none",
            "fix.md:1:1 the template cannot be read: unexpected end of template, expected "
            "'end of print statement'; text that is no template stands between `{% raw %}` and "
            "`{% endraw %}`",
            "test.sh:2:9 there is no step `later`; no step is over here",
        ]

    def test_every_problem_is_told_once_and_in_order(self, check):
        text = """\
            steps:
              - {id: a, run: &script "echo {{ inputs.x }}"}
              - {id: b, run: *script, goto: nowhere}
            """
        assert check(text) == [
            "2:35 there is no input `x`; `inputs` has none",
            "3:33 there is no step `nowhere`; use one of `a`, `b`",
        ]


class TestWays:
    @table(
        ("steps", "problems"),
        [
            (
                ["{id: a, run: x}", "{id: b, run: x, goto: a}"],
                ["3:27 going back to `a` may never end: say how often, as in `goto: {step: a, max: 3}`"],
            ),
            (
                ["{id: a, run: x, on_error: {exit: {goto: a}}}"],
                ["2:45 going back to `a` may never end: say how often, as in `goto: {step: a, max: 3}`"],
            ),
            (["{id: a, run: x, goto: {step: a, max: 2}}"], []),
            (
                ["{id: a, run: x, goto: inner}", "{while: false, steps: [{id: inner, run: x}]}"],
                ["2:27 `inner` is no step of this list: `goto` leads to one of `a`, `while_2`"],
            ),
            (
                ["stop: Done", "{id: a, run: x}", "{id: b, run: x}"],
                ["3:5 warning: `a` is never reached: the step before, `stop_1`, always stops"],
            ),
            (["{if: inputs, stop: Done}", "run: x"], []),
            (
                ["{id: a, run: x, goto: c}", "{id: b, run: x}", "{id: c, run: x}"],
                ["3:5 warning: `b` is never reached: the step before, `a`, always goes elsewhere"],
            ),
            (["{id: a, run: x, goto: c, on_error: continue}", "{id: b, run: x}", "{id: c, run: x}"], []),
            (
                [
                    "{id: a, run: x, goto: c, approve: {on_deny: skip}}",
                    "{id: b, run: x}",
                    "{id: c, run: x}",
                ],
                [],
            ),
            (
                ["{id: a, run: x, goto: c, on_error: {goto: b}}", "{id: b, run: x}", "{id: c, run: x}"],
                [],
            ),
        ],
    )
    def test_ways_lead_to_siblings_and_have_an_end(self, check, steps, problems):
        assert check("steps:\n" + "".join(f"  - {step}\n" for step in steps)) == problems

    def test_a_default_that_continues_is_a_way_on(self, check):
        text = """\
            defaults: {on_error: continue}
            steps: [{id: a, run: x, goto: c}, {id: b, run: x}, {id: c, run: x}]
            """
        assert check(text) == []


class TestAgents:
    @pytest.fixture(autouse=True)
    def _nothing_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "my-agent").write_text("#!/bin/sh\n")
        (programs / "my-agent").chmod(0o755)
        monkeypatch.setenv("PATH", str(programs))

    @table(
        ("agent", "problem"),
        [
            ("my-agent", None),
            ("my-agent --acp", None),
            ("module.of.mine:agent", None),
            ('"{{ inputs }}"', None),
            ("own", None),
            ("mine.py", None),
            ("mine.py:agent", None),
            ("coupler serve app.py", None),
            ("claud", "there is no agent `claud`; did you mean `claude`? "),
            ("onw", "there is no agent `onw`; did you mean `own`? "),
            ("claude:native", "warning: Claude Code is not installed. "),
            ("claude", "warning: Claude"),
            ("yours.py:agent", "there is no file yours.py with this agent, beside the workflow or here"),
            ("no-such --acp", "warning: the program no-such of this agent was not found: install it first"),
        ],
    )
    def test_unknown_agents_are_errors_and_missing_ones_warnings(self, check, agent, problem):
        text = f"agents: {{own: {{agent: my-agent}}}}\nsteps:\n  - {{agent: {agent}, prompt: Hello}}\n"
        told = check(text, **{"mine.py": ""})
        if problem is None:
            assert told == []
        else:
            assert len(told) == 1
            assert told[0].startswith(f"3:13 {problem}")

    def test_the_default_and_the_profiles_are_checked_where_they_stand(self, check):
        text = """\
            agents:
              one: {agent: two}
              two: {agent: one}
              own: {agent: clude}
            defaults: {agent: codx}
            steps: [{prompt: Hello}]
            """
        told = check(text)
        assert told[:2] == [
            "2:16 this agent leads back to itself: one → two → one: give it another name",
            "3:16 this agent leads back to itself: two → one → two: give it another name",
        ]
        assert [each.partition(";")[0] for each in told[2:]] == [
            "4:16 there is no agent `clude`",
            "5:19 there is no agent `codx`",
        ]

    def test_a_session_goes_on_only_after_a_step_that_had_one(self, check):
        text = """\
            agents: {own: {agent: my-agent}}
            steps:
              - {id: script, run: make}
              - {id: first, agent: own, prompt: Hello, continue: second}
              - {id: second, agent: my-agent, prompt: Hello, continue: first}
              - {id: third, agent: my-agent --acp, prompt: Hello, continue: first}
              - {id: fourth, converse: own, continue: frist}
              - {agent: own, prompt: Hello, continue: script}
            """
        assert check(text) == [
            "4:54 `continue` names `second`, and no agent has run here yet",
            "6:65 warning: the session of `first` is one of own: my-agent --acp gets a new one, "
            "and is told what was said",
            "7:43 no agent step `frist` has run here yet; did you mean `first`?",
            "8:43 `script` has no session to go on with: `continue` names an `agent` step",
        ]

    def test_an_agent_has_an_output_if_its_step_or_profile_asks_for_one(self, check):
        text = """\
            agents: {own: {agent: my-agent, output: {type: object}}}
            steps:
              - {id: a, agent: my-agent, prompt: Hello}
              - {id: b, agent: own, prompt: Hello}
              - {id: c, agent: my-agent, prompt: Hello, output: {type: object}}
            outputs: {a: "{{ steps.a.output }}", b: "{{ steps.b.output.x }}", c: "{{ steps.c.output.x }}"}
            """
        assert check(text) == [
            "6:18 `steps.a` has no `output`: say in its step what `output` is, "
            "or use one of `text`, `usage`, `session_id`, `status`, `error`, `duration`"
        ]


class TestFiles:
    def test_missing_files_and_files_that_are_no_schema_are_told(self, check, monkeypatch):
        monkeypatch.setenv("PATH", "")
        text = """\
            steps:
              - {run_file: scripts/tset.sh}
              - {run: make, output: one.json}
              - {run: make, output: two.json}
              - {run: make, output: three.json}
              - {run: make, output: {type: obect}}
              - {agent: "{{ inputs }}", prompt: Hello, context: [none/a.md], skills: [scripts]}
            """
        files = {
            "scripts__test.sh": "make",
            "one.json": '{"type": "object"}',
            "two.json": "{",
            "three.json": '{"type": "obect"}',
        }
        told = check(text, **files)
        assert told[:2] == [
            "2:16 there is no file scripts/tset.sh; did you mean `test.sh`?",
            "4:25 two.json is no JSON: Input data was truncated",
        ]
        assert told[2].startswith("5:25 three.json cannot be used: this is no JSON Schema: at `$.type`: ")
        assert told[3].startswith("6:25 this cannot be used: this is no JSON Schema: at `$.type`: ")
        assert told[4] == "7:54 there is no file none/a.md: there is no directory none beside the workflow"
        assert told[5].startswith("7:75 ")
        assert told[5].endswith("scripts is no file") or "cannot be read" in told[5]


class TestCalls:
    CALLED = """\
        inputs:
          target: {required: true}
          rounds: {type: integer, max: 5}
        steps: [{run: make}]
        outputs: {found: 1}
        """

    @table(
        ("inputs", "problems"),
        [
            ("{target: a, rounds: 3}", []),
            ('{target: "{{ inputs }}", rounds: "{{ run.id }}"}', []),
            ("{rounds: 3}", ["2:19 the workflow `lint` needs the input `target`: give it in `inputs`"]),
            (
                "{target: a, tarket: b}",
                ["2:50 the workflow `lint` has no input `tarket`; did you mean `target`?"],
            ),
            ("{target: a, rounds: 9}", ["2:58 input `rounds` has to be at most 5"]),
            ("{target: a, rounds: many}", ["2:58 input `rounds` has to be a whole number, not `many`"]),
        ],
    )
    def test_the_inputs_of_a_called_workflow_are_checked(self, check, inputs, problems):
        text = f"steps:\n  - {{id: l, call: lint.yaml, inputs: {inputs}}}\n"
        assert check(text, **{"lint.yaml": self.CALLED}) == problems

    def test_its_outputs_are_those_it_has(self, check):
        text = """\
            steps:
              - {id: l, call: lint.yaml, inputs: {target: a}}
              - run: echo {{ steps.l.output.found }} {{ steps.l.output.fund }}
            """
        assert check(text, **{"lint.yaml": self.CALLED}) == [
            "3:45 the workflow `lint` has no output `fund`; did you mean `found`?"
        ]

    def test_problems_of_all_files_are_told_together(self, check, tmp_path):
        text = """\
            steps:
              - {id: l, call: lint.yaml}
              - {call: none.yaml}
              - run: echo {{ inputs.x }}
            """
        lint = "steps:\n  - {call: main.yaml}\n  - run: echo {{ inputs.y }}\n"
        assert check(text, **{"lint.yaml": lint}) == [
            f"3:5 there is no file {tmp_path / 'none.yaml'}",
            "4:18 there is no input `x`; `inputs` has none",
            "lint.yaml:2:5 a workflow must not call itself: main → lint → main",
            "lint.yaml:3:18 there is no input `y`; `inputs` has none",
        ]


class TestRest:
    """What is wrong with the keys of a file hides nothing else, and makes no problems of its own."""

    def test_problems_of_keys_names_agents_and_expressions_are_told_together(self, check):
        text = """\
            inputs: {target: {tpye: string}}
            steps:
              - {id: one, run: "echo {{ inputs.tarket }}", timout: 3}
              - {id: two, if: a && b, run: make}
              - {agent: clade, promt: Hello}
              - {agent: claud, prompt: Hello}
              - {id: three, script: make}
              - {run: "echo {{ steps.on.stdout }}"}
            """
        assert [each.partition(";")[0] for each in check(text)] == [
            "1:19 `tpye` is no key of an input",
            "3:29 there is no input `tarket`",
            "3:48 `timout` is no key of a `run` step",
            "4:19 the expression cannot be read: write `and`, not `&&`",
            "5:5 `prompt` or `prompt_file` is needed here",
            "5:20 `promt` is no key of an `agent` step",
            "6:13 there is no agent `claud`",
            "7:5 the step does nothing",
            "8:20 there is no step `on`",
        ]

    @table(
        "text",
        [
            pytest.param(
                "steps:\n  - {id: one, rnu: make}\n  - run: echo {{ steps.one.stdout }}\n", id="a step"
            ),
            pytest.param("steps: [make, {run: 'echo {{ steps.run_1.stdout }}'}]", id="a step without an id"),
            pytest.param("steps: [{rnu: x}, {id: a, run: 'echo {{ steps.run_3 }}'}, {run: x}]", id="numbers"),
            pytest.param(
                "steps: [{id: a, run: x, outptu: json}, {run: 'echo {{ steps.a.output }}'}]", id="an output"
            ),
            pytest.param("steps: [{id: s, st: {x: 1}}, {run: 'echo {{ vars.x }}'}]", id="a variable"),
            pytest.param(
                "steps: [{for_each: [1], ass: file, steps: [{run: 'echo {{ file }}'}]}]", id="a loop's name"
            ),
            pytest.param(
                "steps: [{id: a, for_each: 3, steps: [{id: b, run: x}]}, "
                "{run: 'echo {{ steps.a.results[0].b.stdout }}'}]",
                id="a loop",
            ),
            pytest.param("inputs: {a: txt}\nsteps: [{run: 'echo {{ inputs.a }}'}]", id="an input"),
            pytest.param("inputs: {a: {tpye: integer, default: 3}}\nsteps: [{run: x}]", id="a default"),
            pytest.param("agents: {a: {agnet: x}}\nsteps: [{agent: a, prompt: Hello}]", id="an agent"),
            pytest.param(
                "steps: [{run: x}, {id: a, run: x, goto: {step: a, mx: 3}}]", id="the bound of a way back"
            ),
            pytest.param(
                "steps: [{run: 'echo {{ steps.b.stdout }}', id: a}, {id: b, run: x, gto: a}]", id="a way back"
            ),
            pytest.param(
                "steps: [{id: a, run: x, goto: b, iff: x}, {run: x}, {id: b, run: x}]", id="a way on"
            ),
            pytest.param("steps: [{id: a, rnu: x, goto: b}, {run: x, goto: a}]", id="where a way leads"),
            pytest.param("steps: [{call: other.yaml, inpts: {a: 1}}]", id="the inputs of a call"),
            pytest.param("steps: [{run: make, ok_codes: [-1]}]", id="the only item of a list"),
        ],
    )
    def test_what_was_taken_out_is_not_missed(self, check, text):
        told = check(text, **{"other.yaml": "inputs: {a: {required: true}}\nsteps: [{run: make}]\n"})
        assert len(told) == 1, told

    def test_a_problem_that_shows_only_without_another_is_told_as_well(self, check):
        text = """\
            nam: x
            inputs: {a: {type: integer, default: x}}
            steps: [{run: make}]
            """
        assert [each.partition(" ")[0] for each in check(text)] == ["1:1", "2:38"]

    def test_the_rest_of_a_called_workflow_is_checked_too(self, check):
        called = "steps: [{run: make, timout: 3}, {run: 'echo {{ inputs.x }}'}]"
        assert check("steps: [{call: other.yaml}]", **{"other.yaml": called}) == [
            "other.yaml:1:21 `timout` is no key of a `run` step; did you mean `timeout`?",
            "other.yaml:1:48 there is no input `x`; `inputs` has none",
        ]

    def test_what_is_wrong_in_parts_is_no_workflow(self, check, tmp_path):
        check("steps: [{run: make, timout: 3}]")
        library = Library(str(tmp_path), {})
        assert library.check("main.yaml").bundle is None
        with pytest.raises(InvalidWorkflowError):
            library.find("main.yaml")


class TestDollars:
    @pytest.mark.parametrize(
        ("script", "problems"),
        [
            (
                "echo ${{ run.id }}",
                ["2:15 warning: `${{ }}` writes a `$` before the value: leave the `$` out, as in `{{ }}`"],
            ),
            ("echo {% raw %}${{ x }}{% endraw %} {{ '$' }}{{ run.id }} ${HOME}{{ run.id }}", []),
        ],
    )
    def test_the_spelling_of_github_is_warned_of(self, check, script, problems):
        assert check(f"steps:\n  - run: {script}\n") == problems

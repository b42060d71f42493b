"""Workflow files become workflows, or a list of all that is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from coupler.workflow.errors import InvalidWorkflowError, WorkflowError
from coupler.workflow.language import model as d
from coupler.workflow.language.model import all_tables
from coupler.workflow.language.reader import files_of, load, read_text, read_with_places, read_workflow
from tables import table

EVERYTHING = Path(__file__).with_name("everything.yaml")


def steps_of(text: str) -> tuple[d.Step, ...]:
    return read_text(text, "/w/f.yaml").steps


def problems_in(text: str) -> list[str]:
    with pytest.raises(InvalidWorkflowError) as caught:
        read_text(text, "/w/f.yaml")
    return [str(problem).removeprefix("/w/f.yaml:") for problem in caught.value.problems]


@pytest.fixture(scope="module")
def everything() -> d.Workflow:
    return read_workflow(str(EVERYTHING))


def test_the_example_with_everything_has_every_key_of_the_language(everything):
    text = EVERYTHING.read_text()
    keys = {key.name for table in all_tables() for key in table.keys}
    kinds = {"template", "provider", "rate_limit", "invalid_output", "denied", "cancelled", "not_found"}
    assert [key for key in sorted(keys - kinds - {"budget"}) if f"{key}:" not in text] == []


def test_inputs_are_typed_and_the_short_form_is_a_type(everything):
    inputs = everything.inputs
    assert (inputs["target"].required, inputs["target"].pattern) == (True, "[a-z/]+")
    rounds = inputs["rounds"]
    assert (rounds.type, rounds.default, rounds.min, rounds.max) == ("integer", 2, 1, 5)
    assert inputs["where"].enum == ("dev", "staging")
    assert inputs["token"].secret
    assert inputs["token"].default is msgspec.UNSET
    assert inputs["words"].rest
    assert (inputs["report"].type, str(inputs["report"].position)) == ("file", f"{EVERYTHING}:10:11")


def test_an_input_whose_name_declares_a_secret_is_one_in_both_forms():
    text = (
        "inputs: {API_KEY_X: string, PASSWORD: {description: x}, port: integer, a: string}\nsteps: [{run: x}]"
    )
    inputs = read_text(text, "/w/f.yaml").inputs
    assert [name for name, declared in inputs.items() if declared.secret] == ["API_KEY_X", "PASSWORD"]


def test_agents_and_servers_of_the_workflow(everything):
    assert everything.secrets == ("GITHUB_TOKEN", "_other2")
    reviewer = everything.agents["reviewer"]
    set_up = reviewer.set_up
    assert (reviewer.agent, set_up.model, set_up.mode) == ("claude", "opus", "plan")
    assert set_up.options == {"effort": "high", "verbose": True}
    assert set_up.tools == d.ToolRuleTexts(("read(**)",), ("execute(rm *)",))
    assert (set_up.files, set_up.intercept, set_up.repairs) == ("read", True, 1)
    assert (set_up.context, set_up.skills) == (("docs/style.md",), ("skills/review.md",))
    assert set_up.budget == d.Limits(tokens=1000, cost=0.5, time=90)
    env = {"LEVEL": "1.10", "CI": "true"}
    assert set_up.mcp_servers == (
        d.McpServerEntry(name="tickets", command=("tickets-mcp", "--port", "80"), env=env),
    )
    assert isinstance(reviewer.hooks, d.Hooks)
    assert [step.id for step in reviewer.hooks.start] == ["run_1"]
    web, plain = everything.mcp_servers
    assert (web.url, web.type) == ("https://mcp.example.com", "sse")
    assert web.headers == {"Authorization": "{{ secrets.GITHUB_TOKEN }}"}
    assert plain.type == "http"


def test_defaults_budget_outputs_and_hooks_of_the_workflow(everything):
    defaults = everything.defaults
    assert (defaults.agent, defaults.shell, defaults.timeout, defaults.cwd) == ("codex", "bash", 600, "sub")
    assert defaults.retry == d.Retry(attempts=2)
    assert defaults.on_error == d.OnError("fail", {"timeout": "continue"})
    assert (defaults.set_up.model, defaults.set_up.files) == ("small", "none")
    assert (everything.budget, everything.max_steps) == (d.Limits(cost=5), 500)
    assert everything.outputs == {"findings": "{{ steps.answer.output }}", "fixed": [1, {"a": True}]}
    assert [len(steps) for steps in msgspec.structs.astuple(everything.hooks)] == [1, 1, 1, 1]


def test_what_every_step_may_say(everything):
    diff, test, *_ = everything.steps
    assert (diff.id, diff.is_named, str(diff.position)) == ("diff", True, f"{EVERYTHING}:48:5")
    assert (diff.condition, diff.timeout, diff.once) == ("inputs.rounds > 1", 1.5, True)
    assert diff.retry == d.Retry(
        attempts=3, delay=0.5, max_delay=60, backoff="linear", jitter=0.1, on=("exit", 75)
    )
    assert diff.on_error == d.OnError("fail", {"exit": d.Goto("diff", 2), "timeout": "continue"})
    assert test.on_error == d.OnError(d.Goto("diff", 3))
    assert diff.goto == d.Goto("test")
    assert (diff.env, diff.cwd) == ({"N": "1.10"}, "{{ inputs.where }}")
    assert diff.gate == d.ApprovalGate(question="Really?", on_deny="skip", default="allow", timeout=3600)
    assert test.gate == d.ApprovalGate()


def test_steps_of_all_kinds(everything):
    diff, test, prompted, answer, talk, commit, sure, asked, both, each, three, *others = everything.steps
    again, call, fail, end, built, asked_server, left = others
    assert isinstance(diff, d.Run)
    assert (diff.shell, diff.output, diff.ok_codes) == ("bash", "lines", (0, 1))
    assert (test.script, test.file, test.shell) == (None, "scripts/test.sh", "sh")
    assert test.output == {"type": "object"}
    assert isinstance(prompted, d.Agent)
    assert (prompted.id, prompted.agent, prompted.is_named) == ("agent_3", "codex", False)
    assert (prompted.gate, prompted.retry) == (
        d.ApprovalGate(tools=("execute(git push*)",)),
        d.Retry(attempts=4),
    )
    assert (answer.agent, answer.set_up.continues) == ("npx some-agent --acp", "agent_3")
    assert answer.gate == d.ApprovalGate(question="Spend money?")
    assert isinstance(talk, d.Converse)
    assert (talk.id, talk.agent, talk.max_turns) == ("converse_5", "reviewer", 3)
    assert isinstance(commit, d.Approve)
    question = "Commit {{ steps.diff.stdout }}?"
    assert commit.question == d.ApprovalGate(question=question, on_deny="stop", default="deny", timeout=300)
    assert (commit.gate, commit.timeout) == (None, None)
    assert sure.question == d.ApprovalGate(question="Sure?", on_deny="skip")
    assert isinstance(asked, d.Ask)
    assert (asked.answer.name, asked.answer.type, asked.answer.default) == ("ask_8", "integer", 2)
    assert isinstance(both, d.Parallel)
    assert (both.wait, both.max_concurrent) == ("any", 2)
    assert isinstance(each, d.ForEach)
    assert (each.items, each.name, each.wait, each.max_concurrent) == (
        "steps.diff.output",
        "line",
        "settled",
        4,
    )
    assert three.items == (1, "two", {"three": 3})
    assert isinstance(again, d.While)
    assert (again.test, again.max_rounds) == ("vars.tries < 3", 9)
    assert again.steps[0].values == {"tries": "vars.tries + 1", "list": [1, 2], "on": "inputs.target"}
    assert isinstance(call, d.Call)
    assert call.inputs["deep"] == {"list": ["{{ vars.tries }}"]}
    assert (fail.ending.status, fail.ending.message, fail.ending.exit_code) == (
        "failure",
        "Reviewed {{ inputs.target }}",
        7,
    )
    assert (end.id, end.ending.status, end.ending.message) == ("stop_15", "success", "The end")
    assert [branch[0].needs for branch in built.branches] == [(), ("build",)]
    assert isinstance(asked_server, d.Http)
    assert (asked_server.method, asked_server.ok_status) == ("POST", (201, "4xx", "200-204"))
    assert asked_server.query == {"page": 2, "tags": ["a", "{{ inputs.where }}"]}
    assert [type(step) for step in left.steps] == [d.Continue, d.Break]


def test_unnamed_steps_of_branches_are_called_after_the_step_around_them(everything):
    both = next(step for step in everything.steps if isinstance(step, d.Parallel))
    assert [[step.id for step in branch] for branch in both.branches] == [
        ["left"],
        ["both_run_2"],
        ["both_3_run_1", "rightmost"],
    ]


def test_a_loop_has_ids_of_its_own():
    (first, loop) = steps_of("steps: [{id: a, run: x}, {for_each: [1], steps: [{id: a, run: y}]}]")
    assert first.id == loop.steps[0].id == "a"


def test_a_file_is_named_after_itself_unless_it_says_so():
    assert read_text("steps: [{run: x}]", "/w/my-review.v2.yaml").name == "my-review.v2"


def test_files_are_told_with_the_places_that_name_them(everything):
    assert [(name, place.line) for name, place in files_of(everything)] == [
        ("docs/style.md", 24),
        ("skills/review.md", 25),
        ("schemas/findings.json", 26),
        ("scripts/test.sh", 67),
        ("prompts/fix.md", 77),
    ]


def test_templates_and_expressions_are_told_with_their_steps():
    reading = read_with_places(str(EVERYTHING))
    told = {(each.kind, each.text, each.node.position.line, each.owner.line) for each in reading.written}
    assert told >= {
        ("template", "git diff {{ inputs.target }}", 51, 48),
        ("template", "Differences of {{ inputs.target }}", 49, 48),
        ("expression", "inputs.rounds > 1", 50, 48),
        ("template", "Really?", 65, 48),
        ("expression", "vars.tries < 3", 109, 109),
        ("expression", "vars.tries + 1", 112, 112),
        ("template", "{{ vars.tries }}", 114, 113),
        ("template", "You review {{ inputs.target }}.", 15, 2),
        ("template", "{{ steps.answer.output }}", 126, 2),
    }
    assert not [each for each in reading.written if each.text in ("Has it all", "lines", "Branch or path")]


@table(
    ("text", "problem"),
    [
        ("steps: [{rnu: x}]", "1:9: the step does nothing; did you mean `run` by `rnu`?"),
        ("steps: [{id: a}]", "1:9: the step does nothing; say what with one of `run`, `http`, `agent`,"),
        ("steps: [{run: x, agent: y}]", "1:18: a step does one thing: either `run` or `agent`"),
        ("steps: [{run: x, run_file: y}]", "1:18: either `run` or `run_file`, not both"),
        ("steps: [{run: x, timout: 3}]", "1:18: `timout` is no key of a `run` step; did you mean `timeout`?"),
        ("steps: [{run: x, prompt: y}]", "1:18: `prompt` is no key of a `run` step"),
        ("steps: [{agent: x}]", "1:9: `prompt` or `prompt_file` is needed here"),
        ("steps: [{prompt: x}]", "1:9: the step has a prompt and no `agent`"),
        ("steps: [do it]", "1:9: a step must be a mapping with one of `run`"),
        ("steps: []", "1:8: `steps` must have at least one step"),
        ("name: a", "1:1: a workflow needs `steps`"),
        ("[a]", "1:1: a workflow is a mapping with `steps`, not a list"),
        ("stpes: []\nsteps: [{run: x}]", "1:1: `stpes` is no key of a workflow; did you mean `steps`?"),
        ("name: a b\nsteps: [{run: x}]", "1:7: `name` must be made of letters"),
        ("steps: [{run: 7}]", "1:15: `run` must be a text, not a number: put it in quotes"),
        ("steps: [{run: ''}]", "1:15: `run` must not be empty"),
        ("steps: [{run: }]", "1:15: `run` must be a text, not nothing"),
        ("steps: [{run: x, id: A-b}]", "1:22: `id` must be made of lower-case letters"),
        ("steps: [{run: x, timeout: soon}]", "1:27: `timeout` must be a duration, such as `500ms`"),
        ("steps: [{run: x, timeout: 5 m}]", "1:27: `timeout` must be a duration"),
        ("steps: [{run: x, timeout: -1}]", "1:27: `timeout` must be a duration"),
        ("steps: [{run: x, timeout: 0s}]", "1:27: `timeout` must be more than nothing"),
        ("steps: [{run: x, timeout: true}]", "1:27: `timeout` must be a duration"),
        ("steps: [{run: x, retry: 0}]", "1:25: `retry` must be a whole number from 1"),
        ("steps: [{run: x, retry: {attempt: 3}}]", "1:26: `attempt` is no key of `retry`; did you mean `att"),
        ("steps: [{run: x, retry: {on: [exti]}}]", "1:31: `on` must be `exit`, `timeout`"),
        ("steps: [{run: x, retry: {jitter: 2}}]", "1:34: `jitter` must be a number from 0 to 1"),
        ("steps: [{run: x, shell: fish}]", "1:25: `shell` must be `sh` or `bash`"),
        (
            "steps: [{run: x, on_error: contine}]",
            "1:28: `on_error` must be `fail` or `continue`, or a mapping with `goto`, `exit`, `timeout`, "
            "`template`, `provider` …; did you mean `continue`?",
        ),
        (
            "steps: [{run: x, on_error: clean_up}]",
            "1:28: `on_error` must be `fail` or `continue`, or a mapping",
        ),
        (
            "steps: [{run: x, on_error: {exit: clean_up}}]",
            "1:35: `exit` must be `fail` or `continue`, or a mapping with `goto`",
        ),
        (
            "steps: [{run: x, on_error: {exit: {goto: a}, goto: b}}]",
            "1:29: `exit` cannot stand beside `goto`",
        ),
        (
            "steps: [{run: x, on_error: {timeouts: fail}}]",
            "1:29: `timeouts` is no key of `on_error`; did you",
        ),
        ("steps: [{run: x, goto: {max: 2}}]", "1:24: a `goto` needs `step`"),
        ("steps: [{run: x, env: {A=B: x}}]", "1:24: a name in `env` must be a variable's name"),
        ("steps: [{run: x, env: {A: [x]}}]", "1:27: `A` must be a text, a number, true or false, not a list"),
        ("steps: [{run: x, approve: false}]", "1:27: `approve` must be true here, or be left out"),
        ("steps: [{run: x, approve: {tools: [x]}}]", "1:28: `tools` is no key of `approve`"),
        ("steps: [{approve: true}]", "1:19: `approve` must be a text, or a mapping"),
        ("steps: [{approve: {on_deny: stop}}]", "1:19: `approve` needs `question`"),
        ("steps: [{approve: {question: x}, on_deny: stop}]", "1:34: write `on_deny` inside of `approve`"),
        (
            "steps: [{agent: x, prompt: y, tools: {allow: ['reed(x)']}}]",
            "1:47: the rule `reed(x)` in `allow`",
        ),
        (
            "steps: [{agent: x, prompt: y, context: [/etc/passwd]}]",
            "1:41: `context` must be a path that star",
        ),
        ("steps: [{agent: x, prompt_file: ~/a}]", "1:33: `prompt_file` must be a path that starts in the w"),
        ("steps: [{run_file: ''}]", "1:20: `run_file` must be the name of a file"),
        ("steps: [{for_each: [1]}]", "1:9: a `for_each` step needs `steps`"),
        ("steps: [{for_each: 3, steps: [{run: x}]}]", "1:20: `for_each` must be an expression, or a list"),
        (
            "steps: [{for_each: [1], as: steps, steps: [{run: x}]}]",
            "and none of `inputs`, `secrets`, `steps`, `vars`, `run`, `index`, `loop`",
        ),
        ("steps: [{while: 3, steps: [{run: x}]}]", "1:17: `while` must be true or false, or an expression"),
        ("steps: [{parallel: [[]]}]", "1:21: a branch of `parallel` must have at least one step"),
        ("steps: [{parallel: [[[{run: x}]]]}]", "1:22: a step must be a mapping"),
        ("steps: [{stop: {exit_code: 256}}]", "1:28: `exit_code` must be a whole number from 0 to 255"),
        ("steps: [{set: {a-b: 1}}]", "1:16: a name in `set` must be made of letters"),
        ("steps: [{id: a, run: x}, {id: a, run: y}]", "1:31: the id `a` is taken by the step in line 1"),
        ("steps: [{run: x}, {id: run_1, run: y}]", "1:24: the id `run_1` is taken by the step in line 1"),
        ("steps:\n- {id: a, run: x}\n- parallel: [{id: a, run: x}]", "3:19: the id `a` is taken by the step"),
        ("steps: [{parallel: [[{id: a, run: x}], [{id: a, run: x}]]}]", "1:46: the id `a` is taken"),
        ("secrets: [a b]\nsteps: [{run: x}]", "1:11: `secrets` must have the names of variables"),
        ("inputs: {a-b: string}\nsteps: [{run: x}]", "1:10: a name in `inputs` must be made of"),
        ("inputs: {a: text}\nsteps: [{run: x}]", "1:13: `a` must be `string`, `integer`"),
        ("inputs: {a: {type: strin}}\nsteps: [{run: x}]", "did you mean `string`?"),
        (
            "inputs: {a: {pattern: 'a['}}\nsteps: [{run: x}]",
            "1:23: `pattern` cannot be used: the pattern cannot be read: "
            "unterminated character set at position 1",
        ),
        ("inputs: {a: {type: number, pattern: x}}\nsteps: [{run: x}]", "1:37: `pattern` is for texts"),
        ("inputs: {a: {type: integer, secret: true}}\nsteps: [{run: x}]", "1:37: only texts can be hidden"),
        ("inputs: {a: {type: boolean, min: 1}}\nsteps: [{run: x}]", "1:34: `min` does not go with `type: bo"),
        ("inputs: {a: {min: 3, max: 2}}\nsteps: [{run: x}]", "1:27: `max` must not be less than `min`"),
        ("inputs: {a: {required: true, default: x}}\nsteps: [{run: x}]", "1:39: `default` is never used"),
        (
            "inputs: {a: {type: integer, default: x}}\nsteps: [{run: x}]",
            "1:38: `default` must be a whole num",
        ),
        (
            "inputs: {a: {enum: [b], default: x}}\nsteps: [{run: x}]",
            "1:34: `default` does not fit: input `a` has",
        ),
        ("inputs: {a: {enum: [1]}}\nsteps: [{run: x}]", "1:20: `enum` must have values of the type: a text"),
        (
            "inputs: {a: {pattern: '[0-9]', default: x}}\nsteps: [{run: x}]",
            "1:41: `default` does not fit",
        ),
        ("inputs: {a: {max: 2, default: xxx}}\nsteps: [{run: x}]", "1:31: `default` does not fit"),
        (
            "inputs: {a: {rest: true}, b: {rest: true}}\nsteps: [{run: x}]",
            "1:30: only one input can have `rest`",
        ),
        ("steps: [{ask: x, type: integer, default: x}]", "1:42: `default` must be a whole number"),
        ("mcp_servers: {a: {args: [x]}}\nsteps: [{run: x}]", "1:18: `command` or `url` is needed here"),
        ("mcp_servers: {a: {command: x, type: sse}}\nsteps: [{run: x}]", "1:31: `type` goes with `url`"),
        ("agents: {a: {model: x}}\nsteps: [{run: x}]", "1:13: an agent needs `agent`"),
        ("agents: {a: {agent: x, hooks: {end: [{}]}}}\nsteps: [{run: x}]", "1:38: the step does nothing"),
        (
            "defaults: {on_error: {exit: {goto: a}}}\nsteps: [{run: x}]",
            "1:29: `exit` must be `fail` or `conti",
        ),
        ("hooks: {stop: [{run: x}]}\nsteps: [{run: x}]", "1:9: `stop` is no key of `hooks`"),
        ("budget: {tokens: 0}\nsteps: [{run: x}]", "1:18: `tokens` must be a whole number from 1 on"),
        ("budget: {cost: 0}\nsteps: [{run: x}]", "1:16: `cost` must be a number above 0"),
    ],
)
def test_a_problem_has_its_place_and_says_what_to_write(text, problem):
    told = problems_in(text)
    assert any(each.startswith(problem) or each.endswith(problem) for each in told), told


@table(
    ("step", "advice"),
    [
        ("{script: x}", "did you mean `run` or `run_file` by `script`?"),
        ("{file: x}", "did you mean `run_file` or `prompt_file` by `file`?"),
        (
            "{uses: x}",
            "`uses` is no key here: `call` runs another workflow of yours; an action of GitHub is not "
            "run here, but its command can be a `run` step",
        ),
        ("{run: x, continue-on-error: true}", "write `on_error: continue`"),
        (
            "{run: x, depends_on: y}",
            "steps run in the order of the file: leave it out; branches of `parallel` have `needs`",
        ),
        (
            "{run: x, with: {}}",
            "values for a command stand in `env`, those for a workflow that you `call` in its `inputs`",
        ),
        ("{call: x, with: {}}", "did you mean `inputs`?"),
        ("{foreach: x, steps: []}", "did you mean `for_each` by `foreach`?"),
        ("{Until: x, steps: []}", "did you mean `while` by `Until`?"),
        ("{run: x, name: y}", "did you mean `id` or `description`?"),
        ("{run: x, when: y}", "did you mean `if`?"),
        ("{run: x, file: y}", "did you mean `run_file`?"),
        ("{run: x, working-directory: y}", "did you mean `cwd`?"),
        ("{run: x, environment: {}}", "did you mean `env`?"),
        ("{run: x, catch: y}", "did you mean `on_error`?"),
        ("{run: x, retries: 3}", "did you mean `retry`?"),
        ("{call: x, params: {}}", "did you mean `inputs`?"),
        ("{run: x, backoff: linear}", "write it inside of `retry`"),
        ("{run: x, model: y}", "it belongs to an `agent` step"),
        ("{agent: x, prompt: y, max_rounds: 3}", "it belongs to a `while` step"),
    ],
)
def test_a_word_of_another_language_leads_to_the_key_that_is_meant(step, advice):
    told = problems_in(f"steps: [{step}]")
    assert any(each.endswith(f"; {advice}") for each in told), told


@table(
    ("text", "told"),
    [
        ("tasks: [{run: x}]", ["1:1: `tasks` is no key of a workflow; did you mean `steps`?"]),
        (
            "model: x\nsteps: [{run: x}]",
            ["1:1: `model` is no key of a workflow; write it inside of `defaults`"],
        ),
        (
            "run: x\nsteps: [{run: x}]",
            ["1:1: `run` is no key of a workflow; it belongs to a step, in `steps`"],
        ),
        (
            "agents: {a: {agnet: claude}}\nsteps: [{run: x}]",
            ["1:14: `agnet` is no key of an agent; did you mean `agent`?"],
        ),
    ],
)
def test_a_key_at_the_wrong_place_is_one_problem_and_not_two(text, told):
    assert problems_in(text) == told


def test_all_problems_of_a_file_are_told_at_once_in_its_order():
    text = """
nam: x
inputs: {a: {type: strin}}
agents: {b: {agent: c, hooks: {start: [{ru: x}]}}}
steps:
  - {run: x, timeout: soon, retry: {backoff: fast}}
  - for_each: [1]
    stps: []
    steps:
      - {run: y, shell: fish}
  - parallel: [{agent: x}, [{stop: {code: 1}}]]
hooks: {end: [{set: 1}]}
"""
    lines = [problem.partition(":")[0] for problem in problems_in(text)]
    assert lines == ["2", "3", "4", "6", "6", "8", "10", "11", "11", "12"]


def test_a_flood_of_problems_is_cut():
    assert len(problems_in(f"steps: [{'{},' * 5000}]")) == 100


def test_a_wrong_secret_is_never_repeated():
    told = problems_in("secrets: [sk-hidden-0123]\nsteps: [{run: x, shell: sk-hidden-0123}]")
    assert len(told) == 2
    assert "sk-hidden" not in "\n".join(told)


def test_the_digest_changes_with_the_meaning_and_not_with_the_layout(tmp_path):
    file, prompt = tmp_path / "w.yaml", tmp_path / "p.md"
    prompt.write_text("Fix it.")

    def digest(text: str) -> str:
        file.write_text(text)
        return read_workflow(str(file)).digest

    first = digest("steps: [{agent: a, prompt_file: p.md}, {run: x}]")
    assert digest("# The same\nsteps:\n- agent: a\n  prompt_file: 'p.md'\n- run: x\n") == first
    assert digest("steps: [{agent: a, prompt_file: p.md}, {run: y}]") != first
    assert digest("steps: [{run: x}, {agent: a, prompt_file: p.md}]") != first
    prompt.write_text("Break it.")
    assert digest("steps: [{agent: a, prompt_file: p.md}, {run: x}]") != first
    prompt.unlink()
    assert digest("steps: [{agent: a, prompt_file: p.md}, {run: x}]") != first


def test_the_same_text_without_its_file_is_the_same_workflow(tmp_path):
    file = tmp_path / "w.yaml"
    file.write_text("steps: [{run: x}]")
    assert read_text(file.read_text(), str(file)) == read_workflow(str(file))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "cannot be read: no such file"),
        (lambda path: path.mkdir(), "cannot be read: is a directory"),
        (lambda path: os.mkfifo(path), "is no file"),
        (lambda path: path.write_bytes(b"#" * (2**20 + 1)), "too large"),
        (lambda path: path.symlink_to("/dev/zero"), "is no file"),
    ],
    ids=["missing", "directory", "pipe", "huge", "device"],
)
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path, make, words):
    path = tmp_path / "w.yaml"
    make(path)
    for read in (read_workflow, load):
        with pytest.raises(WorkflowError, match=words):
            read(str(path))

"""What the steps of a workflow do one after another, beside each other, again and instead of each other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coupler.workflow.errors import InvalidWorkflowError
from coupler.workflow.journal.run_events import (
    Decided,
    Noted,
    Place,
    Rehearsed,
    RetryPlanned,
    RunFinished,
    StepStarted,
)
from tables import table
from workflow.stage import Answering, Memo, Stage


def test_steps_run_from_top_to_bottom_and_see_those_before_them() -> None:
    stage = Stage("""
        steps:
          - {id: one, run: say hello}
          - {id: two, run: "say {{ steps.one.stdout | trim }} world"}
        outputs: {greeting: "{{ steps.two.text }}"}
    """)

    finished = stage.run()

    assert (finished.status, finished.exit_code) == ("success", 0)
    assert finished.outputs == {"greeting": "hello world"}
    assert stage.played.ran == ["one", "two"]


def test_a_step_whose_condition_is_false_is_skipped() -> None:
    stage = Stage("""
        steps:
          - {id: one, if: false, run: say never}
          - {id: two, if: "steps.one.status == 'skipped'", run: say instead}
    """)

    assert stage.run().status == "success"
    assert stage.ended == {"one": "skipped", "two": "success"}


def test_an_unhandled_failure_ends_the_run_with_its_step_kind_and_message() -> None:
    stage = Stage("steps: [{id: one, run: fail 7}, {id: two, run: say never}]")

    finished = stage.run()

    assert (finished.status, finished.exit_code, finished.failed_step) == ("failed", 3, "one")
    assert finished.error is not None and (finished.error.kind, finished.error.exit_code) == ("exit", 7)
    assert stage.played.ran == ["one"]


@table(
    ("handling", "ran"),
    [
        ("continue", ["one", "two", "three"]),
        ("{goto: three}", ["one", "three"]),
        ("{exit: {goto: three}}", ["one", "three"]),
        ("{timeout: {goto: three}, default: continue}", ["one", "two", "three"]),
    ],
)
def test_a_failure_goes_where_on_error_says(handling: str, ran: list[str]) -> None:
    stage = Stage(f"""
        steps:
          - {{id: one, run: fail 1, on_error: {handling}}}
          - {{id: two, run: say two}}
          - {{id: three, run: "say {{{{ steps.one.error.kind }}}}"}}
        outputs: {{kind: "{{{{ steps.three.text }}}}"}}
    """)

    finished = stage.run()

    assert stage.played.ran == ran
    assert finished.outputs == {"kind": "exit"}


def test_an_error_in_an_expression_goes_through_on_error_like_any_other() -> None:
    stage = Stage("""
        steps:
          - {id: one, run: "say {{ inputs.x.missing }}", on_error: {template: continue}}
          - {id: two, if: "inputs.x.missing == 1", run: say never, on_error: continue}
        inputs: {x: {type: object, default: {}}}
    """)

    assert stage.run().status == "success"
    assert stage.ended == {"one": "failed", "two": "failed"}


def test_a_step_is_tried_again_as_often_as_it_says() -> None:
    stage = Stage("steps: [{id: one, run: fail_until 3, retry: {attempts: 3, delay: 0}}]")

    finished = stage.run()

    assert finished.status == "success"
    assert [each.attempt for each in stage.memory.noted if isinstance(each, StepStarted)] == [1, 2, 3]
    assert [each.attempt for each in stage.memory.noted if isinstance(each, RetryPlanned)] == [2, 3]


def test_a_retry_that_names_other_errors_is_none() -> None:
    stage = Stage("steps: [{id: one, run: fail 4, retry: {attempts: 3, delay: 0, on: [timeout, 5]}}]")

    assert stage.run().status == "failed"
    assert stage.played.ran == ["one"]


def test_a_retried_block_runs_what_is_inside_of_it_again() -> None:
    stage = Stage("""
        steps:
          - id: both
            retry: {attempts: 2, delay: 0}
            on_error: continue
            parallel:
              - {id: a, run: say a}
              - {id: b, run: fail 1}
    """)

    stage.run()

    assert sorted(stage.played.ran) == ["both.a", "both.b", "both~2.a", "both~2.b"]


def test_a_goto_back_is_bounded() -> None:
    stage = Stage("""
        steps:
          - {id: one, run: say one}
          - {id: two, run: say two, goto: {step: one, max: 2}}
    """)

    finished = stage.run()

    assert stage.played.ran == ["one", "two", "one#2", "two#2", "one#3", "two#3"]
    assert finished.error is not None and finished.error.kind == "budget"


def test_a_step_that_takes_too_long_fails_with_timeout() -> None:
    stage = Stage("steps: [{id: one, run: hang, timeout: 10ms, on_error: {timeout: continue}}]")

    assert stage.run().status == "success"
    assert stage.ended == {"one": "failed"}


def test_parallel_branches_are_ordinary_steps_afterwards() -> None:
    stage = Stage("""
        steps:
          - id: both
            parallel:
              - {id: a, run: say A}
              - - {id: b, run: say B}
                - {id: c, run: "say {{ steps.b.text }}C"}
        outputs: {all: "{{ steps.a.text }}{{ steps.c.text }}"}
    """)

    assert stage.run().outputs == {"all": "ABC"}
    assert stage.played.most_at_once == 2


def test_branches_do_not_see_how_far_each_other_are() -> None:
    stage = Stage("""
        steps:
          - id: both
            parallel:
              - {id: a, run: say A}
              - - {id: w, run: pause}
                - {id: b, run: "say {{ steps.a is defined }}"}
        outputs: {b: "{{ steps.b.text }}"}
    """)

    assert stage.run().outputs == {"b": "false"}


def test_steps_of_inner_branches_are_ordinary_steps_of_what_is_around_them() -> None:
    stage = Stage("""
        steps:
          - id: outer
            parallel:
              - {id: inner, parallel: [{id: a, run: say A}, {id: b, run: say B}]}
          - {id: each, for_each: [1], steps: [{id: p, parallel: [{id: c, run: say C}]}]}
        outputs: {a: "{{ steps.a.text }}", c: "{{ steps.each.results[0].c.text }}"}
    """)

    assert stage.run().outputs == {"a": "A", "c": "C"}


def test_a_failed_branch_cancels_the_others_and_keeps_what_is_done() -> None:
    stage = Stage("""
        steps:
          - id: both
            on_error: continue
            parallel: [{id: a, run: say A}, {id: b, run: hang}, [{id: w, run: pause}, {id: c, run: fail 2}]]
        outputs: {a: "{{ steps.a.text }}", kind: "{{ steps.both.error.kind }}", b: "{{ steps.b.status }}"}
    """)

    finished = stage.run()

    assert finished.outputs == {"a": "A", "kind": "exit", "b": "cancelled"}
    assert stage.ended["both.b"] == "cancelled"


def test_wait_any_takes_the_first_that_succeeds() -> None:
    stage = Stage("""
        steps:
          - id: race
            wait: any
            parallel: [{id: a, run: fail 1}, {id: b, run: hang}, {id: c, run: say first}]
        outputs: {c: "{{ steps.c.text }}"}
    """)

    assert stage.run().outputs == {"c": "first"}
    assert stage.ended["race.b"] == "cancelled"


def test_wait_any_fails_when_all_do() -> None:
    stage = Stage("steps: [{id: race, wait: any, parallel: [{id: a, run: fail 1}, {id: b, run: fail 2}]}]")

    assert stage.run().status == "failed"


def test_wait_settled_never_fails() -> None:
    stage = Stage("""
        steps: [{id: all, wait: settled, parallel: [{id: a, run: fail 1}, {id: b, run: say B}]}]
        outputs: {a: "{{ steps.a.status }}", b: "{{ steps.b.status }}"}
    """)

    assert stage.run().outputs == {"a": "failed", "b": "success"}


def test_for_each_gives_the_results_of_every_iteration_in_order() -> None:
    stage = Stage("""
        inputs: {names: {type: list, default: [x, y, z]}}
        steps:
          - id: each
            for_each: inputs.names
            as: name
            max_concurrent: 2
            steps:
              - {id: wait, run: pause}
              - {id: say, run: "say {{ index }}{{ name }}"}
        outputs:
          last: "{{ steps.each.results[2].say.text }}"
          count: "{{ steps.each.results | length }}"
    """)

    finished = stage.run()

    assert finished.outputs == {"last": "2z", "count": 3}
    assert stage.played.most_at_once == 2


def test_iterations_see_steps_around_them_and_not_each_other() -> None:
    stage = Stage("""
        steps:
          - {id: before, run: say B}
          - id: each
            for_each: [1, 2]
            max_concurrent: 2
            steps:
              - {id: mine, run: "say {{ steps.before.text }}{{ item }}{{ steps.mine is defined }}"}
              - {id: own, set: {n: item}}
              - {id: check, run: "say {{ vars.n }}"}
        outputs:
          texts: "{{ steps.each.results | map(attribute='mine') | map(attribute='text') | list }}"
          numbers: "{{ steps.each.results | map(attribute='check') | map(attribute='text') | list }}"
          leaked: "{{ vars.n is defined }}"
    """)

    assert stage.run().outputs == {
        "texts": ["B1false", "B2false"],
        "numbers": ["1", "2"],
        "leaked": False,
    }


def test_a_for_each_over_something_else_than_a_list_is_an_error() -> None:
    stage = Stage("steps: [{id: each, for_each: \"'abc'\", steps: [{run: say x}]}]")

    finished = stage.run()

    assert finished.error is not None and finished.error.kind == "template"


def test_a_while_goes_round_as_long_as_its_test_is_true_and_sees_the_last_round() -> None:
    stage = Stage("""
        steps:
          - {id: start, set: {n: 0}}
          - id: loop
            while: vars.n < 3 and (steps.body is not defined or steps.body.text != 'stop')
            steps:
              - {id: count, set: {n: vars.n + 1}}
              - {id: body, run: "say {{ vars.n }}"}
        outputs: {rounds: "{{ steps.loop.results | length }}", n: "{{ vars.n }}"}
    """)

    assert stage.run().outputs == {"rounds": 3, "n": 3}


def test_a_while_that_never_ends_fails_at_its_bound() -> None:
    stage = Stage("steps: [{id: loop, while: true, max_rounds: 2, steps: [{id: a, run: say a}]}]")

    finished = stage.run()

    assert finished.error is not None and finished.error.kind == "budget"
    assert stage.played.ran == ["loop[0].a", "loop[1].a"]


def test_a_called_workflow_gives_typed_outputs_to_the_one_that_calls_it() -> None:
    stage = Stage(
        """
        steps:
          - {id: sub, call: double, inputs: {n: "{{ 21 }}"}}
        outputs: {n: "{{ steps.sub.output.n }}"}
        """,
        double="""
        inputs: {n: {type: integer, required: true}}
        steps: [{id: one, run: "say {{ inputs.n }}"}]
        outputs: {n: "{{ inputs.n * 2 }}"}
        """,
    )

    assert stage.run().outputs == {"n": 42}
    assert stage.played.ran == ["sub/one"]


def test_a_failure_in_a_called_workflow_reaches_the_caller_with_its_kind_and_path() -> None:
    stage = Stage(
        "steps: [{id: sub, call: bad}]",
        bad="steps: [{id: one, run: fail 9}]",
    )

    finished = stage.run()

    assert finished.failed_step == "sub/one"
    assert finished.error is not None and finished.error.exit_code == 9


def test_a_workflow_that_calls_itself_is_refused_with_the_chain() -> None:
    with pytest.raises(InvalidWorkflowError, match="main → other → other"):
        Stage("steps: [{id: a, call: other}]", other="steps: [{id: b, call: other}]")


def test_stop_ends_the_workflow_with_its_message_and_code() -> None:
    stage = Stage("""
        steps:
          - id: each
            for_each: [1, 2]
            steps: [{stop: {status: failure, message: "at {{ item }}", exit_code: 42}}]
          - {id: never, run: say never}
    """)

    finished = stage.run()

    assert (finished.status, finished.exit_code, finished.message) == ("failed", 42, "at 1")
    assert stage.played.ran == []


def test_outputs_of_steps_that_a_stop_left_out_are_null() -> None:
    stage = Stage("""
        steps: [{stop: early}, {id: late, run: say late}]
        outputs: {late: "{{ steps.late.text }}"}
    """)

    finished = stage.run()

    assert (finished.status, finished.message, finished.outputs) == ("success", "early", {"late": None})


@pytest.mark.parametrize(
    ("on_deny", "status", "code", "ran"),
    [("skip", "success", 0, ["after"]), ("fail", "failed", 3, []), ("stop", "cancelled", 130, [])],
)
def test_a_denied_gate_skips_fails_or_stops(on_deny: str, status: str, code: int, ran: list[str]) -> None:
    stage = Stage(f"""
        steps:
          - {{id: deploy, run: say deployed, approve: {{question: Deploy?, on_deny: {on_deny}}}}}
          - {{id: after, run: say after}}
    """)
    stage.front = Answering({"deploy": False})

    finished = stage.run()

    assert (finished.status, finished.exit_code, stage.played.ran) == (status, code, ran)
    assert stage.front.asked == ["Deploy?"]


def test_an_approve_step_tells_the_answer() -> None:
    stage = Stage("""
        steps:
          - {id: gate, approve: Go?, on_deny: skip}
          - {id: yes, if: steps.gate.approved, run: say yes}
    """)
    stage.front = Answering({"gate": True})

    stage.run()

    assert stage.played.ran == ["yes"]


def test_a_run_that_nobody_can_answer_is_parked_and_goes_on_with_the_answer() -> None:
    stage = Stage("""
        steps:
          - {id: one, run: say one}
          - {id: who, ask: Who?}
          - {id: two, run: "say {{ steps.who.text }}"}
        outputs: {text: "{{ steps.two.text }}"}
    """)

    parked = stage.run()
    stage.front = Answering({"who": "me"})
    finished = stage.resume()

    assert (parked.status, parked.exit_code) == ("parked", 5)
    assert finished.outputs == {"text": "me"}
    assert stage.played.ran == ["two"]


def test_branches_beside_a_parked_one_go_on() -> None:
    stage = Stage("""
        steps: [{id: both, parallel: [{id: who, ask: Who?}, [{id: w, run: pause}, {id: b, run: say b}]]}]
    """)

    assert stage.run().status == "parked"
    assert stage.played.ran == ["both.w", "both.b"]


def test_hooks_run_beside_the_workflow_and_know_how_it_ended() -> None:
    stage = Stage("""
        steps: [{id: one, run: fail 1}]
        hooks:
          start: [{id: a, run: say start}]
          error: [{id: b, run: "say {{ run.step }} {{ run.error.kind }}"}]
          end: [{id: c, run: "say {{ run.status }}"}]
          cancel: [{id: d, run: say never}]
    """)

    stage.run()

    assert stage.played.ran == ["hooks.start.a", "one", "hooks.error.b", "hooks.end.c"]


def test_the_hooks_of_an_agent_run_beside_each_step_that_uses_it() -> None:
    stage = Stage("""
        agents:
          fixer:
            agent: claude
            hooks:
              start: [{id: lock, run: say lock}]
              error: [{id: tell, run: say no}]
              end: [{id: u, run: say u}]
        steps:
          - {id: one, agent: fixer, prompt: say hello}
          - {id: two, agent: fixer, prompt: fail 1, on_error: continue}
          - {id: three, agent: claude, prompt: say hello}
    """)

    assert stage.run().status == "success"
    assert stage.played.ran == [
        *("one.hooks.start.lock", "one", "one.hooks.end.u"),
        *("two.hooks.start.lock", "two", "two.hooks.error.tell", "two.hooks.end.u"),
        "three",
    ]


def test_a_failing_hook_changes_nothing() -> None:
    stage = Stage("{steps: [{id: one, run: say 1}], hooks: {end: [{id: c, run: fail 1}]}}")

    assert stage.run().status == "success"
    assert any(isinstance(each, Noted) and "hooks.end" in each.text for each in stage.memory.noted)


def test_a_cancel_ends_what_runs_and_runs_the_hooks_for_that() -> None:
    stage = Stage("""
        steps: [{id: both, parallel: [{id: a, run: hang}, {id: b, run: hang}]}]
        hooks: {cancel: [{id: c, run: say sorry}]}
    """)

    async def cancel_in_the_midst() -> RunFinished:
        engine = stage.engine()
        running = asyncio.ensure_future(engine.run())
        while stage.played.running < 2:
            await asyncio.sleep(0)
        engine.cancel()
        return await running

    finished = asyncio.run(cancel_in_the_midst())

    assert (finished.status, finished.exit_code) == ("cancelled", 130)
    assert stage.ended["both.a"] == stage.ended["both.b"] == stage.ended["both"] == "cancelled"
    assert stage.played.ran[-1] == "hooks.cancel.c"


def test_a_run_may_take_so_many_steps_and_no_more_and_cleans_up_all_the_same() -> None:
    stage = Stage("""
        max_steps: 5
        hooks: {end: [{id: clean, run: say clean}], error: [{id: tell, run: "say {{ run.error.kind }}"}]}
        steps: [{id: loop, while: true, steps: [{id: a, run: say a, on_error: continue}]}]
    """)

    finished = stage.run()

    assert finished.status == "failed" and "max_steps" in finished.message
    assert stage.played.ran[-2:] == ["hooks.error.tell", "hooks.end.clean"]
    started = {str(each.place) for each in stage.memory.noted if isinstance(each, StepStarted)}
    assert started == stage.ended.keys()


def test_when_the_time_of_the_run_is_spent_it_fails_and_cleans_up_all_the_same() -> None:
    stage = Stage("""
        hooks: {end: [{id: clean, run: say clean}]}
        steps: [{id: a, run: say a}]
    """)
    stage.seconds = 0

    finished = stage.run()

    assert finished.error is not None and finished.error.kind == "budget"
    assert stage.ended == {"a": "failed", "hooks.end.clean": "success"}


def test_a_retry_for_which_no_time_is_left_is_none() -> None:
    stage = Stage("steps: [{id: a, run: fail 1, retry: {attempts: 2, delay: 1h, max_delay: 1h}}]")
    stage.seconds = 60

    finished = stage.run()

    assert finished.error is not None and finished.error.kind == "exit"
    assert stage.played.ran == ["a"]


def test_a_cancel_comes_through_among_steps_that_wait_for_nothing() -> None:
    class Swift(Memo):
        async def durable(self) -> None:
            return

    stage = Stage("""
        steps:
          - set: {n: 0}
          - {id: loop, while: vars.n < 99, steps: [{set: {n: vars.n + 1}}]}
    """)
    stage.memory = Swift()

    async def cancel_in_the_midst() -> RunFinished:
        engine = stage.engine()
        running = asyncio.ensure_future(engine.run())
        while "loop[3].set_1" not in stage.ended:
            await asyncio.sleep(0)
        engine.cancel()
        return await running

    assert asyncio.run(cancel_in_the_midst()).status == "cancelled"


def test_a_secret_that_a_title_is_too_short_for_leaves_no_half_of_it() -> None:
    stage = Stage("steps: [{id: a, run: say a, description: \"{{ 'x' * 70 }}hunter2hunter2\"}]")
    stage.mask = lambda text: text.replace("hunter2hunter2", "[secret]")

    stage.run()

    titles = [each.title for each in stage.memory.noted if isinstance(each, StepStarted)]
    assert titles == [f"{'x' * 70}[secret]"]


def test_an_error_does_not_quote_a_part_of_a_value_that_may_be_secret() -> None:
    stage = Stage("""
        inputs: {key: {default: hunter2, min: 1}, map: {type: object, default: {}}}
        steps:
          - {id: loop, for_each: inputs.key, steps: [{run: say a}], on_error: continue}
          - {id: find, run: "say {{ inputs.map[inputs.key] }}", on_error: continue}
        outputs: {loop: "{{ steps.loop.error.message }}", find: "{{ steps.find.error.message }}"}
    """)

    outputs = stage.run(key="hunter2" * 20).outputs

    assert "hunter2" not in outputs["loop"]
    assert "hunter2" not in outputs["find"]


def test_a_directory_that_cannot_exist_is_an_error_like_any_other() -> None:
    stage = Stage("steps: [{id: a, run: say a, cwd: \"{{ 'x' * 5000 }}\", on_error: {not_found: continue}}]")

    assert stage.run().status == "success"
    assert stage.ended == {"a": "failed"}


def test_a_called_workflow_hides_no_value_that_nobody_knew_to_be_secret() -> None:
    called = "{inputs: {key: {secret: true}}, steps: [{id: use, run: 'say {{ inputs.key }}'}]}"
    text = "steps: [{{id: c, call: sub, inputs: {{key: {}}}}}]"
    known, unknown = (Stage(text.format(key), sub=called) for key in ("Bearer hunter2", "other"))
    known.mask = unknown.mask = lambda text: text.replace("hunter2", "[secret]")

    assert known.run().status == "success"
    finished = unknown.run()
    assert finished.error is not None and finished.error.kind == "template"
    assert "`key`" in finished.message and unknown.played.ran == []


EVERYTHING = """
    steps:
      - {id: first, run: say 1}
      - id: each
        for_each: [1, 2, 3]
        max_concurrent: 2
        steps:
          - {id: a, run: "say {{ item }}"}
          - {id: b, run: "fail 1", if: item == 2, on_error: continue, retry: {attempts: 2, delay: 0}}
      - id: both
        parallel: [{id: p, run: pause P}, {id: q, call: sub}]
      - id: race
        wait: any
        parallel: [{id: r, run: pause}, {id: s, run: say s}]
      - {id: zero, set: {n: 0}}
      - id: loop
        while: vars.n < 2
        steps: [{id: count, set: {n: vars.n + 1}}, {id: w, run: "say {{ vars.n }}"}]
      - {id: back, run: say again, goto: {step: last, max: 1}}
      - {id: over, run: say never}
      - {id: last, run: say last}
    outputs:
      a: "{{ steps.each.results[1].a.text }}"
      q: "{{ steps.q.output.x }}"
      w: "{{ steps.loop.results[1].w.text }}"
"""
SUB = "{steps: [{id: one, run: say 1}, {id: two, run: say 2}], outputs: {x: '{{ steps.two.text }}'}}"
OUTPUTS = {"a": "2", "q": "2", "w": "2"}


def test_a_run_that_was_cut_off_anywhere_goes_on_and_repeats_no_finished_step() -> None:
    whole = Stage(EVERYTHING, sub=SUB)
    assert whole.run().outputs == OUTPUTS

    for cut in range(len(whole.memory.noted)):
        stage = Stage(EVERYTHING, sub=SUB)
        stage.memory.noted = whole.memory.noted[:cut]
        done = {path for path, status in stage.ended.items() if status != "cancelled"}
        finished = stage.resume()

        assert finished.outputs == OUTPUTS, cut
        assert not done & set(stage.played.ran), cut


PAY = Place("pay")


def test_a_step_that_must_run_once_asks_before_it_runs_again() -> None:
    stage = Stage("steps: [{id: pay, run: say paid, once: true}]")
    stage.run()
    begun = next(n for n, each in enumerate(stage.memory.noted, 1) if isinstance(each, Decided))

    parked = stage.resume(begun)
    stage.front = Answering({"pay": True})
    finished = stage.resume(begun)

    assert parked.status == "parked"
    assert (finished.status, stage.played.ran) == ("success", ["pay"])


@pytest.mark.parametrize(
    ("step", "reads", "known"),
    [
        ("run: say paid", "stdout", ""),
        ("run: say paid", "exit_code", 0),
        ("agent: x, prompt: say paid", "text", ""),
        ("for_each: [1, 2], steps: [{id: each, run: say paid}]", "results | length", 2),
        ("call: sub", "output", None),
    ],
)
def test_that_a_step_was_done_is_known_after_another_crash(step: str, reads: str, known: object) -> None:
    text = f"""
        steps: [{{id: pay, once: true, {step}}}]
        outputs: {{known: "{{{{ steps.pay.{reads} }}}}"}}
    """
    stage = Stage(text, sub="steps: [{id: a, run: say a}, {id: b, run: say b}]")
    stage.run()
    noted = stage.memory.noted
    midst = next((n for n, each in enumerate(noted, 1) if str(each.place) == "pay[0].each"), 0)
    begun = next(n for n, each in enumerate(noted, 1) if isinstance(each, Decided))
    stage.memory = Memo([*noted[: max(begun, midst)], Decided(place=PAY, what="marked_done", value=True)])

    finished = stage.resume()

    assert (finished.status, finished.outputs) == ("success", {"known": known})
    assert (stage.played.ran, stage.front.asked) == ([], [])
    assert stage.resume().outputs == {"known": known}


def test_a_step_that_must_run_once_and_waits_for_an_answer_goes_on_with_it() -> None:
    stage = Stage("steps: [{id: all, once: true, for_each: [1], steps: [{id: which, ask: Which?}]}]")
    assert stage.run().status == "parked"

    stage.front = Answering({"all[0].which": "this"})

    assert stage.resume().status == "success"


def test_what_was_done_by_a_step_of_another_kind_does_not_count_for_a_changed_one() -> None:
    before = Stage("steps: [{id: a, set: {x: 1}}, {id: b, run: say b}]")
    before.run()
    after = Stage("steps: [{id: b, run: say b}, {id: a, stop: {message: enough, exit_code: 7}}]")
    after.memory = before.memory

    assert after.resume().exit_code == 7
    assert after.played.ran == []


def test_a_winner_that_is_not_there_any_more_does_not_count() -> None:
    stage = Stage("steps: [{id: race, wait: any, parallel: [{id: a, run: say a}, {id: b, run: hang}]}]")
    stage.memory.noted = [Decided(place=Place("race"), what="winner", value=2)]

    assert stage.resume().status == "success"
    assert stage.ended["race.a"] == "success"


def test_a_resumed_run_knows_what_was_cancelled_for_the_winner() -> None:
    stage = Stage("""
        steps: [{id: race, wait: any, parallel: [{id: a, run: say a}, {id: b, run: hang}]}]
        outputs: {b: "{{ steps.b.status }}"}
    """)
    whole = stage.run()
    noted = stage.memory.all
    decided = next(n for n, each in enumerate(noted, 1) if isinstance(each, Decided))

    assert whole.outputs == {"b": "cancelled"}
    for cut in range(decided, len(noted)):
        stage.memory = Memo(noted[:cut])
        assert stage.resume().outputs == {"b": "cancelled"}, cut
        assert stage.played.ran == []


def test_step_by_step_somebody_decides_about_each_step() -> None:
    stage = Stage(
        "steps: [{id: a, run: say a}, {id: b, run: say b}, {id: c, run: say c}, {id: d, run: say d}]"
    )
    answers = {"a": "run", "b": "skip", "c": "stop"}
    shown: list[str] = []

    async def pause(place: Place, title: str) -> Any:
        shown.append(title)
        return answers[str(place)]

    stage.pause = pause

    finished = stage.run()

    assert (finished.status, stage.played.ran, shown) == ("cancelled", ["a"], ["say a", "say b", "say c"])
    assert stage.ended == {"a": "success", "b": "skipped", "c": "cancelled"}


def test_a_loop_over_nothing_has_no_results_and_not_none() -> None:
    stage = Stage("""
        steps:
          - {id: each, for_each: [], steps: [{run: say x}]}
          - {id: loop, while: false, steps: [{run: say x}]}
        outputs: {each: "{{ steps.each.results | length }}", loop: "{{ steps.loop.results | length }}"}
    """)

    assert stage.run().outputs == {"each": 0, "loop": 0}


def test_an_output_that_fails_after_a_stop_fails_the_run() -> None:
    stage = Stage("{steps: [{stop: fine}], outputs: {r: '{{ 1 / 0 }}'}}")

    finished = stage.run()

    assert (finished.status, finished.exit_code) == ("failed", 3)
    assert finished.error is not None and finished.error.kind == "template"


def test_what_a_called_workflow_may_use_holds_for_it() -> None:
    by_time = Stage("steps: [{id: sub, call: slow}]", slow="{budget: {time: 20ms}, steps: [{run: hang}]}")
    by_steps = Stage(
        "steps: [{id: sub, call: long}]", long="{max_steps: 1, steps: [{run: say a}, {run: say b}]}"
    )

    for stage in (by_time, by_steps):
        finished = stage.run()
        assert finished.error is not None and finished.error.kind == "budget"


def test_nobody_to_ask_is_told_as_such() -> None:
    stage = Stage("steps: [{id: gate, approve: Go?}]")

    assert "nobody could be asked" in stage.run().message


def test_a_rehearsal_takes_what_it_cannot_know_as_true_and_goes_through_once() -> None:
    stage = Stage("""
        steps:
          - {id: test, run: make test}
          - id: loop
            while: steps.test.exit_code != 0
            steps: [{id: fix, agent: claude, prompt: "fix {{ steps.test.stdout }}"}]
          - {id: good, if: steps.test.exit_code == 0, run: echo good}
          - {id: back, run: echo back, goto: {step: test, max: 5}}
          - {id: never, if: inputs.x, run: echo never}
        inputs: {x: {type: boolean, default: false}}
    """)
    stage.rehearse()

    finished = stage.run()

    told = [str(each.place) for each in stage.memory.noted if isinstance(each, Rehearsed)]
    assert finished.status == "success"
    assert told == ["test", "loop[0].fix", "good", "back"]

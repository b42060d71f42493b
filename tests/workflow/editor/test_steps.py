"""How an editor sees the steps of a run: blocks with branches and iterations, the plan, where steps are.

All tests share one `coupler serve`, with a session each in a directory of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.steps import leave, still_serves
from raw_client import RawClient
from workflow.acp_stub import AcpStub
from workflow.http_site import Site
from workflow.served_project import Editor, Shown, opened, served, write_workflow

WORKFLOWS = {
    "blocks": """
        steps:
          - id: all
            parallel:
              - {id: left, run: echo left}
              - [{id: right, run: echo right}, {id: further, run: echo further}]
              - {run: echo unnamed}
          - id: each
            for_each: [a.py, {deep: [1, x]}, " two\\nlines "]
            steps: [{id: show, run: "echo {{ item }}"}]
          - {id: begin, set: {rounds: 0}}
          - id: rounds
            while: vars.rounds < 2
            steps: [{id: round, set: {rounds: vars.rounds + 1}}]
    """,
    "left": """
        steps:
          - id: each
            for_each: [a, b, c]
            steps:
              - {id: leave, if: item == 'b', break: true}
              - {id: show, run: "echo {{ item }}"}
          - id: all
            wait: settled
            parallel:
              - {id: late, needs: [bad], run: echo late}
              - {id: after, needs: [good], run: "echo after {{ steps.good.stdout }}"}
              - {id: bad, run: exit 3}
              - {id: good, run: echo good}
    """,
    "asks_server": """
        inputs: {site: {required: true}}
        steps:
          - {id: get, http: "{{ inputs.site }}/json"}
          - {id: gone, http: "{{ inputs.site }}/gone", on_error: continue}
    """,
    "nested": """
        steps:
          - id: outer
            for_each: [a]
            steps:
              - id: inner
                parallel: [{id: deep, run: echo deep}]
    """,
    "ends": """
        steps:
          - id: race
            on_error: continue
            parallel:
              - {id: bad, run: "until test -e waits; do sleep 0.02; done; exit 4"}
              - {id: late, run: touch waits; sleep 600}
              - {id: never, if: false, run: echo never}
    """,
    "again": """
        steps:
          - id: block
            retry: {attempts: 2, delay: 1ms}
            for_each: [only]
            steps: [{id: try, run: "test -e mark || { touch mark; exit 3; }"}]
    """,
    "mends": """
        steps:
          - id: each
            for_each: [first, second]
            steps: [{id: work, run: "test {{ item }} = first || test -e mended"}]
    """,
    "many": """
        steps:
          - id: each
            for_each: range(103)
            steps:
              - {id: work, run: ": {{ 1 // (102 - item) }}", on_error: continue, if: "item in (0, 99)"}
              - {id: check, set: {x: "1 // (102 - item)"}, if: "item == 102", on_error: fail}
              - {id: both, parallel: [{id: sure, approve: "Really {{ item }}?"}], if: "item == 101"}
            on_error: continue
    """,
    "hides": """
        secrets: [STEPS_WORD]
        steps:
          - id: each
            for_each: ["{{ secrets.STEPS_WORD }}", "x"]
            steps: [{id: nothing, run: "true"}]
    """,
    "marks": """
        steps:
          - {id: one, description: "One\\n  and more", run: "true"}
          - {id: two, description: Two, run: exit 3, on_error: {goto: four}}
          - {id: three, description: Three, run: echo never}
          - {id: four, description: Four, approve: {question: "Sure?", on_deny: fail}, on_error: continue}
          - id: five
            description: Five
            run: test -e five || { touch five; exit 1; }
            retry: {attempts: 2, delay: 1ms}
            on_error: continue
          - {id: six, description: Six, stop: success}
          - {id: seven, description: Seven, run: echo never}
    """,
    "back": """
        steps:
          - {id: one, description: One, run: "test -e two && exit 3; true", on_error: {goto: three}}
          - {id: two, description: Two, run: touch two, goto: {step: one, max: 1}}
          - {id: three, description: Three, run: "true"}
    """,
    "voices": """
        steps:
          - id: all
            parallel:
              - {id: left, agent: opencode, prompt: speak left}
              - {id: right, agent: opencode, prompt: speak right}
          - {id: last, agent: opencode, prompt: speak last}
    """,
    "planned": """
        steps:
          - {id: before, description: Before, run: "true"}
          - id: all
            description: All
            parallel: [{id: fix, agent: opencode, prompt: plan it}]
          - {id: after, description: After, run: "true"}
    """,
}
WORD = "hocus-pocus-fidibus"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("steps")
    for name, text in WORKFLOWS.items():
        write_workflow(place / "workflows", name, text)
    (place / "bin").mkdir()
    first = [{"content": "Look\n at it", "priority": "high", "status": "in_progress"}]
    then = [{**first[0], "status": "completed"}, {**first[0], "content": "Mend", "status": "pending"}]
    spoken = [{"when": f"speak {word}", "says": f"I am {word}."} for word in ("left", "right", "last")]
    AcpStub(place / "bin", "opencode").answers(*spoken, {"plans": [first, then], "says": "Done."})
    return place


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[RawClient]:
    env = {"STEPS_WORD": WORD, "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    with served(home=place, cwd=place, env=env) as client:
        yield client
        leave(client)


@pytest.fixture
def editor(client: RawClient, tmp_path: Path) -> Editor:
    still_serves(client)
    client._held.clear()
    return opened(client, tmp_path)


def meta(shown: Shown, call: str) -> dict[str, Any]:
    told: dict[str, Any] = shown.call(call)["_meta"]["coupler"]
    return told


def plans(shown: Shown) -> list[list[str]]:
    """Each plan that was told, an entry a text."""
    marks = {"pending": "", "in_progress": "> ", "completed": "+ "}
    return [
        [f"{marks[entry['status']]}{entry['content']}" for entry in update["entries"]]
        for update in shown.updates
        if update["sessionUpdate"] == "plan"
    ]


# Branches and iterations


def test_a_loop_that_is_left_and_branches_that_need_others_are_shown_as_they_go(editor: Editor) -> None:
    shown = editor.prompt("/left")

    statuses = {id.partition("/")[2]: call["status"] for id, call in shown.calls.items()}
    assert statuses == {
        **dict.fromkeys(["each", "each[0]", "each[0].show", "each[1]", "each[1].leave"], "completed"),
        **dict.fromkeys(["all", "all[1]", "all[3]", "all.good", "all.after"], "completed"),
        **dict.fromkeys(["all[2]", "all.bad"], "failed"),
    }
    assert shown.call("each[1].leave")["title"] == "leave the loop"
    assert shown.output("all.after").strip() == "after good"
    assert shown.plan == {"each: for each item": "completed", "all: 4 branches": "completed"}


def test_a_request_to_a_server_is_a_call_that_fetches(editor: Editor) -> None:
    site = Site()
    site.says("/json", {"n": 1})
    shown = editor.prompt(f"/asks_server site={site.url}")
    site.close()

    assert (shown.call("get")["kind"], shown.call("get")["title"]) == ("fetch", f"GET {site.url}/json")
    assert "200 OK (application/json, 8 bytes)" in shown.output("get")
    assert [shown.status(step) for step in ("get", "gone")] == ["completed", "failed"]
    assert "was answered with 404" in shown.output("gone")


def test_each_branch_and_iteration_is_a_call_of_its_own_around_its_steps(editor: Editor) -> None:
    shown = editor.prompt("/blocks")

    common = {"run": shown.run, "attempt": 1}
    block = {**common, "parent": f"{shown.run}/all"}
    assert meta(shown, "all") == {**common, "step": "all"}
    assert meta(shown, "all[0]") == {**block, "step": "all", "branch": 0}
    assert meta(shown, "all.left") == {
        **common,
        "step": "all.left",
        "branch": 0,
        "parent": f"{shown.run}/all[0]",
    }
    assert meta(shown, "all.further")["parent"] == f"{shown.run}/all[1]"
    assert meta(shown, "each[1]") == {
        **common,
        "step": "each",
        "iteration": 1,
        "parent": f"{shown.run}/each",
    }
    assert meta(shown, "each[1].show")["parent"] == f"{shown.run}/each[1]"
    assert meta(shown, "rounds[1].round")["parent"] == f"{shown.run}/rounds[1]"
    titles = {id.partition("/")[2]: call["title"] for id, call in shown.calls.items() if id.endswith("]")}
    assert titles == {
        "all[0]": "all: left",
        "all[1]": "all: right, further",
        "all[2]": "all [3 of 3]",
        "each[0]": "each [1 of 3]: a.py",
        "each[1]": 'each [2 of 3]: {"deep": [1, "x"]}',
        "each[2]": "each [3 of 3]: two lines",
        "rounds[0]": "rounds [1]",
        "rounds[1]": "rounds [2]",
    }
    assert {call["status"] for call in shown.calls.values()} == {"completed"}


def test_blocks_inside_of_blocks_hang_below_the_part_that_they_are_in(editor: Editor) -> None:
    shown = editor.prompt("/nested")

    way = []
    call: str | None = f"{shown.run}/outer[0].inner.deep"
    while call is not None:
        way.append(call.partition("/")[2])
        call = shown.calls[call]["_meta"]["coupler"].get("parent")
    assert way == ["outer[0].inner.deep", "outer[0].inner[0]", "outer[0].inner", "outer[0]", "outer"]


def test_a_branch_settles_as_failed_cancelled_or_skipped(editor: Editor) -> None:
    shown = editor.prompt("/ends")

    assert shown.reason == "end_turn"
    assert (shown.status("race[0]"), shown.output("race[0]")) == ("failed", shown.output("race.bad"))
    assert shown.status("race[1]") == "failed"
    assert meta(shown, "race[1]")["outcome"] == "cancelled"
    assert (shown.status("race[2]"), shown.output("race[2]")) == ("completed", "skipped")


def test_another_attempt_at_a_block_has_parts_of_its_own(editor: Editor) -> None:
    shown = editor.prompt("/again")

    assert (shown.status("block[0]"), shown.status("block~2[0]")) == ("failed", "completed")
    assert meta(shown, "block~2[0]")["attempt"] == 2
    assert meta(shown, "block~2[0].try")["parent"] == f"{shown.run}/block~2[0]"


def test_a_resumed_run_shows_only_the_iterations_in_which_something_was_left(
    editor: Editor, tmp_path: Path
) -> None:
    failed = editor.prompt("/mends")
    assert failed.status("each[1]") == "failed"
    (tmp_path / "mended").touch()
    resumed = editor.prompt("/resume")

    assert [id.partition("/")[2] for id in resumed.calls] == ["each+2", "each[1]+2", "each[1].work+2"]
    assert meta(resumed, "each[1].work+2")["parent"] == f"{failed.run}/each[1]+2"
    assert {call["status"] for call in resumed.calls.values()} == {"completed"}


def test_of_a_long_loop_the_later_iterations_are_lines_except_for_what_people_have_to_see(
    editor: Editor,
) -> None:
    shown = editor.prompt("/many", "allow")

    told = {id.partition("/")[2] for id in shown.calls}
    assert {"each[99]", "each[99].work", "each[101]", "each[101].both.sure"} <= told
    assert not {"each[100]", "each[102]", "each[102].check"} & told
    assert meta(shown, "each[101].both.sure")["parent"] == f"{shown.run}/each[101].both[0]"
    assert shown.statuses[f"{shown.run}/each[101].both"] == ["pending", "in_progress", "completed"]
    lines = shown.output("each").splitlines()
    assert lines[0] == "each [101 of 103]: 100: skipped"
    assert lines[1].startswith("each [103 of 103]: 102: failed: each[102].check: ")


def test_what_is_secret_in_an_item_is_not_in_its_title(editor: Editor) -> None:
    shown = editor.prompt("/hides")

    assert shown.reason == "end_turn"
    assert WORD not in str(shown.updates)
    assert "STEPS_WORD" in shown.call("each[0]")["title"]


# The plan


def test_what_was_skipped_denied_or_failed_and_handled_is_completed_with_a_mark(editor: Editor) -> None:
    shown = editor.prompt("/marks", "deny")

    assert shown.reason == "end_turn"
    assert plans(shown)[0][0] == "One and more"
    assert plans(shown)[-1] == [
        "+ One and more",
        "+ Two (failed)",
        "+ Three (skipped)",
        "+ Four (denied)",
        "+ Five",
        "+ Six",
        "+ Seven (skipped)",
    ]


def test_a_step_that_is_come_back_to_is_in_progress_again(editor: Editor) -> None:
    shown = editor.prompt("/back")

    assert ["> One", "+ Two", "Three"] in plans(shown)
    assert plans(shown)[-1] == ["+ One (failed)", "+ Two", "+ Three"]


def test_a_resumed_run_plans_from_where_it_was_left(editor: Editor, tmp_path: Path) -> None:
    editor.prompt("/mends")
    (tmp_path / "mended").touch()

    assert plans(editor.prompt("/resume")) == [
        ["> each: for each item"],
        ["> each: for each item"],
        ["+ each: for each item"],
    ]


def test_the_plan_of_an_agent_stands_below_its_step_as_long_as_that_lasts(editor: Editor) -> None:
    shown = editor.prompt("/planned")

    assert ["+ Before", "> All", "> all.fix: Look at it", "After"] in plans(shown)
    assert ["+ Before", "> All", "+ all.fix: Look at it", "all.fix: Mend", "After"] in plans(shown)
    assert plans(shown)[-1] == ["+ Before", "+ All", "+ After"]


# What agents say


def test_agents_beside_each_other_speak_one_at_a_time_and_by_name(editor: Editor) -> None:
    *beside, last, _ = editor.prompt("/voices").messages

    assert sorted(beside) == ["**all.left**\n\nI am left.", "**all.right**\n\nI am right."]
    assert last == "I am last."


# Where steps are


def test_a_step_names_the_line_of_its_workflow(editor: Editor, place: Path) -> None:
    shown = editor.prompt("/blocks")

    file = place / "workflows" / "blocks.yaml"
    (location,) = shown.call("each[0].show")["locations"]
    assert location["path"] == str(file)
    assert "id: show" in file.read_text().splitlines()[location["line"] - 1]

"""What commands write as JSON is what docs/events.schema.json says, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import forked
from raw_client import COUPLER
from store.test_earlier_runs import RUNS
from store.test_earlier_runs import project as project
from store.test_earlier_store import IDS
from store.test_earlier_store import coupler as run
from store.test_earlier_store import project as earlier_project

earlier = earlier_project

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "events.schema.json").read_text())
WORKER = "worker --really"


def problems(kind: str, told: Any) -> list[str]:
    """What of a document is not as the schema has it; a key that it does not name counts, too."""
    schema = {"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"], "unevaluatedProperties": False}
    return [f"{each.json_path}: {each.message}" for each in Draft202012Validator(schema).iter_errors(told)]


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_schema_is_one_and_names_every_key() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    event = {"seq": 1, "at": 0.5, "event": "text", "place": {"path": "a"}, "text": "hi"}

    assert problems("run_event", event) == []
    for wrong in ({**event, "more": 1}, {**event, "event": "said"}, {**event, "text": 1}):
        assert problems("run_event", wrong)


def test_exec_writes_its_events_and_its_result_so(project: Path) -> None:
    told = lines(run(project, "exec", WORKER, "go", "--format", "ndjson"))
    result = json.loads(run(project, "exec", WORKER, "go", "--format", "json"))

    assert [found for each in told for found in problems("exec_event", each)] == []
    assert problems("exec_result", result) == []
    kinds = {"session", "prompt", "text", "thought", "tool_call", "plan", "usage", "turn", "result"}
    assert kinds <= {each["event"] for each in told}


def test_a_run_and_its_log_are_written_so(project: Path) -> None:
    words = (*COUPLER, "run", "./work.yaml", "--answer", "version=7", "--no", "--json")
    done = forked.run(words, cwd=project, stdout=subprocess.PIPE, text=True)
    told = lines(done.stdout)
    kept = lines(run(project, "runs", "logs", told[0]["run"], "--json"))

    assert [found for each in (*told, *kept) for found in problems("run_event", each)] == []
    agents = {"text", "thought", "tool_call", "tool_call_update", "tool_output", "plan", "turn"}
    assert agents <= {each["event"] for each in told}
    assert {each["event"] for each in told} == {each["event"] for each in kept}


@pytest.mark.parametrize("id", RUNS)
def test_the_log_of_a_run_of_an_earlier_version_is_written_so(project: Path, id: str) -> None:
    told = lines(run(project, "runs", "logs", id, "--json"))

    assert [found for each in told for found in problems("run_event", each)] == []


@pytest.mark.parametrize("name", ["plain", "graph", "native", "relay"])
def test_a_session_is_exported_so(earlier: Path, name: str) -> None:
    document = json.loads(run(earlier, "sessions", "export", IDS[name], "--format", "json"))

    assert problems("session_export", document) == []
    assert [event for turn in document["turns"] for event in turn["events"]]

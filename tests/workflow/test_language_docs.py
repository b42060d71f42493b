"""The reference page of the language says what the code says, and its examples are workflows."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from coupler.workflow.language.keys_steps import KINDS
from coupler.workflow.language.notes import WRONG, Notes
from coupler.workflow.language.reading import read_text
from coupler.workflow.language.schema import all_tables
from coupler.workflow.language.source import Fields, parse

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "workflow-language.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_tables_of_the_page_are_those_of_the_code():
    script = ROOT / "scripts" / "generate_workflow_docs.py"
    spec = importlib.util.spec_from_file_location("generate_workflow_docs", script)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.main(["--check"]) == 0


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_of_the_page_is_a_workflow(text):
    assert read_text(text, "/w/example.yaml").steps


def test_the_page_has_an_example_of_each_kind_of_step():
    assert [kind for kind in KINDS if not any(f"{kind}:" in text for text in EXAMPLES)] == []


@pytest.mark.parametrize(
    "key", [pytest.param(key, id=f"{table.name}-{key.name}") for table in all_tables() for key in table.keys]
)
def test_the_example_of_a_key_is_a_value_for_it(key):
    tree = parse(f"{key.name}: {key.example}", "f.yaml")
    assert isinstance(tree, Fields)
    notes = Notes("f.yaml", tree.position)
    assert key.shape.read(tree.values[key.name], key.name, notes) is not WRONG, notes.problems

"""Every kind of step that the language declares is one object."""

from __future__ import annotations

import subprocess
import sys

from coupler.workflow.language.model import step_tables
from coupler.workflow.steps.kinds import ALL_KINDS, kind_named


def test_each_declared_kind_has_one_object_of_its_name() -> None:
    assert sorted(kind.name for kind in ALL_KINDS) == sorted(step_tables())
    assert [kind.name for kind in ALL_KINDS if kind_named(kind.name) is not kind] == []


def test_a_name_of_another_version_is_a_kind_without_particulars() -> None:
    unknown = kind_named("teleport")
    assert (unknown.call_kind, unknown.is_always_shown, unknown.generic_title) == ("other", False, None)


def test_all_kinds_are_known_without_the_engine_agents_or_a_client_of_the_web() -> None:
    code = "import sys, coupler.workflow.validation.checks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("coupler.workflow.engine", "coupler.workflow.agents", "coupler.client", "httpx", "jinja2")
    assert [name for name in done.stdout.split() if name.startswith(heavy)] == []

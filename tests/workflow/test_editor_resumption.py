"""What may stand behind `/resume`."""

from __future__ import annotations

import pytest

from coupler.workflow.editor.arguments import Typed
from coupler.workflow.editor.workflow_agent import Resumption


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("", Resumption()),
        ("build-7f3k2", Resumption("build-7f3k2")),
        ("token=a b", Resumption(inputs="token=a b")),
        ("build-7f3k2\n token=a  b", Resumption("build-7f3k2", "token=a  b")),
        ("--force", Resumption(is_forced=True)),
        ("build-7f3k2 --force token=a", Resumption("build-7f3k2", "token=a", is_forced=True)),
        ("--force build-7f3k2", Resumption("build-7f3k2", is_forced=True)),
        ("token=a --force", Resumption(inputs="token=a --force")),
        ("-i token=a", Resumption(inputs="-i token=a")),
        ("build-7f3k2 two", Resumption("build-7f3k2", "two")),
    ],
)
def test_a_run_its_secrets_and_whether_it_may_have_changed(typed: str, meant: Resumption) -> None:
    assert Resumption.of(Typed(typed)) == meant

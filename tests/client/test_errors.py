"""The one error of the client, as people and programs see it."""

from __future__ import annotations

import copy
import pickle

import pytest

from coupler import AgentError


def test_it_says_what_happened_and_quotes_the_last_words() -> None:
    error = AgentError("died", "the agent ended", exit_code=-9, stderr="\nwarning\nfatal: no\n")
    assert str(error) == "the agent ended\nexit code: -9\nstderr: warning\nfatal: no"


def test_it_says_no_more_than_is_known() -> None:
    assert str(AgentError("busy", "wait")) == "wait"
    assert str(AgentError("died", "gone", exit_code=0, stderr=" \n")) == "gone\nexit code: 0"


def test_it_quotes_only_the_end_of_long_output() -> None:
    error = AgentError("died", "gone", stderr="x" * 10_000 + "the end")
    assert len(str(error)) < 2100
    assert str(error).endswith("the end")


@pytest.mark.parametrize("duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_it_can_be_copied_and_sent_to_another_process(duplicate: object) -> None:
    error = AgentError("prompt", "no", exit_code=3, stderr="e", code=-32000, data={"a": 1})
    twin = duplicate(error)  # type: ignore[operator]
    assert (type(twin), str(twin), vars(twin)) == (AgentError, str(error), vars(error))

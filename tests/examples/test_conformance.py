"""The examples that are agents keep to the protocol, with a model where they need one.

The echo agent is checked by `coupler check` itself in tests/cli, the surveyor and the reference agent in
tests/inspect.
"""

from __future__ import annotations

import asyncio
import pkgutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import coupler
import forked
from coupler.conformance.assertion import chosen
from coupler.conformance.candidate import Candidate
from coupler.conformance.examination import examine
from examples.desk import EXAMPLES
from labs.langchain.model_server import ModelServer, Reply, calls, says
from raw_client import COUPLER

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick_starts", "unmeasured")]

ABOUT_TURNS = {
    *(
        "A01",
        "A08",
        "A15",
        "A23",
        "A25",
        "A28",
        "A30",
        "A34",
        "A41",
        "A44",
        "A45",
        "A46",
        "A47",
        "A48",
        "A49",
    ),
    *("A52", "A54", "A56", "A57", "A58", "A59", "N03", "S01", "T11"),
}
"""Those that depend on what an agent does. All else is Coupler's part, and proven elsewhere."""

TIMEOUT = 30.0
"""Seconds for an answer: nothing here is about how soon it comes."""

LANGCHAIN = Path(coupler.__path__[0]) / "langchain"
LOADED = ("langchain.agents", "langchain.chat_models", "langchain_openai", "langgraph.graph", "coupler.acp")

OF_COMMITS = "langgraph_release_notes.py"
"""It asks its model only about commits."""

PLAIN = {"checks.py": "go", "rename.py": "/rename cat dog"}
WITH_MODEL = (
    "langchain_agent.py",
    "langchain_mcp.py",
    "langchain_permissions.py",
    OF_COMMITS,
)
PASSED_OVER = {
    "rename.py": {"A25"},  # it has no use for the tools of MCP servers
}
JUDGED = {
    "checks.py": {"A28", "A46", "A47", "A58"},
    "rename.py": {"A28", "A46", "A47"},  # once the word is renamed, there is nothing left to be rejected
}
"""What is judged and not skipped: conversations, tool calls and rejections; of the others, a cancel."""

ELSEWHERE = {"echo.py", "surveyor.py", "reference.py"}


@pytest.fixture(scope="module")
def with_langchain() -> Iterator[None]:
    """The kit starts each agent some sixty times; what it starts is a fork that has LangChain loaded."""
    own = [module.name for module in pkgutil.walk_packages([str(LANGCHAIN)], "coupler.langchain.")]
    with forked.having_loaded(*LOADED, *own):
        yield


def failures(example: str, directory: Path, **prompts: str) -> dict[str, str]:
    """What an example does wrong."""
    command = [*COUPLER, "serve", str(EXAMPLES / example)]
    candidate = Candidate(command, directory.resolve(), timeout=TIMEOUT, startup_timeout=TIMEOUT, **prompts)
    report = asyncio.run(examine(candidate, chosen("agent", ABOUT_TURNS - PASSED_OVER.get(example, set()))))
    passed = {each.assertion.id for each in report.results if each.outcome == "passed"}
    assert passed >= JUDGED.get(example, {"A28", "A52"}), passed
    return {each.assertion.id: each.message for each in report.results if each.outcome == "failed"}


@pytest.mark.parametrize("example", PLAIN)
def test_an_example_without_a_model_keeps_to_the_protocol(example: str, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n\t@echo the cat is fine\n")

    assert failures(example, tmp_path, prompt=PLAIN[example]) == {}


def model(request: dict[str, Any]) -> Reply:
    """Talks without an end if the prompt is slow, uses the first tool once, and then answers."""
    *_, last = request["messages"]
    if "slow" in str(last["content"]):
        return says("Once", " upon a time", holds=True)
    if last["role"] == "user" and any(
        tool["function"]["name"] == "list_branches" for tool in request.get("tools", ())
    ):
        return calls("list_branches")
    return says("Do", "ne.")


def commit_twice(directory: Path) -> str:
    """The name of the first of two commits, of which the second makes the model slow."""
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    subprocess.run(["git", "init", "--quiet"], cwd=directory, check=True)
    for subject in ("begin", "be slow"):
        commit = ["git", *who, "commit", "--quiet", "--allow-empty", "-m", subject]
        subprocess.run(commit, cwd=directory, check=True)
    return "HEAD~1"


@pytest.mark.parametrize("example", WITH_MODEL)
def test_an_example_with_a_model_keeps_to_the_protocol(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_langchain: None
) -> None:
    with ModelServer([model]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-tests")

        slow_prompt = "be slow" if example != OF_COMMITS else commit_twice(tmp_path)
        assert failures(example, tmp_path, prompt="go", slow_prompt=slow_prompt) == {}


def test_no_example_is_forgotten() -> None:
    agents = {path.name for path in EXAMPLES.glob("*.py") if "serve(" in path.read_text()}
    assert agents == {*PLAIN, *WITH_MODEL} | ELSEWHERE

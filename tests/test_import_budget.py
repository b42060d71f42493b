"""What is imported before an editor gets its first answer: every module of it is named here.

A start that answers `initialize` from what an earlier one stored has no time for asyncio, msgspec or pathlib.
Whoever adds an import there adds it to this list, and says in the review what it costs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raw_client import PATIENCE

NOTING = """
import os, sys
loaded_by_python, write = set(sys.modules), os.write
def noting(fd, data):
    if b'"protocolVersion"' in bytes(data):
        os.write = write
        with open("loaded", "w") as file:
            file.write(" ".join(set(sys.modules) - loaded_by_python))
    return write(fd, data)
os.write = noting
sys.argv[0] = "coupler"
from coupler.__main__ import main
main()
"""
"""Runs `coupler`, and notes what is loaded when the answer to `initialize` is written."""

EARLY = {
    "coupler",
    "coupler.__about__",
    "coupler.__main__",
    "coupler.agent",
    "coupler.agent.startup",
    "coupler.agent.startup.early_answer",
    "coupler.agent.startup.serve_options",
    "coupler.cli",
    "coupler.cli.exit_codes",
    "coupler.cli.serve",
    "coupler.agent.startup.preflight",
    "coupler.runtime",
    "coupler.config",
    "coupler.config.lookup",
    "coupler.runtime.directories",
    "coupler.runtime.logs",
    "coupler.wire",
    "coupler.wire.stdio",
}
"""Coupler's modules before the early answer of `serve`."""

TAP = {
    "coupler",
    "coupler.__about__",
    "coupler.__main__",
    "coupler.cli",
    "coupler.cli.exit_codes",
    "coupler.cli.output",
    "coupler.cli.record",
    "coupler.runtime.directories",
    "coupler.runtime.guard",
    "coupler.runtime.terminal_text",
    "coupler.runtime",
    "coupler.wire",
    "coupler.wire.tap",
}
"""Coupler's modules before `record` passes the first answer on."""

LIGHT = {
    *(
        "__future__",
        "_blake2",
        "_collections",
        "_functools",
        "_hashlib",
        "_json",
        "_operator",
        "_sre",
        "_typing",
    ),
    *("collections", "contextlib", "copyreg", "enum", "functools", "hashlib", "itertools", "json", "keyword"),
    *("operator", "re", "reprlib", "select", "types", "typing", "warnings"),
}
"""Python's modules before the early answer, by their first names: no asyncio, no pathlib, no logging."""

LIGHT_FOR_TAP = {
    *LIGHT,
    *("_datetime", "_locale", "_posixsubprocess", "_queue", "_random", "_sha512", "_weakrefset", "bisect"),
    *(
        "atexit",
        "datetime",
        "errno",
        "fcntl",
        "locale",
        "math",
        "queue",
        "random",
        "secrets",
        "selectors",
        "signal",
        "struct",
        "_struct",
    ),
    *("subprocess", "threading", "time", "weakref"),
}

HEAVY = {
    *(
        "click",
        "httpx",
        "jinja2",
        "langchain",
        "langchain_core",
        "langgraph",
        "mcp",
        "pathlib",
        "prompt_toolkit",
    ),
    *("pydantic", "rich", "sqlite3", "tomllib", "yaml"),
}
"""What no first answer may wait for, of a target that is served for the first time either."""


def test_an_early_answer_imports_what_is_listed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("async def agent(turn): ...\n")
    loaded_when_answering(tmp_path, "serve", "app.py:agent")

    loaded = loaded_when_answering(tmp_path, "serve", "app.py:agent")

    assert {name for name in loaded if name.startswith("coupler")} == EARLY
    assert first_names(loaded) - {"coupler"} <= LIGHT


def test_a_first_answer_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("async def agent(turn): ...\n")

    loaded = loaded_when_answering(tmp_path, "serve", "app.py:agent")

    assert "coupler.agent.connection" in loaded
    assert "importlib.metadata" not in loaded
    assert first_names(loaded) & HEAVY == set()


@pytest.mark.skipif(sys.platform == "win32", reason="the agent is a shell script")
def test_a_recorded_answer_is_passed_on_with_what_is_listed_and_nothing_else(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nread line\necho \'{"result": {"protocolVersion": 1}}\'\n')
    agent.chmod(0o755)

    loaded = loaded_when_answering(tmp_path, "record", "-o", "trace.ndjson", "--", str(agent))

    assert {name for name in loaded if name.startswith("coupler")} == TAP
    assert first_names(loaded) - {"coupler"} <= LIGHT_FOR_TAP


def loaded_when_answering(directory: Path, *words: str) -> set[str]:
    """The modules that a real start has loaded when it answers `initialize`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    subprocess.run(
        [sys.executable, "-c", NOTING, *words],
        cwd=directory,
        env=environment,
        input=json.dumps(initialize).encode() + b"\n",
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=True,
    )
    return set((directory / "loaded").read_text().split())


def first_names(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}

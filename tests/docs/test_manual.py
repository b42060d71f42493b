"""Every example in the documentation runs, and the reference says what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.manual import is_followed
from raw_client import serve

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)

EXAMPLES = [
    pytest.param(match[1], id=f"{page.stem}-{number}")
    for page in PAGES
    if not is_followed(page)
    for number, match in enumerate(PYTHON.finditer(page.read_text()), 1)
]
AGENTS = [example for example in EXAMPLES if "serve(" in str(example.values[0]).splitlines()[-1]]
PROGRAMS = [
    example for example in EXAMPLES if re.search(r"asyncio\.run\(|import ask\n", str(example.values[0]))
]
TESTS = [example for example in EXAMPLES if "def test_" in str(example.values[0])]
ALLOWED = {"outcome": "selected", "optionId": "allow_once"}
CANCELLED = {"outcome": "cancelled"}
LOGS_IN = 'sys.argv[1:] == ["login"]'
PLUGIN = 'pytest_plugins = ["coupler.pytest_plugin"]\n'

EDITOR_AGENT = """
from pathlib import Path
from coupler import Turn, serve

async def agent(turn: Turn) -> None:
    notes = Path(turn.session.cwd, "notes.txt")
    async with turn.tool("Write notes", kind="edit", path=str(notes)) as call:
        if await call.permitted():
            notes.write_text("notes")
"""
CLIENT = """
import asyncio
from coupler import connect

def ask(command, text):
    async def main():
        async with connect(command) as agent:
            return (await (await agent.new()).prompt(text)).text
    return asyncio.run(main())
"""


def test_every_example_is_an_agent_a_program_or_a_test():
    plugins = [example for example in EXAMPLES if example.values[0] == PLUGIN]
    assert len(AGENTS) + len(PROGRAMS) + len(TESTS) + len(plugins) == len(EXAMPLES) > 10


@pytest.mark.parametrize("code", AGENTS)
def test_an_agent_of_the_docs_answers_in_both_ways_of_starting_it(code, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "agent.py"
    file.write_text(code)
    if LOGS_IN in code:
        subprocess.run([sys.executable, file, "login"], input=b"token\n", check=True, capture_output=True)
    for client, outcome in ((serve(file), ALLOWED), (serve(file, python=True), CANCELLED)):
        (tmp_path / "notes.txt").write_text("b\na\n")
        with client:
            hello = client.initialize()["result"]
            for method in hello.get("authMethods", ()):
                client.call("authenticate", {"methodId": method["id"]})
            session = client.new_session(str(tmp_path))
            request = client.prompt_request(session, "hello")
            client.send(request)
            while "id" not in (frame := client.read()) or "method" in frame:
                if frame["method"] == "session/request_permission":
                    client.send({"id": frame["id"], "result": {"outcome": outcome}})
            assert frame["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize("code", PROGRAMS)
def test_a_program_of_the_docs_runs(code, tmp_path):
    agent = next(str(example.values[0]) for example in AGENTS)
    (tmp_path / "agent.py").write_text(agent)
    (tmp_path / "program.py").write_text(code)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""


@pytest.mark.parametrize("code", TESTS)
def test_a_test_of_the_docs_passes(code, pytester):
    pytester.makeconftest(PLUGIN)
    echo = (ROOT / "examples" / "echo.py").read_text()
    pytester.makepyfile(agent=echo, editor_agent=EDITOR_AGENT, my_client=CLIENT, test_it=code)
    pytester.runpytest_subprocess("-q", "-p", "no:randomly").assert_outcomes(passed=1)


def test_the_readme_quotes_the_benchmark():
    measured = (ROOT / "bench" / "RESULTS.md").read_text()
    quoted = re.findall(
        r"^\| (.+?) +\| ([\d.]+×) +\| ([\d.]+×|–) +\|$", (ROOT / "README.md").read_text(), re.M
    )
    assert len(quoted) >= 7
    for name, against_python, against_typescript in quoted:
        (row,) = [line for line in measured.splitlines() if line.startswith(f"| {name} ")]
        assert row.split("|")[6].strip() == against_python
        assert row.split("|")[7].strip() == against_typescript


def test_no_link_inside_the_docs_is_broken():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            if not target.startswith("uri"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"

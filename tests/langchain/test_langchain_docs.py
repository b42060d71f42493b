"""Every snippet about LangChain runs, and so does the example, with a model over real HTTP."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.steps import leave
from labs.langchain.acting import introduced
from labs.langchain.model_server import ModelServer, calls, says
from raw_client import is_answer_to, serve, texts

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "langchain.md").read_text()
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```py\n(.*?)```", PAGE + README, re.DOTALL)
AGENTS = [code for code in SNIPPETS if "serve(" in code.splitlines()[-1]]
PROGRAMS = [code for code in SNIPPETS if "asyncio.run(" in code]
CLOCK = (ROOT / "tests" / "agent" / "servers" / "plain.py").read_text()

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]


@pytest.fixture
def surroundings(tmp_path):
    def given(server):
        return {
            "COUPLER_HOME": str(tmp_path / "home"),
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "key-of-the-tests",
        }

    return given


def test_every_snippet_is_an_agent_or_a_program():
    assert len(AGENTS) + len(PROGRAMS) == len(SNIPPETS) > 6


def converse(client, session, prompt="hello"):
    """One prompt, with everything that is asked agreed to; the text of the answer."""
    request = client.prompt_request(session, prompt)
    client.send(request)
    updates = []
    while not is_answer_to(frame := client.read(), request["id"]):
        if frame["method"] == "session/request_permission":
            option = frame["params"]["options"][0]["optionId"]
            client.send(
                {"id": frame["id"], "result": {"outcome": {"outcome": "selected", "optionId": option}}}
            )
        else:
            updates.append(frame["params"]["update"])
    assert frame["result"]["stopReason"] == "end_turn", frame
    return texts(updates)


def script_for(code):
    """A call of the tool that a snippet defines, if it does, and an answer."""
    tool = re.search(r"def (\w+)\((\w+): str\) -> str:", code)
    return [*([calls(tool[1], **{tool[2]: "there"})] if tool else []), says("Done.")]


@pytest.mark.parametrize("code", AGENTS, ids=range(len(AGENTS)))
def test_an_agent_of_the_guide_answers(code, tmp_path, surroundings):
    file = tmp_path / "agent.py"
    file.write_text(code)
    with (
        ModelServer(script_for(code)) as server,
        serve(file, env=surroundings(server), cwd=tmp_path) as client,
    ):
        introduced(client)
        session = client.new_session(str(tmp_path))
        said = converse(client, session)
        if "interrupt(" in code:
            assert said in PAGE  # the manual shows the question as it is
            assert "expected one of publish, change" in converse(client, session)
            said = converse(client, session, "change: say less")
        leave(client)
    assert said in ("Done.", "HELLO", "To be changed: say less")


@pytest.mark.parametrize("code", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_guide_runs(code, tmp_path, surroundings):
    (tmp_path / "clock.py").write_text(CLOCK.replace("sys.argv[1]", '"fine"'))
    with ModelServer([calls("echo"), says("It is noon.")]) as server:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, **surroundings(server)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert (done.returncode, done.stdout) == (0, "It is noon.\n"), done.stderr


def test_the_example_reads_a_file_of_the_editor(tmp_path, surroundings):
    (tmp_path / "README.md").write_text("A project")
    script = [calls("read_file", path="README.md"), says("It is a project.")]
    with ModelServer(script) as server:
        with serve(ROOT / "examples" / "langchain_agent.py", env=surroundings(server)) as client:
            introduced(client)
            answer = client.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})["result"]
            said = converse(client, answer["sessionId"])
            leave(client)
        assert server.asked[1]["messages"][-1]["content"] == "     1\tA project"
    assert said == "It is a project."
    assert answer["modes"]["currentModeId"] == "interactive"

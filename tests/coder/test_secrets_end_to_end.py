"""The model's key is used for the model, and is in nothing else that anybody or anything gets to see."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import forked
from coder.editor import TERMINALS
from coder.script import use
from coder.served_coder import KEY, Coder, Served, tree, write
from labs.langchain.model_server import refuses
from raw_client import COUPLER, PATIENCE

TELLING_SERVER = """
import json, os, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

TOOL = {"name": "tell", "description": "Tell", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            send(id=message["id"], result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                 "serverInfo": {"name": "telling", "version": "1"}})
        case "tools/list":
            send(id=message["id"], result={"tools": [TOOL]})
        case "tools/call":
            text = "server: " + repr(dict(os.environ))
            send(id=message["id"], result={"content": [{"type": "text", "text": text}]})
        case _ if "id" in message:
            send(id=message["id"], error={"code": -32601, "message": "no such method"})
"""

TELLING_AGENT = """
import os
from pathlib import Path
from coupler import Turn, serve

async def tell(turn: Turn) -> None:
    Path("of-agent.txt").write_text(repr(dict(os.environ)))
    await turn.say("agent: told")

serve(tell)
"""

TELL = "env | sort > of-command.txt; cat /proc/self/environ > of-process.txt; cat /proc/$PPID/environ"


def assert_nowhere(served: Served, *directories: Path) -> None:
    """Neither on the wire, nor in the log, nor in any file."""
    assert not [line for line in served.client.lines if KEY.encode() in line]
    assert KEY.encode() not in served.client.stderr
    for directory in (served.home, *directories):
        for file in directory.rglob("*"):
            if file.is_file():
                assert KEY.encode() not in file.read_bytes(), file


def test_no_frame_log_store_output_or_child_has_the_key(coder: Coder, project: Path, tmp_path: Path) -> None:
    write(tmp_path, {"telling_server.py": TELLING_SERVER, "telling_agent.py": TELLING_AGENT})
    command = [sys.executable, "-m", "coupler", "serve", str(tmp_path / "telling_agent.py")]
    config = f"""
[agents.teller]
command = {json.dumps(command)}

[agents.hooked]
agent = "coder"
hooks.before_tool = "env > of-hook.txt"

[mcp.settled]
command = {json.dumps(sys.executable)}
args = [{json.dumps(str(tmp_path / "telling_server.py"))}]
"""
    served = coder.served("--agent", "hooked", "--log-level=debug", config=config)
    repeated = refuses(401, f"Incorrect API key provided: {KEY}.", "invalid_api_key")
    coder.model.plays(
        use("run_command", command=TELL),
        use("run_command", command="env > of-job.txt; sleep 0.2", background=True),
        (use("telling_tell"), use("settled_tell")),
        use("delegate", task="Tell", agent="teller"),
        "All was told.",
        repeated,
    )
    server = {
        "name": "telling",
        "command": sys.executable,
        "args": [str(tmp_path / "telling_server.py")],
        "env": [],
    }
    editor = served.opened(project, server)

    turn = editor.prompt("Tell all", *["allow_once"] * 5)
    failed = editor.prompt("And now?")
    served.leave()
    exported = forked.run(
        [*COUPLER, "sessions", "export", editor.session],
        env={**os.environ, "COUPLER_HOME": str(served.home)},
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )

    assert turn.last_message == "All was told."
    for of_server in coder.model.asked[3].results[-2:]:
        assert "server: " in of_server
        assert "PATH" in of_server
    assert "agent: told" in coder.model.asked[4].result
    assert "error" in failed.answer
    told = tree(project)
    assert {f"of-{child}.txt" for child in ("command", "process", "job", "agent", "hook")} == told.keys()
    assert all("PATH=" in text or "'PATH'" in text for text in told.values())
    assert KEY not in str([asked.messages for asked in coder.model.asked])
    assert f"Bearer {KEY}" in coder.model.server.keys
    assert b"All was told." in exported.stdout
    assert KEY.encode() not in exported.stdout
    assert_nowhere(served, project)


def test_the_editors_terminal_is_given_no_key(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("run_command", command="true"), "Done."], **TERMINALS)
    editor.prompt("Run it", "allow_once")
    [terminal] = editor.terminals.values()
    assert KEY not in json.dumps(terminal.asked)


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"])
def test_the_usual_variables_of_providers_are_kept_from_children_too(
    coder: Coder, project: Path, variable: str
) -> None:
    served = coder.served(env={variable: KEY, "COUPLER_API_KEY": "sk-another-key-of-the-tests-9876"})
    coder.model.plays(use("run_command", command="env > told.txt; printenv PATH"), "Done.")
    served.opened(project).prompt("Run it", "allow_once")
    served.leave()

    assert "PATH=" in tree(project)["told.txt"]
    assert_nowhere(served, project)


def test_a_key_that_the_user_types_mentions_or_has_in_instructions_is_told_and_kept_nowhere(
    coder: Coder, project: Path
) -> None:
    write(project, {"AGENTS.md": f"The key is {KEY}.\n"})
    served = coder.served()
    coder.model.plays("I see no key.", "Neither do I.")
    editor = served.opened(project)
    settings = {"uri": (project / ".env").as_uri(), "text": f"OPENAI_API_KEY={KEY}\n"}

    editor.finish(editor.begin(f"Why is {KEY} refused?", {"type": "resource", "resource": settings}))
    editor.prompt("And now?")
    served.leave()

    for asked in coder.model.asked:
        assert "Why is [secret:COUPLER_API_KEY] refused?" in asked.prompts[0]
        assert "OPENAI_API_KEY=[secret:COUPLER_API_KEY]" in asked.prompts[0]
        assert "The key is [secret:COUPLER_API_KEY]." in asked.system
        assert KEY not in asked.text
    assert_nowhere(served)

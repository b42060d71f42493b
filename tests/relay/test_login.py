"""Logging out, and logging in to agents that are called by a name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from client.stage import Scripted
from raw_client import COUPLER, RawClient

Script = Callable[[str], Scripted]
Serve = Callable[..., RawClient]


def test_logging_out_is_passed_on_where_the_agent_offers_it(script: Script, relay: Serve) -> None:
    agent = script("""
        logged_in = True
        while True:
            frame = read()
            method = frame.get("method")
            if method == "initialize":
                send(result(frame, {"protocolVersion": 1, "agentCapabilities": {"auth": {"logout": {}}},
                                    "authMethods": [{"id": "browser", "name": "Browser"}]}))
            elif method == "logout":
                logged_in = False
                send(result(frame, {}))
            elif not logged_in:
                send(error(frame, -32000, "log in first"))
            elif "id" in frame:
                send(result(frame, {"sessionId": "s1"}))
    """)
    with relay(agent) as editor:
        assert "logout" in editor.initialize()["result"]["agentCapabilities"]["auth"]
        editor.new_session()
        assert editor.call("logout", {})["result"] == {}
        refused = editor.call("session/new", {"cwd": "/", "mcpServers": []})["error"]
        assert refused["code"] == -32000 and "log in first" in refused["message"]
    assert len(agent.received_of("logout")) == 1


def test_logging_out_is_refused_where_the_agent_does_not_offer_it(script: Script, relay: Serve) -> None:
    agent = script("for prompt in prompts(): pass")
    with relay(agent) as editor:
        assert "logout" not in editor.initialize()["result"]["agentCapabilities"].get("auth", {})
        assert editor.call("logout", {})["error"]["code"] == -32601
    assert not agent.received_of("logout")


LOGS_IN = """
import json, os, sys
if sys.argv[1:] == ["--acp", "login"]:
    print("logging in", os.environ["PLACE"])
    sys.exit()
way = {"type": "terminal", "id": "tty", "name": "Terminal", "args": ["login"]}
for line in sys.stdin:
    answer = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": [way]}
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": answer}), flush=True)
"""


def test_a_login_in_a_terminal_of_an_agent_with_a_name_runs_its_command(
    coupler_home: Path, tmp_path: Path
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(LOGS_IN)
    coupler_home.mkdir(exist_ok=True)
    (coupler_home / "coupler.toml").write_text(
        f'[agents.mine]\ncommand = ["{sys.executable}", "{program}", "--acp"]\nenv = {{ PLACE = "here" }}\n'
    )
    served = [*COUPLER, "serve", "--", "mine"]
    with RawClient(*served) as editor:
        [way] = editor.initialize(auth={"terminal": True})["result"]["authMethods"]
        editor.close_stdin()
        editor.wait()
    with RawClient(*served, *way["args"], env=way["env"]) as terminal:
        assert terminal.wait() == 0
        assert terminal.lines == [b"logging in here\n"]

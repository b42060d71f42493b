"""Workflows of one `coupler serve` whose agents are scripts, each in a session with servers of its own."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec

from client.stage import Scripted
from coupler.workflow.journal.run_events import logged_in, run_object
from raw_client import RawClient
from workflow.kept_runs import in_store
from workflow.served_project import Editor, Shown, write_workflow

PLAIN = Path(__file__).parent.parent / "agent" / "servers" / "plain.py"


class Desk:
    """Somebody who works with an editor in a directory."""

    def __init__(self, client: RawClient, home: Path, cwd: Path) -> None:
        self._client = client
        self._home = home
        self._cwd = cwd

    def editor(self, *servers: dict[str, Any]) -> Editor:
        """A session with these servers."""
        answer = self._client.call("session/new", {"cwd": str(self._cwd), "mcpServers": servers})
        return Editor(self._client, answer["result"]["sessionId"])

    def workflow(self, text: str, agent: Scripted | None = None) -> str:
        """The command of a workflow in which AGENT stands for the agent."""
        name = f"w{self._cwd.name.replace('_', '-')}"
        command = "" if agent is None else json.dumps(shlex.join(agent.command))
        write_workflow(self._home / "workflows", name, text.replace("AGENT", command))
        return f"/{name}"

    def kept(self, run: str) -> list[dict[str, Any]]:
        """What was kept of a run."""
        file = str(next(self._home.rglob("coupler.db")))
        entries = in_store(lambda store: store.runs.entries(run, is_whole=True), file)
        return [msgspec.to_builtins(run_object(each)) for entry in entries for each in logged_in(entry)]

    def starts(self, server: str) -> int:
        """How often the server of a name was started."""
        file = self._cwd / f"{server}.starts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def words(self, server: str) -> list[str]:
        return [str(PLAIN), "fine", str(self._cwd / f"{server}.starts")]

    def entry(self, name: str, starts: str, **env: str) -> dict[str, Any]:
        """A server as editors tell of it."""
        variables = [{"name": each, "value": value} for each, value in env.items()]
        return {"name": name, "command": sys.executable, "args": self.words(starts), "env": variables}

    def declared(self, starts: str) -> str:
        """The same as workflows do."""
        return json.dumps({"command": sys.executable, "args": self.words(starts)})


def nested(shown: Shown) -> list[dict[str, Any]]:
    """The calls of agents in steps."""
    return [call for call in shown.calls.values() if "parent" in call["_meta"]["coupler"]]

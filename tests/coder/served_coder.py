"""The coding agent as editors have it: the real `coupler serve` over real pipes, its model behind real HTTP.

    editor = coder(project, [use("read_file", path="a.py"), "It is fine."])
    turn = editor.prompt("Look at a.py")

Tests share a process for each set of capabilities, with a session each; one that has settings, options or a
home of its own has a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import agent.servers
from agent.steps import leave
from coder.editor import Editor
from coder.script import Scripted, ScriptedModel
from raw_client import COUPLER, Frame, RawClient

KEY = "sk-of-the-tests-0123456789abcdef"
"""A key that can be recognised wherever it turns up."""

NEVER_ON_STDERR = (b"Traceback", b"was never awaited", b"never retrieved")


def surroundings(home: Path, url: str | None) -> dict[str, str]:
    """The variables of a served coder: a home of its own, and a model, if it has one."""
    person = home.parent / f"{home.name}-of-the-user"
    person.mkdir(parents=True, exist_ok=True)
    model = {} if url is None else {"COUPLER_MODEL": "openai:scripted", "COUPLER_BASE_URL": url}
    return {
        "COUPLER_HOME": str(home),
        "HOME": str(person),
        "COUPLER_API_KEY": KEY,
        **model,
    }


PATIENCE = "mcp_wait_seconds = 60\n"
"""Set so that a busy machine costs no model call its tools."""


def with_patience(config: str) -> str:
    """Return the settings with a long wait for MCP servers, unless they say how long it is."""
    if "mcp_wait_seconds" in config:
        return config
    head, table, rest = config.partition("[coder]\n")
    return f"{head}[coder]\n{PATIENCE}{rest}" if table else f"{config}\n[coder]\n{PATIENCE}"


class Served:
    """A process of `coupler serve`, greeted."""

    def __init__(
        self,
        home: Path,
        url: str | None,
        *words: str,
        config: str = "",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        fresh: bool = False,
        **capabilities: Any,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        if config or not (home / "coupler.toml").exists():
            (home / "coupler.toml").write_text(with_patience(config))
        self.home = home
        self.client = RawClient(
            *COUPLER,
            "serve",
            *words,
            env={**surroundings(home, url), **(env or {})},
            cwd=cwd or home,
            fresh=fresh,
        )
        self.hello: Frame = self.client.initialize(**capabilities)["result"]

    def opened(self, cwd: Path, *servers: Frame) -> Editor:
        """A new session."""
        answer = self.client.call("session/new", {"cwd": str(cwd), "mcpServers": list(servers)})
        return Editor(self.client, answer["result"]["sessionId"], cwd)

    def loaded(self, session: str, cwd: Path) -> tuple[Editor, list[Frame]]:
        """A session of before, and the updates that told of it."""
        request = self.client.request(
            "session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": []}
        )
        self.client.send(request)
        frames = self.client.read_until(lambda frame: frame.get("id") == request["id"])
        assert "result" in frames[-1], frames[-1]
        updates = [each["params"]["update"] for each in frames if each.get("method") == "session/update"]
        return Editor(self.client, session, cwd), updates

    def leave(self) -> None:
        """The editor is closed: the process ends in good order, and had nothing to complain about."""
        leave(self.client)
        self.check()

    def check(self) -> None:
        for words in NEVER_ON_STDERR:
            assert words not in self.client.stderr, self.client.stderr.decode()


class Coders:
    """The processes of the tests, started when they are needed."""

    def __init__(self, homes: Iterator[Path], model: ScriptedModel) -> None:
        self.model = model
        self._homes = homes
        self._shared: dict[str, Served] = {}

    def shared(self, config: str = "", **capabilities: Any) -> Served:
        """The one with these settings and of an editor with these capabilities."""
        key = json.dumps([config, capabilities], sort_keys=True)
        if key not in self._shared:
            self._shared[key] = self.own(config=config, **capabilities)
        served = self._shared[key]
        served.client._held.clear()
        return served

    def own(self, *words: str, home: Path | None = None, **more: Any) -> Served:
        """A new one."""
        return Served(home or next(self._homes), self.model.server.url, *words, **more)

    def close(self) -> None:
        for served in self._shared.values():
            with served.client:
                served.leave()


class Coder:
    """What a test calls: a session with a script for its model."""

    def __init__(self, coders: Coders, stack: ExitStack) -> None:
        self.model = coders.model
        self._coders = coders
        self._stack = stack
        self._editors: list[Editor] = []

    def __call__(self, cwd: Path, script: list[Scripted], *servers: Frame, **capabilities: Any) -> Editor:
        """A new session of the process that tests share."""
        self.model.plays(*script)
        editor = self._coders.shared(**capabilities).opened(cwd, *servers)
        self._editors.append(editor)
        return editor

    def beside(self, editor: Editor, cwd: Path) -> Editor:
        """Another session of the same process."""
        answer = editor.client.call("session/new", {"cwd": str(cwd), "mcpServers": []})
        self._editors.append(Editor(editor.client, answer["result"]["sessionId"], cwd))
        return self._editors[-1]

    def served(self, *words: str, **more: Any) -> Served:
        """A process for this test alone, which ends with it if it has not ended before."""
        served = self._coders.own(*words, **more)
        self._stack.enter_context(served.client)
        return served

    def close(self) -> None:
        for editor in self._editors:
            if not editor.is_closed and editor.client.process.poll() is None:
                editor.close()


def clerk() -> Frame:
    """An MCP server for a session, whose tool `read_memo` claims to read only."""
    script = Path(*agent.servers.__path__) / "clerk.py"
    return {"name": "clerk", "command": sys.executable, "args": [str(script)], "env": []}


def tree(directory: Path) -> dict[str, str]:
    """All files below a directory with their text, and links with where they lead."""
    found: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"  # noqa: PTH115
        elif path.is_file():
            found[name] = path.read_bytes().decode(errors="surrogateescape")
    return found


def write(directory: Path, files: Mapping[str, str | bytes]) -> None:
    """Make files, with the directories that they are in."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

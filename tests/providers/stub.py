"""Programs that stand in for vendors' command lines: they note their calls, and say what a test wants.

Each is a small script of bare Python, found by its name on the PATH. A run takes the next of its scripts; the
last one is repeated.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

STREAMS = Path(__file__).parent / "streams"

PROGRAM = """#!{python} -ISB
import base64, json, os, re, signal, subprocess, sys, time
here = {here!r}
log = os.path.join(here, {name!r} + ".log")
runs = open(log).readlines() if os.path.exists(log) else []
scripts = json.load(open(os.path.join(here, {name!r} + ".json")))
script = scripts[min(len(runs), len(scripts) - 1)]
files = {{}}
for word in [*sys.argv[1:], *os.environ.values()]:
    for path in re.findall(r'/[^\\s"@=\\]]*coupler-[^\\s"\\],]*', word):
        if os.path.isfile(path):
            files[path] = {{"text": open(path).read(), "mode": oct(os.stat(path).st_mode & 0o777)}}
home = os.path.join(os.environ.get("GEMINI_CLI_HOME", ""), ".gemini")
kept = {{}}
for entry in os.listdir(home) if os.path.isdir(home) and not any("blind" in step for step in script) else ():
    path = os.path.join(home, entry)
    text = open(path).read() if os.path.isfile(path) else None
    kept[entry] = {{"text": text, "mode": oct(os.stat(path).st_mode & 0o777)}}
note = {{
    "home": kept,
    "argv": sys.argv[1:],
    "stdin": sys.stdin.buffer.read().decode("utf-8", "replace"),
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "files": files,
    "pid": os.getpid(),
}}
with open(log, "a") as file:
    file.write(json.dumps(note) + "\\n")
out = sys.stdout.buffer
for step in script:
    if "line" in step:
        out.write(json.dumps(step["line"]).encode() + b"\\n")
    elif "raw" in step:
        out.write(base64.b64decode(step["raw"]))
    elif "repeat" in step:
        out.write(step["repeat"].encode() * step["times"])
    out.flush()
    if "write" in step:
        open(step["write"][0], "w").write(step["write"][1])
    if "traps" in step:
        def trap(number, frame, last_words=step["traps"]):
            open("trapped", "w").write(last_words)
            sys.exit(0)
        signal.signal(signal.SIGTERM, trap)
    if "stderr" in step:
        sys.stderr.write(step["stderr"])
        sys.stderr.flush()
    if "leave" in step:
        left = subprocess.Popen(["sleep", "60"], start_new_session=step["leave"] == "session")
        open(os.path.join(here, "left"), "w").write(str(left.pid))
    if "pause" in step:
        time.sleep(step["pause"])
    if "hang" in step:
        time.sleep(60)
    if "exit" in step:
        sys.exit(step["exit"])
"""


class Stub:
    """A program on the PATH, with what it was called with so far."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name

    def says(self, *scripts: list[dict[str, Any]]) -> Stub:
        """Play these scripts, one a run."""
        (self._directory / f"{self._name}.json").write_text(json.dumps(scripts))
        program = self._directory / self._name
        program.write_text(PROGRAM.format(python=sys.executable, here=str(self._directory), name=self._name))
        program.chmod(0o755)
        return self

    def streams(self, *names: str) -> Stub:
        """Play recorded streams, one a run."""
        return self.says(*(recorded(name) for name in names))

    @property
    def runs(self) -> list[dict[str, Any]]:
        log = self._directory / f"{self._name}.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def argv(self) -> list[str]:
        """The words of the last run."""
        words: list[str] = self.runs[-1]["argv"]
        return words

    @property
    def left(self) -> int:
        """The process that it left running."""
        return int((self._directory / "left").read_text())


def recorded(name: str) -> list[dict[str, Any]]:
    """A recorded stream as a script."""
    return [{"line": line} for line in lines_of(name)]


def lines_of(name: str) -> list[dict[str, Any]]:
    """The lines of a recorded stream."""
    return [json.loads(line) for line in (STREAMS / f"{name}.ndjson").read_text().splitlines()]


def path_with(directory: Path) -> str:
    """A PATH on which the stubs come first."""
    return f"{directory}{os.pathsep}{os.environ['PATH']}"

"""`make interop`: drives agents that others have written through Coupler, and keeps the matrix of what works.

Agents are installed from npm and PyPI in pinned versions, and talk to a scripted model on loopback: no key is
needed. Without `--write` the matrix in the repository stays as it is; the exit code is 1 if a cell is worse.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psutil

import report
from agents import AGENTS, Agent
from cells import CELLS, LIMITS, START_SECONDS, TURN_SECONDS, CellError, Seen, Subject
from coupler.client.errors import AgentError
from install import PLACES, InstallError, install, path, renew, version
from labs import others, scripted_model

MARK = "COUPLER_INTEROP_RUN"
"""The variable that all processes of a run have."""
KEPT = ("LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE")
"""Variables of ours that agents are given besides their own."""


def main() -> int:
    options = parse_arguments()
    agents = [agent for agent in AGENTS if not options.agents or agent.name in options.agents]
    if options.lock:
        return lock(agents)
    before = report.read()
    now: dict[str, report.Row] = {}
    for agent in agents:
        print(f"\n{agent.title}", flush=True)
        now[agent.name] = row(agent, [cell for cell in CELLS if cell in (options.only or CELLS)])
    print(f"\n{report.table(now)}\n")
    if options.write:
        report.write(merged(report.read(), now))
    failed = [f"{name}: {what}" for name in now for what in report.worse(before.get(name, {}), now[name])]
    for what in failed:
        print(f"worse: {what}", file=sys.stderr)
    return int(bool(failed))


def lock(agents: list[Agent]) -> int:
    """Pin the newest versions; 1 if those of an agent could not be found out."""
    failed = 0
    for agent in agents:
        try:
            renew(agent)
        except InstallError as error:
            print(f"{agent.title}: {error}", file=sys.stderr)
            failed = 1
    return failed


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="drive these alone: " + ", ".join(names()))
    parser.add_argument(
        "--only", action="append", choices=[*CELLS], help="try this cell alone; may be repeated"
    )
    parser.add_argument(
        "--write", action="store_true", help="keep what was seen as the matrix to compare with"
    )
    parser.add_argument("--lock", action="store_true", help="pin the newest versions, for `make lock`")
    options = parser.parse_args()
    if unknown := set(options.agents) - set(names()):
        parser.error(f"there is no agent {', '.join(sorted(unknown))}")
    return options


def names() -> list[str]:
    return [agent.name for agent in AGENTS]


def merged(before: dict[str, report.Row], now: dict[str, report.Row]) -> dict[str, report.Row]:
    """The matrix with the cells that were tried now in place of those of before."""
    rows = {}
    for name in names():
        row = now.get(name) or before.get(name)
        if row is None:
            continue
        if "cells" in row:
            cells = {**before.get(name, {}).get("cells", {}), **row["cells"]}
            row = {**row, "cells": {cell: cells[cell] for cell in CELLS if cell in cells}}
        rows[name] = row
    return rows


def row(agent: Agent, wanted: list[str]) -> report.Row:
    """Install an agent, and try its cells."""
    about = {"title": agent.title}
    try:
        place = install(agent)
        about["version"] = version(agent)
        return {**about, "cells": asyncio.run(drive(agent, place, wanted))}
    except (InstallError, others.MissingError, AgentError) as error:
        print(f"  {error}", flush=True)
        return {**about, "missing": str(error)}


async def drive(agent: Agent, place: Path, wanted: list[str]) -> dict[str, report.Row]:
    """Try the cells of an agent, in a home of its own; all its processes are gone afterwards."""
    homes = PLACES / "homes"
    homes.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=f"{agent.directory}-", dir=homes))
    home = root / "home"
    home.mkdir()
    run = uuid4().hex
    model = scripted_model.serve()
    try:
        made = agent.prepare(place, home, f"http://127.0.0.1:{model.server_address[1]}")
        env = {**environment(home), MARK: run, **made.env}
        if agent.is_native:
            env["PATH"] = os.pathsep.join([str(Path(made.command[0]).parent), env["PATH"]])
            # Codex wants a Git repository, which ours is; `coupler agents doctor` makes a directory here.
            env["TMPDIR"] = str(root)
        else:
            configure(agent, made.command, Path(env["XDG_CONFIG_HOME"]))
        subject = Subject(agent, made.command, env, root, model)
        async with subject.connect() as subject.shared:
            return {name: await tried(subject, name) for name in wanted}
    finally:
        model.shutdown()
        model.server_close()
        end_processes(run)
        shutil.rmtree(root, ignore_errors=True)


def configure(agent: Agent, command: list[str], config: Path) -> None:
    """Give Coupler's own commands the agent by its name, as a user would."""
    file = config / "coupler" / "coupler.toml"
    file.parent.mkdir(parents=True)
    words = json.dumps(command)
    file.write_text(f'[agents.{agent.name}]\ncommand = {words}\nfiles = "{agent.files}"\n', encoding="utf-8")


def environment(home: Path) -> dict[str, str]:
    """The environment of agents: of ours only what they cannot do without."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    places = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("DATA", "CONFIG", "STATE", "CACHE")}
    return {**kept, "PATH": path(), "HOME": str(home), **places}


async def tried(subject: Subject, name: str) -> report.Row:
    """Try one cell, within its time."""
    agent = subject.agent
    if name in agent.lacks:
        return report.judged(Seen("none", agent.lacks[name]), name, agent)
    started = time.monotonic()
    try:
        async with asyncio.timeout(LIMITS.get(name, TURN_SECONDS) + START_SECONDS):
            seen = await CELLS[name](subject)
            await subject.close_sessions()
    except (CellError, AgentError, TimeoutError) as error:
        # What an agent wrote to stderr is different every time.
        seen = Seen("fail", str(error).partition("\nstderr:")[0].strip() or "it took too long")
    cell = report.judged(report.lasting(seen, subject.root), name, agent)
    seconds = time.monotonic() - started
    print(f"  {name:8}{report.SIGNS[cell['verdict']]:6}{seconds:6.1f} s  {cell['seen']}", flush=True)
    for each, failure in cell.get("failed", {}).items():
        print(f"{'':10}{each}: {failure['seen']}", flush=True)
    if name in agent.faults and cell["verdict"] == "pass":
        print(f"{'':10}it passes now: take its fault out of the table of agents", flush=True)
    return cell


def end_processes(run: str) -> None:
    """End what an agent has left behind."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == run:
                print(f"  left behind: {' '.join(process.cmdline())[:100]}", flush=True)
                process.kill()
        except psutil.Error:
            continue


if __name__ == "__main__":
    sys.exit(main())

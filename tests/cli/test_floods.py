"""Commands against agents that flood them, or are deaf: memory stays bounded, and one signal ends all."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from client.stage import PATIENCE, flooding, memory_until, wait_until_prompted
from coupler.client.prompt import GRACE

MOST_MEMORY = 300_000_000
"""Bytes that a command may take, whatever its agent says."""

LEEWAY = 3.0
"""Seconds beyond the grace: half of one until a process is killed, the rest for a loaded machine."""

UPDATES = (
    *("text", "thoughts", "messages", "small text", "text with meta", "user text", "images"),
    *("calls", "long calls", "open calls", "unnamed calls", "output", "growing output", "terminal output"),
    *("plans", "commands", "options", "modes", "titles", "usage", "notices", "unknown updates"),
    *("unknown notifications", "other sessions"),
)
REQUESTS = ("permissions", "writes", "unknown requests")


def start(
    command: str, agent: list[str], *options: str, stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "coupler", command, shlex.join(agent), *options]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE)


def until_full(pipe: int) -> None:
    """Wait until nothing more can be written to a pipe."""
    deadline = time.monotonic() + PATIENCE
    while select.select([], [pipe], [], 0)[1]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def interrupted(process: subprocess.Popen[bytes], number: int) -> float:
    """Send one signal, and return how many seconds it takes until the command has ended."""
    began = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=60)
    return time.monotonic() - began


def flooded(kind: str, tmp_path: Path, *options: str) -> tuple[int, float, int | None]:
    """Flood `coupler exec` for two seconds, then interrupt it: its memory, the time to its end, its code."""
    with (tmp_path / "out").open("wb") as out:
        process = start("exec", flooding(kind, tmp_path), "go", *options, stdout=out.fileno())
        wait_until_prompted(tmp_path)
        most = memory_until(lambda: process.poll() is not None, process.pid, seconds=2)
        took = interrupted(process, signal.SIGINT)
    return most, took, process.returncode


def test_an_answer_that_is_too_long_is_cut_and_exec_says_so(tmp_path: Path) -> None:
    process = start("exec", flooding("text", tmp_path, 2_000), "go", "--format", "json")
    out, err = process.communicate(timeout=60)

    result = json.loads(out)
    assert len(result["text"]) == 16 * 1024 * 1024
    assert result["cut"]["characters"] > 2_000_000
    assert result["cut"]["limits"] == ["characters = 16,777,216"]
    assert (result["stop_reason"], result["exit_code"], process.returncode) == ("end_turn", 4, 4)
    assert b"coupler exec: the answer was cut: " in err and b"characters = 16,777,216" in err


def test_an_answer_that_is_whole_is_not_cut(tmp_path: Path) -> None:
    process = start("exec", flooding("calls", tmp_path, 40), "go", "--format", "json")
    out, _ = process.communicate(timeout=60)
    assert (json.loads(out)["cut"], process.returncode) == (None, 0)


@pytest.mark.parametrize("kind", ["text", "long calls"])
def test_an_endless_agent_does_not_fill_memory_and_one_interrupt_ends_it(kind: str, tmp_path: Path) -> None:
    most, took, code = flooded(kind, tmp_path, "--format", "json")
    assert most < MOST_MEMORY
    assert took < GRACE + LEEWAY
    assert code == 130


@pytest.mark.long
@pytest.mark.parametrize("kind", [*UPDATES, *REQUESTS])
def test_no_kind_of_update_or_request_fills_memory(kind: str, tmp_path: Path) -> None:
    options = ("--format", "ndjson", "--files", "write", "--permissions", "allow-all", "--cwd", str(tmp_path))
    most, took, code = flooded(kind, tmp_path, *options)
    assert most < MOST_MEMORY
    assert took < GRACE + LEEWAY
    assert code == 130


@pytest.mark.parametrize("command", ["exec", "chat"])
def test_a_deaf_agent_is_ended_after_the_grace(command: str, tmp_path: Path) -> None:
    options = ["go"] if command == "exec" else ["--plain"]
    process = start(command, flooding("silence", tmp_path), *options)
    assert process.stdin is not None
    if command == "chat":
        process.stdin.write(b"go\n")
        process.stdin.flush()
    wait_until_prompted(tmp_path)
    assert interrupted(process, signal.SIGTERM) < GRACE + LEEWAY
    assert process.returncode == 143


@pytest.mark.skipif(sys.platform == "win32", reason="a blocked write cannot be interrupted there")
def test_an_interrupt_ends_a_command_whose_output_nobody_reads(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        process = start("exec", flooding("text", tmp_path), "go", stdout=writer)
        wait_until_prompted(tmp_path)
        until_full(writer)
        assert interrupted(process, signal.SIGINT) < GRACE + LEEWAY
        assert process.returncode == 130
    finally:
        os.close(reader)
        os.close(writer)

"""The machine: programs that parts of Coupler use where they are found, the terminal, and the language."""

from __future__ import annotations

import contextlib
import locale
import os
import platform
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from coupler.cli.sessions.wording import one_line, short_directory

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section

PATIENCE = 3.0
"""Seconds that a program has to tell its version."""

LONGEST_VERSION = 60
"""Characters of what a program says of its version."""


class Program(NamedTuple):
    """A program that is used if it is there."""

    name: str
    title: str
    use: str
    """What is missing without it, as a sentence."""
    install: str


PROGRAMS = (
    Program(
        "git",
        "git",
        "the coder does not know what has changed in a project",
        "install git, from https://git-scm.com or by your system's packages",
    ),
    Program(
        "rg",
        "ripgrep",
        "the coder searches large projects more slowly",
        "install ripgrep by your system's packages",
    ),
    Program(
        "node",
        "node",
        "agents that npx fetches cannot be started",
        "install Node.js 20 or newer, from https://nodejs.org or by your system's packages",
    ),
    Program(
        "bwrap",
        "bubblewrap",
        "the coder's commands cannot run in a sandbox",
        "install bubblewrap by your system's packages",
    ),
)


def examine(section: Section, circumstances: Circumstances) -> None:
    """What is here."""
    section.ok("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    _look_for_programs(section, circumstances)
    _look_at_sandbox(section, circumstances)
    _look_at_terminal(section)


def _look_for_programs(section: Section, circumstances: Circumstances) -> None:
    wanted = [each for each in PROGRAMS if each.name != "bwrap" or sys.platform == "linux"]
    places = {each.name: shutil.which(each.name) for each in wanted}
    section.facts["programs"] = places
    ask = partial(_version, patience=min(PATIENCE, circumstances.patience))
    there = [place for place in places.values() if place is not None]
    with ThreadPoolExecutor(max(1, len(there))) as threads:
        versions = dict(zip(there, threads.map(ask, there), strict=True))
    for program in wanted:
        place = places[program.name]
        if place is None:
            section.note(program.title, f"not found: without it {program.use}", program.install)
        else:
            section.ok(program.title, ", ".join(filter(None, (versions[place], short_directory(place)))))


def _version(program: str, patience: float) -> str | None:
    said = _said_by([program, "--version"], patience)
    if said is None or not said.stdout.strip():
        return None
    line = one_line(said.stdout.decode(errors="replace").strip().splitlines()[0])
    words = [word for word in line.split() if any(map(str.isdigit, word))]
    return (words or [line])[0][:LONGEST_VERSION]


def _said_by(command: list[str], patience: float) -> subprocess.CompletedProcess[bytes] | None:
    """What a program writes; one that does not end in time is ended, with all that it has started."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError:
        return None
    with process:
        try:
            stdout, stderr = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            _end(process)
            return None
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _end(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _look_at_sandbox(section: Section, circumstances: Circumstances) -> None:
    """Containers and hardened systems do not let everybody make one; only a trial tells."""
    from coupler.config import keys

    setting = circumstances.config[keys.CODER_SANDBOX]
    section.facts["sandbox"] = setting
    if setting == "off":
        return
    trouble = _trouble_with_sandbox(min(PATIENCE, circumstances.patience))
    if trouble is None:
        section.ok("sandbox", f'`coder.sandbox` is "{setting}", and a sandbox can be made')
    elif setting == "on":
        section.problem(
            "sandbox",
            f'`coder.sandbox` is "on", but {trouble}: the coder runs no command',
            'mend that, or set `coder.sandbox` to "auto" or "off"',
        )
    else:
        section.note("sandbox", f'`coder.sandbox` is "auto", but {trouble}: commands run without a sandbox')


def _trouble_with_sandbox(patience: float) -> str | None:
    if sys.platform != "linux":
        return f"there is no sandbox for {sys.platform}"
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    trial = [program, "--ro-bind", "/", "/", "--unshare-pid", "--", "/bin/sh", "-c", ":"]
    done = _said_by(trial, patience)
    if done is None:
        return "bubblewrap does not answer"
    if done.returncode == 0:
        return None
    why = one_line(done.stderr.decode(errors="replace").strip().partition("\n")[0])
    return f"bubblewrap does not work here ({why[: LONGEST_VERSION * 2]})"


def _look_at_terminal(section: Section) -> None:
    encoding = locale.getpreferredencoding(False)
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    section.facts |= {"encoding": encoding, "is_terminal": is_terminal, "term": os.environ.get("TERM")}
    if is_terminal:
        size = shutil.get_terminal_size()
        kind = one_line(os.environ.get("TERM", "")) or "of an unknown kind"
        section.ok("terminal", f"{kind}, {size.columns} columns and {size.lines} lines")
    else:
        section.ok("terminal", "none: what is written goes to a file or a program")
    if encoding.lower().replace("-", "") == "utf8":
        section.ok("language", f"{_language() or 'no language is set'}, {encoding}")
    else:
        section.note(
            "language",
            f"text is {encoding} here, so that many characters cannot be shown",
            "set LANG to a language with UTF-8, such as C.UTF-8, or PYTHONUTF8=1",
        )


def _language() -> str | None:
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next((one_line(name) for name in names if name), None)

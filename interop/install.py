"""Installs agents from npm and PyPI as `locks/` pins them, each in a directory of its own below `build/`."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from agents import HERE, Agent
from labs import others

ROOT = HERE.parent
PLACES = ROOT / "build" / "interop"
LOCKS = HERE / "locks"
UV = ROOT / "build" / "lock" / "bin" / "uv"
"""What pins packages from PyPI, with hashes: `make lock` installs it for as long as it runs."""
NODE = "24.21.0"
"""The version of Node.js that is fetched where the one on the PATH is older than some agents need."""
NODE_NEEDED = 22
NPM = ["--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install"]


class InstallError(Exception):
    """An agent cannot be installed; the message says why."""


def install(agent: Agent) -> Path:
    """Return the directory of an agent, with what its lock pins in it."""
    if agent.is_shared:
        done(others.install)
        return others.NODE
    place, lock = PLACES / agent.directory, lock_of(agent)
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    stamp = place / ".installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return place
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if agent.python is None:
        for file in ("package.json", "package-lock.json"):
            shutil.copy(lock.parent / file, place)
        # `npm ci` would refuse a lock that does not name the programs for other platforms.
        done(run, "npm", "install", "--no-save", *NPM, cwd=place)
    else:
        done(run, python(agent), "-m", "venv", "venv", cwd=place)
        pinned = ["--no-deps", "--require-hashes", "--requirement", str(lock)]
        done(run, "venv/bin/python", *PIP, *pinned, cwd=place)
    stamp.write_text(wanted)
    return place


def renew(agent: Agent) -> None:
    """Pin the newest versions in an agent's lock."""
    if agent.is_shared:
        return
    lock = lock_of(agent)
    lock.parent.mkdir(parents=True, exist_ok=True)
    if agent.python is None:
        about = {"name": f"interop-{agent.directory}", "private": True}
        (lock.parent / "package.json").write_text(json.dumps(about, indent=2) + "\n")
        newest = [f"{package}@latest" for package in agent.packages]
        only = ["--package-lock-only", "--omit-lockfile-registry-resolved", "--save-exact"]
        done(run, "npm", "install", *only, *NPM, *newest, cwd=lock.parent)
        return
    if not UV.exists():
        raise InstallError("packages from PyPI are pinned by `make lock`, which installs uv for that")
    wanted = lock.with_suffix(".in")
    wanted.write_text("".join(f"{package}\n" for package in agent.packages))
    options = ["--quiet", "--upgrade", "--universal", "--generate-hashes", "--no-annotate"]
    told = ["--custom-compile-command", "make lock", "--python-version", agent.python]
    try:
        done(run, str(UV), "pip", "compile", *options, *told, "-o", lock.name, wanted.name, cwd=lock.parent)
    finally:
        wanted.unlink()


def version(agent: Agent) -> str:
    """The version that is pinned."""
    package = agent.packages[0].partition("[")[0]
    if others.PYTHON_SDK.startswith(f"{package}=="):
        return others.PYTHON_SDK.partition("==")[2]
    if agent.python is None:
        folder = others.NODE if agent.is_shared else lock_of(agent).parent
        pinned: str = json.loads((folder / "package.json").read_text())["dependencies"][package]
        return pinned
    lines = lock_of(agent).read_text().splitlines()
    return next(line.split()[0].partition("==")[2] for line in lines if line.startswith(f"{package}=="))


def lock_of(agent: Agent) -> Path:
    return LOCKS / agent.directory / ("package-lock.json" if agent.python is None else "requirements.txt")


def path() -> str:
    """The PATH for agents, with a Node.js that is new enough."""
    return os.pathsep.join([str(node().parent), os.environ.get("PATH", os.defpath)])


def node() -> Path:
    found = shutil.which("node")
    if found is not None:
        said = subprocess.run([found, "--version"], check=True, capture_output=True, text=True).stdout
        if int(said.lstrip("v").partition(".")[0]) >= NODE_NEEDED:
            return Path(found)
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    package = f"node-{platform.system().lower()}-{machine}"
    place = PLACES / "node"
    program = place / "node_modules" / package / "bin" / "node"
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        done(run, "npm", "install", "--no-save", "--prefix", str(place), *NPM, f"{package}@{NODE}", cwd=place)
    return program


def python(agent: Agent) -> str:
    """The program of the Python that an agent needs, on the PATH or one that pyenv has."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    programs = [shutil.which(f"python{agent.python}"), *sorted(versions.glob(f"{agent.python}.*/bin/python"))]
    for program in programs:
        # What pyenv puts on the PATH need not be a version that can be started.
        if (
            program
            and subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
        ):
            return str(program)
    raise InstallError(f"it needs Python {agent.python}, which is not installed")


def run(*words: str, cwd: Path) -> None:
    subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True)


def done(step: Callable[..., None], *words: str, **options: Path) -> None:
    """Take a step; what npm or pip say when they fail is the reason."""
    try:
        step(*words, **options)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise InstallError(said[-1] if said else str(error)) from None
    except OSError as error:
        raise InstallError(str(error)) from None

"""Agents and a client that nobody here wrote, from the package registries: installed once, run without a key.

    python tests/labs/others.py        installs what is not there yet

The examples of the official SDKs do what they do; opencode and gemini-cli talk to the scripted model.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
NODE = ROOT / "tests" / "interop" / "agents"
"""Where `package.json` says what is installed from npm, and in which versions."""
MODULES = NODE / "node_modules"
STAMP = MODULES / ".installed"
OTHERS = ROOT / "build" / "others"

PYTHON_SDK = "agent-client-protocol==0.12.1"
PYTHON_EXAMPLES = OTHERS / "agent_client_protocol-0.12.1" / "examples"

MODEL = "scripted"
NOT_INSTALLED = "agents of others are not installed: run `make node`"


class MissingError(Exception):
    """Something cannot be started, for lack of what the message names."""


@dataclass(frozen=True)
class Other:
    """An agent, ready to be started, and what makes it work."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


def python_sdk(example: str = "agent.py") -> Other:
    """An example of the official Python SDK; they are in its source distribution only."""
    if not PYTHON_EXAMPLES.is_dir():
        raise MissingError(NOT_INSTALLED)
    return Other([sys.executable, str(PYTHON_EXAMPLES / example)])


def typescript_sdk() -> Other:
    """The example of the official TypeScript SDK, in the newest release that holds one."""
    return Other([_node(), str(_installed("@agentclientprotocol/sdk/dist/examples/agent.js"))])


def opencode(home: Path, model_address: str) -> Other:
    """opencode, with everything that it keeps in `home`."""
    _node()
    programs = sorted(MODULES.glob("opencode-*-*/bin/opencode*"))
    if not programs:
        raise MissingError(NOT_INSTALLED)
    config = home / "opencode.json"
    config.write_text(json.dumps(_opencode_config(f"{model_address}/v1")), encoding="utf-8")
    kept = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return Other(
        [str(programs[0]), "acp"],
        {
            "HOME": str(home),
            **{name: str(home / name.lower()) for name in kept},
            "OPENCODE_CONFIG": str(config),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
    )


def gemini(home: Path, model_address: str) -> Other:
    """gemini-cli, with everything that it keeps in `home`."""
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps(_gemini_settings()), encoding="utf-8")
    return Other(
        [_node(), str(_installed("@google/gemini-cli/bundle/gemini.js")), "--acp"],
        {
            "HOME": str(home),
            "GOOGLE_GEMINI_BASE_URL": model_address,
            "GEMINI_API_KEY": "none",
            "GEMINI_MODEL": "gemini-2.5-flash",
            # It would start itself a second time, with more memory than anything here needs.
            "GEMINI_CLI_NO_RELAUNCH": "true",
        },
    )


def acpx() -> list[str]:
    """The command of acpx, a client for shells."""
    return [_node(), str(_installed("acpx/dist/cli.js"))]


def _opencode_config(url: str) -> dict[str, object]:
    model = {"name": "Scripted", "limit": {"context": 100_000, "output": 4_096}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Lab",
        "options": {"baseURL": url, "apiKey": "none"},
        "models": {MODEL: model},
    }
    name = f"lab/{MODEL}"
    return {
        "model": name,
        "small_model": name,
        "autoupdate": False,
        "share": "disabled",
        "provider": {"lab": provider},
        "permission": {"edit": "ask", "bash": "ask", "coupler*": "ask"},
    }


def _gemini_settings() -> dict[str, object]:
    return {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        raise MissingError("node is missing")
    return node


def _installed(path: str) -> Path:
    if not (MODULES / path).exists():
        raise MissingError(NOT_INSTALLED)
    return MODULES / path


def _locked(requirement: str) -> str:
    """Return the lines of a requirement in the lock, with the hashes of its files."""
    lines = rf"^{re.escape(requirement)} \\\n(?: +--hash=.+\n)+"
    found = re.search(lines, (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"requirements-dev.txt does not pin {requirement} with hashes: run `make lock`")
    return found[0]


def install() -> None:
    """Fetch what is not there; an error of `pip` or `npm` is a CalledProcessError."""
    if not PYTHON_EXAMPLES.is_dir():
        OTHERS.mkdir(parents=True, exist_ok=True)
        wanted = OTHERS / "python-sdk.txt"
        wanted.write_text(_locked(PYTHON_SDK))
        download = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(OTHERS)]
        pinned = ["--require-hashes", "--requirement", str(wanted)]
        subprocess.run([sys.executable, "-m", "pip", *download, *pinned], check=True)
        with tarfile.open(OTHERS / f"{PYTHON_EXAMPLES.parent.name}.tar.gz") as archive:
            # The first releases of Python 3.11 have no filters.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(OTHERS)
    wanted = hashlib.sha256((NODE / "package-lock.json").read_bytes()).hexdigest()
    if shutil.which("npm") and not (STAMP.exists() and STAMP.read_text() == wanted):
        # Nothing of theirs has to be built, and so nothing of theirs is run. `npm ci` would refuse a lock
        # that does not name the programs for other platforms, which not every registry has.
        options = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(["npm", "install", *options], cwd=NODE, check=True)
        STAMP.write_text(wanted)


def main() -> int:
    """Install. Without a registry the tests that need it are skipped; under CI they must run."""
    try:
        install()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"agents of others could not be installed: {error}", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

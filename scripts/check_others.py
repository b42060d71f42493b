"""Runs `coupler check` on agents that nobody here wrote, and keeps the reports for docs/findings.md.

Everything is installed below build/others from the package registries. No key and no network is needed
afterwards: opencode talks to the scripted model of tests/labs.

    python scripts/check_others.py [python-sdk] [python-sdk-echo] [typescript-sdk] [opencode]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
OTHERS = ROOT / "build" / "others"
PYTHON_SDK = "agent-client-protocol==0.12.1"
# The newest release whose package holds its example.
TYPESCRIPT_SDK = "@agentclientprotocol/sdk@1.9.0"
OPENCODE = "opencode-ai@1.18.33"

sys.path.insert(0, str(ROOT / "tests" / "labs"))
import scripted_model  # noqa: E402


@dataclass(frozen=True)
class Subject:
    """An agent, ready to be started, and what makes it work."""

    command: list[str]
    options: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


def main(names: list[str]) -> int:
    for name in names or SUBJECTS:
        OTHERS.mkdir(parents=True, exist_ok=True)
        subject = SUBJECTS[name]()
        report = OTHERS / f"{name}.json"
        page = ["--html", str(report.with_suffix(".html"))]
        check = [sys.executable, "-m", "coupler", "check", "--json", str(report), *page, *subject.options]
        print(f"\n== {name}: {' '.join(subject.command)}\n", flush=True)
        elsewhere = OTHERS / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        env = {**os.environ, **subject.env}
        subprocess.run([*check, "--", *subject.command], cwd=elsewhere, env=env, check=False)
    return 0


def python_sdk(example: str = "agent.py") -> Subject:
    return Subject([sys.executable, str(python_sdk_examples() / example)])


def python_sdk_examples() -> Path:
    """The examples are in the source distribution only."""
    name = PYTHON_SDK.replace("==", "-").replace("agent-client-protocol", "agent_client_protocol")
    if not (OTHERS / name).is_dir():
        download = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(OTHERS)]
        subprocess.run([sys.executable, "-m", "pip", *download, PYTHON_SDK], check=True)
        with tarfile.open(OTHERS / f"{name}.tar.gz") as archive:
            archive.extractall(OTHERS, filter="data")
    return OTHERS / name / "examples"


def typescript_sdk() -> Subject:
    directory = install_from_npm("typescript", TYPESCRIPT_SDK, "zod")
    agent = directory / "node_modules/@agentclientprotocol/sdk/dist/examples/agent.js"
    # Its one turn takes seconds, asks a permission and so serves both purposes.
    return Subject(["node", str(agent)], ["--slow-prompt", "Take your time"])


def opencode() -> Subject:
    directory = install_from_npm("opencode", OPENCODE)
    program = next(directory.glob("node_modules/opencode-*/bin/opencode"))
    server = scripted_model.serve()
    config = directory / "config.json"
    config.write_text(json.dumps(opencode_config(f"http://127.0.0.1:{server.server_address[1]}/v1")))
    home = directory / "home"
    home.mkdir(exist_ok=True)
    homes = {
        name: str(home / name.lower()) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
    }
    return Subject(
        [str(program), "acp"],
        ["--prompt", "Please write a note", "--slow-prompt", "Be slow", "--timeout", "20"],
        {
            "HOME": str(home),
            **homes,
            "OPENCODE_CONFIG": str(config),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
    )


def opencode_config(url: str) -> dict[str, object]:
    model = {"name": "Scripted", "limit": {"context": 100_000, "output": 4_096}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Lab",
        "options": {"baseURL": url, "apiKey": "none"},
        "models": {scripted_model.MODEL: model},
    }
    name = f"lab/{scripted_model.MODEL}"
    return {
        "model": name,
        "small_model": name,
        "autoupdate": False,
        "share": "disabled",
        "provider": {"lab": provider},
        "permission": {"edit": "ask", "bash": "ask"},
    }


def install_from_npm(name: str, *packages: str) -> Path:
    directory = OTHERS / name
    if not (directory / "node_modules").is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "package.json").write_text('{"private": true}')
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--silent", *packages], cwd=directory, check=True
        )
    return directory


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "python-sdk": python_sdk,
    "python-sdk-echo": lambda: python_sdk("echo_agent.py"),
    "typescript-sdk": typescript_sdk,
    "opencode": opencode,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Who is measured: the same agent and the same client on each library, and a bare program."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NODE = HERE.parent / "tests" / "interop" / "node"
FIREHOSE = [sys.executable, str(HERE / "agents" / "firehose.py")]

COUPLER, PYTHON, TYPESCRIPT, BARE = "Coupler", "Python SDK", "TypeScript SDK", "bare program"

NO_STORE = "--no-store"
"""What makes Coupler's agent keep no sessions, like the peers."""


@dataclass(frozen=True)
class Peer:
    """A library: the command of its agent, and of its client up to the number of chunks."""

    name: str
    agent: list[str]
    client: list[str] | None = None

    def missing(self) -> str | None:
        """What is not installed, or None."""
        if shutil.which(self.agent[0]) is None:
            return f"{self.agent[0]} is not installed"
        if self.name == TYPESCRIPT and not (NODE / "node_modules").is_dir():
            return "the TypeScript SDK is not installed: run make node"
        return None


def all_peers() -> list[Peer]:
    agents, clients = HERE / "agents", HERE / "clients"
    console_script = str(Path(sys.executable).with_name("coupler"))
    return [
        Peer(
            COUPLER,
            [console_script, "serve", str(agents / "coupler_agent.py")],
            [sys.executable, str(clients / "coupler_client.py")],
        ),
        Peer(
            PYTHON,
            [sys.executable, str(agents / "python_sdk_agent.py")],
            [sys.executable, str(clients / "python_sdk_client.py")],
        ),
        Peer(
            TYPESCRIPT,
            ["node", str(NODE / "agent.mjs"), "tokens"],
            ["node", str(NODE / "bench_client.mjs")],
        ),
        Peer(BARE, FIREHOSE),
    ]


def environment(home: Path) -> dict[str, str]:
    """Ours, with byte code and normal buffering on, and Coupler's memory of its targets in `home`."""
    left_out = {
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "COVERAGE_PROCESS_START",
        "COVERAGE_PROCESS_CONFIG",
    }
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"COUPLER_HOME": str(home)}

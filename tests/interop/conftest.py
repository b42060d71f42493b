"""The official SDKs as peers: their agents and clients as commands."""

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NODE = HERE / "node"


@pytest.fixture(params=["python", "typescript"])
def sdk_agent(request: pytest.FixtureRequest) -> list[str]:
    """The command of an agent on one of the official SDKs."""
    if request.param == "python":
        return [sys.executable, str(HERE / "python_sdk_agent.py")]
    return [node_program(), str(NODE / "agent.mjs")]


@pytest.fixture(params=["python", "typescript"])
def sdk_client(request: pytest.FixtureRequest) -> list[str]:
    """The command of a client on one of the official SDKs, up to PROMPT PERMISSION COMMAND…"""
    if request.param == "python":
        return [sys.executable, str(HERE / "python_sdk_client.py")]
    return [node_program(), str(NODE / "client.mjs")]


@pytest.fixture
def coupler_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command that serves Coupler's agent, with a memory of its own."""
    monkeypatch.setenv("COUPLER_HOME", str(tmp_path / "home"))
    return [str(Path(sys.executable).with_name("coupler")), "serve", str(HERE / "coupler_agent.py")]


def node_program() -> str:
    """Where node is. Without it, or without the SDK, the test is skipped; under CI that is an error."""
    node = shutil.which("node")
    if node is not None and (NODE / "node_modules" / "@agentclientprotocol").is_dir():
        return node
    reason = "node is missing" if node is None else "the TypeScript SDK is missing: run `make node`"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)

"""What is released: what is in it, that it can be built again, and that it runs with the core alone."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent

GREETER = """
from coupler import Turn

async def agent(turn: Turn) -> None:
    await turn.say(f"You said: {turn.text}")
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUPLER_HOME", str(tmp_path / "home"))


def build(source: Path, directory: Path, **env: str) -> dict[str, bytes]:
    """Build a release as `make dist` does, and return its files."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=240, env={**os.environ, **env})
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    # Without isolation: the build backend is one of the pinned development tools.
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(directory),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    [built] = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs of an environment into which only the wheel was installed."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment)
    programs = environment / ("Scripts" if sys.platform == "win32" else "bin")
    # By the pip of the tests, for an environment that gets its own takes longer to make than to use.
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python")]
    install = [*pip, "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    return programs


def test_the_wheel_is_typed_and_carries_the_schema_and_nothing_foreign(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "coupler/py.typed" in names
    assert any(name.startswith("coupler/schema/") and name.endswith(".json") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"coupler"}


def test_the_wheel_carries_a_valid_bill_of_materials_of_everything_that_it_may_need(wheel: Path) -> None:
    [name] = [each for each in zipfile.ZipFile(wheel).namelist() if ".dist-info/sboms/" in each]
    text = zipfile.ZipFile(wheel).read(name).decode()
    bill = json.loads(text)
    parts = {each["name"]: each for each in bill["components"]}
    [direct] = [each for each in bill["dependencies"] if each["ref"] == bill["metadata"]["component"]["purl"]]

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert name.endswith("/coupler.cdx.json")
    assert {name for name, each in parts.items() if each["scope"] == "required"} >= {
        "click",
        "msgspec",
        "rich",
    }
    assert {"name": "coupler:extra", "value": "coder"} in parts["langchain"]["properties"]
    assert {each.partition("@")[0] for each in direct["dependsOn"]} >= {"pkg:pypi/click", "pkg:pypi/mcp"}
    assert "timestamp" not in bill["metadata"]
    for each in parts.values():
        [files] = each["externalReferences"]
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["licenses"] and files["hashes"], each["name"]


def test_the_bill_of_materials_is_that_of_the_lock() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate_sbom.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_release_that_is_built_again_elsewhere_has_the_same_bytes(tmp_path: Path) -> None:
    # Given a release, and its source distribution unpacked in another place
    released = build(ROOT, tmp_path / "first", SOURCE_DATE_EPOCH="1700000000")
    [source] = (tmp_path / "first").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path / "elsewhere")
    [unpacked] = (tmp_path / "elsewhere").iterdir()

    # When it is built from there, then it is the same
    assert build(unpacked, tmp_path / "second", SOURCE_DATE_EPOCH="1700000000") == released
    assert sorted(Path(name).suffix for name in released) == [".gz", ".whl"]


@pytest.mark.parametrize("command", [["coupler"], ["python", "-m", "coupler"]])
def test_the_installed_command_tells_its_version(installed: Path, command: list[str]) -> None:
    done = subprocess.run(
        [str(installed / command[0]), *command[1:], "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "0.1.0" in done.stdout


def test_the_installed_command_serves_a_prompt(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text(GREETER)
    client = f"""
import asyncio
from coupler import connect

async def main():
    async with connect([{str(installed / "coupler")!r}, "serve", "greeter.py"], cwd=".") as agent:
        session = await agent.new(cwd=".")
        print((await session.prompt("hello")).text)

asyncio.run(main())
"""
    done = subprocess.run(
        [str(installed / "python"), "-c", client], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "You said: hello\n", done.stderr


def test_a_here_document_gets_its_two_answers(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text(GREETER)
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
    ]
    done = subprocess.run(
        [str(installed / "coupler"), "serve", "greeter.py"],
        input="".join(json.dumps(request) + "\n" for request in requests),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
    assert done.returncode == 0


def test_the_installed_command_checks_an_agent(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text(GREETER)
    coupler = str(installed / "coupler")
    done = subprocess.run(
        [coupler, "check", "--only", "A01,A25,S01", "--", coupler, "serve", "greeter.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ACP v1 agent: conforms (2 passed, 1 skipped)" in done.stdout

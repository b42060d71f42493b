"""The attacks of `make attack`, with small numbers: nothing of Coupler breaks."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ATTACK = [sys.executable, str(ROOT / "attack")]
NAMES = (
    *("frames", "kills", "cancels", "floods", "endless"),
    *("escapes", "disguises", "races", "large inputs", "secrets"),
)


@pytest.mark.long
@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("name", NAMES)
def test_a_short_attack_finds_nothing(name: str) -> None:
    done = subprocess.run([*ATTACK, "--short", "--only", name], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: " in done.stdout
    assert ", 0 failures, " in done.stdout


def test_every_attack_is_listed() -> None:
    done = subprocess.run([*ATTACK, "--list"], capture_output=True, text=True, check=True)

    assert tuple(line[:13].rstrip() for line in done.stdout.splitlines()) == NAMES

"""What is allowed, run by real shells: nothing else may be started or written.

Texts are made by cutting, joining and sprinkling known ones; those that are allowed are run where the only
programs are two stubs, one that is allowed and one that is not.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from permission.parts import Bench
from permission.test_commands import HARMLESS, UNSAFE

SHELLS = [path for name in ("bash", "dash", "sh") if (path := shutil.which(name)) is not None]
TEXTS = 3000
SPRINKLES = [
    *(
        " bad ",
        "\nbad\n",
        ";bad;",
        "$(bad)",
        "`bad`",
        "'bad'",
        '"$(bad)"',
        "&> d/x bad",
        "\\\n",
        "$\\\n(bad)",
    ),
    *(
        " ",
        "\n",
        "'",
        '"',
        "\\",
        "#",
        ";",
        "&",
        "|",
        "(",
        ")",
        "{",
        "}",
        "$",
        "`",
        "<",
        ">",
        "> e",
        "!",
        "=",
        "$'",
    ),
    *(
        "<<EOF\n",
        "\nEOF\n",
        "<<-EOF\n",
        "\tEOF",
        " EOF\n",
        "<<'EOF'\n",
        "&&",
        "||",
        "<(",
        "<<<",
        "&>",
        ">&",
        "do ",
    ),
]

pytestmark = [pytest.mark.long, pytest.mark.skipif(not SHELLS, reason="needs a POSIX shell")]


def tamed(text: str) -> str:
    """The text with stubs for programs, and files of its own directory only."""
    text = re.sub(r"\b(git|ls|cat|wc|grep|echo|make|npm|python)\b", "ok", re.sub(r"\brm\b", "bad", text))
    return re.sub(r"(~|\.\.)?/(?!dev/null)[\w./]*|\.\.|~", "e", text.replace("src/", "d/"))


CORPUS = [tamed(text) for text in [*HARMLESS, *UNSAFE] if len(text) < 200 and "\0" not in text]


def mutated(chance: random.Random) -> str:
    text = chance.choice(CORPUS)
    if chance.random() < 0.3:
        text += chance.choice(["\n", ";", " ", ""]) + chance.choice(CORPUS)
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, len(text))
        if chance.random() < 0.7:
            text = text[:place] + chance.choice(SPRINKLES) + text[place:]
        else:
            text = text[:place] + text[place + chance.randint(1, 4) :]
    return text


def stays_here(text: str) -> bool:
    """Nothing may be touched outside of the test's directory, should the judgement be wrong."""
    return not re.search(r"(?<![\w.])/(?!dev/null)|\.\.|~|\0", text)


@pytest.mark.parametrize("seed", range(2))
def test_a_shell_starts_and_writes_only_what_was_allowed(tmp_path: Path, seed: int) -> None:
    project, programs, log = tmp_path.resolve() / "app", tmp_path / "programs", tmp_path / "log"
    (project / "d").mkdir(parents=True)
    programs.mkdir()
    for name in ("ok", "bad"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} >> '{log}'\n")
        (programs / name).chmod(0o755)
    bench, chance = Bench(project), random.Random(seed)
    environment = {"PATH": str(programs), "HOME": str(project)}

    ran = 0
    for text in (mutated(chance) for _ in range(TEXTS)):
        is_telling = ("bad" in text or ">" in text) and stays_here(text)
        if not is_telling or bench.run(text, "execute(ok *)", "edit(d/**)").decision != "allow":
            continue
        ran += 1
        for path in SHELLS:
            log.write_text("")
            with subprocess.Popen(
                [path, "-c", text],
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as child:
                # An endless loop may go on in the background, too.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(2)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            assert "bad" not in log.read_text(), (path, text)
            assert [each.name for each in project.iterdir()] == ["d"], (path, text)
    assert ran > 10

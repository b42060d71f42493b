"""Pages of the manual, as somebody follows them who does what each says, in its order.

A block of code whose first line is a comment with the name of a file is written to that file. A block
`console` is typed: each line that begins with `$ ` is a command, and what stands below it is what it prints,
where `…` stands for anything. Comments in the page's source, right before a block, say what a reader need
not know:

    <!-- not run: why -->            the block is not followed
    <!-- fails with 3 -->            the last of its commands ends with that code; all others end with 0
    <!-- model: tool a=b | text -->  what the model does when it is asked next
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"(?P<notes>(?:^<!-- [^\n]* -->\n+)*)^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
FILE = re.compile(r"\A(?:#|//|<!--) ([\w./-]+\.\w+)(?: -->)?\n")
NOTE = re.compile(r"<!-- (not run|fails with|model):? (.*?) -->")
LONGEST = 120
"""Seconds that a command may take, on a machine that does much else."""


@dataclass(frozen=True)
class Block:
    """A block of code of a page, and what the page's source says about it."""

    page: str
    line: int
    language: str
    text: str
    notes: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file that this is."""
        named = FILE.match(self.text)
        return named[1] if named else None

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """What is typed, and what is printed then."""
        for typed in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, printed = typed.partition("\n")
            while command.endswith("\\"):
                more, _, printed = printed.partition("\n")
                command = f"{command}\n{more}"
            yield command, printed


def is_followed(page: Path) -> bool:
    """Whether the page is one to be followed from its beginning to its end, and is tested so."""
    return page.parent.name in ("tutorials", "how-to") or page == DOCS / "troubleshooting.md"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in their order."""
    text = page.read_text()
    return [
        Block(
            str(page.relative_to(ROOT)),
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["text"],
            dict(NOTE.findall(found["notes"])),
        )
        for found in BLOCK.finditer(text)
    ]


@dataclass
class Reader:
    """Somebody with an empty directory and a new home, who follows a page."""

    directory: Path
    variables: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    """What stands in pages for something that is elsewhere here, as the address of a model."""

    def __post_init__(self) -> None:
        home = self.directory.parent / f"{self.directory.name}-home"
        for each in (self.directory, home):
            each.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        unset = {"COUPLER_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "VIRTUAL_ENV"}
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        self.variables = {**kept, "HOME": str(home), "PATH": path, "NO_COLOR": "1", **self.variables}

    def follow(self, block: Block) -> None:
        """Do what a block says, and see that it is as the page says."""
        if "not run" in block.notes:
            return
        if block.file is not None:
            self._write(block.file, block.text)
        elif block.language == "console":
            self._type(block)

    def _write(self, name: str, text: str) -> None:
        for shown, here in self.replaced.items():
            text = text.replace(shown, here)
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def _type(self, block: Block) -> None:
        commands = list(block.commands)
        assert commands, f"{block.place}: there is nothing to type"
        expected = [0] * (len(commands) - 1) + [int(block.notes.get("fails with", 0))]
        for (command, printed), code in zip(commands, expected, strict=True):
            ended, output = self.run(command)
            assert ended == code, f"{block.place}: `{command}` ended with {ended}:\n{output}"
            assert fits(printed, output), f"{block.place}: `{command}` printed:\n{output}\nnot:\n{printed}"

    def run(self, command: str) -> tuple[int, str]:
        """One command, with the directory and the variables that those before it have left."""
        state = self.directory.parent / f"{self.directory.name}-state"
        kept = f'{{ export -p; echo cd "$(printf %q "$PWD")"; }} > {shlex.quote(str(state))}'
        before = f". {shlex.quote(str(state))}; " if state.exists() else ""
        done = subprocess.run(
            ["bash", "-c", f"{before}{command}\ncode=$?; {kept}; exit $code"],
            cwd=self.directory,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST,
        )
        return done.returncode, done.stdout


def fits(printed: str, output: str) -> bool:
    """Whether a command has printed what the page shows; a page that shows nothing promises nothing."""
    shown = printed.strip().splitlines()
    if not shown:
        return True
    parts = [r"(?:.*\n)*?" if line.strip() == "…" else _line(line) for line in shown]
    return re.fullmatch("".join(parts), output.strip() + "\n") is not None


def _line(line: str) -> str:
    return ".*?".join(map(re.escape, line.rstrip().split("…"))) + r"\s*\n"

"""An agent that works with the editor's files: it renames a word in all of them, after a yes to each change.

    coupler serve examples/rename.py                   in an editor
    coupler chat "coupler serve examples/rename.py"    in this terminal

    > /rename colour color
    > /rename OldName NewName src/*.py        with all below src

It needs nothing but Coupler. It reads files as the editor has them, with what is not saved yet, and writes
through the editor, so that its undo works. What changes while the user decides is never written over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from coupler import Agent, Command, FileChangedError, Turn, UnsuitableFileError, serve

PASSED_OVER = {"node_modules", "build", "dist", "site"}
USAGE = "Say `/rename OLD NEW`, and after that which files if not all: `/rename OLD NEW docs/*.md`."


class Rename(Agent):
    """Renames whole words: `cat` is none in `category`."""

    title = "Rename a word"
    commands = (Command("rename", "Rename a word everywhere", hint="OLD NEW [FILES]"),)

    async def prompt(self, turn: Turn) -> None:
        words = turn.command.arguments.split() if turn.command else []
        if len(words) not in (2, 3):
            await turn.say(USAGE)
            return
        old, new, *pattern = words
        outcomes: list[str] = []
        for path in files_in(Path(turn.session.cwd), *pattern):
            outcomes += await rename_in(turn, str(path), re.compile(rf"\b{re.escape(old)}\b"), new)
        await turn.say("\n".join(outcomes) or f"`{old}` is in none of the files.")


def files_in(root: Path, pattern: str = "*") -> Iterator[Path]:
    """Relative paths of the files that are the user's work, in the order of their names."""
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        is_passed_over = any(part.startswith(".") or part in PASSED_OVER for part in place.parts)
        if not is_passed_over and fnmatch(str(place), pattern) and path.is_file() and not path.is_symlink():
            yield place


async def rename_in(turn: Turn, path: str, word: re.Pattern[str], name: str) -> list[str]:
    """Show the change, ask, and write; what became of it, or nothing if the word is not there."""
    try:
        old = await turn.files.read(path)
    except UnsuitableFileError:
        return []  # a picture, for example
    new, count = word.subn(lambda _: name, old)
    if new == old:
        return []
    async with turn.tool(f"Rename {count} in {path}", kind="edit", path=path) as call:
        await call.diff(path, old=old, new=new)
        if not await call.permitted():
            return [f"- {path}: left as it was"]
        try:
            await turn.files.write(path, new)
        except FileChangedError:  # the user typed, or another program wrote, since it was read
            call.fail("it has changed meanwhile")
            return [f"- {path}: has changed meanwhile, ask me again"]
    return [f"- {path}: {count} renamed"]


if __name__ == "__main__":
    serve(Rename)

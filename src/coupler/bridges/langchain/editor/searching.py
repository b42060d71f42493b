"""The tools that find files and lines, on the disk and in what the editor has not saved."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PurePath
from typing import Annotated, Any

from coupler.bridges.langchain.current import Current
from coupler.bridges.langchain.editor.finder import Quest, find
from coupler.bridges.langchain.editor.finding.glob import expanded
from coupler.bridges.langchain.editor.found import Found, in_lines, that_fit
from coupler.bridges.langchain.editor.ripgrep import can_search, find_lines, ripgrep
from coupler.bridges.langchain.editor.tool_use import ToolUse, permitted_use, readable_place, running_prompt
from coupler.bridges.langchain.editor.unreadable import missing
from coupler.bridges.langchain.editor.unsaved import unsaved_texts
from coupler.bridges.langchain.tool_calls.own_title import Told
from coupler.permission.action import Action
from coupler.runtime.environment import SpawnError
from coupler.runtime.files import FilePath

MOST_FILES = 500
MOST_LINES = 300
"""Files that are named, and lines that are shown."""

MOST_CONTEXT = 20
"""Lines around each that fits."""

MOST_PLACES = 20
"""Places that an editor is told of."""

Directory = Annotated[
    str, "Where to look: a directory or one file, absolute or relative to the working directory."
]


def finding_title(told: Told) -> str | None:
    """As "Find '*.py' in src"."""
    glob = told.text("glob")
    return f"Find '{glob}'{_where(told)}" if glob is not None else None


def searching_title(told: Told) -> str | None:
    """As "Search 'x' in src"."""
    pattern, glob = told.text("pattern"), told.text("glob")
    if pattern is None:
        return None
    return f"Search '{pattern}'{_where(told)}{f' ({glob})' if glob not in (None, '**') else ''}"


async def find_files(
    glob: Annotated[
        str,
        "Which files, by their paths below the directory: `*` stays in one directory, `**` does not,"
        " as in `src/**/*.{ts,tsx}`. Without a `/` it is a name in any of the directories below.",
    ],
    directory: Directory = ".",
) -> tuple[str, dict[str, Any]]:
    """Find files by their names, without what .gitignore files leave out, caches and installed packages.

    The answer is in the order of paths; if there are too many, the newest are named.
    """
    async with _permitted("Find", directory) as use:
        place = await asyncio.to_thread(_existing, directory, use.prompt)
        quest = Quest(place.real, _checked(glob, place), None, MOST_FILES)
        found = await _find(use.prompt, quest, place)
        text, is_whole = that_fit([hit.path for hit in found.hits])
        if not found.hits:
            text = (
                "No file fits. (What .gitignore files leave out is only found in a directory that is named.)"
            )
        elif found.is_cut:
            text += f"\n… (the newest {len(found.hits)} of {found.total} files: use a narrower glob)"
        elif not is_whole:
            text += "\n… (there are more: use a narrower glob)"
        return text, {"files": found.total, "is_cut": found.is_cut or not is_whole}


async def search(
    pattern: Annotated[str, "A regular expression of Python, matched against each line."],
    directory: Directory = ".",
    glob: Annotated[str, "Only in files with such names, as in `*.py` or `src/**/*.{ts,tsx}`."] = "**",
    ignore_case: Annotated[bool, "Whether `a` also means `A`."] = False,
    context: Annotated[int, f"How many lines to show before and after each; at most {MOST_CONTEXT}."] = 0,
) -> tuple[str, dict[str, Any]]:
    """Search the lines of text files, with unsaved changes of those that you have read or written.

    Each answer line is `path:line: text`, or `path-line- text` for one that only stands near. What .gitignore
    files leave out is not searched, unless you name its directory or the file itself.
    """
    _check(pattern, context)
    async with _permitted("Search", directory) as use:
        place = await asyncio.to_thread(_existing, directory, use.prompt)
        quest = Quest(
            place.real, _checked(glob, place), pattern, MOST_LINES, ignore_case, min(context, MOST_CONTEXT)
        )
        everything = await _find(use.prompt, quest, place)
        left_out = await _not_readable(use.prompt, {hit.path for hit in everything.hits})
        found = everything.without(left_out)
        places = [(hit.path, hit.line) for hit in found.hits if hit.is_match]
        if places:
            use.works_in(*places[:MOST_PLACES])
        text, is_whole = that_fit(in_lines(found, context))
        is_cut = found.is_cut or not is_whole
        if is_cut:
            text += "\n… (there is more: use a narrower pattern, glob or directory)"
        if left_out:
            text += f"\n({_files(left_out)} left out: reading has to be permitted; use read_file)"
        outcome = {"matches": found.matches, "is_cut": is_cut, "left_out": sorted(left_out)}
        return text.strip("\n") or "Nothing fits.", outcome


@asynccontextmanager
async def _permitted(verb: str, directory: str) -> AsyncIterator[ToolUse]:
    """A use that is permitted: what it looks at is only read, and what must not be read is left out.

    So it is judged as reading, unless somebody has said something about searching.
    """
    prompt = running_prompt()
    session = prompt.session
    place = readable_place(directory, session)
    action = Action(kind="search", paths=(place.shown,), cwd=session.cwd, roots=session.roots)
    verdict = await session.project.permitting().judge(action)
    async with permitted_use(verb, "search" if verdict.is_ruled else "read", directory) as use:
        yield use


async def _find(prompt: Current, quest: Quest, place: FilePath) -> Found:
    """What is found, by paths for people: on the disk, and in the editor in place of that."""
    turn = prompt.turn

    async def look() -> Found:
        texts = await unsaved_texts(turn, place.real)
        program = ripgrep(prompt.session.roots) if can_search(quest) else None
        found = None
        if program is not None and place.real not in texts:
            try:
                found = await find_lines(program, quest)
            except SpawnError:
                found = None
        if found is None:
            return await find(quest._replace(texts=texts))
        if not texts:
            return found
        unsaved = await find(quest._replace(texts=texts, walks=False))
        return found.without(texts).joined(unsaved, quest.most)

    def shown(path: str) -> str:
        whole = f"{place.shown}{path[len(place.real) :]}"
        return whole.removeprefix(prompt.session.cwd.rstrip(os.sep) + os.sep)

    found = await turn.own(look())
    return found.renamed(shown)


def _existing(directory: str, prompt: Current) -> FilePath:
    place = readable_place(directory, prompt.session)
    if not Path(place.real).exists() and place.real not in prompt.session.known_files:
        raise missing(place)
    return place


def _checked(glob: str, place: FilePath) -> str:
    """The glob as one below the place: models also write them from the root on."""
    glob = glob.removeprefix("./") or "**"
    for start in (place.shown, place.real):
        glob = glob.removeprefix(start.rstrip("/") + "/")
    if glob.startswith("/") or ".." in PurePath(glob).parts:
        raise ValueError(f"the glob {glob!r} leads out of the directory: name another directory")
    expanded(glob)
    return glob


def _check(pattern: str, context: int) -> None:
    if not pattern:
        raise ValueError("the pattern is empty: name what to look for, or use find_files")
    if context < 0:
        raise ValueError("context is a number of lines from 0 on")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        advice = "to look for the characters themselves, put a \\ before each of ( ) [ ] { } * + ? . | ^ $"
        raise ValueError(f"the pattern is no regular expression: {error}; {advice}") from None


async def _not_readable(prompt: Current, paths: set[str]) -> set[str]:
    session, permitting = prompt.session, prompt.session.project.permitting()
    roots = (*session.roots, *session.readable_places)
    refused = set()
    for path in paths:
        whole = str(Path(session.cwd, path))
        action = Action(kind="read", name="read_file", paths=(whole,), cwd=session.cwd, roots=roots)
        if (await permitting.judge(action)).decision != "allow":
            refused.add(path)
    return refused


def _where(told: Told) -> str:
    directory = told.path("directory")
    return f" in {directory}" if directory not in (None, ".") else ""


def _files(paths: set[str]) -> str:
    return f"{len(paths)} file{'s were' if len(paths) > 1 else ' was'}"

"""The tools `find_files`, `search` and `list_directory`, for the disk and what the editor has not saved."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from coupler.agent.errors import EditorError
from coupler.agent.files import EditorFiles
from coupler.langchain.current import Current, further_rules
from coupler.langchain.editor_tools.reading import missing_file
from coupler.langchain.editor_tools.search_program import (
    LARGEST_FILE,
    SKIPPED,
    compiled,
    directory_entries,
    expanded,
    is_in_repository,
    lines_in,
    lines_of_any,
    shortened,
)
from coupler.langchain.editor_tools.tool_use import (
    ToolUse,
    permitted_use,
    tool_use,
)
from coupler.langchain.presentation import TitleArguments
from coupler.permission.action import Action
from coupler.runtime.commands import OutputListener, RunningCommand
from coupler.runtime.environment import Environment, SpawnError, find_program_outside
from coupler.runtime.files import OutsideRootsError, SessionPath, UnsuitableFileError, find_inside
from coupler.runtime.paths import is_below

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

DirectoryArgument = Annotated[
    str, "Where to look: a directory or one file, absolute or relative to the working directory."
]

MOST_FILES = 500
MOST_LINES = 300
"""Most files that are named, and most lines that are shown."""

MOST_CONTEXT = 20
"""Most lines around each match."""

MOST_PLACES = 20
"""Most places that an editor is told of."""

MOST_ENTRIES = 500
"""Most entries of a directory that are shown."""

LONGEST_TEXT = 25_000
"""Characters of what was found that a model gets at once."""

SOURCE = Path(__file__).parents[3]
PROGRAM_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from coupler.langchain.editor_tools.search_program import main; main()"
)

SEARCH_LIMIT = 30.0
"""Seconds that a search may take."""

LONGEST_OUTPUT = 16 * 1024 * 1024

MOST_UNSAVED = 100
"""Most files that the editor is asked for: those that were touched last."""

AT_ONCE = 8

UNSAVED_LIMIT = 10.0
"""Seconds that the editor has to return all unsaved texts."""

LONGEST_UNSAVED = 2_000_000
"""Most characters of an unsaved text that is searched."""

SAME_IN_RIPGREP = re.compile(
    r"""\( (?: \?: | (?!\?) ) | \| |
        (?: [^\\\[\](){}*+?|]                       # a character that stands for itself, ^ and $
          | \\ (?: [dDwWsSbBt] | [^\w\s<>] )        # a class, a border, or what is escaped
          | \[ \^? (?: [^\\\[\]&~^-] | \\[^\w\s] | \\[dwst] | [A-Za-z0-9]-[A-Za-z0-9] )+ -? \]
          | \)
        ) (?: [*+?] \?? | \{ \d{1,3} (?: , \d{0,3} )? \} \?? )?""",
    re.VERBOSE,
)
"""A piece of a regular expression that means the same to Python and to ripgrep."""

RIPGREP_OPTIONS = (
    *("--no-config", "--json", "--sort=path", "--no-messages", "--crlf", "--hidden"),
    *("--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-messages"),
    *(f"--glob=!**/{name}/" for name in sorted(SKIPPED)),
)

_SAFE_NAME = re.compile(r"[\w.*?-]+", re.ASCII)


def finding_title(told: TitleArguments) -> str | None:
    """Return a title such as "Find '*.py' in src"."""
    glob = told.text("glob")
    return f"Find '{glob}'{_where(told)}" if glob is not None else None


def searching_title(told: TitleArguments) -> str | None:
    """Return a title such as "Search 'x' in src"."""
    pattern, glob = told.text("pattern"), told.text("glob")
    if pattern is None:
        return None
    return f"Search '{pattern}'{_where(told)}{f' ({glob})' if glob not in (None, '**') else ''}"


def listing_title(told: TitleArguments) -> str | None:
    """Return a title such as "List src"."""
    return f"List {told.path('path') or '.'}"


async def find_files(
    glob: Annotated[
        str,
        "Which files, by their paths below the directory: `*` stays in one directory, `**` does not,"
        " as in `src/**/*.{ts,tsx}`. Without a `/` it is a name in any of the directories below.",
    ],
    directory: DirectoryArgument = ".",
) -> tuple[str, dict[str, Any]]:
    """Find files by their names, without what .gitignore files leave out, caches and installed packages.

    The answer is in the order of paths; if there are too many, the newest are named.
    """
    async with _permitted("Find", directory) as use:
        place = await asyncio.to_thread(_existing, directory, use)
        request = SearchRequest(place.real, _checked(glob, place), None, MOST_FILES)
        everything = await _find(use.prompt, request, place)
        denied = await _not_readable(use, {hit.path for hit in everything.hits}, is_named=True)
        found = everything.without(denied)
        text, is_whole = fitting_lines([hit.path for hit in found.hits])
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
    directory: DirectoryArgument = ".",
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
        place = await asyncio.to_thread(_existing, directory, use)
        request = SearchRequest(
            place.real, _checked(glob, place), pattern, MOST_LINES, ignore_case, min(context, MOST_CONTEXT)
        )
        everything = await _find(use.prompt, request, place)
        left_out = await _not_readable(use, {hit.path for hit in everything.hits})
        found = everything.without(left_out)
        places = [(hit.path, hit.line) for hit in found.hits if hit.is_match]
        if places:
            use.works_in(*places[:MOST_PLACES])
        text, is_whole = fitting_lines(grep_lines(found, context))
        is_cut = found.is_cut or not is_whole
        if is_cut:
            text += "\n… (there is more: use a narrower pattern, glob or directory)"
        if left_out:
            text += f"\n({_files(left_out)} left out: reading has to be permitted; use read_file)"
        outcome = {"matches": found.matches, "is_cut": is_cut, "left_out": sorted(left_out)}
        return text.strip("\n") or "Nothing fits.", outcome


async def list_directory(
    path: Annotated[str, "The directory, absolute or relative to the working directory."] = ".",
) -> tuple[str, dict[str, Any]]:
    """List what is in a directory, hidden files too: directories first, with a `/` at their end, then files.

    To find files in the directories below, use find_files.
    """
    async with permitted_use("List", "read", path) as use:
        place = await asyncio.to_thread(use.found, path)
        entries = await asyncio.to_thread(_entries, place)
        known = {entry.name for entry in entries}
        for real in await unsaved_texts(use.prompt.turn, place.real):
            parent, name = os.path.split(real)
            if parent == place.real and name not in known:
                entries.append(DirectoryEntry(name, False, " (not saved)"))
        entries.sort(key=lambda entry: (not entry.is_directory, entry.name))
        lines = [entry.line for entry in entries[:MOST_ENTRIES]]
        if len(entries) > MOST_ENTRIES:
            lines.append(f"… ({len(entries) - MOST_ENTRIES} more: use find_files with a glob)")
        return "\n".join(lines) or "(The directory is empty.)", {"path": path, "entries": len(entries)}


@asynccontextmanager
async def _permitted(verb: str, directory: str) -> AsyncIterator[ToolUse]:
    """Open a permitted use of a directory; it leaves out what must not be read."""
    async with tool_use(verb, "search", directory, leaves_out_denied=True) as use:
        await use.ask()
        yield use


async def _find(prompt: Current, request: SearchRequest, place: SessionPath) -> SearchResult:
    """Search the disk, with unsaved texts of the editor in place of files; paths are as shown to people."""
    turn = prompt.turn

    async def look() -> SearchResult:
        texts = await unsaved_texts(turn, place.real)
        program = find_ripgrep(prompt.session.roots) if can_search(request) else None
        found = None
        if program is not None and place.real not in texts:
            try:
                found = await run_ripgrep(program, request)
            except SpawnError:
                found = None
        if found is None:
            return await run_search_program(request._replace(texts=texts))
        if not texts:
            return found
        unsaved = await run_search_program(request._replace(texts=texts, walks=False))
        return found.without(texts).joined(unsaved, request.most)

    def shown(path: str) -> str:
        whole = f"{place.shown}{path[len(place.real) :]}"
        return whole.removeprefix(prompt.session.cwd.rstrip(os.sep) + os.sep)

    found = await turn.own(look())
    return found.renamed(shown)


def _existing(directory: str, use: ToolUse) -> SessionPath:
    place = use.found(directory)
    if not Path(place.real).exists() and place.real not in use.prompt.session.known_files:
        raise missing_file(place)
    return place


def _checked(glob: str, place: SessionPath) -> str:
    """Return the glob relative to the place, as models also write absolute ones; raises if it leads out."""
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


async def _not_readable(use: ToolUse, paths: set[str], *, is_named: bool = False) -> set[str]:
    """Return the files that may not be read without asking; of those that are only named, the denied ones.

    Outside of the session's directories a rule that allows one directory says nothing about those in it. Who
    was asked about a search there has allowed it whole, but for files that hold secrets.
    """
    session, found = use.prompt.session, [*paths]
    roots = (*session.roots, *session.readable_places)
    if use.outside is not None and use.was_answered:
        roots = (*roots, use.outside.real)
    verdicts = await session.project.permissions().judge_all(
        (
            Action(
                kind="read",
                name="read_file",
                paths=(str(Path(session.cwd, path)),),
                cwd=session.cwd,
                roots=roots,
            )
            for path in found
        ),
        also=further_rules.get(),
    )
    is_free = is_named and (use.outside is None or use.was_answered)
    left_out = {"deny"} if is_free else {"deny", "ask"}
    return {path for path, verdict in zip(found, verdicts, strict=True) if verdict.decision in left_out}


def _where(told: TitleArguments) -> str:
    directory = told.path("directory")
    return f" in {directory}" if directory not in (None, ".") else ""


def _files(paths: set[str]) -> str:
    return f"{len(paths)} file{'s were' if len(paths) > 1 else ' was'}"


class DirectoryEntry(NamedTuple):
    """An entry of a directory."""

    name: str
    is_directory: bool
    about: str = ""

    @property
    def line(self) -> str:
        """The entry as it is shown."""
        return f"{self.name}{'/' if self.is_directory else ''}{self.about}"


def _entries(place: SessionPath) -> list[DirectoryEntry]:
    try:
        with directory_entries(place.real) as found:
            return [_entry(each, place.real) for each in found if each.name.isprintable()]
    except FileNotFoundError:
        raise missing_file(place, "directory") from None
    except NotADirectoryError:
        if not Path(place.real).is_file():
            raise OutsideRootsError(f"{place.shown!r} became a link meanwhile: look again") from None
        raise NotADirectoryError(f"{place.shown!r} is a file: read it with read_file") from None


def _entry(found: os.DirEntry[str], directory: str) -> DirectoryEntry:
    if found.is_symlink():
        return DirectoryEntry(found.name, False, f" -> {Path(directory, found.name).readlink()}")
    if found.is_dir(follow_symlinks=False):
        return DirectoryEntry(found.name, True)
    size = found.stat(follow_symlinks=False).st_size
    return DirectoryEntry(found.name, False, f" ({_size(size)})")


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


class SearchRequest(NamedTuple):
    """A search for files with such names, or for their lines that a regular expression fits."""

    directory: str
    """A directory or one file, links resolved."""
    glob: str
    pattern: str | None
    most: int
    ignore_case: bool = False
    context: int = 0
    """Number of lines to return around each match."""
    texts: Mapping[str, str] = MappingProxyType({})
    """Texts of files as they are in the editor, by path, in place of those on the disk."""
    walks: bool = True
    """True if files on the disk are searched as well."""


class SearchResult(NamedTuple):
    """The files or lines that were found, in the order of paths and lines."""

    hits: list[SearchHit]
    total: int
    """Number of matches; if it is larger than that of `hits`, there are at least so many."""

    @property
    def matches(self) -> int:
        """Number of lines or files that match, without the lines around them."""
        return sum(hit.is_match for hit in self.hits)

    @property
    def is_cut(self) -> bool:
        """True if there is more."""
        return self.total > self.matches

    def renamed(self, name: Callable[[str], str]) -> SearchResult:
        """Return the result with other paths."""
        return SearchResult([hit._replace(path=name(hit.path)) for hit in self.hits], self.total)

    def without(self, paths: Collection[str]) -> SearchResult:
        """Return the result without some files."""
        kept = SearchResult([hit for hit in self.hits if hit.path not in paths], 0)
        return kept._replace(total=self.total - self.matches + kept.matches)

    def joined(self, other: SearchResult, most: int) -> SearchResult:
        """Return both results, in order, and no more than are wanted."""
        hits = sorted((*self.hits, *other.hits), key=lambda hit: (hit.path.split("/"), hit.line))
        total = self.total + other.total
        left = most
        for index, hit in enumerate(hits):
            left -= hit.is_match
            if left < 0:
                return SearchResult(hits[:index], total)
        return SearchResult(hits, total)


class SearchHit(NamedTuple):
    """A file that was found, or a line in it."""

    path: str
    line: int
    text: str
    is_match: bool = True
    """True if the line matches, False if it only stands near a match."""


def grep_lines(found: SearchResult, context: int) -> list[str]:
    """Return the lines as `grep` writes them: those near a match are marked, and gaps are shown."""
    lines: list[str] = []
    last: SearchHit | None = None
    for hit in found.hits:
        is_next = last is not None and last.path == hit.path and last.line + 1 == hit.line
        if context and last is not None and not is_next:
            lines.append("--")
        mark = ":" if hit.is_match else "-"
        lines.append(f"{hit.path}{mark}{hit.line}{mark} {hit.text}")
        last = hit
    return lines


def fitting_lines(lines: list[str]) -> tuple[str, bool]:
    """Return as many lines as a model gets at once, and whether they are all."""
    size = 0
    for index, line in enumerate(lines):
        size += len(line) + 1
        if size > LONGEST_TEXT:
            return "\n".join(lines[:index]), False
    return "\n".join(lines), True


async def unsaved_texts(turn: Turn, place: str) -> dict[str, str]:
    """Return the unsaved texts, by real paths, of files in a place that the session has touched."""
    editor = EditorFiles(turn)
    touched = [path for path in turn.session.known_files.paths if is_below(path, place)][-MOST_UNSAVED:]
    if not touched or not editor.can_read:
        return {}
    texts: dict[str, str] = {}
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(path: str) -> None:
        session = turn.session
        async with turns:
            try:
                text = await editor.read_if_there(find_inside(path, session.cwd, session.roots))
            except (EditorError, OutsideRootsError, UnsuitableFileError):
                return  # what the editor does not tell is as it is on the disk
        if text is not None and len(text) <= LONGEST_UNSAVED:
            texts[path] = text

    try:
        async with asyncio.timeout(UNSAVED_LIMIT), asyncio.TaskGroup() as asking:
            for path in touched:
                asking.create_task(ask(path))
    except TimeoutError:
        pass  # an editor that does not answer costs what is not saved, and no more
    return texts


async def run_search_program(request: SearchRequest) -> SearchResult:
    """Return what `search_program` finds, in a process that is ended if it takes too long."""
    output = bytearray()

    async def keep(chunk: bytes) -> None:
        if len(output) + len(chunk) > LONGEST_OUTPUT:
            raise ValueError("too much was found: ask for less")
        output.extend(chunk)

    command = [sys.executable, "-I", "-S", "-c", PROGRAM_CODE, str(SOURCE)]
    job = RunningCommand.start(
        command,
        cwd=str(SOURCE),
        env=Environment.exact({}),
        input=msgspec.json.encode({**request._asdict(), "texts": dict(request.texts)}),
    )
    code = await run_to_end(job, keep)
    if code != 0:
        raise ValueError("the search failed: use a simpler pattern")
    return msgspec.json.decode(bytes(output), type=SearchResult)


async def run_to_end(job: RunningCommand, listener: OutputListener) -> int:
    """Read a job's output until it ends, end it if it takes too long, and return its exit code."""
    try:
        async with asyncio.timeout(SEARCH_LIMIT):
            await job.hear(listener)
            return await job.wait()
    except TimeoutError:
        message = f"this took longer than {SEARCH_LIMIT:g} s: use a simpler pattern, or look in less"
        raise ValueError(message) from None
    finally:
        await job.end(0)
        job.close()


def find_ripgrep(untrusted: Sequence[str]) -> str | None:
    """Return where ripgrep is installed, but not in one of these directories, which may be anybody's."""
    # Looked for anew each time: that is cheap, and somebody may install it because it is missing.
    return find_program_outside("rg", untrusted)


def can_search(request: SearchRequest) -> bool:
    """True if ripgrep means the same by the pattern."""
    if request.pattern is None or not request.walks:
        return False
    place = 0
    while place < len(request.pattern):
        piece = SAME_IN_RIPGREP.match(request.pattern, place)
        if piece is None:
            return False
        place = piece.end()
    return True


async def run_ripgrep(program: str, request: SearchRequest) -> SearchResult | None:
    """Return the lines on the disk that fit, found by ripgrep; None if it cannot say.

    The lines are those that `search_program` finds, many times faster. Ripgrep's configuration is not read,
    and of the files that tell it what to pass over only .gitignore. Patterns whose meaning in its language
    may differ from that in Python's are left to `search_program`.
    """
    output = _RipgrepOutput(request)
    job = RunningCommand.start(
        [program, *_arguments(request)], cwd=str(Path(program).parent), env=Environment.exact({})
    )
    try:
        await run_to_end(job, output.take)
    except _EnoughError:
        pass
    else:
        if not output.is_whole:
            return None
    return await asyncio.to_thread(_without_those_behind_links, output.found, request)


def _without_those_behind_links(found: SearchResult, request: SearchRequest) -> SearchResult:
    """Keep the lines that are in files which can be reached without a link.

    Ripgrep follows none that it knows of. But a link may be put in the place of a directory between its look
    and its next step, so the files with hits are read again, in a way that nobody can divert.
    """
    of_file: dict[str, set[str]] = {}
    kept = []
    for hit in found.hits:
        if hit.path not in of_file:
            of_file[hit.path] = _lines_seen(hit.path, found, request)
        if hit.text in of_file[hit.path]:
            kept.append(hit)
    return found if len(kept) == len(found.hits) else SearchResult(kept, sum(hit.is_match for hit in kept))


def _lines_seen(path: str, found: SearchResult, request: SearchRequest) -> set[str]:
    """Those texts of the hits in a file that are really there, in their lines."""
    wanted = {hit.line: hit.text for hit in found.hits if hit.path == path}
    lines = lines_of_any(path) if path == request.directory else lines_in(path)
    try:
        numbered = islice(enumerate(lines, 1), max(wanted))
        return {
            wanted[number]
            for number, line in numbered
            if number in wanted and wanted[number].strip("…") in line.replace("\0", "\ufffd")
        }
    except OSError:
        return set()


def _arguments(request: SearchRequest) -> Iterator[str]:
    yield from RIPGREP_OPTIONS
    if not is_in_repository(request.directory):
        # A .gitignore file counts there too.
        yield "--no-require-git"
    if request.ignore_case:
        yield "--ignore-case"
    if request.context:
        yield f"--context={request.context}"
    if Path(request.directory).is_dir():
        yield f"--max-filesize={LARGEST_FILE}"
        names = {each.rpartition("/")[2] for each in expanded(request.glob)}
        if all(_SAFE_NAME.fullmatch(name) for name in names):
            # A type, because a glob would bring back what .gitignore leaves out.
            yield from (f"--type-add=wanted:{name}" for name in sorted(names))
            yield "--type=wanted"
    else:
        yield "--text"
    yield f"--regexp={request.pattern}"
    yield from ("--", request.directory)


class _EnoughError(Exception):
    """Raised when as much was found as is wanted."""


class _RipgrepOutput:
    """Reads what ripgrep writes: messages in JSON, a line each."""

    def __init__(self, request: SearchRequest) -> None:
        self.is_whole = False
        self._request = request
        self._names = compiled(request.glob)
        self._is_file = not Path(request.directory).is_dir()
        self._start = len(request.directory.rstrip(os.sep)) + 1
        self._rest = b""
        self._hits: list[SearchHit] = []
        self._of_file: list[SearchHit] = []

    @property
    def found(self) -> SearchResult:
        """The lines that were found by now, in files that are text to their end."""
        hits, total = [], 0
        for hit in self._hits:
            total += hit.is_match
            if total > self._request.most:
                break
            hits.append(hit)
        return SearchResult(hits, total)

    async def take(self, chunk: bytes) -> None:
        """Parse another piece of the output."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_OUTPUT:
            raise ValueError("a line that fits is too long to be shown: use another pattern or glob")
        for line in lines:
            # What else it writes is a complaint, and then there is no summary.
            if line.startswith(b"{"):
                self._hear(msgspec.json.decode(line))

    def _hear(self, message: dict[str, Any]) -> None:
        data = message["data"]
        match message["type"]:
            case "begin":
                self._of_file = []
            case "match" | "context" as kind:
                self._of_file += self._hits_in(data, is_match=kind == "match")
            case "end":
                if data["binary_offset"] is None:
                    self._hits += self._of_file
                if sum(hit.is_match for hit in self._hits) > self._request.most:
                    raise _EnoughError
            case "summary":
                self.is_whole = True

    def _hits_in(self, data: dict[str, Any], *, is_match: bool) -> Iterator[SearchHit]:
        path = data["path"].get("text")
        if path is None or not self._is_wanted(path):
            return
        line = _bytes_of(data["lines"])
        first = data["submatches"][0]["start"] if is_match and data["submatches"] else 0
        place = len(line[:first].decode("utf-8", "replace"))
        text = line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        yield SearchHit(path, data["line_number"], shortened(text, place), is_match)

    def _is_wanted(self, path: str) -> bool:
        if self._is_file:
            return True
        below = path[self._start :].replace(os.sep, "/")
        fits = self._names.fullmatch(below) or self._names.fullmatch(below.rpartition("/")[2])
        return path.isprintable() and fits is not None


def _bytes_of(text: dict[str, str]) -> bytes:
    return text["text"].encode() if "text" in text else base64.b64decode(text["bytes"])

"""Finds what a whole shell line would destroy, whatever its words expand to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cached_property

from coupler.permission import programs
from coupler.permission.action import Budget
from coupler.permission.command_words import ANYTHING, Line, Word
from coupler.permission.floor import destructive_programs
from coupler.permission.floor.destructive_programs import (
    FIND_STARTS,
    PROGRAMS,
    STOPPING,
    Arguments,
    Finding,
    deletes,
    find_starts,
    given_a_disk,
    overwrites_found,
    worst,
)
from coupler.permission.floor.expansion import Reading, Scope
from coupler.permission.floor.hidden_text import cleaned, decodings, rough_commands
from coupler.permission.floor.places import UNKNOWN, Places
from coupler.permission.programs import inline_code_at, is_interpreter, is_starter, program_name
from coupler.permission.shell import DOUBTS_ABOUT_BODY, read_line

DEEPEST = 4
"""Most levels of texts within texts that are read."""
MOST_TEXTS = 60
"""Most texts of one line that are judged as commands or code."""

_SHELLS = frozenset(
    {"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "busybox", "pwsh"}
)
_READERS = frozenset(
    {*_SHELLS, "source", ".", "eval", "at", "batch", "crontab", "ssh", "xargs", "parallel", "alias", "trap"}
)
_INERT = frozenset(
    {
        *(
            "echo",
            "printf",
            "grep",
            "egrep",
            "fgrep",
            "rg",
            "ag",
            "ack",
            "git",
            "man",
            "which",
            "type",
            "cat",
        ),
        *("ls", "test", "[", "expr", "wc", "head", "tail", "diff", "apropos", "whatis", "info", "tldr"),
        *("basename", "dirname", "cd", "pushd", "export", "set", "logger", "say", "notify-send", "jq", "gh"),
    }
)
"""Programs to which other programs' names are only words."""
_CONTAINED = frozenset({"docker", "podman", "nerdctl", "kubectl", "buildah", "lxc", "incus", "distrobox"})
"""Programs that start others in a container or on another system."""
_OFTEN_STARTED = frozenset(
    {"rm", "shred", "dd", "mkfs", "mkfs.ext4", "wipefs", "chmod", "chown", "mv", "find"}
)
"""Destructive programs that are looked for among the words of programs not known to start others."""
_RENAMING = frozenset({"cp", "gcp", "ln", "install", "mv", "gmv"})
_WRITING = frozenset({"tee", "install", "dd", "sponge"})
_READING = frozenset({"read", "mapfile", "readarray"})
_CODE_PROGRAMS = frozenset({"awk", "gawk", "mawk", "nawk", "sed", "gsed", "ed", "ex", "expect", "osascript"})

_BOMB = re.compile(
    r"(?<![\w:.@-])(?:function\s{1,9})?(?P<name>[\w:.@-]{1,40})\s{0,9}(?:\(\s{0,9}\))?\s{0,9}\{[^}]{0,200}?"
    r"(?P=name)\s{0,9}(?:\|&?|&)\s{0,9}(?P=name)[^}]{0,200}?&"
    r"|while\s{0,9}(?::|true|\[\s?1\s?\])\s{0,9};\s{0,9}do\s{1,9}(?:\$0|/proc/self/exe|\$\{?BASH_SOURCE)[^;&]{0,40}&"
    r"|(?:^|[;&|\s])(?:\./)?\$0\s{0,9}(?:\||&)\s{0,9}(?:\./)?\$0\s{0,9}&"
)
_SUBSTITUTION = re.compile(r"\$\(([^()]{1,2000})\)|`([^`]{1,2000})`")
_SPELLED = re.compile(r"(?<![\w./-])(?:/\S*/)?([a-zA-Z][\w.-]*)\s[^\n'\"`)]*")


def findings(
    command: str | Sequence[str], line: Line, directory: str | None, roots: Sequence[str], budget: Budget
) -> list[Finding]:
    """Return the worst finding on a parsed line, if there is one; too much to judge is a finding as well."""
    judgement = Judgement(line, Places(roots, directory), budget)
    found = worst(judgement.of_line(command if isinstance(command, str) else None))
    if found is None and budget.is_spent:
        found = Finding("is too much to be judged", is_fatal=False)
    return [found] if found is not None else []


class Judgement:
    """Judges one text, and the texts that are found in it."""

    def __init__(
        self,
        line: Line,
        places: Places,
        budget: Budget,
        depth: int = 0,
        read: set[tuple[str, str]] | None = None,
    ) -> None:
        self._line = line
        self._places = places
        self._budget = budget
        self._depth = depth
        self._read: set[tuple[str, str]] = set() if read is None else read
        self._scope = Scope(line, places, depth)
        self._found: list[Finding] = []
        self._names: set[str] = set()
        self._texts: list[str] = []
        """Texts that its commands may be made to read or run."""
        self._made: set[str] = set()  # names of files that its commands write
        self._renamed: dict[str, str] = {}  # programs that it has given another name

    def of_line(self, text: str | None) -> list[Finding]:
        """Return all findings on the line; `text` is its source if it is for a shell."""
        for command in self._line.commands:
            if command.words[0].text in _READING:
                self._give_read(command.words[1:])
            self._command(command.words)
        for target in self._line.targets:
            if target.kind == "edit":
                self._written(self._scope.readings(target.word))
        if text is not None and (self._line.doubts or cleaned(text) != text):
            self._roughly(text)
        self._fed()
        self._budget.is_spent = self._budget.is_spent or self._scope.is_cut
        return self._found

    def _give_read(self, words: Sequence[Word]) -> None:
        for word in words:
            for path in self._fed_paths if word.text.isidentifier() else ():
                self._scope.give(word.text, _escaped(path))

    def _command(self, words: Sequence[Word]) -> None:
        for spelling in self._scope.spellings(self._filled(words)):
            self._spelled(spelling)

    def _filled(self, words: Sequence[Word]) -> Sequence[Word]:
        """Fill in the words that `find` and `xargs` add, with the paths that the line may feed them."""
        if all(word.is_plain or word.source for word in words):
            return words
        paths = [*map(_escaped, self._fed_paths)]
        sources = paths[0] if len(paths) == 1 else "{" + ",".join(paths) + "}"
        return [word if word.is_plain or word.source else word._replace(source=sources) for word in words]

    @cached_property
    def _fed_paths(self) -> list[str]:
        """Paths that the line's commands, here-documents and here-strings may feed to other commands."""
        fed: list[str] = []
        for command in self._line.commands:
            [words, *_] = self._scope.spellings(command.words) or [[]]
            fed += paths_from(words)
        fed += [line for text in self._line.fed for line in text.split("\n")]
        return [*dict.fromkeys(path for path in fed if path)] or [UNKNOWN]

    def _spelled(self, words: Sequence[Reading]) -> None:
        """Judge one reading of one command."""
        if not words or not self._budget.take(words=len(words) + 1):
            return
        name = program_name(words[0].text)
        self._names.add(name)
        self._rename(name, Arguments(words[1:]))
        if name in _WRITING:
            self._made |= {program_name(word.text.removeprefix("of=")) for word in words[1:]}
        if name in MOVING:
            self._move([word for word in words[1:] if word.text not in {"--", "-P", "-L", "-n"}])
        for known in self._known_as(words[0], name):
            found = self._by_program(known, words[1:])
            self._note(_with_remedy(found) if any(word.is_bare for word in words) else found)
        if words[0].is_open or not name:
            self._by_unknown_program(words[1:])
        elif name not in PROGRAMS and name not in _CONTAINED and not is_starter(name):
            self._note(given_a_disk(name, Arguments(words[1:]), self._places))
        if name in PRINTING or name == "alias":
            self._texts += [" ".join(word.text.partition("=")[2] or word.text for word in words[1:])]
            self._texts.append(" ".join(word.text for word in words[1:]))
        self._started(name, words)

    def _rename(self, name: str, given: Arguments) -> None:
        """Note the links, mounts and copied or renamed programs that the line makes, by their new names."""
        ends = [operand.text for operand in given.operands[-2:]]
        if name == "ln" and ends and given.has("s", "symbolic"):
            self._places.link(*ends)
        if name == "mount" and len(ends) == 2 and any("bind" in word.text for word in given.words):
            self._places.link(*ends, is_mounted=True)
        if name in _RENAMING and len(ends) == 2 and program_name(ends[0]) in PROGRAMS:
            self._renamed[program_name(ends[1])] = program_name(ends[0])

    def _known_as(self, word: Reading, name: str) -> Iterable[str]:
        if word.is_pattern and set("*?[") & {*name}:
            has_letter = any(letter.isalnum() for letter in name)
            return [known for known in PROGRAMS if fnmatchcase(known, name)] if has_letter else ["rm"]
        if name.startswith("mkfs."):
            return ["mkfs"]
        if name in STOPPING and "/" in word.text and not word.text.startswith("/"):
            return []  # a script of the project's, that is only called so
        name = self._renamed.get(name, name)
        return [name] if name in PROGRAMS else []

    def _by_program(self, name: str, words: Sequence[Reading]) -> Finding | None:
        if self._is_denied or not self._budget.take(words=len(words) + 1):
            return None
        return PROGRAMS[name](Arguments(words), self._places)

    def _by_unknown_program(self, words: Sequence[Reading]) -> None:
        """Judge a program that is only known when it runs, as `rm` if its options fit, and its words."""
        given = Arguments(words)
        if given.has("rRf", "recursive", "force"):
            found = deletes(given, self._places)
            self._note(found if found is not None and found.is_fatal else None)
        for word in words:
            self._read_as_shell(word.text)

    def _move(self, operands: Sequence[Reading]) -> None:
        if not operands:
            operands = [Reading(home) for home in self._places.homes]
        for operand in operands[:1]:
            if operand.text:
                self._places.enter(operand.text)
            else:
                # An unquoted variable that is empty leaves no word, and then the home is entered.
                for home in self._places.homes:
                    self._places.enter(home)

    def _started(self, name: str, words: Sequence[Reading]) -> None:
        """Judge the code in a command's words, and the programs that it may start from them."""
        certain = [Word(word.text) for word in words]
        is_code = inline_code_at(certain) is not None or name in _CODE_PROGRAMS or is_interpreter(certain[0])
        if is_code and name not in _CONTAINED:
            for word in words[1:]:
                self._code(word.text)
                self._read_as_shell(word.text.partition("=")[2].lstrip("!"))
        if name in _CONTAINED or (name in _INERT and not is_code and name not in _READERS):
            return
        directory = next(
            (value for option in ("-C", "--chdir", "-D") if (value := Arguments(words[1:]).value(option))),
            None,
        )
        if directory is not None and is_starter(name):
            self._places.directories.insert(0, directory.text)
        for place in range(1, len(words)):
            inner = program_name(words[place].text)
            if inner in (PROGRAMS if is_starter(name) or is_code else _OFTEN_STARTED):
                self._note(_fatal(self._by_program(inner, words[place + 1 :])))
            self._read_if_command(words[place].text, is_started=is_starter(name))
        self._by_find(name, words)
        self._by_runner(name, words)

    def _read_if_command(self, text: str, *, is_started: bool) -> None:
        """Read a word as a command, as in `hyperfine 'rm -rf x'` or `--exec='rm -rf x'`."""
        for line in (text, text.partition("=")[2]):
            first, *rest = line.split(None, 1) or [""]
            if rest and (is_started or program_name(first) in _OFTEN_STARTED):
                self._read_as_shell(line)

    def _by_runner(self, name: str, words: Sequence[Reading]) -> None:
        """Judge the command that `uv run`, `npx` and the like start."""
        start = 1 if name in programs.WHOLE else 2
        if start == 2 and (len(words) < 3 or (name, words[1].text) not in programs.COMMANDS):
            return
        while start < len(words) and words[start].text.startswith("-"):
            start += 1
        self._spelled(words[start:])

    def _by_find(self, name: str, words: Sequence[Reading]) -> None:
        """Judge the program of `find -exec`, applied to each directory that `find` searches."""
        texts = [word.text for word in words]
        if name not in {"find", "gfind"} or not FIND_STARTS & {*texts}:
            return
        starts, is_narrow = find_starts([*words[1:]])
        at = next(place for place, text in enumerate(texts) if text in FIND_STARTS)
        for start in () if is_narrow else starts:
            inner = [word._replace(text=word.text.replace("{}", start.text)) for word in words[at + 1 :]]
            ended = next((i for i, word in enumerate(inner) if word.text in {";", "+", "\\;"}), len(inner))
            if inner and (known := program_name(inner[0].text)) in PROGRAMS:
                self._note(self._by_program(known, inner[1:ended]))
                self._note(overwrites_found(known, words[at + 2 : at + 1 + ended], start, self._places))

    def _written(self, alternatives: Sequence[Sequence[Reading]]) -> None:
        for reading in (reading for words in alternatives for reading in words):
            lost = self._places.vital(reading.text, is_pattern=reading.is_pattern)
            self._note(Finding(f"would overwrite {lost}") if lost is not None else None)

    def _roughly(self, text: str) -> None:
        """Judge text that is disguised, or that the parser is in doubt about, as `hidden_text` splits it."""
        plain = cleaned(text)
        if _BOMB.search(plain):
            self._note(Finding("would start processes until nothing works any more"))
        if plain != text and self._depth < DEEPEST:
            self._read_as_shell(plain)
        for inner in _SUBSTITUTION.finditer(plain):
            self._read_as_shell(inner[1] or inner[2] or "")
        commands = rough_commands(self._without_documents(plain))
        self._scope.literals += [word for command in commands for word in command.words[1:]]
        for command in commands:
            for name, source in command.assignments:
                self._scope.give(name, source)
                # What a command is given may be run by it, as a pager or an editor is.
                for given in self._scope.texts(_as_written(source)) if command.words else ():
                    self._read_as_shell(given)
            for source in command.written:
                self._written(self._scope.readings(_as_written(source)))
            if command.words:
                self._command([_as_written(source) for source in command.words])
        for text in self._scope.sources(without=frozenset({"HOME", "PWD"})):
            self._texts.append(text)

    def _without_documents(self, text: str) -> str:
        """Return the text without here-documents, which are no commands, if it is certain where they end."""
        if any("here-document" in doubt and doubt not in DOUBTS_ABOUT_BODY for doubt in self._line.doubts):
            return text
        for body in self._line.fed:
            text = text.replace(body, "\n") if "\n" in body else text
        return text

    def _fed(self) -> None:
        """Judge the texts that the line prints, assigns or feeds, if something in it may run them."""
        texts = [*self._line.fed, *self._texts]
        for source in self._line.fed:
            texts += self._scope.texts(_as_written(source)) if "\n" not in source.strip() else []
        has_reader = bool(_READERS & self._names) or any(not name or UNKNOWN in name for name in self._names)
        has_reader = has_reader or any(name.startswith("$") for name in self._names)
        runs_code = any(is_interpreter(Word(name)) for name in self._names if name)
        written = {program_name(each.word.text) for each in self._line.targets if each.kind == "edit"}
        written |= self._made
        runs_file = any(
            name.endswith((".sh", ".bash")) or runs_one_of(name, written) for name in self._names if name
        )
        for text in [*dict.fromkeys(texts)][:MOST_TEXTS]:
            for plain in decodings(text) if has_reader or runs_code or runs_file else ():
                if has_reader or runs_file:
                    self._read_as_shell(plain)
                if runs_code:
                    self._code(plain)

    def _read_as_shell(self, text: str) -> None:
        if self._depth >= DEEPEST or not text.strip() or self._is_denied:
            return
        if not self._is_new("shell", text):
            return
        inner = Judgement(read_line(text), self._places, self._budget, self._depth + 1, self._read)
        for name in self._line.variables:
            for word in self._line.variables[name]:
                inner._scope.give(name, word.source or word.text)
        self._note(_fatal(worst(inner.of_line(text))))

    def _code(self, text: str) -> None:
        """Judge code in another language, as it is and in every decoding."""
        if not self._is_new("code", text):
            return
        starts = destructive_programs.starts_something(text)
        for plain in decodings(text):
            self._note(destructive_programs.destroys(plain, self._places))
            if starts and plain != text:
                self._read_as_shell(plain)
            if not destructive_programs.starts_something(plain):
                continue
            literals = [*destructive_programs.literals_in(plain)]
            for literal in literals:
                self._read_as_shell(literal)
            for place, literal in enumerate(literals):
                if program_name(literal) in PROGRAMS:
                    words = [Reading(each) for each in literals[place + 1 :]]
                    self._note(_fatal(self._by_program(program_name(literal), words)))
            for match in _SPELLED.finditer(plain):
                if program_name(match[1]) in PROGRAMS:
                    self._read_as_shell(match[0])

    def _is_new(self, language: str, text: str) -> bool:
        """True if a text was not read before, and the budget is large enough for it."""
        if (language, text) in self._read:
            return False
        self._read.add((language, text))
        return self._budget.take(characters=len(text) + 100)

    @property
    def _is_denied(self) -> bool:
        return any(finding.is_fatal for finding in self._found)

    def _note(self, finding: Finding | None) -> None:
        if finding is not None:
            self._found.append(finding)


def _with_remedy(finding: Finding | None) -> Finding | None:
    """Add to a denial that depends on an empty variable how to write the command safely."""
    if finding is None or not finding.is_fatal:
        return finding
    return finding._replace(reason=f"{finding.reason} if a variable is empty (write `${{NAME:?}}` for it)")


def _fatal(finding: Finding | None) -> Finding | None:
    """Return the finding if it denies, else None: a question about what may be mere text is a false alarm."""
    return finding if finding is not None and finding.is_fatal else None


def _as_written(source: str) -> Word:
    return ANYTHING._replace(source=source)


def _escaped(path: str) -> str:
    return re.sub(r"([{},\\'\"$`\s])", r"\\\1", path)


PRINTING = frozenset({"echo", "printf", "yes"})
"""Programs that print their words."""
MOVING = frozenset({"cd", "pushd", "chdir"})
"""Programs that change the directory."""

_LISTING = frozenset({"git", "grep", "rg", "fd", "fdfind", "egrep"})
_NARROWING = frozenset({"-g", "--glob", "--iglob", "-t", "--type"})
_FILTERING = frozenset(
    {"sort", "uniq", "head", "tail", "tr", "sed", "awk", "tee", "xargs", "cut", "wc", "true", "read"}
)


def paths_from(words: Sequence[Reading]) -> list[str]:
    """Return the paths that a command may print, for `xargs`, `read` and the like.

    A path that is only known when the command runs is UNKNOWN, or has it in its place.
    """
    name = program_name(words[0].text) if words else ""
    rest = [*words[1:]]
    if name in {"find", "gfind"}:
        starts, is_narrow = find_starts(rest)
        return [f"{start.text}/{UNKNOWN}" if is_narrow else start.text for start in starts]
    if name in PRINTING:
        return [piece for word in rest for piece in re.split(r"\\n|\\0|\s", word.text)]
    if name == "ls":
        places = [word.text for word in rest if not word.text.startswith("-")] or ["."]
        return [f"{place}/*" for place in places]
    texts = [word.text for word in rest]
    if name in {"tree", "du"} or (name == "rg" and "--files" in texts and not _NARROWING & {*texts}):
        return [text for text in texts if not text.startswith("-")] or ["."]
    if name in _LISTING:
        return [f"./{UNKNOWN}"]
    is_silent = name in _FILTERING or name in PROGRAMS or name in MOVING or is_starter(name)
    return [] if is_silent else [UNKNOWN]


_READ_BY_ITSELF = {
    **dict.fromkeys(("make", "gmake"), ("makefile", "gnumakefile")),
    "just": ("justfile",),
}


def runs_one_of(name: str, files: set[str]) -> bool:
    """True if a program is one of these files, or reads one of them by itself, as `make` does."""
    return name in files or any(file in files for file in _READ_BY_ITSELF.get(name, ()))

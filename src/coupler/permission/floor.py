"""Finds what a shell line would destroy that nobody may let an agent destroy.

The line is judged as it is parsed: each command, in every reading of its words, by what its program does with
them. What would for certain wreck a machine, a home or what lies around the session is denied. What may do so
but is decoded, built, written to a file or handed to an interpreter when the line runs is asked about each
time: nothing is decoded, and no other language is read.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from coupler.permission import programs
from coupler.permission.action import Budget
from coupler.permission.command_words import ANYTHING, Command, Line, Target, Word
from coupler.permission.destructive_programs import (
    PROGRAMS,
    Arguments,
    Finding,
    disk_in,
    downloaded,
    fatal,
    find_starts,
    finds_history,
    if_empty,
    question,
    writes_to,
)
from coupler.permission.expansion import Scope, lists_every_process
from coupler.permission.patterns import glob
from coupler.permission.places import UNKNOWN, Places, Reading
from coupler.permission.programs import is_interpreter, is_starter, program_name
from coupler.permission.shell import DOUBTS_ABOUT_BODY, read_line
from coupler.permission.variables import is_local

DEEPEST = 4
"""Most levels of texts within texts that are read."""
LONGEST_CODE = 20_000
"""Characters at the beginning of a program's text that are searched."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHELLS = _names("sh bash dash ash zsh ksh mksh fish csh tcsh busybox pwsh")
_INERT = _names(
    "echo printf grep egrep fgrep rg ag ack git man which type cat ls test [ expr wc head tail diff apropos"
    " whatis info tldr basename dirname cd pushd export set logger say notify-send jq gh"
)
"""Programs to which other programs' names are only words."""
_CONTAINED = _names("docker podman nerdctl kubectl buildah lxc incus distrobox")
"""Programs that start others in a container or on another system."""
_OFTEN_STARTED = _names("rm shred dd mkfs wipefs chmod chown mv find")
"""Destructive programs that are looked for among the words of programs not known to start others."""
_CODE_PROGRAMS = _names("awk gawk mawk nawk sed gsed ed ex expect m4 dc")
_PRINTING = _names("echo printf yes")
_MOVING = _names("cd pushd chdir")
_MAKING = _names("tee dd sponge install curl wget")
"""Programs that write the files which their words name."""
_PASSING = _PRINTING | _MOVING | _names("cat tee dd sponge sudo install")
"""Programs that hand on a text as it stands in the line."""
_FILTERING = _names("sort uniq head tail tr awk xargs cut wc true read")
_LISTING_TO_KILL = _names("ps pgrep tr xargs kill sudo")
"""Programs that together end all processes that `ps` lists, of which no filter is one."""
_CODE_OPTIONS = re.compile(r"-e|--eval|--execute|--?code|eval|runner")
"""Options and subcommands of programs that are not known, behind which code stands."""
_BUILDERS = _names("make gmake just")
_MAKEFILES = _names("makefile gnumakefile justfile")
_LOOKING = _names(
    "ls lsblk blkid stat file test [ echo printf grep rg cat head tail xxd hexdump od strings md5sum cksum du"
    " df sha256sum findmnt smartctl udevadm lsof fuser readlink realpath mount losetup blockdev gh man which"
    " for tree iostat eject"
)
"""Programs that may be given a disk: they read it, mount it or only print its name."""

_BOMB = re.compile(
    r"(?<![\w:.@-])(?:function\s{1,9})?(?P<name>[\w:.@-]{1,40})\s{0,9}(?:\(\s{0,9}\))?\s{0,9}\{[^}]{0,200}?"
    r"(?P=name)\s{0,9}(?:\|&?|&)\s{0,9}(?P=name)[^}]{0,200}?&"
)
_QUOTED = r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\."
_PIECES = re.compile(rf"(?:{_QUOTED}|[<>]&|[^\n;&|`])+", re.DOTALL)
_STATEMENTS = re.compile(rf"(?:{_QUOTED}|[<>]&|&>|[^\n;&])+", re.DOTALL)
_FEEDS = re.compile(r"(?<!\|)\|(?!\|)|<\(|(?<!<)<(?!<)")
_BLANKS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), " ")


def findings(
    command: str | Sequence[str], line: Line, directory: str | None, roots: Sequence[str], budget: Budget
) -> list[Finding]:
    """Return the worst finding on a parsed line, if there is one; too much to judge is a finding as well."""
    judgement = _Judgement(line, Places(roots, directory), budget)
    found = judgement.worst(command if isinstance(command, str) else None)
    if found is None and budget.is_spent:
        found = question("is too much to be judged")
    return [found] if found is not None else []


@dataclass
class _Judgement:
    """Judges one text, and the texts that its commands run."""

    line: Line
    places: Places
    budget: Budget
    depth: int = 0
    read: dict[str, Finding | None] = field(default_factory=dict)
    """Findings in the texts that were read before."""

    def __post_init__(self) -> None:
        self._scope = Scope(self.line, self.places, self.budget)
        self._directories = [*self.places.directories]  # before it changes to others
        self._worst: Finding | None = None
        self._commands: list[Sequence[Reading]] = []  # as they were read
        self._renamed: dict[str, str] = {}  # programs that it has given another name

    def worst(self, text: str | None) -> Finding | None:
        """Return the first finding that denies, or else the first; `text` is the source of a shell's line."""
        for command in self.line.commands:
            self._command(command.words)
        for target in self.line.targets:
            for words in self._scope.readings(target.word) if target.kind == "edit" else ():
                for word in words:
                    self._note(writes_to(word, self.places))
        for name, values in self.line.variables.items():
            # What a command is given may be run by it, as a pager or an editor is.
            for value in (each for word in values for each in self._scope.texts(word) if not is_local(name)):
                is_made = value.startswith("<(")
                self._note(question(f"makes a file for {name}") if is_made else None)
                self._note(_softened(fatal(self._within(value))))
        if text is not None:
            self._disguised(text)
            self._run_texts(text)
        self.budget.is_spent = self.budget.is_spent or self._scope.is_cut
        return self._worst

    def _note(self, finding: Finding | None) -> None:
        if finding is not None and (self._worst is None or (finding.is_fatal and not self._worst.is_fatal)):
            self._worst = finding

    def _command(self, words: Sequence[Word]) -> None:
        if words[0].text in {"read", "mapfile", "readarray"}:
            for word in words[1:]:
                for path in self._fed_paths if word.text.isidentifier() else ():
                    self._scope.give(word.text, _escaped(path))
        for spelling in self._scope.spellings(self._filled(words)):
            if spelling and not fatal(self._worst) and self.budget.take(words=len(spelling)):
                self._spelled(spelling, is_new=not all(word.is_plain for word in words))

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
        names = {program_name(command.words[0].text) for command in self.line.commands}
        for command in self.line.commands:
            [words, *_] = self._scope.spellings(command.words)
            texts = [word.text for word in words]
            if names & {"ps", "pgrep"} and names <= _LISTING_TO_KILL and texts:
                fed += ["1"] if lists_every_process(program_name(texts[0]), texts[1:]) else []
            fed += _printed_paths(words, self.places) if words else []
        fed += [line for text in self.line.fed for line in text.split("\n")]
        return [*dict.fromkeys(path for path in fed if path)] or [UNKNOWN]

    def _spelled(self, words: Sequence[Reading], *, is_new: bool) -> None:
        """Judge one reading of one command, and what it may start; the parser knew that unless it is new."""
        self._commands.append(words)
        name, given = program_name(words[0].text), Arguments(words[1:])
        self._follow(name, given)
        for known in self._known_as(words[0], name):
            self._by_program(known, words[1:], is_guessed=False)
        if UNKNOWN in name or not name:
            if any(glob(name.replace(UNKNOWN, "*") or "*").match(known) for known in PROGRAMS):
                self._note(question("starts a program that is only known when it runs"))
        elif name not in PROGRAMS and name not in _CONTAINED | _LOOKING and not is_starter(name):
            disk = disk_in(given, self.places)
            self._note(None if disk is None else question(f"may change {disk}"))
            for target in given.values("-o", "--output", "-out") if name not in _INERT else ():
                self._note(_softened(writes_to(target, self.places)))
        for started in programs.look_through(_certain(words)).inner:
            if isinstance(started, str):
                found = self._within(started)
                self._note(if_empty(found) if any(word.is_bare for word in words) else found)
            elif is_new:
                self._command(started)
        self._by_starter(name, words)

    def _known_as(self, word: Reading, name: str) -> list[str]:
        """Return the destructive programs that a word may name."""
        # A relative path is a script of the project's, that may only be called so.
        is_script = "/" in word.text and not word.text.startswith("/")
        known = _OFTEN_STARTED if is_script else PROGRAMS
        if word.is_pattern and set("*?[") & {*name}:
            has_letter = any(letter.isalnum() for letter in name)
            return [each for each in known if glob(name).match(each)] if has_letter else ["rm"]
        name = self._renamed.get(name, "mkfs" if name.startswith("mkfs.") else name)
        return [name] if name in known else []

    def _by_program(self, name: str, words: Sequence[Reading], *, is_guessed: bool) -> None:
        """Judge a program by its words; where one is only guessed to be started, only certain harm counts."""
        if not fatal(self._worst) and self.budget.take(words=len(words) + 1):
            found = PROGRAMS[name](Arguments(words), self.places)
            found = fatal(found) if is_guessed else found
            self._note(if_empty(found) if any(word.is_bare for word in words) else found)

    def _follow(self, name: str, given: Arguments) -> None:
        """Note the directory that a command enters, and links, mounts and renamed programs that it makes."""
        ends = [operand.text for operand in given.operands[-2:]]
        if name in _MOVING:
            # An unquoted variable that is empty leaves no word, and then the home is entered.
            for directory in [ends[0]] if ends and ends[0] else self.places.homes:
                self.places.enter(directory)
        if name == "ln" and ends and given.has("s", "symbolic"):
            self.places.link(*ends)
        if name == "mount" and len(ends) == 2 and any("bind" in word.text for word in given.words):
            self.places.link(*ends, is_mounted=True)
        if name in {"cp", "ln", "install", "mv"} and len(ends) == 2 and program_name(ends[0]) in PROGRAMS:
            self._renamed[program_name(ends[1])] = program_name(ends[0])

    def _by_starter(self, name: str, words: Sequence[Reading]) -> None:
        """Judge code among a command's words, and the programs that it may start from them."""
        is_code = programs.inline_code_at(_certain(words)) is not None or name in _CODE_PROGRAMS
        if name in _CONTAINED or (name in _INERT and not is_code):
            return
        if name in _CODE_PROGRAMS or (is_code and is_interpreter(Word(name))):
            self._note(_in_code("\n".join(word.text for word in words[1:]), self.places))
            return
        self._by_code_option(name, words)
        is_known = is_starter(name) or is_code
        directory = Arguments(words).value("-C", "--chdir", "-D") if is_starter(name) else None
        if directory is not None:
            self.places.directories.insert(0, directory.text)
        for place, word in enumerate(words[1:], 1):
            if is_known and program_name(word.text) in _SHELLS:
                self._commands.append(words[place:])
            if program_name(word.text) in (PROGRAMS if is_known else _OFTEN_STARTED):
                self._by_program(program_name(word.text), words[place + 1 :], is_guessed=True)
            for text in (
                word.text.lstrip("+!|@ "),
                word.text.partition("=")[2].removeprefix("exec=").lstrip("!|@ "),
            ):
                first, *rest = text.split(None, 1) or [""]
                if rest and (is_known or program_name(first) in _OFTEN_STARTED):
                    self._note(fatal(self._within(text)))
        # `uv run`, `npx` and the like start the command that follows their options.
        is_runner = len(words) > 1 and (name, words[1].text) in programs.COMMANDS
        start = 1 if name in programs.WHOLE else 2 if is_runner else len(words)
        started = [*itertools.dropwhile(lambda word: word.text.startswith("-"), words[start:])]
        if started and self.budget.take(words=len(started)):
            self._spelled(started, is_new=True)

    def _by_code_option(self, name: str, words: Sequence[Reading]) -> None:
        """Judge what stands behind `-e` and the like as code, in whatever language the program reads."""
        for before, word in itertools.pairwise(words) if not is_starter(name) else ():
            option, _, joined = re.sub("[=:]", "\0", word.text, count=1).partition("\0")
            is_joined = option.startswith("--") and _CODE_OPTIONS.fullmatch(option) is not None
            code = joined if is_joined else word.text if _CODE_OPTIONS.fullmatch(before.text) else ""
            self._note(_in_code(code, self.places) if re.search(r"[\s(]", code) else None)

    def _disguised(self, text: str) -> None:
        """Judge a text without look-alikes, and in pieces if the parser is in doubt about it."""
        if not self.budget.take(characters=len(text)):
            return
        self.places.directories[:] = self._directories
        plain = _cleaned(text)
        if _BOMB.search(plain):
            self._note(Finding("would start processes until nothing works any more"))
        if plain != text:
            self._note(self._within(plain))
        is_whole = not any("too long" in doubt for doubt in self.line.doubts)
        for piece in _PIECES.findall(self._without_documents(plain)) if self.line.doubts else ():
            is_inner = piece.lstrip().startswith("(")
            found = fatal(self._within(piece.strip("() \t") if is_inner else piece))
            if found is None and any("parse" in doubt for doubt in self.line.doubts):
                found = self._by_blanks(piece)
                # Without a parser this is all that is known of it.
                is_all = any("without a parser" in doubt for doubt in self.line.doubts)
                found = found if is_all else fatal(found)
            self._note(found if is_whole else _softened(found))

    def _by_blanks(self, piece: str) -> Finding | None:
        """Return the worst finding on a piece that nobody can parse, with what is between blanks as words."""
        words = [ANYTHING._replace(source=word) for word in piece.split()]
        targets = [Target("edit", word._replace(source=word.source.rpartition(">")[2])) for word in words]
        line = Line([Command(tuple(words))] if words else [], targets, variables=self.line.variables)
        return _Judgement(line, self.places, self.budget, self.depth + 1, self.read).worst(None)

    def _without_documents(self, text: str) -> str:
        """Return the text without here-documents, which are no commands, if it is certain where they end."""
        if any("here-document" in doubt and doubt not in DOUBTS_ABOUT_BODY for doubt in self.line.doubts):
            return text
        for body in self.line.fed:
            text = text.replace(body, "\n") if "\n" in body else text
        return text

    def _run_texts(self, text: str) -> None:
        """Judge the texts that the line feeds to a shell or an interpreter, or writes to a file and runs."""
        source = self._without_documents(text)
        fed = [*self.line.fed]
        for body in self.line.fed:
            fed += self._scope.texts(ANYTHING._replace(source=body)) if "\n" not in body.strip() else []
        names = {program_name(words[0].text) for words in self._commands}
        is_fed = _FEEDS.search(source) is not None
        for words in self._commands:
            if not self.budget.take(words=len(words)):
                return
            name = program_name(words[0].text)
            is_shell = _reads_commands(name, words)
            is_code = (
                name in _CODE_PROGRAMS | _BUILDERS or programs.interpreted_at(_certain(words)) is not None
            )
            for each in fed:
                self._note(self._within(each) if is_shell else None)
                self._note(_in_code(each, self.places) if is_code else None)
            is_unknown = is_shell and not (fed and names <= _PASSING | _SHELLS)
            if is_fed and (is_unknown or (not fed and _reads_code(name, words))):
                self._note(question(f"gives `{name}` a text to run that is only known when it runs"))
        if self.line.targets or names & _MAKING:
            self._run_files(source, fed)

    def _run_files(self, source: str, fed: Sequence[str]) -> None:
        """Judge the files that a statement writes and the line runs, by what is written into them."""
        run = {each for words in self._commands for each in _run_by(words)}
        run |= _MAKEFILES if run & _BUILDERS else set()
        is_code = any(is_interpreter(Word(program_name(words[0].text))) for words in self._commands)
        for statement in _STATEMENTS.findall(source) if self.budget.take(characters=len(source)) else ():
            line = read_line(statement)
            commands = [(program_name(each.words[0].text), [*each.words[1:]]) for each in line.commands]
            files = [target.word for target in line.targets if target.kind == "edit"]
            files += [word for name, words in commands for word in words if name in _MAKING]
            files += [
                Word(each.text)
                for name, words in commands
                for each in (downloaded(name, _as_given(words)) if name in {"curl", "wget"} else ())
            ]
            if not run & {program_name(word.text.removeprefix("of=")) for word in files}:
                continue
            printing = [words for name, words in commands if name in _PRINTING]
            printed = [" ".join(each.text for each in words) for words in printing]
            is_known = all(
                each.is_plain and not _CODED.search(each.text) for words in printing for each in words
            )
            if not (fed or printed) or not is_known or not {name for name, _ in commands} <= _PASSING:
                self._note(question("runs a file whose content is only known when it runs"))
            for text in (*fed, *printed):
                self._note(_softened(fatal(self._within(text))))
                self._note(_in_code(text, self.places) if is_code else None)

    def _within(self, text: str) -> Finding | None:
        """Return the worst finding on a text that is read as commands."""
        if text not in self.read:
            self.read[text] = None
            if self.depth < DEEPEST and text.strip() and self.budget.take(characters=len(text) + 20):
                inner = _Judgement(read_line(text), self.places, self.budget, self.depth + 1, self.read)
                for name, words in self.line.variables.items():
                    for word in words:
                        inner._scope.give(name, word.source or word.text)
                self.read[text] = inner.worst(text)
        return self.read[text]


_CODED = re.compile(r"\\(?:[0-7]{2,3}|[xuU][0-9A-Fa-f])")
"""Escapes that stand for letters, with which `printf` and `echo -e` write what nobody reads."""


def _softened(finding: Finding | None) -> Finding | None:
    """Make a question of a finding on a text that may not be run as it is read."""
    return None if finding is None else question(finding.reason)


def _cleaned(text: str) -> str:
    """Return the text without disguises: joined lines, look-alikes, invisible and control characters."""
    plain = unicodedata.normalize("NFKC", text.replace("\\\r\n", "").replace("\\\n", ""))
    kept = (letter for letter in plain if unicodedata.category(letter) not in {"Cf", "Cs"})
    return "".join("\n" if letter in "\r\u2028\u2029" else letter for letter in kept).translate(_BLANKS)


def _as_given(words: Sequence[Word]) -> Arguments:
    return Arguments([Reading(word.text) for word in words])


def _escaped(path: str) -> str:
    return re.sub(r"([{},\\'\"$`\s])", r"\\\1", path)


def _certain(words: Sequence[Reading]) -> list[Word]:
    return [Word(word.text) for word in words]


def _reads_commands(name: str, words: Sequence[Reading]) -> bool:
    """True if a program takes its input for commands."""
    given = Arguments([word for word in words[1:] if word.text != "-"])
    is_stream = any(word.text.startswith(("/dev/", "<(")) for word in given.operands)
    if name in _SHELLS:
        is_text = given.matches(r"-\w*c|--version|--help")
        return not is_text and (is_stream or given.has("s") or len(given.operands) <= (name == "busybox"))
    if name in {"source", ".", "sudo"}:
        return is_stream or (name == "sudo" and given.has("si"))
    if name in {"su", "crontab", "at", "batch"}:
        return not given.has("c" if name == "su" else "clre")
    return name == "ssh" and len(given.operands) <= 1


def _reads_code(name: str, words: Sequence[Reading]) -> bool:
    """True if an interpreter takes its input for code."""
    if (name, "".join(word.text for word in words[1:2])) in programs.COMMANDS and name not in _CONTAINED:
        # `uv run -` runs its input.
        return next((word.text for word in words[2:] if not re.match(r"-.", word.text)), "") == "-"
    at = programs.interpreted_at(_certain(words))
    is_stream = at is not None and "".join(word.text for word in words[at : at + 1]) in {"-", "/dev/stdin"}
    return at == len(words) or (is_stream and re.match("py|perl|ruby|node|php|lua|bun", name) is not None)


def _run_by(words: Sequence[Reading]) -> Iterator[str]:
    """Yield the names of the files that a command runs: its program, and the script of an interpreter."""
    name = program_name(words[0].text)
    yield name
    if name in _SHELLS | _BUILDERS | {"source", "."} or is_interpreter(Word(name)):
        yield from (program_name(word.text) for word in words[1:])


def _printed_paths(words: Sequence[Reading], places: Places) -> list[str]:
    """Return the paths that a command may print, for `xargs`, `read` and the like.

    A path that is only known when the command runs is UNKNOWN, or has it in its place.
    """
    name = program_name(words[0].text)
    operands = [word for word in words[1:] if not word.text.startswith("-")]
    if name in {"find", "gfind"}:
        starts, is_narrow = find_starts(words[1:])
        history = [
            f"{start.text}/.git" for start in starts if is_narrow and finds_history(words[1:], start.text)
        ]
        return [*history, *(f"{start.text}/{UNKNOWN}" if is_narrow else start.text for start in starts)]
    if name in _PRINTING:
        return [piece for word in words[1:] for piece in re.split(r"\\n|\\0|\s", word.text)]
    if name == "ls":
        # It prints names, which the line may put behind any directory.
        return [*(f"{operand.text}/*" for operand in operands or [Reading(".")]), f"./{UNKNOWN}"]
    if name in {"git", "grep", "rg", "fd", "fdfind", "egrep"}:
        return [UNKNOWN if any(map(places.whole, operands)) else f"./{UNKNOWN}"]
    is_silent = name in _FILTERING or name in PROGRAMS or name in _MOVING or is_starter(name)
    return [] if is_silent else [UNKNOWN]


_DESTROYER = r"(?:rm|dd|mkfs[.\w]*|shred|wipefs|chmod|chown|reboot|shutdown|poweroff)"
_ACTS_IN_CODE = re.compile(
    r"rmtree|remove|rimraf|\brm_?r|\brm(?:Sync|dir|\()|delete|unlink|FileUtils|\.rm\(|move\(|rename|fork|kill"
    r"|system|popen|subprocess|exec|spawn|child_process|check_(?:call|output)|\b(?:run|call)\(|qx|passthru|Process",
    re.IGNORECASE,
)
"""Calls that delete, fork or start programs."""
_WRITES_IN_CODE = re.compile(r"open|write|truncate|dump|copy|File\b|>", re.IGNORECASE)
_STARTS_IN_CODE = re.compile(
    rf"(?:^|[!|;:`/\"'({{]|(?:\b|\d)e\s|shell\s)\s*{_DESTROYER}\s+[-/~$\w]", re.MULTILINE
)
"""A destructive program where a command may begin, as in `!rm -rf x` for `vim` or `e rm -rf x` for `sed`."""
_RISKS_IN_CODE = re.compile(
    rf"(?<![\w.$-]){_DESTROYER}(?![\w(=.-])|expanduser\(\s*.~/?.\s*\)|\.home\b|homedir\(|\bHOME\b|[sh)]\.sep\b"
    r"|\bkill\W.{0,1000}-1\b|(?:while|loop|for)\b.{0,1000}\bfork\b|\bfork\b.{0,1000}\bwhile\b"
    r"|b(?:ase)?(?:64|32)|fromhex|unhexlify|\bchr\b|fromCharCode|bytes\(\[|\bpack\b|rot.?13|\batob\b|\\x[0-9a-f]{2}",
    re.IGNORECASE | re.DOTALL,
)
"""Destructive programs, homes, the root, endless forks, and functions that decode text."""
_PATHS_IN_CODE = re.compile(r"(?<![\w./~$)*<-])(?:~|/(?!/))[\w./~*+-]*(?![\w(])")


def _in_code(code: str, places: Places) -> Finding | None:
    """Search code of any language for calls that destroy or start, and for what is vital or hidden."""
    code = code[:LONGEST_CODE]
    paths = [Reading(path, is_pattern=True) for path in dict.fromkeys(_PATHS_IN_CODE.findall(code))]
    is_risky = _RISKS_IN_CODE.search(code) is not None or any(map(places.whole, paths))
    if (is_risky and _ACTS_IN_CODE.search(code)) or _STARTS_IN_CODE.search(code):
        return question("has code that may destroy what is vital, or hides what it does")
    if _WRITES_IN_CODE.search(code) and any(map(places.vital, paths)):
        return question("has code that may overwrite what the system needs")
    return None

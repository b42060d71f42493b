"""Finds the commands that programs start, and code in their arguments.

A wrapper such as `timeout` does nothing by itself: what follows needs the allowance. A wrapper that does
something by itself, such as `sudo` or `find`, needs one of its own as well. A wrapper whose options are not
known is in doubt.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from coupler.permission.command_words import ANYTHING, Target, Word, certain
from coupler.permission.variables import is_harmless, is_local

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_TEXT_ONLY = frozenset({"cd", "read", "set", "test", "printf", "pushd", "popd", "history", "unset", "wait"})


class Through(NamedTuple):
    """The commands that a program starts, the files and directories that it opens, and a doubt about it."""

    inner: tuple[tuple[Word, ...] | str, ...] = ()
    """The commands that it starts: words, or a text for a shell."""
    is_wrapper: bool = False
    """True if it does nothing by itself, and so needs no allowance."""
    targets: tuple[Target, ...] = ()
    """Files that it opens, and directories that it enters, by itself."""
    moves: int = 0
    doubt: str | None = None


ORDINARY = Through()


def look_through(words: Sequence[Word]) -> Through:
    """Return the commands that this one starts.

    One that is not written as the mere name (`/opt/env`) may be another program: it needs an allowance of its
    own.
    """
    program = words[0].text
    name = program_name(program)
    look = _LOOKS.get(name)
    if look is None:
        return ORDINARY
    try:
        through = look(tuple(words[1:]))
    except UnknownOptionError as error:
        return Through(doubt=f"{_shown(name)} {error}")
    if program != name:
        return through._replace(is_wrapper=False)
    return through


def is_starter(name: str) -> bool:
    """True if a program of this name may start others, or change the shell for the next commands."""
    return name in _LOOKS and name not in _TEXT_ONLY


def program_name(text: str) -> str:
    """Return the name of a program, without directory and `.exe`, in lower case."""
    return re.split(r"[/\\]", text)[-1].casefold().removesuffix(".exe")


def _shown(name: str) -> str:
    return f"`{name}`"


def _starts_operands(flags: str = "", valued: str = "", *, skipped: int = 0) -> Callable[..., Through]:
    known = options(flags, valued)

    def look(words: tuple[Word, ...]) -> Through:
        inner = words[known.skip(words) + skipped :]
        if not inner:
            return ORDINARY
        return Through((inner,), is_wrapper=True)

    return look


def _look_through_env(words: tuple[Word, ...]) -> Through:
    known = options("-i --ignore-environment - -0 --null -v --debug", "-u --unset")
    return _after_assignments(words[known.skip(words) :])


def _after_assignments(words: tuple[Word, ...]) -> Through:
    position = 0
    while position < len(words) and (match := _ASSIGNMENT.match(words[position].text)):
        if not words[position].is_plain:
            raise UnknownOptionError("is given words that are only known when it runs")
        if not is_harmless(match[1], words[position].text[match.end() :]):
            raise UnknownOptionError(f"sets {match[1]}, which may change what a command does")
        position += 1
    inner = words[position:]
    return Through((inner,), is_wrapper=True) if inner else ORDINARY


def _look_through_nice(words: tuple[Word, ...]) -> Through:
    if words and re.fullmatch(r"-[0-9]+", words[0].text):
        words = words[1:]
    return _starts_operands("", "-n --adjustment")(words)


def _look_through_command(words: tuple[Word, ...]) -> Through:
    if words and words[0].text in {"-v", "-V"}:
        return ORDINARY
    return _starts_operands("-p")(words)


def _look_through_sudo(words: tuple[Word, ...]) -> Through:
    """Look through `sudo` and `doas`, which run as another user and so need an allowance of their own."""
    known = options("-n --non-interactive -H --set-home -k -b", "-u --user -g --group")
    return _after_assignments(words[known.skip(words) :])._replace(is_wrapper=False)


def _look_through_xargs(words: tuple[Word, ...]) -> Through:
    known = options(
        "-0 --null -r --no-run-if-empty -t --verbose -p --interactive -x --exit",
        "-n --max-args -P --max-procs -L -I -d --delimiter -s --max-chars -E",
    )
    start = known.skip(words)
    inner = words[start:]
    if not inner:
        return ORDINARY
    marks = _replaced_by_xargs(words[:start])
    if not marks:
        return Through(((*inner, ANYTHING),), is_wrapper=True)
    filled = tuple(
        Word(word.text, is_certain=False) if any(mark in word.text for mark in marks) else word
        for word in inner
    )
    return Through((filled,), is_wrapper=True)


def _replaced_by_xargs(words: Sequence[Word]) -> list[str]:
    """Return the placeholders of `-I` that xargs replaces by what it reads."""
    marks: list[str] = []
    for position, word in enumerate(words):
        if word.text == "-I":
            marks += [following.text for following in words[position + 1 : position + 2]]
        elif word.text.startswith("-I"):
            marks.append(word.text.removeprefix("-I"))
    if any(not mark for mark in marks):
        raise UnknownOptionError("replaces nothing")
    return marks


_SHELL_LETTERS = frozenset("ceuxlivn")
_SHELL_WORDS = frozenset({"--norc", "--noprofile", "--login", "--posix"})


def _look_through_shell(words: tuple[Word, ...]) -> Through:
    has_text = False
    position = 0
    while position < len(words):
        word = words[position]
        if not word.is_plain:
            raise UnknownOptionError("is given words that are only known when it runs")
        if not word.text.startswith(("-", "+")):
            break
        position += 1
        if word.text in _SHELL_WORDS:
            continue
        if word.text == "-o" and position < len(words) and words[position].text == "pipefail":
            position += 1
            continue
        if word.text[0] == "+" or word.text == "-" or not set(word.text[1:]) <= _SHELL_LETTERS:
            raise UnknownOptionError(f"has the option {word.text}, which cannot be judged")
        has_text = has_text or "c" in word.text
    if position == len(words):
        raise UnknownOptionError("reads its commands from elsewhere")
    if has_text:
        return Through((words[position].text,), is_wrapper=True)
    if words[position].text.startswith(("/dev/", "/proc/")):
        raise UnknownOptionError("reads its commands from elsewhere")
    return ORDINARY


def _look_into_other_shell(words: tuple[Word, ...]) -> Through:
    """Look into a shell of another language: it is always in doubt, but its commands can be denied."""
    doubt = "`zsh` and `ksh` read some texts in ways that cannot be judged"
    return _look_through_shell(words)._replace(doubt=doubt)


def _look_through_eval(words: tuple[Word, ...]) -> Through:
    return Through((_as_text(words),), is_wrapper=True) if words else ORDINARY


def _as_text(words: Sequence[Word]) -> str:
    if not all(word.is_plain for word in words):
        raise UnknownOptionError("runs a text that is only known when it runs")
    return " ".join(word.text for word in words)


def _look_through_watch(words: tuple[Word, ...]) -> Through:
    known = options("-d --differences -t --no-title -g --chgexit -c --color -e --errexit -b", "-n --interval")
    return _look_through_eval(words[known.skip(words) :])


def _look_through_parallel(words: tuple[Word, ...]) -> Through:
    """Look through `parallel`, whose command is a text for a shell, to which it adds quoted words."""
    known = options("-k --keep-order --will-cite -0 --null", "-j --jobs")
    words = words[known.skip(words) :]
    places = [index for index, word in enumerate(words) if word.text.startswith(":::")]
    text = _as_text(words[: places[0]] if places else words)
    if not text or not re.fullmatch(r"[\w ./=:@%,-]+", text, re.ASCII):
        raise UnknownOptionError("runs a text that is only known when it runs")
    return Through(((*certain(*text.split()), ANYTHING),), is_wrapper=True)


_FIND_STARTS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})


def _look_through_find(words: tuple[Word, ...]) -> Through:
    """Return the commands that `find` starts, the files that it writes, and `rm` for what it deletes."""
    # A word that only the running shell knows could be `-delete`, or end an `-exec`.
    if not all(word.is_plain for word in words):
        raise UnknownOptionError("is given words that are only known when it runs")
    inner: list[tuple[Word, ...] | str] = []
    targets: list[Target] = []
    position = 0
    while position < len(words):
        text = words[position].text
        position += 1
        if text in _FIND_STARTS:
            end = _end_of_exec(words, position)
            inner.append(tuple(_filled(word) for word in words[position:end]))
            position = end + 1
        elif text in _FIND_WRITES and position < len(words):
            targets.append(Target("edit", words[position]))
        elif text == "-delete":
            inner.append((Word("rm"), ANYTHING._replace(is_found=True)))
    return Through(tuple(inner), targets=tuple(targets))


def _end_of_exec(words: Sequence[Word], start: int) -> int:
    """Return where the command of an `-exec` ends; raises UnknownOptionError if that is not certain."""
    for at in range(start, len(words)):
        if words[at].text == ";":
            return at
        if words[at].text == "+":
            if words[at - 1].text == "{}":
                return at
            break
    raise UnknownOptionError("has a command of which the end is not certain")


def _filled(word: Word) -> Word:
    return Word(word.text, is_certain=False, is_found=True) if "{}" in word.text else word


def _look_through_cd(words: tuple[Word, ...]) -> Through:
    """Look through `cd`: to enter a directory is like reading it, and only a named one can be judged."""
    operands = [word for word in words if word.text not in {"--", "-P", "-L"}]
    if len(operands) != 1 or not operands[0].is_plain or operands[0].text[:1] in {"-", "+", ""}:
        raise UnknownOptionError("enters a directory that is only known when it runs")
    return Through(is_wrapper=True, targets=(Target("enter", operands[0]),), moves=1)


def _look_through_read(words: tuple[Word, ...]) -> Through:
    if all(word.text == "-r" or is_local(word.text) for word in words):
        return Through(is_wrapper=True) if words else ORDINARY
    raise UnknownOptionError("sets variables that may change what a command does")


def _look_through_set(words: tuple[Word, ...]) -> Through:
    if not words:
        return ORDINARY  # it prints all variables
    if all(re.fullmatch(r"-[eux]*o?|pipefail", word.text) and word.is_plain for word in words):
        return Through(is_wrapper=True)
    raise UnknownOptionError("changes the shell for the commands after it")


def _look_through_test(words: tuple[Word, ...]) -> Through:
    # Shells evaluate the index of `a[…]`, and run the commands in it.
    if any(word.text == "-v" or "[" in word.text or not word.is_one for word in words):
        raise UnknownOptionError("evaluates what it is given")
    return ORDINARY


def _look_through_printf(words: tuple[Word, ...]) -> Through:
    if words and (words[0].text.startswith("-v") or not words[0].is_certain):
        raise UnknownOptionError("may set a variable")
    return ORDINARY


def _checked(check: Callable[[Sequence[Word]], None]) -> Callable[[tuple[Word, ...]], Through]:
    def look(words: tuple[Word, ...]) -> Through:
        check(words)
        return ORDINARY

    return look


def _in_doubt(reason: str) -> Callable[[tuple[Word, ...]], Through]:
    def look(words: tuple[Word, ...]) -> Through:
        raise UnknownOptionError(reason)

    return look


def check_sed(words: Sequence[Word]) -> None:
    """Raise UnknownOptionError unless the script can only change text.

    The languages of sed, awk and database clients can start commands and write files: what is not known to be
    harmless is in doubt.
    """
    if not all(word.is_plain for word in words):
        raise UnknownOptionError("is given words that are only known when it runs")
    scripts: list[str] = []
    operands: list[str] = []
    given = iter(word.text for word in words)
    for text in given:
        if text in {"-e", "--expression"}:
            scripts.append(next(given, ""))
        elif text.startswith("--expression="):
            scripts.append(text.partition("=")[2])
        elif text.startswith("-") and len(text) > 1:
            _check_sed_option(text)
        else:
            operands.append(text)
    for script in scripts or operands[:1]:
        _check_sed_script(script)


def check_awk(words: Sequence[Word]) -> None:
    """Raise UnknownOptionError unless the program is given, and neither starts commands nor writes files."""
    operand = next((word for word in words if not word.text.startswith("-") or not word.is_plain), None)
    if operand is None or not operand.is_plain:
        raise UnknownOptionError("has a program that is only known when it runs")
    for word in words:
        if word.text.startswith("-") and not _AWK_OPTIONS.fullmatch(word.text):
            raise UnknownOptionError(f"has the option {word.text}, which cannot be judged")
        if re.search(r"system|getline|[|>@]", word.text):
            raise UnknownOptionError("has a program that starts commands or writes files")


def check_database(words: Sequence[Word]) -> None:
    """Raise UnknownOptionError unless there is a statement, and none of the client's own commands."""
    if not any(" " in word.text for word in words):
        raise UnknownOptionError("reads its commands from elsewhere")
    for word in words:
        if not word.is_plain or _COMMAND_OF_CLIENT.search(word.text):
            raise UnknownOptionError("may be given commands that start others or write files")


class UnknownOptionError(ValueError):
    """An option, or a word in an option's place, has an unknown effect."""


class Options(NamedTuple):
    """The options that a program has before its operands; any other option puts it in doubt."""

    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()

    def skip(self, words: Sequence[Word]) -> int:
        """Return the position of the first operand among these words, which follow the program's name."""
        position = 0
        while position < len(words):
            word = words[position]
            if not word.is_plain:
                raise UnknownOptionError("has an option that is only known when it runs")
            if word.text == "--":
                return position + 1
            if not word.text.startswith("-") or word.text == "-":
                return position
            length = self._length(word.text)
            if not all(value.is_plain for value in words[position : position + length]):
                raise UnknownOptionError("has an option that is only known when it runs")
            position += length
        return min(position, len(words))

    def _length(self, text: str) -> int:
        """Return the number of words of this option: two if its value is the next word."""
        name, has_value, _ = text.partition("=")
        if text in self.flags or (has_value and name in self.valued and name.startswith("--")):
            return 1
        if text in self.valued:
            return 2
        if not text.startswith("--"):
            if text[:2] in self.valued:
                return 1
            if all(f"-{letter}" in self.flags for letter in text[1:]):
                return 1
        raise UnknownOptionError(f"has the option {text}, which cannot be judged")


def options(flags: str = "", valued: str = "") -> Options:
    """Make Options of two lists with blanks between: flags, and options that take a value."""
    return Options(frozenset(flags.split()), frozenset(valued.split()))


_LOOKS: dict[str, Callable[[tuple[Word, ...]], Through]] = {
    "env": _look_through_env,
    "timeout": _starts_operands(
        "--foreground --preserve-status -v --verbose -f -p", "-s --signal -k --kill-after", skipped=1
    ),
    "gtimeout": _starts_operands("--foreground --preserve-status", "-s --signal -k --kill-after", skipped=1),
    "nice": _look_through_nice,
    "nohup": _starts_operands(),
    "time": _starts_operands("-p"),
    "setsid": _starts_operands("-c --ctty -f --fork -w --wait"),
    "stdbuf": _starts_operands("", "-i --input -o --output -e --error"),
    "ionice": _starts_operands("-t --ignore", "-c --class -n --classdata"),
    "command": _look_through_command,
    "builtin": _starts_operands(),
    "exec": _starts_operands(),
    "busybox": _starts_operands(),
    "toybox": _starts_operands(),
    "sudo": _look_through_sudo,
    "doas": _look_through_sudo,
    "xargs": _look_through_xargs,
    "find": _look_through_find,
    "eval": _look_through_eval,
    "watch": _look_through_watch,
    "parallel": _look_through_parallel,
    "cd": _look_through_cd,
    "read": _look_through_read,
    "set": _look_through_set,
    "test": _look_through_test,
    "printf": _look_through_printf,
    **dict.fromkeys(("bash", "sh", "dash", "ash"), _look_through_shell),
    **dict.fromkeys(("zsh", "ksh", "mksh"), _look_into_other_shell),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _checked(check_awk)),
    **dict.fromkeys(("sed", "gsed"), _checked(check_sed)),
    **dict.fromkeys(("sqlite3", "psql", "mysql", "mariadb"), _checked(check_database)),
    **dict.fromkeys(
        (
            *("ssh", "mosh", "su", "runuser", "pkexec", "chroot", "nsenter", "unshare", "script", "expect"),
            *("at", "batch", "crontab", "systemd-run", "screen", "tmux", "fish", "csh", "tcsh", "elvish"),
            *("nu", "pwsh", "powershell", "cmd", "osascript", "rsh", "fd", "fdfind", "entr", "flock"),
            *("strace", "ltrace", "gdb", "lldb", "valgrind", "perf", "ed", "ex", "dc", "m4", "socat"),
            *("taskset", "chrt", "setarch", "prlimit", "numactl", "setpriv", "capsh", "runcon", "sg"),
            *("unbuffer", "rlwrap", "faketime", "fakeroot", "proot", "bwrap", "firejail", "gosu", "chpst"),
            *("xvfb-run", "dbus-run-session", "run-parts", "start-stop-daemon", "sem", "chronic", "xterm"),
            *("torsocks", "proxychains", "proxychains4", "nix-shell", "daemonize", "dtach", "cgexec"),
        ),
        _in_doubt("starts commands in a way that cannot be judged"),
    ),
    **dict.fromkeys(
        (
            *("source", ".", "alias", "unalias", "hash", "enable", "trap", "export", "declare", "typeset"),
            *("readonly", "local", "unset", "mapfile", "readarray", "getopts", "let", "coproc", "bind"),
            *("complete", "compgen", "fc", "history", "shopt", "pushd", "popd", "wait", "disown", "zmodload"),
        ),
        _in_doubt("changes the shell for the commands after it"),
    ),
}


OPTIONS = {
    "git": (
        *("--exec-path", "--config-env", "--upload-pack", "--receive-pack", "--exec", "--ext-diff"),
        *("--open-files-in-pager", "--output", "--git-dir", "--work-tree", "--template", "--textconv"),
        *("--extcmd", "--config"),
    ),
    "make": ("--eval", "--file", "--makefile", "--directory", "--include-dir"),
    "gmake": ("--eval", "--file", "--makefile", "--directory", "--include-dir"),
    "tar": (
        *("--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command"),
        *("--info-script", "--new-volume-script", "--rmt-command"),
    ),
    "rsync": ("--rsh", "--rsync-path"),
    "cargo": ("--config", "--manifest-path"),
    "npm": (
        *("--script-shell", "--prefix", "--node-options", "--userconfig", "--globalconfig", "--shell"),
        *("--git", "--editor", "--viewer", "--init-module", "--onload-script", "--call"),
    ),
    "sort": ("--compress-program", "--output"),
    "pytest": ("--override-ini", "--rootdir", "--confcutdir"),
    "less": ("--lesskey-file", "--lesskey-src", "--lesskey-content", "--log-file"),
    "more": (),
    "man": ("--pager", "--html", "--config-file", "--gxditview", "--preprocessor"),
    "rg": ("--pre", "--hostname-bin"),
    "ag": ("--pager",),
    "ack": ("--pager",),
    "bat": ("--pager",),
    "fzf": ("--preview", "--bind"),
    "scp": (),
    "sftp": (),
    "wget": ("--use-askpass", "--execute", "--config"),
    "zip": ("--unzip-command",),
    "tcpdump": (),
    "nc": ("--exec", "--sh-exec", "--lua-exec"),
    "ncat": ("--exec", "--sh-exec", "--lua-exec"),
    "go": ("--exec", "--toolexec", "--vettool", "--overlay", "--modfile"),
    "hg": ("--config",),
    "split": ("--filter",),
    "sdiff": ("--diff-program", "--output"),
    "diff3": ("--diff-program",),
    "install": ("--strip-program",),
    "shuf": ("--output",),
    "tree": (),
    "apt": ("--option", "--config-file"),
    "apt-get": ("--option", "--config-file"),
    "rpm": ("--eval", "--pipe", "--define", "--load", "--rcfile", "--macros"),
    "cmake": (),
    "ninja": (),
    "svn": ("--config-option", "--diff-cmd", "--diff3-cmd", "--editor-cmd", "--config-dir"),
    **dict.fromkeys(("gcc", "cc", "g++", "c++", "clang", "clang++"), ("--specs", "--wrapper")),
}
"""Long options that can start a command, change what is run or write a file, by program.

They may be abbreviated. Only well-known ones can be listed. One that is missing passes an open rule such as
`git log *`, so a doubtful one belongs here.
"""

LETTERS = {
    "make": "fCEI",
    "gmake": "fCEI",
    "tar": "IF",
    "rsync": "e",
    "sort": "o",
    "cargo": "ZC",
    "npm": "C",
    "less": "oOk",
    "man": "PHC",
    "scp": "oSFDJ",
    "sftp": "oSFDJ",
    "wget": "e",
    "sdiff": "o",
    "shuf": "o",
    "tree": "oR",
    "apt": "oc",
    "apt-get": "oc",
    "rpm": "ED",
    "cmake": "EPC",
    "ninja": "fC",
    "zip": "T",
    "tcpdump": "zw",
    "nc": "ec",
    "ncat": "ec",
}
"""Letters of short options that can do the same as OPTIONS, by program."""

LETTERS_OF_GIT = {"grep": "O", "clone": "uc", "archive": "o"}

ONE_DASH = frozenset({"npm", "go", "gcc", "cc", "g++", "c++", "clang", "clang++"})
"""Programs to which `-exec` and `--exec` are the same."""

BEGINNINGS = {
    **dict.fromkeys(("gcc", "cc", "g++", "c++", "clang", "clang++"), ("-wrapper", "-fplugin", "-B", "@")),
    "less": ("+",),
    "more": ("+",),
}
"""Beginnings of other words that can do the same as OPTIONS, by program."""

WITHIN = {"go": re.compile(r"-ext(?:ld|ar)\b")}
"""Options of other programs, by the program whose words pass them on, that can do the same as OPTIONS."""

COMMANDS = frozenset(
    {
        *(("git", name) for name in ("config", "bisect", "submodule", "filter-branch", "rebase")),
        *(("git", name) for name in ("difftool", "mergetool", "send-email", "merge-index", "for-each-repo")),
        *(("git", name) for name in ("remote-ext", "remote-fd", "shell", "hook", "instaweb", "daemon")),
        *(("git", name) for name in ("submodule--helper", "bisect--helper")),
        *(("npm", name) for name in ("exec", "x", "explore", "config", "c", "set", "edit")),
        *(("npm", name) for name in ("init", "innit", "create")),
        *(("pnpm", name) for name in ("exec", "dlx", "create", "config")),
        *(("yarn", name) for name in ("exec", "dlx", "create", "config")),
        *(("docker", name) for name in ("run", "exec", "create", "buildx", "plugin")),
        *(("podman", name) for name in ("run", "exec", "create")),
        *(("uv", name) for name in ("run", "tool")),
        *(("kubectl", name) for name in ("exec", "run", "debug", "plugin")),
        *((name, "run") for name in ("cargo", "poetry", "pipenv", "pdm", "hatch", "rye", "conda", "pipx")),
        *((name, "exec") for name in ("bundle", "direnv", "asdf", "mise")),
        *(("gh", name) for name in ("alias", "extension")),
        *(("go", name) for name in ("run", "env", "generate")),
        ("deno", "eval"),
    }
)
"""Subcommands whose further words are programs, or settings that start some."""

GROUPS = frozenset({("docker", "container"), ("docker", "compose"), ("podman", "container")})
"""Subcommands that have subcommands of their own."""

ABBREVIATING = frozenset({"npm"})
"""Programs that accept abbreviated subcommands."""

WHOLE = frozenset({"npx", "bunx", "uvx"})
"""Programs whose words are another program; a rule for all commands does not allow them."""


_CODE_LETTERS = {
    **dict.fromkeys(("python", "pypy", "ipython"), "c"),
    "perl": "eEMmd",
    "ruby": "e",
    **dict.fromkeys(("node", "nodejs", "bun", "tsx", "ts-node"), "ep"),
    "deno": "",
    "php": "rBREd",
    "lua": "e",
    "luajit": "e",
    **dict.fromkeys(("rscript", "r", "ghc", "ghci", "groovy", "elixir", "scala", "gnuplot", "racket"), "e"),
    **dict.fromkeys(("ocaml", "swift"), "e"),
    "tcc": "r",
    "julia": "eE",
    "guile": "ce",
    "swipl": "gt",
    **dict.fromkeys(("octave", "irb", "tclsh", "wish", "jshell", "erl", "sbcl"), ""),
    **dict.fromkeys(("vim", "nvim", "vi", "view", "gvim", "rvim", "vimdiff"), "cSsuUWwe"),
    "emacs": "flx",
}
_EDITORS = frozenset({"vim", "nvim", "vi", "view", "gvim", "rvim", "vimdiff", "emacs"})
_CODE_WORDS = frozenset(
    {
        *("eval", "exec", "repl", "--eval", "--print", "--execute", "--run", "--cmd", "-eval"),
        *("--import", "--loader", "--experimental-loader", "--funcall", "--load", "--script"),
        *("--process-begin", "--process-code", "--process-end"),
    }
)
_FLAGS = {
    **dict.fromkeys(("python", "pypy"), "uBIEsSOqvbdPmx"),
    "perl": "wTtUWXlnpasfc",
    "ruby": "wvanpls",
    "php": "fnqlsw",
}
"""Letters of options, by interpreter, that take no further word, or (`-m`) one that says what to run."""
_LONG_FLAGS = frozenset({"--test", "--watch", "--no-warnings", "--enable-source-maps", "--check"})
_ASKING = frozenset({"--version", "-version", "-V", "-VV", "-v", "--help", "-help", "-h"})
_CODE_MODULES = frozenset({"timeit", "code", "asyncio", "pdb"})


def interpreted_at(words: Sequence[Word]) -> int | None:
    """Return the position of the first word that may pass code to an interpreter; None if there is none.

    It is behind the last word if the code is read from elsewhere. Options of the interpreter are not told
    from those of its script: any will do.
    """
    letters = _code_letters(words[0])
    if letters is None:
        return None
    for place, word in enumerate(words[1:], 1):
        if not word.is_plain or _hands_over(word.text, letters):
            return place
        if word.text in _CODE_MODULES and words[place - 1].text.endswith("m"):
            return place
    return None if _has_script(words) else len(words)


def is_interpreter(word: Word) -> bool:
    """True if the program is an interpreter, or an editor that runs code."""
    return _code_letters(word) is not None


def _code_letters(word: Word) -> str | None:
    return _CODE_LETTERS.get(_name(word))


def _name(word: Word) -> str:
    return re.sub(r"[\d.]+w?$", "", program_name(word.text))


def _hands_over(text: str, letters: str) -> bool:
    if text == "-" or text.partition("=")[0] in _CODE_WORDS or text.startswith(("+", "/dev/", "/proc/")):
        return True
    return re.match(r"-[A-Za-z0-9]", text) is not None and any(letter in text[1:] for letter in letters)


def _has_script(words: Sequence[Word]) -> bool:
    """True if it does not run its input: it has a script, is an editor, or only prints version or help."""
    name = _name(words[0])
    if name in _EDITORS or any(word.text in _ASKING for word in words[1:2]):
        return True
    return any(
        not word.text.startswith("-") and (place == 1 or _takes_no_value(words[place - 1].text, name))
        for place, word in enumerate(words)
        if place
    )


def _takes_no_value(text: str, name: str) -> bool:
    """True if the word after this one is not its value."""
    if not text.startswith("-") or text in _LONG_FLAGS or (text.startswith("--") and "=" in text):
        return True
    return not text.startswith("--") and set(text[1:]) <= set(_FLAGS.get(name, ""))


_GIT_BEFORE_COMMAND = ("-c", "-C")
_SHORTEST_ABBREVIATION = 3
_PROGRAMS_WITH_COMMANDS = frozenset(program for program, _ in COMMANDS)


def inline_code_at(words: Sequence[Word]) -> int | None:
    """Return the position of the first word that may pass code or another program, if there is one.

    It is behind the last word if the code comes from elsewhere. Such a word can do anything: a rule for
    `python *` is meant for scripts; only one that has the option itself, `python -c *`, means code.
    """
    if not words:
        return None
    name = program_name(words[0].text)
    if name in WHOLE:
        return 0
    command = _starting_command_at(name, words)
    if command is not None:
        return command
    if name in OPTIONS:
        letters = _starter_letters(name, words)
        return next(
            (place for place in range(1, len(words)) if _may_start(name, place, words, letters)), None
        )
    return interpreted_at(words)


def has_known_options(program: Word) -> bool:
    """True if it is known which options of a program start others."""
    name = program_name(program.text)
    return name in OPTIONS or name in _LOOKS or is_interpreter(program)


def starts_others(program: str, command: str) -> bool:
    """True if the further words of a program's subcommand are programs, or settings that start some."""
    if (program, command) in COMMANDS:
        return True
    is_abbreviated = program in ABBREVIATING and len(command) >= _SHORTEST_ABBREVIATION
    return is_abbreviated and any(program == known and name.startswith(command) for known, name in COMMANDS)


def _starting_command_at(name: str, words: Sequence[Word]) -> int | None:
    """Return the position of a subcommand that starts others; behind options it may be any word."""
    if len(words) < 2 or name not in _PROGRAMS_WITH_COMMANDS:
        return None
    has_more = words[1].text.startswith(("-", "+")) or (name, words[1].text) in GROUPS
    candidates = range(1, len(words) if has_more else 2)
    return next(
        (at for at in candidates if not words[at].is_plain or starts_others(name, words[at].text)), None
    )


def _may_start(name: str, place: int, words: Sequence[Word], letters: str) -> bool:
    """True if a word may be an option that starts a command.

    One that is only known when the shell runs may be any option, unless it is the value of `-m`.
    """
    word = words[place]
    is_message = word.is_one and words[place - 1].is_plain and words[place - 1].text == "-m"
    if name == "git" and word.text.startswith(_GIT_BEFORE_COMMAND) and words[1].text.startswith("-"):
        return True
    return (not word.is_plain and not is_message) or _starts(name, place, word.text, letters)


def _starter_letters(name: str, words: Sequence[Word]) -> str:
    if name != "git":
        return LETTERS.get(name, "")
    return "".join({*itertools.chain(*(LETTERS_OF_GIT.get(word.text, "") for word in words[1:]))})


def _starts(name: str, place: int, text: str, letters: str) -> bool:
    """True if a word is an option that starts a command, or sets a variable of `make`."""
    if text.startswith(BEGINNINGS.get(name, ())) or (name in WITHIN and WITHIN[name].search(text)):
        return True
    if text.startswith("--") or (name in ONE_DASH and len(text) > 2 and text.startswith("-")):
        given = f"--{text.partition('=')[0].lstrip('-')}"
        return given != "--" and any(option.startswith(given) for option in OPTIONS[name])
    if name.endswith("make") and "=" in text:
        return True
    has_letters = text.startswith("-") or (name == "tar" and place == 1)
    return has_letters and any(letter in text for letter in letters)


_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*/I?)"
_SUBSTITUTION = r"s([/|,#@:])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpIi0-9]*"
_COMMAND = rf"(?:{_ADDRESS}(?:,[+~]?{_ADDRESS})?)?\s*!?\s*(?:[pdqQDPNngGhHx=lz]|{_SUBSTITUTION})?"
_HARMLESS_SED = re.compile(rf"\s*{_COMMAND}\s*", re.ASCII)
_SED_FLAGS = re.compile(
    r"-[nErszu]+|--quiet|--silent|--regexp-extended|--posix|--debug|--in-place|--separate"
)
_SED_IN_PLACE = re.compile(r"-[nErszu]*i(?:\.\w+)?")
_AWK_OPTIONS = re.compile(r"-[Fv]?|-[Fv].+|--|--posix|--field-separator=.*|--assign=.*", re.DOTALL)

_COMMAND_OF_CLIENT = re.compile(r"\\|(?:^|\s)\.[a-z]|\||system|program|file|extension", re.IGNORECASE)


def _check_sed_option(text: str) -> None:
    if not _SED_FLAGS.fullmatch(text) and not _SED_IN_PLACE.fullmatch(text):
        raise UnknownOptionError(f"has the option {text}, which cannot be judged")


def _check_sed_script(script: str) -> None:
    if _HARMLESS_SED.fullmatch(script):
        return
    # A separator within an expression leaves pieces that are no commands, and so in doubt.
    if not all(_HARMLESS_SED.fullmatch(piece) for piece in re.split(r"[;\n]", script)):
        raise UnknownOptionError("has a script that may start commands or write files")

"""Programs that start other programs, and what it is that they start.

A wrapper such as `timeout` does nothing by itself: what follows needs the allowance. A wrapper that does
something by itself, such as `sudo` or `find`, needs one of its own as well. A wrapper whose options are not
known is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from coupler.permission.line import Target
from coupler.permission.options import UnknownOptionError, options
from coupler.permission.stream_script import check_awk, check_database, check_sed
from coupler.permission.variable import is_harmless, is_local
from coupler.permission.word import ANYTHING, Word, certain

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_TEXT_ONLY = frozenset({"cd", "read", "set", "test", "printf", "pushd", "popd", "history", "unset", "wait"})


class Through(NamedTuple):
    """What is seen when a command is looked through."""

    inner: tuple[tuple[Word, ...] | str, ...] = ()
    """The commands that it starts: words, or a text for a shell."""
    is_wrapper: bool = False
    """Whether it does nothing but start them."""
    targets: tuple[Target, ...] = ()
    """The files that it opens or directories that it enters itself."""
    moves: int = 0
    doubt: str | None = None


ORDINARY = Through()


def look_through(words: Sequence[Word]) -> Through:
    """What this command starts. Only a program of that very name is trusted to be the well-known wrapper."""
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
    """Whether a program of this name starts others, or changes what the shell does with the next ones."""
    return name in _LOOKS and name not in _TEXT_ONLY


def program_name(text: str) -> str:
    """The name by which a program is known, whatever the directory and however written."""
    return re.split(r"[/\\]", text)[-1].casefold().removesuffix(".exe")


def _shown(name: str) -> str:
    return f"`{name}`"


# What starts the words after its options ----------------------------------------------------------


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
        if not is_harmless(match[1]):
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
    """As another user it does more than the command itself, so that its own words need an allowance too."""
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
    """The texts that xargs replaces by what it reads."""
    marks: list[str] = []
    for position, word in enumerate(words):
        if word.text == "-I":
            marks += [following.text for following in words[position + 1 : position + 2]]
        elif word.text.startswith("-I"):
            marks.append(word.text.removeprefix("-I"))
    if any(not mark for mark in marks):
        raise UnknownOptionError("replaces nothing")
    return marks


# What starts a shell ------------------------------------------------------------------------------

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
    """Their language differs from the one that is read here: what is found in it can only be denied."""
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
    """Its command is a text for a shell, to which it adds quoted words."""
    known = options("-k --keep-order --will-cite -0 --null", "-j --jobs")
    words = words[known.skip(words) :]
    places = [index for index, word in enumerate(words) if word.text.startswith(":::")]
    text = _as_text(words[: places[0]] if places else words)
    if not text or not re.fullmatch(r"[\w ./=:@%,-]+", text, re.ASCII):
        raise UnknownOptionError("runs a text that is only known when it runs")
    return Through(((*certain(*text.split()), ANYTHING),), is_wrapper=True)


# What does something by itself --------------------------------------------------------------------

_FIND_STARTS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})


def _look_through_find(words: tuple[Word, ...]) -> Through:
    """Itself, the commands that it starts, and as `rm` what it deletes."""
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
            inner.append((Word("rm"), ANYTHING))
    return Through(tuple(inner), targets=tuple(targets))


def _end_of_exec(words: Sequence[Word], start: int) -> int:
    """Where the command ends that find starts; a lone `+` ends it for some and not for others."""
    for at in range(start, len(words)):
        if words[at].text == ";":
            return at
        if words[at].text == "+":
            if words[at - 1].text == "{}":
                return at
            break
    raise UnknownOptionError("has a command of which the end is not certain")


def _filled(word: Word) -> Word:
    return Word(word.text, is_certain=False) if "{}" in word.text else word


def _look_through_cd(words: tuple[Word, ...]) -> Through:
    """Entering a directory is like reading it; only one that is named can be judged."""
    operands = [word for word in words if word.text not in {"--", "-P", "-L"}]
    if len(operands) != 1 or not operands[0].is_plain or operands[0].text[:1] in {"-", "+", ""}:
        raise UnknownOptionError("enters a directory that is only known when it runs")
    return Through(is_wrapper=True, targets=(Target("enter", operands[0]),), moves=1)


def _look_through_read(words: tuple[Word, ...]) -> Through:
    if all(word.text == "-r" or is_local(word.text) for word in words):
        return Through(is_wrapper=True)
    raise UnknownOptionError("sets variables that may change what a command does")


def _look_through_set(words: tuple[Word, ...]) -> Through:
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

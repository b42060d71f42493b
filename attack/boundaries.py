"""Disguised commands against permission rules and the floor, and swapped links against files.

Whether a disguise works is not assumed. A command that was allowed is run by a real shell, with a harmless
program in place of the harmful one; only if that is started the disguise has won.
"""

from __future__ import annotations

import base64
import ctypes
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from coupler.langchain.editor_tools import search_program
from coupler.runtime import files
from coupler.runtime.files import find_inside
from outcome import Effort, Outcome
from permission.floor.tables import DELETING, DISKS, MACHINE
from permission.parts import Bench

SHELLS = [path for name in ("bash", "dash") if (path := shutil.which(name)) is not None]
SHELL_SECONDS = 5.0
CHECKED_EVERY = 40
"""Of so many disguises one is run, allowed or not, to see how many work at all."""
LAYERS = (1, 1, 1, 2, 2, 3)
MARKER = "started"
STUB = "harmful"
"""The program that no rule allows; it only leaves the marker."""

NARROW = (
    "execute(git status *)", "execute(git log *)", "execute(ls *)", "execute(echo *)", "execute(cat *)",
    "execute(wc *)", "execute(grep *)", "execute(find . -name *)", "execute(npm run build *)",
    "execute(make)", "execute(printf *)", "execute(test *)", "execute(true)", "execute(sort *)",
    "execute(env)", "edit(src/**)",
)  # fmt: skip
EVERYTHING = ("*", "execute(rm *)", "execute(python -c *)", "execute(sh -c *)", "edit(/**)", "delete(/**)")

LOOK_ALIKES = (
    "l\u0455",
    "\uff4c\uff53",
    "ls\u200b",
    "ec\u200dho",
    "\u0435\u0441ho",
    "c\u0430t",
    "ls\u00a0",
    "l\u017f",
    "\ufeffls",
    "ls\u2028x",
)
"""Names that look like allowed programs: there is a program of each name, which leaves the marker."""

OTHER_LS = (
    "hash -p ./bin/harmful ls; ls", "PATH=./other:$PATH; ls", "PATH=./other:$PATH ls",
    "export PATH=./other; ls", "./other/ls", "other/ls", "command ./other/ls", "cd other && ./ls",
    "cd other; PATH=. ls",
)  # fmt: skip
"""Commands that start another program of an allowed name."""

Wrapper = Callable[[str, random.Random], str]


def _quoted(text: str, chance: random.Random) -> str:
    """The text as one word of a shell, in one of the ways to write that."""
    match chance.randrange(5):
        case 0:
            return "$'" + "".join(f"\\x{byte:02x}" for byte in text.encode()) + "'"
        case 1:
            return "$'" + "".join(f"\\{byte:03o}" for byte in text.encode()) + "'"
        case 2 if "\n" not in text:
            return "".join(f"\\{letter}" if not letter.isalnum() else letter for letter in text)
        case 3:
            return '"' + "".join(f"\\{letter}" if letter in '"\\$`' else letter for letter in text) + '"'
    return shlex.quote(text)


def _template(text: str) -> Wrapper:
    """A wrapper from a text: {s} is the command, {q} the command as one word, {b} encoded."""

    def wrap(command: str, chance: random.Random) -> str:
        encoded = base64.b64encode(command.encode()).decode()
        return (
            text.replace("{q}", _quoted(command, chance))
            .replace("{qq}", shlex.quote(f"sh -c {shlex.quote(command)}"))
            .replace("{py}", shlex.quote(f"import os; os.system({command!r})"))
            .replace("{b}", encoded)
            .replace("{r}", shlex.quote(command[::-1]))
            .replace("{s}", command)
        )

    return wrap


WRAPPERS = [*map(_template, (
    "sh -c {q}", "bash -c {q}", "bash -lc {q}", "env sh -c {q}", "env A=1 sh -c {q}",
    "env -u X bash -c {q}", "env -S {qq}", "nohup sh -c {q}", "nice -n 5 sh -c {q}", "timeout 5 sh -c {q}",
    "time {s}", "command {s}", "exec {s}", "eval {q}", "builtin eval {q}", "command eval {q}",
    "echo {q} | sh", "printf %s {q} | bash", "printf '%s\\n' {q} | sh", "sh <<E\n{s}\nE",
    "sh <<'E'\n{s}\nE", "bash <<< {q}", "bash <(echo {q})", ". <(echo {q})", "source /dev/stdin <<< {q}",
    ". /dev/stdin <<E\n{s}\nE", "$(echo {q} | sh)", "`{s}`", "$({s})", "echo $({s})", 'ls "$({s})"',
    "git status `{s}`", ": ${X:=$({s})}", "echo ${x:-$({s})}", "echo ${x-`{s}`}", "[[ $({s}) ]]",
    "[ \"$({s})\" ]", "echo $((a[$({s})]))", "(( a[$({s})] ))", "let 'a[$({s})]=1'",
    "printf -v 'a[$({s})]' x", "test -v 'a[$({s})]'", "[[ -v 'a[$({s})]' ]]", "read 'a[$({s})]' <<< x",
    "declare x=$({s})", "export X=$({s})", "X=$({s}) ls", "X=`{s}`", "f() { {s}; }; f",
    "ls() { {s}; }; ls", "function echo { {s}; }; echo hi", "trap {q} EXIT", "trap {q} DEBUG; ls",
    "trap {q} ERR; false", "{ {s}; }", "( {s} )", "! {s}", "{s} & wait", "ls; {s}", "ls\n{s}", "ls && {s}",
    "false || {s}", "ls | {s}", "ls & {s}", "ls |& {s}", "ls;\\\n{s}", "ls #\n{s}", "ls # '\n{s}\n# '",
    "case x in x) {s};; esac", "case x in (x) {s}; esac", "if {s}; then :; fi", "if true; then {s}; fi",
    "while {s}; do break; done", "until {s}; do break; done", "for i in 1; do {s}; done",
    "for i in $({s}); do :; done", "for ((i=$({s})0;i<0;i++)); do :; done",
    "select i in 1; do {s}; break; done <<< 1", "cat <<E\n$({s})\nE", "cat <<E\n`{s}`\nE",
    "cat <<-E\n\t$({s})\n\tE", "cat <<'E'\nx\nE\n{s}", "cat <<\\E\nx\nE\n{s}",
    "cat <<E1 <<E2\n$({s})\nE1\nE2", "cat <<< $({s})", "ls <({s})", "ls >({s})", "cat < <({s})",
    "find . -maxdepth 0 -exec sh -c {q} \\;", "find . -name x -o -exec sh -c {q} \\;",
    "find . -maxdepth 0 -execdir sh -c {q} +", "echo | xargs -I% sh -c {q}",
    "echo {q} | xargs -0 -n1 sh -c", "awk 'BEGIN{system(\"sh\")}' <<< {q}", "python3 -c {py}",
    "echo {b} | base64 -d | sh", "sh <<< $(echo {b} | base64 -d)", "eval $(echo {b} | base64 -d)",
    "echo {r} | rev | sh", "eval \"$(rev <<< {r})\"", "x={q}; eval \"$x\"", "x={q}; sh -c \"$x\"",
    "x={q}; $x", "x='$({s})'; echo \"${x@P}\"", "x=({q}); eval \"${x[0]}\"", "set -- {q}; eval \"$1\"",
    "shopt -s expand_aliases\nalias q={q}\nq", "alias ls={q}\nls",
    "shopt -s expand_aliases; alias ls={q}\nls", "PS4='$({s})'; set -x; ls", "PS4='$({s})' bash -xc :",
    "BASH_ENV=<(echo {q}) bash -c :", "ENV=x bash -c {q}", "git -c alias.x='!{s}' x",
    "git -c core.pager={q} log", "git -c core.fsmonitor={q} status", "GIT_PAGER={q} git -p status",
    "PAGER={q} git -p log", "GIT_EXTERNAL_DIFF={q} git log -p --ext-diff",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0={q} git status",
    "coproc {s}; wait", "sort --compress-program={q} /dev/null", "echo x | sed {q}e",
    "make -f- <<< $'x:\\n\\t{s}'", "make SHELL='sh -c {q}'", "mapfile -C {q} -c 1 a <<< x",
    "echo hi > >({s})", "{s} > /dev/null 2>&1", "> src/x {s}", "2>&1 {s}", "A=1 B=2 {s}",
    "A=1 command {s}", "\\command {s}", "'command' {s}", "ls -l;{s};ls", "ls\r\n{s}", "ls \\\n; {s}",
    "${x:+y}{s}", "$x{s}", "$@{s}", "${@}{s}", "$*{s}", "if ! {s}; then ls; fi", "[ -n x ] && {s}",
    "test -z '' && {s}", "true && { {s}; }", "(ls; ({s}))", "echo \"`{s}`\"", "echo \"${x:-\"$({s})\"}\"",
    "echo $(ls $({s}))", "echo `ls \\`{s}\\``", "complete -C {q} x; compgen -C {q}", "enable -f x y; {s}",
    "find . -name '*' -exec {s} ';'", "find . -name x -ok {s} ';'", "grep x <({s})", "wc -l <({s})",
    "echo {a,$({s})}", "echo {1..$({s})}", "ls ~$({s})", "ls -- $({s})", "cat ${x/#/$({s})}",
    "cat ${x:$({s})0}", "cat ${#x[$({s})]}", "cat ${!x@}$({s})", "unset 'a[$({s})]'",
    "wait -p 'a[$({s})]'", "printf '%d' 'a[$({s})]'", "[ 'a[$({s})]' -eq 0 ]", "[[ 'a[$({s})]' -eq 0 ]]",
    "test 'a[$({s})]' -gt 0", "exit 'a[$({s})]'", "x='a[$({s})]'; echo $((x))",
    "x='a[$({s})]'; [[ x -eq 0 ]]", "declare -i x='a[$({s})]'", "typeset -n r='a[$({s})]'; echo $r",
    "ulimit -c 'a[$({s})]'", "true $(<f) `{s}`", "echo ${x[$({s})]}",
))]  # fmt: skip


def _in_letters(word: str, chance: random.Random) -> str:
    """A word, spelled so that a shell reads it and a careless reader does not."""
    at = chance.randrange(len(word))
    before, letter, after = word[:at], word[at], word[at + 1 :]
    return chance.choice(
        (
            word,
            word,
            word,
            f"{before}'{letter}'{after}",
            f'{before}"{letter}"{after}',
            f"{before}\\{letter}{after}",
            f"{before}$'\\x{ord(letter):02x}'{after}",
            f"{before}''{letter}{after}",
            f"{before}$@{letter}{after}",
            f"{before}${{x}}{letter}{after}",
            f"{before}\\\n{letter}{after}",
            f"{before}$(printf {letter}){after}",
            f"{before}`echo {letter}`{after}",
        )
    )


def _spelled(words: list[str], chance: random.Random) -> str:
    gaps = (" ", " ", " ", "  ", "\t", " \\\n", "${IFS}", "$IFS$9")
    text = _in_letters(words[0], chance)
    return text + "".join(chance.choice(gaps) + word for word in words[1:])


def disguised(command: list[str] | str, chance: random.Random) -> str:
    """The command in some layers of disguise. The same chance makes the same layers around any command."""
    layers = [chance.choice(WRAPPERS) for _ in range(chance.choice(LAYERS))]
    inner = random.Random(chance.getrandbits(32))
    text = command if isinstance(command, str) else _spelled(command, inner)
    for wrap in layers:
        text = wrap(text, random.Random(inner.getrandbits(32)))
    return text


def attack_by_disguises(effort: Effort, outcome: Outcome) -> None:
    """Judge disguised commands, by narrow rules and by rules that allow everything but the floor."""
    place = effort.directory("disguises").resolve()
    bench = Bench(_project(place))
    fatal = [text for text in (*DELETING, *DISKS, *MACHINE) if "\n" not in text]
    checked = working = 0
    for number in effort.numbers(outcome):
        chance = effort.chance(f"disguises/{number}")
        is_narrow = number % 2 == 0
        harmless = chance.choice(
            ([STUB], [STUB, "now"], [f"./bin/{STUB}"], [chance.choice(LOOK_ALIKES)], chance.choice(OTHER_LS))
        )
        seed = chance.getrandbits(32)
        stand_in = disguised(harmless, random.Random(seed))
        command = stand_in if is_narrow else disguised(chance.choice(fatal), random.Random(seed))
        began = time.monotonic()
        verdict = bench.run(command, *(NARROW if is_narrow else EVERYTHING))
        outcome.worst("slowest judgement", (time.monotonic() - began) * 1000, "ms")
        if number % CHECKED_EVERY == 0:
            checked += 1
            working += _starts(stand_in, bench.project) is not None
        if verdict.decision == "allow" and (shell := _starts(stand_in, bench.project)):
            rules = "narrow rules" if is_narrow else "the floor"
            run = f"`{Path(shell).name}` runs the stand-in {stand_in!r}"
            outcome.fail(f"{rules} allow {command!r}", f"{run}; seed {effort.seed}, disguises/{number}")
    outcome.figures["of a sample work"] = (100 * working / max(1, checked), "%")


def _project(place: Path) -> Path:
    project = place / "app"
    for directory in ("src/deep", "docs", "bin", "other"):
        (project / directory).mkdir(parents=True)
    script = f'#!/bin/sh\n: > "{place}/{MARKER}"\n'
    for name in (STUB, *LOOK_ALIKES):
        _write_program(project / "bin" / name, script)
    _write_program(project / "other" / "ls", script)
    return project


def _write_program(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


def _starts(command: str, project: Path) -> str | None:
    """The shell that starts the stub when it is given this command."""
    marker = project.parent / MARKER
    path = f"{project / 'bin'}:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(project), "GIT_CONFIG_NOSYSTEM": "1"}
    for shell in SHELLS:
        marker.unlink(missing_ok=True)
        process = subprocess.Popen(
            [shell, "-c", command],
            cwd=project,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(SHELL_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        if marker.exists():
            return shell
    return None


SWAPPER = """
import ctypes, os, sys
renameat2 = ctypes.CDLL(None).renameat2
one, other = (os.fsencode(path) for path in sys.argv[1:])
print(flush=True)
while os.getppid() != 1:
    for _ in range(1000):
        renameat2(-100, one, -100, other, 2)
"""
"""Exchanges two names again and again, each time in one step of the kernel's."""


def attack_by_races(effort: Effort, outcome: Outcome) -> None:
    """Read, write and search below a directory that is exchanged with a link to elsewhere all the time."""
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        return
    place = effort.directory("races").resolve()
    root, elsewhere = place / "project", place / "elsewhere"
    for directory, content in ((root / "real" / "deep", "mine"), (elsewhere / "deep", "secret")):
        directory.mkdir(parents=True)
        (directory / "x").write_text(content)
        (directory.parent / "x").write_text(content)
    (root / "link").symlink_to(elsewhere)
    with _swapping(root / "real", root / "link"):
        for number in effort.numbers(outcome):
            chance = effort.chance(f"races/{number}")
            path = chance.choice(("real/x", "real/deep/x", "link/x", f"real/new-{number}", "real/deep/new/x"))
            try:
                seen = chance.choice((_read, _read, _write, _overwrite, _search))(path, root)
            except (OSError, ValueError, RuntimeError):
                continue
            outcome.count("of them done inside", 1)
            if "secret" in seen:
                outcome.fail(f"{path} gave {seen!r}", f"seed {effort.seed}, races/{number}")
    found = {
        str(path.relative_to(elsewhere)): path.read_text() for path in elsewhere.rglob("*") if path.is_file()
    }
    if found != {"x": "secret", "deep/x": "secret"}:
        outcome.fail(f"elsewhere is now {found}", f"seed {effort.seed}")


@contextmanager
def _swapping(one: Path, other: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", SWAPPER, str(one), str(other)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _read(path: str, root: Path) -> str:
    return files.read(find_inside(path, str(root), (str(root),))).decode()


def _write(path: str, root: Path) -> str:
    place = find_inside(path, str(root), (str(root),))
    before = files.read(place) if files.exists(place) else None
    files.write(place, b"mine", before, lambda: True)
    return (before or b"").decode()


def _overwrite(path: str, root: Path) -> str:
    files.overwrite(find_inside(path, str(root), (str(root),)), b"mine", lambda: True)
    return ""


def _search(path: str, root: Path) -> str:
    """As the search tool does, from the top or from a directory below."""
    place = find_inside(str(Path(path).parent) if path.startswith("real/d") else ".", str(root), (str(root),))
    task = {"directory": place.real, "glob": "**", "pattern": ".*", "most": 100, "ignore_case": False}
    found, _ = search_program.hits({**task, "context": 0, "texts": {}, "walks": True})
    return " ".join(hit[2] for hit in found)

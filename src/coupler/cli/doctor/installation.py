"""Examines versions and optional packages, the directories that Coupler writes to, and this machine."""

from __future__ import annotations

import locale
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coupler.__about__ import __version__
from coupler.cli.output import has_stdout, stdout
from coupler.cli.terminal import short_directory
from coupler.runtime.formatting import size
from coupler.runtime.guard import start_guarded
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.cli.doctor.doctor import DoctorContext, DoctorSection


PURPOSES = {
    "chat": "`coupler chat` in a terminal",
    "coder": "the coding agent",
    "langchain": "LangChain agents",
    "local": "models on this machine",
    "mcp": "MCP servers, and tools for agents",
    "otel": "spans for OpenTelemetry",
    "shell": "rules for command lines with pipes and lists",
    "workflows": "workflows",
}
MOST_NAMED = 3
"""Missing packages that a sentence lists."""

OWN_PACKAGE = "coupler"

LEAST_SPACE = 200_000_000
"""Bytes that should be free: a store's log alone may grow to 256 MiB."""

PATIENCE = 3.0
"""Seconds that a program has to print its version."""

LONGEST_VERSION = 60
"""Characters of what a program says of its version."""

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?\s*([^;]*?)\s*(?:;\s*(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_AT_LEAST = re.compile(r">=\s*([0-9][0-9.]*)")
_BELOW = re.compile(r"<\s*([0-9][0-9.]*)")


class Program(NamedTuple):
    """A program that is used if it is there."""

    name: str
    title: str
    use: str
    """The end of a sentence that says what does not work without it."""
    install: str


PROGRAMS = (
    Program(
        "git",
        "git",
        "the coder does not know what has changed in a project",
        "install git, from https://git-scm.com or by your system's packages",
    ),
    Program(
        "rg",
        "ripgrep",
        "the coder searches large projects more slowly",
        "install ripgrep by your system's packages",
    ),
    Program(
        "node",
        "node",
        "agents that npx fetches cannot be started",
        "install Node.js 20 or newer, from https://nodejs.org or by your system's packages",
    ),
    Program(
        "bwrap",
        "bubblewrap",
        "the coder's commands cannot run in a sandbox",
        "install bubblewrap by your system's packages",
    ),
)


def examine_installation(section: DoctorSection, context: DoctorContext) -> None:
    """Reports the versions, the command on the PATH, and the optional packages."""
    import coupler

    place = Path(coupler.__file__).parent
    section.ok("coupler", f"{__version__}, in {short_directory(str(place))}")
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    section.ok("python", f"{python}, {short_directory(sys.executable)}")
    section.facts |= {"coupler": __version__, "place": str(place), "python": platform.python_version()}
    _look_for_command(section)
    _look_at_extras(section)


def _look_for_command(section: DoctorSection) -> None:
    """Looks for `coupler` on the PATH: editors and scripts start it by its name, or by a path."""
    found = shutil.which("coupler")
    own = Path(sys.executable).parent
    section.facts["command"] = found
    if found is None:
        section.note(
            "command",
            "`coupler` is not on the PATH of this shell",
            f"name it whole, as in {own / 'coupler'}, or add {own} to the PATH",
        )
    elif Path(found).resolve().parent != own.resolve() and Path(found).parent.resolve() != own.resolve():
        section.note(
            "command",
            f"`coupler` on the PATH is {short_directory(found)}, which may be another installation than this",
            f"see which is meant: `{shlex.quote(found)} --version`",
        )


def _look_at_extras(section: DoctorSection) -> None:
    known = extras()
    section.facts["extras"] = {each.name: each.as_object() for each in known}
    if not known:
        section.note("extras", "which packages are optional is not known: this is no installation of a wheel")
        return
    there = [each.name for each in known if each.is_usable]
    if there:
        section.ok("extras", f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} installed")
    for each in known:
        if not each.is_usable:
            _tell_missing(section, each)


def _tell_missing(section: DoctorSection, extra: OptionalExtra) -> None:
    purpose = PURPOSES.get(extra.name, f"`coupler[{extra.name}]`")
    remedy = f"run `{install_command(extra.name)}`"
    if extra.unusable:
        section.problem(extra.name, f"{purpose} cannot be used: {', '.join(extra.unusable)}", remedy)
        return
    more = len(extra.missing) - MOST_NAMED
    names = ", ".join(extra.missing[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    verb = "is" if len(extra.missing) == 1 else "are"
    section.note(extra.name, f"for {purpose}: {names} {verb} not installed", remedy)


def install_command(extra: str) -> str:
    """The command that installs an extra into just this installation."""
    place = _source()
    wanted = f"{place or 'coupler'}[{extra}]"
    return python_command(*(["-e"] if place is not None and _is_editable() else []), wanted)


def python_command(*words: str) -> str:
    """The command that installs packages into just this installation."""
    if find_spec("pip") is None and shutil.which("uv") is not None:
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *words])
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def _source() -> str | None:
    """The directory that Coupler was installed from, if it was one that is there."""
    from urllib.parse import unquote, urlsplit

    address = str(_direct_url().get("url", ""))
    if not address.startswith("file://"):
        return None
    path = unquote(urlsplit(address).path)
    return path if os.path.isdir(path) else None  # noqa: PTH112


def _is_editable() -> bool:
    return bool(_direct_url().get("dir_info", {}).get("editable"))


def _direct_url() -> dict[str, Any]:
    import json

    try:
        text = metadata.distribution("coupler").read_text("direct_url.json")
        read = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


@dataclass(frozen=True)
class OptionalExtra:
    """A part that is installed on demand, and what keeps it from being used."""

    name: str
    installed: dict[str, str]
    missing: tuple[str, ...]
    unusable: tuple[str, ...]
    """Sentences about packages of a version that cannot be used."""

    @property
    def is_usable(self) -> bool:
        return not self.missing and not self.unusable

    def as_object(self) -> dict[str, Any]:
        """The extra as JSON."""
        return {
            "is_usable": self.is_usable,
            "installed": self.installed,
            "missing": [*self.missing],
            "unusable": [*self.unusable],
        }


class Requirement(NamedTuple):
    """A package that an extra requires."""

    package: str
    extras: tuple[str, ...]
    versions: str


def extras() -> list[OptionalExtra]:
    """The extras that this installation's metadata names; none if Coupler runs without being installed."""
    by_extra = _requirements()
    return [_extra(name, _flat(name, by_extra)) for name in sorted(by_extra)]


def _requirements() -> dict[str, list[Requirement]]:
    try:
        lines = metadata.requires(OWN_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[Requirement]] = {}
    for line in lines:
        match = _REQUIREMENT.fullmatch(line.strip())
        extra = _EXTRA.search(match[4] or "") if match else None
        if match and extra:
            own = tuple(each.strip() for each in (match[2] or "").split(",") if each.strip())
            found.setdefault(extra[1], []).append(Requirement(match[1], own, match[3]))
    return found


def _flat(
    name: str, by_extra: dict[str, list[Requirement]], above: tuple[str, ...] = ()
) -> list[Requirement]:
    """The packages of an extra, which may stand for others."""
    found: list[Requirement] = []
    for each in by_extra.get(name, ()):
        if each.package != OWN_PACKAGE:
            found.append(each)
            continue
        for other in each.extras:
            if other not in (name, *above):
                found += _flat(other, by_extra, (*above, name))
    return [*dict.fromkeys(found)]


def _extra(name: str, requirements: list[Requirement]) -> OptionalExtra:
    installed: dict[str, str] = {}
    missing, unusable = [], []
    for each in requirements:
        version = _package_version(each.package)
        if version is None:
            missing.append(each.package)
            continue
        installed[each.package] = version
        if not _fits(version, each.versions):
            unusable.append(f"{each.package} {version} is installed, and {each.versions} is needed")
    return OptionalExtra(name, installed, (*missing,), (*unusable,))


def _package_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _fits(version: str, wanted: str) -> bool:
    """True if a version is in the range; only what our own metadata says of ranges is understood."""
    has = _numbers(version)
    least, below = _AT_LEAST.search(wanted), _BELOW.search(wanted)
    return (least is None or has >= _numbers(least[1])) and (below is None or has < _numbers(below[1]))


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"[0-9.]*", version)
    return tuple(int(each) for each in (leading[0] if leading else "").split(".") if each)


def examine_directories(section: DoctorSection, context: DoctorContext) -> None:
    """Checks that each directory can be written to. Nothing is made or written for it."""
    from coupler.runtime import directories

    section.facts["COUPLER_HOME"] = os.environ.get(directories.VARIABLE)
    _look_at_directory(section, "settings", lambda: directories.config_directory(os.environ))
    _look_at_directory(section, "data", directories.data_directory)
    _look_at_directory(section, "cache", directories.cache_directory)
    _look_at_directory(section, "temporary", tempfile.gettempdir)


def _look_at_directory(section: DoctorSection, about: str, place: Callable[[], str | None]) -> None:
    from coupler.runtime.directories import VARIABLE

    try:
        found = place()
    except OSError as error:  # no home, or no directory for temporary files
        section.problem(about, str(error), f"set {VARIABLE} to a directory that you can write to")
        return
    section.facts[about] = found
    if found is None:
        section.problem(about, "this user has no home directory", f"set {VARIABLE} to a directory")
        return
    trouble = _write_problem(Path(found))
    shown = short_directory(found)
    if trouble is not None:
        remedy = f"correct its permissions, or set {VARIABLE} to another directory"
        section.problem(about, f"{shown} cannot be written to: {trouble}", remedy)
        return
    free = _free(Path(found))
    if free is not None and free < LEAST_SPACE:
        section.problem(
            about,
            f"{shown} has only {size(free)} of space left",
            "free some space, or name another directory",
        )
        return
    section.ok(about, shown if Path(found).is_dir() else f"{shown}, which is made when it is needed")


def _write_problem(directory: Path) -> str | None:
    """The reason why nothing can be written there; a missing directory is made in the next above it."""
    try:
        nearest = next(each for each in (directory, *directory.parents) if _is_there(each))
        if not nearest.is_dir():
            return f"{short_directory(str(nearest))} is not a directory"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"you may not write to {short_directory(str(nearest))}"
    return None


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _free(directory: Path) -> int | None:
    nearest = next((each for each in (directory, *directory.parents) if each.is_dir()), None)
    try:
        return None if nearest is None else shutil.disk_usage(nearest).free
    except OSError:
        return None


def examine_surroundings(section: DoctorSection, context: DoctorContext) -> None:
    """Reports the system, programs that parts of Coupler use, the sandbox, and the terminal."""
    section.ok("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    _look_for_programs(section, context)
    _look_at_sandbox(section, context)
    _look_at_terminal(section)


def _look_for_programs(section: DoctorSection, context: DoctorContext) -> None:
    wanted = [each for each in PROGRAMS if each.name != "bwrap" or sys.platform == "linux"]
    places = {each.name: shutil.which(each.name) for each in wanted}
    section.facts["programs"] = places
    ask = partial(_program_version, patience=min(PATIENCE, context.patience))
    there = [place for place in places.values() if place is not None]
    with ThreadPoolExecutor(max(1, len(there))) as threads:
        versions = dict(zip(there, threads.map(ask, there), strict=True))
    for program in wanted:
        place = places[program.name]
        if place is None:
            section.note(program.title, f"not found: without it {program.use}", program.install)
        else:
            section.ok(program.title, ", ".join(filter(None, (versions[place], short_directory(place)))))


def _program_version(program: str, patience: float) -> str | None:
    said = _run_program([program, "--version"], patience)
    if said is None or not said.stdout.strip():
        return None
    line = one_line(said.stdout.decode(errors="replace").strip().splitlines()[0])
    words = [word for word in line.split() if any(map(str.isdigit, word))]
    return (words or [line])[0][:LONGEST_VERSION]


def _run_program(command: list[str], patience: float) -> subprocess.CompletedProcess[bytes] | None:
    """Runs a program; one that does not end in time is ended, with all that it has started.

    Whatever else ends the wait, as an interrupt does, ends the program, too.
    """
    try:
        process, guard = start_guarded(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError:
        return None
    try:
        with process:
            try:
                stdout, stderr = process.communicate(timeout=patience)
            except BaseException:
                _end(process)
                raise
    except subprocess.TimeoutExpired:
        return None
    finally:
        guard.release()
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _end(process: subprocess.Popen[bytes]) -> None:
    from coupler.runtime.process import ProcessGroup

    ProcessGroup(process).kill()
    process.kill()


def _look_at_sandbox(section: DoctorSection, context: DoctorContext) -> None:
    """Tries to make a sandbox: containers and hardened systems do not let everybody make one."""

    setting = context.config.coder.sandbox
    section.facts["sandbox"] = setting
    if setting == "off":
        return
    trouble = _sandbox_problem(min(PATIENCE, context.patience))
    if trouble is None:
        section.ok("sandbox", f'`coder.sandbox` is "{setting}", and a sandbox can be made')
    elif setting == "on":
        section.problem(
            "sandbox",
            f'`coder.sandbox` is "on", but {trouble}: the coder runs no command',
            'correct that, or set `coder.sandbox` to "auto" or "off"',
        )
    else:
        section.note("sandbox", f'`coder.sandbox` is "auto", but {trouble}: commands run without a sandbox')


def _sandbox_problem(patience: float) -> str | None:
    if sys.platform != "linux":
        return f"there is no sandbox for {sys.platform}"
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    trial = [program, "--ro-bind", "/", "/", "--unshare-pid", "--", "/bin/sh", "-c", ":"]
    done = _run_program(trial, patience)
    if done is None:
        return "bubblewrap does not answer"
    if done.returncode == 0:
        return None
    why = one_line(done.stderr.decode(errors="replace").strip().partition("\n")[0])
    return f"bubblewrap does not work here ({why[: LONGEST_VERSION * 2]})"


def _look_at_terminal(section: DoctorSection) -> None:
    encoding = locale.getpreferredencoding(False)
    is_terminal = has_stdout() and stdout().is_terminal
    section.facts |= {"encoding": encoding, "is_terminal": is_terminal, "term": os.environ.get("TERM")}
    if is_terminal:
        size = shutil.get_terminal_size()
        kind = one_line(os.environ.get("TERM", "")) or "of an unknown kind"
        section.ok("terminal", f"{kind}, {size.columns} columns and {size.lines} lines")
    else:
        section.ok("terminal", "none: what is written goes to a file or a program")
    if encoding.lower().replace("-", "") == "utf8":
        section.ok("language", f"{_language() or 'no language is set'}, {encoding}")
    else:
        section.note(
            "language",
            f"text is {encoding} here, so that many characters cannot be shown",
            "set LANG to a language with UTF-8, such as C.UTF-8, or PYTHONUTF8=1",
        )


def _language() -> str | None:
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next((one_line(name) for name in names if name), None)

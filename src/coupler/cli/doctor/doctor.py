"""`coupler doctor`: examines every subject in a thread of its own, and writes the page.

What an examiner looks at may be broken in any way, or hang: a file on a network that is gone, a program
that never answers. Then what it has found so far is told, and that it was not done. Threads that are left
behind end with the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeAlias

import click

from coupler.__about__ import __version__
from coupler.cli.doctor.services import ReadOnlyTrust, read_only_trust
from coupler.cli.exit_codes import BROKEN_PIPE, DONE, FAILED, INTERRUPTED, TERMINATED, print_error
from coupler.cli.main import seconds
from coupler.cli.output import Output, stderr, stdout
from coupler.cli.terminal import short_directory
from coupler.runtime.directories import working_directory
from coupler.runtime.exceptions import exception_text
from coupler.runtime.formatting import count
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.config import Config, ConfigError
    from coupler.redaction.masker import Masker
    from coupler.redaction.sources import Secret


PROGRAM = "coupler doctor"
TIMEOUT = 20.0
GRACE = 0.5
"""Seconds that servers have to end when nobody waits for their answers any more."""

LONGEST_REQUEST = 10.0
"""Seconds that one server or one model has to answer."""

FINAL_SECONDS = 1.0
"""Seconds before the end at which nothing is waited for any more, so that there is time to tell."""

ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}
LEVEL_WIDTH = 9
MOST_INDENT = 24
NARROWEST = 60

Level: TypeAlias = Literal["ok", "note", "problem"]
"""Levels of a finding: as it should be; worth knowing; does not work, or disturbs."""


class Subject(NamedTuple):
    """A subject of the page, examined by the function `examine_NAME` of a module beside this one."""

    name: str
    title: str
    module: str


SUBJECTS = (
    Subject("installation", "Installation", "installation"),
    Subject("surroundings", "This machine", "installation"),
    Subject("directories", "Directories", "installation"),
    Subject("store", "Store", "services"),
    Subject("settings", "Settings", "project"),
    Subject("project", "This project", "project"),
    Subject("workflows", "Workflows", "project"),
    Subject("agents", "Agents", "project"),
    Subject("servers", "MCP servers", "services"),
    Subject("model", "The coder's model", "services"),
)
"""The sections in the order of the page; those that may take long come last."""

MODULES = (
    "agent.permission cli.doctor.installation cli.doctor.project cli.doctor.services cli.store_access "
    "cli.workflows client.errors coder.model.choice coder.search_providers coder.model.credentials "
    "coder.model.local_files coder.profiles config config.agent_tables config.files config.keys "
    "config.lookup mcp.package mcp.servers mcp.tools providers.catalogue redaction.masker "
    "redaction.sources runtime.directories runtime.extras runtime.logs runtime.process schema.v1 "
    "store.choices store.database store.retention store.space workflow.errors "
    "workflow.expressions.evaluation workflow.language.library workflow.validation.checks "
)
"""Modules that the examiners import on use, loaded before they start.

Threads that import modules which import each other may wait for each other for ever; Python then breaks one
of the imports off.
"""


@click.command(
    short_help="Examine this installation.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.option("--json", "as_json", is_flag=True, help="Write what was found as JSON.")
@click.option("--offline", "is_offline", is_flag=True, help="Ask no model, and start or reach no MCP server.")
@click.option(
    "--timeout",
    type=float,
    callback=seconds,
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long all of it may take.",
)
def doctor(as_json: bool, is_offline: bool, timeout: float) -> None:
    """Examine this installation, and say what to do about what is wrong.

    It looks at versions and packages, the settings that hold in this directory
    and where each comes from, trust, workflows, agents, the MCP servers that
    are set, the coder's model and its key, the store, and the directories that
    Coupler writes to. MCP servers are started and asked for their tools, and
    the model is asked for one word. Nothing is changed, and no secret is shown.

    A `problem` is something that does not work, a `note` is worth knowing.

    \b
    Examples:
      coupler doctor
      coupler doctor --offline --json

    Exit codes: 0 if there is no problem, 1 if there is one, 2 for wrong usage,
    130 when interrupted.
    """
    _silence_logs()
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, _terminate)
    try:
        is_healthy = _report(DoctorContext(timeout, is_offline=is_offline), timeout, as_json=as_json)
    except KeyboardInterrupt:
        print_error("interrupted", PROGRAM)
        _exit_now(INTERRUPTED)
    except _TerminatedError:
        _exit_now(TERMINATED)
    except BrokenPipeError:
        _exit_now(BROKEN_PIPE)
    except OSError as error:
        print_error(f"the output cannot be written: {(error.strerror or str(error)).lower()}", PROGRAM)
        _exit_now(FAILED)
    _exit_now(DONE if is_healthy else FAILED)


class _TerminatedError(Exception):
    """A signal asked this program to end."""


def _terminate(number: int, frame: object) -> NoReturn:
    raise _TerminatedError


def _report(context: DoctorContext, timeout: float, *, as_json: bool) -> bool:
    output = stdout()
    if as_json:
        sections = [*examine(context, timeout)]
        write_json(sections, context, output)
    else:
        page, sections = DoctorPage(context, output), []
        for section in examine(context, timeout):
            sections.append(section)
            page.write(section)
        page.end(sections)
    output.flush()
    return all(section.is_healthy for section in sections)


def _silence_logs() -> None:
    """Keeps log lines out of the page; whoever wants to see them sets COUPLER_LOG."""
    import logging

    from coupler.runtime.logs import VARIABLE, LogSettingError, send_logs_to_stderr

    logging.captureWarnings(True)
    try:
        if os.environ.get(VARIABLE):
            send_logs_to_stderr()
            return
    except LogSettingError:
        pass  # told on the page
    logging.getLogger().addHandler(logging.NullHandler())


def _exit_now(code: int) -> NoReturn:
    """Exits at once: a thread that hangs must not keep the process, and its children must not outlive it."""
    for number in (signal.SIGINT, *ENDING_SIGNALS):
        signal.signal(number, signal.SIG_IGN)
    for output in (stdout, stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            output().flush()
    _end_what_was_started()
    os._exit(code)


def _end_what_was_started() -> None:
    """Ends child processes; servers that were left in good order have ended by now."""
    from coupler.runtime.process import Descendants

    started = Descendants()
    if not started.alive():
        return
    started.terminate()
    end = time.monotonic() + GRACE
    while started.alive() and time.monotonic() < end:
        time.sleep(0.02)
    started.kill()


def examine(context: DoctorContext, seconds: float) -> Iterator[DoctorSection]:
    """Examines all subjects; gives the sections in order, each as soon as it is there."""
    loading = threading.Thread(target=_load_modules, daemon=True)
    loading.start()
    loading.join(context.patience)
    sections = [DoctorSection(name=subject.name, title=subject.title) for subject in SUBJECTS]
    threads = [
        threading.Thread(target=_examine, args=(subject, section, context), daemon=True)
        for subject, section in zip(SUBJECTS, sections, strict=True)
    ]
    for thread in threads:
        thread.start()
    yield from _awaited(sections, context, seconds)
    # Servers are left in good order; who takes longer is ended by a guard when the process is gone.
    end = time.monotonic() + FINAL_SECONDS
    for section, thread in zip(sections, threads, strict=True):
        if section.seconds is not None:
            thread.join(max(0.0, end - time.monotonic()))


def _load_modules() -> None:
    for name in MODULES.split():
        # One that cannot be loaded is told of by whoever needs it.
        with contextlib.suppress(Exception):
            import_module(f"coupler.{name}")


def _awaited(
    sections: list[DoctorSection], context: DoctorContext, seconds: float
) -> Iterator[DoctorSection]:
    for section in sections:
        if not section.wait(context.deadline - time.monotonic()):
            section.problem(
                "time",
                f"this check did not finish within {seconds:g} seconds",
                "give it longer with --timeout; something that it checks may not answer at all",
            )
        yield section


def _examine(subject: Subject, section: DoctorSection, context: DoctorContext) -> None:
    try:
        module = import_module(f"coupler.cli.doctor.{subject.module}")
        getattr(module, f"examine_{subject.name}")(section, context)
    except Exception as error:
        # Whatever is broken here must not keep the rest of the page from being written.
        section.problem(
            "doctor",
            f"this check failed: {exception_text(error)}",
            "tell the makers of Coupler, with what COUPLER_LOG=debug shows",
        )
        _log(error)
    finally:
        section.close()


def _log(error: Exception) -> None:
    import logging

    logging.getLogger("coupler.doctor").debug("an examination failed", exc_info=error)


class DoctorContext:
    """The directory, its configuration, the time that is left and the secrets; used by several threads."""

    def __init__(self, seconds: float, *, is_offline: bool) -> None:
        self.is_offline = is_offline
        """True if no server is to be started or reached, and no model asked."""
        self.deadline = time.monotonic() + seconds
        self.directory = working_directory()
        """The working directory; None if it is gone."""
        self.importing = threading.Lock()
        """Held by an examiner that imports one of the large packages, which have much in common."""
        self._reading = threading.Lock()
        self._read: _LoadedSettings | None = None
        self._secrets: list[Secret] = []

    @property
    def patience(self) -> float:
        """Seconds that something may be waited for now."""
        return max(0.1, min(LONGEST_REQUEST, self.deadline - time.monotonic() - FINAL_SECONDS))

    @property
    def config(self) -> Config:
        """The configuration of the directory, as far as it can be read."""
        return self._settings().config

    @property
    def config_error(self) -> ConfigError | None:
        """The error in the configuration, if there is one."""
        return self._settings().error

    @property
    def trust(self) -> ReadOnlyTrust:
        """The files that the user has trusted."""
        return self._settings().trust

    def keep_secret(self, values: Iterable[Mapping[str, str]]) -> None:
        """Adds values, by their names, which are not shown whatever quotes them."""
        from coupler.redaction.sources import declared_secrets

        for each in values:
            self._secrets += declared_secrets(each)

    def masker(self) -> Masker:
        """Masks the secrets known by now. It waits for nobody: whoever reads settings may hang."""
        from coupler.redaction.masker import Masker
        from coupler.redaction.sources import secrets_in_environment

        return Masker([*self._secrets, *secrets_in_environment(os.environ)])

    def _settings(self) -> _LoadedSettings:
        with self._reading:
            if self._read is None:
                self._read = self._load()
            return self._read

    def _load(self) -> _LoadedSettings:
        """Loads the settings: if a project's file is wrong the user's own holds, else the defaults."""
        from coupler.config import Config, ConfigError, load

        users, trust = Config(), read_only_trust(None, self.patience)
        try:
            users = load(None, environ=os.environ)
            trust = read_only_trust(users.sessions.store, self.patience)
            return _LoadedSettings(load(self.directory, environ=os.environ, trust=trust), trust)
        except ConfigError as error:
            return _LoadedSettings(users, trust, error)


class _LoadedSettings(NamedTuple):
    """The settings as far as they could be read."""

    config: Config
    trust: ReadOnlyTrust
    error: ConfigError | None = None


@dataclass(frozen=True)
class DoctorFinding:
    """One finding about one thing."""

    about: str
    level: Level
    sentence: str
    remedy: str | None = None


@dataclass(kw_only=True)
class DoctorFindings:
    """Findings, in the order in which they were made."""

    findings: list[DoctorFinding] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """True if no finding is a problem."""
        return not any(finding.level == "problem" for finding in self.findings)

    def ok(self, about: str, sentence: str) -> None:
        """Adds that something is as it should be."""
        self.findings.append(DoctorFinding(about, "ok", sentence))

    def note(self, about: str, sentence: str, remedy: str | None = None) -> None:
        """Adds something worth knowing."""
        self.findings.append(DoctorFinding(about, "note", sentence, remedy))

    def problem(self, about: str, sentence: str, remedy: str) -> None:
        """Adds something that is not as it should be."""
        self.findings.append(DoctorFinding(about, "problem", sentence, remedy))


@dataclass(kw_only=True)
class DoctorSection(DoctorFindings):
    """The findings about one subject, which another thread may read before it is done."""

    name: str
    """The name in the JSON output."""
    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    """Details for the JSON output, beyond the sentences of the findings."""
    seconds: float | None = None
    """Seconds that it took; None if it is not over."""
    began: float = field(default_factory=time.monotonic)
    _over: threading.Event = field(default_factory=threading.Event, repr=False)

    def close(self) -> None:
        """Ends the section; called before a slow clean-up, which nobody has to wait for."""
        if not self._over.is_set():
            self.seconds = time.monotonic() - self.began
            self._over.set()

    def wait(self, seconds: float) -> bool:
        """Waits for the end; False if it did not come within this time."""
        return self._over.wait(max(0.0, seconds))

    def as_object(self) -> dict[str, Any]:
        """The section as JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "is_healthy": self.is_healthy,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "findings": [
                {
                    "about": each.about,
                    "level": each.level,
                    "sentence": each.sentence,
                    "remedy": each.remedy,
                }
                for each in [*self.findings]
            ],
            "facts": dict(self.facts),
        }


class DoctorPage:
    """Writes the page, section by section."""

    def __init__(self, context: DoctorContext, output: Output) -> None:
        self._context = context
        self._output = output
        where = context.directory
        place = "a directory that was deleted" if where is None else short_directory(where)
        output.line(f"Coupler {__version__} in {one_line(place)}", "bold")

    def write(self, section: DoctorSection) -> None:
        """Writes one section, as soon as it is there."""
        masker = self._context.masker()
        findings = [*section.findings]
        width = min(MOST_INDENT, max((len(one_line(each.about)) for each in findings), default=0))
        self._output.line()
        self._output.line(section.title, "bold")
        for finding in findings:
            self._write_finding(finding, width, masker.mask)
        self._output.flush()

    def end(self, sections: Sequence[DoctorSection]) -> None:
        """Writes the verdict."""
        problems = [each for section in sections for each in section.findings if each.level == "problem"]
        notes = sum(each.level == "note" for section in sections for each in section.findings)
        verdict = "No problem was found." if not problems else f"{count(len(problems), 'problem')}."
        if notes:
            verdict += f" {count(notes, 'note')}."
        colour = COLOURS["problem" if problems else "ok"]
        self._output.line()
        self._output.line(verdict, f"bold {colour}")

    def _write_finding(self, finding: DoctorFinding, width: int, mask: Any) -> None:
        about, sentence = one_line(mask(finding.about)), one_line(mask(finding.sentence))
        level = f"{finding.level:<{LEVEL_WIDTH}}"
        indent = " " * (LEVEL_WIDTH + width + 4)
        first, *more = self._wrapped(sentence, indent)
        self._output.pieces(("  ", ""), (level, COLOURS[finding.level]), (f"{about:<{width}}  {first}", ""))
        lines = [f"{indent}{each}" for each in more]
        if finding.remedy is not None:
            first, *more = self._wrapped(one_line(mask(finding.remedy)), f"{indent}   ")
            lines += [f"{indent}-> {first}", *(f"{indent}   {each}" for each in more)]
        for line in lines:
            self._output.line(line)

    def _wrapped(self, text: str, indent: str) -> list[str]:
        """Wraps text for a terminal only: who reads it from a file may want to copy whole lines."""
        if not self._output.is_terminal:
            return [text]
        room = max(NARROWEST, shutil.get_terminal_size().columns) - len(indent)
        return textwrap.wrap(text, max(room, 20), break_long_words=False, break_on_hyphens=False) or [""]


def write_json(sections: Sequence[DoctorSection], context: DoctorContext, output: Output) -> None:
    """Writes one JSON object."""
    mask = context.masker().mask
    whole = {
        "version": __version__,
        "python": sys.version.partition(" ")[0],
        "directory": context.directory,
        "is_healthy": all(section.is_healthy for section in sections),
        "sections": [section.as_object() for section in sections],
    }
    output.json(json.dumps(_masked(whole, mask), indent=2, default=str))


def _masked(value: Any, mask: Any) -> Any:
    match value:
        case str():
            return mask(value)
        case dict():
            return {key: _masked(each, mask) for key, each in value.items()}
        case list() | tuple():
            return [_masked(each, mask) for each in value]
    return value

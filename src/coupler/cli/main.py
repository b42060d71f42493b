"""The command `coupler`: its groups, shared options, exit and signal handling.

A command is imported when it is called, shown or completed. `serve` and `record` read their own arguments,
because an editor waits for them, and are dispatched before click is imported; here they are declared so that
click can list, complete and explain them.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from coupler.__about__ import __version__
from coupler.cli import record as record_command
from coupler.cli import serve as serve_command
from coupler.cli.exit_codes import BROKEN_PIPE, DONE, FAILED, INTERRUPTED, refuse
from coupler.cli.output import clean_reports_of_python, open_closed_streams, silence_stdout, stdout, tell

SECTIONS = {
    "Getting started": {
        "init": "coupler.cli.init:init",
        "login": "coupler.cli.agents.login:login",
        "models": "coupler.cli.models.models:models",
        "editor": "coupler.cli.editor.editor:editor",
        "doctor": "coupler.cli.doctor.doctor:doctor",
        "completion": "coupler.cli.completion:completion",
    },
    "Agents": {
        "serve": "coupler.cli.main:serve",
        "chat": "coupler.cli.chat.chat:chat",
        "exec": "coupler.cli.exec.exec:exec_command",
        "agents": "coupler.cli.agents.agents:agents",
    },
    "Workflows": {
        "run": "coupler.cli.run.run:run",
        "resume": "coupler.cli.run.run:resume",
        "runs": "coupler.cli.run.runs:runs",
        "workflows": "coupler.cli.workflows:workflows",
    },
    "Stored data": {
        "sessions": "coupler.cli.sessions.sessions:sessions",
        "permissions": "coupler.cli.permissions:permissions",
        "trust": "coupler.cli.trust:trust",
    },
    "The protocol": {
        "check": "coupler.cli.check:check",
        "record": "coupler.cli.main:record",
        "replay": "coupler.cli.replay:replay",
    },
}
"""The import path of every command by its name, in the sections of the help."""

IMPORT_PATHS = {name: place for section in SECTIONS.values() for name, place in section.items()}
"""The import path of each command."""

DAY = 86_400.0


class CommandLine(click.Group):
    """A group whose commands are imported when they are called, shown or completed."""

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        """Every command, imported; for those who walk through all of them."""
        for name in IMPORT_PATHS:
            self._find(name)
        return self._found

    @commands.setter
    def commands(self, given: MutableMapping[str, click.Command]) -> None:
        self._found = given

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*IMPORT_PATHS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._find(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0] if args else ""
        if word and not word.startswith("-") and self.get_command(ctx, word) is None:
            near = get_close_matches(word, IMPORT_PATHS, n=1)
            hint = f"did you mean `coupler {near[0]}`?" if near else "`coupler --help` lists those there are."
            ctx.fail(f"There is no command {word!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands by subject, because many in one list are hard to read."""
        width = max(map(len, IMPORT_PATHS))
        for title, places in SECTIONS.items():
            rows = [(name, self._short_help(ctx, name)) for name in places]
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows])

    def _find(self, name: str) -> click.Command | None:
        if name not in self._found and name in IMPORT_PATHS:
            module, _, variable = IMPORT_PATHS[name].partition(":")
            self._found[name] = getattr(import_module(module), variable)
        return self._found.get(name)

    def _short_help(self, ctx: click.Context, name: str) -> str:
        found = self.get_command(ctx, name)
        return "" if found is None else found.get_short_help_str(limit=80)


@click.group(
    cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80}
)
@click.version_option(__version__, prog_name="coupler")
def command() -> None:
    """Couple any editor to any agent over the Agent Client Protocol.

    \b
    Examples:
      coupler chat coder
      coupler editor zed app.py --write
      coupler doctor

    `coupler COMMAND --help` explains a command, with examples.
    """


class SelfParsedCommand(click.Command):
    """A command that parses its own arguments; those declared here are for completion."""

    def __init__(
        self,
        name: str,
        main: Callable[[list[str]], None],
        help: str,
        params: Sequence[click.Parameter],
        **more: Any,
    ) -> None:
        super().__init__(name, params=[*params], add_help_option=False, **more)
        self._main = main
        self._help = help

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leaves the arguments alone, unless the shell only asks what could come next."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        ctx.args = [*args]
        return ctx.args

    def invoke(self, ctx: click.Context) -> None:
        self._main([*ctx.args])

    def get_help(self, ctx: click.Context) -> str:
        return self._help.rstrip("\n")


def _completed(option: serve_command.Option) -> click.Option:
    kind = click.Choice(option.choices) if option.choices else None
    return click.Option([option.name], is_flag=not option.value, type=kind, metavar=option.value or None)


HELP_OPTION = click.Option(["-h", "--help"], is_flag=True)

serve = SelfParsedCommand(
    "serve",
    serve_command.main,
    serve_command.HELP,
    [
        click.Argument(["target"], required=False),
        click.Argument(["words"], nargs=-1),
        *map(_completed, serve_command.OPTIONS),
        HELP_OPTION,
    ],
    short_help="Serve an agent to an editor.",
)

record = SelfParsedCommand(
    "record",
    record_command.main,
    record_command.HELP,
    [
        click.Argument(["command"], nargs=-1),
        click.Option(["-o", "--output"], metavar="FILE"),
        click.Option(["--no-mask"], is_flag=True),
        click.Option(["-q", "--quiet"], is_flag=True),
        HELP_OPTION,
    ],
    short_help="Record what an editor and an agent say.",
)


def run_command(command: click.Command, arguments: list[str], program: str | None = None) -> NoReturn:
    """Runs a command and exits with its code; silently with 130 for Ctrl-C, and with 141 for a closed pipe.

    Left to itself, click would exit with 1 for both, as for any failure.
    """
    open_closed_streams()
    clean_reports_of_python()
    # Not to be written to, but to see whether click has replaced it, as it does if nobody reads.
    before = sys.stdout  # noqa: TID251
    try:
        code = command.main(arguments, prog_name=program, standalone_mode=False)
        stdout().flush()
    except SystemExit:
        if sys.stdout is before:  # noqa: TID251
            raise
        sys.stdout = before  # noqa: TID251
        _exit_for_write_error(BrokenPipeError(), program or "coupler")
    except OSError as error:
        if error.filename is not None or isinstance(error, FileNotFoundError):
            raise
        _exit_for_write_error(error, program or "coupler")
    except click.Abort as abort:
        if isinstance(abort.__cause__ or abort.__context__, EOFError):  # a question that nobody answers
            tell("Aborted!")
            sys.exit(FAILED)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        tell(shown.getvalue())
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else DONE)


def _exit_for_write_error(error: OSError, program: str) -> NoReturn:
    """Ends the program because its output cannot be written; without a message if nobody reads it any more.

    The error names no file: it is what the command prints.
    """
    silence_stdout()
    if isinstance(error, BrokenPipeError):
        sys.exit(BROKEN_PIPE)
    refuse(f"the output cannot be written: {(error.strerror or str(error)).lower()}", program, FAILED)


BLOCKED_LIMIT = 4.0
"""Seconds that an interrupted program may stand still, such as in a write that nobody reads."""


def _watch_loop(loop: asyncio.AbstractEventLoop, is_over: threading.Event, end: Callable[[], None]) -> None:
    """Calls `end` when the loop has not run for `BLOCKED_LIMIT` seconds, until `is_over` is set."""
    while not is_over.wait(BLOCKED_LIMIT / 10):
        has_run = threading.Event()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
            loop.call_soon_threadsafe(has_run.set)
        if not has_run.wait(BLOCKED_LIMIT) and not is_over.is_set():
            end()
            return


def _interrupt_main_thread() -> None:
    """Sends SIGINT to the main thread itself, so that it leaves the call that blocks it."""
    silence_stdout()  # or its end would be the next write that nobody reads
    if sys.platform == "win32":
        import _thread

        _thread.interrupt_main()
    else:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)


@contextlib.contextmanager
def handle_signals(hear: Callable[[int], object], *, most: int | None = None) -> Iterator[None]:
    """Handles Ctrl-C, SIGTERM and SIGHUP in the event loop; SIGHUP not under nohup.

    From the `most`-th on they raise KeyboardInterrupt wherever the program stands. So does the first once the
    loop has not run for `BLOCKED_LIMIT` seconds: a program that does not get there, because nobody reads what
    it writes, ends all the same.
    """
    from coupler.agent.startup.shutdown import ending_signals

    loop = asyncio.get_running_loop()
    seen = 0
    is_over = threading.Event()

    def end() -> None:
        nonlocal seen
        seen = most or 0
        _interrupt_main_thread()

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if most is not None and seen == 1:
            watch = threading.Thread(target=_watch_loop, args=(loop, is_over, end), daemon=True)
            watch.start()
        if most is not None and seen >= most:
            # What breaks off now does so because it was told to: nobody wants to read where.
            loop.set_exception_handler(lambda loop, context: None)
            raise KeyboardInterrupt
        if sys.platform == "win32":
            loop.call_soon_threadsafe(hear, number)

    before = {number: signal.getsignal(number) for number in ending_signals()}
    for number in before:
        if sys.platform != "win32":
            # It is the loop that must be woken: a signal may reach another thread, while the loop sleeps.
            loop.add_signal_handler(number, hear, number)
        signal.signal(number, count)
    try:
        yield
    finally:
        is_over.set()
        for number, receiver in before.items():
            if sys.platform != "win32":
                loop.remove_signal_handler(number)
            signal.signal(number, receiver)


def interrupt_on_signals() -> None:
    """Makes SIGTERM and SIGHUP end the program as Ctrl-C does; SIGHUP not under nohup."""
    from coupler.agent.startup.shutdown import ending_signals

    for number in ending_signals():
        if number != signal.SIGINT:
            signal.signal(number, lambda number, frame: signal.raise_signal(signal.SIGINT))


def seconds(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Checks a duration in seconds."""
    if value is not None and not 0 < value <= DAY:
        raise click.BadParameter("seconds must be more than 0, and no more than a day")
    return value


def pairs(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Parses NAME=VALUE pairs."""
    for value in values:
        name, equals, _ = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


def new_file(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Checks that a file can be created: its directory exists."""
    if value is None:
        return None
    path = Path(value)
    if not value.strip() or path.is_dir():
        raise click.BadParameter(f"{value!r} is no file")
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}")
    return value


CWD = click.option(
    "--cwd",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIRECTORY",
    help="Where the agent works.  [default: here]",
)
MODEL = click.option("--model", metavar="NAME", help="The model, if the agent offers a choice.")
MODE = click.option("--mode", metavar="NAME", help="The mode, if the agent offers several.")
OPTION = click.option(
    "--option",
    "options",
    multiple=True,
    callback=pairs,
    metavar="NAME=VALUE",
    help="Set an option of the agent; may be repeated.",
)
MCP = click.option(
    "--mcp",
    multiple=True,
    metavar="SERVER",
    help="Give the agent an MCP server: NAME=COMMAND, NAME=URL, or a JSON file with mcpServers.",
)
ALLOW = click.option(
    "--allow", multiple=True, metavar="RULE", help="Also allow this, as in `permissions.allow`."
)
DENY = click.option(
    "--deny", multiple=True, metavar="RULE", help="Never allow this, as in `permissions.deny`."
)
FILES = click.option(
    "--files",
    type=click.Choice(("read", "write", "none")),
    help="What the agent can do with files through Coupler; by default it reads them.",
)
TERMINALS = click.option("--terminals", is_flag=True, help="Let the agent run commands through Coupler.")
RECORD = click.option(
    "--record",
    metavar="FILE",
    callback=new_file,
    help="Write all that is said to a file, without secrets.",
)

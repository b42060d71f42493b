"""The coder's slash commands: one table of them, and those that are answered without a model.

`COMMANDS` says what each needs. Those that are answered here need no model and no LangChain. `/init` is a
prompt for the model (`COMMAND_PROMPTS`); `/compact`, `/undo` and `/redo` change the conversation, so they are
carried out where that is (`compaction`, `undo`). All of them are the user's: nobody is asked.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from msgspec import structs

from coupler.agent.agent import Command, Invocation, find_invocation
from coupler.coder.model.settings import EFFORT_OPTION, MODELS_OWN, OFF, ON, efforts_of
from coupler.coder.setup import set_state_value, state_value
from coupler.coder.usage import usage_text
from coupler.runtime.directories import home_directory
from coupler.runtime.files import OutsideRootsError, find_inside
from coupler.runtime.threads import in_thread
from coupler.schema.base import has_commands
from coupler.schema.v1 import McpServer, McpServerHttp, McpServerSse, McpServerStdio, TextContent

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.coder.model.choice import ModelChoice
    from coupler.mcp.servers import ServerState

DIRECTORIES_KEY = "directories"
"""Key in the session's state for the directories that the user has added by /add-dir."""

MOST_DIRECTORIES = 100
"""Directories that the user can add to a session."""

MCP_PATIENCE = 2.0
"""Seconds that /mcp waits for servers that have not listed their tools yet."""

MOST_TOOLS = 100
"""Tools of one MCP server that are named."""

LONGEST_TOOL, LONGEST_REASON, LONGEST_DESCRIPTION = 80, 500, 160
"""Characters of a tool's name, of a server's error, and of a command's description."""

SHORTEST_VALUE = 4
"""Characters of a server's variable or header from which on it is taken out of an error."""

FORCE = "--force"
"""The option of /export that replaces a file."""

MOST_NAMES = 1000
"""Names that are tried for an export."""

_COMMAND = re.compile(r"/([a-z][\w-]*)(?=\s|$)")
_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s'\"`<>]+", re.IGNORECASE)

INIT_PROMPT = """\
Write AGENTS.md for this repository: the file with which a coding agent that has never seen it can work in \
it at once.

1. If there is an AGENTS.md in the working directory, read it first. You will improve it: keep what is \
right, in its own words and order, correct what is wrong by now, and add what is missing. Do not start over.
2. Explore: the README and other documentation, the files that say how it is built, tested and checked \
(pyproject.toml, package.json, Makefile, CI and the like), the directories and what is in them, and some of \
the code that everything else stands on. Also read instructions for other agents, if there are any: \
CLAUDE.md, GEMINI.md, .cursor/rules, .cursorrules, .github/copilot-instructions.md.
3. Write what you have found, and nothing that you have not. An agent needs:
   - what this is, in a sentence or two
   - the exact commands to set it up, build, run, check and test it, and to run a single test
   - how it is made: the parts, where they are, and how they depend on each other, as far as this takes \
reading several files to know
   - the conventions that one cannot see in a single file: style, names, errors, tests, commits
   - what goes wrong easily, and what must not be touched
4. Keep it short: a page or two, in Markdown, without what every programmer knows, without lists of all \
files, and without anything secret.

Write the file with your tools. If you have none that write, show the text instead, and say so. At the end \
say in two or three sentences what is in it now, and what you could not find out."""


class CommandError(Exception):
    """A command cannot be carried out; the message tells the user what to do instead."""


class CommandCall(NamedTuple):
    """A command that was typed."""

    turn: Turn
    arguments: str
    model: ModelChoice | None = None
    """The model in use; None if none is set."""
    has_memory: bool = True
    """False if the memory is switched off."""

    @property
    def session(self) -> Session:
        """The session that it was typed in."""
        return self.turn.session


class CoderCommand(NamedTuple):
    """A slash command of the coder."""

    command: Command
    needs: Literal["nothing", "model", "effort"] = "nothing"
    """The condition for offering it: nothing, a model, or a model whose effort can be set."""
    answer: Callable[[CommandCall], Awaitable[str]] | None = None
    """Carries it out, and returns what the user is told; None if that is done elsewhere."""

    @property
    def name(self) -> str:
        """Its name, without the slash."""
        return self.command.name


async def _usage(call: CommandCall) -> str:
    return usage_text(call.session)


async def _mcp(call: CommandCall) -> str:
    """Show the MCP servers; those that have not answered yet are waited for for a moment."""
    servers = call.session.servers
    waiting = [
        name for name, state in servers.states.items() if state.status in ("not started", "connecting")
    ]
    if waiting:
        listing = [asyncio.ensure_future(call.turn.own(servers.tools_of(name))) for name in waiting]
        try:
            await asyncio.wait(listing, timeout=MCP_PATIENCE)
        finally:
            for task in listing:
                task.cancel()
            # Their errors are in the servers' states.
            await asyncio.gather(*listing, return_exceptions=True)
    if not servers.names:
        return (
            "This session has no MCP servers. Your editor can name some, and so can `[mcp.NAME]` in a "
            "`coupler.toml`."
        )
    lines = [_server_line(name, servers.entries[name], state) for name, state in servers.states.items()]
    return "\n".join(["MCP servers of this session:", "", *lines])


def _server_line(name: str, server: McpServer, state: ServerState) -> str:
    from coupler.agent.session_export import code_span
    from coupler.mcp.tools import printable
    from coupler.runtime.formatting import count

    lead = f"- {code_span(printable(name))} ({_reached_by(server)}): "
    match state.status:
        case "connected":
            names = [code_span(printable(tool.name, LONGEST_TOOL)) for tool in state.tools[:MOST_TOOLS]]
            more = len(state.tools) - len(names)
            names += [f"and {more:,} more"] if more else []
            listed = f": {', '.join(names)}" if names else ""
            return f"{lead}connected, {count(len(state.tools), 'tool')}{listed}"
        case "failed":
            return f"{lead}failed: {code_span(_reason(str(state.error), server))}"
    return f"{lead}connecting"


def _reached_by(server: McpServer) -> str:
    """Say how a server is reached, without arguments, paths and queries: tokens stand there."""
    from coupler.agent.session_export import code_span
    from coupler.mcp.tools import printable

    match server:
        case McpServerStdio(command=command):
            return f"the command {code_span(printable(Path(command).name))}"
        case McpServerHttp(url=url) | McpServerSse(url=url):
            return code_span(printable(_host_of(url)))
    return "of an unknown kind"


def _reason(error: str, server: McpServer) -> str:
    """Return an error without what may be secret in it: addresses are cut, and given values taken out."""
    from coupler.mcp.tools import printable

    text = _ADDRESS.sub(lambda found: _host_of(found[0]), error)
    for value in sorted(_given_values(server), key=len, reverse=True):
        if len(value) >= SHORTEST_VALUE:
            text = text.replace(value, "…")
    return printable(text, LONGEST_REASON)


def _given_values(server: McpServer) -> Iterator[str]:
    """Yield the values that a server is given and that may be secret."""
    from coupler.mcp.servers import named_values
    from coupler.redaction.sources import could_be_secret

    for values in named_values([server]):
        yield from values.values()
    match server:
        case McpServerStdio(args=args):
            yield from (part for each in args for part in each.split("=") if could_be_secret(part))
        case McpServerHttp(url=url) | McpServerSse(url=url):
            with suppress(ValueError):
                split = urlsplit(url)
                yield from (value for _, value in parse_qsl(split.query))
                yield from filter(None, (split.username, split.password))


def _host_of(address: str) -> str:
    try:
        split = urlsplit(address)
        port = f":{split.port}" if split.port is not None else ""
        return f"{split.scheme}://{split.hostname or ''}{port}"
    except ValueError:
        return "an address"


async def _add_directory(call: CommandCall) -> str:
    from coupler.agent.session_export import code_span

    session, given = call.session, _unquoted(call.arguments)
    if not given:
        others = [f"- {code_span(root)}" for root in session.roots[1:]]
        lines = [f"- {code_span(session.cwd)} (where it works)", *others]
        return "\n".join(["Directories of this session:", "", *lines, "", "`/add-dir PATH` adds one."])
    path = await in_thread(lambda: _checked_directory(given, session))
    added = [*_stored_directories(session), path]
    session.add_directories([path])
    set_state_value(session, DIRECTORIES_KEY, added)
    return f"Added {code_span(path)}: the session works there, too, from now on."


def _checked_directory(given: str, session: Session) -> str:
    """Return the absolute path of a directory that can be added; raises CommandError."""
    path = _absolute(given, session)
    if not os.path.lexists(path):
        raise CommandError(f"There is no directory `{path}`: nothing was added.")
    if not Path(path).is_dir():
        raise CommandError(f"`{path}` is not a directory: name the one that it is in.")
    real = Path(path).resolve()
    if real == Path(real.anchor):
        raise CommandError("The whole system cannot be added: name the directory that you need.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise CommandError(f"`{path}` cannot be read by you: nothing was added.")
    with suppress(OutsideRootsError):
        around = find_inside(path, session.cwd, session.roots)
        raise CommandError(f"`{path}` is in the session already, below `{around.root}`.")
    if len(_stored_directories(session)) >= MOST_DIRECTORIES:
        raise CommandError(f"{MOST_DIRECTORIES} directories were added already: no more can be.")
    return path


def restore_directories(session: Session) -> None:
    """Add the directories again that the user has added before, as far as they are still there.

    This blocks: call it in a thread.
    """
    session.add_directories(path for path in _stored_directories(session) if Path(path).is_dir())


def _stored_directories(session: Session) -> list[str]:
    stored = state_value(session, DIRECTORIES_KEY)
    paths = stored if isinstance(stored, list) else []
    return [path for path in paths if isinstance(path, str) and Path(path).is_absolute()][:MOST_DIRECTORIES]


async def _export(call: CommandCall) -> str:
    from coupler.agent.history import read_turns
    from coupler.agent.session_export import (
        code_span,
        redacted_record,
        redacted_turns,
        to_json,
        to_markdown,
        write_export,
    )
    from coupler.runtime.formatting import count

    session, journal = call.session, call.session.outlet.journal
    if journal is None:
        raise CommandError("This session is not stored, so it cannot be exported: leave out `--store none`.")
    given, is_forced = _export_arguments(call.arguments)
    path = await in_thread(lambda: _export_path(given, session, is_forced=is_forced))
    await session.until_stored()
    entries, last = [], 0
    while batch := await journal.entries_after(last):
        entries += batch
        last = batch[-1].seq
    record = await journal.record()

    def write() -> int:
        batches = iter([entries])
        turns = [turn for turn in read_turns(lambda _: next(batches, [])) if turn.number != journal.turn]
        shown = redacted_record(structs.replace(record, turns=len(turns)))
        masked = redacted_turns(record, turns)
        is_json = Path(path).suffix.lower() == ".json"
        pieces = to_json(shown, masked, is_held=True) if is_json else to_markdown(shown, masked, os.getpid())
        write_export(pieces, Path(path), replaces=is_forced)
        return len(turns)

    try:
        written = await in_thread(write)
    except FileExistsError:
        raise CommandError(_exists_already(path)) from None
    except OSError as error:
        raise CommandError(f"`{path}` cannot be written: {error.strerror}.") from None
    return f"Exported {count(written, 'turn')} to {code_span(path)}."


def _export_arguments(arguments: str) -> tuple[str, bool]:
    """Return the file that is named, and whether it may be replaced."""
    text = arguments.strip()
    if text == FORCE or text.startswith(f"{FORCE} "):
        return _unquoted(text.removeprefix(FORCE)), True
    if text.endswith(f" {FORCE}"):
        return _unquoted(text.removesuffix(FORCE)), True
    return _unquoted(text), False


def _export_path(given: str, session: Session, *, is_forced: bool) -> str:
    """Return the path of the file to write; raises CommandError."""
    if not given:
        short = session.id.removeprefix("sess_")[:8]
        names = (f"session-{short}{'' if n == 1 else f'-{n}'}.md" for n in range(1, MOST_NAMES))
        paths = (str(Path(session.cwd, name)) for name in names)
        free = next((path for path in paths if not os.path.lexists(path)), None)
        if free is None:
            raise CommandError(f"There are {MOST_NAMES} exports here already: name a file.")
        return free
    path = _absolute(given, session)
    if Path(path).is_dir():
        raise CommandError(f"`{path}` is a directory: name a file in it.")
    if os.path.lexists(path) and not is_forced:
        raise CommandError(_exists_already(path))
    if not (parent := Path(path).parent).is_dir():
        raise CommandError(f"There is no directory `{parent}`: make it first.")
    return path


def _exists_already(path: str) -> str:
    return f"`{path}` exists already: name another file, or write `/export {FORCE} {path}` to replace it."


async def _thinking(call: CommandCall) -> str:
    session, model = call.session, call.model
    if model is None or EFFORT_OPTION not in session.options:
        named = "No model is set" if model is None else f"It is not known how much `{model.name}` can think"
        raise CommandError(
            f"{named}: there is nothing to change. `effort` in a `coupler.toml` sets it anyway."
        )
    now, efforts = str(session.options[EFFORT_OPTION]), efforts_of(model)
    offered = ", ".join(f"`{effort}`" for effort in (MODELS_OWN, *efforts))
    wanted = call.arguments.strip().lower()
    if not wanted:
        return f"Thinking: `{now}`. `{model.name}` takes {offered}; `/thinking LEVEL` changes it."
    chosen = _effort(wanted, now, efforts)
    if chosen is None:
        near = difflib.get_close_matches(wanted, [ON, OFF, MODELS_OWN, *efforts], n=1)
        meant = f" Did you mean `{near[0]}`?" if near and near[0] != wanted else ""
        raise CommandError(f"`{model.name}` does not take `{wanted[:40]}`.{meant} It takes {offered}.")
    session.set_option(EFFORT_OPTION, chosen)
    return f"Thinking: `{chosen}`, from the next model call on."


def _effort(wanted: str, now: str, efforts: Sequence[str]) -> str | None:
    """Return the effort that is meant; None if the model does not take it."""
    if wanted in (MODELS_OWN, *efforts):
        return wanted
    if wanted != ON:
        return None
    if now not in (OFF, MODELS_OWN):
        return now
    return "medium" if "medium" in efforts else next((each for each in efforts if each != OFF), None)


async def _memory(call: CommandCall) -> str:
    from coupler.coder.memory import memory_shown

    return await memory_shown(call.turn, is_on=call.has_memory)


INIT = CoderCommand(
    Command("init", "Explore the repository, and write or improve its AGENTS.md", hint="what matters"),
    "model",
)
COMPACT = CoderCommand(
    Command(
        "compact", "Summarize the earlier conversation, to make room for more", hint="what to keep in mind"
    ),
    "model",
)
UNDO = CoderCommand(Command("undo", "Undo the last turn, with the files that it has written"), "model")
REDO = CoderCommand(Command("redo", "Redo the turn that was undone last"), "model")

COMMANDS = (
    INIT,
    COMPACT,
    UNDO,
    REDO,
    CoderCommand(
        Command("thinking", "Show how much the model thinks, or change it", hint="on, off or a level"),
        "effort",
        _thinking,
    ),
    CoderCommand(Command("usage", "Show what this session has used: tokens, context, cost"), answer=_usage),
    CoderCommand(Command("mcp", "Show the MCP servers of this session, and their tools"), answer=_mcp),
    CoderCommand(
        Command("add-dir", "Add a directory to this session, or show those that it has", hint="path"),
        answer=_add_directory,
    ),
    CoderCommand(
        Command("export", "Write this session to a file, as Markdown or JSON", hint=f"[{FORCE}] [file]"),
        answer=_export,
    ),
    CoderCommand(Command("memory", "Show what is remembered about this project"), answer=_memory),
)
"""The coder's commands, in the order of lists."""

COMMAND_NAMES = frozenset(each.name for each in COMMANDS)

COMMAND_PROMPTS = {INIT.name: INIT_PROMPT}
"""Prompts for the model of commands that are prompts, by their names."""


def offered_commands(session: Session, model: ModelChoice | None) -> list[Command]:
    """Return the commands that a session has with this model."""
    met = {"nothing"} | (set() if model is None else {"model"})
    if model is not None and EFFORT_OPTION in session.options:
        met.add("effort")
    return [each.command for each in COMMANDS if each.needs in met]


def typed_command(turn: Turn, commands: Iterable[Command]) -> Invocation | None:
    """Return the command of these that a prompt is; None also if it is data, which no person has typed.

    All commands of the coder are recognised here.
    """
    return find_invocation(commands, turn.blocks) if has_commands(turn.prompt_meta) else None


def command_typed(text: str) -> str | None:
    """Return the name of the command that a text begins with, also if there is none; None for a path."""
    found = _COMMAND.match(text)
    return None if found is None or os.path.lexists(f"{os.path.sep}{found[1]}") else found[1]


def unknown_command_in(turn: Turn, known: Container[str]) -> str | None:
    """Return the name of the command that a person has typed, if there is none of that name; else None.

    Only of a prompt that is one text and nothing else. `/tmp is full` names a path that there is.
    """
    texts = [block.text for block in turn.blocks if isinstance(block, TextContent)]
    if len(texts) != 1 or len(turn.blocks) != 1 or not has_commands(turn.prompt_meta):
        return None
    name = command_typed(texts[0])
    return None if name is None or name in known else name


def explain_unknown(name: str, commands: Sequence[Command]) -> str:
    """Return the answer to a command that there is not: the nearest one, and a list of all."""
    from coupler.agent.session_export import code_span, escape_markdown
    from coupler.coder.tools.outputs import one_line

    near = difflib.get_close_matches(name, [command.name for command in commands], n=1)
    meant = f" Did you mean `/{near[0]}`?" if near else ""
    lines = [
        f"- {code_span(f'/{each.name}')}: {escape_markdown(one_line(each.description, LONGEST_DESCRIPTION))}"
        for each in commands
    ]
    lead = f"There is no command {code_span(f'/{name[:80]}')}.{meant} The model was not asked."
    return "\n".join([lead, "", *lines])


def _absolute(given: str, session: Session) -> str:
    """Return the absolute path that the user means; raises CommandError."""
    home = home_directory(session.env)
    if given == "~" or given.startswith(f"~{os.path.sep}"):
        if home is None:
            raise CommandError("Your home directory is not known: write the path from `/` on.")
        given = home + given[1:]
    if "\0" in given or "\n" in given:
        raise CommandError("A path is one line of text.")
    path = Path(session.cwd, given)
    # Behind a link `..` is not what it looks like.
    return os.path.realpath(path) if ".." in path.parts else os.path.normpath(path)


def _unquoted(text: str) -> str:
    text = text.strip()
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text

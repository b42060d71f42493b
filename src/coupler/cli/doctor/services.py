"""Examines the store, the coder's model and the MCP servers.

The store is only read, and no file is made beside it: whatever is wrong with it is left as it is. The
servers are started or reached all at the same time, and asked for their tools.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

from coupler.cli.doctor.project import without_query
from coupler.cli.terminal import ago, short_directory
from coupler.runtime.formatting import count, size, timestamp
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.cli.doctor.doctor import DoctorContext, DoctorSection
    from coupler.coder.model.choice import ModelChoice
    from coupler.mcp.servers import SessionServers
    from coupler.schema.v1 import McpServer


GRAPHS_SUFFIX = ".langgraph"
"""The ending of the file beside the store in which version 0.1 kept the conversations of LangChain agents."""

LARGE_LOG = 256 * 1024 * 1024
"""Bytes of the write-ahead log that it does not have while all is well."""

LARGE_STORE = 1_000_000_000
"""Bytes of the store from which on it is told how it gets smaller."""

LARGE_FREE_SPACE = 16 * 1024 * 1024
"""Bytes of free space in the store, if they are a quarter of it, from which on it is told what helps."""

MOST_DAMAGES = 3
LOCKED, NO_DATABASE, DAMAGED = (5, 6), 26, 11
"""SQLite's result codes."""

STEPS_BETWEEN_LOOKS = 100_000
"""Steps of SQLite between two looks at the clock."""

LONGEST_LOCK = 1.0
"""Seconds that another program may hold the file."""

LOGIN = "run `coupler login coder`"


def examine_store(section: DoctorSection, context: DoctorContext) -> None:
    """Checks the file of the sessions, and that of LangChain's conversations which version 0.1 has left."""
    from coupler.runtime.directories import NoHomeError, store_file

    try:
        path = Path(context.config.sessions.store or store_file())
    except NoHomeError as error:
        section.problem("file", str(error), "set COUPLER_HOME to a directory that you can write to")
        return
    section.facts["file"] = str(path)
    if _look_at_file(section, path, "file", is_needed=True):
        _look_inside(section, path, context, is_ours=True)
    graphs = path.with_name(path.name + GRAPHS_SUFFIX)
    if graphs.exists() and _look_at_file(section, graphs, "graphs", is_needed=False):
        _look_inside(section, graphs, context, is_ours=False)


def _look_at_file(section: DoctorSection, path: Path, about: str, *, is_needed: bool) -> bool:
    """Checks a file's permissions; True if there is something to look into."""
    shown = short_directory(str(path))
    try:
        status = path.stat()
    except FileNotFoundError:
        if is_needed:
            section.ok(about, f"{shown}, which is made when something is kept")
        return False
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        section.problem(about, f"{shown} cannot be accessed: {reason}", _store_remedy(path))
        return False
    if not stat.S_ISREG(status.st_mode):
        section.problem(about, f"{shown} is not a file", "move it away, or set `sessions.store` to a file")
        return False
    section.facts[f"{about}_bytes"] = status.st_size
    section.ok(about, f"{shown}, {size(status.st_size)}")
    if os.name == "posix" and status.st_mode & 0o077:
        section.problem(
            "permissions", f"others can read {shown}", f"run `{shlex.join(['chmod', '600', str(path)])}`"
        )
    if not os.access(path, os.R_OK | os.W_OK):
        section.problem("permissions", f"you may not read and write {shown}", _store_remedy(path))
        return False
    _look_at_log(section, path)
    return status.st_size > 0


def _look_at_log(section: DoctorSection, path: Path) -> None:
    try:
        log = path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return
    section.facts.setdefault("log_bytes", log)
    if log > LARGE_LOG:
        section.note(
            "log",
            f"the write-ahead log has {size(log)} that are not yet in the file",
            "end the programs that have it open; the last one to close it folds the log in",
        )


def _look_inside(section: DoctorSection, path: Path, context: DoctorContext, *, is_ours: bool) -> None:
    about = "integrity" if is_ours else "graphs integrity"
    shown = short_directory(str(path))
    try:
        with closing(open_read_only(path, context.patience)) as connection:
            if is_ours and not _look_whose_it_is(section, connection, shown):
                return
            if is_ours:  # first, because a large file may not be read whole in time
                _look_at_space(section, connection)
                _tell_rules(section, connection, context)
            damages = [
                str(row[0])
                for row in connection.execute(f"PRAGMA quick_check({MOST_DAMAGES})")
                if row[0] != "ok"
            ]
            if damages:
                section.problem(about, f"{shown} is damaged: {'; '.join(damages)}", _rescue_remedy(path))
            else:
                section.ok(about, "the file is sound")
            if is_ours:
                _count(section, connection)
    except sqlite3.Error as error:
        _report_database_error(section, about, path, error)


def _look_whose_it_is(section: DoctorSection, connection: sqlite3.Connection, shown: str) -> bool:
    from coupler.store.migrations import APPLICATION_ID, MIGRATIONS

    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    section.facts["schema"] = version
    if application != APPLICATION_ID:
        section.problem(
            "contents", f"{shown} is a database of another program", "move it away, or set `sessions.store`"
        )
        return False
    if version > len(MIGRATIONS):
        section.problem("contents", f"{shown} was written by a newer Coupler", "upgrade Coupler")
        return False
    return True


def _count(section: DoctorSection, connection: sqlite3.Connection) -> None:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    sessions = connection.execute("SELECT count(*) FROM sessions WHERE deleted = 0").fetchone()[0]
    runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0] if "runs" in tables else 0
    section.facts |= {"sessions": sessions, "runs": runs}
    section.ok("contents", f"{count(sessions, 'session')}, {count(runs, 'run')} of workflows")


def _look_at_space(section: DoctorSection, connection: sqlite3.Connection) -> None:
    from coupler.store.space import read_space

    space = read_space(connection)
    section.facts |= {"used_bytes": space.used_bytes, "free_bytes": space.free_bytes}
    whole = f"{size(space.used_bytes)} used, {size(space.free_bytes)} free"
    is_empty = space.free_bytes >= LARGE_FREE_SPACE and space.free_pages * 4 >= space.pages
    if is_empty:
        section.note(
            "space",
            whole,
            "it is used for later sessions; to give it back, end all agents and run `coupler sessions delete "
            "--older-than 90d`, which also makes the file smaller",
        )
    elif space.used_bytes >= LARGE_STORE:
        section.note(
            "space",
            whole,
            "delete what you do not need: `coupler sessions delete --older-than 90d`, `coupler runs delete "
            "--older-than 90d`; or set `keep_sessions` and `keep_runs` in [store] of your coupler.toml",
        )
    else:
        section.ok("space", whole)


def _tell_rules(section: DoctorSection, connection: sqlite3.Connection, context: DoctorContext) -> None:
    from coupler.cli.store_access import deleted_words
    from coupler.store.retention import last_report

    rules = {
        name: rule.words
        for name, rule in (
            ("sessions", context.config.store.keep_sessions),
            ("runs", context.config.store.keep_runs),
        )
        if rule is not None
    }
    report = last_report(connection)
    section.facts |= {
        "keep": rules,
        "deleted": None
        if report is None
        else {
            "at": timestamp(report.at),
            "sessions": report.sessions,
            "runs": report.runs,
            "bytes": report.bytes,
        },
    }
    kept = "; ".join(f"{name} up to {one_line(words)}" for name, words in rules.items())
    deleted = "" if report is None else f"; last deleted: {deleted_words(report)}, {ago(report.at)}"
    section.ok("kept", f"{kept or 'everything until you delete it'}{deleted}")


def _report_database_error(section: DoctorSection, about: str, path: Path, error: sqlite3.Error) -> None:
    shown = short_directory(str(path))
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if "interrupted" in str(error):
        section.note(
            about, f"{shown} is too large to be read whole in this time", "give it longer with --timeout"
        )
    elif code in LOCKED:
        section.note(about, f"another program holds {shown} just now", "run this again when it is done")
    elif code in (NO_DATABASE, DAMAGED):
        section.problem(about, f"{shown} is not a database, or damaged", _rescue_remedy(path))
    else:
        section.problem(about, f"{shown} cannot be read: {error}", _store_remedy(path))


def _rescue_remedy(path: Path) -> str:
    damaged = shlex.quote(f"{path}.damaged")
    return (
        f"move it away: `mv {shlex.quote(str(path))} {damaged}`, and Coupler begins a new one; "
        f"`sqlite3 {damaged} .recover` may still get something out of the old one"
    )


def _store_remedy(path: Path) -> str:
    return f"correct the permissions of {path}, or set `sessions.store` or COUPLER_HOME to another place"


def open_read_only(path: Path, patience: float) -> sqlite3.Connection:
    """Opens a database for reading: no file is made beside it, and nothing in it is changed or mended.

    Without a log nobody else has it open, and then nothing needs to be made beside it.
    """
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{how}"
    connection = sqlite3.connect(address, uri=True, timeout=min(LONGEST_LOCK, patience))
    end = time.monotonic() + patience
    connection.set_progress_handler(lambda: int(time.monotonic() > end), STEPS_BETWEEN_LOOKS)
    return connection


class ReadOnlyTrust:
    """The files that the user has trusted, as the store says. What cannot be read is not trusted."""

    def __init__(self, store: Path | None, patience: float) -> None:
        self._store = store
        self._patience = patience

    def is_trusted(self, path: str, content: bytes) -> bool:
        """True if the file at this real path was trusted with exactly this content."""
        from coupler.store.choices import TrustedFile

        if self._store is None or not self._store.is_file():
            return False
        query = "SELECT digest, trusted_at FROM trusted_files WHERE path = ?"
        try:
            with closing(open_read_only(self._store, self._patience)) as connection:
                rows = connection.execute(query, [os.fsencode(path)]).fetchall()
        except sqlite3.Error:
            return False  # told of the store
        return any(TrustedFile(path, *row).has(content) for row in rows)


def read_only_trust(store: str | None, patience: float) -> ReadOnlyTrust:
    """The trusted files in the store that the user has set, else in the usual one."""
    from coupler.runtime.directories import NoHomeError, store_file

    try:
        return ReadOnlyTrust(Path(store or store_file()), patience)
    except NoHomeError:
        return ReadOnlyTrust(None, patience)


def examine_model(section: DoctorSection, context: DoctorContext) -> None:
    """Checks the model, where it is set, its key, and its answer; the first thing that is wrong ends it."""
    from coupler.coder.model.choice import chosen_model
    from coupler.coder.model.credentials import ModelError
    from coupler.coder.profiles import DEFAULT_PROFILE

    _look_at_profiles(section, context)
    _look_at_search(section, context)
    if not _look_at_credentials(section, context):
        return
    try:
        choice = chosen_model(context.config, DEFAULT_PROFILE)
    except ModelError as error:
        section.problem("model", str(error), f"correct it where it is set, or {LOGIN}")
        return
    if choice is None:
        _tell_none(section, context)
        return
    section.facts |= {"model": choice.name, "base_url": without_query(choice.base_url or "") or None}
    section.ok("model", f"{choice.name}{_at(choice)}, as {_model_origin(context)} says")
    try:
        key = _key(section, choice, context)
    except ModelError as error:
        section.problem("key", str(error), f"{LOGIN}, or set the variable")
        return
    if context.is_offline:
        section.ok("answer", "not tried out, because of --offline")
    else:
        _try_model(section, choice, key, context)


def _look_at_credentials(section: DoctorSection, context: DoctorContext) -> bool:
    """Checks the file of `coupler login coder`, and hides its keys; True if it can be read."""
    from coupler.coder.model.credentials import ModelError, credentials_file, stored_credentials
    from coupler.runtime.directories import NoHomeError

    try:
        file = credentials_file()
        mode = file.stat().st_mode
    except (NoHomeError, FileNotFoundError):
        return True
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        section.problem("keys", f"{file} cannot be read: {reason}", "see to the directory, as told above")
        return False
    if not stat.S_ISREG(mode):
        section.problem("keys", f"{short_directory(str(file))} is not a file", f"move it away, then {LOGIN}")
        return False
    if os.name == "posix" and mode & 0o077:
        section.problem(
            "keys",
            f"others can read {short_directory(str(file))}",
            f"run `{shlex.join(['chmod', '600', str(file)])}`",
        )
    try:
        stored = stored_credentials()
    except ModelError as error:
        section.problem("keys", str(error), f"move it away, then {LOGIN}")
        return False
    context.keep_secret([{"stored_key": each.key} for each in stored.keys])
    return True


def _look_at_profiles(section: DoctorSection, context: DoctorContext) -> None:
    from coupler.coder.profiles import CODER, ProfileError, profile_names, profile_of

    config = context.config
    names = [name for name in profile_names(config) if name != CODER]
    for name in names:
        try:
            profile_of(name, config)
        except ProfileError as error:
            section.problem("profile", str(error), f"correct [agents.{one_line(name)}] in coupler.toml")
    section.facts["profiles"] = names


def _look_at_search(section: DoctorSection, context: DoctorContext) -> None:
    """Checks the web search of the coder, if one is configured: its server and its key."""
    from coupler.coder.search_providers import MODEL, SearchSettings

    settings = SearchSettings.of(context.config)
    section.facts["search"] = None if settings is None else settings.provider
    if settings is None:
        return
    problem = settings.problem()
    if problem is None and settings.provider == MODEL:
        problem = _problem_of_model_search(context)
    if problem is not None:
        section.problem("search", problem, "set it, or take [coder.search] out of coupler.toml")
        return
    key, variable = settings.key(), settings.variable
    if key is not None and variable is not None:
        context.keep_secret([{variable: key}])
    section.ok("search", settings.title + ("" if key is None else f", with the key of {variable}"))


def _problem_of_model_search(context: DoctorContext) -> str | None:
    """Return why the model that is set cannot search; None if it can, or if there is none."""
    from coupler.coder.model.choice import chosen_model
    from coupler.coder.model.credentials import ModelError
    from coupler.coder.profiles import DEFAULT_PROFILE
    from coupler.coder.search_providers import SearchError, model_search

    try:
        choice = chosen_model(context.config, DEFAULT_PROFILE)
        if choice is not None:
            model_search(choice)
    except ModelError:
        return None  # told of the model itself
    except SearchError as error:
        return str(error)
    return None


def _tell_none(section: DoctorSection, context: DoctorContext) -> None:
    from coupler.coder.model.credentials import PROVIDERS

    section.facts["model"] = None
    if context.config_error is not None:
        section.note("model", "a coupler.toml is wrong, so it cannot be told whether it sets one")
        return
    at_hand = [
        f"COUPLER_MODEL={provider.name}:{provider.example or 'NAME'} would work with {variable}, which is set"
        for provider in PROVIDERS.values()
        for variable in provider.variables[:1]
        if os.environ.get(variable, "").strip()
    ]
    section.note(
        "model",
        "none is set, so the coder can only run workflows",
        "; ".join((f"{LOGIN} to choose one", *at_hand[:2])),
    )


def _model_origin(context: DoctorContext) -> str:

    setting = context.config.settings.get("coder.model")
    if setting is None:
        return "`coupler login coder`"
    origin = setting.origin
    if origin.file is None:
        return str(origin)
    return short_directory(origin.file) + ("" if origin.line is None else f" line {origin.line}")


def _key(section: DoctorSection, choice: ModelChoice, context: DoctorContext) -> str | None:
    from coupler.coder.model.credentials import Keyring, missing_key, provider_of

    key = Keyring().key_for(choice)
    section.facts["key_from"] = None if key is None else key.source
    if key is not None:
        context.keep_secret([{key.name: key.value}])
        section.ok("key", f"that of {key.source}")
        return key.value
    if provider_of(choice.provider).needs_key and choice.base_url is None:
        raise missing_key(choice)
    section.ok("key", "none, which this model may not need")
    return None


def _try_model(section: DoctorSection, choice: ModelChoice, key: str | None, context: DoctorContext) -> None:
    from coupler.coder.model.credentials import LOCAL

    if choice.provider == LOCAL:
        _look_for_file(section, choice)
        return
    if not _has_packages(section, context):
        return
    asyncio.run(_ask(section, choice, key, context))


def _has_packages(section: DoctorSection, context: DoctorContext) -> bool:
    """Imports the packages before the clock runs: they take seconds, which are not the model's."""
    from coupler.cli.doctor.installation import install_command

    try:
        with context.importing:
            from coupler.coder.model import chat_model  # noqa: F401
            from coupler.langchain import errors  # noqa: F401
    except ImportError as error:
        sentence = f"the coder's packages are not installed ({error})"
        section.problem("packages", sentence, f"run `{install_command('coder')}`")
        return False
    return True


async def _ask(section: DoctorSection, choice: ModelChoice, key: str | None, context: DoctorContext) -> None:
    from coupler.coder.model.chat_model import TrialResult, try_model

    began = time.monotonic()
    verdict, sentence = await try_model(choice, key, context.patience)
    seconds = time.monotonic() - began
    section.facts |= {"verdict": verdict.value, "seconds": round(seconds, 3)}
    match verdict:
        case TrialResult.WORKS:
            section.ok("answer", f"it answers, after {seconds:.1f} s")
        case TrialResult.REFUSED:
            section.problem("answer", sentence, f"{LOGIN} with another key or model")
        case TrialResult.UNKNOWN:
            place = "its provider" if choice.base_url is None else without_query(choice.base_url)
            remedy = f"see whether {place} can be reached from here, and whether a proxy is needed"
            section.problem("answer", f"it could not be asked: {sentence}", remedy)
    section.close()


def _look_for_file(section: DoctorSection, choice: ModelChoice) -> None:
    """Checks the file of a local model: it is loaded when it is first used, which may take minutes."""
    from importlib.util import find_spec

    from coupler.cli.doctor.installation import python_command
    from coupler.coder.model.credentials import ModelError
    from coupler.coder.model.local_files import ENGINE, ENGINE_REQUIREMENT, model_facts, model_file

    try:
        file = model_file(choice)
        model_facts(file)
    except ModelError as error:
        section.problem("file", str(error), f"see `coupler models --help`, or {LOGIN}")
        return
    section.ok("file", f"{short_directory(str(file))}, which is loaded when it is first used")
    if find_spec(ENGINE) is None:
        command = python_command(ENGINE_REQUIREMENT)
        section.problem("packages", f"{ENGINE}, which runs it, is not installed", f"run `{command}`")


def _at(choice: ModelChoice) -> str:
    return "" if choice.base_url is None else f" at {without_query(choice.base_url)}"


def examine_servers(section: DoctorSection, context: DoctorContext) -> None:
    """Asks the servers that count here for their tools: what an untrusted project names is not started."""
    from coupler.mcp.package import is_installed
    from coupler.mcp.servers import merge_servers, named_values

    servers = context.config.mcp
    context.keep_secret((*named_values(servers), *_secrets_in_arguments(servers)))
    entries = merge_servers(servers)
    section.facts["servers"] = {name: {"is_reached": None} for name in entries}
    is_all = not _tell_withheld(section, context)
    if not entries:
        if is_all:
            section.ok("servers", "none is set")
    elif context.is_offline:
        section.ok("servers", f"{', '.join(entries)}: not tried out, because of --offline")
    elif not is_installed():
        from coupler.cli.doctor.installation import install_command

        sentence = f"{', '.join(entries)} cannot be used: the packages for that are not installed"
        section.problem("packages", sentence, f"run `{install_command('mcp')}`")
    else:
        asyncio.run(_try_all(section, entries, context))


def _secrets_in_arguments(servers: Iterable[McpServer]) -> Iterator[dict[str, str]]:
    """Secrets in arguments and addresses, which a server or a library may quote."""
    from coupler.redaction.sources import SHORTEST, looks_secret
    from coupler.schema.v1 import McpServerHttp, McpServerSse, McpServerStdio

    for server in servers:
        match server:
            case McpServerStdio(args=words):
                for before, word in pairwise(["", *words]):
                    name, equals, value = word.partition("=")
                    if equals and looks_secret(name):
                        yield {name.lstrip("-"): value}
                    elif before.startswith("-") and looks_secret(before):
                        yield {before.lstrip("-"): word}
            case McpServerHttp(url=url) | McpServerSse(url=url):
                parts = urlsplit(url)
                pairs = [*parse_qsl(parts.query), ("password", parts.password or "")]
                yield {name: value for name, value in pairs if len(value) >= SHORTEST}


def _tell_withheld(section: DoctorSection, context: DoctorContext) -> bool:
    """Reports servers that do not count, or why that is not known; True if there was something to say."""
    if context.config_error is not None:
        section.note("servers", "a coupler.toml is wrong, so it cannot be told which servers it names")
        return True
    names = [
        one_line(server.name)
        for setting in context.config.untrusted
        if setting.key.name == "mcp"
        for server in setting.value
    ]
    if not names:
        return False
    section.note(
        "not trusted",
        f"before the project is trusted, the servers that it names are not started: {', '.join(names)}",
        "read the project's coupler.toml, then run `coupler trust`",
    )
    return True


async def _try_all(section: DoctorSection, entries: dict[str, McpServer], context: DoctorContext) -> None:
    from coupler.mcp.package import load_client
    from coupler.mcp.servers import ServerEnvironment, SessionServers

    with context.importing:
        await load_client()  # so that no server is blamed for the time that it takes
    servers = SessionServers(entries, ServerEnvironment(context.directory or os.sep, os.environ))
    patience = context.patience
    try:
        async with asyncio.TaskGroup() as tasks:
            for name, entry in entries.items():
                tasks.create_task(_try_server(section, name, entry, servers, patience))
    finally:
        section.close()
        await servers.close()


async def _try_server(
    section: DoctorSection, name: str, entry: McpServer, servers: SessionServers, patience: float
) -> None:
    from coupler.mcp.tools import McpError

    began = time.monotonic()
    fact = section.facts["servers"][name]
    try:
        async with asyncio.timeout(patience):
            tools = await servers.tools_of(name)
    except TimeoutError:
        fact["is_reached"] = False
        section.problem(name, f"it did not answer within {patience:.0f} seconds", _server_remedy(entry))
    except McpError as error:
        fact["is_reached"] = False
        section.problem(name, error.message, _server_remedy(entry))
    else:
        seconds = time.monotonic() - began
        fact |= {"is_reached": True, "tools": [tool.name for tool in tools], "seconds": round(seconds, 3)}
        section.ok(name, f"{count(len(tools), 'tool')}, after {seconds:.1f} s ({_server_address(entry)})")


def _server_remedy(entry: McpServer) -> str:
    from coupler.schema.v1 import McpServerStdio

    if isinstance(entry, McpServerStdio):
        return f"start {entry.command} in a terminal to see what it says, and correct [mcp.{entry.name}]"
    return f"see whether {_server_address(entry)} can be reached from here, and correct [mcp.{_name(entry)}]"


def _server_address(entry: McpServer) -> str:
    """The program or the host; arguments and the rest of an address may hold tokens."""
    from coupler.mcp.servers import server_name
    from coupler.schema.v1 import McpServerHttp, McpServerSse, McpServerStdio

    match entry:
        case McpServerStdio(command=command):
            return one_line(command)
        case McpServerHttp(url=url) | McpServerSse(url=url):
            parts = urlsplit(url)
            return one_line(
                f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
            )
    return server_name(entry)


def _name(entry: McpServer) -> str:
    from coupler.mcp.servers import server_name

    return server_name(entry)

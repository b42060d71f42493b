"""Provides `connect` and `ask`: drive an agent that is a command, or one in this process."""

from __future__ import annotations

import asyncio
import os
import os.path
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from os import PathLike
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack, overload

from msgspec import structs

from coupler.client.connection import FRAME_LIMIT, ExitDetails, Link, ProcessLink
from coupler.client.elicitation import OnForm, OnUrl
from coupler.client.errors import AgentError
from coupler.client.files import FileAccess
from coupler.client.limits import Limits
from coupler.client.observation import OnEvent
from coupler.client.policy import Confinement
from coupler.client.pool import IDLE_SECONDS, MOST_AGENTS, SessionPool
from coupler.client.prompt import GRACE, MOST_ROUNDS, Check, PromptOptions
from coupler.client.quirks import Quirks, ServedByCoupler, known_by_command
from coupler.client.remote import (
    TEMPORARY,
    ClientOffer,
    RemoteAgent,
    SessionOptions,
    refuse_unknown,
)
from coupler.client.reply import Budget
from coupler.runtime.environment import Environment, SpawnError, split_command
from coupler.schema.v1 import ContentBlock
from coupler.wire.transport import MemoryTransport, Transport

if TYPE_CHECKING:
    from coupler.agent.factory import AgentFactory
    from coupler.agent.startup.serve_options import ServeOptions
    from coupler.client.agent_profile import AgentProfile
    from coupler.providers.catalogue import CatalogueEntry


STARTUP_TIMEOUT = 30.0
"""Seconds in which an agent must start, be initialized and open its first session."""

INSTALLER_TIMEOUT = 120.0
"""Seconds for the start of commands that may download the agent first."""

TARGET_SUFFIXES = frozenset({".py", ".yaml", ".yml"})
"""Endings of files that `coupler serve` takes."""

INSTALLERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pipx"})

SESSION_KEYS = ("system", "model", "mode", "options", "allow", "deny", "context", "skills")
"""Settings of an agent's table that are about its sessions, and not about how it is started."""

T = TypeVar("T")


class AskOptions(SessionOptions, total=False):
    """Options of `ask`: those of `agent.new`, `connect` and `session.prompt`."""

    env: Environment | Mapping[str, str | None]
    startup_timeout: float
    frame_limit: int
    limits: Limits
    quirks: Quirks
    on_event: OnEvent
    files: FileAccess
    terminals: bool
    on_form: OnForm
    on_url: OnUrl
    record: str | PathLike[str]
    until: Check
    rounds: int
    budget: Budget
    timeout: float
    """Seconds for all of it, including the start."""
    grace: float
    repairs: int
    meta: Mapping[str, Any]
    commands: bool


PROMPT_OPTIONS = frozenset({"until", "rounds", "budget", "timeout", "grace", "repairs", "meta", "commands"})
CONNECT_OPTIONS = (
    frozenset(AskOptions.__annotations__) - frozenset(SessionOptions.__annotations__) - PROMPT_OPTIONS
)


def connect(
    agent: str | Sequence[str] | Any,
    *,
    cwd: str | PathLike[str] = ".",
    env: Environment | Mapping[str, str | None] | None = None,
    startup_timeout: float | None = None,
    frame_limit: int = FRAME_LIMIT,
    limits: Limits | None = None,
    quirks: Quirks | None = None,
    on_event: OnEvent | None = None,
    files: FileAccess | None = None,
    terminals: bool = False,
    on_form: OnForm | None = None,
    on_url: OnUrl | None = None,
    record: str | PathLike[str] | None = None,
) -> RemoteAgent:
    """Connect to an agent: returns an async context manager that starts and ends it.

    `agent` is a command line, a list of its words, a name of the catalogue such as "claude", what `coupler
    serve` takes, such as "agent.py" or "app:agent", or a turn function or `Agent`, which runs in this
    process. `env` is added to our environment; `Environment.exact` replaces it. Lines of the agent over
    `frame_limit` bytes are dropped. What a turn has over its `limits` is cut, and the reply's `cut` says so.
    `quirks` override what the catalogue knows of this agent; `on_event` sees all that happens. `record` is a
    file for all messages, without secrets, as `coupler record` writes it; each start has a file of its own.

    The agent may read the files in a session's directories through us; with `files="write"` it may also write
    them, with "none" neither. Agents that cannot use these methods are offered what the catalogue says. With
    `terminals` it may run commands there. `on_form` and `on_url` are functions that ask the user for what the
    agent wants to know.
    """
    return _connected(
        agent,
        cwd=cwd,
        env=env,
        startup_timeout=startup_timeout,
        frame_limit=frame_limit,
        limits=limits,
        quirks=quirks,
        on_event=on_event,
        files=files,
        terminals=terminals,
        on_form=on_form,
        on_url=on_url,
        record=record,
    )


def connect_bare(
    agent: str | Sequence[str],
    *,
    cwd: str | PathLike[str],
    env: Environment | Mapping[str, str | None] | None = None,
    files: FileAccess | None = None,
) -> RemoteAgent:
    """Connect to an agent without what its table in `coupler.toml` says of sessions.

    For callers that apply the table themselves, because they have settings of their own to merge with it.
    """
    return _connected(agent, has_profile=False, cwd=cwd, env=env, files=files)


def connect_keeping_sessions(agent: str, **options: Any) -> RemoteAgent:
    """Connect to an agent as `connect` does, to open its sessions again later.

    An agent that runs in this process keeps them in the user's store; others have a place of their own.
    """
    return _connected(agent, keeps_sessions=True, **options)


def _connected(
    agent: str | Sequence[str] | Any,
    *,
    cwd: str | PathLike[str],
    env: Environment | Mapping[str, str | None] | None,
    files: FileAccess | None,
    startup_timeout: float | None = None,
    frame_limit: int = FRAME_LIMIT,
    limits: Limits | None = None,
    quirks: Quirks | None = None,
    on_event: OnEvent | None = None,
    terminals: bool = False,
    on_form: OnForm | None = None,
    on_url: OnUrl | None = None,
    record: str | PathLike[str] | None = None,
    has_profile: bool = True,
    keeps_sessions: bool = False,
) -> RemoteAgent:
    _refuse_no_agent(agent)
    words = agent_label(agent)
    meant = None
    if isinstance(agent, str):
        meant = resolve_name(agent, cwd=cwd, env=env, has_profile=has_profile)
    if meant is None:
        meant = _known_command(agent, env)
    agent, env, profile, files = meant.target, meant.env, meant.profile, files or meant.files
    timeout = default_startup_timeout(agent) if startup_timeout is None else startup_timeout
    confinement = confinement_of(agent)
    if confinement is not None and (files is not None or terminals):
        raise AgentError(
            "spawn",
            f"{confinement.agent} reads, writes and runs commands by itself, so that `files` and `terminals` "
            "cannot keep it from that: leave them out and choose a mode, or drive its ACP form",
        )

    def link() -> Link:
        way = link_to(agent, cwd=cwd, env=env, keeps_sessions=keeps_sessions)
        return way if record is None else _recorded(way, record, agent, env)

    link()  # says now, and not at the start, what cannot be started
    return ServableAgent(
        words,
        link,
        cwd=cwd,
        startup_timeout=timeout,
        frame_limit=frame_limit,
        limits=limits,
        offer=ClientOffer(files=files, terminals=terminals, on_form=on_form, on_url=on_url),
        quirks=quirks,
        assumed_quirks=meant.quirks,
        on_event=on_event,
        confinement=confinement,
        profile=profile,
        is_in_process=not _is_command(agent),
    )


@overload
def ask(
    agent: str | Sequence[str] | Any,
    prompt: str | Sequence[str | ContentBlock],
    *,
    output: None = None,
    **options: Unpack[AskOptions],
) -> str: ...


@overload
def ask(
    agent: str | Sequence[str] | Any,
    prompt: str | Sequence[str | ContentBlock],
    *,
    output: type[T],
    **options: Unpack[AskOptions],
) -> T: ...


@overload
def ask(
    agent: str | Sequence[str] | Any,
    prompt: str | Sequence[str | ContentBlock],
    *,
    output: Any,
    **options: Unpack[AskOptions],
) -> Any: ...


def ask(
    agent: str | Sequence[str] | Any,
    prompt: str | Sequence[str | ContentBlock],
    *,
    output: Any = None,
    **options: Unpack[AskOptions],
) -> Any:
    """Start an agent, ask it, end it, and return its text, or what `output` describes.

    It blocks, in a program with an event loop or without one. Everything that is not an answer raises
    `AgentError`: also a refusal, a limit and a cancel. Ctrl-C cancels the turn and ends the agent.
    """
    refuse_unknown("ask", options, AskOptions)
    limits = _prompt_options(options)
    limits.refuse_if_over()
    return _waited_for(_answer(agent, prompt, output, {**options}, limits))


class ServableAgent(RemoteAgent):
    """An agent from `connect`: to drive, or to serve again with `serve(connect(…))`."""

    def __init__(self, words: str, link: Callable[[], Link], **settings: Any) -> None:
        super().__init__(link, **settings)
        self.words = words

    def make_factory(self, options: ServeOptions) -> AgentFactory:
        """Make the factory by which it is served; see `coupler.relay`."""
        # Imported on use: whoever drives an agent does not serve it.
        from coupler.relay.relay import Relay

        return Relay(self, self.words, options).make_factory()


class Pool(SessionPool):
    """Reuses agents and sessions: `async with Pool() as pool`, `pool.session("gemini")`."""

    def __init__(self, *, most: int = MOST_AGENTS, idle: float = IDLE_SECONDS) -> None:
        """Prepare a pool of at most `most` agents in use; what is unused for `idle` seconds is ended."""
        super().__init__(connect, most=most, idle=idle)


def confinement_of(agent: object) -> Confinement | None:
    """Return how an agent of this process enforces a policy, if it is one that asks for no permission."""
    confinement = getattr(agent, "confinement", None)
    return confinement if isinstance(confinement, Confinement) else None


def agent_label(agent: str | Sequence[str] | Any) -> str:
    """Return the agent's command line, or the name of its code."""
    if not _is_command(agent):
        return str(getattr(agent, "__qualname__", type(agent).__name__))
    try:
        return shlex.join(split_command(agent))
    except SpawnError:
        return ""  # the start itself will say what is wrong


def link_to(
    agent: str | Sequence[str] | Any,
    *,
    cwd: str | PathLike[str] | None = None,
    env: Environment | Mapping[str, str | None] | None = None,
    keeps_sessions: bool = False,
) -> Link:
    """Return a link to an agent, given as `connect` takes it; one of this process may keep its sessions."""
    if _is_command(agent):
        return ProcessLink(startable_command(agent), cwd=cwd, env=env)
    if env is not None:
        raise AgentError("spawn", "`env` is for commands: an agent in this process has our environment")
    return LocalLink(agent, store=keeps_sessions)


def _recorded(
    link: Link,
    path: str | PathLike[str],
    agent: str | Sequence[str] | Any,
    env: Environment | Mapping[str, str | None] | None,
) -> Link:
    """Return the link with a recording. Variables that only the agent was given are masked like ours."""
    # Imported on use, because most agents are not recorded.
    from coupler.client.connection import recorded
    from coupler.redaction.sources import secrets_in_environment
    from coupler.wire.tap import agent_name

    try:
        words = split_command(agent) if _is_command(agent) else [getattr(agent, "__name__", "agent")]
        given = (env if isinstance(env, Environment) else Environment.inherit(env)).resolve()
    except SpawnError:
        return link  # nothing will be said: the start itself will tell what is wrong
    label = agent_name(words)
    return recorded(link, path, label=label, secrets=secrets_in_environment(given))


class ResolvedAgent(NamedTuple):
    """A name of the catalogue, resolved to a command or an `Agent` with its settings."""

    target: Any
    env: Environment | Mapping[str, str | None] | None
    quirks: Quirks | None
    files: FileAccess | None = None
    profile: AgentProfile | None = None


def resolve_name(
    agent: str,
    *,
    cwd: str | PathLike[str] | None = None,
    env: Environment | Mapping[str, str | None] | None = None,
    has_profile: bool = True,
) -> ResolvedAgent | None:
    """Resolve a name of the catalogue in a directory; None if it is a command line.

    `has_profile` is False if its table in `coupler.toml` is to say nothing of its sessions.
    """
    if not agent or any(char.isspace() or char in "/\\" for char in agent) or served_target(agent):
        return None
    # Imported on use, because most agents are command lines.
    from coupler.providers.catalogue import resolve

    chosen = resolve(agent, cwd)
    if chosen is None:
        return None
    entry = chosen.entry
    if not isinstance(env, Environment):
        env = {**entry.env, **(env or {})} or None
    profile = _profile_of(entry) if has_profile else None
    if chosen.form == "acp":
        return ResolvedAgent([*chosen.command], env, entry.quirks, entry.files, profile)
    native = entry.native or ""
    target = _native(native, env, profile)
    quirks = entry.quirks or ServedByCoupler()
    return ResolvedAgent(target, None, quirks, profile=_of_sessions(profile, native, target))


def _known_command(agent: Any, env: Environment | Mapping[str, str | None] | None) -> ResolvedAgent:
    """Return an agent that is no name, with what is known of it by its command line."""
    if not _is_command(agent):
        return ResolvedAgent(agent, env, ServedByCoupler())  # it is served by Coupler
    try:
        known = known_by_command(split_command(agent))
    except SpawnError:
        known = None  # the start itself will say what is wrong
    if known is None:
        return ResolvedAgent(agent, env, None)
    if known.env and not isinstance(env, Environment):
        env = {**known.env, **(env or {})}
    return ResolvedAgent(agent, env, known.quirks, known.files)


def _profile_of(entry: CatalogueEntry) -> AgentProfile | None:
    """Return what an agent's table says of its sessions; None if it says nothing."""
    table = entry.table
    if table is None or not any(getattr(table, key) for key in SESSION_KEYS):
        return None
    # Imported on use, because most agents have no such table.
    from coupler.client.agent_profile import AgentProfile

    return AgentProfile(table)


def _native(
    name: str, env: Environment | Mapping[str, str | None] | None, profile: AgentProfile | None
) -> Any:
    from coupler.providers.catalogue import ENTRIES, provider

    given: dict[str, Any] = {}
    if profile is not None:
        table = profile.table
        given = {"model": table.model, "system_prompt": profile.system_prompt(), "options": table.options}
    if env is not None:
        if isinstance(env, Environment) or ENTRIES[name].program is None:
            raise AgentError(
                "spawn", f"the native form of {name} takes no `env` but a mapping for its program"
            )
        given["env"] = env
    made: Any = provider(name)
    try:
        return made(**given)
    except (TypeError, ValueError) as error:
        if profile is None:
            raise
        raise AgentError("spawn", f"{profile.place} cannot hold for {name}: {error}") from None


def _of_sessions(profile: AgentProfile | None, name: str, target: object) -> AgentProfile | None:
    """Return the part of a native agent's profile that its sessions apply: it was made with the rest."""
    if profile is None:
        return None
    confinement = confinement_of(target)
    if confinement is not None and profile.rules:
        raise AgentError(
            "spawn",
            f"{confinement.agent} asks nobody before it uses a tool, so that `tools` of {profile.place} "
            f'cannot hold: use its ACP form, as in `agent = "{name}:acp"`, or choose a `mode` instead',
        )
    return type(profile)(structs.replace(profile.table, system=None, skills=(), model=None, options={}))


class LocalLink:
    """Runs an agent in this process and event loop, over the same protocol."""

    def __init__(self, target: Any, *, store: str | bool = False) -> None:
        """Prepare the link; `store` is the file that keeps its sessions, which are not kept by default."""
        self._target = target
        self._store = store
        self._serving: asyncio.Task[None]

    def open(self) -> Transport:
        # Imported on use: whoever drives other programs does not need the agent's side.
        from coupler.agent.factory import AgentFactory
        from coupler.agent.startup.serve import serve_async

        try:
            AgentFactory.of(self._target)
        except (TypeError, ValueError) as error:
            raise AgentError("spawn", str(error)) from None
        ours, theirs = MemoryTransport.pair()
        self._serving = asyncio.get_running_loop().create_task(
            serve_async(self._target, transport=theirs, store=self._store)
        )
        return ours

    async def wait(self) -> None:
        await asyncio.wait([self._serving])

    async def close(self, grace: float = 5.0) -> None:
        await asyncio.wait([self._serving])

    def exit_details(self) -> ExitDetails:
        return ExitDetails()


def startable_command(command: str | Sequence[str]) -> str | Sequence[str]:
    """Return the command: `coupler serve` for what that takes, and Coupler also where it is not activated."""
    target = served_target(command)
    if target is not None:
        return [sys.executable, "-m", "coupler", "serve", target]
    try:
        program, *rest = split_command(command)
    except SpawnError:
        return command  # the start itself will say what is wrong
    if program == "coupler" and shutil.which(program) is None:
        return [sys.executable, "-m", "coupler", *rest]
    return command


def served_target(agent: str | Sequence[str]) -> str | None:
    """Return the target if an agent is given as `coupler serve` takes it: agent.py, app:agent, flow.yaml.

    A file is one of this directory, wherever the agent will run. One that can be executed, as ./agent.py, is
    a command.
    """
    if not isinstance(agent, str) or not agent.strip():
        return None
    # Imported on use: most agents are names or command lines.
    from coupler.agent.factory import is_file_target, split_target

    place, attribute = split_target(agent)
    suffix = PurePath(place).suffix
    if suffix in TARGET_SUFFIXES and os.path.isfile(place):  # noqa: PTH113
        is_command = not attribute and os.sep in place and os.access(place, os.X_OK)
        path = os.path.abspath(place)  # noqa: PTH100 - links stay as they are
        return None if is_command else f"{path}:{attribute}" if attribute else path
    is_module = bool(attribute) and all(part.isidentifier() for part in place.split("."))
    if not is_module or is_file_target(place) or attribute in ("acp", "native"):
        return None
    base = os.path.join(*place.split("."))  # noqa: PTH118
    is_there = os.path.isfile(f"{base}.py") or os.path.isdir(base)  # noqa: PTH112, PTH113
    return agent if is_there or _is_installed_module(place) else None


def _is_installed_module(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def default_startup_timeout(agent: str | Sequence[str] | Any) -> float:
    """Return the seconds that an agent may take to start: more if its command may download it first."""
    if not _is_command(agent):
        return STARTUP_TIMEOUT
    try:
        program = PurePath(split_command(agent)[0]).stem
    except SpawnError:
        return STARTUP_TIMEOUT  # the start itself will say what is wrong
    return INSTALLER_TIMEOUT if program in INSTALLERS else STARTUP_TIMEOUT


def _refuse_no_agent(agent: object) -> None:
    """Raise for what can be no agent at all, at the place of the mistake."""
    if isinstance(agent, str) and not agent.strip():
        raise ValueError("the agent is an empty text: give a command line, or a name of the catalogue")
    if _is_command(agent) and not agent:
        raise ValueError("the agent is an empty list: give the words of a command line")
    if agent is None or isinstance(agent, bool | int | float | bytes | set | dict):
        raise TypeError(
            "an agent is a command line, a list of its words, a name of the catalogue, a turn function or an "
            f"Agent; this is {agent!r}"
        )


def _is_command(agent: object) -> bool:
    return isinstance(agent, str) or (isinstance(agent, Sequence) and not isinstance(agent, bytes))


def _prompt_options(options: AskOptions) -> PromptOptions:
    """Check the limits before anything is started."""
    return PromptOptions(
        rounds=options.get("rounds", MOST_ROUNDS),
        budget=options.get("budget"),
        timeout=options.get("timeout"),
        grace=options.get("grace", GRACE),
    )


async def _answer(
    agent: Any, prompt: Any, output: Any, options: dict[str, Any], limits: PromptOptions
) -> Any:
    began = time.monotonic()
    left = limits.seconds_left()
    cwd = options.get("cwd", ".")
    connecting = {name: options.pop(name) for name in CONNECT_OPTIONS & options.keys()}
    prompting = {name: options.pop(name) for name in PROMPT_OPTIONS & options.keys()}
    remote = connect(agent, cwd="." if cwd == TEMPORARY else cwd, **connecting)
    if left is not None:
        remote.start_within(left)
    try:
        async with remote:
            session = await remote.new(**options, output=output)
            if limits.timeout is not None:
                prompting["timeout"] = max(limits.timeout - (time.monotonic() - began), 0.0)
            reply = await session.prompt(prompt, output=output, **prompting)
    except AgentError as error:
        raise _in_words_of_timeout(error, left, time.monotonic() - began) from None
    reply.raise_for_stop()
    return reply.text if output is None else reply.output


def _in_words_of_timeout(error: AgentError, left: float | None, elapsed: float) -> AgentError:
    """Report a start that was too late as the timeout that the caller gave."""
    is_late_start = error.kind in ("initialize", "session") and error.code is None
    if left is None or elapsed < left or not (error.kind == "deadline" or is_late_start):
        return error
    message = f"the agent was not done within {round(left, 1 if left >= 0.1 else 3):g} s"
    return AgentError("deadline", message, exit_code=error.exit_code, stderr=error.stderr, reply=error.reply)


def _waited_for(work: Coroutine[Any, Any, T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _in_a_thread(work)


def _in_a_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own thread, because the caller blocks this thread's loop."""
    done: Future[T] = Future()
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                done.set_result(runner.run(_result_of(task)))
            except BaseException as error:
                done.set_exception(error)

    thread = threading.Thread(target=run, name="coupler-ask")
    with _interruptible():
        thread.start()
        try:
            return done.result()
        except BaseException:
            if not done.done():
                loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            thread.join()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Restore Ctrl-C: `asyncio.run` sends it to the loop, which does not run while we wait."""
    before = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(before, "func", None), "__self__", None)
    if threading.current_thread() is not threading.main_thread() or not isinstance(runner, asyncio.Runner):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def _result_of(task: asyncio.Task[T]) -> T:
    return await task

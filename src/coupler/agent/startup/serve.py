"""Serves an agent over stdin and stdout until its client leaves: `serve` and `serve_async`.

EOF, SIGINT, SIGTERM and SIGHUP take one path: turns are cancelled, requests that were read get their
answers, and the process is gone within two seconds, whatever the agent's code does meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from coupler.agent.connection import AgentConnection
from coupler.agent.factory import ServeCall, capture_serve_call
from coupler.agent.startup.early_answer import EarlyAnswer, StartupCache, StartupRecord
from coupler.agent.startup.loading import TargetLoader, tune_gc
from coupler.agent.startup.serve_options import ServeOptions, drafts_option, store_option
from coupler.agent.startup.shutdown import (
    EXIT_DEADLINE,
    Watchdog,
    cancel_exit,
    close_loop,
    end_on_signals,
    exit_soon,
    has_input,
    hung_up,
    record_baseline,
    signals_restored,
    watch_for_hangup,
)
from coupler.redaction.log_filter import install_log_redaction
from coupler.runtime.logs import send_logs_to_stderr
from coupler.wire.frames import DEFAULT_LIMIT
from coupler.wire.pipe_transport import PipeTransport
from coupler.wire.stdio import StdioIsTerminal, take_over
from coupler.wire.transport import Transport

if TYPE_CHECKING:
    from coupler.agent.agent import Command
    from coupler.agent.session import Session

log = logging.getLogger("coupler.agent")

SHUTDOWN_TIMEOUT = 1.5
"""Seconds between the client's leaving and the end of the connection, at most, with the turns' grace."""

WATCHDOG_DELAY = 0.5
"""Seconds that the client may have been gone before the watchdog tells so."""

LOADING_TIMEOUT = 30.0
"""Seconds to wait for a target that is still being imported: who pipes a file in wants the answers."""

NO_EARLY_ANSWER = EarlyAnswer()


def serve(
    target: Any = None,
    *,
    factory: Callable[[Session], Any] | None = None,
    name: str | None = None,
    title: str | None = None,
    version: str | None = None,
    store: str | os.PathLike[str] | bool = True,
    drafts: str | Iterable[str] = (),
    text: bool | None = None,
    thoughts: bool | None = None,
    blocks: Callable[[dict[str, Any]], Any] | None = None,
    commands: Sequence[Command] | None = None,
    keep_cut_off: bool | None = None,
    frame_limit: int = DEFAULT_LIMIT,
) -> None:
    """Serve an agent over stdin and stdout until the client leaves.

    `target` is a function with one parameter `turn`, an `Agent` subclass or instance, a graph of LangGraph
    such as `create_agent` makes, or a string such as `"app.py:agent"`. `factory` instead is called with each
    new session and returns one of those. Name, title and version are what the client is told; without them
    the target's own are used. Sessions are kept in the user's own file, with `store` a path in another one,
    or with False nowhere. `drafts` names parts of the protocol that are not stable yet, such as "fork". Of a
    graph `text=False` and `thoughts=False` show nothing of what its models say or think, and `blocks` is
    called with every image, file or other block of theirs, to give what is shown instead: a content block,
    text, or None. `commands` are its slash commands, and with `keep_cut_off=False` its model is told nothing
    of a turn in whose middle the process was killed. A line of the client's that is longer than `frame_limit`
    bytes is dropped and answered with an error.
    """
    options = ServeOptions(
        name,
        title,
        version,
        store_option(store),
        drafts_option(drafts),
        text,
        thoughts,
        blocks,
        commands,
        keep_cut_off,
    )
    served = _served(target, factory, options)
    if capture_serve_call(served):
        return
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "serve() runs an event loop of its own, and there is one already: write `await serve_async(…)` "
            "with the same arguments, or call serve() outside of the coroutine"
        )
    try:
        read_fd, write_fd = take_over()
    except StdioIsTerminal as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    send_logs_to_stderr()
    memory = StartupCache(target, served.options, in_script=True) if isinstance(target, str) else None
    record_baseline(may_have_children=True)
    with signals_restored():
        record = memory.recall() if memory else None
        run(served, read_fd, write_fd, memory=memory, record=record, frame_limit=frame_limit)
    # The script goes on, for as long as it likes.
    cancel_exit()


async def serve_async(
    target: Any = None,
    *,
    factory: Callable[[Session], Any] | None = None,
    name: str | None = None,
    title: str | None = None,
    version: str | None = None,
    store: str | os.PathLike[str] | bool = True,
    drafts: str | Iterable[str] = (),
    text: bool | None = None,
    thoughts: bool | None = None,
    blocks: Callable[[dict[str, Any]], Any] | None = None,
    commands: Sequence[Command] | None = None,
    keep_cut_off: bool | None = None,
    frame_limit: int = DEFAULT_LIMIT,
    transport: Transport | None = None,
) -> None:
    """Like `serve`, inside a running event loop, and over any transport. Signals stay with the caller."""
    options = ServeOptions(
        name,
        title,
        version,
        store_option(store),
        drafts_option(drafts),
        text,
        thoughts,
        blocks,
        commands,
        keep_cut_off,
    )
    served = _served(target, factory, options)
    loading = TargetLoader(served)
    if transport is None:
        transport = PipeTransport(*take_over())
    connection = AgentConnection(
        transport,
        loading.introduction,
        loading.factory,
        frame_limit=frame_limit,
        backend=loading.backend,
        backend_initialized=loading.backend_initialized,
    )
    connection.open()
    try:
        await connection.ended.wait()
    finally:
        await connection.finish(SHUTDOWN_TIMEOUT)


def _served(target: Any, factory: Callable[[Session], Any] | None, options: ServeOptions) -> ServeCall:
    if target is not None and factory is not None:
        raise TypeError("serve takes a target or a factory, not both")
    return ServeCall(target, factory, options)


def run(
    served: ServeCall,
    read_fd: int,
    write_fd: int,
    *,
    memory: StartupCache | None = None,
    record: StartupRecord | None = None,
    early: EarlyAnswer = NO_EARLY_ANSWER,
    frame_limit: int = DEFAULT_LIMIT,
) -> None:
    """Serve over two descriptors until the client leaves or a signal comes, and leave nothing running."""
    install_log_redaction()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    serving = loop.create_task(_serve(served, read_fd, write_fd, memory, record, early, frame_limit))
    while not serving.done():
        try:
            loop.run_until_complete(serving)
        except (SystemExit, KeyboardInterrupt) as error:
            # A task that agent code started may exit; that stops the loop, but need not end the connection.
            log.error("the agent's code wanted to exit", exc_info=error)
    serving.result()
    close_loop(loop)


async def _serve(
    served: ServeCall,
    read_fd: int,
    write_fd: int,
    memory: StartupCache | None,
    record: StartupRecord | None,
    early: EarlyAnswer,
    frame_limit: int,
) -> None:
    def watch(loading: TargetLoader) -> AbstractContextManager[None]:
        return watch_for_hangup(
            read_fd,
            lambda: _exit_while_loading(
                is_answer_wanted=loading.is_awaited or has_input(read_fd), write_fd=write_fd
            ),
        )

    ended = asyncio.Event()
    # Before the target is imported, which may take long, and after it: the target may have set its own.
    end_on_signals(ended)
    loading = TargetLoader(served, memory, record, watch)
    connection = AgentConnection(
        PipeTransport(read_fd, write_fd, already_read=early.already_read),
        loading.introduction,
        loading.factory,
        already_answered=early.answered,
        ended=ended,
        frame_limit=frame_limit,
        backend=loading.backend,
        backend_initialized=loading.backend_initialized,
        answer_cache=loading,
    )
    connection.when_prompted = Watchdog(connection.is_busy, read_fd, _exit_without_client).wake
    end_on_signals(ended)
    connection.open()
    imports = asyncio.create_task(_load_after_initialize(connection, loading))
    await connection.ended.wait()
    if not loading.is_done:
        # The import may block the loop, and with it the patience below.
        exit_soon(LOADING_TIMEOUT + EXIT_DEADLINE)
        await connection.finish(LOADING_TIMEOUT)
    else:
        exit_soon()
        await connection.finish(SHUTDOWN_TIMEOUT)
    imports.cancel()


async def _load_after_initialize(connection: AgentConnection, loading: TargetLoader) -> None:
    await connection.initialized.wait()
    await loading.run()
    tune_gc()


def _exit_without_client() -> None:
    exit_soon(EXIT_DEADLINE - WATCHDOG_DELAY)


def _exit_while_loading(*, is_answer_wanted: bool, write_fd: int) -> None:
    exit_soon(LOADING_TIMEOUT if is_answer_wanted and not hung_up(write_fd) else WATCHDOG_DELAY)

"""`ask`: one question to one agent, for scripts. It waits, in a program with an event loop or without one."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from os import PathLike
from typing import Any, TypeVar, Unpack, overload

from coupler.client.budget import Budget
from coupler.client.elicitation import OnForm, OnUrl
from coupler.client.errors import AgentError
from coupler.client.files import FileAccess
from coupler.client.observation import OnEvent
from coupler.client.opening import TEMPORARY, SessionOptions
from coupler.client.quirks import Quirks
from coupler.client.terms import GRACE, MOST_ROUNDS, Check, Terms
from coupler.coupling import connect
from coupler.runtime.environment import Environment
from coupler.schema.v1 import ContentBlock

T = TypeVar("T")


class AskOptions(SessionOptions, total=False):
    """What `ask` takes: all that `agent.new`, `connect` and `session.prompt` do."""

    env: Environment | Mapping[str, str | None]
    startup_timeout: float
    frame_limit: int
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
    """Of all of it, also of the start."""
    grace: float
    repairs: int


OF_PROMPT = frozenset({"until", "rounds", "budget", "timeout", "grace", "repairs"})
OF_CONNECT = frozenset(AskOptions.__annotations__) - frozenset(SessionOptions.__annotations__) - OF_PROMPT


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

    Whatever is not an answer is an `AgentError`: a refusal, a limit and a cancel, too. Ctrl-C cancels the
    turn and ends the agent.
    """
    _refuse_unknown(options)
    terms = _terms(options)
    terms.refuse_if_over()
    return _waited_for(_answer(agent, prompt, output, {**options}, terms))


def _terms(options: AskOptions) -> Terms:
    """The bounds of all of it. Looked at before anything is started."""
    return Terms(
        rounds=options.get("rounds", MOST_ROUNDS),
        budget=options.get("budget"),
        timeout=options.get("timeout"),
        grace=options.get("grace", GRACE),
    )


async def _answer(agent: Any, prompt: Any, output: Any, options: dict[str, Any], terms: Terms) -> Any:
    began = time.monotonic()
    left = terms.seconds_left()
    cwd = options.get("cwd", ".")
    connecting = {name: options.pop(name) for name in OF_CONNECT & options.keys()}
    prompting = {name: options.pop(name) for name in OF_PROMPT & options.keys()}
    remote = connect(agent, cwd="." if cwd == TEMPORARY else cwd, **connecting)
    if left is not None:
        remote.start_within(left)
    try:
        async with remote:
            session = await remote.new(**options, output=output)
            if terms.timeout is not None:
                prompting["timeout"] = max(terms.timeout - (time.monotonic() - began), 0.0)
            reply = await session.prompt(prompt, output=output, **prompting)
    except AgentError as error:
        raise _in_words_of_timeout(error, left, time.monotonic() - began) from None
    reply.raise_for_stop()
    return reply.text if output is None else reply.output


def _in_words_of_timeout(error: AgentError, left: float | None, elapsed: float) -> AgentError:
    """An agent that had no more time to start is late; and who asked knows of the whole timeout alone."""
    is_late_start = error.kind in ("initialize", "session") and error.code is None
    if left is None or elapsed < left or not (error.kind == "deadline" or is_late_start):
        return error
    message = f"the agent was not done within {round(left, 1 if left >= 0.1 else 3):g} s"
    return AgentError("deadline", message, exit_code=error.exit_code, stderr=error.stderr, reply=error.reply)


def _refuse_unknown(options: AskOptions) -> None:
    unknown = sorted(options.keys() - AskOptions.__annotations__.keys())
    if unknown:
        taken = ", ".join(sorted(AskOptions.__annotations__))
        raise TypeError(f"ask() takes no {', '.join(unknown)}; besides `output` it takes {taken}")


def _waited_for(work: Coroutine[Any, Any, T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _in_a_thread(work)


def _in_a_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a loop of its own, because the one of this thread is the caller's and stands still."""
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
    """Let Ctrl-C be heard: under `asyncio.run` it goes to the loop, which hears nothing while we wait."""
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

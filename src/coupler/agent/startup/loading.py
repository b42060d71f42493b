"""Loads the target of `serve` while its client is already served.

From the second start on, `initialize` is answered from a record at once, and `session/new` with what it
answered the last time; the target is imported afterwards. The modules of installed packages are imported by a
thread while the loop goes on serving. The target's own module runs on the main thread afterwards: user code
expects signals, event loops and databases there.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

import coupler
from coupler.agent.agent import Agent
from coupler.agent.capabilities import initialize_response
from coupler.agent.errors import TARGET_FAILED, describe_making
from coupler.agent.factory import AgentFactory, Backend, ServeCall, TargetError, load_target, make_factory
from coupler.agent.session import BOOLEAN_OPTIONS
from coupler.agent.startup.early_answer import StartupCache, StartupRecord, is_installed
from coupler.redaction.known_secrets import environment_masker
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.terminal_text import clean
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.v1 import InitializeResponse, NewSessionResponse
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.session import Session

log = logging.getLogger("coupler.agent")

InitializeResult = InitializeResponse | Raw

NEEDED_BY_SESSIONS = (
    "coupler.agent.archive",
    "coupler.store.store",
    "coupler.store.sessions",
    "coupler.config",
)

HEAD_START = 0.1
"""Seconds that a client has to ask for its first session before the imports begin."""

SWITCH_INTERVAL = 0.0005
"""Seconds after which the thread that imports lets the loop go on."""

_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")
_NOT_THE_TARGET = ("<frozen", os.path.join(*coupler.__path__, ""), os.path.join(_LIBRARY, "importlib", ""))
"""Beginnings of the names of files that are no part of a target."""

_switching: list[float] = []
"""Switch intervals from before each of the imports that run now; the first is the process's own."""

GC_THRESHOLD = 10_000
"""New objects before a collection of the youngest generation; Python's own threshold is 700 or 2,000."""

GC_GROWTH = 0.4
"""`GC_THRESHOLD` as a share of the frozen objects: a heavy target creates more objects, too."""


class TargetLoader:
    """Provides the answer to `initialize` at once, and the factory when the target is imported."""

    def __init__(
        self,
        served: ServeCall,
        cache: StartupCache | None = None,
        record: StartupRecord | None = None,
        while_importing: Callable[[TargetLoader], AbstractContextManager[None]] = lambda _: (
            contextlib.nullcontext()
        ),
    ) -> None:
        self._served = served
        self._cache = cache
        self._record = record
        self._while_importing = while_importing
        self._outcome: AgentFactory | RpcError | None = None
        self._done = asyncio.Event()
        self._wanted = asyncio.Event()
        self._waiting = 0
        self._has_stored_answer = False
        if not isinstance(served.target, str):
            self._outcome = make_factory(served)
            self._remember("the target", self._outcome, [])
            self._done.set()
        elif record is None:
            self._load(served.target)
        self.introduction = self._initialize_result()

    @property
    def is_done(self) -> bool:
        """True if the target was imported, or its import has failed."""
        return self._outcome is not None

    @property
    def backend(self) -> Backend | None:
        """The backend, if one has to be started before it is known what the target is."""
        return self._outcome.backend if isinstance(self._outcome, AgentFactory) else None

    def backend_initialized(self, introduction: InitializeResponse) -> None:
        """Store the answer to `initialize` of a backend, for the next start."""
        if self._cache is None:
            return
        text = msgspec.json.encode(introduction).decode()
        if self._record is None or self._record.introduction != text:
            self._cache.remember(text, [])
        if self._record is not None and self._record.introduction != text:
            log.warning("the agent introduces itself differently than before: restart it to use that")

    @property
    def cached_answer(self) -> CachedSessionAnswer | None:
        """The last answer to `session/new`, while the target is not imported yet."""
        return (
            None
            if self._record is None or self.is_done
            else CachedSessionAnswer.from_record(self._record.forecast)
        )

    def store_answer(self, factory: AgentFactory, session: Session) -> None:
        """Store what a new session was told, for the next start."""
        if self._cache is not None and not self._has_stored_answer:
            self._has_stored_answer = True
            answer = CachedSessionAnswer.of(factory, session)
            self._cache.store_session_answer(None if answer is None else msgspec.to_builtins(answer))

    @property
    def is_awaited(self) -> bool:
        """True if a request waits for the import of the target."""
        return self._waiting > 0

    async def factory(self) -> AgentFactory:
        """Wait for the loaded target's factory; raises the error to answer with if it could not be loaded."""
        self._wanted.set()
        self._waiting += 1
        try:
            await self._done.wait()
        finally:
            self._waiting -= 1
        if isinstance(self._outcome, AgentFactory):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    async def run(self) -> None:
        """Import what an earlier start's record allowed to leave for later."""
        if self._record is not None and not self.is_done:
            if self.cached_answer is not None:
                await self._give_head_start()
            await import_in_thread(self._record.packages)
            self._load(self._served.target)

    async def _give_head_start(self) -> None:
        """Import what the first session needs, and wait a little for its client to ask for it."""
        for name in NEEDED_BY_SESSIONS:
            importlib.import_module(name)
        # As soon as the session is answered, its agent is wanted. Imports meanwhile would double its time.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEAD_START):
                await self._wanted.wait()

    def _initialize_result(self) -> InitializeResult:
        if self._record is not None:
            return Raw(self._record.introduction.encode())
        if isinstance(self._outcome, AgentFactory):
            return self._outcome.introduction
        return initialize_response(Agent, self._served.options)

    def _load(self, words: str) -> None:
        before = {*sys.modules}
        try:
            with self._while_importing(self), _no_running_loop():
                factory = load_target(words, self._served.options)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # On stderr whatever the log settings are: this is what an editor's log shows the author.
            sys.stderr.write(environment_masker().mask(clean(_told(error))))
            self._outcome = _failure(words, error)
        else:
            self._outcome = factory
            self._remember(words, factory, [name for name in [*sys.modules] if name not in before])
        self._done.set()

    def _remember(self, words: str, factory: AgentFactory, imported: list[str]) -> None:
        text = msgspec.json.encode(factory.introduction).decode()
        if self._cache is None or factory.backend is not None:
            return
        if self._record is None:
            self._cache.remember(text, imported)
        elif self._record.introduction != text:
            self._cache.forget()
            log.warning("%s introduces itself differently than before: restart it to use that", words)


class SessionAnswerCache(Protocol):
    """Caches the last answer to `session/new` of a target for the next start."""

    @property
    def cached_answer(self) -> CachedSessionAnswer | None:
        """The last answer; None if there is none, or if the target is loaded."""
        ...

    def store_answer(self, factory: AgentFactory, session: Session) -> None:
        """Store what a new session was told, for the next start."""
        ...


class CachedSessionAnswer(msgspec.Struct, frozen=True):
    """The last answer to `session/new`, so that the next start can answer before the import ends.

    A heavy target takes seconds to import, and an editor shows nothing before its session is there. So a new
    session is answered at once with what the last one was told. Its agent comes when the target is imported,
    and whatever the client asks about the session meanwhile waits for it. The record that has the answer
    holds for one target.
    """

    identity: str
    store: str | None
    told: str
    """The answer that a session began with, as JSON; its id is left empty."""
    booleans: bool
    """True if the client that got it supports boolean options."""

    @classmethod
    def of(cls, factory: AgentFactory, session: Session) -> CachedSessionAnswer | None:
        """Make it from a new session; None if the next one may have to be refused."""
        if factory.introduction.auth_methods or factory.backend is not None:
            return None
        told = NewSessionResponse("", session.settings.as_modes(), session.settings.as_options())
        booleans = session.editor.offers(BOOLEAN_OPTIONS)
        return cls(factory.identity, factory.store, msgspec.json.encode(told).decode(), booleans)

    @classmethod
    def from_record(cls, kept: Any) -> CachedSessionAnswer | None:
        """Read it from a record; None if there is none, or somebody has edited it."""
        try:
            cached = msgspec.convert(kept, cls)
            cached.answer("")
        except (msgspec.ValidationError, DecodingError):
            return None
        return cached

    def answer(self, session_id: str) -> NewSessionResponse:
        """Return the answer with the id of a new session."""
        told = decode(NewSessionResponse, self.told.encode(), "client")
        return msgspec.structs.replace(told, session_id=session_id)


@contextlib.contextmanager
def _no_running_loop() -> Iterator[None]:
    """Let a module call `asyncio.run` while it is imported, as it may under `python module.py`."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


async def import_in_thread(modules: Sequence[str]) -> None:
    """Import modules in a thread while the loop runs; errors are left to the target's own import."""
    missing = [name for name in modules if not _is_imported(name)]
    if not missing:
        return
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        for name in missing:
            # The target's own import will say what is wrong with a package, in its own words.
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="coupler-imports", daemon=True).start()
    with _switching_often(), gc_paused():
        await done.wait()


def _is_imported(name: str) -> bool:
    """Return whether a module is imported completely: one that another thread imports would be waited for."""
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    """Switch threads more often: an import does not release the GIL by itself, and the loop must not wait."""
    _switching.append(sys.getswitchinterval())
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        usual = _switching[0]
        _switching.pop()
        if not _switching:
            sys.setswitchinterval(usual)


def _told(error: BaseException) -> str:
    """Describe an error: a sentence for a wrong command line, the traceback for an error in code."""
    if isinstance(error, MissingExtraError | TargetError) and error.__cause__ is None:
        return f"coupler serve: {error}\n"
    return "".join(traceback.format_exception(error))


def _failure(words: str, error: BaseException) -> RpcError:
    if isinstance(error, MissingExtraError | TargetError):
        return RpcError.because(TARGET_FAILED, str(error))
    return RpcError.because(TARGET_FAILED, f"could not load {words}: {describe_making(error)}{_place(error)}")


def _place(error: BaseException) -> str:
    """Return file and line where the author's code raised, or what it called."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(_NOT_THE_TARGET)]
    not_standard = [each for each in own if not each.filename.startswith(_LIBRARY)]
    written = [each for each in not_standard if not is_installed(each.filename)]
    at = (written or own)[-1:]
    return f" ({at[0].filename}, line {at[0].lineno})" if at else ""


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Collect no garbage during an import: what is imported stays."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def tune_gc() -> None:
    """Freeze the objects that are there, and let the collector run less often.

    Python looks through all objects for cycles again and again. A heavy target has imported hundreds of
    thousands that will never be garbage, and what a model streams makes new ones that live until its answer
    is complete: a good part of the time of a turn would go into collections, and each of them holds up all
    sessions.
    """
    new, *older = gc.get_threshold()
    # Who has turned it off, or has set a higher threshold, knows why.
    if gc.isenabled() and 0 < new < GC_THRESHOLD:
        gc.freeze()
        gc.set_threshold(max(GC_THRESHOLD, int(GC_GROWTH * gc.get_freeze_count())), *older)

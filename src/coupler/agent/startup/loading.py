"""A target on its way: what it says of itself is known at once, the target itself when it is imported.

The modules of installed packages are imported by a thread while the loop goes on serving. The target's own
module runs on the main thread afterwards: user code expects signals, event loops and databases there.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os.path
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

from coupler.agent.agent import Agent
from coupler.agent.capabilities import introduce
from coupler.agent.errors import TARGET_FAILED, describe
from coupler.agent.factory import Backing, Blueprint, Served, TargetError, blueprint_of, load
from coupler.agent.session import BOOLEANS
from coupler.agent.startup.early_answer import Memory, Record
from coupler.redaction.known_secrets import environment_masker
from coupler.runtime.extras import MissingExtraError
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.v1 import InitializeResponse, NewSessionResponse
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.session import Session


log = logging.getLogger("coupler.agent")

Introduction = InitializeResponse | Raw

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

_NOT_THE_TARGET = ("<frozen", os.path.dirname(os.path.dirname(__file__)), os.path.dirname(importlib.__file__))


class Loading:
    """Gives the introduction now and the blueprint as soon as there is one."""

    def __init__(
        self,
        served: Served,
        memory: Memory | None = None,
        record: Record | None = None,
        while_importing: Callable[[Loading], AbstractContextManager[None]] = lambda _: (
            contextlib.nullcontext()
        ),
    ) -> None:
        self._served = served
        self._memory = memory
        self._record = record
        self._while_importing = while_importing
        self._outcome: Blueprint | RpcError | None = None
        self._done = asyncio.Event()
        self._wanted = asyncio.Event()
        self._waiting = 0
        self._has_foreseen = False
        if not isinstance(served.target, str):
            self._outcome = blueprint_of(served)
            self._remember("the target", self._outcome, [])
            self._done.set()
        elif record is None:
            self._load(served.target)
        self.introduction = self._introduce()

    @property
    def is_done(self) -> bool:
        """Whether the target was imported, or has failed to be."""
        return self._outcome is not None

    @property
    def backing(self) -> Backing | None:
        """What is behind the target, if that has to be started before it is known what it is."""
        return self._outcome.backing if isinstance(self._outcome, Blueprint) else None

    def introduced(self, introduction: InitializeResponse) -> None:
        """What is behind the target has said what it is: the next start knows it beforehand."""
        if self._memory is None:
            return
        text = msgspec.json.encode(introduction).decode()
        if self._record is None or self._record.introduction != text:
            self._memory.remember(text, [])
        if self._record is not None and self._record.introduction != text:
            log.warning("the agent introduces itself differently than before: restart it to use that")

    @property
    def forecast(self) -> Forecast | None:
        """What new sessions will be told, if that is known before the target is there."""
        return None if self._record is None or self.is_done else Forecast.recalled(self._record.forecast)

    def foresee(self, blueprint: Blueprint, session: Session) -> None:
        """A session was made: the next start knows what new ones are told."""
        if self._memory is not None and not self._has_foreseen:
            self._has_foreseen = True
            forecast = Forecast.of(blueprint, session)
            self._memory.foresee(None if forecast is None else msgspec.to_builtins(forecast))

    @property
    def is_awaited(self) -> bool:
        """Whether a request cannot be answered before the target was imported."""
        return self._waiting > 0

    async def blueprint(self) -> Blueprint:
        """The loaded target; raises what is to be answered if it could not be loaded."""
        self._wanted.set()
        self._waiting += 1
        try:
            await self._done.wait()
        finally:
            self._waiting -= 1
        if isinstance(self._outcome, Blueprint):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    async def run(self) -> None:
        """Import what an earlier start's record allowed to leave for later."""
        if self._record is not None and not self.is_done:
            if self.forecast is not None:
                await self._give_head_start()
            await import_in_thread(self._record.packages)
            self._load(self._served.target)

    async def _give_head_start(self) -> None:
        """Have what the first session needs: it does not wait for the target, and is done before it."""
        for name in NEEDED_BY_SESSIONS:
            importlib.import_module(name)
        # As soon as the session is answered, its agent is wanted. Imports meanwhile would double its time.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEAD_START):
                await self._wanted.wait()

    def _introduce(self) -> Introduction:
        if self._record is not None:
            return Raw(self._record.introduction.encode())
        if isinstance(self._outcome, Blueprint):
            return self._outcome.introduction
        return introduce(Agent, self._served.options)

    def _load(self, words: str) -> None:
        before = {*sys.modules}
        try:
            with self._while_importing(self), _no_running_loop():
                blueprint = load(words, self._served.options)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # On stderr whatever the log settings are: this is what an editor's log shows the author.
            sys.stderr.write(environment_masker().mask(_told(error)))
            self._outcome = _failure(words, error)
        else:
            self._outcome = blueprint
            self._remember(words, blueprint, [name for name in [*sys.modules] if name not in before])
        self._done.set()

    def _remember(self, words: str, blueprint: Blueprint, imported: list[str]) -> None:
        text = msgspec.json.encode(blueprint.introduction).decode()
        if self._memory is None or blueprint.backing is not None:
            return
        if self._record is None:
            self._memory.remember(text, imported)
        elif self._record.introduction != text:
            self._memory.forget()
            log.warning("%s introduces itself differently than before: restart it to use that", words)


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
    """Import these while the loop goes on; who imports one afterwards hears what is wrong with it."""
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
    with _switching_often(), kept_while_importing():
        await done.wait()


def _is_imported(name: str) -> bool:
    """Whether a module is there whole: one that another thread is importing would be waited for."""
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


_switching: list[float] = []
"""The usual intervals that were changed by imports which run now; the first one is the process's own."""


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    """The loop has little to do and must not wait for it: a thread that imports never lets go by itself."""
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
    """A sentence for what is wrong with the command line; what is wrong in code needs its place."""
    if isinstance(error, MissingExtraError | TargetError) and error.__cause__ is None:
        return f"coupler serve: {error}\n"
    return "".join(traceback.format_exception(error))


def _failure(words: str, error: BaseException) -> RpcError:
    if isinstance(error, MissingExtraError | TargetError):
        return RpcError.because(TARGET_FAILED, str(error))
    return RpcError.because(TARGET_FAILED, f"could not load {words}: {describe(error)}{_place(error)}")


def _place(error: BaseException) -> str:
    """Where the target's code raised, leaving out what only led there."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_NOT_THE_TARGET):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""


# What the next new session of a target will be told, as an earlier start knew it.
#
# A heavy target takes seconds to import, and an editor shows nothing before its session is there. So a new
# session is answered at once with what the last one was told. Its agent comes when the target is imported,
# and whatever the client asks about the session meanwhile waits for it.


class Foresight(Protocol):
    """Knows more of a target's sessions than there is of the target."""

    @property
    def forecast(self) -> Forecast | None:
        """What new sessions will be told; None if it is not known, or if the target is there."""
        ...

    def foresee(self, blueprint: Blueprint, session: Session) -> None:
        """A session was made: learn of it for the next start."""
        ...


class Forecast(msgspec.Struct, frozen=True):
    """Holds for one target; the record that has it sees to that."""

    identity: str
    store: str | None
    told: str
    """The answer that a session began with, as JSON; its id is left empty."""
    booleans: bool
    """Whether that was told to a client that knows boolean options."""

    @classmethod
    def of(cls, blueprint: Blueprint, session: Session) -> Forecast | None:
        """What a session that was just made says of the next; None if that one may have to be refused."""
        if blueprint.introduction.auth_methods or blueprint.backing is not None:
            return None
        told = NewSessionResponse("", session.settings.as_modes(), session.settings.as_options())
        booleans = session.editor.offers(BOOLEANS)
        return cls(blueprint.identity, blueprint.store, msgspec.json.encode(told).decode(), booleans)

    @classmethod
    def recalled(cls, kept: Any) -> Forecast | None:
        """What a record has of it; None if somebody has edited that, or there is none."""
        try:
            forecast = msgspec.convert(kept, cls)
            forecast.answer("")
        except (msgspec.ValidationError, DecodingError):
            return None
        return forecast

    def answer(self, session_id: str) -> NewSessionResponse:
        """What a new session is told."""
        told = decode(NewSessionResponse, self.told.encode(), "client")
        return msgspec.structs.replace(told, session_id=session_id)


# Garbage that refers to itself, looked for where it can be, and less often.
#
# Python looks through all objects for it again and again. A heavy target has imported hundreds of thousands
# of them that will never be garbage, and what a model streams makes new ones that live until its answer is
# complete: a good part of the time of a turn would go into looking, and every look holds up all sessions.


NEW_OBJECTS = 10_000
"""How many objects more there are before it is looked among the new ones; Python's own are 700 or 2,000."""

GROWTH = 0.4
"""The same as a share of the objects that are there: a heavy target's answers have more of them, too."""


@contextlib.contextmanager
def kept_while_importing() -> Iterator[None]:
    """Look for none meanwhile: what is imported stays."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def look_less_often() -> None:
    """Leave alone what is there now, and look for garbage among many new objects, not among few."""
    new, *older = gc.get_threshold()
    # Who has turned it off, or looks even less often, knows why.
    if gc.isenabled() and 0 < new < NEW_OBJECTS:
        gc.freeze()
        gc.set_threshold(max(NEW_OBJECTS, int(GROWTH * gc.get_freeze_count())), *older)

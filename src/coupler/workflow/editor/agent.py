"""The agent of a session that has workflows: each is a slash command, and a prompt runs one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

from coupler.agent.agent import Agent
from coupler.agent.command import Command, Invocation, invoked
from coupler.agent.serve_options import NO_STORE
from coupler.config.errors import ConfigError
from coupler.extras import MissingExtraError
from coupler.schema.v1 import StopReason, TextContent
from coupler.store.errors import StoreError
from coupler.thread import in_thread
from coupler.workflow.editor.shelf import ABORT, RESUME, RUNS, Shelf, look_at, state_of
from coupler.workflow.editor.unfinished_run import UnfinishedRun
from coupler.workflow.errors import RunError, WorkflowError

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.store.store import Store
    from coupler.workflow.language.bundle import Bundle

log = logging.getLogger("coupler.workflow")

INTERVAL = 1.0
"""Seconds between two looks at the files."""

FIRST_LOOK = 0.5
"""Seconds that a new session waits for its commands, so that they come with it."""

WHILE_WAITING = (Command(ABORT, "End the run that waits for you"),)
AFTERWARDS = (
    Command(RESUME, "Go on with a run that was interrupted or has failed", hint="[run]"),
    Command(RUNS, "Show the runs of this directory"),
)
"""What is offered besides the workflows, while a run waits and when one can go on."""


class WorkflowAgent(Agent):
    """Of one session. With a `file` every prompt runs the workflow in it; else its command says which one."""

    def __init__(self, file: str | None, store_path: str | None) -> None:
        self._file = file
        self._store_path = store_path
        self._store: Store | None = None
        self._shelf = Shelf()
        self._is_known = asyncio.Event()
        self._news: list[str] = []
        self._told: set[str] = set()
        self._watching: asyncio.Task[None] | None = None

    async def opened(self, session: Session) -> None:
        if self._file is not None:
            self._is_known.set()
            self._offer(session)
            return
        self._watching = asyncio.create_task(self._watch(session))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK):
                await self._is_known.wait()

    async def closed(self, session: Session) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._store is not None:
            self._store.close()

    async def prompt(self, turn: Turn) -> StopReason:
        await self._is_known.wait()
        await self._tell_news(turn)
        try:
            return await self._answer(turn)
        except (WorkflowError, ConfigError, StoreError, MissingExtraError) as error:
            await turn.say_apart(str(error))
            return "refusal"
        finally:
            self._offer(turn.session)

    async def _answer(self, turn: Turn) -> StopReason:
        typed = typed_command(turn)
        unfinished = UnfinishedRun.of(turn.session.state)
        if unfinished is not None and unfinished.place is not None:
            return await self._reply(turn, unfinished, typed)
        if typed is not None and (self._file is None or unfinished is not None):
            if typed.name == RESUME:
                return await self._resume(turn, typed.arguments.strip(), unfinished)
            if typed.name == RUNS:
                return await self._show_runs(turn)
        if self._file is not None:
            return await self._start(turn, self._file, turn.text)
        if typed is not None:
            return await self._start(turn, typed.name, typed.arguments)
        from coupler.workflow.editor.wording import listed

        await turn.say_apart(listed(self._shelf.commands))
        return "end_turn"

    async def _start(self, turn: Turn, given: str, typed: str) -> StopReason:
        # Imported on use, here and below: a session is there before its first run.
        from coupler.workflow.editor.choice import inputs_in
        from coupler.workflow.editor.course import Course

        bundle = await self._read(turn, given)
        command = "" if self._file is not None else f"/{given}"
        inputs = await inputs_in(turn, typed, bundle.main, command)
        return await Course(turn, self._opened_store(), bundle, given).begin(inputs)

    async def _reply(self, turn: Turn, waiting: UnfinishedRun, typed: Invocation | None) -> StopReason:
        """What is written while a run waits is for that run."""
        from coupler.workflow.editor.choice import RefusedError
        from coupler.workflow.editor.course import Course
        from coupler.workflow.editor.front import Reply
        from coupler.workflow.editor.wording import waits_first

        place = waiting.place or ""
        if typed is not None and typed.name == ABORT:
            return await self._abort(turn, waiting)
        if typed is not None and typed.name in {RESUME, RUNS, *self._shelf.names}:
            raise RefusedError(waits_first(waiting.run, place))
        bundle = await self._read(turn, waiting.given)
        course = Course(turn, self._opened_store(), bundle, waiting.given, Reply(place, turn.text))
        try:
            return await course.go_on(waiting.run)
        except RunError as error:
            raise RefusedError(f"{error}\n\n`/{ABORT}` ends the run.") from None

    async def _abort(self, turn: Turn, waiting: UnfinishedRun) -> StopReason:
        from coupler.workflow.journal.runs import end_unheld

        turn.session.state = None
        runs = self._opened_store().runs.blocking
        is_ended = await in_thread(lambda: end_unheld(runs, waiting.run))
        how = "is ended" if is_ended else "was not waiting any more"
        await turn.say_apart(f"The run `{waiting.run}` {how}.")
        return "end_turn"

    async def _resume(self, turn: Turn, id: str, unfinished: UnfinishedRun | None) -> StopReason:
        from coupler.workflow.editor.choice import RefusedError, name_of
        from coupler.workflow.editor.course import Course
        from coupler.workflow.journal.runs import find_run

        store = self._opened_store()
        if unfinished is not None and id in ("", unfinished.run):
            run, given = unfinished.run, unfinished.given
        elif not id:
            raise RefusedError(f"No run of this session was interrupted; `/{RUNS}` shows those there are.")
        else:
            record = await find_run(store, id)
            run = record.id
            given = await in_thread(lambda: name_of(record, turn.session.cwd, self._file))
        bundle = await self._read(turn, given)
        return await Course(turn, store, bundle, given).go_on(run)

    async def _show_runs(self, turn: Turn) -> StopReason:
        from coupler.workflow.editor.wording import told_runs

        records = await in_thread(self._opened_store().runs.blocking.find_all)
        here = [record for record in records if record.cwd == turn.session.cwd]
        await turn.say_apart(told_runs(here))
        return "end_turn"

    async def _read(self, turn: Turn, given: str) -> Bundle:
        """The workflow and all that it calls, if it is valid and may run."""
        from coupler.workflow.editor.choice import bundle_of

        directory, commands = turn.session.cwd, self._shelf.commands
        return await in_thread(lambda: bundle_of(given, directory, self._file, commands))

    def _opened_store(self) -> Store:
        """Where the runs are kept: with the sessions, or in memory if those are kept nowhere."""
        if self._store is None:
            from coupler.config import keys, load
            from coupler.store.store import Store

            config = load(None, environ=os.environ)
            kept = ":memory:" if self._store_path == NO_STORE else self._store_path or config[keys.STORE]
            self._store = Store.open(kept, config[keys.SYNCHRONOUS])
        return self._store

    async def _watch(self, session: Session) -> None:
        state = None
        while True:
            try:
                found = await in_thread(lambda: state_of(session.cwd))
                if found != state:
                    state = found
                    self._put_up(session, await in_thread(lambda: look_at(session.cwd)))
            except Exception:
                log.exception("the workflows of a session could not be looked at")
            self._is_known.set()
            await asyncio.sleep(INTERVAL)

    def _put_up(self, session: Session, shelf: Shelf) -> None:
        self._shelf = shelf
        self._news += [note for note in shelf.notes if note not in self._told]
        self._told.update(shelf.notes)
        self._offer(session)

    def _offer(self, session: Session) -> None:
        """Tell the client which commands there are, if that has changed."""
        unfinished = UnfinishedRun.of(session.state)
        more = () if unfinished is None else AFTERWARDS if unfinished.place is None else WHILE_WAITING
        commands = (*self._shelf.commands, *more)
        known = [command.as_available() for command in session.commands]
        if [command.as_available() for command in commands] != known:
            session.set_commands(commands)

    async def _tell_news(self, turn: Turn) -> None:
        news, self._news = self._news, []
        for note in news:
            title, _, description = note.partition("\n")
            await turn.notice(title, description or None, severity="warning")


def typed_command(turn: Turn) -> Invocation | None:
    """The slash command that a prompt is by its form, whether there is such a workflow or not."""
    texts = (block.text.lstrip() for block in turn.blocks if isinstance(block, TextContent))
    first = next((text for text in texts if text), "")
    name = first.split(maxsplit=1)[0][1:] if first.startswith("/") else ""
    if not name or name.startswith("/"):
        return None
    return invoked((Command(name, name),), turn.blocks)

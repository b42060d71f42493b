"""The agent of a session that has workflows: each is a slash command, and a prompt runs one."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coupler.agent.agent import Agent, Command
from coupler.agent.startup.serve_options import NO_STORE
from coupler.config.lookup import ConfigError
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import StopReason
from coupler.store.errors import StoreError
from coupler.workflow.editor.arguments import Typed, TypedCommand, command_in
from coupler.workflow.editor.commands import Lookout, Shelf, Shelved, read_alone
from coupler.workflow.editor.run_turns import UnfinishedRun, remember
from coupler.workflow.errors import ChangedError, RunError, WorkflowError
from coupler.workflow.language.library import ABORT, DONE, RESERVED, RESUME, RUNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.schema.v1 import ContentBlock
    from coupler.store.runs import RunRecord
    from coupler.store.store import Store
    from coupler.workflow.editor.dialogs import Reply
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Json, Workflow


GO_ON = Command(RESUME, "Go on with a run that was interrupted or has failed", hint="[run]")
GIVE_AGAIN = Command(RESUME, "Give the run that waits its secret inputs again", hint="name=value")
WHILE_WAITING = (
    Command(DONE, "Leave the conversation with the agent, or answer with the default"),
    Command(ABORT, "End the run that waits for you"),
)
AFTERWARDS = (GO_ON, Command(RUNS, "Show the runs of this directory"))
"""What is offered besides the workflows, while a run waits and otherwise: some editors send nothing else."""


# What stands behind `/resume`: which run, its secret inputs again, and whether it may have changed.


FORCE = "--force"


class Resumption(NamedTuple):
    """A wish to go on with a run."""

    run: str = ""
    """The run that is named, or its beginning; empty: the session's last one."""
    inputs: str = ""
    """What stands behind that: inputs with names."""
    is_forced: bool = False
    """Whether it goes on with files that have changed since it began."""

    @classmethod
    def of(cls, typed: Typed) -> Resumption:
        """What was typed; `--force` stands before the inputs, which may be any text."""
        is_forced, run, rest = False, "", typed.text.strip()
        while rest:
            word, *following = rest.split(maxsplit=1)
            if word == FORCE:
                is_forced = True
            elif run or "=" in word or word.startswith("-"):
                break
            else:
                run = word
            rest = "".join(following)
        return cls(run, rest, is_forced)

    @property
    def is_needed(self) -> bool:
        """Whether a run that waits can only go on by this, and not by an answer."""
        return bool(self.inputs) or self.is_forced


FROM_WHERE_IT_WAS = Resumption()
"""Nothing is said about how."""


class WorkflowAgent(Agent):
    """Of one session. With a `file` every prompt runs the workflow in it; else its command says which one."""

    def __init__(self, file: str | None, store_path: str | None) -> None:
        self.others: tuple[Command, ...] = ()
        """Commands of whoever answers the prompts that are for no workflow; a workflow's name goes first."""
        self._file = file
        self._store_path = store_path
        self._store: Store | None = None
        self._shelf = Shelf()
        self._news: list[str] = []
        self._told: set[str] = set()
        self._lookout: Lookout | None = None
        self._alone: Shelved | None = None
        self._secrets: dict[str, dict[str, Json]] = {}

    async def opened(self, session: Session) -> None:
        if self._file is not None:
            await self._read_alone(self._file)
            self._offer(session)
            return
        self._lookout = Lookout(session, self._put_up)
        await self._lookout.begin()

    def hidden_in(self, session: Session, blocks: tuple[ContentBlock, ...]) -> Mapping[str, str]:
        """What was typed for secret inputs; all that was, if its workflow is not known as it is now."""
        typed = command_in(blocks)
        unfinished = UnfinishedRun.of(session.state)
        is_answer = unfinished is not None and unfinished.place is not None
        if typed is not None and typed.name == RESUME and Resumption.of(typed.arguments).inputs:
            return typed.arguments.hidden(None)
        if self._file is not None:
            return {} if is_answer else Typed.of(blocks).hidden(current(self._alone))
        if typed is None or typed.name in RESERVED:
            return {}
        if is_answer and typed.name not in self._shelf.names:
            return {}
        return typed.arguments.hidden(current(self._shelf.workflows.get(typed.name)))

    async def closed(self, session: Session) -> None:
        if self._lookout is not None:
            await self._lookout.end()
        if self._store is not None:
            self._store.close()

    async def is_for_workflows(self, turn: Turn) -> bool:
        """Whether a prompt runs a workflow, is about runs, or is for the run that waits."""
        if self._lookout is not None:
            await self._lookout.until_known()
        unfinished = UnfinishedRun.of(turn.session.state)
        if unfinished is not None and unfinished.place is not None:
            return True
        typed = command_in(turn.blocks)
        return typed is not None and typed.name in {*RESERVED, *self._shelf.names}

    def offer_besides(self, session: Session, others: Iterable[Command]) -> None:
        """Offer these commands, too; those that are called like a workflow are not heard of."""
        self.others = (*others,)
        self._offer(session)

    async def prompt(self, turn: Turn) -> StopReason:
        if self._lookout is not None:
            await self._lookout.until_known()
        await self._tell_news(turn)
        try:
            return await self._answer(turn)
        except (WorkflowError, ConfigError, StoreError, MissingExtraError) as error:
            await turn.say_apart(str(error))
            return "refusal"
        finally:
            self._offer(turn.session)
            if self._file is not None:
                await self._read_alone(self._file)

    async def _answer(self, turn: Turn) -> StopReason:
        from coupler.workflow.editor.chat_messages import listed, nothing_waits
        from coupler.workflow.editor.commands import RefusedError

        typed = command_in(turn.blocks)
        unfinished = UnfinishedRun.of(turn.session.state)
        if unfinished is not None and unfinished.place is not None:
            record = await self._opened_store().runs.find(unfinished.run)
            if record is not None and record.status in ("parked", "running"):
                return await self._reply(turn, unfinished, typed)
            unfinished = await self._let_go(turn, unfinished, record, typed)
        if typed is not None and (self._file is None or unfinished is not None):
            if typed.name == RESUME:
                return await self._resume(turn, typed.arguments, unfinished)
            if typed.name == RUNS:
                return await self._show_runs(turn)
            if typed.name in (ABORT, DONE):
                raise RefusedError(nothing_waits())
        if self._file is not None:
            return await self._start(turn, self._file, Typed.of(turn.blocks))
        if typed is not None:
            return await self._start(turn, typed.name, typed.arguments)
        await turn.say_apart(listed(self._shelf.commands))
        return "end_turn"

    async def _let_go(
        self, turn: Turn, waiting: UnfinishedRun, record: RunRecord | None, typed: TypedCommand | None
    ) -> UnfinishedRun | None:
        """Its run was answered or ended in a terminal: what is written now is for it only by mistake."""
        from coupler.workflow.editor.chat_messages import waits_no_more
        from coupler.workflow.editor.commands import RefusedError

        can_go_on = record is not None and record.status != "success"
        left = msgspec.structs.replace(waiting, place=None) if can_go_on else None
        remember(turn.session, left)
        told = waits_no_more(waiting.run, None if record is None else record.status)
        if self._file is not None or typed is None or typed.name not in {RESUME, RUNS, *self._shelf.names}:
            raise RefusedError(told)
        await turn.say_apart(told)
        return left

    async def _start(self, turn: Turn, given: str, typed: Typed) -> StopReason:
        # Imported on use, here and below: a session is there before its first run.
        from coupler.workflow.editor.commands import inputs_in
        from coupler.workflow.editor.run_turns import Course

        bundle = await self._read(turn, given)
        command = "" if self._file is not None else f"/{given}"
        inputs = await inputs_in(turn, typed, bundle.main, command)
        await self._warn_of_secrets(turn, typed.hidden(bundle.main))
        course = Course(turn, self._opened_store(), bundle, given)
        secrets = {name: inputs[name] for name, each in bundle.main.inputs.items() if each.secret}
        with self._keeping(secrets, turn.session):
            return await course.begin(inputs)

    async def _reply(self, turn: Turn, waiting: UnfinishedRun, typed: TypedCommand | None) -> StopReason:
        """What is written while a run waits is for that run."""
        from coupler.workflow.editor.chat_messages import still_waits, waits_first
        from coupler.workflow.editor.commands import RefusedError
        from coupler.workflow.editor.dialogs import Reply

        place = waiting.place or ""
        if typed is not None and typed.name == ABORT:
            return await self._abort(turn, waiting)
        is_resumed = typed is not None and typed.name == RESUME and Resumption.of(typed.arguments).is_needed
        if typed is not None and typed.name in {RESUME, RUNS, *self._shelf.names} and not is_resumed:
            raise RefusedError(waits_first(waiting.run, place))
        try:
            if typed is not None and is_resumed:
                return await self._resume(turn, typed.arguments, waiting)
            text = "" if typed is not None and typed.name == DONE else turn.text
            reply = Reply(place, text, Typed.of(turn.blocks))
            return await self._go_on(turn, waiting.run, waiting.given, reply=reply)
        except WorkflowError as error:
            raise RefusedError(f"{error}\n\n{still_waits(waiting.run, place)}") from None

    async def _abort(self, turn: Turn, waiting: UnfinishedRun) -> StopReason:
        from coupler.workflow.journal.runs import end_unheld

        remember(turn.session, None)
        runs = self._opened_store().runs.blocking
        is_ended = await in_thread(lambda: end_unheld(runs, waiting.run))
        how = "is ended" if is_ended else "was not waiting any more"
        await turn.say_apart(f"The run `{waiting.run}` {how}.")
        return "end_turn"

    async def _resume(self, turn: Turn, typed: Typed, unfinished: UnfinishedRun | None) -> StopReason:
        """Go on with the run that is named, or the session's last one, with secrets that are given again."""
        from coupler.workflow.editor.chat_messages import ended_well
        from coupler.workflow.editor.commands import RefusedError, name_of
        from coupler.workflow.journal.runs import find_run

        wanted = Resumption.of(typed)
        if unfinished is not None and wanted.run in ("", unfinished.run):
            return await self._go_on(turn, unfinished.run, unfinished.given, wanted)
        if not wanted.run:
            raise RefusedError(f"No run of this session was interrupted; `/{RUNS}` shows those there are.")
        record = await find_run(self._opened_store(), wanted.run)
        if record.status == "success":
            raise RefusedError(ended_well(record.id))
        given = await in_thread(lambda: name_of(record, turn.session.cwd, self._file))
        return await self._go_on(turn, record.id, given, wanted)

    async def _go_on(
        self,
        turn: Turn,
        run: str,
        given: str,
        wanted: Resumption = FROM_WHERE_IT_WAS,
        reply: Reply | None = None,
    ) -> StopReason:
        from coupler.workflow.editor.chat_messages import has_changed, secrets_needed
        from coupler.workflow.editor.commands import secrets_again
        from coupler.workflow.editor.run_turns import Course
        from coupler.workflow.journal.run_secrets import UnknownSecretsError

        bundle = await self._read(turn, given)
        again = secrets_again(wanted.inputs, bundle.main, turn.session.cwd)
        secrets = {**self._secrets.get(run, {}), **again}
        course = Course(turn, self._opened_store(), bundle, given, reply)
        try:
            with self._keeping(secrets, turn.session):
                return await course.go_on(run, secrets, is_forced=wanted.is_forced)
        except UnknownSecretsError as error:
            raise RunError(secrets_needed(error.names, run)) from None
        except ChangedError:
            raise RunError(has_changed(run)) from None

    async def _show_runs(self, turn: Turn) -> StopReason:
        from coupler.workflow.editor.chat_messages import told_runs

        records = await in_thread(self._opened_store().runs.blocking.find_all)
        here = [record for record in records if record.cwd == turn.session.cwd]
        await turn.say_apart(told_runs(here))
        return "end_turn"

    async def _read(self, turn: Turn, given: str) -> Bundle:
        """The workflow and all that it calls, if it is valid and may run."""
        from coupler.workflow.editor.commands import bundle_of

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

    @contextlib.contextmanager
    def _keeping(self, secrets: dict[str, Json], session: Session) -> Iterator[None]:
        """Remember the secret inputs of a run as long as it can go on: nothing else does."""
        try:
            yield
        finally:
            unfinished = UnfinishedRun.of(session.state)
            self._secrets = {} if unfinished is None else {unfinished.run: secrets}

    async def _warn_of_secrets(self, turn: Turn, hidden: Iterable[str]) -> None:
        from coupler.workflow.editor.chat_messages import typed_secret

        notes = [typed_secret(name) for name in hidden if name.startswith("inputs.")]
        self._news += [note for note in notes[:1] if note not in self._told]
        self._told.update(notes)
        await self._tell_news(turn)

    async def _read_alone(self, file: str) -> None:
        if current(self._alone) is None:
            self._alone = await in_thread(lambda: read_alone(file))

    def _put_up(self, session: Session, shelf: Shelf) -> None:
        self._shelf = shelf
        self._news += [note for note in shelf.notes if note not in self._told]
        self._told.update(shelf.notes)
        self._offer(session)

    def _offer(self, session: Session) -> None:
        """Tell the client which commands there are, if that has changed."""
        own = (*self._shelf.commands, *self._about_runs(session))
        taken = {command.name for command in own} | {*RESERVED}
        commands = (*own, *(command for command in self.others if command.name not in taken))
        known = [command.as_available() for command in session.commands]
        if [command.as_available() for command in commands] != known:
            session.set_commands(commands)

    def _about_runs(self, session: Session) -> tuple[Command, ...]:
        """The commands about runs that mean something now."""
        unfinished = UnfinishedRun.of(session.state)
        if unfinished is None:
            # Of a file that is served alone, every prompt is for its workflow.
            return AFTERWARDS if self._file is None else ()
        if unfinished.place is None:
            return AFTERWARDS
        shelved = self._alone or self._shelf.workflows.get(unfinished.given)
        inputs = () if shelved is None else shelved.workflow.inputs.values()
        known = self._secrets.get(unfinished.run, {})
        is_complete = all(each.name in known for each in inputs if each.secret)
        return WHILE_WAITING if is_complete else (*WHILE_WAITING, GIVE_AGAIN)

    async def _tell_news(self, turn: Turn) -> None:
        news, self._news = self._news, []
        for note in news:
            title, _, description = note.partition("\n")
            await turn.notice(title, description or None, severity="warning")


def current(shelved: Shelved | None) -> Workflow | None:
    """A workflow that was read, if its file is still the same."""
    return shelved.workflow if shelved is not None and shelved.is_current else None

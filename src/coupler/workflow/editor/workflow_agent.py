"""The agent of a session that has workflows: each is a slash command, and a prompt runs one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coupler.agent.agent import Agent, Command
from coupler.agent.startup.serve_options import NO_STORE
from coupler.config.lookup import ConfigError
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.threads import in_thread
from coupler.schema.base import has_commands
from coupler.schema.v1 import ImageContent, StopReason
from coupler.store.errors import StoreError
from coupler.workflow.editor.arguments import PromptText, SlashCommand, slash_command_in, unusable_blocks
from coupler.workflow.editor.commands import (
    InputsRefusedError,
    LoadedWorkflow,
    PromptRefusedError,
    WorkflowCommands,
    WorkflowWatcher,
    command_of,
    inputs_from_prompt,
    load_bundle,
    load_served_workflow,
    repeated_secret_inputs,
    workflow_of_run,
)
from coupler.workflow.editor.run_turns import RunTurn, UnfinishedRun, remember_run
from coupler.workflow.errors import RunChangedError, RunError, WorkflowError
from coupler.workflow.language.library import ABORT, DONE, RESERVED, RESUME, RUNS, why_no_command

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.schema.v1 import ContentBlock
    from coupler.store.runs import RunRecord
    from coupler.store.store import Store
    from coupler.workflow.editor.dialogs import PromptReply
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Json, Workflow


FORCE = "--force"
"""Option that resumes a run although its files have changed."""

RESUME_COMMAND = Command(RESUME, "Go on with a run that was interrupted or has failed", hint="[run]")
SECRETS_COMMAND = Command(RESUME, "Give the run that waits its secret inputs again", hint="name=value")
WAITING_COMMANDS = (
    Command(DONE, "Leave the conversation with the agent, or answer with the default"),
    Command(ABORT, "End the run that waits for you"),
)
"""Offered while a run waits."""

RUN_COMMANDS = (RESUME_COMMAND, Command(RUNS, "Show the runs of this directory"))
"""Offered besides the workflows while no run waits: some editors send only commands that they know."""


class ResumeRequest(NamedTuple):
    """The arguments of `/resume`."""

    run: str = ""
    """The id of the run, or its beginning; empty: the session's last one."""
    inputs: str = ""
    """The secret inputs that are given again, with names."""
    is_forced: bool = False
    """True if the run is resumed although its files have changed since it began."""

    @classmethod
    def of(cls, typed: PromptText) -> ResumeRequest:
        """Parse what was typed; `--force` stands before the inputs, which may be any text."""
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
        """Tell whether a waiting run can only go on by this, and not by an answer."""
        return bool(self.inputs) or self.is_forced


PLAIN_RESUME = ResumeRequest()
"""Resumes from where the run was left."""


class WorkflowAgent(Agent):
    """The agent of one session. With a `file` every prompt runs its workflow; else slash commands do."""

    keeps_prompts = True

    def __init__(self, file: str | None, store_path: str | None, accepts: Collection[str] = ()) -> None:
        self.accepts = accepts or self.accepts
        self.others: tuple[Command, ...] = ()
        """Commands for prompts that are for no workflow; a workflow of the same name takes precedence."""
        self._file = file
        self._store_path = store_path
        self._store: Store | None = None
        self._available = WorkflowCommands()
        self._news: list[str] = []
        self._told: set[str] = set()
        self._watcher: WorkflowWatcher | None = None
        self._served: LoadedWorkflow | None = None
        self._secrets: dict[str, dict[str, Json]] = {}

    async def opened(self, session: Session) -> None:
        await self._look_for_interrupted(session)
        if self._file is not None:
            await self._read_served(self._file)
            self._offer(session)
            return
        self._watcher = WorkflowWatcher(session, self._set_available)
        await self._watcher.begin()

    async def _look_for_interrupted(self, session: Session) -> None:
        """Have the next answer tell of the session's run whose process died before its end."""
        from coupler.workflow.editor.chat_messages import was_interrupted

        unfinished = UnfinishedRun.of(session.state)
        if unfinished is None or unfinished.place is not None:
            return
        try:
            record = await self._opened_store().runs.find(unfinished.run)
        except (ConfigError, StoreError):
            return  # it is told when a prompt needs the store
        if record is not None and record.is_interrupted:
            self._news.append(was_interrupted(record.id))

    def hidden_in(self, session: Session, blocks: tuple[ContentBlock, ...]) -> Mapping[str, str]:
        """Return what was typed for secret inputs; everything typed if the workflow is not known."""
        typed = slash_command_in(blocks)
        unfinished = UnfinishedRun.of(session.state)
        is_answer = unfinished is not None and unfinished.place is not None
        if typed is not None and typed.name == RESUME and ResumeRequest.of(typed.arguments).inputs:
            return typed.arguments.hidden(None)
        if self._file is not None:
            command = self._served_command(typed)
            meant = PromptText.of(blocks) if command is None else command.arguments
            return {} if is_answer else meant.hidden(current_workflow(self._served))
        if typed is None or typed.name in RESERVED:
            return {}
        if is_answer and typed.name not in self._available.names:
            return {}
        return typed.arguments.hidden(current_workflow(self._available.workflows.get(typed.name)))

    async def closed(self, session: Session) -> None:
        if self._watcher is not None:
            await self._watcher.end()
        if self._store is not None:
            self._store.close()

    async def is_for_workflows(self, turn: Turn) -> bool:
        """Tell whether a prompt runs a workflow, is about runs, or answers the run that waits.

        Text that no person has typed runs nothing.
        """
        if self._watcher is not None:
            await self._watcher.until_known()
        unfinished = UnfinishedRun.of(turn.session.state)
        if unfinished is not None and unfinished.place is not None:
            return True
        typed = slash_command_in(turn.blocks) if has_commands(turn.prompt_meta) else None
        others = {command.name for command in self.others}
        meant = {*RESERVED, *self._available.names, *(self._available.left_out - others)}
        return typed is not None and typed.name in meant

    def has(self, name: str) -> bool:
        """True if there is a workflow of this name."""
        return name in self._available.names

    async def look_again(self) -> None:
        """Look for new workflows now, for a command that nobody knows: its file may be new."""
        if self._watcher is not None:
            await self._watcher.scan()

    def offer_besides(self, session: Session, others: Iterable[Command]) -> None:
        """Offer other commands, too; those with the name of a workflow are left out."""
        self.others = (*others,)
        self._offer(session)

    async def prompt(self, turn: Turn) -> StopReason:
        if self._watcher is not None:
            await self._watcher.until_known()
        await self.tell_news(turn)
        try:
            return await self._answer(turn)
        except InputsRefusedError as error:
            return await self._refuse_inputs(turn, error)
        except (WorkflowError, ConfigError, StoreError, MissingExtraError) as error:
            await self._explain(turn, str(error))
            return "end_turn"
        finally:
            self._offer(turn.session)
            if self._file is not None:
                await self._read_served(self._file)

    async def _refuse_inputs(self, turn: Turn, error: InputsRefusedError) -> StopReason:
        """Refuse a prompt whose inputs do not fit: nothing came of it, and it may be typed again.

        The tool call is what editors keep of a turn that was refused; without one, some take back the prompt
        and all that was answered to it.
        """
        async with turn.tool(f"Check the inputs of /{error.workflow}") as call:
            await call.result({"errors": error.problems})
            await call.output("\n".join(error.problems))
        await self._explain(turn, str(error))
        return "refusal"

    async def _explain(self, turn: Turn, message: str) -> None:
        """Say why nothing was run. In ACP a refusal means that the prompt is forgotten; this is an answer."""
        from coupler.workflow.editor.chat_messages import refused_meta

        unfinished = UnfinishedRun.of(turn.session.state)
        waiting = unfinished.run if unfinished is not None and unfinished.place is not None else None
        turn.meta = refused_meta(message, waiting)
        await turn.say_apart(message)

    async def _answer(self, turn: Turn) -> StopReason:
        from coupler.workflow.editor.chat_messages import list_of_workflows, nothing_waits

        typed = slash_command_in(turn.blocks)
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
                raise PromptRefusedError(nothing_waits())
        if self._file is not None:
            command = self._served_command(typed)
            if command is not None:
                return await self._start(turn, self._file, command.arguments, f"/{command.name}")
            return await self._start(turn, self._file, PromptText.of(turn.blocks), "")
        if typed is not None:
            return await self._start(turn, typed.name, typed.arguments, f"/{typed.name}")
        await turn.say_apart(list_of_workflows(self._available.commands))
        return "end_turn"

    async def _let_go(
        self, turn: Turn, waiting: UnfinishedRun, record: RunRecord | None, typed: SlashCommand | None
    ) -> UnfinishedRun | None:
        """Forget a run that was answered or ended in a terminal, and tell the user so."""
        from coupler.workflow.editor.chat_messages import waits_no_more

        can_go_on = record is not None and record.status != "success"
        left = msgspec.structs.replace(waiting, place=None) if can_go_on else None
        remember_run(turn.session, left)
        told = waits_no_more(waiting.run, None if record is None else record.status)
        if (
            self._file is not None
            or typed is None
            or typed.name not in {RESUME, RUNS, *self._available.names}
        ):
            raise PromptRefusedError(told)
        await turn.say_apart(told)
        return left

    def _served_command(self, typed: SlashCommand | None) -> SlashCommand | None:
        """Return the slash command of a prompt if it is that of the workflow that is served alone."""
        if typed is None or self._served is None or typed.name != self._served.workflow.name:
            return None
        return typed

    async def _start(self, turn: Turn, given: str, typed: PromptText, command: str) -> StopReason:
        # Imported on use, here and below: a session is there before its first run.
        from coupler.workflow.agents.agent_start import image_steps
        from coupler.workflow.editor.chat_messages import unusable_prompt

        bundle = await self._read(turn, given)
        if problems := unusable_blocks(turn.blocks, takes_images=bool(image_steps(bundle))):
            raise InputsRefusedError(unusable_prompt(problems), bundle.main.name, problems)
        inputs = await inputs_from_prompt(turn, typed, bundle.main, command)
        await self._warn_of_secrets(turn, typed.hidden(bundle.main))
        run_turn = RunTurn(turn, self._opened_store(), bundle, given)
        secrets = {name: inputs[name] for name, each in bundle.main.inputs.items() if each.secret}
        with self._keeping(secrets, turn.session):
            return await run_turn.begin(inputs, _images_in(turn.blocks))

    async def _reply(self, turn: Turn, waiting: UnfinishedRun, typed: SlashCommand | None) -> StopReason:
        """Give a prompt to the run that waits."""
        from coupler.workflow.editor.chat_messages import still_waits, unusable_prompt, waits_first
        from coupler.workflow.editor.dialogs import PromptReply

        place = waiting.place or ""
        if typed is not None and typed.name == ABORT:
            return await self._abort(turn, waiting)
        is_resumed = (
            typed is not None and typed.name == RESUME and ResumeRequest.of(typed.arguments).is_needed
        )
        if typed is not None and typed.name in {RESUME, RUNS, *self._available.names} and not is_resumed:
            raise PromptRefusedError(waits_first(waiting.run, place))
        takes_images = typed is None or typed.name not in (RESUME, DONE)
        if takes_images and _images_in(turn.blocks):
            takes_images = await self._is_conversation(turn, waiting)
        if problems := unusable_blocks(turn.blocks, takes_images=takes_images):
            told = f"{unusable_prompt(problems)}\n\n{still_waits(waiting.run, place)}"
            raise InputsRefusedError(told, Path(waiting.given).stem, problems)
        try:
            if typed is not None and is_resumed:
                return await self._resume(turn, typed.arguments, waiting)
            text = "" if typed is not None and typed.name == DONE else turn.text
            reply = PromptReply(place, text, PromptText.of(turn.blocks), _images_in(turn.blocks))
            return await self._go_on(turn, waiting.run, waiting.given, reply=reply)
        except WorkflowError as error:
            raise PromptRefusedError(f"{error}\n\n{still_waits(waiting.run, place)}") from None

    async def _is_conversation(self, turn: Turn, waiting: UnfinishedRun) -> bool:
        """Tell whether the step that waits is a conversation, whose agent gets what the user sends."""
        from coupler.workflow.journal.run_events import step_id_in
        from coupler.workflow.language.model import all_steps, lists_of
        from coupler.workflow.steps.kinds import kind_of

        bundle = await self._read(turn, waiting.given)
        waits = step_id_in(waiting.place or "")
        lists = [steps for workflow in bundle.workflows for steps in lists_of(workflow)]
        steps = [step for each in lists for step in all_steps(each) if step.id == waits]
        return any(kind_of(step).is_conversation for step in steps)

    async def _abort(self, turn: Turn, waiting: UnfinishedRun) -> StopReason:
        from coupler.workflow.journal.runs import end_unheld

        remember_run(turn.session, None)
        runs = self._opened_store().runs.blocking
        is_ended = await in_thread(lambda: end_unheld(runs, waiting.run))
        how = "is ended" if is_ended else "was not waiting any more"
        await turn.say_apart(f"The run `{waiting.run}` {how}.")
        return "end_turn"

    async def _resume(self, turn: Turn, typed: PromptText, unfinished: UnfinishedRun | None) -> StopReason:
        """Resume the run that is named, or the session's last one, with secrets that are given again."""
        from coupler.workflow.editor.chat_messages import ended_well, unusable_prompt
        from coupler.workflow.journal.runs import find_run

        if problems := unusable_blocks(turn.blocks, takes_images=False):
            raise PromptRefusedError(unusable_prompt(problems))
        wanted = ResumeRequest.of(typed)
        if unfinished is not None and wanted.run in ("", unfinished.run):
            return await self._go_on(turn, unfinished.run, unfinished.given, wanted)
        if not wanted.run:
            raise PromptRefusedError(
                f"No run of this session was interrupted; `/{RUNS}` shows those there are."
            )
        record = await find_run(self._opened_store(), wanted.run)
        if record.status == "success":
            raise PromptRefusedError(ended_well(record.id))
        given = await in_thread(lambda: workflow_of_run(record, turn.session.cwd, self._file))
        return await self._go_on(turn, record.id, given, wanted)

    async def _go_on(
        self,
        turn: Turn,
        run: str,
        given: str,
        wanted: ResumeRequest = PLAIN_RESUME,
        reply: PromptReply | None = None,
    ) -> StopReason:
        from coupler.workflow.editor.chat_messages import has_changed, secrets_needed
        from coupler.workflow.journal.run_secrets import UnknownSecretsError

        bundle = await self._read(turn, given)
        again = repeated_secret_inputs(wanted.inputs, bundle.main, turn.session.cwd)
        secrets = {**self._secrets.get(run, {}), **again}
        run_turn = RunTurn(turn, self._opened_store(), bundle, given, reply)
        try:
            with self._keeping(secrets, turn.session):
                return await run_turn.resume(run, secrets, is_forced=wanted.is_forced)
        except UnknownSecretsError as error:
            raise RunError(secrets_needed(error.names, run)) from None
        except RunChangedError:
            raise RunError(has_changed(run)) from None

    async def _show_runs(self, turn: Turn) -> StopReason:
        from coupler.workflow.editor.chat_messages import list_of_runs

        records = await in_thread(self._opened_store().runs.blocking.find_all)
        here = [record for record in records if record.cwd == turn.session.cwd]
        await turn.say_apart(list_of_runs(here))
        return "end_turn"

    async def _read(self, turn: Turn, given: str) -> Bundle:
        """Load the workflow and all that it calls, if it is valid and may run."""
        directory, commands = turn.session.cwd, self._available.commands
        return await in_thread(lambda: load_bundle(given, directory, self._file, commands))

    def _opened_store(self) -> Store:
        """Open the store of runs: the sessions' one, or one in memory if sessions are not kept."""
        if self._store is None:
            from coupler.config import load
            from coupler.store.store import Store

            config = load(None, environ=os.environ)
            kept = ":memory:" if self._store_path == NO_STORE else self._store_path or config.sessions.store
            self._store = Store.open(kept, config.sessions.synchronous)
        return self._store

    @contextlib.contextmanager
    def _keeping(self, secrets: dict[str, Json], session: Session) -> Iterator[None]:
        """Keep the secret inputs of a run as long as it can be resumed; they are stored nowhere else."""
        try:
            yield
        finally:
            unfinished = UnfinishedRun.of(session.state)
            self._secrets = {} if unfinished is None else {unfinished.run: secrets}

    async def _warn_of_secrets(self, turn: Turn, hidden: Iterable[str]) -> None:
        from coupler.workflow.editor.chat_messages import secret_was_typed

        notes = [secret_was_typed(name) for name in hidden if name.startswith("inputs.")]
        self._news += [note for note in notes[:1] if note not in self._told]
        self._told.update(notes)
        await self.tell_news(turn)

    async def _read_served(self, file: str) -> None:
        if current_workflow(self._served) is None:
            self._served = await in_thread(lambda: load_served_workflow(file))

    def _set_available(self, session: Session, available: WorkflowCommands) -> None:
        self._available = available
        self._news += [note for note in available.notes if note not in self._told]
        self._told.update(available.notes)
        self._offer(session)

    def _offer(self, session: Session) -> None:
        """Tell the client which commands there are, if that has changed."""
        own = (*self._workflow_commands(), *self._run_commands(session))
        taken = {command.name for command in own} | {*RESERVED}
        commands = (*own, *(command for command in self.others if command.name not in taken))
        known = [command.as_available() for command in session.commands]
        if [command.as_available() for command in commands] != known:
            session.set_commands(commands)

    def _workflow_commands(self) -> tuple[Command, ...]:
        """The commands that start a workflow; of a file that is served alone, its own."""
        if self._served is None:
            return self._available.commands
        workflow = self._served.workflow
        return () if why_no_command(workflow.name) else (command_of(workflow),)

    def _run_commands(self, session: Session) -> tuple[Command, ...]:
        """The commands about runs that mean something now."""
        unfinished = UnfinishedRun.of(session.state)
        if unfinished is None:
            # Of a file that is served alone, every prompt is for its workflow.
            return RUN_COMMANDS if self._file is None else ()
        if unfinished.place is None:
            return RUN_COMMANDS
        loaded = self._served or self._available.workflows.get(unfinished.given)
        inputs = () if loaded is None else loaded.workflow.inputs.values()
        known = self._secrets.get(unfinished.run, {})
        is_complete = all(each.name in known for each in inputs if each.secret)
        return WAITING_COMMANDS if is_complete else (*WAITING_COMMANDS, SECRETS_COMMAND)

    async def tell_news(self, turn: Turn) -> None:
        """Tell what has come up since the last prompt: files that are left out, an interrupted run."""
        news, self._news = self._news, []
        for note in news:
            title, _, description = note.partition("\n")
            await turn.notice(title, description or None, severity="warning")


def _images_in(blocks: Iterable[ContentBlock]) -> tuple[ImageContent, ...]:
    return tuple(block for block in blocks if isinstance(block, ImageContent))


def current_workflow(loaded: LoadedWorkflow | None) -> Workflow | None:
    """Return a workflow that was read, if its file is still the same."""
    return loaded.workflow if loaded is not None and loaded.is_current else None

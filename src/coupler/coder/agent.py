"""One session of the coder: a prompt runs a workflow if it names one; any other goes to the model.

The agent that asks the model is being built as soon as there is a session (`AgentBuild`), and built again
when its setup has changed. What the session works with meanwhile stays (`SessionResources`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from coupler.agent.agent import Agent, Command, Select
from coupler.agent.errors import AuthRequiredError, TurnFailedError
from coupler.agent.session import configuration_of
from coupler.agent.startup.loading import import_in_thread
from coupler.coder.commands import (
    COMMAND_NAMES,
    COMMANDS,
    CommandCall,
    CommandError,
    command_typed,
    explain_unknown,
    offered_commands,
    restore_directories,
    typed_command,
    unknown_command_in,
)
from coupler.coder.model.credentials import ModelError, client_package
from coupler.coder.model.settings import EFFORT_OPTION, MODELS_OWN, efforts_of
from coupler.coder.profiles import ProfileError, modes_of
from coupler.coder.served import CoderCapabilities
from coupler.coder.setup import set_state_value, setup_of, state_value
from coupler.coder.tools.background_jobs import BackgroundJobs
from coupler.coder.tools.outputs import SessionOutputs
from coupler.coder.tools.sandbox import Sandbox
from coupler.config.agent_tables import EFFORTS
from coupler.runtime.extras import MissingExtraError, import_extra
from coupler.runtime.threads import in_thread
from coupler.schema.base import has_commands, without_commands
from coupler.workflow.editor.workflow_agent import WorkflowAgent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coupler.agent.agent import Option
    from coupler.agent.session import Session
    from coupler.agent.startup.serve_options import ServeOptions
    from coupler.agent.turn import Turn
    from coupler.coder.setup import CoderSetup
    from coupler.coder.skills import Skills
    from coupler.langchain.graph_agent import GraphAgent
    from coupler.schema.v1 import ContentBlock, StopReason

MODEL = "model"
"""The id of the option that the model is chosen by, which editors know."""

ASSEMBLY = "coupler.coder.assembly"

FILES_KEY = "files"
"""Key in the session's state for the digests of files that the coder has seen."""

MOST_FILES = 500
"""Files that the state has digests of, the last ones."""


class CoderAgent(Agent):
    """The coder in one session."""

    accepts = CoderCapabilities.accepts
    keeps_prompts = True

    def __init__(
        self,
        session: Session,
        profile: str,
        model: str | None,
        options: ServeOptions,
        *,
        has_workflows: bool,
        has_commands: bool = True,
    ) -> None:
        """Without commands every prompt is data: those that begin like one go to the model, too."""
        self._profile = profile
        self._model = model
        self._store = options.store
        self._has_commands = has_commands
        self._workflows = WorkflowAgent(None, options.store) if has_workflows else None
        self._making: AgentBuild | None = None
        self._resources: SessionResources | None = None
        self._setup = self._looked_at(session)
        self._skills: Skills | None = None
        if self._setup is not None and self._setup.choice is not None:
            self.modes = modes_of(self._setup)
            self.options = _options(self._setup)

    async def option_changed(self, session: Session, option: str) -> None:
        """Offer the efforts of the model that was chosen, and the command that changes them."""
        if option == MODEL:
            self._declare_options(session)
            self._offer(session)

    def _declare_options(self, session: Session) -> None:
        setup = self._setup if self._making is None else self._making.setup
        if setup is not None and setup.choice is not None:
            offered = None if self._making is None else self._making.offered
            # Whoever called this tells the client.
            session.settings.declare(options=_options(setup, session.options.get(MODEL), offered))

    async def opened(self, session: Session) -> None:
        await in_thread(lambda: restore_directories(session))
        if self._workflows is not None:
            await self._workflows.opened(session)
        self._offer(session)
        if self._setup is None or self._setup.choice is None:
            return
        self._making = self._begun(self._setup, session)
        if session.options.get(MODEL) != self._setup.choice.name:
            self._declare_options(session)
            self._offer(session)
        if session.mcp_servers or session.project.mcp_servers:
            self._making.begin()

    def hidden_in(self, session: Session, blocks: tuple[ContentBlock, ...]) -> Mapping[str, str]:
        return {} if self._workflows is None else self._workflows.hidden_in(session, blocks)

    def can_be_title(self, session: Session, text: str) -> bool:
        """Return whether a prompt says what the session is about, as commands such as `/usage` do not."""
        name = command_typed(text)
        # What follows the command of a workflow may be an answer to one of its questions.
        return name is None or (self._workflows is not None and self._workflows.has(name))

    async def moved(self, session: Session) -> None:
        await in_thread(lambda: restore_directories(session))
        if self._making is not None and (agent := self._making.agent) is not None:
            await agent.moved(session)

    async def closed(self, session: Session) -> None:
        if self._workflows is not None:
            await self._workflows.closed(session)
        if self._making is not None:
            await self._making.close()
        if self._resources is not None:
            await self._resources.close()

    async def perform(self, turn: Turn) -> StopReason | None:
        """Give the prompt to a workflow, carry out a command, or ask the model if there is one."""
        if self._workflows is not None:
            if unknown_command_in(turn, [each.name for each in turn.session.commands]) is not None:
                await self._workflows.look_again()
            if await self._workflows.is_for_workflows(turn):
                return await self._workflows.perform(turn)
        if self._workflows is not None:
            await self._workflows.tell_news(turn)
        if not self._has_commands:
            turn.prompt_meta = without_commands(turn.prompt_meta)
        if await self._has_answered_command(turn):
            return "end_turn"
        try:
            setup = await in_thread(lambda: setup_of(turn.session, self._profile, self._model))
            from coupler.coder.model.choice import login_problem

            config = turn.session.project.config
            if (problem := await in_thread(lambda: login_problem(config, setup.choice))) is not None:
                return await self._without_model(turn, problem)
            return await self._answered(await self._made_for(setup, turn.session), setup, turn)
        except (ProfileError, ModelError, MissingExtraError) as error:
            # No refusal with words: editors take back what a refused prompt was answered with.
            raise TurnFailedError(str(error), kind="setup", retryable=False) from error

    async def _has_answered_command(self, turn: Turn) -> bool:
        """Answer a command that needs no model, and one that there is not; False for any other prompt."""
        typed = typed_command(turn, [each.command for each in COMMANDS if each.answer])
        if typed is None:
            return await self._has_explained_unknown(turn)
        answer = next(each.answer for each in COMMANDS if each.name == typed.name)
        assert answer is not None, "only those were looked for"
        setup = self._setup if self._making is None else self._making.setup
        choice = (
            None if setup is None else setup.models.get(str(turn.session.options.get(MODEL)), setup.choice)
        )
        config = await in_thread(lambda: configuration_of(turn.session.cwd, turn.session.env))
        call = CommandCall(turn, typed.arguments, choice, has_memory=config.coder.memory)
        try:
            told = await answer(call)
        except CommandError as error:
            told = str(error)
        await turn.say_apart(told)
        return True

    async def _has_explained_unknown(self, turn: Turn) -> bool:
        session = turn.session
        if unknown_command_in(turn, COMMAND_NAMES) is None or state_value(session, "asked") is not None:
            return False
        if self._making is not None:
            with suppress(MissingExtraError):
                self._skills = await self._making.skills()
                await in_thread(self._skills.look)
                self._offer(session)
        name = unknown_command_in(turn, [command.name for command in session.commands])
        if name is None:
            return False
        from coupler.workflow.editor.chat_messages import refused_meta

        told = explain_unknown(name, session.commands)
        turn.meta = refused_meta(told.partition("\n")[0])
        await turn.say_apart(told)
        return True

    async def _answered(self, agent: GraphAgent, setup: CoderSetup, turn: Turn) -> StopReason | None:
        try:
            return await agent.perform(turn)
        except TurnFailedError as error:
            from coupler.coder.model.choice import with_remedy

            choice = setup.models.get(str(turn.session.options.get(MODEL)), setup.choice)
            assert choice is not None, "a model was asked"
            raise with_remedy(error, choice) from error
        finally:
            if self._resources is not None:
                self._resources.remember()

    def _looked_at(self, session: Session) -> CoderSetup | None:
        """Return the setup that the session begins with; an error is reported when a prompt needs it."""
        try:
            return setup_of(session, self._profile, self._model)
        except (ProfileError, ModelError, MissingExtraError):
            return None

    async def _made_for(self, setup: CoderSetup, session: Session) -> GraphAgent:
        before = setup if self._making is None else self._making.setup
        if self._making is not None and (self._making.setup != setup or self._making.has_failed):
            await self._making.close()
            self._making = None
        if self._making is None:
            self._making = self._begun(setup, session)
            session.declare(modes=modes_of(setup), options=_options(setup, session.options.get(MODEL)))
            self._offer(session)
            if before.settings.effort != setup.settings.effort and EFFORT_OPTION in session.options:
                # Another profile, or another setting: what was chosen before was chosen for that.
                session.set_option(EFFORT_OPTION, setup.settings.effort or MODELS_OWN)
        return await self._making.made()

    def _begun(self, setup: CoderSetup, session: Session) -> AgentBuild:
        if self._resources is None:
            self._resources = SessionResources(session)

        def found(skills: Skills) -> None:
            self._skills = skills
            self._offer(session)

        return AgentBuild(setup, self._resources, self._store, found)

    def _offer(self, session: Session) -> None:
        """Offer the commands that there are now: the coder's own, and skills whose names are not taken."""
        setup = self._setup if self._making is None else self._making.setup
        commands: list[Command] = []
        if self._has_commands:
            commands = offered_commands(session, None if setup is None else setup.choice)
        if self._has_commands and self._skills is not None:
            commands += self._skills.commands(taken=COMMAND_NAMES)
        if self._workflows is not None:
            self._workflows.offer_besides(session, commands)
        else:
            session.set_commands(commands)

    async def _without_model(self, turn: Turn, problem: str) -> StopReason | None:
        """Run a workflow, or list them for an empty prompt; any other prompt needs the model, and a login."""
        from coupler.coder.model.choice import how_to_set_up

        typed = command_typed(turn.text) if has_commands(turn.prompt_meta) else None
        is_for_workflows = typed is not None and typed not in COMMAND_NAMES
        if self._workflows is not None and (is_for_workflows or not turn.text.strip()):
            return await self._workflows.perform(turn)
        explanation = how_to_set_up(turn.session.env, turn.session.project.config)
        raise AuthRequiredError(problem, {"kind": "setup", "explanation": explanation})


def _options(
    setup: CoderSetup, chosen: object = None, offered: Sequence[str] | None = None
) -> tuple[Option, ...]:
    """Return the options of a session: its models, and how much the chosen one thinks, if that can be set."""
    models = [*setup.models] if offered is None else offered
    model = Select(MODEL, models, name="Model", category="model")
    choice = setup.models[chosen if isinstance(chosen, str) and chosen in models else models[0]]
    wanted = setup.settings.effort
    efforts = {*efforts_of(choice), *(() if wanted is None else (wanted,))}
    if not efforts:
        return (model,)
    names = {MODELS_OWN: "Default", **{each: each.capitalize() for each in EFFORTS if each in efforts}}
    effort = Select(
        EFFORT_OPTION,
        names,
        default=wanted or MODELS_OWN,
        name="Effort",
        description="How much the model thinks before it answers",
        category="thought_level",
    )
    return (model, effort)


class AgentBuild:
    """Builds the LangChain agent of one setup. `found` is called with the skills that there are.

    LangChain takes seconds to import. So that begins as soon as there is a session, in a thread, and then it
    is known which skills there are. The agent itself is made for the first prompt, or when somebody says
    so.
    """

    def __init__(
        self,
        setup: CoderSetup,
        resources: SessionResources,
        store: str | None,
        found: Callable[[Skills], None],
    ) -> None:
        self.setup = setup
        self._resources = resources
        self._store = store
        self._found = found
        self._preparing = asyncio.create_task(self._prepare())
        self._making: asyncio.Task[GraphAgent] | None = None
        self.offered: list[str] | None = None
        """Names of the models that can be used here, once that is known."""

    @property
    def agent(self) -> GraphAgent | None:
        """The agent, if it is built."""
        making = self._making
        is_there = making is not None and making.done() and not making.cancelled() and not making.exception()
        return making.result() if making is not None and is_there else None

    @property
    def has_failed(self) -> bool:
        """True if it could not be made; what was missing may be there by now."""
        return self._making is not None and self._making.done() and self.agent is None

    def begin(self) -> None:
        """Begin to make the agent: it may have servers to connect to."""
        if self._making is None:
            self._making = asyncio.create_task(self._make())

    async def made(self) -> GraphAgent:
        """Wait for the agent; raises the error that it could not be built for."""
        self.begin()
        assert self._making is not None
        # Who waits may be cancelled; what is waited for goes on.
        await asyncio.wait([self._making])
        return self._making.result()

    async def skills(self) -> Skills:
        """Wait for the skills; raises MissingExtraError."""
        await asyncio.wait([self._preparing])
        return self._preparing.result()

    async def close(self) -> None:
        """Cancel what is being made, and close the agent."""
        tasks = [task for task in (self._preparing, self._making) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if (agent := self.agent) is not None:
            await agent.closed(self._resources.session)

    async def _prepare(self) -> Skills:
        clients = {client_package(choice.provider) for choice in self.setup.models.values()}
        await import_in_thread([ASSEMBLY, *clients])
        import_extra("langchain", extra="coder", feature="The coder")
        from coupler.coder.skills import Skills

        skills = Skills(self._resources.session, self.setup.profile.skills)
        await in_thread(skills.look)
        self._found(skills)
        return skills

    async def _make(self) -> GraphAgent:
        skills = await self.skills()
        from coupler.coder.assembly import assembled

        session, profile = self._resources.session, self.setup.profile
        session.env.update(profile.env)
        await session.use_servers(profile.mcp)
        # LangChain looks at every tool and reads certificates: other sessions go on meanwhile.
        agent = await in_thread(lambda: assembled(self.setup, self._resources, skills, self._store))
        self.offered = [
            value for option in agent.options if isinstance(option, Select) for value in option.values
        ]
        if self.offered != [*self.setup.models]:
            # Some of the models cannot be used here: the log says why, and nobody can choose them.
            session.declare(options=_options(self.setup, session.options.get(MODEL), self.offered))
        await agent.opened(session)
        return agent


class SessionResources:
    """The jobs, outputs and sandbox of one session; they stay when its agent is made anew."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.outputs = SessionOutputs(session)
        self.jobs = BackgroundJobs(session, self.outputs)
        self.sandbox = Sandbox(session, [self.outputs.directory])
        session.known_files.restore(state_value(session, FILES_KEY))

    def remember(self) -> None:
        """Store digests of the files that were seen, for when the session continues in another process."""
        files = self.session.known_files.saved(MOST_FILES)
        if files != (state_value(self.session, FILES_KEY) or {}):
            set_state_value(self.session, FILES_KEY, files)

    async def close(self) -> None:
        """End the session's jobs and its sandbox."""
        await self.jobs.close()
        self.sandbox.close()

"""The LangChain agent of a session, put together from its parts.

The order of middleware is what each of them sees. Hooks come first, so that nobody is asked about what one
forbids. What writes the system prompt and offers tools comes before what shortens the conversation, which
counts all that the model gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain.agents.middleware.types import AgentMiddleware

from coupler import acp
from coupler.coder.compaction import CompactionMiddleware
from coupler.coder.hooks import HooksMiddleware
from coupler.coder.instructions import NestedInstructions
from coupler.coder.middleware import JobNews, KeptOutputs
from coupler.coder.model.chat_model import chat_models, model_middleware
from coupler.coder.model.choice import chosen
from coupler.coder.model.credentials import Keyring
from coupler.coder.model.middleware import Keyless
from coupler.coder.modes import mode_middleware
from coupler.coder.profiles import CODER, Profile
from coupler.coder.prompt import PromptMiddleware
from coupler.coder.questions import ask_tools, plan_tools
from coupler.coder.shell import shell_tools
from coupler.coder.skills import SkillCommands, Skills, skill_tools
from coupler.coder.sub_agents import delegate_tools
from coupler.coder.web import fetch_tools
from coupler.langchain.editor_tools.tools import file_tools
from coupler.langchain.messages import Look

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool
    from langgraph.pregel import Pregel

    from coupler.coder.agent import Workplace
    from coupler.coder.setup import Setup
    from coupler.coder.sub_agents import SubAgent

    Graph: TypeAlias = Pregel[Any, Any, Any, Any]
    Middleware: TypeAlias = AgentMiddleware[Any, Any, Any]

ORIGIN = ("coupler.coder", CODER)
"""What names the agent where LangChain's agents are named by their modules."""


def assembled(setup: Setup, workplace: Workplace, skills: Skills, store: str | None) -> Keyless:
    """The agent of a session."""
    keyring = Keyring()
    keyring.conceal(workplace.session, [*setup.models.values()])
    assembly = _Assembly(setup, workplace, skills, chat_models(setup.models, keyring), keyring)
    return Keyless(
        assembly.graph(),
        ORIGIN,
        setup.profile.name,
        look=Look(),
        store=store,
        keeps_cut_off=True,
        keys=keyring.concealed,
    )


class _Assembly:
    """Builds the agent of a session, and its sub-agents from the same parts."""

    def __init__(
        self,
        setup: Setup,
        workplace: Workplace,
        skills: Skills,
        models: Mapping[str, BaseChatModel],
        keyring: Keyring,
    ) -> None:
        self._setup = setup
        self._workplace = workplace
        self._skills = skills
        self._models = models
        self._keyring = keyring
        self._modes = mode_middleware(workplace.session, setup.profile, setup.mode, setup.profiles)
        workplace.sandbox.setting = setup.sandbox

    def graph(self) -> Graph:
        """The agent that talks to the user."""
        session = self._workplace.session
        talking = [*ask_tools(session), *plan_tools(session)]
        delegating = delegate_tools(self._for_sub_agent, session, self._setup.profile)
        tools = [*self._tools(), *talking, *delegating]
        news = JobNews(self._workplace.jobs)
        own = [SkillCommands(self._skills), news, acp.plan(), acp.models(self._models)]
        return self._made(self._setup.profile, self._models, tools, own)

    def _for_sub_agent(self, sub_agent: SubAgent) -> Graph:
        """An agent that works for that one."""
        models = self._models_of(sub_agent.profile)
        own = [acp.models(models)]
        return self._made(sub_agent.profile, models, [*self._tools()], own, sub_agent.middleware)

    def _models_of(self, profile: Profile) -> Mapping[str, BaseChatModel]:
        """Those of the session, unless a profile wants one of its own."""
        used = self._setup.profile
        wanted = profile.model, profile.base_url
        if wanted in ((None, None), (used.model, used.base_url)):
            return self._models
        session = self._workplace.session
        choice = chosen(session.project.config, profile)
        assert choice is not None, "the profile, or the session, has one"
        self._keyring.conceal(session, [choice])
        return chat_models({choice.name: choice}, self._keyring)

    def _made(
        self,
        profile: Profile,
        models: Mapping[str, BaseChatModel],
        tools: list[BaseTool],
        own: Sequence[Middleware],
        last: tuple[Middleware, ...] = (),
    ) -> Graph:
        model = next(iter(models.values()))
        middleware = [
            HooksMiddleware(profile.hooks),
            *own,
            TodoListMiddleware(),
            PromptMiddleware(self._skills, profile.system, profile.context),
            NestedInstructions(),
            KeptOutputs(self._workplace.outputs),
            acp.tools(),
            # Behind what adds tools: a mode says which of them there are.
            self._modes,
            *model_middleware(models, self._keyring),
            CompactionMiddleware(model),
            *last,
        ]
        return create_agent(model, tools, middleware=middleware, name=profile.name)

    def _tools(self) -> Iterator[BaseTool]:
        """What every agent of the session has."""
        place = self._workplace
        yield from file_tools(place.session)
        yield from shell_tools(place.session, place.jobs, place.outputs, place.sandbox)
        yield from fetch_tools(place.session)
        yield from skill_tools(self._skills)

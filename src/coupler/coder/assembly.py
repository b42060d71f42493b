"""Puts the LangChain agent of a session together from its parts.

The order of middleware is what each of them sees. Hooks come before permissions, so that nobody is asked
about what one forbids. What writes the system prompt and offers tools comes before what shortens the
conversation, which counts all that the model gets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Required, TypeAlias, cast

from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain.agents.middleware.types import AgentMiddleware, AgentState
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from coupler import acp
from coupler.coder.commands import COMMAND_PROMPTS
from coupler.coder.compaction import CompactionMiddleware
from coupler.coder.hooks import HooksMiddleware
from coupler.coder.model.chat_model import chat_models, model_middleware
from coupler.coder.model.choice import chosen_model
from coupler.coder.model.credentials import Keyring
from coupler.coder.model.middleware import KeyRedactingAgent, RequestSettings
from coupler.coder.model.repair import RefusedRequests
from coupler.coder.model.retries import ModelRetries
from coupler.coder.modes import mode_middleware
from coupler.coder.profiles import CODER, CoderProfile
from coupler.coder.prompt import NestedInstructions, PromptMiddleware
from coupler.coder.skills import SkillCommands, Skills, skill_tools
from coupler.coder.sub_agents import delegate_tools
from coupler.coder.tools.questions import ask_tools, plan_tools
from coupler.coder.tools.remember import memory_tools
from coupler.coder.tools.shell import shell_tools
from coupler.coder.tools.web import fetch_tools
from coupler.coder.tools.web_search import ModelSearchMiddleware, search_tools
from coupler.coder.turn_limits import TurnLimits
from coupler.coder.undo import UndoMiddleware
from coupler.coder.usage import count_answer
from coupler.langchain.editor_tools.tools import file_tools
from coupler.langchain.messages import DisplayOptions
from coupler.langchain.middleware import M, ToolHandler, with_text
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import BaseTool
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.pregel import Pregel

    from coupler.agent.session import Session
    from coupler.coder.agent import SessionResources
    from coupler.coder.setup import CoderSetup
    from coupler.coder.sub_agents import SubAgent
    from coupler.coder.tools.background_jobs import BackgroundJobs
    from coupler.coder.tools.outputs import SessionOutputs

if TYPE_CHECKING:
    Graph: TypeAlias = Pregel[Any, Any, Any, Any]
    Middleware: TypeAlias = AgentMiddleware[Any, Any, Any]

ORIGIN = ("coupler.coder", CODER)
"""Module and name of the agent, as for LangChain agents that a module defines."""

LONGEST = 30_000
"""Characters of a tool's result that a model gets whole."""

HEAD, TAIL = 10_000, 15_000
"""Characters of the beginning and of the end that a model gets of a longer result."""

IN_PARTS = frozenset({"read_file"})
"""Tools that page their results themselves, so that no whole result is kept in a file."""


def assembled(
    setup: CoderSetup, resources: SessionResources, skills: Skills, store: str | None
) -> KeyRedactingAgent:
    """Return the agent of a session."""
    keyring = Keyring()
    keyring.conceal(resources.session, [*setup.models.values()])
    assembly = _Assembly(setup, resources, skills, chat_models(setup.models, keyring), keyring)
    return KeyRedactingAgent(
        assembly.graph(),
        ORIGIN,
        setup.profile.name,
        look=DisplayOptions(),
        store=store,
        keys=keyring.concealed,
        count=_count,
    )


def _count(session: Session, model: str | None, answer: AIMessage) -> None:
    count_answer(
        session, model, cast("Mapping[str, Any] | None", answer.usage_metadata), answer.response_metadata
    )


class _Assembly:
    """Builds the agent of a session, and its sub-agents from the same parts."""

    def __init__(
        self,
        setup: CoderSetup,
        resources: SessionResources,
        skills: Skills,
        models: Mapping[str, BaseChatModel],
        keyring: Keyring,
    ) -> None:
        self._setup = setup
        self._resources = resources
        self._skills = skills
        self._models = models
        self._choices = {**setup.models}
        """The models that clients were made of, by their names."""
        self._keyring = keyring
        self._modes = mode_middleware(resources.session, setup.profile, setup.mode, setup.profiles)
        resources.sandbox.setting = setup.sandbox
        resources.sandbox.may_be_suggested = not setup.is_sandbox_set
        resources.session.withhold_secrets_from_commands(but=setup.environment)

    def graph(self) -> Graph:
        """Build the agent that talks to the user."""
        session = self._resources.session
        talking = [*ask_tools(session), *plan_tools(session)]
        delegating = delegate_tools(self._for_sub_agent, session, self._setup.profile)
        remembering = memory_tools(session) if self._setup.has_memory else []
        tools = [*self._tools(), *talking, *remembering, *delegating]
        news = JobNews(self._resources.jobs)
        chosen = [acp.models(self._models), self._settings_of(self._setup.profile, self._models)]
        own = [UndoMiddleware(), SkillCommands(self._skills, COMMAND_PROMPTS), news, acp.plan(), *chosen]
        return self._made(self._setup.profile, self._models, tools, own)

    def _for_sub_agent(self, sub_agent: SubAgent) -> Graph:
        """Build the agent of a sub-agent."""
        models = self._models_of(sub_agent.profile)
        own = [acp.models(models), self._settings_of(sub_agent.profile, models)]
        return self._made(sub_agent.profile, models, [*self._tools()], own, sub_agent.middleware)

    def _models_of(self, profile: CoderProfile) -> Mapping[str, BaseChatModel]:
        """Return the models of the session, unless a profile wants one of its own."""
        used = self._setup.profile
        wanted = profile.model, profile.base_url
        if wanted in ((None, None), (used.model, used.base_url)):
            return self._models
        session = self._resources.session
        choice = chosen_model(session.project.config, profile)
        assert choice is not None, "the profile, or the session, has one"
        self._keyring.conceal(session, [choice])
        self._choices[choice.name] = choice
        return chat_models({choice.name: choice}, self._keyring)

    def _settings_of(self, profile: CoderProfile, models: Mapping[str, BaseChatModel]) -> RequestSettings:
        """Return the settings of a profile; those that it does not have are the session's."""
        is_own = profile.name == self._setup.profile.name
        settings = profile.settings.or_else(self._setup.settings)
        return RequestSettings(
            models, self._choices, settings, effort=None if is_own else profile.settings.effort
        )

    def _made(
        self,
        profile: CoderProfile,
        models: Mapping[str, BaseChatModel],
        tools: list[BaseTool],
        own: Sequence[Middleware],
        last: tuple[Middleware, ...] = (),
    ) -> Graph:
        model = next(iter(models.values()))
        middleware = [
            # Sees the results of tools as they are stored.
            TurnLimits(
                profile.max_model_calls or self._setup.max_model_calls, self._resources.outputs.directory
            ),
            HooksMiddleware(profile.hooks),
            *own,
            TodoListMiddleware(),
            PromptMiddleware(
                self._skills, profile.system, profile.context, has_memory=self._setup.has_memory
            ),
            NestedInstructions(),
            KeptOutputs(self._resources.outputs),
            acp.tools(mcp_wait=self._setup.mcp_wait_seconds),
            # Behind what adds tools: a mode says which of them there are.
            self._modes,
            ModelSearchMiddleware(models, self._choices, self._setup.search),
            *model_middleware(models, self._keyring),
            # Before compaction, which counts what is sent and may find a conversation too long.
            RefusedRequests(),
            CompactionMiddleware(model, self._setup.retry_seconds),
            ModelRetries(self._setup.retry_seconds),
            *last,
        ]
        return create_agent(
            model, tools, middleware=middleware, state_schema=conversation_state(), name=profile.name
        )

    def _tools(self) -> Iterator[BaseTool]:
        """Return the tools that every agent of the session has."""
        place = self._resources
        yield from file_tools(place.session)
        yield from shell_tools(place.session, place.jobs, place.outputs, place.sandbox)
        yield from fetch_tools(place.session)
        yield from search_tools(place.session, self._setup.search)
        yield from skill_tools(self._skills)


class KeptOutputs(AgentMiddleware[Any, Any, Any]):
    """Cuts what any tool returns to what a model can take, and keeps the whole in a file.

    The tools of MCP servers and delegates return as much as they like. A model that gets all of it has no
    room for anything else; one that gets the beginning, the end and the name of a file looks up what it
    needs.
    """

    def __init__(self, outputs: SessionOutputs) -> None:
        super().__init__()
        self._outputs = outputs

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        """Run the tool, and shorten what it returns."""
        result = await handler(request)
        if not isinstance(result, ToolMessage) or request.tool_call["name"] in IN_PARTS:
            return result
        content = await self._shortened(result.content, request.tool_call["name"])
        return result if content is result.content else result.model_copy(update={"content": content})

    async def _shortened(self, content: Any, tool: str) -> Any:
        """Return the content with texts cut that are too long; the very same if there are none."""
        if isinstance(content, str):
            return await self._shortened_text(content, tool)
        if not isinstance(content, list):
            return content
        blocks = [await self._shortened_block(block, tool) for block in content]
        is_same = all(new is old for new, old in zip(blocks, content, strict=True))
        return content if is_same else blocks

    async def _shortened_block(self, block: Any, tool: str) -> Any:
        if isinstance(block, str):
            return await self._shortened_text(block, tool)
        if isinstance(block, dict) and isinstance(text := block.get("text"), str):
            short = await self._shortened_text(text, tool)
            return block if short is text else {**block, "text": short}
        return block

    async def _shortened_text(self, text: str, tool: str) -> str:
        if len(text) <= LONGEST:
            return text
        path = await in_thread(lambda: self._outputs.keep(text, tool))
        left_out = len(text) - HEAD - TAIL
        return f"{text[:HEAD]}\n[… {left_out:,} characters left out …]\n{text[-TAIL:]}\n({_whole(path)})"


def _whole(path: str | None) -> str:
    if path is None:
        return "this is the beginning and the end; the rest could not be kept"
    return f"this is the beginning and the end: all of it is in {path}, which read_file and search can read"


class JobNews(AgentMiddleware[Any, Any, Any]):
    """Tells the model which background jobs have ended, with the next prompt or a tool's result.

    The news is put into a message that is there anyway: two messages of the user in a row, or one in the
    middle of a turn, are more than the templates of some models take.
    """

    def __init__(self, jobs: BackgroundJobs) -> None:
        super().__init__()
        self._jobs = jobs

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Add the jobs that have ended since the last turn to the prompt."""
        messages = state["messages"]
        if not messages or not isinstance(messages[-1], HumanMessage):
            return None
        news = self._jobs.take_news()
        # A message with the same id takes the place of the one that is there.
        return {"messages": [_with(messages[-1], news)]} if news else None

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        """Run the tool, and add the jobs that have ended meanwhile to its result."""
        result = await handler(request)
        if not isinstance(result, ToolMessage):
            return result
        news = self._jobs.take_news()
        return _with(result, news) if news else result


def _with(message: M, news: str) -> M:
    return with_text(message, f"[Note of Coupler, not of the user: {news}]")


def conversation_state() -> type[AgentState[Any]]:
    """Return the type of the state of an agent with one conversation."""
    messages = Required[Annotated[list[AnyMessage], AddMessages().add]]
    fields = {**AgentState.__annotations__, "messages": messages}
    return cast("type[AgentState[Any]]", TypedDict("ConversationState", fields))  # type: ignore[operator]


class AddMessages:
    """Adds messages to those of a state, as LangGraph's `add_messages`; for the state of one conversation.

    LangGraph looks at every message four times a step. Here the messages before are not looked at as long as
    only others come after them.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[list[Any], set[str]]] = deque(maxlen=4)
        """Lists of messages that were made, with the ids of their messages."""

    def add(self, left: Any, right: Any) -> Any:
        """Return the messages of the left with those of the right."""
        ids = next((ids for known, ids in self._recent if known is left and len(ids) == len(known)), None)
        if ids is not None and _comes_after(right, ids):
            added: Any = add_messages([], right)
            merged, ids = [*left, *added], {*ids, *(message.id for message in added)}
        else:
            merged = add_messages(left, right)  # type: ignore[assignment]
            ids = {message.id for message in merged}
        self._recent.append((merged, ids))
        return merged


def _comes_after(messages: Any, ids: Container[str]) -> bool:
    """Return whether none of the messages stands for one with these ids, or removes any."""
    return all(
        isinstance(message, AIMessage | ToolMessage | HumanMessage) and message.id not in ids
        for message in (messages if isinstance(messages, list) else [messages])
    )

"""The tool `delegate`: gives a task to a sub-agent or another agent, whose report is the result.

The call shows who has it, what it is, how it ended and after how many turns; what is said and done meanwhile
is nested below it. Several can work at once, and a cancel ends all of them. Another program is started only
if the session's engine allows it, or the user does.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ToolCallRequest, hook_config
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from msgspec import structs

from coupler.agent.errors import describe
from coupler.coder.other_agents import DELEGATED, DelegatedTask, OtherAgent, RemoteTask, TaskOutcome
from coupler.coder.profiles import (
    CODER,
    DEFAULT_PROFILE,
    READ_ONLY_MODES,
    CoderProfile,
    ProfileError,
    profile_names,
    profile_of,
)
from coupler.coder.tools.outputs import one_line
from coupler.config.agent_tables import HookEvent
from coupler.langchain.current import current, further_rules
from coupler.langchain.editor_tools.tool_use import running_prompt, session_tool, tool_use
from coupler.langchain.errors import failure_of
from coupler.langchain.middleware import ModelHandler, ToolHandler, ToolResult, requested_tool, with_prompt
from coupler.langchain.permission import refusal_message
from coupler.langchain.presentation import kind_of, tool_metadata
from coupler.langchain.tool_guard import guarded
from coupler.permission.action import READING_KINDS
from coupler.permission.rules import Rule
from coupler.providers.catalogue import is_coder, is_installed, is_native_available, merged_entries

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel

    from coupler.agent.session import Session
    from coupler.config import Config
    from coupler.config.agent_tables import AgentTable
    from coupler.langchain.current import Current
    from coupler.langchain.presentation import TitleArguments
    from coupler.providers.catalogue import CatalogueEntry

log = logging.getLogger("coupler.coder")

Graph: TypeAlias = "Pregel[Any, Any, Any, Any]"
MakeGraph: TypeAlias = "Callable[[SubAgent], Graph]"
"""Builds the graph of a sub-agent."""

LONGEST_TASK = 20_000
"""Characters of a task."""

LONGEST_SHOWN = 4000
"""Characters of a task that a permission request shows."""

LONGEST_TITLE = 100
"""Characters of a task in a title."""

LONGEST_DESCRIPTION = 150
"""Characters of one agent's description."""

MOST_AT_ONCE = 4
"""Tasks of one session that are worked on at the same time; others wait."""

MOST_LINES = 40
"""Agents that are listed for the model; others it can name all the same."""

MOST_TURNS = 60
"""Model calls of a sub-agent for one task, at most."""

STEPS_A_TURN = 40
"""Steps of the graph that one turn may take: one for each node, and middleware has some."""

EXPLORE = "explore"
"""The sub-agent that only reads."""

CONNECTION_FORMS = ("", "acp", "native")

TOOL_EVENTS: tuple[HookEvent, ...] = ("before_tool", "after_tool")
"""Hook events that sub-agents have: sessions and turns belong to the agent that talks to the user."""

NOT_FOR_SUB_AGENTS = frozenset({"delegate", "ask_user", "present_plan"})
"""Tools that only the agent that talks to the user has."""

LOOKING_KINDS = frozenset({*READING_KINDS, "fetch"})
"""Kinds of tools that a read-only sub-agent has."""

_OWN_DESCRIPTIONS = {
    CODER: "works as you do, with the same tools and permissions, and knows only the task that you write",
    EXPLORE: "the same, but it only reads and searches: for questions about the code that take many looks",
}

PROMPT = (
    "You are a sub-agent: another agent has given you one task, and the user does not see what you say. "
    "Nobody answers questions. Do the task and nothing else, as far as it can be done; where something is "
    "open, choose the most sensible way and say so. Your last message is your report, and all that the other "
    "agent gets: what you have found or changed, with paths and lines, how you have checked it, and what is "
    "left or went wrong."
)

READ_ONLY_PROMPT = (
    "You only look: you can read and search, and change nothing. Report what is there, and what you did not "
    "find."
)

LAST_TURN = (
    "You have used all turns for this task. Call no tools any more: report now what you have found or done, "
    "and what is left."
)


def delegate_tools(
    make_graph: MakeGraph, session: Session, profile: CoderProfile = DEFAULT_PROFILE
) -> list[BaseTool]:
    """Return the tool to give a task away; nothing in an agent that works for another one itself.

    `make_graph` puts the coder together for a sub-agent. `profile` is that of the agent which has the tool:
    its sub-agents are set up in the same way. Nothing is read but which programs there are.
    """
    if os.environ.get(DELEGATED):
        return []
    desk = _DelegateTool(make_graph, session, profile)
    tool = session_tool(desk.delegate, "think", session, title=_title_of)
    tool.description = f"{tool.description}\n\nAgents:\n" + "\n".join(desk.roster.lines())
    return [tool]


class _DelegateTool:
    """The `delegate` tool of one session."""

    def __init__(self, make_graph: MakeGraph, session: Session, profile: CoderProfile) -> None:
        self.roster = Roster(session.project.config, profile)
        self._make_graph = make_graph
        self._session = session
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def delegate(
        self,
        task: Annotated[
            str,
            "All that the agent has to know: what to do, where, what counts as done, and what to report. It "
            "sees nothing of this conversation.",
        ],
        agent: Annotated[str, "The name of the agent."] = CODER,
    ) -> tuple[str, Any]:
        """Give a task to another agent, and get its report.

        For work that would fill your own context, such as a search through much code, for parts that can be
        done side by side (call this several times at once), and where the user names an agent. The agent
        works with the permissions of this session. The user does not see its report: tell what matters.
        """
        task = _checked(task)
        name = agent.strip() or CODER
        who = self._found(name)
        prompt = running_prompt()
        title = f"{name}: {one_line(task, LONGEST_TITLE)}"
        await self._permitted(who, name, task, title)
        work = self._work(who, name, prompt)
        try:
            async with self._places:
                outcome = await work.done(task)
        except asyncio.CancelledError:
            _tell(TaskOutcome("cancelled", "", work.turns, "cancelled"), name, title, prompt)
            raise
        return _settled(outcome, name, title, prompt)

    def _found(self, name: str) -> CoderProfile | OtherAgent:
        try:
            return self.roster.find(name)
        except ProfileError as error:
            raise ValueError(str(error)) from None

    async def _permitted(self, who: CoderProfile | OtherAgent, name: str, task: str, title: str) -> None:
        """Go on only if the task may be given away; raises what the model reads.

        A sub-agent asks for each thing that it does. Another program may do things on its own: that it is
        started is a question of its own, which a rule answers as `tool:delegate_to_NAME`.
        """
        async with tool_use("Delegate to", "think", about=title) as use:
            await use.ask()
        if isinstance(who, CoderProfile):
            return
        if self._session.mode in READ_ONLY_MODES:
            raise ValueError(
                f"{name} is another program, and may change things: in this mode only sub-agents can look"
            )
        prompt = running_prompt()
        if prompt.call_id is not None:
            # Who decided about the use of the tool has not decided who is started.
            prompt.calls.permitted.discard(prompt.call_id)
        rule_name = f"delegate_to_{name.replace(':', '_')}"
        async with tool_use("Delegate to", "execute", about=title, name=rule_name) as use:
            await use.block.describe(f"{task[:LONGEST_SHOWN]}\n\n")
            await use.ask()

    def _work(self, who: CoderProfile | OtherAgent, name: str, prompt: Current) -> DelegatedTask:
        denials = profile_denials(name, who.deny)
        if isinstance(who, CoderProfile):
            is_read_only = self.roster.is_explorer(name) or who.mode in READ_ONLY_MODES
            limits = SubAgentMiddleware(is_read_only=is_read_only, denials=denials)
            return SubAgentTask(SubAgent(name, who, is_read_only, (limits,)), self._make_graph, limits)
        if prompt.call_id is None:
            raise ToolException("other agents work for calls of a model only")
        return RemoteTask(who, prompt, prompt.call_id, denials)


def _settled(outcome: TaskOutcome, name: str, title: str, prompt: Current) -> tuple[str, Any]:
    """Return the results for the model and for programs; a failed task ends its call and raises."""
    _tell(outcome, name, title, prompt)
    text, key = outcome.for_model(name), prompt.call_id
    if outcome.status != "failed":
        return text, outcome.for_programs(name)
    if key is not None and prompt.calls.is_open(key):
        prompt.calls.settle(key, "failed", output=outcome.for_programs(name), reason=text)
    raise ToolException(text)


def _tell(outcome: TaskOutcome, name: str, title: str, prompt: Current) -> None:
    """Show the outcome in the title and raw output of the open call."""
    key = prompt.call_id
    if key is not None and prompt.turn.is_alive and prompt.calls.is_open(key):
        prompt.session.outlet.ledger.update(
            prompt.calls.client_id(key),
            title=f"Delegate to {title} ({outcome.in_short})",
            raw_output=outcome.for_programs(name),
        )


def _title_of(told: TitleArguments) -> str | None:
    task = told.text("task")
    return (
        None
        if task is None
        else f"Delegate to {told.text('agent') or CODER}: {one_line(task, LONGEST_TITLE)}"
    )


def _checked(task: str) -> str:
    task = inspect.cleandoc(task).strip()
    if not task:
        raise ValueError("the task is empty: write what is to be done")
    if len(task) > LONGEST_TASK:
        raise ValueError(
            f"the task is too long: write {LONGEST_TASK} characters at most, and name files to be read"
        )
    return task


class Roster:
    """The agents that a task can be given to: the coder, its profiles, and the agents installed here.

    Only names count that the user or a trusted project has set, or that the catalogue knows: a model can
    start no command line. Nothing is started for the list, and agents that would have to be fetched first are
    not in it.
    """

    def __init__(self, config: Config, own: CoderProfile) -> None:
        """Prepare the list for an agent that delegates; `own` is its profile."""
        self._config = config
        self._own = own
        self._tables: Mapping[str, AgentTable] = {table.name: table for table in config.agents}
        self._entries = merged_entries(config)
        self._profiles = profile_names(config)

    def lines(self) -> Iterator[str]:
        """Return a line for each agent that can be had at once, with what it is for."""
        for name in self.names()[:MOST_LINES]:
            yield one_line(f"- {name}: {self._described(name)}", LONGEST_DESCRIPTION)

    def names(self) -> list[str]:
        """Their names: first ours, then profiles, then other programs."""
        others = [
            name for name, entry in self._entries.items() if not self._is_ours(name) and _is_here(entry)
        ]
        return [*dict.fromkeys([CODER, EXPLORE, *self._profiles, *others])]

    def find(self, name: str) -> CoderProfile | OtherAgent:
        """The agent of a name; ValueError tells the model which ones there are."""
        base, _, form = name.partition(":")
        if name == CODER or self.is_explorer(name):
            return as_sub_agent(self._own, self._own)
        if name in self._profiles:
            return as_sub_agent(profile_of(name, self._config), self._own)
        if base in self._entries and not self._is_ours(base) and form in CONNECTION_FORMS:
            return OtherAgent.of(name, self._entries[base].title, self._tables)
        raise ValueError(self._unknown(name))

    def is_explorer(self, name: str) -> bool:
        """True if this is the sub-agent that only reads, and not something else that is called so."""
        return name == EXPLORE and name not in self._entries

    def _is_ours(self, name: str) -> bool:
        return name in self._profiles or is_coder(self._entries[name])

    def _described(self, name: str) -> str:
        if name in _OWN_DESCRIPTIONS and (name == CODER or self.is_explorer(name)):
            return _OWN_DESCRIPTIONS[name]
        entry = self._entries[name]
        table = self._tables.get(name)
        what = (table.system or "").strip() if table is not None else ""
        kind = "a profile of coder" if name in self._profiles else "another program"
        title = entry.title if entry.title != name and not is_coder(entry) else ""
        return ", ".join(filter(None, [title, kind])) + (f": {what}" if what else "")

    def _unknown(self, name: str) -> str:
        names = [*dict.fromkeys([*self.names(), *self._entries])]
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.names())}"
        return f"there is no agent {name[:100]!r}: {hint}"


def as_sub_agent(profile: CoderProfile, giver: CoderProfile) -> CoderProfile:
    """Return a profile for a sub-agent: what the giver of the task denies and checks holds there as well."""
    hooks = {
        event: tuple(dict.fromkeys((*giver.hooks.get(event, ()), *profile.hooks.get(event, ()))))
        for event in TOOL_EVENTS
    }
    deny = tuple(dict.fromkeys((*giver.deny, *profile.deny)))
    return structs.replace(
        profile, hooks={event: lines for event, lines in hooks.items() if lines}, deny=deny
    )


def _is_here(entry: CatalogueEntry) -> bool:
    return any(is_installed(command[0]) for command in entry.programs) or is_native_available(entry)


class SubAgentTask:
    """One task of one sub-agent: a graph of its own inside of the tool call, in the same session.

    It knows nothing of the conversation. What its models say and its tools do is nested below the call that
    is running, because it runs in there. The middleware `limits` keeps it within its bounds.
    """

    def __init__(self, sub_agent: SubAgent, make_graph: MakeGraph, limits: SubAgentMiddleware) -> None:
        self._sub_agent = sub_agent
        self._make_graph = make_graph
        self._limits = limits
        self._said = ""

    @property
    def turns(self) -> int:
        return self._limits.turns

    async def done(self, task: str) -> TaskOutcome:
        """Run the task; what interrupts the graph around this one is raised as well."""
        try:
            await self._run(task)
        except GraphBubbleUp:
            raise
        except Exception as error:
            return self._failed(error)
        if self._limits.is_stopped:
            return TaskOutcome("stopped", self._said, self.turns, "max_turn_requests")
        return TaskOutcome("completed", self._said, self.turns, "end_turn")

    async def _run(self, task: str) -> None:
        # Without a checkpointer: what a sub-agent knows ends with its task.
        graph = guarded(self._make_graph(self._sub_agent)).copy({"checkpointer": False})
        steps: RunnableConfig = {"recursion_limit": STEPS_A_TURN * (self._limits.most_turns + 1)}
        given = {"messages": [HumanMessage(task)]}
        async for values in graph.astream(given, steps, stream_mode="values"):
            self._said = _last_said(values) or self._said

    def _failed(self, error: Exception) -> TaskOutcome:
        failure = failure_of(error)
        reason = failure.message if failure is not None else describe(error)
        log.warning("the sub-agent %s failed: %s", self._sub_agent.name, reason)
        report = f"{reason}\n\nBefore that it said:\n{self._said}" if self._said else reason
        return TaskOutcome("failed", report, self.turns)


def _last_said(values: Any) -> str:
    """The last text of the model."""
    messages = values.get("messages") if isinstance(values, dict) else None
    for message in reversed(messages or []):
        if isinstance(message, AIMessage) and message.text.strip():
            return str(message.text)
    return ""


class SubAgent(NamedTuple):
    """The parts of a sub-agent's graph; `middleware` comes after the coder's own."""

    name: str
    profile: CoderProfile
    is_read_only: bool
    middleware: tuple[AgentMiddleware[Any, Any, Any], ...]


class SubAgentMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps one sub-agent at one task within its bounds. It has to be the last of all middleware.

    A sub-agent has the tools, the mode and the permissions of the session, and never more. It cannot ask the
    user, give work to others or change the mode, and it has so many turns and no more; in the last one it has
    to report. Behind all others, this sees every tool that they have added, and what they want of the model.
    """

    def __init__(self, *, is_read_only: bool, denials: Sequence[Rule]) -> None:
        super().__init__()
        self.turns = 0
        """Times that the model was asked."""
        self.is_stopped = False
        """True if it was ended before it was done."""
        self._is_read_only = is_read_only
        self._denials = tuple(denials)
        self.most_turns = MOST_TURNS

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Count the turn, and end the sub-agent after its last one."""
        if self.turns >= self.most_turns:
            return {"jump_to": "end"}
        self.turns += 1
        self.is_stopped = self.turns == self.most_turns
        served = current()
        if served is not None and self.turns > 1:
            _begin_paragraph(served)
        return None

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """Call the model with the sub-agent's prompt and tools."""
        tools = [tool for tool in request.tools if self._offers(tool)]
        prompt = f"{PROMPT}\n\n{READ_ONLY_PROMPT}" if self._only_reads else PROMPT
        changes: dict[str, Any] = {
            "system_message": with_prompt(request.system_message, prompt),
            "tools": [] if self.is_stopped else tools,
        }
        if self.is_stopped:
            changes["messages"] = [*request.messages, HumanMessage(LAST_TURN)]
        if not changes["tools"]:
            changes["tool_choice"] = None
        return await handler(request.override(**changes))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        """Run a tool if the sub-agent has it; models also call others."""
        served = current()
        call = request.tool_call
        tool = request.tool if served is None else requested_tool(served, request)
        if self.is_stopped:
            return refusal_message(call, "all turns for this task are used")
        if tool is not None and not self._offers(tool):
            return _refused(served, request, "a sub-agent does not have this tool")
        token = further_rules.set((*further_rules.get(), *self._denials))
        try:
            return await handler(request)
        finally:
            further_rules.reset(token)

    def _offers(self, tool: BaseTool | dict[str, Any]) -> bool:
        if not isinstance(tool, BaseTool):  # a tool of the provider's own
            name = str(tool.get("name") or tool.get("type") or "")
            return not self._only_reads or kind_of(name, None) in LOOKING_KINDS
        if tool.name in NOT_FOR_SUB_AGENTS:
            return False
        # What a server claims of its tools earns them nothing.
        is_reading = kind_of(tool.name, tool) in LOOKING_KINDS and "server" not in tool_metadata(tool)
        return is_reading or not self._only_reads

    @property
    def _only_reads(self) -> bool:
        """True if it may change nothing: because it is read-only, or because of the session's mode."""
        served = current()
        return self._is_read_only or (served is not None and served.session.mode in READ_ONLY_MODES)


def _refused(served: Current | None, request: ToolCallRequest, reason: str) -> ToolMessage:
    call = request.tool_call
    if served is not None:
        parent = served.call_id
        key = served.calls.key(call["id"] or "", parent)
        served.calls.announce(key, call["name"], dict(call["args"]), parent=parent)
    return refusal_message(call, reason)


def _begin_paragraph(served: Current) -> None:
    """Separate what it says next from what it said before."""
    key = served.call_id
    if key is not None and served.calls.is_open(key):
        served.calls.append(key, "\n\n")


def profile_denials(agent: str, rules: Sequence[str]) -> tuple[Rule, ...]:
    """Parse the rules of a profile that deny its agent more than the session does, as in `permissions.deny`.

    They can only take away. Raises ValueError for a rule that is wrong.
    """
    return tuple(Rule.parse("deny", text, f"the profile {agent}") for text in rules)

"""`delegate`: a task for somebody else, whose report is the result.

The call shows who has it, what it is, how it ended and after how many turns; what is said and done meanwhile
is nested below it. Several can work at once, and a cancel ends all of them. Another program is started only
if the session's engine allows it, or the user does.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.tools import BaseTool, ToolException

from coupler.coder.delegation.denials import Denials
from coupler.coder.delegation.in_process import MakeGraph, SubAgentWork
from coupler.coder.delegation.other_agent import OtherAgent
from coupler.coder.delegation.outcome import Outcome, Work
from coupler.coder.delegation.roster import Roster
from coupler.coder.delegation.sub_agent import SubAgent, SubAgentMiddleware
from coupler.coder.offered_modes import LOOKING
from coupler.coder.profile import CODER, USUAL, Profile, ProfileError
from coupler.coder.shortening import one_line
from coupler.langchain.editor_tools.tool_use import running_prompt, session_tool, tool_use

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.langchain.current import Current
    from coupler.langchain.presentation import Told

LONGEST_TASK = 20_000
"""Characters of a task."""

LONGEST_SHOWN = 4000
"""Characters of a task that whoever is asked about it is shown."""

LONGEST_LINE = 100
"""Characters of a task in a title."""

MOST_AT_ONCE = 4
"""Tasks of one session that are worked on at the same time; others wait."""


def delegate_tools(make_graph: MakeGraph, session: Session, profile: Profile = USUAL) -> list[BaseTool]:
    """The tool to give a task to somebody else; nothing in an agent that works for another one itself.

    `make_graph` puts the coder together for a sub-agent. `profile` is that of the agent which has the tool:
    its sub-agents are set up in the same way. Nothing is read but which programs there are.
    """
    # Imported on use: what starts other programs is not needed to offer it.
    from coupler.coder.delegation.remote import DELEGATED

    if os.environ.get(DELEGATED):
        return []
    desk = _Desk(make_graph, session, profile)
    tool = session_tool(desk.delegate, "think", session, title=_title_of)
    tool.description = f"{tool.description}\n\nAgents:\n" + "\n".join(desk.roster.lines())
    return [tool]


class _Desk:
    """Gives out the tasks of one session."""

    def __init__(self, make_graph: MakeGraph, session: Session, profile: Profile) -> None:
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
        title = f"{name}: {one_line(task, LONGEST_LINE)}"
        await self._permitted(who, name, task, title)
        work = self._work(who, name, prompt)
        try:
            async with self._places:
                outcome = await work.done(task)
        except asyncio.CancelledError:
            _tell(Outcome("cancelled", "", work.turns, "cancelled"), name, title, prompt)
            raise
        return _settled(outcome, name, title, prompt)

    def _found(self, name: str) -> Profile | OtherAgent:
        try:
            return self.roster.find(name)
        except ProfileError as error:
            raise ValueError(str(error)) from None

    async def _permitted(self, who: Profile | OtherAgent, name: str, task: str, title: str) -> None:
        """Go on only if the task may be given away; raises what the model reads.

        A sub-agent asks for each thing that it does. Another program may do things on its own: that it is
        started is a question of its own, which a rule answers as `tool:delegate_to_NAME`.
        """
        async with tool_use("Delegate to", "think", about=title) as use:
            await use.ask()
        if isinstance(who, Profile):
            return
        if self._session.mode in LOOKING:
            raise ValueError(
                f"{name} is another program, and may change things: in this mode only sub-agents can look"
            )
        prompt = running_prompt()
        if prompt.call_id is not None:
            # Who decided about the use of the tool has not decided who is started.
            prompt.calls.permitted.discard(prompt.call_id)
        rule_name = f"delegate_to_{name.replace(':', '_')}"
        async with tool_use("Delegate to", "execute", about=title, name=rule_name) as use:
            await use.block.output(f"{task[:LONGEST_SHOWN]}\n\n")
            await use.ask()

    def _work(self, who: Profile | OtherAgent, name: str, prompt: Current) -> Work:
        denials = Denials(name, who.deny, self._session.project.directory)
        if isinstance(who, Profile):
            is_read_only = self.roster.is_explorer(name) or who.mode in LOOKING
            limits = SubAgentMiddleware(is_read_only=is_read_only, denials=denials)
            return SubAgentWork(SubAgent(name, who, is_read_only, (limits,)), self._make_graph, limits)
        from coupler.coder.delegation.remote import RemoteWork

        if prompt.call_id is None:
            raise ToolException("other agents work for calls of a model only")
        return RemoteWork(who, prompt, prompt.call_id, denials)


def _settled(outcome: Outcome, name: str, title: str, prompt: Current) -> tuple[str, Any]:
    """What the model and programs get; a call that failed is ended here, with all that is to be told."""
    _tell(outcome, name, title, prompt)
    text, key = outcome.for_model(name), prompt.call_id
    if outcome.status != "failed":
        return text, outcome.for_programs(name)
    if key is not None and prompt.calls.is_open(key):
        prompt.calls.settle(key, "failed", output=outcome.for_programs(name), reason=text)
    raise ToolException(text)


def _tell(outcome: Outcome, name: str, title: str, prompt: Current) -> None:
    """Show how it went, in the call that is still open."""
    key = prompt.call_id
    if key is not None and prompt.turn.is_alive and prompt.calls.is_open(key):
        prompt.session.outlet.ledger.update(
            prompt.calls.client_id(key),
            title=f"Delegate to {title} ({outcome.in_short})",
            raw_output=outcome.for_programs(name),
        )


def _title_of(told: Told) -> str | None:
    task = told.text("task")
    return (
        None if task is None else f"Delegate to {told.text('agent') or CODER}: {one_line(task, LONGEST_LINE)}"
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

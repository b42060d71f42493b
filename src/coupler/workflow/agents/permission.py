"""Decides what the agent of a step may do: by rules, by earlier choices of the user, or by asking.

What a rule wants to be asked about is always asked. What no rule decides is asked where somebody is there,
and denied elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec.structs import replace

from coupler.agent.permission import NOT_BY_THE_USER, rules_of
from coupler.client.actions import UNREADABLE, action_of
from coupler.client.errors import AgentError
from coupler.client.policy import Decision, PermissionRequest, Policy
from coupler.events import ToolCall
from coupler.mcp.functions import text_result
from coupler.mcp.package import load_loopback
from coupler.mcp.servers import ServerEnvironment, SessionServers, server_name
from coupler.mcp.tool_names import qualified_name
from coupler.mcp.tools import McpError, Tool, ToolResult
from coupler.permission.action import GRANTED, Grants, option_for
from coupler.permission.decision import Permission, Permissions, nobody
from coupler.permission.rules import Rule
from coupler.providers.command_line import READ_ONLY
from coupler.runtime.exceptions import exception_text
from coupler.schema.v1 import Content, McpServer, ToolCallLocation
from coupler.workflow.agents.agent_events import MOST_SHOWN, Telling, shortened
from coupler.workflow.agents.editor_access import diff_for_write
from coupler.workflow.engine.front import PermissionQuestion, span, visible
from coupler.workflow.engine.performers import ask_approval
from coupler.workflow.errors import CallDenied, Parked, StepError
from coupler.workflow.journal.run_events import Noted
from coupler.workflow.language.model import ApprovalGate, ToolRuleTexts

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.config import Config
    from coupler.permission.action import Action
    from coupler.permission.decision import Verdict
    from coupler.permission.offers import Choices
    from coupler.workflow.agents.agents import HeldSession
    from coupler.workflow.agents.editor_access import FileOperation
    from coupler.workflow.engine.attempt import Attempt


log = logging.getLogger("coupler.workflow")

NOT_IN_TURN = "not permitted: no step waits for the agent"

GiveUp = Callable[[Parked | CallDenied], None]
"""Ends the agent's turn, because the run is parked, or a denied call ends the step."""


class StepPolicy(Policy):
    """Decides about the permission requests of a step's agent as its prompt does."""

    def __init__(self, judging: Judging) -> None:
        super().__init__(None)
        self._judging = judging

    async def decide(self, request: PermissionRequest) -> Decision:
        """Decide about a request, and say what would allow it unless the user has rejected it."""
        permission = await self._judging.permit(request)
        option = option_for(request.options, is_given=permission.is_given)
        if permission.is_given or permission.is_answered or permission.verdict is None:
            return Decision(request.tool_call, option)
        return Decision(request.tool_call, option, remedy(permission.verdict))


class Judging:
    """Decides about the tool calls of one prompt, while its turn runs (the exchange sets `is_in_turn`)."""

    def __init__(
        self,
        session: RemoteSession,
        attempt: Attempt,
        rules: ToolRules,
        gate: ApprovalGate,
        telling: Telling,
        give_up: GiveUp,
    ) -> None:
        self.is_in_turn = False
        """True while the turn runs; what the agent asks outside of it belongs to no step."""
        self._session = session
        self._attempt = attempt
        self._rules = rules
        self._gate = gate
        self._telling = telling
        self._give_up = give_up
        self._grants = Grants()
        self._granted_calls: list[tuple[str | None, str | None, Any]] = []
        """The calls to MCP servers that the user has allowed and that have not arrived there yet."""
        self._open: set[asyncio.Future[Permission]] = set()

    @cached_property
    def _permissions(self) -> Permissions:
        """Decides; made at the first request of the agent."""
        cwd = self._session.cwd
        return self._rules.permissions(self._attempt.agents.choices_in(cwd), cwd)

    async def permit(self, request: PermissionRequest) -> Permission:
        """Decide about a permission request."""
        if not self.is_in_turn:
            return Permission(False, NOT_IN_TURN)
        return await self._permissions.decide(action_of(request), lambda verdict: self._ask(request, verdict))

    async def may_call(self, request: PermissionRequest) -> bool:
        """Decide about a call to an MCP server of the agent's; it may pass unless a rule is against it."""
        return (await self._permit_unless_ruled(request)).is_given

    async def may_touch(self, touch: FileOperation, path: str, text: str | None) -> bool:
        """Decide about a file that is read or written without a permission request."""
        title = f"{'Read' if touch == 'read' else 'Write'} {path}"
        request = self._request(ToolCall(id="", title=title, kind=touch, locations=(ToolCallLocation(path),)))
        permission = await self._permit_unless_ruled(request, text)
        if not permission.is_given:
            self._tell_denied(request, permission)
        return permission.is_given

    async def may_show(self, url: str) -> bool:
        """Decide whether a page may be shown to the user, who is asked in any case."""
        request = self._request(ToolCall(id="", title=f"Open {url}", kind="fetch", raw_input={"url": url}))
        if not self.is_in_turn:
            return False
        permission = await self._permissions.decide(action_of(request), _shown_anyway)
        if not permission.is_given:
            self._tell_denied(request, permission)
        return permission.is_given

    def end(self) -> None:
        """Take back all questions, because the turn is over."""
        self.is_in_turn = False
        self._give_up = _too_late
        for asking in self._open:
            asking.cancel()

    def _request(self, call: ToolCall) -> PermissionRequest:
        return PermissionRequest.of(self._session, call)

    async def _permit_unless_ruled(self, request: PermissionRequest, text: str | None = None) -> Permission:
        """Decide about something that is no permission request: `text` is what is written to its file."""
        if not self.is_in_turn:
            return Permission(False, NOT_IN_TURN)
        action = action_of(request)

        async def ask(verdict: Verdict) -> Permission:
            if self._grants.include(action):
                return Permission(True, GRANTED)
            if (call := _call_of(request)) in self._granted_calls:
                self._granted_calls.remove(call)  # the agent has asked, and now does it
                return Permission(True, GRANTED)
            return await self._ask_meanwhile(await self._with_change(request, text), verdict)

        return await self._permissions.decide(action, ask, unruled="allow")

    async def _with_change(self, request: PermissionRequest, text: str | None) -> PermissionRequest:
        [location, *_] = request.tool_call.locations or [None]
        if text is None or location is None:
            return request
        change = await diff_for_write(location.path, text, self._session, self._attempt.front.files)
        if change is None:
            return request
        return replace(request, tool_call=replace(request.tool_call, content=(change,)))

    async def _ask_meanwhile(self, request: PermissionRequest, verdict: Verdict) -> Permission:
        """Ask about something that is no permission request; the question is withdrawn when the turn ends."""
        asking = asyncio.ensure_future(self._ask(request, verdict))
        self._open.add(asking)
        try:
            return await asking
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            return Permission(False, NOT_IN_TURN)
        finally:
            self._open.discard(asking)

    async def _ask(self, request: PermissionRequest, verdict: Verdict) -> Permission:
        """Ask the front end: as the step's gate says if its own rule asks, else as for any other question."""
        # What a workflow says of its own questions is not said of those that the user wants to be asked.
        is_of_step = verdict.is_ruled and all(rule.is_each_time for rule in verdict.asked_by)
        is_of_step = is_of_step and not verdict.is_vital
        if (not verdict.is_ruled or verdict.is_vital) and not self._attempt.front.is_present:
            return await nobody(verdict)
        gate = self._gate if is_of_step else ApprovalGate()
        offers = tuple(offer for offer in verdict.offers if offer.scopes)
        wish = PermissionQuestion(request.tool_call, self._announced(request.tool_call), offers)
        try:
            approval = await ask_approval(gate, self._attempt, question_about(request), wish)
        except Parked as parked:
            self._give_up(parked)
            return Permission(False, "the run waits for an answer")
        if approval.approved:
            self._grants.add(action_of(request))
            if request.options:  # the agent asks before it does it
                self._granted_calls.append(_call_of(request))
        elif self._gate.on_denied_call is not None and any(rule.is_each_time for rule in verdict.asked_by):
            self._give_up(CallDenied(request.tool_call.title, approval.by))
        offer = wish.offer(approved=approval.approved) if approval.is_for_good else None
        reason = "allowed by the user" if approval.approved else NOT_BY_THE_USER
        return Permission(approval.approved, reason, offer=offer, is_answered=approval.by == "user")

    def _announced(self, call: ToolCall) -> str | None:
        """Return the call's name in the run, and record the call if the agent has not reported it."""
        if not call.id:
            return None
        if not self._telling.knows(call.id):
            self._telling.called(call)
        return self._telling.call_named(call.id)

    def _tell_denied(self, request: PermissionRequest, permission: Permission) -> None:
        why = permission.reason if permission.verdict is None else remedy(permission.verdict)
        self._attempt.emit(Noted(text=shortened(f"denied: {request.tool_call.title}; {why}", MOST_SHOWN)))


async def _shown_anyway(verdict: Verdict) -> Permission:
    """Allow, as the dialog about a page that the user is asked about in another way."""
    return Permission(True, "the user is asked")


def _call_of(request: PermissionRequest) -> tuple[str | None, str | None, Any]:
    """Return the server, the tool and the input of a call, to find it again when it is done."""
    action = action_of(request)
    return action.server, action.name, request.tool_call.raw_input


def _too_late(reason: Parked | CallDenied) -> None:
    """Ignore a reason to end the turn, because the turn is over."""


def remedy(verdict: Verdict) -> str:
    """Return what would have allowed a call, in the words of the language."""
    if verdict.decision == "deny":
        return verdict.remedy
    if verdict.is_ruled:
        return "nobody has allowed it"
    if not verdict.allowing_rules:
        return "allow it with a rule under `tools.allow` of the step"
    return f"to allow it, write under `tools.allow` of the step: {', '.join(verdict.allowing_rules)}"


class ToolRules:
    """The permission rules of one step: its own, and what user and project want to be denied or asked."""

    def __init__(
        self, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str], of_config: Sequence[Rule] = ()
    ) -> None:
        """`of_config` are those of the user and the project, which mean their own directories."""
        self.has_own = bool(allow or ask or deny)
        self._of_config = of_config
        written = {"allow": allow, "ask": ask, "deny": deny}
        try:
            own = [
                replace(Rule.parse(effect, text, f"the step's {effect} rules"), is_each_time=effect == "ask")
                for effect, texts in written.items()
                for text in texts
            ]
        except (TypeError, ValueError) as error:
            raise StepError("template", f"a rule under `tools` or `approve` is wrong: {error}") from None
        self._rules = (*own, *of_config)

    @classmethod
    def of(cls, tools: ToolRuleTexts | None, gate: ApprovalGate | None, config: Config | None) -> ToolRules:
        """Make a step's rules. What user or project want to be denied or asked holds here as well."""
        tools = tools or ToolRuleTexts()
        asked = gate.tools if gate is not None else ()
        return cls(tools.allow, asked, tools.deny, _against(config) if config is not None else ())

    def could_hold_without_asking(self, mode: str | None) -> bool:
        """Tell whether an agent that never asks can break no rule of user or project in this mode."""
        return not self._of_config or (
            mode == READ_ONLY and all(rule.is_about_changes for rule in self._of_config)
        )

    def permissions(self, choices: Choices, directory: str) -> Permissions:
        """Return what decides by these rules in a directory; a look at ordinary files needs none."""
        return Permissions(self._rules, choices, directory or "/", reads="claimed")


def _against(config: Config) -> list[Rule]:
    try:
        return [rule for rule in rules_of(config) if rule.effect != "allow"]
    except ValueError as error:
        raise StepError("template", str(error)) from None


LONGEST_DETAIL = 1000
"""Characters of a title, a path, an address or a command that are shown."""

MOST_DETAILS = 20
"""Paths and addresses that are shown."""


def question_about(request: PermissionRequest) -> str:
    """Return the question about a tool call, and a line for each thing that the call is about.

    A title is a claim. So the command, the paths and the addresses that rules judge stand below it, and that
    there is more of them is told: nobody may agree to what is hidden.
    """
    call = request.tool_call
    title = _shown(call.title or call.name or call.kind)
    details = [detail for detail in _details(action_of(request)) if detail != title]
    if not details and call.raw_input and title != call.raw_input:
        details = [_shown(json.dumps(call.raw_input, ensure_ascii=False, default=str))]
    left = len(details) - MOST_DETAILS
    lines = [f"May the agent do this? {title}", *details[:MOST_DETAILS]]
    return "\n".join([*lines, f"… and {left} more"] if left > 0 else lines)


def _details(action: Action) -> Iterator[str]:
    for command in action.commands:
        # A script keeps its lines: as one they would read like another command.
        yield _bounded(command if isinstance(command, str) else shlex.join(command))
    for each in (*action.paths, *action.urls):
        if each != UNREADABLE:
            yield _shown(each)


def _shown(text: str) -> str:
    return _bounded(" ".join(text.split()))


def _bounded(text: str) -> str:
    left = len(text) - LONGEST_DETAIL
    text = visible(text[:LONGEST_DETAIL])
    return f"{text}… ({left} characters more)" if left > 0 else text


DENIED = "this call was denied"


class Interception:
    """Proxies an agent's MCP servers: each call is recorded, judged by rules, and passed on.

    The agent sees servers of the same names with the same tools, and nothing else that a server has, such as
    prompts: only what can be recorded and judged passes. One task opens and closes everything, because
    context managers require that.
    """

    def __init__(self, servers: Sequence[McpServer], cwd: str, *, over_http: bool) -> None:
        self.held: HeldSession | None = None
        """The session, once it is there; calls before that are refused."""
        self.unusable: list[str] = []
        """Sentences about servers that could not be used: the agent works without them."""
        self._servers = SessionServers(
            {server_name(server): server for server in servers}, ServerEnvironment(cwd, os.environ)
        )
        self._over_http = over_http
        self._told: set[str] = set()
        """Ids of the agent's reported calls that a call to a server was matched with."""
        self._is_open = False
        self._ended = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def open(self) -> list[McpServer]:
        """Start the servers; returns what the agent is given in their places."""
        opened: asyncio.Future[list[McpServer]] = asyncio.get_running_loop().create_future()
        self._work = asyncio.create_task(self._serve(opened))
        entries = await opened
        self._is_open = True
        return entries

    async def close(self) -> None:
        """End the servers, and wait for that."""
        self._ended.set()
        if self._work is not None:
            if not self._is_open:
                self._work.cancel()
            await asyncio.wait([self._work])

    async def _serve(self, opened: asyncio.Future[list[McpServer]]) -> None:
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._servers.close)
                loopback = await load_loopback()
                entries: list[McpServer] = []
                for name in self._servers.names:
                    try:
                        offering = _Offered(self, name, await self._servers.tools_of(name))
                    except McpError as error:
                        self.unusable.append(str(error))
                        continue
                    entries += await stack.enter_async_context(
                        loopback.serve_to_agent(offering, name, over_http=self._over_http, far=())
                    )
                opened.set_result(entries)
                await self._ended.wait()
        except Exception as error:
            if opened.done():
                log.exception("the MCP servers of a step did not end well")
            else:
                opened.set_exception(
                    AgentError("session", f"`intercept` did not work: {exception_text(error)}")
                )
                opened.exception()  # who waits for it may be gone
        finally:
            opened.cancel()

    async def call(
        self, server: str, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any]
    ) -> ToolResult:
        """Pass a call on, if it may pass, and record it unless the agent reports it itself."""
        exchange = None if self.held is None else self.held.exchange
        if self.held is None or exchange is None:
            return text_result("nobody is in a turn with this agent", is_error=True)
        call = self._call(server, tool, arguments, meta)
        is_told = call.id in self._told
        if not is_told:
            exchange.telling.called(call)
        request = PermissionRequest.of(self.held.session, call)
        if not await exchange.judging.may_call(request):
            result = text_result(DENIED, is_error=True)
        else:
            if not is_told:
                exchange.telling.called(replace(call, status="in_progress"))
            result = await self._passed_on(server, tool, arguments)
        if not is_told:
            exchange.telling.called(_ended(call, result))
        return result

    def _call(self, server: str, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> ToolCall:
        """Return the call under the agent's id if the agent reports it, else under an id of our own."""
        known = [each for each in meta.values() if isinstance(each, str) and self._tells_of(each, tool)]
        self._told.update(known[:1])
        return ToolCall(
            id=known[0] if known else f"mcp-{uuid4().hex}",
            title=f"{server}: {tool}",
            kind="other",
            name=qualified_name(server, tool),
            raw_input=arguments,
        )

    def _tells_of(self, id: str, tool: str) -> bool:
        """Tell whether the agent shows a call that runs, names the tool, and stands for no other call.

        Else a call could hide behind one that was about something else.
        """
        assert self.held is not None
        call = self.held.session.tool_calls.get(id)
        return (
            call is not None and call.is_open and id not in self._told and tool in f"{call.name} {call.title}"
        )

    async def _passed_on(self, server: str, tool: str, arguments: dict[str, Any]) -> ToolResult:
        with span("mcp call", {"mcp.server": server, "mcp.tool": tool}):
            try:
                return await self._servers.call(server, tool, arguments, None)
            except McpError as error:
                return text_result(str(error), is_error=True)


class _Offered:
    """The tools of one server, as the agent gets them."""

    def __init__(self, interception: Interception, server: str, tools: Sequence[Tool]) -> None:
        self._interception = interception
        self._server = server
        self._tools = tools

    def listed(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        return await self._interception.call(self._server, name, arguments, meta)

    def answered(self) -> None:
        """Do nothing: nobody waits for the agent to be told these tools."""


def _ended(call: ToolCall, result: ToolResult) -> ToolCall:
    return replace(
        call,
        status="failed" if result.is_error else "completed",
        content=tuple(Content(block) for block in result.content),
        raw_output=result.structured,
    )

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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from coupler.agent.permission import rules_of
from coupler.client.actions import UNREADABLE, action_of
from coupler.client.errors import AgentError
from coupler.client.policy import PermissionRequest
from coupler.client.rules import READING_KINDS, Rules, is_reading
from coupler.events import ToolCall
from coupler.mcp.functions import text_result
from coupler.mcp.package import load_loopback
from coupler.mcp.servers import ServerEnvironment, SessionServers, server_name
from coupler.mcp.tool_names import qualified_name
from coupler.mcp.tools import McpError, Tool, ToolResult
from coupler.permission.engine import Choices, Permissions
from coupler.providers.command_line import READ_ONLY
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import Content, McpServer, ToolCallLocation
from coupler.store.errors import StoreError
from coupler.workflow.agents.agent_events import MOST_SHOWN, Telling, shortened
from coupler.workflow.agents.editor_access import diff_for_write
from coupler.workflow.engine.attempt import Stopped
from coupler.workflow.engine.front import PermissionQuestion, span, visible
from coupler.workflow.engine.performers import ask_approval
from coupler.workflow.errors import Parked, StepError
from coupler.workflow.journal.run_events import Noted
from coupler.workflow.language.model import ApprovalGate, ToolRuleTexts

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.config import Config
    from coupler.permission.action import Action
    from coupler.permission.engine import Offer, Verdict
    from coupler.permission.rules import Rule
    from coupler.schema.v1 import Diff
    from coupler.workflow.agents.agents import HeldSession
    from coupler.workflow.agents.editor_access import FileOperation
    from coupler.workflow.engine.attempt import Attempt


log = logging.getLogger("coupler.workflow")

GiveUp = Callable[[Parked | Stopped], None]
"""Ends the agent's turn, because the run is parked or stopped."""


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
        self._choices = attempt.agents.choices_in(session.cwd)
        self._granted: list[Action] = []
        self._granted_calls: list[tuple[str | None, str | None, Any]] = []
        """The calls to MCP servers that the user has allowed and that have not arrived there yet."""
        self._open: set[asyncio.Future[bool]] = set()
        self._answered: set[str] = set()
        """The calls about which the user was asked."""

    async def permit(self, request: PermissionRequest) -> bool:
        """Decide about a permission request."""
        match await self._judged(request):
            case "ask":
                return await self._ask_as_ruled(request)
            case "undecided":
                return await self._chosen(request)
            case judgement:
                return judgement == "allow"

    async def may_call(self, request: PermissionRequest) -> bool:
        """Decide about a call to an MCP server of the agent's; it may pass unless a rule is against it."""
        judgement = await self._judged(request)
        if judgement == "ask" and (call := _call_of(request)) in self._granted_calls:
            self._granted_calls.remove(call)  # the agent has asked, and now does it
            return True
        return judgement in ("allow", "undecided") or (
            judgement == "ask" and await self._ask_meanwhile(request)
        )

    async def may_touch(self, touch: FileOperation, path: str, text: str | None) -> bool:
        """Decide about a file that is read or written without a permission request."""
        title = f"{'Read' if touch == 'read' else 'Write'} {path}"
        request = self._request(ToolCall(id="", title=title, kind=touch, locations=(ToolCallLocation(path),)))
        judgement = await self._judged(request)
        if judgement == "ask":
            judgement = "allow" if await self._may_be_touched(request, path, text) else "deny"
        if judgement != "deny":
            return True
        await self._tell_denied(request)
        return False

    async def may_show(self, url: str) -> bool:
        """Decide whether a page may be shown to the user, who is asked in any case."""
        request = self._request(ToolCall(id="", title=f"Open {url}", kind="fetch", raw_input={"url": url}))
        if await self._judged(request) != "deny":
            return True
        await self._tell_denied(request)
        return False

    def end(self) -> None:
        """Take back all questions, because the turn is over."""
        self.is_in_turn = False
        self._give_up = _too_late
        for asking in self._open:
            asking.cancel()

    def remedy(self, request: PermissionRequest) -> str | None:
        """Return what would have allowed a call, unless the user has rejected it. May block on the disk."""
        return None if request.tool_call.id in self._answered else self._rules.remedy(request)

    def _request(self, call: ToolCall) -> PermissionRequest:
        return PermissionRequest.of(self._session, call)

    async def _judged(self, request: PermissionRequest) -> Judgement:
        return await in_thread(lambda: self._rules.judge(request)) if self.is_in_turn else "deny"

    async def _chosen(self, request: PermissionRequest) -> bool:
        """Decide what no rule decides: by an earlier choice of the user, or by asking now."""
        verdict = await self._by_choice(request)
        if verdict.decision != "ask":
            return verdict.decision == "allow"
        if not self._attempt.front.is_present:
            return False
        offers = tuple(offer for offer in verdict.offers if offer.scopes)
        return await self._ask(request, ApprovalGate(), offers, lambda: self._settled(request))

    async def _by_choice(self, request: PermissionRequest) -> Verdict:
        try:
            await self._choices.refresh()
        except StoreError as error:
            log.warning("the remembered choices could not be read: %s", error)
        return await in_thread(lambda: self._rules.judge_by_choice(request, self._choices))

    async def _settled(self, request: PermissionRequest) -> bool | None:
        """Return the decision by a choice that was made while another question was open, if there is one."""
        decision = (await self._by_choice(request)).decision
        return None if decision == "ask" else decision == "allow"

    async def _may_be_touched(self, request: PermissionRequest, path: str, text: str | None) -> bool:
        if self._is_granted(action_of(request)):
            return True
        change = None if text is None else await self._change(path, text)
        if change is not None:
            call = msgspec.structs.replace(request.tool_call, content=(change,))
            request = msgspec.structs.replace(request, tool_call=call)
        return await self._ask_meanwhile(request)

    async def _change(self, path: str, text: str) -> Diff | None:
        return await diff_for_write(path, text, self._session, self._attempt.front.files)

    def _is_granted(self, action: Action) -> bool:
        """True if an action on these paths was allowed in this turn; for a write, one that is no read."""
        return any(
            set(action.paths) <= set(granted.paths)
            and (action.kind == "read" or granted.kind not in READING_KINDS)
            for granted in self._granted
        )

    async def _ask_meanwhile(self, request: PermissionRequest) -> bool:
        """Ask about something that is no permission request; the question is withdrawn when the turn ends."""
        asking = asyncio.ensure_future(self._ask_as_ruled(request))
        self._open.add(asking)
        try:
            return await asking
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            return False
        finally:
            self._open.discard(asking)

    async def _ask_as_ruled(self, request: PermissionRequest) -> bool:
        # What a workflow says of its own questions is not said of those that the user wants to be asked.
        is_users = await in_thread(lambda: self._rules.is_of_user(request))
        return await self._ask(request, ApprovalGate() if is_users else self._gate)

    async def _ask(
        self,
        request: PermissionRequest,
        gate: ApprovalGate,
        offers: tuple[Offer, ...] = (),
        settled: Callable[[], Awaitable[bool | None]] | None = None,
    ) -> bool:
        wish = PermissionQuestion(request.tool_call, self._announced(request.tool_call), offers)
        try:
            approval = await ask_approval(gate, self._attempt, question_about(request), wish, settled)
        except Parked as parked:
            self._give_up(parked)
            return False
        if approval.is_for_good and (offer := wish.offer(approved=approval.approved)) is not None:
            await self._remember(offer)
        if approval.approved:
            self._granted.append(action_of(request))
            if request.options:  # the agent asks before it does it
                self._granted_calls.append(_call_of(request))
        elif gate.on_deny == "stop":
            self._give_up(Stopped("cancelled", f"{self._attempt.place} was denied"))
        if approval.by == "user":
            self._answered.add(request.tool_call.id)
        return approval.approved

    def _announced(self, call: ToolCall) -> str | None:
        """Return the call's name in the run, and record the call if the agent has not reported it."""
        if not call.id:
            return None
        if not self._telling.knows(call.id):
            self._telling.called(call)
        return self._telling.call_named(call.id)

    async def _remember(self, offer: Offer) -> None:
        try:
            await self._choices.remember(offer.answer, offer.scopes)
        except StoreError as error:
            log.warning("the choice holds for this time only: %s", error)

    async def _tell_denied(self, request: PermissionRequest) -> None:
        remedy = await in_thread(lambda: self._rules.remedy(request))
        text = f"denied: {request.tool_call.title}; {remedy}"
        self._attempt.emit(Noted(text=shortened(text, MOST_SHOWN)))


def _call_of(request: PermissionRequest) -> tuple[str | None, str | None, Any]:
    """Return the server, the tool and the input of a call, to find it again when it is done."""
    action = action_of(request)
    return action.server, action.name, request.tool_call.raw_input


def _too_late(reason: Parked | Stopped) -> None:
    """Ignore a reason to end the turn, because the turn is over."""


CHANGING = frozenset({"edit", "delete", "move", "execute"})
"""Kinds of rules that an agent which only reads cannot break."""

Judgement = Literal["allow", "deny", "ask", "undecided"]


class ToolRules:
    """The permission rules of one step, judged in threads because links have to be followed.

    Without rules an agent may look at ordinary files of its directory, and nothing else is decided. What a
    rule wants to be asked about, the front end is asked.
    """

    def __init__(
        self, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str], of_config: Sequence[Rule] = ()
    ) -> None:
        """`of_config` are those of the user and the project, which mean their own directories."""
        self.has_own = bool(allow or ask or deny)
        self._of_config = of_config
        self._has_denials = bool(ask or deny or of_config)
        try:
            self._rules = Rules(allow, ask, deny, of_config)
        except (TypeError, ValueError) as error:
            raise StepError("template", f"a rule under `tools` or `approve` is wrong: {error}") from None
        self._of_user = Rules((), (), (), [rule for rule in of_config if rule.effect == "ask"])

    @classmethod
    def of(cls, tools: ToolRuleTexts | None, gate: ApprovalGate | None, config: Config | None) -> ToolRules:
        """Make a step's rules. What user or project want to be denied or asked holds here as well."""
        tools = tools or ToolRuleTexts()
        asked = gate.tools if gate is not None else ()
        return cls(tools.allow, asked, tools.deny, _against(config) if config is not None else ())

    def could_hold_without_asking(self, mode: str | None) -> bool:
        """Tell whether an agent that never asks can break no rule of user or project in this mode."""
        return not self._of_config or (
            mode == READ_ONLY and all(rule.subject in CHANGING for rule in self._of_config)
        )

    def judge(self, request: PermissionRequest) -> Judgement:
        """Judge a call by the rules."""
        verdict = self._rules.judge(request)
        if verdict.decision != "ask":
            return verdict.decision
        if verdict.is_ruled:
            return "ask"
        # A look at nothing in particular is no harm, unless it might be what a rule is against.
        return "allow" if not self._has_denials and is_reading(request) else "undecided"

    def judge_by_choice(self, request: PermissionRequest, choices: Choices) -> Verdict:
        """Judge a call that no rule decides by earlier choices; the verdict has what else to offer."""
        return self._rules.judge(request, choices)

    def is_of_user(self, request: PermissionRequest) -> bool:
        """Tell whether the user or the project wants to be asked, and not the workflow alone."""
        verdict = self._of_user.judge(request)
        return verdict.decision == "ask" and verdict.is_ruled

    def remedy(self, request: PermissionRequest) -> str:
        """Return what would have allowed a call, in the words of the language."""
        verdict = self._rules.judge(request)
        if verdict.is_final:
            return verdict.reason
        if verdict.decision == "deny":
            return f"{verdict.reason}: take that rule out to allow it"
        if verdict.decision == "ask" and verdict.is_ruled:
            return "nobody has allowed it"
        texts = _rules_that_allow(request)
        if not texts:
            return "allow it with a rule under `tools.allow` of the step"
        return f"to allow it, write under `tools.allow` of the step: {', '.join(texts)}"


def _against(config: Config) -> list[Rule]:
    try:
        return [rule for rule in rules_of(config) if rule.effect != "allow"]
    except ValueError as error:
        raise StepError("template", str(error)) from None


def _rules_that_allow(request: PermissionRequest) -> list[str]:
    """The rules that would allow a call, if there are such that say exactly what they allow."""
    project = request.cwd or "/"
    verdict = Permissions([], Choices(project), project).judge(action_of(request))
    scopes = (scope for offer in verdict.offers if offer.kind == "allow_always" for scope in offer.scopes)
    return [scope.rule_text for scope in scopes]


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
    if action.command is not None:
        # A script keeps its lines: as one they would read like another command.
        command = action.command if isinstance(action.command, str) else shlex.join(action.command)
        yield _bounded(command)
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
                    offering = _Offered(self, name, await self._servers.tools_of(name))
                    entries += await stack.enter_async_context(
                        loopback.serve_to_agent(offering, name, over_http=self._over_http, far=())
                    )
                opened.set_result(entries)
                await self._ended.wait()
        except Exception as error:
            if opened.done():
                log.exception("the MCP servers of a step did not end well")
            else:
                opened.set_exception(AgentError("session", f"`intercept` did not work: {error}"))
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
            status="in_progress",
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


def _ended(call: ToolCall, result: ToolResult) -> ToolCall:
    return replace(
        call,
        status="failed" if result.is_error else "completed",
        content=tuple(Content(block) for block in result.content),
        raw_output=result.structured,
    )

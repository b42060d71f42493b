"""Whether the agent of a step may do something: by rules, by what was chosen for good, or because of a yes.

What a rule wants to be asked about is always asked. What no rule decides is asked where somebody is there,
and denied elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from coupler.client.policy import PermissionRequest
from coupler.client.rules import READING_KINDS, action_of
from coupler.events import ToolCall
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import ToolCallLocation
from coupler.store.errors import StoreError
from coupler.workflow.agents.files import change_of
from coupler.workflow.agents.permission_question import question_about
from coupler.workflow.agents.telling import MOST_SHOWN, Telling, shortened
from coupler.workflow.engine.flow import Stopped
from coupler.workflow.engine.front import Wish
from coupler.workflow.engine.gates import ask_approval
from coupler.workflow.errors import Parked
from coupler.workflow.journal.happenings import Noted
from coupler.workflow.language.definition import Gate

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.permission.action import Action
    from coupler.permission.engine import Offer, Verdict
    from coupler.schema.v1 import Diff
    from coupler.workflow.agents.files import Touch
    from coupler.workflow.agents.tool_rules import Judgement, ToolRules
    from coupler.workflow.engine.attempt import Attempt

log = logging.getLogger("coupler.workflow")

GiveUp = Callable[[Parked | Stopped], None]
"""Ends the agent's turn for a reason that is not the agent's."""


class Judging:
    """Of one prompt. It decides only while the turn runs: `is_in_turn` is its exchange's to set."""

    def __init__(
        self,
        session: RemoteSession,
        attempt: Attempt,
        rules: ToolRules,
        gate: Gate,
        telling: Telling,
        give_up: GiveUp,
    ) -> None:
        self.is_in_turn = False
        """What the agent asks outside of it, maybe right behind its answer, is no step's any more."""
        self._session = session
        self._attempt = attempt
        self._rules = rules
        self._gate = gate
        self._telling = telling
        self._give_up = give_up
        self._choices = attempt.agents.choices_in(session.cwd)
        self._granted: list[Action] = []
        self._open: set[asyncio.Future[bool]] = set()
        self._answered: set[str] = set()
        """The calls about which the user was asked."""

    async def permit(self, request: PermissionRequest) -> bool:
        """Whether it may do what it asks for."""
        match await self._judged(request):
            case "ask":
                return await self._ask_as_ruled(request)
            case "undecided":
                return await self._chosen(request)
            case judgement:
                return judgement == "allow"

    async def may_call(self, request: PermissionRequest) -> bool:
        """Whether a call to an MCP server may pass. The agent was given it: what no rule is against may."""
        judgement = await self._judged(request)
        return judgement in ("allow", "undecided") or (
            judgement == "ask" and await self._ask_meanwhile(request)
        )

    async def may_touch(self, touch: Touch, path: str, text: str | None) -> bool:
        """Whether a file may be read, or this text written to it, for which the agent has not asked."""
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
        """Whether a page may be shown to the user, who is asked in any case."""
        request = self._request(ToolCall(id="", title=f"Open {url}", kind="fetch", raw_input={"url": url}))
        if await self._judged(request) != "deny":
            return True
        await self._tell_denied(request)
        return False

    def end(self) -> None:
        """The turn is over: nobody has to decide any more."""
        self.is_in_turn = False
        self._give_up = _too_late
        for asking in self._open:
            asking.cancel()

    def remedy(self, request: PermissionRequest) -> str | None:
        """What would have allowed a call; whoever has said no knows. May wait for a disk."""
        return None if request.tool_call.id in self._answered else self._rules.remedy(request)

    def _request(self, call: ToolCall) -> PermissionRequest:
        return PermissionRequest(call, (), self._session.cwd, self._session.roots)

    async def _judged(self, request: PermissionRequest) -> Judgement:
        return await in_thread(lambda: self._rules.judge(request)) if self.is_in_turn else "deny"

    async def _chosen(self, request: PermissionRequest) -> bool:
        """What the user has chosen earlier about something that no rule decides, or chooses now."""
        verdict = await self._by_choice(request)
        if verdict.decision != "ask":
            return verdict.decision == "allow"
        if not self._attempt.front.is_present:
            return False
        offers = tuple(offer for offer in verdict.offers if offer.scopes)
        return await self._ask(request, Gate(), offers, lambda: self._settled(request))

    async def _by_choice(self, request: PermissionRequest) -> Verdict:
        try:
            await self._choices.refresh()
        except StoreError as error:
            log.warning("the remembered choices could not be read: %s", error)
        return await in_thread(lambda: self._rules.judge_by_choice(request, self._choices))

    async def _settled(self, request: PermissionRequest) -> bool | None:
        """Whether it was decided while another question was open; None if it was not."""
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
        return await change_of(path, text, self._session, self._attempt.front.files)

    def _is_granted(self, action: Action) -> bool:
        """Whether somebody has allowed just this in this turn."""
        return any(
            set(action.paths) <= set(granted.paths)
            and (action.kind == "read" or granted.kind not in READING_KINDS)
            for granted in self._granted
        )

    async def _ask_meanwhile(self, request: PermissionRequest) -> bool:
        """Ask about what is no request for permission, and is taken back by nobody else."""
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
        return await self._ask(request, Gate() if is_users else self._gate)

    async def _ask(
        self,
        request: PermissionRequest,
        gate: Gate,
        offers: tuple[Offer, ...] = (),
        settled: Callable[[], Awaitable[bool | None]] | None = None,
    ) -> bool:
        wish = Wish(request.tool_call, self._announced(request.tool_call), offers)
        try:
            approval = await ask_approval(gate, self._attempt, question_about(request), wish, settled)
        except Parked as parked:
            self._give_up(parked)
            return False
        if approval.is_for_good and (offer := wish.offer(approved=approval.approved)) is not None:
            await self._remember(offer)
        if approval.approved:
            self._granted.append(action_of(request))
        elif gate.on_deny == "stop":
            self._give_up(Stopped("cancelled", f"{self._attempt.place} was denied"))
        if approval.by == "user":
            self._answered.add(request.tool_call.id)
        return approval.approved

    def _announced(self, call: ToolCall) -> str | None:
        """The call's name in the run, which is told of it now if the agent has not done so."""
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


def _too_late(reason: Parked | Stopped) -> None:
    """What happens if somebody gives up when the turn is over: its step has ended in another way."""

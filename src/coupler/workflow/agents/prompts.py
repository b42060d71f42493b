"""Performs `agent` steps, one prompt and its answer, and `converse` steps, a conversation with the user."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.client.agent_profile import with_instructions
from coupler.client.errors import AgentError
from coupler.client.observation import Observation, PromptSent, Received, TurnFinished
from coupler.client.policy import Policy
from coupler.client.reply import Reply
from coupler.events.events import TurnEnded
from coupler.relay.session import marked
from coupler.workflow.agents.agent_events import TOO_MUCH, Telling, step_error
from coupler.workflow.agents.agent_setup import AgentSetup, set_up_agent
from coupler.workflow.agents.agent_start import login_argument
from coupler.workflow.agents.agents import (
    ASKED,
    IMAGES,
    EarlierSession,
    asked_decision,
    conversation_text,
    image_values,
    images_of,
)
from coupler.workflow.agents.editor_access import fill_in_form, open_page
from coupler.workflow.agents.permission import Judging, StepPolicy, ToolRules
from coupler.workflow.engine.attempt import answered
from coupler.workflow.engine.front import UserMessage
from coupler.workflow.engine.performers import denied_call_result
from coupler.workflow.errors import CallDenied, Parked, StepError
from coupler.workflow.journal.run_events import AnswerGiven, Decided, Noted, Result
from coupler.workflow.language.model import Agent, ApprovalGate, Converse

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.client.prompt import Prompt
    from coupler.events import ToolCall
    from coupler.schema.v1 import ImageContent
    from coupler.workflow.agents.agent_events import StepBudget
    from coupler.workflow.agents.agents import HeldSession
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.front import OpenFiles
    from coupler.workflow.language.model import Json


class _GivenUp(Exception):  # noqa: N818 - it is no failure
    """Ends the turn; whoever catches it raises the reason instead."""


async def perform_agent(step: Agent, attempt: Attempt) -> Result:
    """Ask the step's agent; raises `StepError` with the part of the answer that came."""
    setup = await set_up_agent(step, attempt)
    if setup.rendered.prompt is None or not setup.rendered.prompt.strip():
        raise StepError("template", "the prompt is empty: see `prompt` and `prompt_file`")
    try:
        return await _ask(step, setup, setup.rendered.prompt, attempt)
    except AgentError as error:
        raise step_error(error, login_argument(setup.order.start.agent)) from None


async def _ask(step: Agent, setup: AgentSetup, prompt: str, attempt: Attempt) -> Result:
    setup.budget.refuse_if_spent()
    rendered = setup.rendered
    async with attempt.agents.session(setup.order) as held:
        note_replaced_session(held, attempt)
        images = await attempt.agents.images.for_prompt(step, attempt, held)
        exchange = PromptExchange(held, attempt, setup.rules, step.gate, setup.budget)
        try:
            reply = await exchange.ask(
                prompt, images, system=rendered.system, schema=rendered.schema, repairs=setup.set_up.repairs
            )
        except CallDenied as denied:
            return denied_call_result(step.gate, attempt, denied, exchange.result(None))
        finally:
            if setup.order.is_kept:
                exchange.keep(prompt)
        output = msgspec.UNSET if rendered.schema is None else reply.output
        result = msgspec.structs.replace(exchange.result(reply), status="success", output=output)
        # The session is still to be closed, which takes its time, and a cancel may come meanwhile.
        attempt.work.result = result
        return result


async def perform_conversation(step: Converse, attempt: Attempt) -> Result:
    """Pass messages to the agent and its answers to the user; raises `StepError` with what was said.

    Each message and each answer is recorded when it is there. A run that was parked or killed goes on with
    the next message: nothing that was said is said again.
    """
    setup = await set_up_agent(step, attempt, is_stored=True)
    async with AsyncExitStack() as stack:
        conversation = _Conversation(step, attempt, setup, stack)
        try:
            return await conversation.hold()
        except CallDenied as denied:
            return denied_call_result(step.gate, attempt, denied, conversation.result("failed"))
        except AgentError as error:
            agent = login_argument(setup.order.start.agent)
            raise step_error(error, agent, conversation.result("failed")) from None
        except StepError as error:
            there_is = conversation.interrupted(error.result)
            raise StepError(error.kind, str(error), retry_after=error.retry_after, result=there_is) from None
        except asyncio.CancelledError:
            # Its time may just be up: what was said is still worth having, and the session can go on.
            attempt.work.partial = conversation.interrupted(attempt.work.partial)
            raise


def _message_in(value: Json) -> UserMessage | None:
    """Return the message that a decision holds; None if the user sent none any more."""
    if isinstance(value, dict):
        return UserMessage(value["text"], images_of(value[IMAGES]))
    return None if value is None else UserMessage(str(value))


def _message_value(message: UserMessage | None) -> Json:
    """Return a message as a decision holds it."""
    if message is None:
        return None
    return {"text": message.text, IMAGES: image_values(message.images)} if message.images else message.text


class _Conversation:
    """A conversation, from its first message to the one that ends it."""

    def __init__(self, step: Converse, attempt: Attempt, setup: AgentSetup, stack: AsyncExitStack) -> None:
        self._step = step
        self._attempt = attempt
        self._setup = setup
        self._stack = stack
        self._held: HeldSession | None = None
        self._earlier = setup.order.earlier
        self._spoken: list[dict[str, str]] = []

    async def hold(self) -> Result:
        """Converse from the first message that is not recorded yet to the last."""
        number = 1
        while (message := await self._message(number)) is not None:
            await self._answer(number, message)
            if self._step.max_turns is not None and number >= self._step.max_turns:
                break
            number += 1
        return self.result("success")

    def result(self, status: Any) -> Result:
        """Return the result so far; its text is the agent's last answer."""
        answers = [each["text"] for each in self._spoken if each["role"] == "agent"]
        return Result(
            status=status,
            text=answers[-1] if answers else "",
            output=self._spoken,
            usage=self._attempt.agents.spending.of(self._attempt.place),
            session_id=None if self._earlier is None else self._earlier.session_id,
            agent=None if self._earlier is None else self._earlier.agent,
        )

    def interrupted(self, answer: Result | None) -> Result:
        """Return the result of a failed conversation, with the part of the last answer that came."""
        result = self.result("failed")
        if answer is None:
            return result
        return msgspec.structs.replace(
            result,
            text=result.text or answer.text,
            session_id=answer.session_id or result.session_id,
            agent=answer.agent or result.agent,
        )

    async def _message(self, number: int) -> UserMessage | None:
        """The user's next message; None if there is none any more."""
        what = f"message-{number}"
        kept = self._attempt.decision(what)
        if kept is not UNSET:
            return _message_in(kept)
        prompt = self._setup.rendered.prompt if number == 1 else None
        message = UserMessage(prompt) if prompt is not None else await self._asked_for()
        await self._attempt.decide(what, _message_value(message))
        return message

    async def _asked_for(self) -> UserMessage | None:
        attempt = self._attempt
        last = self._spoken[-1]["text"] if self._spoken else ""
        async with attempt.asking:
            message = await answered(attempt.front.message(attempt.place, last))
        if message is None:
            return None
        if message.images and not (held := await self._session()).takes_images:
            reason = f"{held.start.name} takes no images: send the message again without"
            raise attempt.front.refused_message(attempt.place, reason)
        attempt.emit(AnswerGiven(text=message.text, by="user"))
        return message

    async def _answer(self, number: int, message: UserMessage) -> None:
        """Get the agent's answer, from the journal if it is recorded there."""
        what = f"reply-{number}"
        kept = self._attempt.decision(what)
        if kept is UNSET:
            kept = await self._ask(message, is_first=number == 1)
            self._spoken.append({"role": "user", "text": message.text})
            await self._attempt.decide(what, kept)
        else:
            self._spoken.append({"role": "user", "text": message.text})
        self._earlier = EarlierSession(kept["session_id"], kept["agent"])
        self._spoken.append({"role": "agent", "text": kept["text"]})

    async def _ask(self, message: UserMessage, *, is_first: bool) -> dict[str, str]:
        held = await self._session()
        images = message.images
        if is_first:
            images = (*await self._attempt.agents.images.for_prompt(self._step, self._attempt, held), *images)
        exchange = PromptExchange(held, self._attempt, self._setup.rules, self._step.gate, self._setup.budget)
        try:
            reply = await exchange.ask(message.text, images, system=self._setup.rendered.system)
        finally:
            exchange.keep(None)
        return {"text": reply.text, "session_id": held.session.id, "agent": held.start.agent}

    async def _session(self) -> HeldSession:
        """The conversation's session: the one that is open, the one of before, or a new one."""
        if self._held is not None and not self._held.session.is_over:
            return self._held
        await self._stack.aclose()
        self._setup.budget.refuse_if_spent()
        order = self._setup.order._replace(earlier=self._earlier, transcript=self._transcript())
        held = await self._stack.enter_async_context(self._attempt.agents.session(order))
        note_replaced_session(held, self._attempt)
        self._held = held
        return held

    def _transcript(self) -> str | None:
        return marked(conversation_text(self._spoken)) if self._spoken else None


class PromptExchange:
    """One prompt of a step to its agent: recorded as it happens, judged by rules, charged to the budget.

    Belongs to the task of its step; what its agent asks meanwhile comes here.
    """

    def __init__(
        self,
        held: HeldSession,
        attempt: Attempt,
        rules: ToolRules,
        gate: ApprovalGate | None,
        budget: StepBudget,
    ) -> None:
        self._held = held
        self._session = held.session
        self._attempt = attempt
        self._budget = budget
        # Not a method of ours: what refers to itself stays in memory long after its step is over.
        self.telling = Telling(attempt.emit, lambda call: _name_of(call, attempt))
        self.judging = Judging(
            held.session, attempt, rules, gate or ApprovalGate(), self.telling, self._give_up
        )
        self._ended: TurnEnded | None = None
        self._given_up: Parked | CallDenied | None = None

    async def ask(
        self,
        prompt: str,
        images: tuple[ImageContent, ...] = (),
        *,
        system: str | None = None,
        schema: Any = None,
        repairs: int | None = None,
    ) -> Reply:
        """Return the agent's whole answer; raises `StepError` with the part that came."""
        text = self._opening(prompt, system)
        content = (*((text,) if text.strip() or not images else ()), *images)
        self.telling.is_typed = schema is not None
        stop_listening = self._session.on_event(self._notice)
        self._session.policy = StepPolicy(self.judging)
        self._held.exchange = self
        is_cancelled = False
        try:
            return await self._answered(content, schema, repairs)
        except asyncio.CancelledError:
            is_cancelled = True
            # Only who has cancelled knows why; if the time is up, this is what there is.
            self._attempt.work.partial = self.result(None)
            raise
        finally:
            self._held.exchange = None
            self.judging.end()
            self._session.policy = Policy.deny_all()  # what comes between turns is nobody's step
            stop_listening()
            self.telling.settle(is_cancelled=is_cancelled)

    def keep(self, prompt: str | None) -> None:
        """Record what a later step needs to continue the session; `prompt` is None in a conversation."""
        held = self._held
        value = asked_decision(self._session.id, prompt, after=held.after, told=held.told)
        self._attempt.emit(Decided(what=ASKED, value=value))

    def result(self, reply: Reply | None) -> Result:
        """Return the result of a step so far; its status is failed until its performer sets another."""
        return Result(
            status="failed",
            text=self.telling.text if reply is None else reply.text,
            usage=self._attempt.agents.spending.of(self._attempt.place),
            session_id=self._session.id,
            agent=self._held.start.agent,
        )

    @property
    def files(self) -> OpenFiles | None:
        """The open files that the agent reads and writes in the place of those on the disk."""
        return self._attempt.front.files

    async def fill_in(self, form: FormRequest) -> FormAnswer:
        """Return the user's answer to a form of the agent."""
        return await fill_in_form(form, self._named(form.tool_call), self._attempt)

    async def open_page(self, page: UrlRequest) -> bool | None:
        """Let the user open a page for the agent; it is not shown if a rule is against it."""
        if not await self.judging.may_show(page.url):
            return False
        return await open_page(page, self._named(page.tool_call), self._attempt)

    def _named(self, call: ToolCall | None) -> str | None:
        return None if call is None else self.telling.call_named(call.id)

    def _opening(self, prompt: str, system: str | None) -> str:
        """Return the prompt after the transcript and the instructions that the session still needs."""
        held = self._held
        if held.transcript is not None:
            prompt = f"{held.transcript}\n\n{prompt}"
        held.transcript = None
        if system is None or held.start.native is not None:
            return prompt
        # Its digest is kept, so that the process that goes on with the session knows as well.
        digest = hashlib.sha256(system.encode(errors="surrogatepass")).hexdigest()
        if digest == held.told:
            return prompt
        held.told = digest
        return with_instructions(system, prompt)

    async def _answered(
        self, content: tuple[str | ImageContent, ...], schema: Any, repairs: int | None
    ) -> Reply:
        try:
            prompt = self._session.prompt(content, output=schema, repairs=repairs, budget=self._budget)
            reply = (await _reply_to(prompt)).raise_for_stop()
            self._pay()
            self._budget.refuse_if_exceeded()
            return reply
        except AgentError as error:
            raise self._failed(error) from None
        except _GivenUp:
            assert self._given_up is not None
            raise self._given_up from None
        finally:
            self._pay()

    def _failed(self, error: AgentError) -> StepError:
        reply = error.reply
        if reply is not None:
            # Of all its rounds, also of the one that failed.
            self._ended = TurnEnded(reply.stop_reason, reply.usage)
        self._pay()
        if error.kind == "deadline":
            # Of the step's budget: its timeout is not known here.
            error = AgentError("budget", "the time is spent: see `budget` of the step")
        is_whole = reply is not None and reply.text and not self.telling.is_too_much
        result = self.result(reply if is_whole else None)
        return step_error(error, login_argument(self._held.start.agent), result)

    def _notice(self, observation: Observation) -> None:
        if not self.telling.is_too_much:
            self.telling.notice(observation)
        elif isinstance(observation, Received):
            self._session.end_turn(AgentError("limit", TOO_MUCH))
        cut = self._session.cut
        if cut is not None and cut.is_endless and isinstance(observation, Received):
            self._session.end_turn(AgentError("limit", f"the agent said too much, and was stopped: {cut}"))
        match observation:
            case PromptSent():
                self.judging.is_in_turn = True
            case TurnFinished(reply=reply):
                self.judging.is_in_turn = False
                if reply is not None:
                    self._ended = TurnEnded(reply.stop_reason, reply.usage)

    def _pay(self) -> None:
        """Count what the prompt has used, once."""
        if self._ended is None:
            return
        ended, self._ended = self._ended, None
        self.telling.ended(ended)
        for kept in self._attempt.agents.spending.add(self._attempt.place, ended.usage, self._session):
            self._attempt.emit(kept)

    def _give_up(self, reason: Parked | CallDenied) -> None:
        """End the turn for a reason that is not the agent's."""
        self._given_up = reason
        self._session.end_turn(_GivenUp())


async def _reply_to(prompt: Prompt) -> Reply:
    """Wait for the reply; a cancel that comes when it is there does not take it away."""
    try:
        return await prompt
    except asyncio.CancelledError:
        if prompt.reply is None:
            raise
        return prompt.reply


def _name_of(call: str, attempt: Attempt) -> str:
    """Return the name of an agent's call in the run; secrets in the id are redacted, as ids are shown."""
    return attempt.agents.name_call(attempt.mask(call), str(attempt.place))


def note_replaced_session(held: HeldSession, attempt: Attempt) -> None:
    """Report that a session is not the one that was to go on, and servers that it goes on without."""
    if held.interception is not None:
        unusable, held.interception.unusable = held.interception.unusable, []
        for reason in unusable:
            attempt.emit(Noted(text=f"{reason}; the agent works without it"))
    if held.reason is None:
        return
    how = "which is told what was said" if held.transcript is not None else "which knows nothing of it"
    attempt.emit(Noted(text=f"the earlier session cannot go on: {held.reason}; there is a new one, {how}"))
    held.reason = None

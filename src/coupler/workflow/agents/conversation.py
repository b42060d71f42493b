"""`converse` steps: a conversation of the user with an agent, until the user leaves it.

Each message and each answer is kept when it is there. A run that was parked or killed goes on with the next
message: nothing that was said is said again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.client.errors import AgentError
from coupler.relay.session import marked
from coupler.workflow.agents.casting import Cast, cast
from coupler.workflow.agents.connected import Earlier, Held
from coupler.workflow.agents.exchange import Exchange, note_how_it_goes_on
from coupler.workflow.agents.failures import step_error
from coupler.workflow.agents.start import words_for_login
from coupler.workflow.agents.transcripts import told_turns
from coupler.workflow.errors import StepError
from coupler.workflow.journal.happenings import AnswerGiven
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Converse

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt


async def perform_conversation(step: Converse, attempt: Attempt) -> Result:
    """Pass messages to the agent and its answers to the user; raises `StepError` with what was said."""
    wanted = await cast(step, attempt, is_stored=True)
    async with AsyncExitStack() as stack:
        conversation = _Conversation(step, attempt, wanted, stack)
        try:
            return await conversation.hold()
        except AgentError as error:
            agent = words_for_login(wanted.order.start.agent)
            raise step_error(error, agent, conversation.result("failed")) from None
        except StepError as error:
            there_is = conversation.interrupted(error.result)
            raise StepError(error.kind, str(error), retry_after=error.retry_after, result=there_is) from None
        except asyncio.CancelledError:
            # Its time may just be up: what was said is still worth having, and the session can go on.
            answer = attempt.interrupted[-1] if attempt.interrupted else None
            attempt.interrupted.append(conversation.interrupted(answer))
            raise


class _Conversation:
    def __init__(self, step: Converse, attempt: Attempt, wanted: Cast, stack: AsyncExitStack) -> None:
        self._step = step
        self._attempt = attempt
        self._wanted = wanted
        self._stack = stack
        self._held: Held | None = None
        self._earlier = wanted.order.earlier
        self._spoken: list[dict[str, str]] = []

    async def hold(self) -> Result:
        """From the first message, or the first that is not kept yet, to the last."""
        number = 1
        while (message := await self._message(number)) is not None:
            await self._answer(number, message)
            if self._step.max_turns is not None and number >= self._step.max_turns:
                break
            number += 1
        return self.result("success")

    def result(self, status: Any) -> Result:
        """What there is of the conversation; its text is the agent's last answer."""
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
        """What there is if the conversation fails, with what had come of the answer that was waited for."""
        result = self.result("failed")
        if answer is None:
            return result
        return msgspec.structs.replace(
            result,
            text=result.text or answer.text,
            session_id=answer.session_id or result.session_id,
            agent=answer.agent or result.agent,
        )

    async def _message(self, number: int) -> str | None:
        """The user's next message; None if there is none any more."""
        what = f"message-{number}"
        message = self._attempt.decision(what)
        if message is UNSET:
            message = self._wanted.briefing.prompt if number == 1 else None
            if message is None:
                message = await self._asked_for()
            await self._attempt.decide(what, message)
        return None if message is None else str(message)

    async def _asked_for(self) -> str | None:
        attempt = self._attempt
        last = self._spoken[-1]["text"] if self._spoken else ""
        async with attempt.asking:
            message = await attempt.front.message(attempt.place, last)
        if message is not None:
            attempt.emit(AnswerGiven(text=message, by="user"))
        return message

    async def _answer(self, number: int, message: str) -> None:
        """The agent's answer, which may be kept already."""
        what = f"reply-{number}"
        kept = self._attempt.decision(what)
        if kept is UNSET:
            kept = await self._ask(message)
            self._spoken.append({"role": "user", "text": message})
            await self._attempt.decide(what, kept)
        else:
            self._spoken.append({"role": "user", "text": message})
        self._earlier = Earlier(kept["session_id"], kept["agent"])
        self._spoken.append({"role": "agent", "text": kept["text"]})

    async def _ask(self, message: str) -> dict[str, str]:
        held = await self._session()
        exchange = Exchange(held, self._attempt, self._wanted.rules, self._step.gate, self._wanted.budget)
        try:
            reply = await exchange.ask(message, system=self._wanted.briefing.system)
        finally:
            exchange.keep(None)
        return {"text": reply.text, "session_id": held.session.id, "agent": held.start.agent}

    async def _session(self) -> Held:
        """The conversation's session: the one that is open, the one of before, or a new one."""
        if self._held is not None and not self._held.session.is_over:
            return self._held
        await self._stack.aclose()
        self._wanted.budget.refuse_if_spent()
        order = self._wanted.order._replace(earlier=self._earlier, transcript=self._transcript())
        held = await self._stack.enter_async_context(self._attempt.agents.session(order))
        note_how_it_goes_on(held, self._attempt)
        self._held = held
        return held

    def _transcript(self) -> str | None:
        return marked(told_turns(self._spoken)) if self._spoken else None

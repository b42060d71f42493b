"""One prompt of a step to its agent, and what comes of it: told as it happens, judged by rules, paid for."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from coupler.client.errors import AgentError
from coupler.client.observation import Observation, PromptSent, Received, TurnFinished
from coupler.client.policy import Policy
from coupler.client.reply import Reply, TurnUsage
from coupler.workflow.agents.briefing import instructed
from coupler.workflow.agents.elicitations import filled_in, opened
from coupler.workflow.agents.failures import step_error
from coupler.workflow.agents.judging import Judging
from coupler.workflow.agents.spending import usage_of
from coupler.workflow.agents.start import words_for_login
from coupler.workflow.agents.telling import Telling
from coupler.workflow.agents.tool_rules import ToolRules
from coupler.workflow.agents.transcripts import ASKED, asked
from coupler.workflow.engine.flow import Stopped
from coupler.workflow.errors import Parked, StepError
from coupler.workflow.journal.happenings import Decided, Noted, Used
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Gate

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.events import ToolCall
    from coupler.workflow.agents.connected import Held
    from coupler.workflow.agents.spending import StepBudget
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.front import OpenFiles


class Exchange:
    """Belongs to the task of its step; what its agent asks meanwhile comes here."""

    def __init__(
        self, held: Held, attempt: Attempt, rules: ToolRules, gate: Gate | None, budget: StepBudget
    ) -> None:
        self._held = held
        self._session = held.session
        self._attempt = attempt
        self._budget = budget
        # Not a method of ours: what refers to itself stays in memory long after its step is over.
        self.telling = Telling(attempt.emit, lambda call: _name_of(call, attempt))
        self.judging = Judging(held.session, attempt, rules, gate or Gate(), self.telling, self._give_up)
        self._usage: TurnUsage | None = None
        self._given_up: Parked | Stopped | None = None

    async def ask(
        self, prompt: str, *, system: str | None = None, schema: Any = None, repairs: int | None = None
    ) -> Reply:
        """The agent's whole answer; raises `StepError`, which has what had come, if there is none."""
        text = self._opening(prompt, system)
        stop_listening = self._session.on_event(self._notice)
        self._session.policy = Policy(self.judging.permit, self.judging.remedy)
        self._held.exchange = self
        try:
            return await self._answered(text, schema, repairs)
        except asyncio.CancelledError:
            # Only who has cancelled knows why; if the time is up, this is what there is.
            self._attempt.interrupted.append(self.result(None))
            raise
        finally:
            self._held.exchange = None
            self.judging.end()
            self._session.policy = Policy.deny_all()  # what comes between turns is nobody's step
            stop_listening()
            self.telling.settle()

    def keep(self, prompt: str | None) -> None:
        """Keep what whoever goes on with the session may need; a conversation keeps what was said itself."""
        held = self._held
        value = asked(self._session.id, prompt, after=held.after, told=held.told)
        self._attempt.emit(Decided(what=ASKED, value=value))

    def result(self, reply: Reply | None) -> Result:
        """What there is of a step so far; it counts as failed until whoever has asked is content."""
        return Result(
            status="failed",
            text=self.telling.text if reply is None else reply.text,
            usage=self._attempt.agents.spending.of(self._attempt.place),
            session_id=self._session.id,
            agent=self._held.start.agent,
        )

    @property
    def files(self) -> OpenFiles | None:
        """The files that the agent reads and writes in the place of those on the disk."""
        return self._attempt.front.files

    async def fill_in(self, form: FormRequest) -> FormAnswer:
        """What the user answers to a form of the agent."""
        return await filled_in(form, self._named(form.tool_call), self._attempt)

    async def open_page(self, page: UrlRequest) -> bool | None:
        """Whether the user opens a page for the agent; it is not shown if a rule is against it."""
        if not await self.judging.may_show(page.url):
            return False
        return await opened(page, self._named(page.tool_call), self._attempt)

    def _named(self, call: ToolCall | None) -> str | None:
        return None if call is None else self.telling.call_named(call.id)

    def _opening(self, prompt: str, system: str | None) -> str:
        """The prompt, after what the session has to be told before it."""
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
        return instructed(system, prompt)

    async def _answered(self, text: str, schema: Any, repairs: int | None) -> Reply:
        try:
            prompt = self._session.prompt(text, output=schema, repairs=repairs, budget=self._budget)
            reply = (await prompt).raise_for_stop()
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
            self._usage = reply.usage  # of all its rounds, also of the one that failed
        self._pay()
        if error.kind == "deadline":
            # Of the step's budget: its timeout is not known here.
            error = AgentError("budget", "the time is spent: see `budget` of the step")
        is_whole = reply is not None and reply.text and not self.telling.is_too_much
        result = self.result(reply if is_whole else None)
        return step_error(error, words_for_login(self._held.start.agent), result)

    def _notice(self, observation: Observation) -> None:
        if not self.telling.is_too_much:
            self.telling.notice(observation)
        elif isinstance(observation, Received):
            self._session.end_turn(AgentError("limit", self.telling.excess))
        match observation:
            case PromptSent():
                self.judging.is_in_turn = True
            case TurnFinished(reply=reply):
                self.judging.is_in_turn = False
                if reply is not None:
                    self._usage = reply.usage

    def _pay(self) -> None:
        """Count what the prompt has used, once."""
        if self._usage is None:
            return
        used, self._usage = usage_of(self._usage), None
        self._attempt.emit(Used(usage=used))
        for kept in self._attempt.agents.spending.add(self._attempt.place, used, self._session):
            self._attempt.emit(kept)

    def _give_up(self, reason: Parked | Stopped) -> None:
        """End the turn for a reason that is not the agent's."""
        self._given_up = reason
        self._session.end_turn(_GivenUp())


def _name_of(call: str, attempt: Attempt) -> str:
    """What a call of the agent is called in the run: ids are shown and kept, too."""
    return attempt.agents.name_call(attempt.mask(call), str(attempt.place))


class _GivenUp(Exception):  # noqa: N818 - it is no failure
    """Ends the turn; the reason for that is raised instead of it."""


def note_how_it_goes_on(held: Held, attempt: Attempt) -> None:
    """Tell whoever looks on that a session is not the one that was to go on."""
    if held.reason is None:
        return
    how = "which is told what was said" if held.transcript is not None else "which knows nothing of it"
    attempt.emit(Noted(text=f"the earlier session cannot go on: {held.reason}; there is a new one, {how}"))
    held.reason = None

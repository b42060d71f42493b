"""`agent` steps: one prompt to an agent, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coupler.client.errors import AgentError
from coupler.workflow.agents.casting import Cast, cast
from coupler.workflow.agents.exchange import Exchange, note_how_it_goes_on
from coupler.workflow.agents.failures import step_error
from coupler.workflow.agents.start import words_for_login
from coupler.workflow.errors import StepError
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Agent

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt


async def perform_agent(step: Agent, attempt: Attempt) -> Result:
    """Ask the step's agent; raises `StepError`, which has what came of its answer."""
    wanted = await cast(step, attempt)
    if wanted.briefing.prompt is None or not wanted.briefing.prompt.strip():
        raise StepError("template", "the prompt is empty: see `prompt` and `prompt_file`")
    try:
        return await _ask(step, wanted, wanted.briefing.prompt, attempt)
    except AgentError as error:
        raise step_error(error, words_for_login(wanted.order.start.agent)) from None


async def _ask(step: Agent, wanted: Cast, prompt: str, attempt: Attempt) -> Result:
    wanted.budget.refuse_if_spent()
    briefing = wanted.briefing
    async with attempt.agents.session(wanted.order) as held:
        note_how_it_goes_on(held, attempt)
        exchange = Exchange(held, attempt, wanted.rules, step.gate, wanted.budget)
        try:
            reply = await exchange.ask(
                prompt, system=briefing.system, schema=briefing.schema, repairs=wanted.set_up.repairs
            )
        finally:
            if wanted.order.is_kept:
                exchange.keep(prompt)
        output = msgspec.UNSET if briefing.schema is None else reply.output
        return msgspec.structs.replace(exchange.result(reply), status="success", output=output)

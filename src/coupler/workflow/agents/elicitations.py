"""What the agent of a step asks its user: forms to fill in and pages to open, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from coupler.agent.elicitation import asks_for_secret, is_secret
from coupler.client.elicitation import checked
from coupler.fields.form_fields import FormError, TextField
from coupler.workflow.agents.telling import MOST_SHOWN, shortened
from coupler.workflow.journal.happenings import AnswerAsked, AnswerGiven, Noted

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.workflow.engine.attempt import Attempt

LONGEST_FORM = 256 * 1024
"""Bytes of a form that somebody is shown."""


async def filled_in(form: FormRequest, call: str | None, attempt: Attempt) -> FormAnswer:
    """The values by the fields' names; False or None, as whoever was asked does not want to tell."""
    question = shortened(form.message, MOST_SHOWN)
    problem = _problem_of(form)
    if problem is not None:
        attempt.emit(Noted(text=f"a form of the agent was declined, because {problem}: {question}"))
        return False
    async with attempt.asking:
        attempt.emit(AnswerAsked(question=question))
        answer = await attempt.front.fill_in(attempt.place, form, call)
    if not isinstance(answer, Mapping):
        attempt.emit(Noted(text=f"a form of the agent was not filled in: {question}"))
        return answer
    try:
        values = checked(answer, form.fields)
    except FormError as error:
        attempt.emit(Noted(text=f"a form of the agent was declined, because an answer does not fit: {error}"))
        return False
    attempt.emit(AnswerGiven(text=shortened(msgspec.json.encode(values).decode(), MOST_SHOWN), by="user"))
    return values


async def opened(page: UrlRequest, call: str | None, attempt: Attempt) -> bool | None:
    """Whether somebody opens the page."""
    question = shortened(f"{page.message}\n{page.url}", MOST_SHOWN)
    async with attempt.asking:
        attempt.emit(AnswerAsked(question=question))
        answer = await attempt.front.open_page(attempt.place, page, call)
    if answer:
        attempt.emit(AnswerGiven(text=page.url, by="user"))
    else:
        attempt.emit(Noted(text=f"a page of the agent was not opened: {question}"))
    return answer


def _problem_of(form: FormRequest) -> str | None:
    """Why nobody is shown a form: what is filled in is kept with the run, and passes models and logs."""
    # Of a form that is one text, the question is the label.
    is_text = len(form.fields) == 1 and isinstance(form.fields[0], TextField)
    if any(map(is_secret, form.fields)) or (is_text and asks_for_secret(form.message)):
        return "it asks for a secret, which forms are no place for"
    if len(msgspec.json.encode(form.schema)) + len(form.message) > LONGEST_FORM:
        return "it is too long to be read"
    return None

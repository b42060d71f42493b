"""What the agent of a step asks its user: forms to fill in and pages to open, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from coupler.client.form import checked
from coupler.forms.field import FormError
from coupler.workflow.agents.telling import MOST_SHOWN, shortened
from coupler.workflow.journal.happenings import AnswerAsked, AnswerGiven, Noted

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.workflow.engine.attempt import Attempt


async def filled_in(form: FormRequest, call: str | None, attempt: Attempt) -> FormAnswer:
    """The values by the fields' names; False or None, as whoever was asked does not want to tell."""
    question = shortened(form.message, MOST_SHOWN)
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

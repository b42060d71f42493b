"""Files that an agent reads and writes through us during a step: each judged by the step's rules first.

That it does so without having asked is its own mode's decision, as far as `files` lets it, unless a rule that
somebody wrote forbids it or wants it to be asked about. Whoever runs the workflow in an editor has the files
there, with what is not saved yet; all others are on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec import UNSET

from coupler.agent.elicitation import asks_for_secret, is_secret
from coupler.client.elicitation import checked
from coupler.client.files import FileAccess, Files, refusal
from coupler.fields.form_fields import FormError, TextField
from coupler.relay.errors import NOT_PERMITTED
from coupler.runtime import files
from coupler.runtime.files import FilePath, find_inside
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    Diff,
    ReadTextFileRequest,
    ReadTextFileResponse,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from coupler.wire.messages import RpcError
from coupler.workflow.agents.agent_events import MOST_SHOWN, shortened
from coupler.workflow.journal.run_events import AnswerAsked, AnswerGiven, Noted

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.client.session import RemoteSession
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.front import OpenFiles


Touch = Literal["read", "edit"]

LONGEST_CHANGE = 1024 * 1024
"""Characters of a change, old and new, that somebody is shown before it is made."""


class Owner(Protocol):
    """Whoever knows the steps that sessions belong to."""

    async def may_touch(self, session_id: str, touch: Touch, path: str, text: str | None) -> bool:
        """Whether the agent of a session may read a file now, or write this text to it."""
        ...

    def open_files(self, session_id: str) -> OpenFiles | None:
        """The files that are not those on the disk."""
        ...


class StepFiles(Files):
    """Reads and writes, where they are permitted."""

    def __init__(self, access: FileAccess, owner: Owner) -> None:
        super().__init__(access)
        self._owner = owner

    async def _read(self, request: ReadTextFileRequest, session: RemoteSession) -> ReadTextFileResponse:
        await self._require(session, "read", request.path, None)
        opened = self._owner.open_files(session.id)
        path = None if opened is None or not opened.can_read else await _found(opened, request.path, session)
        if opened is None or path is None:
            return await super()._read(request, session)
        line, limit = (None if each is UNSET else each for each in (request.line, request.limit))
        try:
            return ReadTextFileResponse(await opened.read(path, line, limit))
        except (OSError, ValueError) as error:
            raise refusal(error) from None

    async def _write(self, request: WriteTextFileRequest, session: RemoteSession) -> WriteTextFileResponse:
        await self._require(session, "edit", request.path, request.content)
        opened = self._owner.open_files(session.id)
        path = None if opened is None or not opened.can_write else await _found(opened, request.path, session)
        if opened is None or path is None:
            return await super()._write(request, session)
        await opened.write(path, request.content)
        return WriteTextFileResponse()

    async def _require(self, session: RemoteSession, touch: Touch, path: str, text: str | None) -> None:
        if not await self._owner.may_touch(session.id, touch, path, text):
            raise RpcError.because(NOT_PERMITTED, "not permitted: see `tools` of the step", path="path")


async def change_of(path: str, text: str, session: RemoteSession, opened: OpenFiles | None) -> Diff | None:
    """What writing a text would change; None for what is no text, or too long to be shown."""
    try:
        found = None if opened is None or not opened.can_read else await _found(opened, path, session)
        if opened is None or found is None:
            old = await in_thread(lambda: files.read(find_inside(path, session.cwd, session.roots)).decode())
        else:
            old = await opened.read(found)
    except FileNotFoundError:
        return Diff(path, text) if len(text) <= LONGEST_CHANGE else None
    except (OSError, ValueError, RpcError):
        return None
    return Diff(path, text, old) if len(old) + len(text) <= LONGEST_CHANGE else None


async def _found(opened: OpenFiles, path: str, session: RemoteSession) -> FilePath | None:
    """The file that is meant, if it is one of the open ones; raises what the agent is told else."""

    def find() -> FilePath | None:
        found = find_inside(path, session.cwd, session.roots)
        return found if opened.has(found) else None

    try:
        return await in_thread(find)
    except (OSError, ValueError) as error:
        raise refusal(error) from None


# What the agent of a step asks its user: forms to fill in and pages to open, one at a time.


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

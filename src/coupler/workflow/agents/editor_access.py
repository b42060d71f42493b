"""Lets the agent of a step read and write files through Coupler, and ask its user by forms and pages.

Each file is judged by the step's rules first. That an agent touches one without having asked is its own
mode's decision, as far as `files` lets it, unless a rule that somebody wrote forbids it or wants it to be
asked about. Who runs the workflow in an editor has the open files there, with unsaved changes; all others are
on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec import UNSET

from coupler.agent.elicitation import asks_for_secret, asks_secret_field
from coupler.client.elicitation import checked_answer
from coupler.client.files import ClientFiles, FileAccess, file_error
from coupler.fields.form_fields import FormError, TextField
from coupler.relay.errors import NOT_PERMITTED
from coupler.runtime import files
from coupler.runtime.files import SessionPath, find_inside
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


FileOperation = Literal["read", "edit"]

LONGEST_CHANGE = 1024 * 1024
"""Characters of a change, old and new, that somebody is shown before it is made."""

LONGEST_FORM = 256 * 1024
"""Bytes of a form that somebody is shown."""


class FileAccessPolicy(Protocol):
    """Decides about the files of sessions, by the steps that they belong to."""

    async def may_touch(self, session_id: str, touch: FileOperation, path: str, text: str | None) -> bool:
        """Tell whether the agent of a session may read a file now, or write this text to it."""
        ...

    def open_files(self, session_id: str) -> OpenFiles | None:
        """Return the files that are open in an editor."""
        ...


class StepFiles(ClientFiles):
    """Reads and writes files for agents, where the step's rules permit it."""

    def __init__(self, access: FileAccess, owner: FileAccessPolicy) -> None:
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
            raise file_error(error) from None

    async def _write(self, request: WriteTextFileRequest, session: RemoteSession) -> WriteTextFileResponse:
        await self._require(session, "edit", request.path, request.content)
        opened = self._owner.open_files(session.id)
        path = None if opened is None or not opened.can_write else await _found(opened, request.path, session)
        if opened is None or path is None:
            return await super()._write(request, session)
        await opened.write(path, request.content)
        return WriteTextFileResponse()

    async def _require(
        self, session: RemoteSession, touch: FileOperation, path: str, text: str | None
    ) -> None:
        if not await self._owner.may_touch(session.id, touch, path, text):
            raise RpcError.because(NOT_PERMITTED, "not permitted: see `tools` of the step", path="path")


async def diff_for_write(
    path: str, text: str, session: RemoteSession, opened: OpenFiles | None
) -> Diff | None:
    """Return what writing a text would change; None for what is no text, or too long to be shown."""
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


async def _found(opened: OpenFiles, path: str, session: RemoteSession) -> SessionPath | None:
    """Return the file if it is open in the editor, else None; raises the error that the agent is told."""

    def find() -> SessionPath | None:
        found = find_inside(path, session.cwd, session.roots)
        return found if opened.has(found) else None

    try:
        return await in_thread(find)
    except (OSError, ValueError) as error:
        raise file_error(error) from None


async def fill_in_form(form: FormRequest, call: str | None, attempt: Attempt) -> FormAnswer:
    """Return the values by the fields' names; False or None if the user declines or cancels."""
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
        values = checked_answer(answer, form.fields)
    except FormError as error:
        attempt.emit(Noted(text=f"a form of the agent was declined, because an answer does not fit: {error}"))
        return False
    attempt.emit(AnswerGiven(text=shortened(msgspec.json.encode(values).decode(), MOST_SHOWN), by="user"))
    return values


async def open_page(page: UrlRequest, call: str | None, attempt: Attempt) -> bool | None:
    """Ask the user to open a page; True if it is opened."""
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
    """Return why a form is not shown; None if it is.

    What is filled in is kept with the run, and passes models and logs: forms are no place for secrets.
    """
    # Of a form that is one text, the question is the label.
    is_text = len(form.fields) == 1 and isinstance(form.fields[0], TextField)
    if any(map(asks_secret_field, form.fields)) or (is_text and asks_for_secret(form.message)):
        return "it asks for a secret, which forms are no place for"
    if len(msgspec.json.encode(form.schema)) + len(form.message) > LONGEST_FORM:
        return "it is too long to be read"
    return None

"""Who answers what an agent asks during `coupler exec`: its options, and the terminal where they say so."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from coupler.cli.exec.options import PROGRAM, ExecOptions
from coupler.cli.exec.question import ask_permission
from coupler.cli.policy_choice import policy_of
from coupler.cli.question_terminal import QuestionTerminal
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.cli.chat.dialogs import Dialogs
    from coupler.client.elicitation import FormAnswer, FormRequest, OnForm, OnUrl, UrlRequest
    from coupler.client.policy import Decide, PermissionRequest, Policy, Verdict


class Answers:
    """Holds the terminal for as long as questions may come."""

    def __init__(self, options: ExecOptions) -> None:
        is_asked = options.permissions == "ask" or options.forms
        self._terminal = QuestionTerminal.opened() if is_asked else None
        self.policy = self._policy(options)
        has_forms = options.forms and self._terminal is not None
        self.on_form: OnForm | None = self._fill_in if has_forms else None
        self.on_url: OnUrl | None = self._visit if has_forms else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            self._terminal.close()

    def _policy(self, options: ExecOptions) -> Policy:
        is_asked = options.permissions == "ask" and self._terminal is not None
        asked: Decide | None = self._permit if is_asked else None
        try:
            return policy_of(options.permissions, options.allow, options.deny, asked)
        except ValueError as error:
            refuse(str(error), PROGRAM)

    async def _permit(self, request: PermissionRequest) -> Verdict:
        assert self._terminal is not None
        return await ask_permission(request, self._terminal)

    async def _fill_in(self, request: FormRequest) -> FormAnswer:
        assert self._terminal is not None
        async with self._terminal.turn():
            return await self._dialogs(self._terminal).form(request)

    async def _visit(self, request: UrlRequest) -> bool | None:
        assert self._terminal is not None
        async with self._terminal.turn():
            return await self._dialogs(self._terminal).page(request)

    def _dialogs(self, terminal: QuestionTerminal) -> Dialogs:
        # Imported on use: few agents ask.
        from coupler.cli.chat.dialogs import Dialogs
        from coupler.cli.exec.form import FormFront

        return Dialogs(FormFront(terminal))

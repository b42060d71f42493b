"""What the agents of steps are offered: files as they are wanted, questions if somebody can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from coupler.client.remote import Offer
from coupler.workflow.agents.files import Owner, StepFiles

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.client.errors import Listener, Responder
    from coupler.client.files import FileAccess


class Asked(Owner, Protocol):
    """Answers for the steps whose agents ask."""

    @property
    def shows_forms(self) -> bool: ...

    @property
    def shows_pages(self) -> bool: ...

    async def fill_in(self, form: FormRequest) -> FormAnswer: ...

    async def open_page(self, page: UrlRequest) -> bool | None: ...


class StepOffer(Offer):
    """Computed once for an agent, whichever of its steps it works for."""

    def __init__(self, files: FileAccess | None, asked: Asked) -> None:
        super().__init__(
            files=files,
            on_form=asked.fill_in if asked.shows_forms else None,
            on_url=asked.open_page if asked.shows_pages else None,
        )
        self._asked = asked

    def responders(self) -> Mapping[str, Responder | Listener]:
        return {**super().responders(), **StepFiles(self._files, self._asked).responders()}

"""The web search: the tool `web_search`, which asks a search server, or the search of the model's provider.

The tool gives what a server finds as a list. A provider searches by itself while its model answers:
`ModelSearchMiddleware` only offers that to the model, and nobody can be asked about a single search.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, hook_config
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.tools import BaseTool

from coupler.coder.model.repair import joined_content
from coupler.coder.search_providers import MODEL, SearchError, SearchSettings, model_search
from coupler.coder.tools.web import UNTRUSTED_NOTE
from coupler.langchain.current import Current, current, further_rules, send_warning
from coupler.langchain.editor_tools.tool_use import session_tool, tool_use
from coupler.langchain.permission import tool_action
from coupler.langchain.presentation import title_with_text
from coupler.permission.web_requests import FetchError, parsed_url, request_once
from coupler.redaction.sources import looks_secret

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from coupler.agent.session import Session
    from coupler.coder.model.choice import ModelChoice
    from coupler.langchain.middleware import ModelHandler

log = logging.getLogger("coupler.coder")

LONGEST_QUERY = 400
"""Characters of a query; Brave takes no longer ones."""

USUAL_COUNT, MOST_COUNT = 8, 20

PAUSED = "pause_turn"
"""Anthropic's stop reason of an answer that goes on when it is sent back, as after many searches."""


def search_tools(session: Session, settings: SearchSettings | None) -> list[BaseTool]:
    """Return `web_search` if a search server is configured that can be used."""
    if settings is None or settings.provider == MODEL:
        return []
    if (problem := settings.problem()) is not None:
        log.warning("the coder has no web search: %s", problem)
        return []
    key, variable = settings.key(), settings.variable
    if key is not None and variable is not None:
        session.add_secret(variable, key)
        if not looks_secret(variable):
            session.withhold({variable})
    search = WebSearch(settings)
    return [
        session_tool(
            search.web_search, "fetch", session, title=title_with_text("Search the web for", "query")
        )
    ]


class WebSearch:
    """The search tool of one session."""

    def __init__(self, settings: SearchSettings) -> None:
        self._settings = settings

    async def web_search(
        self,
        query: Annotated[str, "What to look for, in words as for any search engine."],
        count: Annotated[int, f"How many results; at most {MOST_COUNT}."] = USUAL_COUNT,
    ) -> tuple[str, dict[str, Any]]:
        """Search the web. The answer is a list of titles, addresses and snippets; read a page with fetch.

        The query goes to a search engine: put no secrets and no private text into it.
        """
        query = " ".join(query.split())
        if not query or len(query) > LONGEST_QUERY or not query.isprintable():
            raise ValueError(f"the query is one line of up to {LONGEST_QUERY} characters")
        if not 1 <= count <= MOST_COUNT:
            raise ValueError(f"count is a number from 1 to {MOST_COUNT}")
        settings = self._settings
        async with tool_use("Search the web for", "fetch", about=query) as use:
            await use.ask()
            if (problem := settings.problem()) is not None:
                raise SearchError(problem)
            wanted = settings.request(query, count)
            try:
                response = await use.prompt.turn.own(
                    request_once(
                        parsed_url(wanted.url),
                        # Who has written their own file knows which server they mean.
                        may_be_private=settings.base_url is not None and not settings.is_from_project,
                        method=wanted.method,
                        headers=wanted.headers,
                        content=wanted.body,
                    )
                )
            except FetchError as error:
                raise SearchError(f"{settings.title} cannot be asked: {error}") from None
            pages = settings.results(response.status, response.body, response.location, count)
            lines = [
                "\n   ".join(
                    filter(None, (f"{number}. {page.title or page.address}", page.address, page.snippet))
                )
                for number, page in enumerate(pages, 1)
            ]
            outcome = {"query": query, "results": [page._asdict() for page in pages]}
            found = "\n".join(lines) or "(Nothing was found.)"
            return f"{settings.title} on {query!r}:\n{UNTRUSTED_NOTE}\n\n{found}", outcome


class ModelSearchMiddleware(AgentMiddleware[Any, Any, Any]):
    """Offers the search of the model's provider where the session's mode and rules have nothing against it.

    Its calls and results stand in the model's answers. They are shown as tool calls, and sent back as they
    came.
    """

    def __init__(
        self,
        models: Mapping[str, BaseChatModel],
        choices: Mapping[str, ModelChoice],
        settings: SearchSettings | None,
    ) -> None:
        super().__init__()
        self._choices = {id(model): choices[name] for name, model in models.items()}
        self._settings = settings if settings is not None and settings.provider == MODEL else None
        self._told: set[str] = set()
        """Notices that the user was shown: each once."""

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """Call the model with the search of its provider."""
        choice, served = self._choices.get(id(request.model)), current()
        if any(map(_is_paused, request.messages)):
            request = request.override(messages=_without_pauses(request.messages))
        if self._settings is None or choice is None or served is None:
            return await handler(request)
        try:
            if (problem := self._settings.problem()) is not None:
                raise SearchError(problem)
            search = model_search(choice)
        except SearchError as error:
            self._tell(served, str(error))
            return await handler(request)
        tool = {**search.tool}
        if not _may_search(served, tool):
            return await handler(request)
        arguments = {**request.model_settings, **search.arguments}
        return await handler(request.override(tools=[*request.tools, tool], model_settings=arguments))

    @hook_config(can_jump_to=["model"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Have an answer go on that the provider has paused in the middle of its searches."""
        return {"jump_to": "model"} if _is_paused(state["messages"][-1]) else None

    def _tell(self, served: Current, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            log.warning("the coder has no web search: %s", problem)
            served.call_on_loop(send_warning, served.turn, "There is no web search", f"{problem}.")


def _is_paused(message: AnyMessage) -> bool:
    return isinstance(message, AIMessage) and message.response_metadata.get("stop_reason") == PAUSED


def _without_pauses(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Join each answer that was paused with the one that continues it."""
    joined: list[AnyMessage] = []
    for message in messages:
        before = joined[-1] if joined else None
        if isinstance(message, AIMessage) and before is not None and _is_paused(before):
            joined[-1] = message.model_copy(update={"content": joined_content(before, message)})
        else:
            joined.append(message)
    return joined


def _may_search(served: Current, tool: dict[str, Any]) -> bool:
    """Return whether the mode has the search, and no rule denies it or wants that somebody is asked."""
    if served.offers is not None and not served.offers(tool):
        return False
    action = tool_action(served, "web_search", None, {}, is_gated=False)
    verdict = served.session.project.permissions().judge(action, further_rules.get())
    return verdict.decision == "allow" or (verdict.decision == "ask" and not verdict.is_against)

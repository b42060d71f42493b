"""The tool `web_search`: asks the search server that is configured, and gives what it finds as a list."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.tools import BaseTool

from coupler.coder.search_providers import SearchError, SearchSettings
from coupler.coder.tools.web import UNTRUSTED_NOTE, FetchError, parsed_url, request_once
from coupler.langchain.editor_tools.tool_use import session_tool, tool_use
from coupler.langchain.presentation import title_with_text
from coupler.redaction.sources import looks_secret

if TYPE_CHECKING:
    from coupler.agent.session import Session

log = logging.getLogger("coupler.coder")

LONGEST_QUERY = 400
"""Characters of a query; Brave takes no longer ones."""

USUAL_COUNT, MOST_COUNT = 8, 20


def search_tools(session: Session, settings: SearchSettings | None) -> list[BaseTool]:
    """Return `web_search` if a search is configured that can be used."""
    if settings is None:
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

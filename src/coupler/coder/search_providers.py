"""The web searches that the coder can use: how each is asked, and what its answers mean.

Nothing here touches the network: a `SearchSettings` makes a request, and reads the response to it. A model's
provider that searches by itself gets a tool of its own in place of requests: `model_search`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from coupler.coder.model.choice import ModelChoice
    from coupler.config import Config

LONGEST_TITLE = 200
LONGEST_ADDRESS = 500
LONGEST_SNIPPET = 500
"""Characters of a result that a model gets."""

LONGEST_COMPLAINT = 200
"""Characters of what a server says that has failed."""

OK = 200
MOVED = range(300, 400)
TOO_MANY = 429
REFUSED = frozenset({401, 403})
OUT_OF_PLAN = frozenset({402, 432, 433})

SEARXNG = "searxng"

MODEL = "model"
"""The search that the model's provider runs itself, while the model answers."""

MOST_SEARCHES = 8
"""Searches that Anthropic runs for one request; each of them costs."""

OPENAI_HOST = "api.openai.com"
"""OpenAI's own server; others that speak as it does have no search."""

_TAG = re.compile(r"<[^>]{0,500}>")


class SearchProvider(NamedTuple):
    """A kind of search server."""

    title: str
    base_url: str | None
    """The address of the provider's own server; None if everybody has their own."""
    key_variable: str | None
    """The variable that usually holds its key; None if it takes none."""


PROVIDERS = {
    SEARXNG: SearchProvider("SearXNG", None, None),
    "brave": SearchProvider("Brave Search", "https://api.search.brave.com", "BRAVE_API_KEY"),
    "tavily": SearchProvider("Tavily", "https://api.tavily.com", "TAVILY_API_KEY"),
    MODEL: SearchProvider("The search of the model's provider", None, None),
}


class ModelSearch(NamedTuple):
    """A search that a model's provider runs itself: its tool, and what is sent besides."""

    tool: Mapping[str, Any]
    arguments: Mapping[str, Any] = {}


MODEL_SEARCHES: Mapping[str, ModelSearch] = {
    # The newer types run code beside the search, and not all models have them.
    "anthropic": ModelSearch(
        {"type": "web_search_20250305", "name": "web_search", "max_uses": MOST_SEARCHES}
    ),
    # Without `include` the server does not tell which pages it has found.
    "openai": ModelSearch({"type": "web_search"}, {"include": ["web_search_call.action.sources"]}),
}
"""Searches of providers, by their names in LangChain."""

_INSTEAD = (
    "choose a model of Anthropic or of OpenAI itself, or set `provider` of [coder.search] to "
    "searxng, brave or tavily"
)


class SearchError(ValueError):
    """The search failed; the message says why and what to do, and is for the model and its user."""


def model_search(choice: ModelChoice) -> ModelSearch:
    """Return the search that the provider of a model runs itself; raises `SearchError` if there is none."""
    if choice.provider.startswith("google"):
        raise SearchError(
            f"{choice.name} has no web search: LangChain cannot send Google's searches back beside other "
            f"tools. To search, {_INSTEAD}"
        )
    if choice.provider not in MODEL_SEARCHES:
        raise SearchError(
            f"{choice.name} has no web search: its provider offers none that the coder can use. "
            f"To search, {_INSTEAD}"
        )
    is_own = choice.base_url is None or urlsplit(choice.base_url).hostname == OPENAI_HOST
    if choice.provider == "openai" and not is_own:
        raise SearchError(
            f"{choice.name} has no web search: its server is not OpenAI's own. To search, {_INSTEAD}"
        )
    return MODEL_SEARCHES[choice.provider]


class SearchRequest(NamedTuple):
    """A request to a search server."""

    url: str
    method: str
    headers: Mapping[str, str]
    body: bytes | None


class FoundPage(NamedTuple):
    """A result of a search, cleaned."""

    title: str
    address: str
    snippet: str


class SearchSettings(Struct, frozen=True):
    """The search that is configured."""

    provider: str
    base_url: str | None = None
    """The server, if it is not the provider's own."""
    is_from_project: bool = False
    """True if a project's file names the server: it gets no key, and must be public."""
    key_variable: str | None = None
    """The variable that holds the key, if it is not the usual one."""

    @classmethod
    def of(cls, config: Config) -> SearchSettings | None:
        """Return the search that the configuration names; None if it names none."""
        provider = config.coder.search.provider
        if provider is None:
            return None
        address = config.settings.get("coder.search.base_url")
        return cls(
            provider,
            config.coder.search.base_url,
            address is not None and address.origin.layer == "project",
            config.coder.search.key_variable,
        )

    @property
    def title(self) -> str:
        """The provider's name for people."""
        return PROVIDERS[self.provider].title

    @property
    def server(self) -> str | None:
        """The address of the server, without a slash at its end."""
        address = self.base_url or PROVIDERS[self.provider].base_url
        return None if address is None else address.rstrip("/")

    @property
    def variable(self) -> str | None:
        """The variable that holds the key; None if there is none to send."""
        return self.key_variable or PROVIDERS[self.provider].key_variable

    def key(self, environ: Mapping[str, str] | None = None) -> str | None:
        """Return the key, if there is one."""
        variable = self.variable
        found = (os.environ if environ is None else environ).get(variable, "") if variable else ""
        return found.strip() or None

    def problem(self, environ: Mapping[str, str] | None = None) -> str | None:
        """Return what is missing for the search to be used; None if nothing is."""
        if self.provider == MODEL:
            return self._problem_of_model()
        if self.server is None:
            return f"{self.title} needs the address of its server: set `base_url` of [coder.search]"
        if PROVIDERS[self.provider].key_variable is None:
            return None
        if self.is_from_project:
            return "a project's file names its server, and keys go only to servers of your own coupler.toml"
        key = self.key(environ)
        if key is None:
            return f"{self.title} needs a key: set the variable {self.variable}"
        if not key.isascii() or not key.isprintable() or " " in key:
            return f"the variable {self.variable} holds no key: it has characters that none has"
        return None

    def _problem_of_model(self) -> str | None:
        given = {"base_url": self.base_url, "key_variable": self.key_variable}
        unused = " and ".join(f"`{name}`" for name, value in given.items() if value is not None)
        return f"{self.title} takes no {unused}: take that out of [coder.search]" if unused else None

    def request(self, query: str, count: int, environ: Mapping[str, str] | None = None) -> SearchRequest:
        """Return the request for a search; `problem` has to be None."""
        key = self.key(environ)
        headers = {"Accept": "application/json"}
        match self.provider:
            case "brave":
                words = urlencode({"q": query, "count": count})
                return SearchRequest(
                    f"{self.server}/res/v1/web/search?{words}",
                    "GET",
                    {**headers, "X-Subscription-Token": key or ""},
                    None,
                )
            case "tavily":
                body = json.dumps({"query": query, "max_results": count}).encode()
                given = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
                return SearchRequest(f"{self.server}/search", "POST", {**headers, **given}, body)
        bearer = {} if key is None or self.is_from_project else {"Authorization": f"Bearer {key}"}
        words = urlencode({"q": query, "format": "json"})
        return SearchRequest(f"{self.server}/search?{words}", "GET", {**headers, **bearer}, None)

    def results(self, status: int, body: bytes, location: str | None, count: int) -> list[FoundPage]:
        """Read the response of the server; raises `SearchError` if it is none."""
        if status in MOVED:
            target = _clean(location or "nowhere", LONGEST_ADDRESS)
            raise SearchError(
                f"{self.title} sends on to {target}, which is not followed: "
                "set `base_url` of [coder.search] to the right address"
            )
        if status != OK:
            raise SearchError(self._failure(status, body))
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise SearchError(self._no_json()) from None
        listed = answer.get("web", {}) if self.provider == "brave" and isinstance(answer, dict) else answer
        found = listed.get("results", []) if isinstance(listed, dict) else None
        if not isinstance(found, list):
            raise SearchError(f"{self.title} answers with something else than results: is `base_url` right?")
        return [*_pages(found)][:count]

    def _no_json(self) -> str:
        if self.provider == SEARXNG:
            return (
                "SearXNG does not answer with JSON: add `json` to `search.formats` in its settings.yml, "
                "or set `base_url` of [coder.search] to its address"
            )
        return f"{self.title} does not answer with JSON: is `base_url` of [coder.search] right?"

    def _failure(self, status: int, body: bytes) -> str:
        said = _complaint(body)
        more = f" ({said})" if said else ""
        if status == TOO_MANY:
            return f"{self.title} has had too many requests (429): wait before you search again{more}"
        if self.provider == SEARXNG and status in REFUSED:
            return f"SearXNG refuses ({status}). {self._no_json()}"
        if status in REFUSED or (status == 422 and "TOKEN" in body[:5000].decode(errors="replace")):
            return (
                f"{self.title} refuses the key of {self.variable} ({status}): it is wrong or has ended{more}"
            )
        if status in OUT_OF_PLAN:
            return (
                f"{self.title} says that the plan of the key of {self.variable} is used up ({status}){more}"
            )
        if status == 404:
            return f"{self.title} is not at {self.server} (404): is `base_url` of [coder.search] right?"
        return f"{self.title} has failed with the status {status}{more}"


def _pages(found: Iterable[Any]) -> Iterable[FoundPage]:
    seen: set[str] = set()
    for each in found:
        if not isinstance(each, dict):
            continue
        address = _clean(each.get("url"), LONGEST_ADDRESS)
        if not address.startswith(("https://", "http://")) or address in seen or address.endswith("…"):
            continue
        seen.add(address)
        snippet = each.get("description") or each.get("content")
        yield FoundPage(_clean(each.get("title"), LONGEST_TITLE), address, _clean(snippet, LONGEST_SNIPPET))


def _clean(text: object, longest: int) -> str:
    """Return a text as one line that prints, without markup and not too long."""
    # Imported on use: most sessions search for nothing.
    import html

    if not isinstance(text, str):
        return ""
    plain = html.unescape(_TAG.sub("", text[: 10 * longest]))
    line = " ".join("".join(each if each.isprintable() else " " for each in plain).split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def _complaint(body: bytes) -> str:
    """Return what a server says of an error, as far as it says it in the usual ways."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    for _ in range(3):
        if not isinstance(said, dict):
            break
        said = next((said[name] for name in ("detail", "error", "message") if said.get(name)), "")
    return _clean(said, LONGEST_COMPLAINT)

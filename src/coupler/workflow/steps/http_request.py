"""The kind `http`: a request to a server, and its response.

The address and each that a redirect leads on to are judged by the permission rules for `fetch`; what no rule
is about is allowed, as the workflow says it. Headers go to no other origin than that of the step's address.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urljoin

import msgspec
from msgspec import UNSET, structs

from coupler.runtime.formatting import printable
from coupler.workflow.errors import StepError
from coupler.workflow.expressions.expression import is_plain, references
from coupler.workflow.journal.run_events import Result, Wrote
from coupler.workflow.language.model import ApprovalGate, ErrorKind, Http, Json, Workflow
from coupler.workflow.steps.kind import StepKind

if TYPE_CHECKING:
    import httpx

    from coupler.permission.decision import Permission, Permissions, Verdict
    from coupler.permission.rules import Rule
    from coupler.permission.web_requests import FetchResponse
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.validation.checks import StepCheck

DEFAULT_TIMEOUT = 60.0
"""Seconds of each request of a step without a `timeout`."""

LARGEST_BODY = 10 * 1024 * 1024
"""Bytes of a response, unpacked; more is an error."""

MOST_REDIRECTS = 5

LONGEST_REASON = 300
"""Characters of a failed request's response that are part of the error's message."""

MOST_LOOKED_AT = 10_000
"""Characters of it that are looked at for that."""

LONGEST_WAIT = 7 * 24 * 3600.0
"""Seconds of a `Retry-After` that are taken for meant."""

OWN_HEADERS = frozenset({"connection", "content-length", "host", "transfer-encoding"})
"""Headers that follow from the request, and are not written by hand."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_GIVEN_HOST = re.compile(r"\s*[A-Za-z]+://[^/?#:{}]+(?:[:/?#]|\s*$)")
"""Matches an address whose host is no template, whatever its port and its path are."""
_JSON = re.compile(r"(?:application|text)/(?:[\w.-]+\+)?json")
_GIVEN = ("inputs", "secrets", "run")
"""Names whose values come from who started the run, and from nobody's answer."""


class HttpKind(StepKind[Http]):
    """A request to a server, and its response."""

    struct = Http
    takes_defaults = True
    works = True
    opens_files = True
    call_kind = "fetch"
    is_detailed = True
    shape: ClassVar[tuple[str, str]] = ("[(", ")]")

    def fields(self, step: Http, workflow: Workflow) -> Sequence[str]:
        return ("status_code", "headers", "text", "output")

    def schema(self, step: Http) -> Json | None:
        return None if step.output == "json" else step.output

    def check(self, step: Http, check: StepCheck) -> None:
        findings = check.findings
        if is_plain(step.url) and (problem := _problem_with(step.url)) is not None:
            findings.wrong(findings.place_of(step, "http"), problem)
        for name in step.headers:
            if (problem := _header_problem(name)) is not None:
                findings.wrong(findings.place_of(step, "headers", name), problem)
        for each in step.ok_status:
            low, high = _bounds(each)
            if low > high:
                findings.wrong(
                    findings.place_of(step, "ok_status"), f"no status is in {each}: write {high}-{low}"
                )
        if step.body is not None and step.method in ("GET", "HEAD"):
            findings.warn(
                findings.place_of(step, "body"),
                f"a {step.method} request with a `body` is refused or ignored by most servers: say another "
                "`method`, such as POST",
            )

    def title(self, step: Http) -> str:
        return f"{step.method} {step.url}"

    async def perform(self, step: Http, attempt: Attempt) -> Result:
        exchange = Exchange(step, attempt, await _rules(attempt))
        url, response = await exchange.run(_request_of(step, attempt))
        return _result(step, attempt, url, response)

    def rehearsal(self, step: Http, attempt: Attempt) -> str:
        query = "&".join(f"{name}={value}" for name, value in _parameters(_shown(step.query, attempt.value)))
        mark = "?" if query and "?" not in step.url else "&" if query else ""
        lines = [f"{step.method} {_shown(step.url, attempt.text)}{mark}{query}"]
        lines += [f"{name}: {_shown(value, attempt.text)}" for name, value in step.headers.items()]
        if step.body is not None:
            body = _shown(step.body, attempt.value)
            lines += ["", body if isinstance(body, str) else msgspec.json.encode(body).decode()]
        return "\n".join(lines)

    async def rehearse(self, step: Http, attempt: Attempt) -> Result:
        return structs.replace(await super().rehearse(step, attempt), status_code=200, headers={})

    def mocked(self, step: Http, content: str, attempt: Attempt) -> Result:
        output = _output(step, content, "application/json", "The file")
        return Result(status="success", status_code=200, headers={}, text=content, output=output)

    def result_of_done(self, step: Http) -> Result:
        return structs.replace(super().result_of_done(step), headers={}, text="")


@dataclass(frozen=True)
class HttpRequest:
    """A request with all its values."""

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    content: bytes | None
    may_be_private: bool
    """True if its host may be one of this machine or its network."""

    @property
    def origin(self) -> tuple[str, str, int | None]:
        return self.url.scheme, self.url.host, self.url.port


class Exchange:
    """Sends the request of one attempt, and follows redirects: each address is judged before it is asked."""

    def __init__(self, step: Http, attempt: Attempt, rules: Sequence[Rule]) -> None:
        from coupler.permission.decision import Permissions

        self._step = step
        self._attempt = attempt
        self._rules = rules
        has_timeout = step.timeout or attempt.workflow.defaults.timeout
        self._seconds = None if has_timeout else DEFAULT_TIMEOUT
        against = [rule for rule in rules if rule.effect != "allow"]
        choices = attempt.agents.choices_in(attempt.cwd)
        self._permissions: Permissions = Permissions(against, choices, attempt.cwd)

    async def run(self, request: HttpRequest) -> tuple[httpx.URL, FetchResponse]:
        """Return the last address and its response; raises `StepError`."""
        for _ in range(MOST_REDIRECTS + 1):
            await self._permit(request)
            response = await self._send(request)
            if response.location is None or _is_ok(self._step, response.status):
                return request.url, response
            request = self._redirected(request, response)
        raise StepError("http", f"It leads on from address to address, more than {MOST_REDIRECTS} times.")

    async def _permit(self, request: HttpRequest) -> None:
        from coupler.permission.action import Action

        cwd = self._attempt.cwd
        action = Action(kind="fetch", name="http", urls=(str(request.url),), cwd=cwd, roots=(cwd,))

        async def ask(verdict: Verdict) -> Permission:
            return await self._ask(request, verdict)

        permission = await self._permissions.decide(action, ask, unruled="allow")
        if not permission.is_given:
            raise StepError("denied", f"{request.url} was not asked: {permission.reason}.")

    async def _ask(self, request: HttpRequest, verdict: Verdict) -> Permission:
        """Ask the front end, as about any other question; nobody there is a no."""
        from coupler.agent.permission import NOT_BY_THE_USER
        from coupler.permission.decision import Permission, nobody
        from coupler.workflow.engine.performers import ask_approval

        if verdict.is_vital and not self._attempt.front.is_present:
            return await nobody(verdict)
        question = f"Send {request.method} {request.url}? {verdict.reason}"
        approval = await ask_approval(ApprovalGate(), self._attempt, question)
        reason = "allowed by the user" if approval.approved else NOT_BY_THE_USER
        return Permission(approval.approved, reason, is_answered=approval.by == "user")

    async def _send(self, request: HttpRequest) -> FetchResponse:
        from coupler.permission.web_requests import (
            FetchError,
            HostNotFoundError,
            PrivateHostError,
            request_once,
        )

        try:
            async with asyncio.timeout(self._seconds):
                return await request_once(
                    request.url,
                    may_be_private=request.may_be_private or self._is_named(request.url),
                    method=request.method,
                    headers=request.headers,
                    content=request.content,
                    seconds=None,
                    most_bytes=LARGEST_BODY,
                )
        except TimeoutError:
            message = f"{request.url.host} did not answer within {DEFAULT_TIMEOUT:g} s: see `timeout`"
            raise StepError("timeout", message) from None
        except HostNotFoundError as error:
            raise StepError("not_found", str(error)) from None
        except PrivateHostError as error:
            raise StepError("denied", str(error)) from None
        except FetchError as error:
            raise StepError("http", str(error)) from None

    def _is_named(self, url: httpx.URL) -> bool:
        from coupler.permission.rules import names_host

        return names_host(self._rules, str(url))

    def _redirected(self, request: HttpRequest, response: FetchResponse) -> HttpRequest:
        """Return the request that a redirect leads on to; what the step says goes to no other origin."""
        assert response.location is not None
        try:
            target = _parsed(urljoin(str(request.url), response.location), "http")
        except ValueError as error:
            raise StepError("http", f"{request.url} leads on to what is no address: {error}") from None
        method, content = request.method, request.content
        if response.status == 303 or (response.status in (301, 302) and method == "POST"):
            method, content = ("HEAD" if method == "HEAD" else "GET"), None
        onward = replace(request, method=method, url=target, content=content)
        is_upgrade = (target.scheme, target.host) == ("https", request.url.host) and target.port is None
        if onward.origin == request.origin or (is_upgrade and request.url.port is None):
            return onward
        if content is not None or method not in ("GET", "HEAD", "OPTIONS"):
            raise StepError(
                "http",
                f"{request.method} {request.url} leads on to {target}: what a step sends goes to no other "
                "server than that of its address.",
            )
        return replace(onward, headers=_USUAL, may_be_private=False)


_USUAL: Mapping[str, str] = {"Accept": "*/*"}


async def _rules(attempt: Attempt) -> Sequence[Rule]:
    """Return the rules of user and project that hold in the step's directory."""
    from coupler.agent.permission import rules_of
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import configuration
    from coupler.runtime.extras import MissingExtraError, import_extra
    from coupler.runtime.threads import in_thread

    def read() -> Sequence[Rule]:
        import_extra("httpx", extra="workflows", feature="An `http` step")
        return rules_of(configuration(attempt.cwd))

    try:
        return await in_thread(read)
    except (ConfigError, ValueError) as error:
        raise StepError("template", str(error)) from None
    except MissingExtraError as error:
        raise StepError("not_found", f"{error}.") from None


def _request_of(step: Http, attempt: Attempt) -> HttpRequest:
    """Return the step's request with its values; raises `StepError`."""
    url = _parsed(attempt.text(step.url))
    if step.query:
        # A list, because a parameter may come several times.
        parameters = [*url.params.multi_items(), *_parameters(attempt.value(dict(step.query)))]
        url = url.copy_with(params=(*parameters,))
    headers = {**_USUAL}
    content = None
    if step.body is not None:
        content, content_type = _content(attempt.value(step.body))
        headers["Content-Type"] = content_type
    written = {name: attempt.text(value) for name, value in step.headers.items()}
    kept = {name: value for name, value in headers.items() if name.lower() not in map(str.lower, written)}
    for name, value in written.items():
        if (problem := _header_problem(name) or _value_problem(name, value)) is not None:
            raise StepError("template", problem)
    return HttpRequest(step.method, url, {**kept, **written}, content, _host_is_given(step.url))


def _parsed(text: str, kind: ErrorKind = "template") -> httpx.URL:
    from coupler.permission.web_requests import FetchError, parsed_url

    try:
        return parsed_url(text)
    except FetchError as error:
        raise StepError(kind, str(error)) from None


def _problem_with(url: str) -> str | None:
    """Return what is wrong with an address, as far as that needs no import."""
    if re.match(r"\s*https?://[^/?#\s]", url) is None:
        return f"`{printable(url, 60)}` is no address: it begins with https:// or http:// and a host"
    return None


def _host_is_given(url: str) -> bool:
    """Tell whether the host is one that the workflow or whoever started it has named.

    One that a server, a model or a program has answered is asked only if it is public, or a rule names it.
    """
    if _GIVEN_HOST.match(url) is not None:
        return True
    return all(reference.names[0] in _GIVEN for reference in references(url))


def _parameters(values: Json) -> list[tuple[str, str]]:
    return [(name, text) for name, value in values.items() for text in _parameter(name, value)]


def _parameter(name: str, value: Json) -> Iterator[str]:
    """Yield the texts of a parameter: one for each item of a list, and none for null."""
    match value:
        case None:
            return
        case str():
            yield value
        case bool() | int() | float():
            yield msgspec.json.encode(value).decode()
        case list() | tuple():
            for each in value:
                yield from _parameter(name, each)
        case _:
            raise StepError("template", f"the parameter `{name}` under `query` cannot be a mapping")


def _content(body: Json) -> tuple[bytes | None, str]:
    """Return the bytes of a body, and what they are: a text is sent as it is, all else as JSON."""
    if not isinstance(body, str):
        return (None if body is None else msgspec.json.encode(body)), "application/json"
    try:
        return body.encode("utf-8", "surrogateescape"), "text/plain; charset=utf-8"
    except UnicodeEncodeError:
        raise StepError("template", "The step's `body` is no text: it has half a surrogate pair.") from None


def _header_problem(name: str) -> str | None:
    if name.lower() in OWN_HEADERS:
        return f"the header `{name}` follows from the request: leave it out"
    if _HEADER_NAME.fullmatch(name) is None:
        return f"`{printable(name, 60)}` is no name of a header"
    return None


def _value_problem(name: str, value: str) -> str | None:
    if not value.isascii() or any((ord(char) < 32 and char != "\t") or ord(char) == 127 for char in value):
        return f"the header `{name}` must be one line of ASCII characters"
    return None


def _shown(template: Json, render: Callable[[str], Json]) -> Json:
    """Render a value for a dry run; a text that uses a secret stays as it was written."""
    match template:
        case str():
            is_secret = any(reference.names[0] == "secrets" for reference in references(template))
            return template if is_secret else render(template)
        case list() | tuple():
            return [_shown(each, render) for each in template]
        case Mapping():
            return {name: _shown(each, render) for name, each in template.items()}
        case _:
            return template


def _bounds(status: int | str) -> tuple[int, int]:
    """Return the lowest and the highest status of `404`, `2xx` or `200-204`."""
    if isinstance(status, int):
        return status, status
    if "-" not in status:
        return int(status[0]) * 100, int(status[0]) * 100 + 99
    low, _, high = status.partition("-")
    return int(low), int(high)


def _is_ok(step: Http, status: int) -> bool:
    return any(low <= status <= high for low, high in map(_bounds, step.ok_status))


def _result(step: Http, attempt: Attempt, url: httpx.URL, response: FetchResponse) -> Result:
    text = _text(response)
    told = " ".join(filter(None, (str(response.status), response.reason)))
    size = f"{response.media_type or 'no type'}, {len(response.body):,} bytes"
    attempt.emit(Wrote(stream="stdout", text=f"{told} ({size})\n"))
    result = Result(status="success", status_code=response.status, headers=dict(response.headers), text=text)
    failed = structs.replace(result, status="failed")
    if not _is_ok(step, response.status):
        kind: ErrorKind = "rate_limit" if response.status == 429 else "http"
        # Without secrets before it is cut: nobody would recognise the half of one.
        said = attempt.mask(" ".join(text[:MOST_LOOKED_AT].split()))[:LONGEST_REASON]
        message = f"{step.method} {url} was answered with {told}{f': {said}' if said else ''}."
        raise StepError(kind, message, retry_after=_retry_after(response), result=failed)
    if response.is_cut:
        raise StepError(
            "invalid_output",
            f"The response of {url} is longer than {LARGEST_BODY >> 20} MiB.",
            result=failed,
        )
    try:
        return structs.replace(result, output=_output(step, text, response.media_type, "The response"))
    except StepError as error:
        raise StepError(error.kind, str(error), result=failed) from None


def _text(response: FetchResponse) -> str:
    """Return the body as text, by the encoding that the server names; other bytes come back as they were."""
    from coupler.permission.web_requests import is_text_encoding

    charset = response.charset
    with suppress(UnicodeError):
        return response.body.decode(charset if charset and is_text_encoding(charset) else "utf-8")
    return response.body.decode("utf-8", "surrogateescape")


def _output(step: Http, text: str, media_type: str, what: str) -> Json | msgspec.UnsetType:
    """Return the JSON of a body: what `output` says, or what the server says that it is."""
    from coupler.workflow.steps.shell_command import decoded_json, fitting, schema_of

    if step.output is not None:
        value = decoded_json(text, what)
        if step.output == "json":
            return value
        return fitting(schema_of(step.output, step.position.file), value, what)
    if _JSON.fullmatch(media_type) is None:
        return UNSET
    try:
        return decoded_json(text, what)
    except StepError:
        return UNSET  # nobody has asked for it


def _retry_after(response: FetchResponse) -> float | None:
    """Return the seconds after which the server wants to be asked again, or None."""
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    written = response.headers.get("retry-after", "").strip()
    if not written:
        return None
    if written.isascii() and written.isdecimal():
        seconds = float(written[:12])
    else:
        try:
            date = parsedate_to_datetime(written)
        except (TypeError, ValueError):
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return seconds if 0 < seconds <= LONGEST_WAIT else None

"""What a server has sent, as text: pages without their markup, other text as it is, and nothing else."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.coder.web.errors import FetchError
from coupler.runtime.commands import result_of
from coupler.runtime.environment import Environment

if TYPE_CHECKING:
    from coupler.coder.web.response import Response

PROGRAM = Path(__file__).with_name("page_text.py")

TIME = 15.0
"""Seconds that a page has to become text."""

LARGEST = 16 * 1024 * 1024
"""Bytes of the text of a page: with whole addresses in its links it can be far longer than the page."""

HTML = frozenset({"text/html", "application/xhtml+xml"})

_TEXT = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|toml)|application/(?:x-)?(?:javascript|ecmascript|typescript"
    r"|ndjson|jsonlines|sh|shellscript|sql|graphql|yaml|toml|x-ndjson|rtf)|image/svg\+xml|message/rfc822"
)
_CHARSETS = re.compile(
    r"utf[-_]?(?:8|16|32)(?:[-_](?:le|be|sig))?|(?:us[-_])?ascii|latin[-_]?\d+|iso[-_]?8859[-_]\d+|iso[-_]2022[-_]\w+"
    r"|(?:cp|windows[-_]?)\d{3,4}|koi8[-_][rut]|gb2312|gbk|gb18030|big5(?:[-_]?hkscs)?|shift[-_]jis(?:[-_]\w+)?"
    r"|euc[-_]\w+|mac[-_]?\w+|tis[-_]620",
    re.IGNORECASE,
)
"""Encodings of text: Python has others, some of which take very long."""

_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_IN_PAGE = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)


async def text_of(response: Response, address: str) -> str:
    """The answer from an address for a model; raises `FetchError` if it is no text."""
    kind = response.media_type
    is_page = kind in HTML
    if kind and not _TEXT.fullmatch(kind) and not is_page:
        raise FetchError(_refusal(response))
    text = response.body.decode(_encoding(response, is_page=is_page), "replace")
    if "\0" in text[:4096]:
        raise FetchError(_refusal(response))
    if is_page or (not kind and re.match(r"\s*<(?:!doctype html|html)\b", text, re.IGNORECASE)):
        return await _text_of_page(text, address)
    return text


def _refusal(response: Response) -> str:
    size = response.size if response.size is not None else len(response.body)
    kind = response.media_type or "of a type that it does not name"
    return f"it is {kind} ({size:,} bytes), and no text: to have the file, download it with run_command"


def _encoding(response: Response, *, is_page: bool) -> str:
    """By the file's own mark, by what the server says, by what the page says, or the usual one."""
    for mark, encoding in _MARKS.items():
        if response.body.startswith(mark):
            return encoding
    named = [response.charset]
    if is_page and (found := _IN_PAGE.search(response.body[:4096])) is not None:
        named.append(found[1].decode("ascii", "replace"))
    for name in named:
        if name is not None and _CHARSETS.fullmatch(name) and _is_known(name):
            return name
    return "utf-8"


def _is_known(encoding: str) -> bool:
    try:
        b"".decode(encoding)
    except LookupError:
        return False
    return True


async def _text_of_page(page: str, address: str) -> str:
    """The page as text, by a program of its own: a page can be written to keep a parser busy for ever."""
    try:
        async with asyncio.timeout(TIME):
            result = await result_of(
                [sys.executable, "-I", "-S", str(PROGRAM), address],
                cwd=str(PROGRAM.parent),
                env=Environment.exact({}),
                largest=LARGEST,
                input=page.encode("utf-8", "replace"),
                hears_stderr=True,
            )
    except TimeoutError:
        raise FetchError(f"the page could not be turned into text within {TIME:g} s") from None
    if result.code != 0:
        raise FetchError("the page could not be turned into text")
    return result.output

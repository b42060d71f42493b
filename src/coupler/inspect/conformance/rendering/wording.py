"""What all forms of a report say in the same words, and how they show text that a stranger wrote."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from coupler.inspect.conformance.assertion import Level
from coupler.inspect.conformance.report import Result

Standing: TypeAlias = Literal["failed", "warned", "passed", "skipped"]
"""How a result counts: a failure that is not mandatory is a warning."""

LEVEL_WORDS = {Level.MUST: "must", Level.SHOULD: "should", Level.ROBUST: "robust"}

PROTOCOL = "https://agentclientprotocol.com/protocol/v1/"

_PAGE = re.compile(r"[a-z][a-z0-9-]*(#[a-z0-9-]+)?")

# What could move a cursor, reorder a line or end an XML document early. Tab and line end are no danger.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


def standing(result: Result) -> Standing:
    """How a result counts; the names are those of `Report.count`."""
    if result.outcome == "failed" and not result.is_mandatory_failure:
        return "warned"
    return result.outcome


def legible(text: str) -> str:
    """The text with everything that is not meant to be seen written as an escape."""
    return _UNSEEN.sub(_escape, text)


def one_line(text: str) -> str:
    """The text legible and without line ends."""
    return legible(text).replace("\n", "\\n").replace("\t", "\\t")


def section_address(section: str) -> str | None:
    """Where a section of the protocol is read; None if it is no page, as for `schema: ContentBlock`."""
    return f"{PROTOCOL}{section}" if _PAGE.fullmatch(section) else None


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

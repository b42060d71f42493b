"""What an editor shows when somebody is asked about a tool call of a step's agent.

The words are the agent's, and they are a claim: what the call is really about stands first in what is shown,
then what the agent shows itself, such as a diff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from coupler.agent.content import BLOCKS, whole_text
from coupler.agent.tool_call import text_content
from coupler.permission.action import KINDS
from coupler.schema.v1 import (
    Content,
    Diff,
    PermissionOption,
    PermissionToolCall,
    TextContent,
    ToolCallContent,
)
from coupler.workflow.agents.telling import LONGEST_LINE, MOST_LISTED, MOST_SHOWN, bounded, shortened
from coupler.workflow.engine.titles import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coupler.events import ToolCall
    from coupler.permission.engine import Offer
    from coupler.workflow.editor.meta import Meta
    from coupler.workflow.engine.front import Wish

ALLOW = PermissionOption("allow", "Allow", "allow_once")
DENY = PermissionOption("deny", "Deny", "reject_once")

LONGEST_DIFF = 1024 * 1024
"""Characters of a change, old and new, that is shown whole: editors refuse messages that are too long."""


def call_about(wish: Wish, question: str, known_as: str, meta: Meta) -> PermissionToolCall:
    """The call that somebody is asked about; `known_as` is the id under which the editor has it."""
    call = wish.tool_call
    return PermissionToolCall(
        known_as,
        kind=call.kind if call.kind in KINDS else "other",  # type: ignore[arg-type]
        status="pending",
        title=_line(call.title or call.name or call.kind),
        name=_line(call.name) if call.name else UNSET,
        content=(text_content(whole_text(question, "a question")), *_shown(call)),
        locations=call.locations[:MOST_LISTED] or UNSET,
        raw_input=UNSET if call.raw_input is None else bounded(call.raw_input),
        meta=meta,
    )


def options_for(wish: Wish | None, mask: Callable[[str], str]) -> tuple[PermissionOption, ...]:
    """Yes and no, for once and for good; what is remembered must be read before it is agreed to."""
    offers = () if wish is None else tuple(each for each in wish.offers if mask(each.text) == each.text)
    allowing = (_option(offer) for offer in offers if offer.answer == "allow")
    denying = (_option(offer) for offer in offers if offer.answer == "deny")
    return (ALLOW, *allowing, DENY, *denying)


def _option(offer: Offer) -> PermissionOption:
    return PermissionOption(offer.kind, offer.text, offer.kind)


def _shown(call: ToolCall) -> Iterator[ToolCallContent]:
    """What the agent shows, as far as an editor can show it."""
    for item in call.content[:MOST_LISTED]:
        match item:
            case Diff(path=path, new_text=new, old_text=old):
                is_short = len(new) + len(old or "") <= LONGEST_DIFF
                yield item if is_short else text_content(f"{_line(path)}: the change is too long to show")
            case Content(content=TextContent(text=text)):
                yield text_content(shortened(whole_text(text, "a text"), MOST_SHOWN))
            case Content(content=block) if isinstance(block, BLOCKS):
                yield item


def _line(text: str) -> str:
    return shortened(visible(" ".join(whole_text(text, "a title").split())), LONGEST_LINE)

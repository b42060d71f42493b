"""Messages: which chunks belong together."""

from __future__ import annotations

from collections.abc import Iterator

from coupler.inspect.conformance.assertion import (
    SHOULD,
    Case,
    Finding,
    fault_unless,
    rule,
)
from coupler.inspect.conformance.reading import (
    CONTENT,
    part,
    spans,
)
from coupler.inspect.trace import Trace, Update

CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")


@rule(
    "A51",
    SHOULD,
    "all chunks of a message have one messageId, and the next message has another",
    "prompt-turn",
    absent="no chunk with a messageId was seen",
)
def messages_have_one_id(trace: Trace) -> Iterator[Case]:
    for session in {update.session for update in trace.updates() if isinstance(update.session, str)}:
        yield from _message_ids(trace, session)


def _message_ids(trace: Trace, session: str) -> Iterator[Case]:
    """Judge the chunks of a session in runs: of one kind, with nothing of the conversation between them.

    A `place` is a turn, and who speaks. An id in two of them belongs to two messages, but for a load, which
    may show the same messages again, with the same ids or with others.
    """
    turns = {span.begin for span in spans(trace, "session/prompt") if span.session == session}
    loads = {span.begin for span in spans(trace, "session/load") if span.session == session}
    places: dict[str, tuple[int, bool]] = {}
    turn, last = 0, None
    passed = 0
    for update in trace.updates(session, *CONTENT):
        between = range(passed, update.entry.number)
        passed = update.entry.number
        if any(begin in between for begin in loads):
            places.clear()
        is_user = update.kind == "user_message_chunk"
        speaks_again = is_user and last is not None and last.kind != "user_message_chunk"
        if speaks_again or any(begin in between for begin in turns | loads):
            turn, last = turn + 1, None
        if update.kind in CHUNKS:
            yield from _chunk_ids(update, last, places, (turn, is_user))
        last = update


def _chunk_ids(
    update: Update, last: Update | None, places: dict[str, tuple[int, bool]], place: tuple[int, bool]
) -> Iterator[Case]:
    message = update.body.get("messageId")
    if last is not None and last.kind == update.kind:
        yield from _change_of_id(last, update)
    if isinstance(message, str):
        reused = places.setdefault(message, place) != place
        yield fault_unless(not reused, f"the id {message!r:.100} belongs to a message before", update.entry)


def _change_of_id(last: Update, update: Update) -> Iterator[Case]:
    """What can be told of two chunks in a row: a space where they meet shows that they are one message."""
    before, after = last.body.get("messageId"), update.body.get("messageId")
    if before == after:
        return
    if before is None or after is None:
        yield Finding("some chunks of a message have an id and some have none", (last.entry, update.entry))
    texts = part(last.body, "content.text"), part(update.body, "content.text")
    if all(isinstance(text, str) for text in texts) and (texts[0].endswith(" ") or texts[1].startswith(" ")):
        yield Finding("the id changes in the midst of a sentence", (last.entry, update.entry))

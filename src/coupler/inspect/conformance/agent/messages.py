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
from coupler.inspect.trace import Entry, Trace, Update

SENTENCE_ENDS = (".", "!", "?", ":", ";", "…")

ENOUGH_SPLITS = 2
"""How many sentences must be split over two ids before it is no accident."""

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
    joints: list[tuple[Update, Update]] = []
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
            if last is not None and last.kind == update.kind:
                joints.append((last, update))
            yield from _use_of_id(update, places, (turn, is_user))
        last = update
    yield from _changes_of_id(joints)


def _use_of_id(
    update: Update, places: dict[str, tuple[int, bool]], place: tuple[int, bool]
) -> Iterator[Case]:
    message = update.body.get("messageId")
    if isinstance(message, str):
        reused = places.setdefault(message, place) != place
        yield fault_unless(not reused, f"the id {message!r:.100} belongs to a message before", update.entry)


def _changes_of_id(joints: list[tuple[Update, Update]]) -> Iterator[Case]:
    """Judge where two chunks of one kind meet. They may be two messages, even if they read like one.

    Only an agent that never gives two such chunks one id shows that it does not know what a message is.
    """
    splits: list[tuple[Entry, Entry]] = []
    for last, update in joints:
        before, after = last.body.get("messageId"), update.body.get("messageId")
        met = last.entry, update.entry
        if before == after:
            continue
        if before is None or after is None:
            yield Finding("some chunks of a message have an id and some have none", met)
        elif _read_like_one(last, update):
            splits.append(met)
            yield Finding("the id changes in the midst of a sentence", met, is_note=True)
    if len(splits) >= ENOUGH_SPLITS and not any(map(_share_an_id, joints)):
        yield Finding("every chunk has an id of its own, also in the midst of a sentence", splits[0])


def _share_an_id(joint: tuple[Update, Update]) -> bool:
    before, after = (update.body.get("messageId") for update in joint)
    return before is not None and before == after


def _read_like_one(last: Update, update: Update) -> bool:
    """Whether nothing but a space is between the words of two chunks."""
    before, after = part(last.body, "content.text"), part(update.body, "content.text")
    if not isinstance(before, str) or not isinstance(after, str):
        return False
    return (before.endswith(" ") or after.startswith(" ")) and not before.rstrip().endswith(SENTENCE_ENDS)

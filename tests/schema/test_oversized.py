"""Every list, map, object, number and text of the protocol, blown up: decoding is quick, or refuses quickly.

The messages are made from the types, so that a new list of the protocol is tested as soon as it is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from coupler.schema import unstable, v1
from coupler.schema.base import MAX_ITEMS
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.lenient import MAX_READS
from coupler.schema.methods import METHODS, UNSTABLE_METHODS
from coupler.wire import messages
from schema.oversized import Oversized, contents, oversized
from schema.samples import CHUNK, Role, new_session, read, update

SHORT = 40_000
"""Bytes of a part in the quick round: more items than a list may have."""

LONG = 10_000_000
"""Bytes of a part in the long round: a line may not be longer."""

BOUND = 1.0
"""Seconds of processor time for one message of full length: alone it is a third of that at most."""

SHORT_BOUND = 0.2
"""Seconds of processor time for one message of the quick round."""

LOGGED = 30_000
"""Characters in the log for all messages together."""

MOST_IN_AN_ERROR = 2000
"""Characters of an error, whatever a peer has chosen for a key or a value."""


def every_part(*wanted: str) -> Iterator[tuple[Role, str, type, Oversized]]:
    seen: dict[Role, set[type]] = {"agent": set(), "client": set()}
    for method in [*METHODS.values(), *UNSTABLE_METHODS.values()]:
        handler: Role = "client" if method.direction == "client" else "agent"
        asker: Role = "agent" if handler == "client" else "client"
        for role, member, kind in ((handler, "params", method.params), (asker, "result", method.result)):
            if kind is not None:
                for part in oversized(kind, seen[role]):
                    if part.part in wanted:
                        yield role, member, kind, part


def slow_and_wordy(wanted: tuple[str, ...], size: int, bound: float) -> list[str]:
    """What took too long, or has an error that is too long, with what it was."""
    failures = []
    for role, member, kind, part in every_part(*wanted):
        for name, content in contents(part, size):
            head = b'{"jsonrpc":"2.0","id":1,"method":"m",' if member == "params" else b'{"id":1,'
            frame = b'%b"%b":%b}' % (head, member.encode(), part.filled(content))
            began = time.process_time()
            problem = problem_in(frame, member, kind, role)
            took = time.process_time() - began
            if took > bound or len(problem) > MOST_IN_AN_ERROR:
                failures.append(f"{kind.__name__} {part.path}, {name}: {took:.2f} s, {problem[:100]}")
    return failures


def problem_in(frame: bytes, member: str, kind: type, role: Role) -> str:
    message = messages.parse(frame, len(frame))
    if isinstance(message, messages.Malformed):
        return message.error.message
    try:
        decode(kind, getattr(message, member), role)
    except DecodingError as error:
        return str(error)
    return ""


def test_every_list_and_map_of_the_protocol_is_found() -> None:
    found = {f"{kind.__name__} {part.path}" for _, _, kind, part in every_part("list", "map")}
    assert {
        "NewSessionRequest mcpServers",
        "NewSessionRequest mcpServers[].env",
        "PromptRequest prompt",
        "InitializeResponse authMethods",
        "ListSessionsResponse sessions",
        "SessionNotification update.entries",
        "SessionNotification update.locations",
        "RequestPermissionRequest options",
        "InitializeRequest _meta",
    } <= found
    assert len(found) > 100


@pytest.mark.parametrize("parts", [("list",), ("map",)])
def test_no_list_or_map_takes_long_to_read_however_long_it_is(
    parts: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    failures = slow_and_wordy(parts, SHORT, SHORT_BOUND)
    assert not failures, "\n".join(failures)
    assert sum(len(record.getMessage()) for record in caplog.records) < LOGGED


@pytest.mark.long
@pytest.mark.parametrize("part", ["list", "map", "object", "number", "text", "any"])
def test_no_part_of_any_message_takes_long_to_read_in_a_line_of_full_length(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    failures = slow_and_wordy((part,), LONG if part == "list" else LONG // 10, BOUND)
    assert not failures, "\n".join(failures)
    assert sum(len(record.getMessage()) for record in caplog.records) < LOGGED


def test_a_list_that_is_too_long_is_refused_and_where_bad_items_may_be_dropped_it_is_cut() -> None:
    texts = [{"type": "text", "text": ""}] * (MAX_ITEMS + 1)
    with pytest.raises(DecodingError, match=r"^prompt: expected at most 10000 items, got 10001$"):
        read(v1.PromptRequest, {"sessionId": "s", "prompt": texts}, "agent")
    assert len(read(v1.PromptRequest, {"sessionId": "s", "prompt": texts[1:]}, "agent").prompt) == MAX_ITEMS

    entry = {"content": "c", "priority": "low", "status": "pending"}
    plan = update(sessionUpdate="plan", entries=[entry] * (MAX_ITEMS + 5))
    assert len(read(v1.SessionNotification, plan, "client").update.entries) == MAX_ITEMS


def test_dropped_items_are_told_of_a_few_times_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    assert read(v1.NewSessionRequest, new_session(mcpServers=[0] * 50_000), "agent").mcp_servers == []
    assert len(caplog.records) == 11
    assert caplog.messages[0] == "mcpServers[0]: expected an object, got a number; the item is dropped"
    assert caplog.messages[-1] == "49990 more items of the same message are dropped"


def test_a_message_whose_lists_hold_too_much_together_is_refused() -> None:
    group = {"group": "g", "name": "n", "options": [{"value": "v", "name": "n"}] * 1000}
    option = {"id": "o", "name": "n", "type": "select", "currentValue": "v", "options": [group] * 40}
    changed = update(sessionUpdate="config_option_update", configOptions=[option])
    with pytest.raises(DecodingError, match=f"more than {MAX_READS} values .* send less at once"):
        read(unstable.SessionNotification, changed, "client")


def test_a_long_text_with_many_commas_is_read_as_ever() -> None:
    text = "a, b, [c], {d}\n" * 100_000
    chunk = {**CHUNK, "content": {"type": "text", "text": text}}
    assert read(v1.SessionNotification, update(**chunk), "client").update.content.text == text


def test_a_long_key_is_shortened_in_errors() -> None:
    content = {"k" * 1_000_000: [1]}
    with pytest.raises(DecodingError) as caught:
        read(v1.AcceptElicitationResponse, {"action": "accept", "content": content}, "agent")
    assert len(str(caught.value)) < 200

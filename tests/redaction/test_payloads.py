"""The list of what is never masked."""

from redaction.payloads import NEVER_MASKED, Payload
from tables import table


def test_every_payload_is_listed_once() -> None:
    names = [payload.name for payload in NEVER_MASKED]
    places = [place for payload in NEVER_MASKED for place in payload.places]
    assert len(names) == len(set(names))
    assert len(places) == len(set(places))


@table("payload", NEVER_MASKED, ids=lambda payload: payload.name)
def test_a_payload_says_where_it_is_and_why_in_one_sentence(payload: Payload) -> None:
    assert payload.places
    assert payload.reason.endswith(".")
    assert payload.reason.count(".") == 1


@table(
    "place",
    [
        "fs/read_text_file result: content",
        "fs/write_text_file: content",
        "session/prompt: prompt",
        "terminal/create: env",
        "tools/call: arguments",
    ],
)
def test_the_payloads_of_the_design_are_listed(place: str) -> None:
    assert any(place in payload.places for payload in NEVER_MASKED)

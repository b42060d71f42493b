"""Events as the store keeps them."""

from __future__ import annotations

from coupler.events.records import TurnsHidden, from_record, hidden_record, hidden_turns
from tables import table

Change = tuple[int, tuple[int, ...], tuple[int, ...]]


@table(
    "changes, expected",
    [
        ([], set()),
        ([(3, (2, 3), ())], {2, 3}),
        ([(3, (2, 3), ()), (4, (4,), (2,))], {3, 4}),
        ([(3, (2, 3), ()), (4, (4,), (2,)), (10, (2, 10), ())], {2, 3, 4, 10}),
    ],
)
def test_turns_are_hidden_as_the_last_change_says(changes: list[Change], expected: set[int]) -> None:
    records = [hidden_record(number, TurnsHidden(gone, back)) for number, gone, back in changes]

    assert hidden_turns({record.key for record in records}) == expected
    assert all(isinstance(from_record(*record), TurnsHidden) for record in records)


def test_a_change_that_a_newer_version_has_written_is_no_end_of_a_load() -> None:
    assert hidden_turns({"3/2/", "x", "1/2", "4//2/5", "5/a/"}) == {2}

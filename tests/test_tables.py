"""Tables of cases: all rows are tried, and all that fail are told."""

from __future__ import annotations

import pytest

from tables import table


def test_every_row_that_fails_is_reported_with_its_reason() -> None:
    tried = []

    @table("number, square", [(1, 1), (2, 5), (3, 9), (4, 15)])
    def check(number: int, square: int) -> None:
        tried.append(number)
        assert number**2 == square, "no square"

    with pytest.raises(pytest.fail.Exception) as failure:
        check()

    assert tried == [1, 2, 3, 4]
    assert "2 of 4 rows" in str(failure.value)
    assert "{'number': 2, 'square': 5}" in str(failure.value)
    assert "{'number': 4, 'square': 15}" in str(failure.value)
    assert str(failure.value).count("no square") == 2


def test_tables_can_be_combined_and_have_names_for_rows() -> None:
    @table("left", [1, 2], ids=["one", "two"])
    @table("right", [pytest.param(1, id="one"), 3])
    def check(left: int, right: int) -> None:
        assert left == right

    with pytest.raises(pytest.fail.Exception) as failure:
        check()

    assert "2 of 2 rows" in str(failure.value)
    assert "one" in str(failure.value)


class TestInClasses:
    @table("value", [1, 2])
    def test_fixtures_are_given_to_every_row(
        self, value: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        assert value
        assert tmp_path_factory is not None


def test_a_table_of_which_every_row_is_skipped_is_skipped() -> None:
    @table("value", [1, 2])
    def check(value: int) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception, match="not here"):
        check()

"""Equality of results between systems: order and integer types do not matter, rows do."""

from __future__ import annotations

import polars as pl
from suite.equality import difference

EXPECTED = {"answer": pl.DataFrame({"g": [1, 2, None], "mean": [0.1, 2.5, None]})}


def test_order_of_rows_and_columns_does_not_matter() -> None:
    found = pl.DataFrame(
        {"mean": [None, 2.5, 0.1 + 1e-13], "g": [None, 2, 1]}, schema_overrides={"g": pl.Int32}
    )
    assert difference({"answer": found}, EXPECTED) is None


def test_a_wrong_row_is_told() -> None:
    found = pl.DataFrame({"g": [1, 2, None], "mean": [0.1, 2.6, None]})
    told = difference({"answer": found}, EXPECTED)
    assert told is not None
    assert "(2, 2.5)" in told
    assert "(2, 2.6)" in told


def test_doubled_rows_differ() -> None:
    doubled = pl.concat([EXPECTED["answer"], EXPECTED["answer"].head(1)])
    assert "4 rows, not 3" in str(difference({"answer": doubled}, EXPECTED))


def test_missing_views_and_columns_are_told() -> None:
    assert "not ['answer']" in str(difference({}, EXPECTED))
    assert "columns" in str(difference({"answer": pl.DataFrame({"g": [1]})}, EXPECTED))

"""Deltas of encoded rows as puts and deletes of a keyed table."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.delta import KEY, WEIGHT
from viewkeep.errors import PipelineError
from viewkeep.ops.arrange import ROW, changes_of, keyed, net_rows

tables = st.dictionaries(st.binary(max_size=3), st.binary(max_size=2), max_size=12)


def delta(rows: list[tuple[bytes, bytes, int]]) -> pl.DataFrame:
    schema = {KEY: pl.Binary, ROW: pl.Binary, WEIGHT: pl.Int64}
    return pl.DataFrame(rows, schema, orient="row")


@given(tables, tables, st.randoms())
def test_the_changes_lead_from_one_table_to_the_next(before, after, random):
    rows = [(k, r, -1) for k, r in before.items()] + [(k, r, 1) for k, r in after.items()]
    random.shuffle(rows)
    changes, same = keyed(net_rows(delta(rows))), changes_of(delta(rows))
    assert (list(same.keys), list(same.rows)) == (list(changes.keys), list(changes.rows))
    assert same.are_new == changes.are_new
    assert list(changes.keys) == sorted(changes.keys)
    assert changes.are_new == all(after.get(key) == row for key, row in before.items())
    made = dict(before)
    for key, row in zip(changes.keys, changes.rows, strict=True):
        assert made.get(key) != row
        made[key] = row
    assert {key: row for key, row in made.items() if row is not None} == after


@pytest.mark.parametrize(
    "rows",
    [
        [(b"a", b"1", 2)],
        [(b"a", b"1", 1), (b"a", b"2", 1)],
        [(b"b", b"1", 1), (b"a", b"1", 1), (b"b", b"2", 1)],
    ],
)
def test_two_rows_of_one_key_are_refused(rows):
    with pytest.raises(PipelineError, match="share one key"):
        keyed(delta(rows))

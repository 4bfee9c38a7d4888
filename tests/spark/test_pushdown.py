"""Filters as key ranges: every row that passes the filters is in the range."""

from __future__ import annotations

import operator
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    Not,
)

from viewkeep.codec.keys import KeyCodec
from viewkeep.spark.pushdown import key_range
from viewkeep.types import INT, STRING

KINDS: dict[type[Filter], Callable[[object, object], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
numbers = st.integers(-3, 3)
texts = st.text("ab\0", max_size=3)
filters = st.lists(
    st.builds(
        lambda kind, pair: kind((pair[0],), pair[1]),
        st.sampled_from(sorted(KINDS, key=lambda kind: kind.__name__)),
        st.one_of(st.tuples(st.just("a"), numbers), st.tuples(st.just("b"), texts)),
    ),
    max_size=4,
)


@given(filters, st.lists(st.tuples(numbers, texts)), st.tuples(st.booleans(), st.booleans()))
def test_no_row_that_passes_is_left_out(
    given_filters: list[EqualTo], rows: list[tuple[int, str]], descending: tuple[bool, bool]
) -> None:
    codec = KeyCodec((INT, STRING), descending)
    found = key_range(codec, ("a", "b"), given_filters)
    for row in rows:
        values = dict(zip("ab", row, strict=True))
        if all(KINDS[type(f)](values[f.attribute[0]], f.value) for f in given_filters):
            key = codec.encode_one(row)
            assert found.start <= key
            assert found.stop is None or key < found.stop


def test_other_filters_are_ignored() -> None:
    codec = KeyCodec((INT,))
    assert key_range(codec, ("a",), [Not(EqualTo(("a",), 1))]) == key_range(codec, ("a",), [])

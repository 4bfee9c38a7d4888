"""Pages give back their rows, and say so when they are damaged."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeep.codec.packed import Packed
from viewkeep.codec.pages import pack, rows_of, sizes, unpack
from viewkeep.errors import Corrupt
from viewkeep.expr import Ref
from viewkeep.ops.aggregates.ordered import GROUP, Ordered, in_order
from viewkeep.types import DOUBLE

from .strategies import types
from .strategies import values as values_of

widths = st.none() | st.integers(1, 5)


@given(widths, st.lists(st.integers(1, 4)), st.data())
def test_round_trip(width, counts, data):
    strings = st.binary(max_size=9) if width is None else st.binary(min_size=width, max_size=width)
    total = sum(counts)
    rows = data.draw(st.lists(strings, min_size=total, max_size=total))
    firsts = np.cumsum([0, *counts])[:-1].astype(np.int64)
    pages = pack(Packed.from_list(rows), firsts, width)
    found, held = unpack(pages, width)
    assert held.tolist() == counts
    assert found.to_list() == rows
    if counts:
        assert sizes(Packed.from_list(rows), firsts, width).tolist() == list(map(len, pages))
    for page, first, count in zip(pages, firsts.tolist(), counts, strict=True):
        assert unpack([page], width)[0].to_list() == rows[first : first + count]
        assert rows_of(page, width) == rows[first : first + count]


def test_rows_that_agree_in_most_bytes_are_small():
    rows = [b"0123456789" + bytes([a, 7, b]) for a in range(3) for b in range(10)]
    pages = pack(Packed.from_list(rows), np.array([0, 10, 11]), 13)
    # Ten rows with one byte of their own, a lone row, and nineteen with two.
    assert [len(page) for page in pages] == [13 + 2 + 10, 13, 13 + 2 + 19 * 2]
    assert unpack(pages, 13)[0].to_list() == rows


def assert_damaged(page, broken, width):
    with pytest.raises(Corrupt):
        unpack([page, broken], width)
    with pytest.raises(Corrupt):
        rows_of(broken, width)


@pytest.mark.parametrize("width", [None, 3])
def test_damage_is_seen(width):
    rows = [b"abc", b"def", b"ghi"]
    (page,) = pack(Packed.from_list(rows), np.array([0]), width)
    # What is left after a whole number of rows looks like a page.
    whole = [] if width is None else [3, 7, 10]
    for end in range(len(page)):
        if end not in whole:
            assert_damaged(page, page[:end], width)
    assert_damaged(page, page + b"x", width)


def test_a_page_whose_rows_differ_nowhere_is_damaged():
    (page,) = pack(Packed.from_list([b"abc", b"abd"]), np.array([0]), 3)
    assert_damaged(page, page[:3] + b"\0" + page[4:], 3)


@settings(max_examples=200, deadline=None)
@given(types, st.booleans(), st.data())
def test_values_are_in_the_order_of_their_keys(type, down, data):
    """What pages rely upon: sorting values is sorting their keys, if those are not cut."""
    drawn = data.draw(st.lists(st.none() | values_of(type), max_size=8))
    order = Ordered((Ref("x", type),), (down,), (False,))
    column = pl.Series(order.names[0], drawn, type.polars)
    if type == DOUBLE:
        column = column + 0.0
    values = in_order(pl.DataFrame([pl.Series(GROUP, [0] * len(drawn), pl.Int64), column]), order)
    keys = order.key_codec.encode([values[order.names[0]]])
    assert keys == sorted(keys)

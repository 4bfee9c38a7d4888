"""Key bytes: their order is the order of the values, and one row at a time equals many at once."""

import contextlib
import functools
import itertools
import pickle

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec import keys
from viewkeep.codec.keys import (
    KEPT,
    MAX_KEY,
    KeyCodec,
    bounded,
    group_prefix,
    prefix_end,
)
from viewkeep.errors import Corrupt, InvalidRow
from viewkeep.types import BIGINT, BINARY, DOUBLE, INT, STRING, decimal

from .strategies import canonical, frame, tables


@pytest.fixture(params=[0, keys.FEW], autouse=True, ids=["arrays", "few"], scope="module")
def few(request):
    """Each test with every number of keys by arrays, and with few of them one at a time."""
    before, keys.FEW = keys.FEW, request.param
    yield
    keys.FEW = before


def compare(a, b, descending):
    """The law, spelt out: NULL first, NaN last, each column in its direction."""
    for left, right, down in zip(a, b, descending, strict=True):
        result = compare_values(left, right)
        if result:
            return -result if down else result
    return 0


def compare_values(a, b):
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if isinstance(a, float) and (a != a or b != b):
        return (a != a) - (b != b)
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    return (a > b) - (a < b)


@st.composite
def keyed(draw):
    columns, rows = draw(tables(max_columns=4))
    descending = tuple(draw(st.booleans()) for _ in columns)
    return columns, descending, rows


@given(keyed())
def test_order_of_bytes_is_order_of_values(case):
    columns, descending, rows = case
    codec = KeyCodec(tuple(column.type for column in columns), descending)
    by_values = sorted(rows, key=functools.cmp_to_key(lambda a, b: compare(a, b, descending)))
    by_bytes = sorted(rows, key=codec.encode_one)
    for a, b in zip(by_values, by_bytes, strict=True):
        assert compare(a, b, descending) == 0
    for a in rows:
        for b in rows:
            same = codec.encode_one(a) == codec.encode_one(b)
            assert same == (compare(a, b, descending) == 0)


@given(keyed())
def test_many_at_once_equals_one_at_a_time(case):
    columns, descending, rows = case
    codec = KeyCodec(tuple(column.type for column in columns), descending)
    assert codec.encode(frame(columns, rows).get_columns()) == [
        codec.encode_one(row) for row in rows
    ]


@given(keyed())
def test_round_trip_and_prefixes(case):
    columns, descending, rows = case
    codec = KeyCodec(tuple(column.type for column in columns), descending)
    for row in rows:
        key = codec.encode_one(row)
        assert [canonical(v) for v in codec.decode_one(key)] == [canonical(v) for v in row]
        for length in range(len(row)):
            prefix = codec.encode_one(row[:length])
            assert key.startswith(prefix)
            assert codec.decode_one(prefix) == codec.decode_one(key)[:length] or any(
                v != v for v in row[:length] if v is not None
            )


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_prefix_end_is_the_smallest_key_after_the_prefix(prefix, key):
    end = prefix_end(prefix)
    within = prefix <= key and (end is None or key < end)
    assert within == key.startswith(prefix)


def test_a_slice_of_a_frame_encodes_like_the_frame():
    codec = KeyCodec((STRING, decimal(20, 3)))
    df = pl.DataFrame(
        {"s": ["a", "b", None, "d\0"], "d": ["1.5", None, "2.25", "-3"]}
    ).with_columns(pl.col("d").cast(pl.Decimal(20, 3)))
    whole = codec.encode(df.get_columns())
    assert codec.encode(df[1:3].get_columns()) == whole[1:3]
    assert codec.encode(pl.concat([df[:1], df[1:]], rechunk=False).get_columns()) == whole


def test_long_keys_are_cut_but_stay_distinct():
    codec = KeyCodec((STRING, BIGINT))
    long = ["x" * 600 + tail for tail in "ab"]
    keys = [codec.encode_one((text, 1)) for text in long]
    assert [len(key) for key in keys] == [MAX_KEY, MAX_KEY]
    assert len({key[:KEPT] for key in keys}) == 1
    assert keys[0] != keys[1]
    assert codec.encode([pl.Series(long), pl.Series([1, 1])]) == keys
    assert keys[0].startswith(codec.encode_one((long[0],)))
    with pytest.raises(Corrupt):
        codec.decode_one(keys[0])


def test_a_key_that_was_cut_never_equals_one_that_was_not():
    cut = bounded(b"x" * 1000)
    assert bounded(cut) != cut
    assert bounded(b"x" * (MAX_KEY - 1)) == b"x" * (MAX_KEY - 1)


def test_refusals():
    codec = KeyCodec((BIGINT, INT))
    with pytest.raises(InvalidRow, match="key column 2"):
        codec.encode_one((1, 2**31))
    with pytest.raises(InvalidRow, match="2 columns"):
        codec.encode_one((1, 2, 3))
    with pytest.raises(InvalidRow, match="INT"):
        codec.encode([pl.Series("a", [1]), pl.Series("b", [1])])
    with pytest.raises(InvalidRow, match="2 columns"):
        codec.encode([pl.Series("a", [1])])


@given(st.binary(max_size=30))
def test_decoding_rubbish_raises_corrupt_or_gives_values(data):
    for types in [(BIGINT, STRING), (DOUBLE,), (BINARY, decimal(5, 2))]:
        with contextlib.suppress(Corrupt):
            KeyCodec(types).decode_one(data)


def test_codecs_are_values():
    codec = KeyCodec((BIGINT, STRING), (True, False))
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert hash(codec) == hash(KeyCodec((BIGINT, STRING), (True, False)))
    assert codec != KeyCodec((BIGINT, STRING))


@given(st.lists(st.tuples(st.text(alphabet="ab\0", max_size=3), st.integers(218, 226)), max_size=6))
def test_no_group_prefix_begins_another(parts: list[tuple[str, int]]) -> None:
    """Texts that agree on some 220 bytes, around where groups are cut."""
    codec = KeyCodec((STRING,))
    groups = {codec.encode_one(("a" * width + end,)) for end, width in parts}
    made = sorted(group_prefix(group) for group in groups)
    assert len(set(made)) == len(groups)
    assert not any(b.startswith(a) for a, b in itertools.pairwise(made))


def test_a_cut_group_does_not_begin_like_a_whole_one() -> None:
    codec, short = KeyCodec((STRING,)), "a" * 222
    whole = codec.encode_one((short,))
    for number in range(2000):  # some digest begins with the bytes that end a text
        long = codec.encode_one((f"{short}\0{number}{'b' * 200}",))
        assert not group_prefix(long).startswith(group_prefix(whole))

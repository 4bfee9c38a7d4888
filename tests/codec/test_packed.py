"""Packed byte strings give back what went in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec.packed import Packed, gather_ranges, prefixed, scatter_ranges

items = st.lists(st.none() | st.binary(max_size=5))


@given(items)
def test_round_trip(strings):
    packed = Packed.from_list(strings)
    assert len(packed) == len(strings)
    assert packed.to_list() == strings
    assert packed.is_present.tolist() == [item is not None for item in strings]
    assert packed.compact().tobytes() == b"".join(item or b"" for item in strings)


@given(items, st.data())
def test_take_by_index_and_mask(strings, data):
    packed = Packed.from_list(strings)
    mask = data.draw(st.lists(st.booleans(), min_size=len(strings), max_size=len(strings)))
    chosen = [index for index, kept in enumerate(mask) if kept]
    expected = [strings[index] for index in chosen]
    assert packed.take(np.array(mask, bool)).to_list() == expected
    assert packed.take(np.array(chosen[::-1], np.int64)).to_list() == expected[::-1]


@given(st.lists(items))
def test_concat(parts):
    joined = Packed.concat([Packed.from_list(part) for part in parts])
    assert joined.to_list() == [item for part in parts for item in part]


def test_absent():
    assert Packed.absent(3).to_list() == [None, None, None]
    assert Packed.absent(0).to_list() == []


@given(st.lists(st.binary(max_size=4), min_size=1))
def test_scatter_is_the_inverse_of_gather(strings):
    packed = Packed.from_list(strings)
    reverse = packed.take(np.arange(len(strings))[::-1])
    gathered = gather_ranges(reverse.buffer, reverse.starts, reverse.lengths)
    target = np.zeros(packed.buffer.size, np.uint8)
    scatter_ranges(target, reverse.starts, reverse.lengths, gathered)
    assert target.tobytes() == packed.buffer.tobytes()


@given(items, st.integers(0, 6), st.integers(0, 6))
def test_a_part_is_packed_too(strings, start, stop):
    packed = Packed.from_list(strings)
    assert list(packed[start:stop]) == strings[start:stop]
    assert list(packed) == strings


@given(st.lists(st.binary(min_size=2, max_size=2), min_size=1), st.data())
def test_strings_of_one_length_are_a_matrix(strings, data):
    packed = Packed.from_list(strings)
    assert packed.matrix.tobytes() == b"".join(strings)
    assert Packed.from_matrix(packed.matrix).to_list() == strings
    places = data.draw(st.permutations(range(len(strings))))
    moved = packed.take(np.array(places, np.int64))
    assert moved.matrix.tobytes() == b"".join(strings[place] for place in places)


@given(st.lists(st.binary(max_size=2)), st.binary(max_size=3))
def test_prefixed(strings, prefix):
    expected = [prefix + string for string in strings]
    assert prefixed(prefix, strings) == prefixed(prefix, Packed.from_list(strings)) == expected

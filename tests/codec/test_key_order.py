"""Many keys at once are placed and ordered as one by one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec.key_order import hash_key, hash_keys, order, rising
from viewkeep.codec.packed import Packed
from viewkeep.codec.physical import FEW

ANY = st.lists(st.binary(max_size=3), max_size=8)


def of_width(width: int, spread: int, count: int, seed: int) -> list[bytes]:
    """Keys of one length that differ in some of their bytes."""
    random = np.random.default_rng(seed)
    matrix = np.full((count, width), 7, np.uint8)
    for place in random.permutation(width)[:spread]:
        matrix[:, place] = random.integers(0, 256, count)
    return [row.tobytes() for row in matrix]


@given(ANY)
def test_hashes_agree(some: list[bytes]) -> None:
    expected = [hash_key(key) for key in some]
    assert hash_keys(some).tolist() == hash_keys(Packed.from_list(some)).tolist() == expected


@pytest.mark.parametrize("width", [1, 9, 18, 64, 65, 200])
def test_hashes_of_many_keys_agree(width: int) -> None:
    keys = of_width(width, width, FEW + 50, width)
    expected = [hash_key(key) for key in keys]
    assert hash_keys(Packed.from_list(keys)).tolist() == expected
    assert hash_keys(Packed.from_list([*keys, b""])).tolist() == [*expected, hash_key(b"")]


@given(ANY)
def test_rising_keys_are_in_order_and_distinct(some: list[bytes]) -> None:
    expected = sorted(set(some)) == some
    assert rising(some) == expected
    assert rising(Packed.from_list(some)) == expected
    assert rising(pl.Series(some, dtype=pl.Binary)) == expected


@pytest.mark.parametrize("width", [1, 9, 18])
def test_rising_keys_of_one_length(width: int) -> None:
    keys = sorted(set(of_width(width, width, 200, width)))
    assert rising(Packed.from_list(keys))
    for place in (0, len(keys) // 2, len(keys) - 2):
        after = place + 1
        swapped = [*keys[:place], keys[after], keys[place], *keys[after + 1 :]]
        assert not rising(Packed.from_list(swapped))
        assert not rising(Packed.from_list([*keys[:after], keys[place], *keys[after:]]))


@given(ANY)
def test_the_order_is_that_of_bytes(some: list[bytes]) -> None:
    assert [some[place] for place in order(Packed.from_list(some))] == sorted(some)


@pytest.mark.parametrize(("width", "spread"), [(3, 0), (9, 8), (18, 5), (18, 16), (40, 30)])
def test_the_order_of_keys_of_one_length(width: int, spread: int) -> None:
    keys = of_width(width, spread, 500, spread)
    assert [keys[place] for place in order(Packed.from_list(keys))] == sorted(keys)

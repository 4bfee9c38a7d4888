"""Frames on their way between tasks come out as they went in, whatever their columns hold."""

from __future__ import annotations

import pickle
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine import frames
from viewkeep.engine.frames import from_body, to_body
from viewkeep.ops.aggregates.ordered import TIMES

MANY = frames._FEW + 1


def sent(frame: pl.DataFrame) -> pl.DataFrame:
    return from_body(pickle.loads(pickle.dumps(to_body(frame))))


@given(
    st.integers(0, 3).flatmap(
        lambda width: st.lists(st.binary(min_size=width, max_size=width), min_size=1, max_size=5)
    ),
    st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=5),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    st.sampled_from([0, 1, MANY - 2, MANY - 1, MANY, 3 * MANY]),
)
def test_any_frame(keys: list[bytes], rows: list[Any], weights: list[int], height: int) -> None:
    def repeated(items: list[Any]) -> list[Any]:
        return [items[i % len(items)] for i in range(height)]

    frame = pl.DataFrame(
        [
            pl.Series(KEY, repeated(keys), pl.Binary),
            pl.Series("row", repeated(rows), pl.Binary),
            pl.Series("text", repeated(["", "é", None]), pl.String),
            pl.Series(WEIGHT, repeated(weights), pl.Int64),
            pl.Series(TIMES, repeated([1, -1]), pl.Int64),
            pl.Series("n", repeated([None, 7]), pl.Int32),
        ]
    )
    assert_frame_equal(sent(frame), frame)


@pytest.mark.parametrize("height", [MANY, 1])
def test_nothing_but_keys(height: int) -> None:
    frame = pl.DataFrame([pl.Series(KEY, [b"ab"] * height, pl.Binary)])
    assert_frame_equal(sent(frame), frame)


def test_keys_and_weights_take_few_bytes() -> None:
    keys = [number.to_bytes(9, "big") for number in range(100_000)]
    frame = pl.DataFrame([pl.Series(KEY, keys, pl.Binary), pl.Series(WEIGHT, [1] * len(keys))])
    assert len(pickle.dumps(to_body(frame))) < 4.1 * len(keys)  # 3 bytes of a key, 1 of a weight

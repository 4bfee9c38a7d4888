"""What is held at once is bounded by rows and by bytes, whatever the widths of rows are."""

from __future__ import annotations

import random
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from viewkeep.engine import amounts
from viewkeep.engine.loading import LoadChunk
from viewkeep.engine.operators.sides import columns as sides
from viewkeep.engine.steps import PLACE
from viewkeep.stores import contract, create_store
from viewkeep.stores.contract import ROW_BYTES, StateWrite

pytestmark = pytest.mark.usefixtures("columns_lane")


def texts(source: random.Random, rows: int, widest: int) -> list[str]:
    """Mostly short ones, and a few as wide as that."""
    return ["x" * source.choice((0, 3, 20, 20, widest)) for _ in range(rows)]


def test_the_sizes_of_rows_add_up() -> None:
    frame = pl.DataFrame({"a": [1, 2, None], "t": ["x" * 1_000, None, ""], "b": [b"y" * 50] * 3})
    sizes = amounts.row_sizes(frame)
    assert round(sizes[0] - sizes[1], 6) == 1_000
    assert frame.estimated_size() <= sizes.sum() <= frame.estimated_size() + 3 * 40
    assert amounts.row_amounts(frame).tolist() == [int(sizes[0] // ROW_BYTES), 1, 1]
    assert amounts.amount(frame[1:]) == 2
    assert amounts.amount(frame) == frame.estimated_size() // ROW_BYTES


@pytest.mark.parametrize("most", [1, 7, 100, 10_000])
def test_parts_are_bounded(most: int) -> None:
    held = np.random.default_rng(most).integers(0, 50, 200)
    parts = list(amounts.parts(held, most))
    assert [place for part in parts for place in range(part.start, part.stop)] == list(range(200))
    for part in parts:
        assert held[part].sum() <= most or part.stop == part.start + 1
    for part, following in pairwise(parts):
        assert held[part].sum() + held[following.start] > most


@pytest.mark.parametrize("seed", range(6))
def test_pieces_of_a_join_are_bounded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, most = random.Random(seed), 500
    monkeypatch.setattr(sides, "ROWS_AT_ONCE", most)
    groups, widest = source.choice((1, 3, 40)), source.choice((20, 2_000))
    one, other = (
        pl.DataFrame(
            {
                PLACE: [source.randrange(groups) for _ in range(rows)],
                name: range(rows),
                f"t{name}": texts(source, rows, widest),
            }
        )
        for name, rows in (("a", 90), ("b", 70))
    )
    pieces = list(sides._Placed(one, groups).pairs(other))
    whole = pl.concat(pieces)
    assert whole.sort("a", "b").equals(
        one.join(other, on=PLACE).select(whole.columns).sort("a", "b")
    )
    widest_pair = amounts.amount(one[:1]) + 2 * widest // ROW_BYTES + 2
    for piece in pieces:
        assert amounts.amount(piece) <= max(most, widest_pair)


@pytest.mark.parametrize("seed", range(4))
def test_chunks_to_load_are_bounded(seed: int) -> None:
    source, most = random.Random(seed), 2_000
    keys = [number.to_bytes(4, "big") for number in range(5_000)]
    rows = [text.encode() for text in texts(source, 5_000, (0, 100, 1_000, 5_000)[seed])]
    asked = 0

    def scan(start: bytes, limit: int) -> contract.Chunk:
        nonlocal asked
        asked += 1
        first = int.from_bytes(start[:4], "big") + 1 if start else 0
        stop = first + limit
        return contract.Chunk(keys[first:stop], rows[first:stop], stop < len(keys))

    bound, loaded = "", []
    while True:
        chunk = LoadChunk.read(bound, most, scan)
        loaded += chunk.keys
        # The first rows of a chunk are read before anything is known of them.
        first = sum(map(len, chunk.rows[:1_000])) // ROW_BYTES
        size = sum(map(len, chunk.keys)) + sum(map(len, chunk.rows))
        assert amounts.amount_of(len(chunk.rows), size) <= max(most, first) + most
        if chunk.progress is None:
            break
        bound = chunk.progress
    assert loaded == keys


def test_rows_found_come_in_batches_of_bounded_bytes(tmp_path: Path) -> None:
    with closing(create_store(str(tmp_path / "db"), durability="relaxed")) as store:
        keys = [b"p" + number.to_bytes(4, "big") for number in range(300)]
        rows = [b"r" * (10_000 if number % 100 == 7 else 10) for number in range(300)]
        store.state.apply(0, 1, 0, [StateWrite(5, keys, list(rows))])
        batches = list(store.state.find(0, 5, [b"p"], 1, size=100))
    assert [key for batch in batches for key in batch.keys] == keys
    assert [row for batch in batches for row in batch.rows] == rows
    assert [len(batch.rows) for batch in batches] == [8, 100, 100, 92]
    for batch in batches:
        assert len(batch.rows) <= 100
        assert sum(map(len, batch.rows[:-1])) < 100 * ROW_BYTES

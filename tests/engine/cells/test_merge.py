"""DELTA's merge over a real store: the rows that come out are those of the set of operations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest
from tests.ops.cells.model import visible_row

import viewkeep
from viewkeep import Database
from viewkeep.cells import (
    CellOperation,
    CellRules,
    TieRule,
    delete_cells,
    delete_range,
    delete_row,
    delete_versions,
    put,
)
from viewkeep.engine.cells import merge
from viewkeep.engine.cells.merge import Merge, MergeInput
from viewkeep.engine.cells.travel import CellBox, combined, frames_of, ranges_in, rows_in, spread
from viewkeep.engine.state import ShardState
from viewkeep.ops.cells import ranges, row
from viewkeep.plan.nodes import KeyPart
from viewkeep.plan.program import StateTable
from viewkeep.types import BIGINT, BINARY, BOOLEAN, Column

KEYS = [b"%02d" % number for number in range(30)]
RULES = CellRules(TieRule.SEQUENCE, versions=True)


def table(number: int, *columns: Column, key: Sequence[str]) -> StateTable:
    return StateTable(number, "test", columns, tuple(map(KeyPart, key)), tuple(key[:1]))


TABLES = (
    table(7, Column("key", BINARY), Column("state", BINARY), key=["key"]),
    table(
        8, Column("start", BINARY), Column("stop", BINARY), Column("through", BIGINT), key=["start"]
    ),
    table(
        9,
        Column("at", BIGINT),
        Column("is_segment", BOOLEAN),
        Column("key", BINARY),
        key=["at", "is_segment", "key"],
    ),
)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_AT_ONCE", 3)
    monkeypatch.setattr(merge, "_PURGED", 2)


class Shard:
    """One shard, fed epoch by epoch; it keeps the rows that the changes given out add up to."""

    def __init__(self, database: Database, shard: int):
        self.store, self.shard, self.epoch = database.store, shard, count(1)
        self.rows: dict[bytes, Mapping[int, bytes]] = {}

    def run(self, parts: Sequence[MergeInput], below: int | None = None) -> int:
        """One epoch in parts; how many rows it wrote."""
        epoch = next(self.epoch)
        state = ShardState(self.store, self.shard, epoch, max(0, epoch - 1), below)
        for part in parts:
            for changed in Merge(state, TABLES, RULES, part).run():
                for key, old, new in changed:
                    assert row.visible(old) == self.rows.pop(key, None)
                    seen = row.visible(new)
                    if seen is not None:
                        self.rows[key] = seen
            state.commit()
        return state.commit()

    def bytes(self) -> list[object]:
        """All that is kept."""
        at = next(self.epoch)
        return [
            self.store.state.scan(self.shard, one.number, limit=10_000, at=at) for one in TABLES
        ]


def random_operation(source: random.Random, low: int, high: int) -> CellOperation:
    at, key = source.randint(low, high), source.choice(KEYS)
    columns = source.sample([1, 2, 5], source.randint(1, 2))
    match source.randrange(12):
        case 0:
            return delete_cells(0, key, at, columns)
        case 1:
            return delete_versions(0, key, at, columns)
        case 2:
            return delete_row(0, key, at)
        case 3 | 4:
            start, stop = sorted(source.sample([*KEYS, b"", b"9"], 2))
            return delete_range(0, start, source.choice([stop, stop, None]), at)
        case _:
            cells = [(c, source.choice([b"x", b"y", None])) for c in columns]
            sequence, inserts = source.randrange(100), source.random() < 0.3
            return put(0, key, at, cells, is_insert=inserts, sequence=sequence)


def box_of(operations: Sequence[CellOperation]) -> CellBox:
    box = CellBox()
    for one in operations:
        box.take(one, RULES)
    return box


def parts_of(box: CellBox, source: random.Random) -> Iterator[MergeInput]:
    """What came, in one part or several."""
    bounds = sorted(source.sample(sorted(box.rows), min(len(box.rows), source.randrange(3))))
    after: bytes | None = None
    for last in [*bounds, None]:
        inside = MergeInput({}, box.ranges, after, last)
        yield MergeInput(
            {k: s for k, s in box.rows.items() if inside.holds(k)}, box.ranges, after, last
        )
        after = last


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with viewkeep.open(tmp_path / "test.vk", shards=4, durability="relaxed") as opened:
        yield opened


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_those_of_the_set_whatever_the_epochs(database: Database, seed: int) -> None:
    source = random.Random(seed)
    history = [random_operation(source, 0, 30) for _ in range(150)]
    repeated = [*history, *source.sample(history, 40)]
    source.shuffle(repeated)
    one, other = Shard(database, 0), Shard(database, 1)
    one.run([MergeInput(box_of(history).rows, box_of(history).ranges)])
    come: list[CellOperation] = []
    while repeated:
        some, repeated = repeated[:17], repeated[17:]
        come += some
        other.run(list(parts_of(box_of(some), source)))
        expected = {key: visible_row(come, key, RULES) for key in KEYS}
        assert other.rows == {key: seen for key, seen in expected.items() if seen is not None}
    assert one.rows == other.rows
    assert one.bytes() == other.bytes()


@pytest.mark.parametrize("seed", range(8))
def test_purging_leaves_what_is_seen_and_drops_all_deletions(database: Database, seed: int) -> None:
    source = random.Random(seed)
    purged, never = Shard(database, 0), Shard(database, 1)
    for low in range(0, 60, 4):
        some = [random_operation(source, low, low + 20) for _ in range(12)]
        purged.run(list(parts_of(box_of(some), source)), below=low)
        never.run([MergeInput(box_of(some).rows, box_of(some).ranges)])
        assert purged.rows == never.rows
    for _ in range(60):
        purged.run([MergeInput()], below=1_000)
    rows, segments, due = purged.bytes()
    assert len(rows.keys) == len(purged.rows)
    assert not segments.keys
    assert not due.keys


def test_what_comes_again_writes_nothing(database: Database) -> None:
    source = random.Random(5)
    history = [random_operation(source, 0, 30) for _ in range(100)]
    shard = Shard(database, 0)
    part = MergeInput(box_of(history).rows, box_of(history).ranges)
    assert shard.run([part]) > 0
    assert shard.run([part]) == 0


def test_a_deleted_range_reaches_every_shard_and_travels_as_frames() -> None:
    box = box_of([put(0, b"a", 5, [(1, b"x")]), delete_range(0, b"a", b"c", 3)])
    boxes = dict(spread(box, 4))
    assert all(one.ranges == box.ranges for one in boxes.values())
    assert len(boxes) == 4
    assert sum(len(one.rows) for one in boxes.values()) == 1
    frames = frames_of(box, 4)
    assert ranges_in([frames["ranges"]]) == box.ranges
    assert rows_in([frames["cells"]] * 2, RULES) == box.rows
    assert combined([box, box], RULES).rows == box.rows


def test_many_ranges_meet_in_few_segments(database: Database) -> None:
    """Neighbours that end up with one timestamp are one segment, whichever came first."""
    shard = Shard(database, 0)
    for start, stop in ((b"c", b"d"), (b"a", b"b"), (b"b", b"c"), (b"d", None), (b"", b"a")):
        shard.run([MergeInput({}, ranges.of([delete_range(0, start, stop, 7)]))])
    assert len(shard.bytes()[1].keys) == 1

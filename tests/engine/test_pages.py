"""Ordered values in pages, epoch by epoch, equal a plain count of values."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest

from viewkeep.codec.keys import MAX_KEY, KeyCodec, bounded, group_prefix
from viewkeep.codec.packed import listed
from viewkeep.codec.pages import unpack
from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine.state import ShardState
from viewkeep.engine.values import pages
from viewkeep.engine.values.ordered import ValueChanges, advance_values, extremes
from viewkeep.errors import PipelineError
from viewkeep.expr import Ref
from viewkeep.ops.aggregates.ordered import GROUP, TIMES, Ordered, in_order
from viewkeep.plan.nodes import KeyPart
from viewkeep.plan.program import StateTable
from viewkeep.stores.contract import Store
from viewkeep.types import BIGINT, DOUBLE, INT, STRING, Column, DataType

from .test_aggregates import fresh

LONG = "l" * 470
WORDS = ["", "a", "ab", "\0", LONG, LONG + "a", LONG + "b", LONG * 2, LONG * 2 + "z", "z"]
SHAPES: list[tuple[tuple[DataType, ...], tuple[bool, ...]]] = [
    ((BIGINT,), (False,)),
    ((STRING,), (False,)),
    ((DOUBLE, INT), (True, False)),
    ((INT, STRING), (False, True)),
]
VALUES: dict[str, list[Any]] = {
    "BIGINT": list(range(-40, 40)),
    "INT": [None, -1, 0, 7],
    "DOUBLE": [-0.0, 0.0, 1.5, -2.5, float("nan"), float("inf")],
    "STRING": WORDS,
}
GROUPS = [b"\1", b"\2a", b"\2b", *(b"g" * 299 + bytes([end]) for end in range(5))]

Value = tuple[Any, ...]
Held = dict[bytes, Counter[bytes]]  # group -> key of a value -> how many rows hold it


class Model:
    """An ordered table on a shard, and what it should hold."""

    def __init__(self, store: Store, types: tuple[DataType, ...], down: tuple[bool, ...]):
        exprs = tuple(Ref(f"x{i}", type) for i, type in enumerate(types))
        self.order = Ordered(exprs, down, (True, *[False] * (len(types) - 1)))
        key = (KeyPart("g"), *map(KeyPart, self.order.names, down))
        columns = (Column("g", STRING), *self.order.columns)
        self.table = StateTable(7, "values of x", columns, key, ("g",), 1)
        self.store, self.epoch = store, 0
        self.codec = KeyCodec(types, down)
        self.held: Held = {group: Counter() for group in GROUPS}
        self.values: dict[bytes, Value] = {}  # by their keys without a group's prefix

    def key(self, group: bytes, value: bytes) -> bytes:
        return bounded(group_prefix(group) + value)

    def draw(self, source: random.Random) -> list[tuple[bytes, bytes, int]]:
        """Some gains: group, key of the value, how many rows more."""
        drawn = []
        after = {group: counts.copy() for group, counts in self.held.items()}
        for group in source.sample(GROUPS, source.randint(1, len(GROUPS))):
            empty = source.random() < 0.15
            if empty:
                drawn += [(group, value, -times) for value, times in after[group].items()]
            for _ in range(0 if empty else source.randint(1, 30)):
                if after[group] and source.random() < 0.45:
                    value = source.choice(list(after[group]))
                    times = -source.randint(1, after[group][value])
                else:
                    row = tuple(source.choice(VALUES[t.name]) for t in self.codec.types)
                    if row[0] is None:
                        continue
                    value = self.codec.encode_one(row)
                    self.values[value] = tuple(0.0 if part == 0 else part for part in row)
                    times = source.randint(1, 3)
                after[group][value] += times
                after[group] = +after[group]
                drawn.append((group, value, times))
        return drawn

    def advance(self, drawn: list[tuple[bytes, bytes, int]]) -> tuple[ValueChanges, ShardState]:
        """Run an epoch on the shard, without committing it."""
        state = ShardState(self.store, 0, self.epoch, max(self.epoch - 1, 0))
        names = sorted({group for group, _, _ in drawn})
        groups = pl.DataFrame({KEY: names}, {KEY: pl.Binary})
        rows = [(group, *self.values[value], times) for group, value, times in drawn]
        gain = pl.DataFrame(rows, {KEY: pl.Binary, **self.order.schema}, orient="row")
        return advance_values(state, self.table, self.order, groups, gain), state

    def check_pages(self) -> None:
        """The law of pages, and their values."""
        chunk = self.store.state.scan(0, 7, limit=10_000, at=self.epoch)
        found: list[tuple[bytes, int]] = []
        ends = [*chunk.keys, b"\xff" * 600][1:]
        for page, body, end in zip(chunk.keys, chunk.rows, ends, strict=True):
            rows, _ = unpack([body], self.order.row_codec.width)
            (group,) = (g for g in GROUPS if page.startswith(group_prefix(g)))
            for row in rows.to_list():
                assert row is not None
                *value, times = self.order.row_codec.decode_one(row)
                key = self.key(group, self.codec.encode_one(value))
                assert page <= key < end
                found.append((key, times))
        expected = [
            (self.key(group, value), times)
            for group, counts in self.held.items()
            for value, times in counts.items()
        ]
        assert found == sorted(expected)

    def check(self, changes: ValueChanges, before: Held, touched: list[bytes]) -> None:
        """What the engine reads of the changes."""
        assert [group_prefix(group) for group in touched] == changes.prefixes
        found = {
            (touched[row[GROUP]], self.codec.encode_one([row[n] for n in self.order.names])): (
                row[TIMES],
                row[pages.GAIN],
                row[WEIGHT],
            )
            for row in changes.rows.iter_rows(named=True)
        }
        assert len(found) == changes.rows.height
        expected = {}
        for group in touched:
            old, new = before[group], self.held[group]
            for value in {*old, *new}:
                if old[value] != new[value]:
                    weight = (new[value] > 0) - (old[value] > 0)
                    expected[group, value] = (new[value], new[value] - old[value], weight)
        assert found == expected
        changed = {group for group, _ in expected}
        whole = [
            (touched[row[0]], self.codec.encode_one(row[1:-1]), row[-1])
            for row in changes.all_values().iter_rows()
        ]
        assert sorted(whole) == sorted(
            (group, value, times) for group in changed for value, times in self.held[group].items()
        )
        for largest in (False, True):
            held = [self.best(before[group], largest) for group in touched]
            old = pl.DataFrame(held, self.values_schema, orient="row")
            alive = pl.Series([bool(self.held[group]) for group in touched], dtype=pl.Boolean)
            chosen = extremes(changes, old, alive, largest).rows()
            keys = [self.codec.encode_one(row) if row[0] is not None else None for row in chosen]
            wanted = [self.best(self.held[group], largest) for group in touched]
            assert keys == [
                self.codec.encode_one(row) if row[0] is not None else None for row in wanted
            ]

    @property
    def values_schema(self) -> dict[str, pl.DataType]:
        return {name: self.order.schema[name] for name in self.order.names}

    def best(self, counts: Counter[bytes], largest: bool) -> Value:
        """The first or last value by itself, not by its key, which may have been cut."""
        nothing = (None,) * len(self.codec.types)
        if not counts:
            return nothing
        rows = [(0, *self.values[value]) for value in counts]
        frame = pl.DataFrame(rows, {GROUP: pl.Int64, **self.values_schema}, orient="row")
        return in_order(frame, self.order).row(-1 if largest else 0)[1:]

    def check_scans(
        self, changes: ValueChanges, before: Held, touched: list[bytes], source: random.Random
    ) -> None:
        """Ranges of the values as they were."""
        for place, group in enumerate(touched):
            keys = sorted(self.key(group, value) for value in before[group])
            bounds = [b"", *keys, *(key + b"\0" for key in keys)]
            for reverse in (False, True):
                start = source.choice(bounds)
                stop = source.choice([None, *bounds[1:]])
                found = [key for key, _ in changes.scan(place, start, stop, reverse=reverse)]
                wanted = [key for key in keys if start <= key and (stop is None or key < stop)]
                assert found == (wanted[::-1] if reverse else wanted)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape[0]))
@pytest.mark.parametrize("size", [20, 90, 640])
@pytest.mark.parametrize("seed", range(3))
def test_values_epoch_by_epoch(
    shape: tuple[tuple[DataType, ...], tuple[bool, ...]],
    size: int,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "FULL", size)
    monkeypatch.setattr(pages, "PART", max(size // 2, 1))
    monkeypatch.setattr(pages, "MANY", [128, 4, 12][seed])
    monkeypatch.setattr(pages, "SOME", [64, 2, 6][seed])
    monkeypatch.setattr(pages, "AT_ONCE", [1, 5, 20_000][seed])
    source = random.Random(seed)
    with fresh() as store:
        model = Model(store, *shape)
        for epoch in range(1, 13):
            model.epoch = epoch
            drawn = model.draw(source)
            if not drawn:
                continue
            before = {group: counts.copy() for group, counts in model.held.items()}
            touched = sorted({group for group, _, _ in drawn})
            for group, value, times in drawn:
                model.held[group][value] += times
                model.held[group] = +model.held[group]
            for _ in range(source.choice([1, 2])):  # a task may run twice
                changes, state = model.advance(drawn)
                model.check(changes, before, touched)
                model.check_scans(changes, before, touched, source)
                state.commit()
            model.check_pages()
            if source.random() < 0.3:
                store.state.sweep(0, epoch - 1)


def test_a_value_that_was_never_added_is_not_removed() -> None:
    with fresh() as store:
        model = Model(store, (BIGINT,), (False,))
        model.epoch = 1
        model.values = {b"x": (5,)}
        with pytest.raises(PipelineError, match="values of x is removed more often"):
            model.advance([(GROUPS[0], b"x", -1)])


def test_pages_have_neither_too_many_bytes_nor_too_many_values() -> None:
    with fresh() as store:
        model = Model(store, (BIGINT,), (False,))
        model.epoch = 1
        dense, wide = range(1_000), range(10_000, 10**18, 10**15)
        values = {number: model.codec.encode_one((number,)) for number in (*dense, *wide)}
        model.values = {key: (number,) for number, key in values.items()}
        _, state = model.advance([(GROUPS[0], values[n], 1) for n in dense])
        state.commit()
        _, state = model.advance([(GROUPS[1], values[n], 1) for n in wide])
        state.commit()
        chunk = store.state.scan(0, 7, limit=999, at=1)
        width = model.order.row_codec.width
        held = [len(unpack([row], width)[0]) for row in chunk.rows]
        assert sum(held) == 2_000
        assert max(held) <= pages.MANY
        assert max(map(len, chunk.rows)) <= pages.FULL
        few = [n for n, key in zip(held, chunk.keys, strict=True) if key > group_prefix(GROUPS[1])]
        assert max(few) < pages.SOME <= min(held[:10])


def test_a_large_value_has_a_page_of_its_own() -> None:
    """Else each change of a small value beside it would write it again."""
    with fresh() as store:
        model = Model(store, (STRING,), (False,))
        model.epoch = 1
        words = ["a", "b", "m" * 10_000, "y", "z"]
        model.values = {word.encode(): (word,) for word in words}
        _, state = model.advance([(GROUPS[0], word.encode(), 1) for word in words])
        state.commit()
        sizes = [len(row) for row in store.state.scan(0, 7, limit=9, at=1).rows]
        assert len(sizes) == 3
        assert min(sizes[0], sizes[2]) < 100 < 10_000 < sizes[1] < 10_100


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "prefixes",
    [
        [b""],
        [b"a", b"b", b"c"],
        [b"a", b"bc"],
        [b"g" * (MAX_KEY - 11), b"h" * (MAX_KEY - 11)],  # with a BIGINT: one less than too long
        [b"g" * (MAX_KEY - 10), b"h" * (MAX_KEY - 10)],
    ],
    ids=["no group", "of one length", "of two", "long", "too long"],
)
def test_keys_of_many_values_are_those_of_each(
    shape: tuple[tuple[DataType, ...], tuple[bool, ...]], prefixes: list[bytes]
) -> None:
    types, down = shape
    order = Ordered(
        tuple(Ref(f"x{i}", type) for i, type in enumerate(types)), down, (False,) * len(types)
    )
    source = random.Random(3)
    made = [[source.choice(VALUES[type.name]) for _ in range(300)] for type in types]
    values = pl.DataFrame(
        [pl.Series(n, v, t.polars) for n, v, t in zip(order.names, made, types, strict=True)]
    )
    groups = np.array([source.randrange(len(prefixes)) for _ in range(300)])
    codec = KeyCodec(types, down)
    expected = [
        bounded(prefixes[group] + codec.encode_one(row))
        for group, row in zip(groups.tolist(), values.rows(), strict=True)
    ]
    assert listed(pages.value_keys(order, prefixes, groups, values)) == expected

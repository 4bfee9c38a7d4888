"""Any operations on cells through epochs: ranges, cells and versions deleted, equal timestamps.

The store is one whose log is a list in memory; its rows are what `tests/ops/cells/model.py` says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeep.cells import CellKind, CellOperation, CellRules, TieRule, delete_range, put
from viewkeep.codec.cells import encoder
from viewkeep.codec.keys import KeyCodec
from viewkeep.engine.cells import loading, merge
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.plan.program import Operator
from viewkeep.stores import create_store
from viewkeep.stores.contract import CellChunk, Cut, LogSplit, Store
from viewkeep.stores.wrapped import WrappedLog, WrappedStore, WrappedTables
from viewkeep.types import BIGINT, STRING

from ...ops.cells import model
from ..history import FOLDER, History, Row
from ..lanes import in_both_lanes

TABLE = "CREATE TABLE cells (id BIGINT PRIMARY KEY, a BIGINT, b STRING, c BIGINT)"
VIEWS = [
    "CREATE VIEW whole AS SELECT * FROM cells",
    "CREATE VIEW per_b AS SELECT b, COUNT(*) AS n, SUM(a) AS s, MAX(c) AS m FROM cells GROUP BY b",
]
KEYS = KeyCodec((BIGINT,))
BIGINTS, STRINGS = encoder(BIGINT), encoder(STRING)
RULES = [CellRules(TieRule.SEQUENCE, versions=True), CellRules(TieRule.VALUE)]


class ListedStore(WrappedStore):
    """A store whose log is what is appended to `listed`. `below` has its watermarks."""

    def __init__(self, inner: Store, rules: CellRules):
        super().__init__(inner)
        self.capabilities = replace(inner.capabilities, before_image=False, cells=rules)
        self.listed: list[CellOperation] = []
        self.below: dict[int, int] = {}
        self.log, self.tables = ListedLog(self, inner.log), ListedTables(self, inner.tables)


class ListedLog(WrappedLog):
    _store: ListedStore

    def head(self) -> Cut:
        end = len(self._store.listed)
        return Cut({"list": end}, operations=end, begun=1)

    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        end = min(stop.position("list"), start.position("list") + operations)
        return Cut({"list": end}, operations=end, begun=1)

    def splits(self, start: Cut, stop: Cut) -> list[LogSplit]:
        begin, end = start.position("list"), stop.position("list")
        return [LogSplit("list", begin, end, end - begin)]

    def divide(self, split: LogSplit, operations: list[int]) -> list[LogSplit]:
        return [split]

    def cells(
        self, split: LogSplit, tables: frozenset[int] | None = None
    ) -> Iterator[CellOperation]:
        yield from self._store.listed[split.start : split.stop]

    def first_after(self, cut: Cut) -> int | None:
        return None

    def settled(self, cut: Cut) -> int | None:
        known = [at for end, at in self._store.below.items() if end <= cut.position("list")]
        return max(known, default=None)


class ListedTables(WrappedTables):
    _store: ListedStore

    def scan_cells(self, part: int, table: int, *, start: bytes, limit: int) -> CellChunk:
        """Everything so far as operations, some rows at a time."""
        if part:
            return CellChunk([], None, False)
        store = self._store
        found = [*store.listed]
        keys = sorted({one.key for one in found if one.kind is not CellKind.DELETE_RANGE})
        left = [key for key in keys if key >= start]
        chosen = {*left[:limit]}
        made = [one for one in found if one.key in chosen or one.kind is CellKind.DELETE_RANGE]
        return CellChunk(made, max(chosen, default=None), len(left) > limit)


class Play:
    """A store of one table with its views, and the operations that it has been given."""

    def __init__(self, folder: str, rules: CellRules, random: Random):
        inner = create_store(str(Path(folder) / "db"), nodes=2, shards=2, durability="relaxed")
        self.store, self.rules, self.random = ListedStore(inner, rules), rules, random
        self.history = History(self.store, (TABLE,))
        self.number = self.history.tables["cells"].source.number
        self.epochs = Epochs(self.store)
        self.term = self.epochs.acquire().term

    def epoch(self, operations: int = 1000) -> bool:
        epoch = self.epochs.open_next(self.term, Limits(operations=operations, chunk=2))
        if epoch is None:
            return False
        reports = in_both_lanes(self.store, epoch, self.random.choice([1, 2]), self.random)
        self.epochs.publish(self.term, epoch, reports)
        return True

    def rows(self) -> list[Row]:
        """The rows at the published cut."""
        end = self.epochs.read().published.cut.position("list")
        before = self.store.listed[:end]
        rows = []
        for number in range(8):
            cells = model.visible_row(before, KEYS.encode_one((number,)), self.rules)
            if cells is not None:
                row: Row = {"id": number, "a": None, "b": None, "c": None}
                for place, data in cells.items():
                    name = "_abc"[place]
                    row[name] = data.decode() if name == "b" else int.from_bytes(data, signed=True)
                rows.append(row)
        return rows

    def check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self.history, "rows_at", lambda cut: {"cells": self.rows()})
        self.history.check()


@st.composite
def operation(draw: st.DrawFn, rules: CellRules) -> CellOperation:
    """One operation on few rows at few timestamps, so that much meets."""
    key = KEYS.encode_one((draw(st.integers(0, 5)),))
    stop = draw(st.none() | st.integers(0, 7).map(lambda n: KEYS.encode_one((n,))))
    at, sequence = draw(st.integers(0, 12)), draw(st.integers(0, 3))
    numbers = st.none() | st.integers(-2, 2).map(BIGINTS)
    cells = draw(
        st.fixed_dictionaries(
            {},
            optional={1: numbers, 2: st.none() | st.sampled_from("xyz").map(STRINGS), 3: numbers},
        )
    )
    kinds = [CellKind.PUT] * 4 + [CellKind.DELETE_CELLS, CellKind.DELETE_ROW, CellKind.DELETE_RANGE]
    kind = draw(st.sampled_from(kinds + [CellKind.DELETE_VERSIONS] * rules.versions))
    if kind is CellKind.PUT:
        inserts = draw(st.booleans())
        return put(1, key, at, cells.items(), is_insert=inserts, sequence=sequence)
    if kind is CellKind.DELETE_RANGE:
        return delete_range(1, key, stop, at)
    gone = tuple((place, None) for place in sorted(cells))
    return CellOperation(1, kind, key, at, () if kind is CellKind.DELETE_ROW else gone)


@st.composite
def plays(draw: st.DrawFn) -> tuple[CellRules, list[CellOperation], int]:
    rules = draw(st.sampled_from(RULES))
    return rules, draw(st.lists(operation(rules), max_size=25)), draw(st.integers(0, 2**16))


def play(rules: CellRules, operations: list[CellOperation], seed: int) -> None:
    """Epochs of some operations each, some of which come again; one view comes late."""
    random = Random(seed)
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(model, "COLUMNS", (1, 2, 3))
        patch.setattr(merge, "_AT_ONCE", 2)
        patch.setattr(loading, "_MOST_ROWS", 2)
        game = Play(folder, rules, random)
        with closing(game.store):
            late, early = random.sample(VIEWS, 2)
            game.history.create_view(early)
            middle = random.randrange(len(operations) + 1)
            for place, one in enumerate(operations):
                if place == middle:
                    game.history.create_view(late)
                game.store.listed.append(replace(one, table=game.number))
                if random.random() < 0.3:
                    game.store.listed.append(random.choice(game.store.listed))
                if random.random() < 0.4 and game.epoch(random.choice([1, 3, 100])):
                    game.check(patch)
            while game.epoch(random.choice([1, 3, 100])):
                game.check(patch)


@settings(max_examples=40)
@given(plays())
def test_any_operations(of: tuple[CellRules, list[CellOperation], int]) -> None:
    play(*of)


@pytest.mark.long
@settings(max_examples=1500)
@given(plays())
def test_many_operations(of: tuple[CellRules, list[CellOperation], int]) -> None:
    play(*of)


def test_tombstones_go_with_the_watermark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game = Play(str(tmp_path), replace(RULES[1], grace=3), Random(1))
    listed, store = game.store.listed, game.store
    monkeypatch.setattr(model, "COLUMNS", (1, 2, 3))

    def at(number: int) -> bytes:
        return KEYS.encode_one((number,))

    def kept() -> list[int]:
        """Records in each table of DELTA."""
        program = game.history.catalog.current().program
        (delta,) = (one for one in program.operators if one.level == 1 and len(one.tables) == 3)
        return [records(store, delta, place) for place in range(3)]

    with closing(store):
        for view in VIEWS:
            game.history.create_view(view)
        for number in range(8):
            listed.append(put(game.number, at(number), 10, {1: BIGINTS(1)}.items(), is_insert=True))
        listed.append(delete_range(game.number, at(2), at(6), 20))
        for number in (0, 1):
            listed.append(CellOperation(game.number, CellKind.DELETE_ROW, at(number), 20))
        while game.epoch():
            pass
        game.check(monkeypatch)
        assert kept() == [4, 2, 4]  # two rows, two deleted ones; the range in each of two shards
        listed += [put(game.number, at(n), 21, {1: BIGINTS(2)}.items()) for n in (6, 7)]
        store.below[len(listed)] = 23  # the grace is 3: nothing is due
        assert game.epoch()
        assert kept() == [4, 2, 4]
        listed.append(put(game.number, at(7), 30, {1: BIGINTS(2)}.items()))
        store.below[len(listed)] = 24
        assert game.epoch()  # purges the other shard too
        game.check(monkeypatch)
        assert kept() == [2, 0, 0]
        listed += [listed[0], listed[3]]  # repeated, and below the watermark: left out
        assert game.epoch()
        game.check(monkeypatch)
        assert kept() == [2, 0, 0]


def records(store: Store, delta: Operator, place: int) -> int:
    number = delta.tables[place].number
    shards = range(store.state.shards)
    return sum(len(store.state.scan(s, number, limit=100, at=None).keys) for s in shards)

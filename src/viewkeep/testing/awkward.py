"""A store with an awkward log, for tests: no before-images, no order, and operations come twice.

Law: its base tables are those of the embedded store under it, and so are its cuts; only its log
tells less. What its log says at a cut, merged, is the base tables at that cut.

    awkward:seed=7,twice=30,reorder=1:PATH

With `late`, `lose` or `logs`, a service delivers the operations (`testing.delivery`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from viewkeep.cells import (
    CellOperation,
    CellRules,
    TieRule,
    delete_cells,
    delete_range,
    delete_row,
    put,
)
from viewkeep.codec.cells import physical_encoder
from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.codec.rowsource import MAX_KEY
from viewkeep.engine.programs import newest_plan
from viewkeep.errors import EpochGone, StoreError
from viewkeep.stores.contract import (
    START,
    CellChunk,
    Chunk,
    Cut,
    Kind,
    Log,
    LogBatch,
    LogSplit,
    Store,
    TableWrite,
)
from viewkeep.stores.lmdb import LmdbStore
from viewkeep.stores.wrapped import WrappedLog, WrappedStore, WrappedTables
from viewkeep.testing.delivery import Delivery
from viewkeep.types import Schema


@dataclass(frozen=True)
class Awkwardness:
    """What is wrong with the log. Shares are in percent."""

    seed: int = 0
    twice: int = 0  # share of operations that come again
    window: int = 200  # operations back from which they come again
    reorder: int = 0  # 1: the operations that are read together come in any order
    whole: int = 30  # share of updates that put all cells, not the changed ones
    ranges: int = 30  # share of deletions that come as ranges of one key
    rivals: int = 0  # share of values that come with another one of the same timestamp, which loses
    ties: str = TieRule.SEQUENCE.value
    grace: int = 0
    late: int = 0  # share of operations that are delivered late
    lose: int = 0  # share of deliveries before which the deliverer forgets how far it was
    replay: int = 50  # operations that it then delivers again, at most
    logs: int = 0  # to how many logs they are delivered, which are split and merged

    @property
    def is_delivered(self) -> bool:
        """Whether the log is one of deliveries; else it is that of the embedded store."""
        return bool(self.late or self.lose or self.logs)

    @staticmethod
    def parse(text: str) -> Awkwardness:
        """As in a url."""
        known = {field.name for field in fields(Awkwardness)}
        made: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in known:
                raise StoreError(f"an awkward log has no {name!r}; it has {sorted(known)}")
            made[name] = value if name == "ties" else int(value)
        return Awkwardness(**made)

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in vars(self).items())

    @property
    def rules(self) -> CellRules:
        """How the store merges cells."""
        ties = TieRule(self.ties)
        return CellRules(ties, ties is TieRule.SEQUENCE, self.grace)


class AwkwardStore(WrappedStore):
    """The embedded store, whose log brings operations on cells."""

    def __init__(self, inner: Store, awkwardness: Awkwardness):
        super().__init__(inner)
        self.awkwardness = awkwardness
        self.url = f"awkward:{awkwardness}:{inner.url.removeprefix('lmdb:')}"
        self.capabilities = replace(inner.capabilities, before_image=False, cells=awkwardness.rules)
        self.log = AwkwardLog(self, inner.log)
        self.tables = AwkwardTables(self, inner.tables)
        self._shapes: dict[int, _Shape] = {}
        if awkwardness.is_delivered:
            folder = Path(inner.url.removeprefix("lmdb:")) / "delivery"
            awkward = self.log
            self.log = DeliveredLog(
                self, inner.log, Delivery(folder, inner.log, awkward.placed, awkwardness)
            )

    @classmethod
    def create(cls, path: str, **options: Any) -> AwkwardStore:
        """Make an embedded database with such a log."""
        text, _, folder = path.rpartition(":")
        return cls(LmdbStore.create(folder, **options), Awkwardness.parse(text))

    @classmethod
    def open(cls, path: str) -> AwkwardStore:
        """Open one that was made."""
        text, _, folder = path.rpartition(":")
        return cls(LmdbStore.open(folder), Awkwardness.parse(text))

    def shape(self, table: int) -> _Shape | None:
        """A table by its number; None if it was dropped."""
        if table not in self._shapes:
            for source in newest_plan(self).tables.values():
                self._shapes[source.number] = _Shape(table=source.number, schema=source.schema)
        return self._shapes.get(table)


class AwkwardLog(WrappedLog):
    """Timestamps are places in a log: a row is in one log alone."""

    _store: AwkwardStore

    def read(self, split: LogSplit, tables: frozenset[int] | None = None) -> Iterator[LogBatch]:
        raise StoreError("an awkward log has operations on cells, not on rows")

    def cells(
        self, split: LogSplit, tables: frozenset[int] | None = None
    ) -> Iterator[CellOperation]:
        how = self._store.awkwardness
        source = random.Random(f"{how.seed} {split.log} {split.start} {split.stop}")
        for batch in self.inner.read(split, tables):
            made = list(self._operations(split.log, batch))
            made += [one for one in made if source.random() * 100 < how.twice]
            if how.reorder:
                source.shuffle(made)
            yield from made
        if how.twice:
            for one in self.recent(split, tables):
                if source.random() * 100 < how.twice:
                    yield one

    def settled(self, cut: Cut) -> int | None:
        return min(cut.positions.values()) + 1 if cut.positions else None

    def recent(self, split: LogSplit, tables: frozenset[int] | None) -> Iterator[CellOperation]:
        """The operations that may come again when this split is read."""
        start = max(0, split.start - self._store.awkwardness.window)
        before = split._replace(start=start, stop=split.start)
        try:
            for batch in self.inner.read(before, tables):
                yield from self._operations(split.log, batch)
        except EpochGone:
            return

    def placed(self, split: LogSplit) -> Iterator[tuple[int, CellOperation]]:
        """The operations of a split with their places."""
        for batch in self.inner.read(split):
            for one in self._operations(split.log, batch):
                yield one.timestamp - 1, one

    def _operations(self, log: str, batch: LogBatch) -> Iterator[CellOperation]:
        """The same operations of a batch whenever it is read."""
        shape, how = self._store.shape(batch.table), self._store.awkwardness
        assert batch.before is not None
        if shape is None:
            return
        offsets, kinds, keys = batch.offsets.tolist(), batch.kinds.tolist(), batch.keys.all_bytes()
        operations = zip(offsets, kinds, keys, batch.rows, batch.before, strict=True)
        for offset, kind, key, row, before in operations:
            at, source = offset + 1, random.Random(f"{how.seed} {log} {offset}")
            if kind == Kind.DELETE:
                if source.random() * 100 < how.ranges and len(key) < MAX_KEY // 2:
                    yield delete_range(batch.table, key, key + b"\0", at)
                else:
                    yield delete_row(batch.table, key, at)
            elif row is not None:
                known = None if source.random() * 100 < how.whole else before
                yield from shape.puts(key, row, known, before is None, at, how, source)


class DeliveredLog(AwkwardLog):
    """The log that a delivery service has made of it."""

    def __init__(self, store: AwkwardStore, inner: Log, delivery: Delivery):
        super().__init__(store, inner)
        self.delivery = delivery

    def head(self) -> Cut:
        return self.delivery.head()

    def kept(self) -> Cut:
        return START

    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        left, positions = operations, dict[str, int]()
        for log, end in sorted(stop.positions.items()):
            begin = start.position(log)
            positions[log] = min(end, begin + left)
            left -= positions[log] - begin
        if positions == stop.positions:
            return stop
        taken = operations - left
        return replace(
            stop,
            positions=positions,
            watermark=start.watermark,
            operations=start.operations + taken,
        )

    def first_after(self, cut: Cut) -> int | None:
        return self.delivery.first_after(cut)

    def splits(self, start: Cut, stop: Cut) -> list[LogSplit]:
        return Log.splits(self, start, stop)

    def divide(self, split: LogSplit, operations: list[int]) -> list[LogSplit]:
        return Log.divide(self, split, operations)

    def cells(
        self, split: LogSplit, tables: frozenset[int] | None = None
    ) -> Iterator[CellOperation]:
        for one in self.delivery.operations(split):
            if tables is None or one.table in tables:
                yield one

    def settled(self, cut: Cut) -> int | None:
        return self.delivery.settled(cut)

    def recent(self, split: LogSplit, tables: frozenset[int] | None) -> Iterator[CellOperation]:
        start = self.inner.kept().position(split.log)
        for batch in self.inner.read(split._replace(start=start, stop=split.start), tables):
            yield from self._operations(split.log, batch)

    def truncate(self, before: Cut, budget: int = 10_000) -> bool:
        return self.inner.truncate(self.delivery.truncate(before), budget)


class AwkwardTables(WrappedTables):
    """Base tables without a past."""

    _store: AwkwardStore

    def write(self, writes: Sequence[TableWrite]) -> Cut:
        done = self.inner.write(writes)
        return self._store.log.head() if self._store.awkwardness.is_delivered else done

    def get(self, table: int, keys: Sequence[bytes], at: Any = None) -> list[bytes | None]:
        _refuse_past(at)
        return self.inner.get(table, keys)

    def scan(self, part: int, table: int, *, at: Any = None, **range_: Any) -> Chunk:
        _refuse_past(at)
        return self.inner.scan(part, table, **range_)

    def may_have_rows(self, part: int, table: int, at: Cut) -> bool:
        # The embedded tables know no delivered log.
        delivered = self._store.awkwardness.is_delivered
        return delivered or self.inner.may_have_rows(part, table, at)

    def scan_cells(self, part: int, table: int, *, start: bytes, limit: int) -> CellChunk:
        store = self._store
        now = store.inner.log.head()
        shape, how = store.shape(table), store.awkwardness
        if shape is None:
            return CellChunk([], None, False)
        chunk = self.inner.scan(part, table, start=start, limit=limit, at=now)
        (after,) = (log for log in store.inner.log.splits(now, now) if log.part == part)
        at, source = after.start, random.Random(how.seed)
        found = [
            one
            for key, row in zip(chunk.keys, chunk.rows, strict=True)
            for one in shape.puts(key, row, None, True, at, replace(how, rivals=0), source)
        ]
        if not start:
            assert isinstance(store.log, AwkwardLog)
            found += store.log.recent(after, frozenset([table]))
        return CellChunk(found, chunk.keys[-1] if chunk.keys else None, chunk.more)


def _refuse_past(at: object) -> None:
    if at is not None:
        raise StoreError("this store has no before-images, so base tables have no past")


@dataclass(frozen=True)
class _Shape:
    """How rows of one table become cells."""

    table: int
    schema: Schema

    @cached_property
    def _unpack(self) -> Any:
        return RowCodec(self.schema.columns).unpacker.call

    @cached_property
    def _encoders(self) -> list[tuple[int, Any]]:
        return [
            (place, physical_encoder(column.type))
            for place, column in enumerate(self.schema.columns)
            if column.name not in self.schema.key
        ]

    @cached_property
    def _whole_key(self) -> Any:
        return KeyCodec(self.schema.types(self.schema.key)).packer.call

    def puts(
        self,
        key: bytes,
        row: bytes,
        before: bytes | None,
        is_insert: bool,
        at: int,
        how: Awkwardness,
        source: random.Random,
    ) -> Iterator[CellOperation]:
        """What put this row; if `before` is given, only of the cells that it has changed."""
        values = self._unpack(row)
        old = None if before is None else self._unpack(before)
        cells = [
            (place, None if values[place] is None else encode(values[place]))
            for place, encode in self._encoders
            if old is None or old[place] != values[place]
        ]
        whole = None
        if len(key) >= MAX_KEY:
            whole = self._whole_key(*(values[self.schema.index(name)] for name in self.schema.key))
        sequence = 2
        if source.random() * 100 < how.rivals:
            rivals = [(place, b"") for place, value in cells if value]
            yield put(self.table, key, at, rivals, sequence=1)
        gone = [place for place, value in cells if value is None]
        if gone and source.random() < 0.5:
            yield delete_cells(self.table, key, at, gone)
            cells = [cell for cell in cells if cell[1] is not None]
        yield put(
            self.table, key, at, cells, is_insert=is_insert, sequence=sequence, whole_key=whole
        )

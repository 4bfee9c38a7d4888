"""Rows of one table or view as frames, part by part: what a Spark task reads.

Law: a part (a node of a table, a shard of a view) is read in chunks, so a task's memory is bounded,
and all parts together hold each row once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from viewkeep.access.writes import BaseTable
from viewkeep.codec.key_order import hash_key
from viewkeep.codec.keys import KeyCodec
from viewkeep.deferred import pl
from viewkeep.engine.cells.past import TablePast
from viewkeep.engine.programs import table_history
from viewkeep.plan.nodes import Source
from viewkeep.plan.program import Placement
from viewkeep.spark.pushdown import KeyRange
from viewkeep.stores import borrow_store
from viewkeep.stores.contract import Chunk, Cut, Store
from viewkeep.types import Column

CHUNK = 10_000


@dataclass(frozen=True)
class BaseRows:
    """A base table at a cut; None: as it is now."""

    url: str
    source: Source
    cut: Cut | None

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.source.schema.columns

    @property
    def key(self) -> tuple[str, ...]:
        return self.source.schema.key

    @property
    def key_codec(self) -> KeyCodec:
        return BaseTable(self.source).key_codec

    def parts(self, range_: KeyRange) -> list[int]:
        """The nodes that may hold rows of the range."""
        return list(range(borrow_store(self.url).tables.parts))

    def frames(self, part: int, range_: KeyRange, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows of a node, some columns of them."""
        store = borrow_store(self.url)
        newer = partial(table_history, store, self.source.number)
        table = BaseTable(self.source, newer)
        start, more = range_.start, True
        while more:
            chunk = self._read(store, part, start, range_.stop)
            if chunk.rows:
                yield table.row_codec.decode(chunk.rows, list(names))
            start, more = _next(chunk)

    def _read(self, store: Store, part: int, start: bytes, stop: bytes | None) -> Chunk:
        number = self.source.number
        return store.tables.scan(part, number, start=start, stop=stop, limit=CHUNK, at=self.cut)


@dataclass(frozen=True)
class PastRows(BaseRows):
    """A base table at an epoch, of a store whose tables have no past."""

    past: TablePast

    def parts(self, range_: KeyRange) -> list[int]:
        """The shards, each of which may hold rows of the range."""
        return list(range(borrow_store(self.url).state.shards))

    def _read(self, store: Store, part: int, start: bytes, stop: bytes | None) -> Chunk:
        return self.past.scan(store, part, start=start, stop=stop, limit=CHUNK)


@dataclass(frozen=True)
class ViewRows:
    """A view at an epoch; None: its newest rows."""

    url: str
    placement: Placement
    epoch: int | None

    @property
    def columns(self) -> tuple[Column, ...]:
        schema = self.placement.view.schema
        return tuple(schema[name] for name in self.placement.view.visible)

    @property
    def key(self) -> tuple[str, ...]:
        return self.placement.view.schema.key

    @property
    def key_codec(self) -> KeyCodec:
        return self.placement.table.key_codec

    def parts(self, range_: KeyRange) -> list[int]:
        """The shards that may hold rows of the range: one if the columns that choose it are set."""
        table, shards = self.placement.table, borrow_store(self.url).state.shards
        width = len(table.shard_by)
        if width <= len(range_.prefix):
            return [hash_key(table.shard_codec.encode_one(range_.prefix[:width])) % shards]
        return list(range(shards))

    def frames(self, part: int, range_: KeyRange, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows of a shard, some columns of them under their visible names."""
        store, table = borrow_store(self.url), self.placement.table
        inner = dict(self.placement.columns)
        wanted = list(dict.fromkeys(inner[name] for name in names))
        start, more = range_.start, True
        while more:
            chunk = store.views.scan(
                part, table.number, start=start, stop=range_.stop, limit=CHUNK, at=self.epoch
            )
            if chunk.rows:
                decoded = table.row_codec.decode(chunk.rows, wanted)
                yield decoded.select(pl.col(inner[name]).alias(name) for name in names)
            start, more = _next(chunk)


Rows: TypeAlias = BaseRows | ViewRows


def _next(chunk: Chunk) -> tuple[bytes, bool]:
    """Where the next chunk starts, and whether there is one."""
    return (chunk.keys[-1] + b"\0" if chunk.keys else b""), chunk.more and bool(chunk.keys)

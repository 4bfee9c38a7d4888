"""Where the rows of a table or view lie in the store, and how they become dicts and frames.

Law: a relation is read at one epoch (views) or one cut (base tables), which the caller chooses; it
never looks at the clock of publication itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from viewkeep.access.ranges import Fits, ScanBounds, chunks, merged
from viewkeep.access.writes import BaseTable, Key, key_columns, key_tuple
from viewkeep.codec.key_order import hash_key, hash_keys
from viewkeep.codec.keys import MAX_KEY
from viewkeep.codec.patterns import KeyPattern
from viewkeep.codec.rows import RowCodec
from viewkeep.deferred import pl
from viewkeep.errors import InvalidRow
from viewkeep.plan.program import Placement
from viewkeep.stores.contract import Changed, Chunk, Cut, Store

STEP = 1_000  # rows asked of a shard at a time by those who walk through all shards at once

GetChunk: TypeAlias = Callable[[int, bytes, bytes | None, int], Chunk]


class ViewRelation:
    """A view's state table: where its rows lie and which columns it shows."""

    def __init__(self, placement: Placement, shards: int):
        self.name, self.table, self.shards = placement.view.name, placement.table, shards
        self.view, self.feeds = placement.view, placement.feeds
        schema = placement.view.schema
        self.schema, self.key, self.names = schema, schema.key, placement.view.visible
        self.key_codec, self.row_codec = self.table.key_codec, self.table.row_codec
        self._shard_width = len(self.table.shard_by)
        self._whole = self._shard_width == len(self.table.key)
        at = {column.name: index for index, column in enumerate(self.table.columns)}
        self._inner = tuple(inner for _, inner in placement.columns)
        self._indices = tuple(at[inner] for inner in self._inner)
        self._key_at = tuple(at[name] for name in self.table.key_names)

    def check_whole(self, what: str) -> None:
        """PartialKey if the view has not all rows, which `what` needs."""

    def shard_of(self, values: Sequence[object], key: bytes) -> int:
        """The shard of a key, or of a prefix that has the columns which choose the shard."""
        if not self._whole:
            key = self.table.shard_codec.encode_one(values[: self._shard_width])
        return hash_key(key) % self.shards

    def find_one(self, store: Store, key: Key, epoch: int | None) -> bytes | None:
        """The row bytes of a key, or None."""
        values = self.full_key(key)
        try:
            encoded = self.key_codec.encode_one(values)
        except InvalidRow as error:
            raise InvalidRow(f"{self.name}: {error}") from error
        shard = self.shard_of(values, encoded)
        return store.views.get(shard, self.table.number, (encoded,), epoch)[0]

    def positions(self, names: Iterable[str]) -> tuple[int, ...]:
        """Where shown columns stand in a row."""
        return tuple(self._indices[self.names.index(name)] for name in names)

    def get_many(
        self, store: Store, keys: Sequence[Key], epoch: int | None
    ) -> list[dict[str, Any] | None]:
        """The rows of these keys in their order."""
        return _dicts(self.find(store, keys, epoch), self.row_codec, self.names, self._indices)

    def find(self, store: Store, keys: Sequence[Key], epoch: int | None) -> list[bytes | None]:
        """The row bytes of these keys in their order, one store call per shard."""
        columns = key_columns(keys, len(self.key), self.full_key)
        if not columns:
            return [self.find_one(store, key, epoch) for key in keys]
        encoded = self.key_codec.encode_many(columns)
        chosen = encoded
        if not self._whole:
            chosen = self.table.shard_codec.encode_many(columns[: self._shard_width])
        by_shard: list[list[bytes]] = [[] for _ in range(self.shards)]
        shards = (hash_keys(chosen) % self.shards).tolist()
        for key, shard in zip(encoded, shards, strict=True):
            by_shard[shard].append(key)
        found: dict[bytes, bytes | None] = {}
        for shard, wanted in enumerate(by_shard):
            if wanted:
                rows = store.views.get(shard, self.table.number, wanted, epoch)
                found.update(zip(wanted, rows, strict=True))
        return [found[key] for key in encoded]

    def full_key(self, key: Key) -> tuple[object, ...]:
        """One value per key column; a partial key is refused with what to do."""
        values = key_tuple(key, self.key, self.name)
        if len(values) != len(self.key):
            raise InvalidRow(
                f"the key of {self.name} is ({', '.join(self.key)}); got {len(values)} of them. "
                "Use scan(prefix=...) to read by the first key columns"
            )
        return values

    def scan(
        self, store: Store, bounds: ScanBounds, epoch: int | None
    ) -> list[tuple[bytes, bytes]]:
        """Keys and row bytes of a range, in key order."""
        chunk = self._chunk(store, bounds, epoch)
        return merged(chunk, self.shards_of(bounds.prefix), bounds, self._fits(bounds))

    def parts(
        self, store: Store, bounds: ScanBounds, epoch: int | None
    ) -> list[Iterator[list[tuple[bytes, bytes]]]]:
        """For each shard, keys and row bytes of a range in key order, a chunk at a time."""
        chunk, fits = self._chunk(store, bounds, epoch), self._fits(bounds)
        return [chunks(chunk, shard, bounds, fits) for shard in self.shards_of(bounds.prefix)]

    def _chunk(self, store: Store, bounds: ScanBounds, epoch: int | None) -> GetChunk:
        def chunk(part: int, start: bytes, stop: bytes | None, limit: int) -> Chunk:
            return store.views.scan(
                part,
                self.table.number,
                start=start,
                stop=stop,
                limit=limit,
                at=epoch,
                reverse=bounds.reverse,
                only=bounds.only,
            )

        return chunk

    def _fits(self, bounds: ScanBounds) -> Fits | None:
        return _fits(bounds.only, self.key_of)

    def shards_of(self, prefix: Sequence[object]) -> Iterable[int]:
        """The shards that hold rows whose keys start with these values."""
        if len(prefix) < self._shard_width:
            return range(self.shards)
        chosen = self.table.shard_codec.encode_one(prefix[: self._shard_width])
        return (hash_key(chosen) % self.shards,)

    def walk(self, store: Store, bounds: ScanBounds, epoch: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and row bytes of a range in key order, read from shards as they are asked for."""
        parts = [self._walk(store, shard, bounds, epoch) for shard in self.shards_of(bounds.prefix)]
        return heapq.merge(*parts, key=itemgetter(0))

    def _walk(
        self, store: Store, shard: int, bounds: ScanBounds, epoch: int
    ) -> Iterator[tuple[bytes, bytes]]:
        start, more = bounds.start, True
        while more:
            found = store.views.scan(
                shard, self.table.number, start=start, stop=bounds.stop, limit=STEP, at=epoch
            )
            yield from zip(found.keys, found.rows, strict=True)
            more = found.more
            if more:
                start = found.keys[-1] + b"\0"

    def changes(
        self, store: Store, bounds: ScanBounds, after: int, upto: int, limit: int
    ) -> list[tuple[int, bytes, bytes | None, bytes | None]] | None:
        """What epochs in (after, upto] changed in a range: epoch, key, old row, new row.

        In the order of epochs, and of keys within one. None if it is more than `limit` changes.
        """
        changes: list[tuple[int, bytes, bytes | None, bytes | None]] = []
        for shard in self.shards_of(bounds.prefix):
            room = limit - len(changes)
            found = self._changed(store, shard, bounds, after, upto, room + 1)
            for key, versions in zip(found.keys, found.versions, strict=True):
                for (_, old), (epoch, new) in pairwise(versions):
                    changes.append((epoch, key, old, new))
            if found.more or len(changes) > limit:
                return None
        changes.sort(key=itemgetter(0, 1))
        return changes

    def walk_changes(
        self, store: Store, bounds: ScanBounds, after: int
    ) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        """What the epoch next to `after` changed in a range: key, old row, new row.

        In key order, read from the shards as they are asked for.
        """
        shards = self.shards_of(bounds.prefix)
        parts = [self._walk_changes(store, shard, bounds, after) for shard in shards]
        return heapq.merge(*parts, key=itemgetter(0))

    def _walk_changes(
        self, store: Store, shard: int, bounds: ScanBounds, after: int
    ) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        more = True
        while more:
            found = self._changed(store, shard, bounds, after, after + 1, STEP)
            for key, ((_, old), (_, new)) in zip(found.keys, found.versions, strict=True):
                yield key, old, new
            more = found.more
            if more:
                bounds = replace(bounds, start=found.keys[-1] + b"\0")

    def _changed(
        self, store: Store, shard: int, bounds: ScanBounds, after: int, upto: int, limit: int
    ) -> Changed:
        return store.views.changes(
            shard,
            self.table.number,
            after,
            upto,
            start=bounds.start,
            stop=bounds.stop,
            limit=limit,
        )

    def as_dict(self, row: bytes) -> dict[str, Any]:
        """The shown columns of one row."""
        values = self.table.row_codec.decode_one(row, self._indices)
        return dict(zip(self.names, values, strict=True))

    def key_of(self, row: bytes) -> tuple[object, ...]:
        """The values of a row's key columns, shown or not."""
        return tuple(self.table.row_codec.decode_one(row, self._key_at))

    def frame(self, rows: Sequence[bytes], names: Sequence[str] | None = None) -> pl.DataFrame:
        """The shown columns of row bytes, or some of them."""
        shown = list(zip(self.names, self._inner, strict=True))
        if names is not None:
            shown = [(outer, inner) for outer, inner in shown if outer in names]
        distinct = list(dict.fromkeys(inner for _, inner in shown))
        decoded = self.table.row_codec.decode(rows, distinct)
        return decoded.select(pl.col(inner).alias(outer) for outer, inner in shown)


class TableRelation:
    """A base table, read now or at a cut."""

    def __init__(self, table: BaseTable, nodes: int):
        self.base, self.nodes = table, nodes
        self.name, self.schema, self.key = table.name, table.schema, table.key
        self.names, self.key_codec = table.names, table.key_codec
        self.row_codec = table.row_codec

    def get_many(
        self, store: Store, keys: Sequence[Key], cut: Cut | None
    ) -> list[dict[str, Any] | None]:
        """The rows of these keys, in their order."""
        return _dicts(self.find(store, keys, cut), self.row_codec, self.names, None)

    def find(self, store: Store, keys: Sequence[Key], cut: Cut | None) -> list[bytes | None]:
        """The row bytes of these keys, in their order."""
        return store.tables.get(self.base.number, self.base.encode_keys(keys), cut)

    def key_of(self, row: bytes) -> tuple[object, ...]:
        """The values of a row's key columns."""
        return self.base.key_of(row)

    def positions(self, names: Iterable[str]) -> tuple[int, ...]:
        """Where columns stand in a row."""
        return tuple(self.schema.index(name) for name in names)

    def as_dict(self, row: bytes) -> dict[str, Any]:
        """One row as a dict."""
        return self.base.as_dict(row)

    def scan(self, store: Store, bounds: ScanBounds, cut: Cut | None) -> list[tuple[bytes, bytes]]:
        """Keys and row bytes of a range, in key order."""
        chunk = self._chunk(store, bounds, cut)
        return merged(chunk, range(self.nodes), bounds, self._fits(bounds))

    def parts(
        self, store: Store, bounds: ScanBounds, cut: Cut | None
    ) -> list[Iterator[list[tuple[bytes, bytes]]]]:
        """For each node, keys and row bytes of a range in key order, a chunk at a time."""
        chunk, fits = self._chunk(store, bounds, cut), self._fits(bounds)
        return [chunks(chunk, node, bounds, fits) for node in range(self.nodes)]

    def _chunk(self, store: Store, bounds: ScanBounds, cut: Cut | None) -> GetChunk:
        def chunk(part: int, start: bytes, stop: bytes | None, limit: int) -> Chunk:
            return store.tables.scan(
                part,
                self.base.number,
                start=start,
                stop=stop,
                limit=limit,
                at=cut,
                reverse=bounds.reverse,
                only=bounds.only,
            )

        return chunk

    def _fits(self, bounds: ScanBounds) -> Fits | None:
        return _fits(bounds.only, self.key_of)

    def frame(self, rows: Sequence[bytes], names: Sequence[str] | None = None) -> pl.DataFrame:
        """The columns of row bytes, or some of them."""
        return self.base.frame(rows, names)


def _dicts(
    rows: Sequence[bytes | None],
    codec: RowCodec,
    names: Sequence[str],
    indices: Sequence[int] | None,
) -> list[dict[str, Any] | None]:
    """Row bytes as dicts of the columns at these positions, None for None."""
    there = [row for row in rows if row is not None]
    made = [dict(zip(names, row, strict=True)) for row in codec.decode_tuples(there, indices)]
    if len(made) == len(rows):
        return list(made)
    following = iter(made)
    return [None if row is None else next(following) for row in rows]


def _fits(only: KeyPattern | None, key_of: Callable[[bytes], tuple[object, ...]]) -> Fits | None:
    """Tells of rows that the store found for a pattern whether they belong to it.

    A key that was cut does not tell; its row does.
    """
    if only is None:
        return None
    return lambda key, row: len(key) < MAX_KEY or only.fits(key_of(row))

"""Where the rows of a table or view lie in the store, and how they become dicts and frames.

Law: a reader asks one epoch (views) or one cut (base tables), which the caller chooses; it never
looks at the clock of publication itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from viewkeep.access.ranges import Bounds, merged
from viewkeep.access.writes import BaseTable, Key, key_tuple
from viewkeep.codec.keys import hash_key
from viewkeep.errors import InvalidRow
from viewkeep.plan.program import Placement
from viewkeep.stores.contract import Chunk, Cut, Store


class ViewReader:
    """A view's state table: where its rows lie and which columns it shows."""

    def __init__(self, placement: Placement, shards: int):
        self.name, self.table, self.shards = placement.view.name, placement.table, shards
        self.view, self.feeds = placement.view, placement.feeds
        schema = placement.view.schema
        self.schema, self.key, self.names = schema, schema.key, placement.view.visible
        self.key_codec = self.table.key_codec
        self._shard_width = len(self.table.shard_by)
        self._whole = self._shard_width == len(self.table.key)
        at = {column.name: index for index, column in enumerate(self.table.columns)}
        self._inner = tuple(inner for _, inner in placement.columns)
        self._indices = tuple(at[inner] for inner in self._inner)

    def shard_of(self, values: Sequence[object], key: bytes) -> int:
        """The shard of a key, or of a prefix that has the columns which choose the shard."""
        if not self._whole:
            key = self.table.shard_codec.encode_one(values[: self._shard_width])
        return hash_key(key) % self.shards

    def get(self, store: Store, key: Key, epoch: int | None) -> dict[str, Any] | None:
        """The row of a key, or None."""
        values = self.full_key(key)
        try:
            encoded = self.key_codec.encode_one(values)
        except InvalidRow as error:
            raise InvalidRow(f"{self.name}: {error}") from error
        shard = self.shard_of(values, encoded)
        row = store.state_get(shard, self.table.number, (encoded,), epoch)[0]
        if row is None:
            return None
        return dict(
            zip(self.names, self.table.row_codec.decode_one(row, self._indices), strict=True)
        )

    def get_many(
        self, store: Store, keys: Sequence[Key], epoch: int | None
    ) -> list[dict[str, Any] | None]:
        """The rows of these keys in their order."""
        decode, names, indices = self.table.row_codec.decode_one, self.names, self._indices
        return [
            None if row is None else dict(zip(names, decode(row, indices), strict=True))
            for row in self.find(store, keys, epoch)
        ]

    def find(self, store: Store, keys: Sequence[Key], epoch: int | None) -> list[bytes | None]:
        """The row bytes of these keys in their order, one store call per shard."""
        by_shard: dict[int, list[tuple[int, bytes]]] = {}
        for place, key in enumerate(keys):
            values = self.full_key(key)
            encoded = self.key_codec.encode_one(values)
            by_shard.setdefault(self.shard_of(values, encoded), []).append((place, encoded))
        found: list[bytes | None] = [None] * len(keys)
        for shard, wanted in by_shard.items():
            rows = store.state_get(shard, self.table.number, [key for _, key in wanted], epoch)
            for (place, _), row in zip(wanted, rows, strict=True):
                found[place] = row
        return found

    def full_key(self, key: Key) -> tuple[object, ...]:
        """One value per key column; a partial key is refused with what to do."""
        values = key_tuple(key, self.key, self.name)
        if len(values) != len(self.key):
            raise InvalidRow(
                f"the key of {self.name} is ({', '.join(self.key)}); got {len(values)} of them. "
                "Use scan(prefix=...) to read by the first key columns"
            )
        return values

    def scan(self, store: Store, bounds: Bounds, epoch: int | None) -> list[bytes]:
        """Row bytes of a range, in key order."""
        shards: Iterable[int] = range(self.shards)
        if len(bounds.prefix) >= self._shard_width:
            chosen = self.table.shard_codec.encode_one(bounds.prefix[: self._shard_width])
            shards = (hash_key(chosen) % self.shards,)

        def chunk(part: int, start: bytes, stop: bytes | None, limit: int) -> Chunk:
            return store.state_scan(
                part,
                self.table.number,
                start=start,
                stop=stop,
                limit=limit,
                at=epoch,
                reverse=bounds.reverse,
            )

        return [row for _, row in merged(chunk, shards, bounds)]

    def frame(self, rows: Sequence[bytes]) -> pl.DataFrame:
        """The shown columns of row bytes."""
        distinct = list(dict.fromkeys(self._inner))
        decoded = self.table.row_codec.decode(rows, distinct)
        shown = zip(self.names, self._inner, strict=True)
        return decoded.select(pl.col(inner).alias(outer) for outer, inner in shown)


class TableReader:
    """A base table, read now or at a cut."""

    def __init__(self, table: BaseTable, nodes: int):
        self.base, self.nodes = table, nodes
        self.name, self.schema, self.key = table.name, table.schema, table.key
        self.names, self.key_codec = table.names, table.key_codec

    def get_many(
        self, store: Store, keys: Sequence[Key], cut: Cut | None
    ) -> list[dict[str, Any] | None]:
        """The rows of these keys, in their order."""
        rows = self.find(store, keys, cut)
        return [None if row is None else self.base.as_dict(row) for row in rows]

    def find(self, store: Store, keys: Sequence[Key], cut: Cut | None) -> list[bytes | None]:
        """The row bytes of these keys, in their order."""
        encoded = [self.base.encode_key(key) for key in keys]
        if cut is None:
            return store.get(self.base.number, encoded)
        return [self._row_at(store, key, cut) for key in encoded]

    def _row_at(self, store: Store, key: bytes, cut: Cut) -> bytes | None:
        for node in range(self.nodes):
            found = store.scan(node, self.base.number, start=key, stop=key + b"\0", limit=1, at=cut)
            if found.rows:
                return found.rows[0]
        return None

    def scan(self, store: Store, bounds: Bounds, cut: Cut | None) -> list[tuple[bytes, bytes]]:
        """Keys and row bytes of a range, in key order."""

        def chunk(part: int, start: bytes, stop: bytes | None, limit: int) -> Chunk:
            return store.scan(
                part,
                self.base.number,
                start=start,
                stop=stop,
                limit=limit,
                at=cut,
                reverse=bounds.reverse,
            )

        return merged(chunk, range(self.nodes), bounds)

    def frame(self, rows: Sequence[bytes]) -> pl.DataFrame:
        """The columns of row bytes."""
        return self.base.frame(rows)

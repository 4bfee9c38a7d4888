"""Reading base tables at an epoch where the store has no before-images: DELTA has them.

Law: it reads as a base table does at a cut, but from the shards of the state.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeep.access.ranges import ScanBounds
from viewkeep.access.relations import GetChunk, TableRelation
from viewkeep.access.writes import BaseTable, Key
from viewkeep.engine.cells.past import TablePast
from viewkeep.stores.contract import Chunk, Cut, Store


class PastRelation(TableRelation):
    """A base table at an epoch."""

    def __init__(self, table: BaseTable, past: TablePast, shards: int):
        super().__init__(table, shards)
        self._past = past

    def find(self, store: Store, keys: Sequence[Key], cut: Cut | None) -> list[bytes | None]:
        return self._past.get(store, self.base.encode_keys(keys))

    def _chunk(self, store: Store, bounds: ScanBounds, cut: Cut | None) -> GetChunk:
        def chunk(part: int, start: bytes, stop: bytes | None, limit: int) -> Chunk:
            return self._past.scan(
                store,
                part,
                start=start,
                stop=stop,
                limit=limit,
                reverse=bounds.reverse,
                only=bounds.only,
            )

        return chunk

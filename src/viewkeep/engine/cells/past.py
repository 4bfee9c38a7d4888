"""A base table as its DELTA has it at an epoch, for stores whose tables have no past.

Law: the rows are those of all operations that the epoch's cut covers, as the base table would have
them: under the same keys, with the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from viewkeep.codec.key_order import hash_keys
from viewkeep.codec.patterns import KeyPattern
from viewkeep.codec.rows import RowCodec
from viewkeep.engine.cells.values import CellRows
from viewkeep.errors import NotReady
from viewkeep.ops.cells import form
from viewkeep.plan.nodes import CellSource, Delta
from viewkeep.plan.program import Operator, Program
from viewkeep.stores.contract import Chunk, Store


@dataclass(frozen=True)
class TablePast:
    """A table at an epoch, spread over the shards of the state."""

    source: CellSource
    operator: Operator
    epoch: int

    @staticmethod
    def of(source: CellSource, program: Program, loading: Any, epoch: int) -> TablePast:
        """The table in a program whose epoch still has these feeds to load."""
        operator = program.by_id.get(Delta(source).id)
        if operator is None:
            raise NotReady(
                f"table {source.table} has no past: its store has no before-images, and no view "
                'reads it. Read it as it is now (at="latest"), or create a view that reads it'
            )
        if any(feed.id in loading for feed in operator.feeds):
            raise NotReady(f"table {source.table} has no past yet: it is being loaded")
        return TablePast(source, operator, epoch)

    def get(self, store: Store, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of these keys, in their order."""
        found: dict[bytes, bytes | None] = {}
        homes: list[int] = (hash_keys(list(keys)) % store.state.shards).tolist() if keys else []
        for shard in range(store.state.shards):
            wanted = [key for key, home in zip(keys, homes, strict=True) if home == shard]
            if wanted:
                states = store.state.get(shard, self._table, wanted, self.epoch)
                found.update((k, self._row(k, s)) for k, s in zip(wanted, states, strict=True))
        return [found[key] for key in keys]

    def scan(
        self,
        store: Store,
        shard: int,
        *,
        start: bytes,
        stop: bytes | None,
        limit: int,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        """Up to `limit` rows of a shard, as `Tables.scan` gives those of a part."""
        keys, rows, more = list[bytes](), list[bytes](), True
        while more and not rows:  # deleted rows are kept for a while
            chunk = store.state.scan(
                shard,
                self._table,
                start=start,
                stop=stop,
                limit=limit,
                at=self.epoch,
                reverse=reverse,
                only=only,
            )
            for key, state in zip(chunk.keys, chunk.rows, strict=True):
                row = self._row(key, state)
                if row is not None:
                    keys.append(key)
                    rows.append(row)
            more = chunk.more
            if more and reverse:
                stop = chunk.keys[-1]
            elif more:
                start = chunk.keys[-1] + b"\0"
        return Chunk(keys, rows, more)

    @property
    def _table(self) -> int:
        return self.operator.rows_table.number

    def _row(self, key: bytes, state: bytes | None) -> bytes | None:
        if state is None:
            return None
        values = self._values.values(key, form.unpack(state))
        packed: bytes | None = None if values is None else self._pack(*values)
        return packed

    @cached_property
    def _values(self) -> CellRows:
        return CellRows(self.source.schema)

    @cached_property
    def _pack(self) -> Any:
        return RowCodec(self.source.schema.columns).packer.call

"""Rows of producers as deltas: operations of a log, rows being loaded, rows of state.

DELTA: an operation is its old row with weight -1 and its new row with weight +1, both as the log
has them, so operations on one key cancel out to first-old and last-new whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from viewkeep.codec.packed import Packed
from viewkeep.codec.physical import binary_series
from viewkeep.codec.rows import RowCodec
from viewkeep.deferred import pl
from viewkeep.delta import KEY, weights
from viewkeep.engine.blame import Blame
from viewkeep.engine.loading import LoadChunk
from viewkeep.errors import StoreError
from viewkeep.plan.nodes import Source, Values
from viewkeep.plan.program import Operator, producer_id
from viewkeep.stores.contract import LogBatch, LogSplit, Store

_FEW = 10_000  # rows below which changes of a table wait for more
_MUCH = 16 << 20  # bytes of all tables that wait


@dataclass
class Tail:
    """A base table whose operations are read: as deltas of these columns, with keys if wanted."""

    source: Source
    columns: frozenset[str]
    with_keys: bool
    _held: list[pl.DataFrame] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows are held."""
        return sum(part.height for part in self._held)

    @property
    def size(self) -> int:
        """How many bytes are held."""
        return sum(int(part.estimated_size()) for part in self._held)

    def take(self, batch: LogBatch) -> None:
        """Hold the deltas of some operations."""
        if batch.before is None:
            raise StoreError("this store's log has no before-images, which views need so far")
        codec = row_codec(self.source)
        names = [name for name in self.source.schema.names if name in self.columns]
        for rows, weight in ((batch.rows, 1), (batch.before, -1)):
            there = rows.is_present
            if there.any():
                keys = batch.keys.take(there) if self.with_keys else None
                self._held.append(_frame(codec, rows.take(there), names, weight, keys))

    def give(self) -> pl.DataFrame:
        """All that is held, as one delta; it is held no longer."""
        held, self._held = self._held, []
        return held[0] if len(held) == 1 else pl.concat(held)


def base_changes(
    store: Store, split: LogSplit, tails: Sequence[Tail], blame: Blame
) -> Iterator[tuple[Tail, pl.DataFrame]]:
    """The operations in a split of a log, table by table, in deltas of many rows.

    The log is read once. Where it has operations on many tables by turns, those on one wait for
    more of them.
    """
    if split.is_empty or not tails:
        return
    by_table = {tail.source.number: tail for tail in tails}
    size = 0  # of all that wait
    for batch in store.log.read(split, frozenset(by_table)):
        tail = by_table[batch.table]
        size -= tail.size
        with blame(producer_id(tail.source)):
            tail.take(batch)
        if tail.rows >= _FEW:
            yield tail, tail.give()
        size += tail.size
        if size > _MUCH:
            yield from _all_of(tails)
            size = 0
    yield from _all_of(tails)


def _all_of(tails: Sequence[Tail]) -> Iterator[tuple[Tail, pl.DataFrame]]:
    for tail in tails:
        if tail.rows:
            yield tail, tail.give()


def base_rows(source: Source, chunk: LoadChunk, columns: frozenset[str]) -> pl.DataFrame:
    """Base rows to load, as insertions."""
    names = [name for name in source.schema.names if name in columns]
    codec = row_codec(source)
    return _frame(codec, Packed.from_list(chunk.rows), names, 1, Packed.from_list(chunk.keys))


def row_codec(source: Source) -> RowCodec:
    """Reads the rows of a base table."""
    return RowCodec(source.schema.columns) if source.history is None else source.codec()


def state_rows(operator: Operator, chunk: LoadChunk) -> pl.DataFrame:
    """Rows of an operator's table to load, as insertions; of a reader, those it starts from."""
    table = operator.rows_table
    names = [column.name for column in table.columns]
    if not operator.ports:
        names = [column.name for column in operator.node.columns]
    keys = Packed.from_list(chunk.keys)
    return _frame(table.row_codec, Packed.from_list(chunk.rows), names, 1, keys)


def constant_rows(values: Values) -> pl.DataFrame:
    """The rows that a query writes itself, as insertions."""
    columns = zip(values.columns, zip(*values.rows, strict=True), strict=False)
    made = [pl.Series(column.name, cells, column.type.polars) for column, cells in columns]
    return pl.DataFrame([*made, weights(len(values.rows), 1)])


def _frame(
    codec: RowCodec,
    rows: Packed,
    names: list[str],
    weight: int,
    keys: Packed | None,
) -> pl.DataFrame:
    columns = list(codec.decode(rows, names).get_columns()) if names else []
    columns.append(weights(len(rows), weight))
    if keys is not None:
        columns.append(binary_series(KEY, keys))
    return pl.DataFrame(columns)

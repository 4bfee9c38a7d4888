"""Rows of producers as deltas: operations of a log, rows being loaded, rows of state.

DELTA: an operation is its old row with weight -1 and its new row with weight +1, both as the log
has them, so operations on one key cancel out to first-old and last-new whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from viewkeep.codec.packed import Packed
from viewkeep.codec.physical import binary_series
from viewkeep.codec.rows import RowCodec
from viewkeep.delta import KEY, weights
from viewkeep.engine.loading import Chunk
from viewkeep.engine.stretches import Stretch
from viewkeep.errors import StoreError
from viewkeep.plan.nodes import Source, Values
from viewkeep.plan.program import Operator
from viewkeep.stores.contract import Store


def base_changes(
    store: Store,
    stretch: Stretch,
    source: Source,
    columns: frozenset[str],
    with_keys: bool,
) -> Iterator[pl.DataFrame]:
    """The operations on one table in a stretch of a log, as deltas of these columns."""
    codec = RowCodec(source.schema.columns)
    names = [name for name in source.schema.names if name in columns]
    if stretch.start == stretch.stop:
        return
    for batch in store.read_log(*stretch, frozenset((source.number,))):
        if batch.before is None:
            raise StoreError("this store's log has no before-images, which views need so far")
        parts = []
        for rows, weight in ((batch.rows, 1), (batch.before, -1)):
            there = rows.is_present
            if there.any():
                keys = batch.keys.take(there) if with_keys else None
                parts.append(_frame(codec, rows.take(there), names, weight, keys))
        if parts:
            yield parts[0] if len(parts) == 1 else pl.concat(parts)


def base_rows(source: Source, chunk: Chunk, columns: frozenset[str]) -> pl.DataFrame:
    """Base rows to load, as insertions."""
    names = [name for name in source.schema.names if name in columns]
    codec = RowCodec(source.schema.columns)
    return _frame(codec, Packed.from_list(chunk.rows), names, 1, Packed.from_list(chunk.keys))


def state_rows(operator: Operator, chunk: Chunk) -> pl.DataFrame:
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

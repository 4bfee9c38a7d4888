"""SELECT, evaluated once over the rows that are there.

Law: a query reads one point. Base tables are read as they are now, unless it reads a view too: then
all is read at the published epoch and its cut. A view is read like a table, out of its state table;
it is never computed a second time from the base.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from viewkeep.access.ranges import EVERYTHING
from viewkeep.access.readers import TableReader, ViewReader
from viewkeep.access.reads import Reader, ReadPoint
from viewkeep.engine.adhoc import evaluate
from viewkeep.expr import Expr, Scalar
from viewkeep.plan.nodes import Arrange, Filter, KeyPart, Node, Source, View, inputs, sources
from viewkeep.plan.passes import optimise
from viewkeep.sql.keys import key_values
from viewkeep.sql.statements import Query
from viewkeep.types import BIGINT, Column, Schema

STAND_IN = 0  # the number of a table that stands for a view; real tables have positive ones
_ROW = "#row"  # tells the rows of a view apart whose key is not all visible


def readable(relation: Source | View) -> Source | View:
    """A relation whose rows are read and not computed, for queries that are run and not kept."""
    if isinstance(relation, Source):
        return relation
    columns = [relation.schema[name] for name in relation.visible]
    key = relation.schema.key
    if not set(key) <= set(relation.visible):
        columns.append(Column(_ROW, BIGINT, False))
        key = (_ROW,)
    source = Source(relation.name, STAND_IN, Schema(tuple(columns), key))
    node = Arrange(source, tuple(KeyPart(name) for name in key), relation.visible)
    return View(relation.name, relation.sql, node, tuple((n, n) for n in relation.visible))


def run_query(reader: Reader, query: Query) -> pl.DataFrame:
    """The rows of a query over `readable` relations, under their visible names, in its order."""
    wanted = {inner for _, inner in query.columns} | {part.name for part in query.order}
    node = optimise(query.node, wanted)
    conditions = _conditions(node)

    def run(point: ReadPoint) -> pl.DataFrame:
        return evaluate(node, lambda source: _rows(reader, source, conditions[source], point))

    # What is written decides, not whether the passes found that the view does not matter.
    views = any(source.number == STAND_IN for source in sources(query.node))
    rows = reader.stably(run) if views else run(reader.newest())
    if query.order:
        descending = [part.descending for part in query.order]
        # As Spark SQL: NULLs come first going up and last going down.
        rows = rows.sort(
            [part.name for part in query.order],
            descending=descending,
            nulls_last=descending,
            maintain_order=True,
        )
    if query.offset or query.limit is not None:
        rows = rows.slice(query.offset, query.limit)
    return rows.select(pl.col(inner).alias(outer) for outer, inner in query.columns)


def _conditions(node: Node) -> dict[Source, list[Expr | None]]:
    """The condition on its rows at each place where a table is read; None where all are."""
    found: dict[Source, list[Expr | None]] = {source: [] for source in sources(node)}
    for source, condition in _reads(node, None):
        found[source].append(condition)
    return found


def _reads(node: Node, condition: Expr | None) -> Iterator[tuple[Source, Expr | None]]:
    if isinstance(node, Source):
        yield node, condition
    for below in inputs(node):
        yield from _reads(below, node.predicate if isinstance(node, Filter) else None)


def _rows(
    reader: Reader, source: Source, conditions: list[Expr | None], point: ReadPoint
) -> pl.DataFrame:
    """The rows of a relation that a query may need."""
    relation = reader.open(source.table, point)
    if isinstance(relation, ViewReader):
        rows = _view_rows(reader, relation, conditions, point)
        if _ROW in source.schema:
            rows = rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW))
        return rows
    return _table_rows(reader, relation, conditions, point)


def _table_rows(
    reader: Reader, table: TableReader, conditions: list[Expr | None], point: ReadPoint
) -> pl.DataFrame:
    """The rows of a base table, by key where every condition names whole keys."""
    keys = _keys(conditions, [table.schema[name] for name in table.key])
    if keys is None:
        rows = [row for _, row in table.scan(reader.store, EVERYTHING, point.cut)]
    else:
        rows = [row for row in table.find(reader.store, keys, point.cut) if row is not None]
    return table.frame(rows)


def _view_rows(
    reader: Reader, view: ViewReader, conditions: list[Expr | None], point: ReadPoint
) -> pl.DataFrame:
    """The rows of a view, by key where every condition names whole keys."""
    visible = set(view.key) <= set(view.names)
    keys = _keys(conditions, [view.schema[name] for name in view.key]) if visible else None
    if keys is None:
        rows = view.scan(reader.store, EVERYTHING, point.epoch)
    else:
        rows = [row for row in view.find(reader.store, keys, point.epoch) if row is not None]
    return view.frame(rows)


def _keys(conditions: list[Expr | None], columns: list[Column]) -> list[tuple[Scalar, ...]] | None:
    """The keys that are worth reading, each once; None if that may be all."""
    found: dict[tuple[Scalar, ...], None] = {}
    for condition in conditions:
        keys = key_values(condition, columns)
        if keys is None:
            return None
        found |= dict.fromkeys(keys)
    return list(found)

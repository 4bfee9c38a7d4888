"""SELECT, evaluated once over the rows that are there.

Law: a query reads one point: base tables as they are now, views at the published epoch. A view is
read like a table, out of its state table; it is never computed a second time from the base.
"""

from __future__ import annotations

import polars as pl

from viewkeep.access.ranges import EVERYTHING
from viewkeep.access.readers import TableReader, ViewReader
from viewkeep.access.reads import Reader, ReadPoint
from viewkeep.engine.adhoc import evaluate
from viewkeep.plan.nodes import Filter, Node, Source, View
from viewkeep.sql.keys import key_values
from viewkeep.sql.statements import Query
from viewkeep.types import Schema

STAND_IN = 0  # the number of a table that stands for a view; real tables have positive ones


def readable(relation: Source | View) -> Source:
    """A relation as a table with its visible columns, for queries that are run and not kept."""
    if isinstance(relation, Source):
        return relation
    columns = tuple(relation.schema[name] for name in relation.visible)
    return Source(relation.name, STAND_IN, Schema(columns, ()))


def run_query(reader: Reader, query: Query) -> pl.DataFrame:
    """The rows of a query over `readable` relations, under their visible names, in its order."""
    source, predicate = _source(query.node)

    def run(point: ReadPoint) -> pl.DataFrame:
        relation = reader.open(source.table, point)
        if isinstance(relation, ViewReader):
            rows = _view_rows(reader, relation, predicate, point)
        else:
            rows = _table_rows(reader, relation, predicate, point)
        return evaluate(query.node, lambda _: rows)

    rows = reader.stably(run) if source.number == STAND_IN else run(reader.newest())
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


def _source(node: Node) -> tuple[Source, Filter | None]:
    """The relation that a query reads, and the condition on its rows."""
    lowest: Filter | None = None
    while not isinstance(node, Source):
        lowest = node if isinstance(node, Filter) else None
        node = node.input
    return node, lowest


def _table_rows(
    reader: Reader, table: TableReader, condition: Filter | None, point: ReadPoint
) -> pl.DataFrame:
    """The rows of a base table, by key where the condition names whole keys."""
    columns = [table.schema[name] for name in table.key]
    keys = key_values(condition.predicate, columns) if condition else None
    if keys is None:
        rows = [row for _, row in table.scan(reader.store, EVERYTHING, point.cut)]
    else:
        rows = [row for row in table.find(reader.store, keys, point.cut) if row is not None]
    return table.frame(rows)


def _view_rows(
    reader: Reader, view: ViewReader, condition: Filter | None, point: ReadPoint
) -> pl.DataFrame:
    """The rows of a view, by key where the condition names whole keys."""
    columns = [view.schema[name] for name in view.key]
    visible = set(view.key) <= set(view.names)
    keys = key_values(condition.predicate, columns) if condition and visible else None
    if keys is None:
        rows = view.scan(reader.store, EVERYTHING, point.epoch)
    else:
        found = view.find(reader.store, list(dict.fromkeys(keys)), point.epoch)
        rows = [row for row in found if row is not None]
    return view.frame(rows)

"""SELECT, evaluated once over the rows that are there.

Law: a query reads one point. Base tables are read as they are now, several of them at one moment,
unless it reads a view too or a stable read is asked for: then all is read at the published epoch
and its cut. A view is read like a table, out of its state table; it is never computed a second time
from the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from viewkeep.access.ranges import EVERYTHING, ScanBounds, bounds_of
from viewkeep.access.reads import At, DatabaseReader, ReadPoint
from viewkeep.access.relations import TableRelation, ViewRelation
from viewkeep.access.statements.lookups import BY_KEY
from viewkeep.deferred import pl
from viewkeep.engine import budget
from viewkeep.engine.adhoc import evaluate
from viewkeep.engine.batches import BATCH_ROWS, width
from viewkeep.engine.budget import Budget
from viewkeep.errors import InvalidRow
from viewkeep.expr import Expr, Scalar
from viewkeep.plan.nodes import (
    Arrange,
    Filter,
    KeyPart,
    Node,
    Source,
    View,
    nodes,
    sources,
)
from viewkeep.plan.passes import optimise
from viewkeep.sql.expressions.whole_keys import key_values
from viewkeep.sql.statements.nodes import Query
from viewkeep.types import BIGINT, Column, Schema

STAND_IN = 0  # the number of a table that stands for a view; real tables have positive ones
BY_PREFIX, BY_SCAN = "by the beginning of its key", "by scanning it"
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


@dataclass(frozen=True)
class QueryAnswer:
    """The rows of a query, how each relation was read for them, and the epoch if one was read."""

    rows: pl.DataFrame
    how: str
    epoch: int | None


@dataclass(frozen=True)
class Planned:
    """A query with its plan, and the conditions under which each relation is read."""

    query: Query
    node: Node
    conditions: Mapping[Source, list[Expr | None]]
    views: bool  # whether it reads any


def plan_query(query: Query) -> Planned:
    """Plan a query over `readable` relations."""
    wanted = {inner for _, inner in query.columns} | {part.name for part in query.order}
    node = optimise(query.node, wanted)
    # What is written decides, not whether the passes found that the view does not matter.
    views = any(source.number == STAND_IN for source in sources(query.node))
    return Planned(query, node, _conditions(node), views)


def run_query(reader: DatabaseReader, planned: Planned, at: At | None = None) -> QueryAnswer:
    """The rows of a query, under their visible names, in its order.

    With `at="stable"` base tables are read at the published cut too, with `at="latest"` views are
    read as they are now.
    """

    with budget.of_query() as allowed:
        return _run_query(reader, planned, at, allowed)


def _run_query(
    reader: DatabaseReader, planned: Planned, at: At | None, allowed: Budget
) -> QueryAnswer:
    def run(point: ReadPoint) -> QueryAnswer:
        ways: dict[str, str] = {}

        def rows_of(source: Source) -> pl.DataFrame:
            with allowed.working():  # what is read is free once it is a frame
                rows, ways[source.table] = _rows(reader, source, planned.conditions[source], point)
            allowed.hold(int(rows.estimated_size()), f"reading {source.table}")
            return rows

        with allowed.working():
            rows = evaluate(planned.node, rows_of, budget=allowed)
        how = ", ".join(f"{name} {ways[name]}" for name in sorted(ways))
        return QueryAnswer(rows, how or "without reading", point.epoch)

    if at is None:
        at = "stable" if planned.views else "latest"
    if at == "latest" and not planned.views and len(planned.conditions) > 1:
        answer = reader.at_head(run)
    else:
        answer = reader.run_at(at, run)
    query, rows = planned.query, answer.rows
    if query.order:
        allowed.hold(rows.height * (width(rows) + 16), "ORDER BY")
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
    rows = rows.select(pl.col(inner).alias(outer) for outer, inner in query.columns)
    return replace(answer, rows=rows)


def check_answer(rows: pl.DataFrame) -> None:
    """QueryTooLarge if a client may not have as many bytes in one answer."""
    allowed = budget.current()
    if allowed is not None:
        allowed.check_answer(int(rows.estimated_size()))


def _conditions(node: Node) -> dict[Source, list[Expr | None]]:
    """The condition on its rows at each place where a table is read; None where all are."""
    found: dict[Source, list[Expr | None]] = {source: [] for source in sources(node)}
    if isinstance(node, Source):
        found[node].append(None)
    for reader in nodes([node]):
        for below in reader.inputs:
            if isinstance(below, Source):
                found[below].append(reader.predicate if isinstance(reader, Filter) else None)
    return found


def _rows(
    reader: DatabaseReader, source: Source, conditions: list[Expr | None], point: ReadPoint
) -> tuple[pl.DataFrame, str]:
    """The rows of a relation that a query may need, and how they were read."""
    columns = [column for column in source.schema.columns if column.name != _ROW]
    relation = reader.open_as(source.table, point, columns)
    if isinstance(relation, ViewRelation):
        rows, how = _view_rows(reader, relation, conditions, point)
        if _ROW in source.schema:
            rows = rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW))
        return rows, how
    return _table_rows(reader, relation, conditions, point)


def source_ranges(
    relation: TableRelation | ViewRelation, conditions: list[Expr | None]
) -> tuple[list[ScanBounds], str]:
    """What to scan of a relation for rows that may fulfil one of the conditions, and its name."""
    columns = _shown_key(relation)
    keys = _keys(conditions, columns) if len(columns) == len(relation.key) else None
    if keys is not None:
        with suppress(InvalidRow):  # a value that is too long, or that no key can hold
            return _bounds(relation, keys), BY_KEY
    return _ranges(relation, conditions, columns)


def _table_rows(
    reader: DatabaseReader, table: TableRelation, conditions: list[Expr | None], point: ReadPoint
) -> tuple[pl.DataFrame, str]:
    """The rows of a base table, by key where every condition names keys or their beginnings."""
    columns = _shown_key(table)
    keys = _keys(conditions, columns)
    if keys is not None:
        rows = [row for row in table.find(reader.store, keys, point.cut) if row is not None]
        return table.frame(rows), BY_KEY
    bounds, how = _ranges(table, conditions, columns)
    rows = [row for b in bounds for _, row in table.scan(reader.store, b, point.cut)]
    return _frame(table, rows), how


def _view_rows(
    reader: DatabaseReader, view: ViewRelation, conditions: list[Expr | None], point: ReadPoint
) -> tuple[pl.DataFrame, str]:
    """The rows of a view, by key where every condition names keys or their beginnings."""
    columns = _shown_key(view)
    keys = _keys(conditions, columns) if len(columns) == len(view.key) else None
    if keys is not None:
        rows = [row for row in view.find(reader.store, keys, point.epoch) if row is not None]
        return view.frame(rows), BY_KEY
    bounds, how = _ranges(view, conditions, columns)
    rows = [row for b in bounds for _, row in view.scan(reader.store, b, point.epoch)]
    return _frame(view, rows), how


def _frame(relation: TableRelation | ViewRelation, rows: list[bytes]) -> pl.DataFrame:
    """The rows as a frame, made a part at a time; memory is taken for it first."""
    budget.hold(sum(map(len, rows)), f"reading {relation.name}")
    if len(rows) <= BATCH_ROWS:
        return relation.frame(rows)
    parts = []
    for start in range(0, len(rows), BATCH_ROWS):
        budget.check()
        parts.append(relation.frame(rows[start : start + BATCH_ROWS]))
    return pl.concat(parts)


def _shown_key(relation: TableRelation | ViewRelation) -> list[Column]:
    """The first key columns that a query can name."""
    return [relation.schema[name] for name in takewhile(relation.names.__contains__, relation.key)]


def _ranges(
    relation: TableRelation | ViewRelation, conditions: list[Expr | None], columns: list[Column]
) -> tuple[list[ScanBounds], str]:
    """What to scan: the longest beginnings of the key that every condition names, or all."""
    for count in range(len(columns) - 1, 0, -1):
        keys = _keys(conditions, columns[:count])
        if keys is not None:
            with suppress(InvalidRow):  # a value that is too long, or that no key can hold
                return _bounds(relation, keys), BY_PREFIX
    return [EVERYTHING], BY_SCAN


def _bounds(
    relation: TableRelation | ViewRelation, prefixes: list[tuple[Scalar, ...]]
) -> list[ScanBounds]:
    codec, names = relation.key_codec, relation.key
    return [bounds_of(codec, names, relation.name, prefix=prefix) for prefix in prefixes]


def _keys(conditions: list[Expr | None], columns: list[Column]) -> list[tuple[Scalar, ...]] | None:
    """The keys that are worth reading, each once; None if that may be all."""
    found: dict[tuple[Scalar, ...], None] = {}
    for condition in conditions:
        keys = key_values(condition, columns)
        if keys is None:
            return None
        found |= dict.fromkeys(keys)
    return list(found)

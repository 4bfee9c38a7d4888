"""Queries over random small tables, evaluated by their plans and recomputed by DuckDB.

Rows have NULLs, repeated values and values that meet across tables. Beside the rows of the query,
every node of its plan is checked: its row key tells its rows apart.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import duckdb
import polars as pl
import sqlglot

from viewkeep.engine.adhoc import evaluate
from viewkeep.plan.nodes import Node, Source, View
from viewkeep.plan.passes import optimise
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.select.order_by import top
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateView, Query, Select
from viewkeep.types import BIGINT, INT, STRING, Column, DataType, Schema, decimal


def _table(name: str, number: int, key: tuple[str, ...], **columns: DataType) -> Source:
    made = tuple(Column(c, type_, c not in key) for c, type_ in columns.items())
    return Source(name, number, Schema(made, key))


TABLES = (
    _table("a", 1, ("id",), id=BIGINT, x=INT, y=INT, s=STRING),
    _table("b", 2, ("id",), id=BIGINT, x=INT, z=INT, s=STRING),
    _table("c", 3, ("k", "l"), k=INT, l=STRING, x=BIGINT, m=decimal(6, 2)),
    _table("e", 4, ("id",), id=INT, boss=INT, pay=INT),
)
SIZES = (0, 1, 4, 9)
SEEDS = 9


def _rows(source: Source, dice: random.Random) -> pl.DataFrame:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for _ in range(dice.choice(SIZES)):
        row: dict[str, Any] = {}
        for column in source.columns:
            if column.nullable and dice.random() < 0.25:
                row[column.name] = None
            elif column.type == STRING:
                row[column.name] = dice.choice("pqr")
            elif column.type.is_decimal:
                row[column.name] = dice.randint(0, 3)
            else:
                row[column.name] = dice.randint(0, 9 if column.name == "id" else 3)
        found[tuple(row[name] for name in source.row_key)] = row
    return pl.DataFrame(list(found.values()), schema=source.schema.polars)


VIEWS = (
    "CREATE VIEW sums AS SELECT x, count(*) AS n, sum(y) AS t FROM a GROUP BY x",
    "CREATE VIEW pairs (ai, bi, z) AS SELECT a.id, b.id AS other, b.z"
    " FROM a LEFT JOIN b ON a.x = b.x",
)


@cache
def catalog() -> dict[str, Source | View]:
    """The tables, and views that queries may read."""
    known: dict[str, Source | View] = {source.table: source for source in TABLES}
    for text in VIEWS:
        (tree,) = parse(text)
        made = analyse(tree, known.get)
        assert isinstance(made, CreateView)
        known[made.view.name] = made.view
    return known


def query_of(text: str) -> Query:
    """The plan of a query, with its limit."""
    (tree,) = parse(text)
    made = analyse(tree, catalog().get)
    assert isinstance(made, Select)
    return top(made.query)


def view_of(text: str) -> View:
    """The view that keeps a query."""
    (tree,) = parse(f"CREATE VIEW kept AS {text}")
    made = analyse(tree, catalog().get)
    assert isinstance(made, CreateView)
    return made.view


class World:
    """The tables with the rows of one seed, here and in DuckDB."""

    def __init__(self, seed: int):
        dice = random.Random(seed)
        self.rows = {source.table: _rows(source, dice) for source in TABLES}
        self._oracle = duckdb.connect()
        self._oracle.execute("SET threads = 1")
        for name, frame in self.rows.items():
            self._oracle.register(f"given_{name}", frame.to_arrow())
            self._oracle.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
        for relation in catalog().values():
            if isinstance(relation, View):
                text = translated(relation.sql)
                self._oracle.execute(f"CREATE VIEW {relation.name} AS {text}")

    def evaluated(self, node: Node) -> pl.DataFrame:
        """The rows of a plan, after a look at those of all its nodes."""
        known: dict[str, pl.DataFrame] = {}
        rows = evaluate(node, lambda source: self.rows[source.table], known)
        _check_keys(node, known)
        return rows

    def recomputed(self, text: str) -> tuple[list[str], Counter[Any]]:
        """The columns and rows that DuckDB gives for a text in its own dialect."""
        found = self._oracle.execute(text)
        return [name[0].lower() for name in found.description], bag(found.fetchall())


@cache
def world(seed: int) -> World:
    """The tables of a seed."""
    return World(seed)


def check(text: str) -> None:
    """A query gives DuckDB's rows, before and after the passes, as the text of its view does."""
    query, view = query_of(text), view_of(text)
    columns = [inner for _, inner in query.columns]
    plans = (query.node, optimise(query.node, frozenset(columns)))
    given, kept = translated(text), translated(view.sql)
    for seed in range(SEEDS):
        here = world(seed)
        _, wanted = here.recomputed(given)
        for node in plans:
            found = here.evaluated(node).select(pl.col(i).alias(o) for o, i in query.columns)
            assert bag(found.rows()) == wanted, (seed, node)
        assert here.recomputed(kept) == (list(view.visible), wanted), (seed, view.sql)


def _check_keys(node: Node, known: dict[str, pl.DataFrame]) -> None:
    """Every node's rows differ in its row key, and have the columns that it says."""
    rows = known[node.id]
    assert rows.schema == {c.name: c.type.polars for c in node.columns}, node
    if node.row_key:
        assert not rows.select(node.row_key).is_duplicated().any(), node
    else:
        assert rows.height <= 1, node
    for below in node.inputs:
        _check_keys(below, known)


def translated(text: str) -> str:
    """Spark's SQL as DuckDB's."""
    tree = sqlglot.parse_one(text, read="spark")
    for group in tree.find_all(sqlglot.exp.Group):
        select = group.parent
        kinds = (sqlglot.exp.Rollup, sqlglot.exp.Cube, sqlglot.exp.GroupingSets)
        several = group.find(*kinds) and group.find(sqlglot.exp.Column)
        if isinstance(select, sqlglot.exp.Select) and several:
            # Beside others, in Spark the grouping set () has no row where there are no rows.
            select.having("COUNT(*) > 0", copy=False)
    return tree.sql(dialect="duckdb")


def bag(rows: list[tuple[Any, ...]]) -> Counter[Any]:
    """Rows without an order."""
    return Counter(tuple(_plain(value) for value in row) for row in rows)


def _plain(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value

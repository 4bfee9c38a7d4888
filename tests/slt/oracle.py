"""DuckDB beside viewkeep: the same statements in its dialect, and what it takes to be equal.

Law: DuckDB is told only what the test is told (tables, changes, view definitions), never what
viewkeep stored; so a wrong base row is found as well as a wrong view row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

Row = tuple[Any, ...]
TOLERANCE = 1e-9  # relative, where one side is a double


def to_duckdb(text: str) -> str:
    """Statements of Spark's dialect in DuckDB's. TIMESTAMP is without a zone: both are UTC."""
    made = []
    for tree in sqlglot.parse(text, read="spark"):
        if tree is not None:
            for kind in tree.find_all(exp.DataType):
                if kind.this in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ):
                    kind.set("this", exp.DataType.Type.TIMESTAMP)
            without_empty_totals(tree)
            made.append(tree.sql(dialect="duckdb"))
    return "; ".join(made)


def without_empty_totals(tree: exp.Expr) -> None:
    """Beside others, in Spark the grouping set () has no row where there are no rows at all."""
    for group in tree.find_all(exp.Group):
        select = group.parent
        several = group.find(exp.Rollup, exp.Cube, exp.GroupingSets) and group.find(exp.Column)
        if isinstance(select, exp.Select) and several is not None:
            select.having("COUNT(*) > 0", copy=False)


class Twin:
    """An in-memory DuckDB that holds the same tables and views."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone='UTC'")
        self.connection.execute("SET threads=1")
        self.views: list[str] = []

    def run(self, text: str) -> None:
        """Run statements written for Spark."""
        self.connection.execute(to_duckdb(text))

    def create_view(self, name: str, text: str, duckdb_text: str | None = None) -> None:
        """A view, by its Spark text or, where the dialects differ too much, by DuckDB's."""
        self.connection.execute(f"CREATE VIEW {name} AS {duckdb_text or to_duckdb(text)}")
        self.views.append(name)

    def drop_views(self) -> None:
        while self.views:
            self.connection.execute(f"DROP VIEW {self.views.pop()}")

    def rows(self, text: str) -> list[Row]:
        """The rows of a query in DuckDB's dialect."""
        return self.connection.execute(text).fetchall()

    def close(self) -> None:
        self.connection.close()


def difference(found: Iterable[Row], expected: Iterable[Row]) -> str:
    """Empty if the rows are the same multiset, else what is too many and what is missing."""
    ours, theirs = Counter(map(_rounded, found)), Counter(map(_rounded, expected))
    if ours == theirs:
        return ""
    # Rounding may part two floats that are equal enough: only those rows are compared pairwise.
    extra = list((ours - theirs).elements())
    missing = list((theirs - ours).elements())
    for row in list(extra):
        match = next((i for i, other in enumerate(missing) if same_row(row, other)), None)
        if match is not None:
            missing.pop(match)
            extra.remove(row)
    if not extra and not missing:
        return ""
    return f"unexpected {_listed(extra)}\nmissing {_listed(missing)}"


def _listed(rows: list[Row]) -> str:
    shown = "".join(f"\n  {row}" for row in sorted(rows, key=repr)[:20])
    return f"{len(rows)}:{shown}" if rows else "0"


def _rounded(row: Row) -> Row:
    return tuple(_round(value) for value in row)


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_round, value))
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return "NaN"
    return float(f"{value:.11g}") + 0.0


def same_row(a: Row, b: Row) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def same(a: Any, b: Any) -> bool:
    """Equal values. A decimal of ours beside a double of DuckDB's is an average: to its scale."""
    if not isinstance(a, float) and not isinstance(b, float):
        return bool(a == b)
    if a is None or b is None or isinstance(a, str) or isinstance(b, str):
        return a is b or a == b
    x, y = float(a), float(b)
    if math.isinf(x) or math.isinf(y):
        return x == y
    allowed = TOLERANCE * max(1.0, abs(x), abs(y))
    if isinstance(a, Decimal):
        allowed += 0.5 * 10.0 ** int(a.as_tuple().exponent)
    return abs(x - y) <= allowed

"""Random queries, joined and nested, give the rows that DuckDB gives.

A query is over one or two relations of any kind, with conditions that may be subqueries, which are
such queries again and may name the columns of all queries around them.
"""

from __future__ import annotations

import random

import pytest

from ..recompute import check

COLUMNS = {
    "a": ("id", "x", "y"),
    "b": ("id", "x", "z"),
    "c": ("k", "x"),
    "e": ("id", "boss", "pay"),
}
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
EQUAL = ("=", "=", "=", "<=>", "<", "<>")


class Writer:
    """Writes queries; every relation has an alias of its own."""

    def __init__(self, seed: int):
        self._dice, self._aliases = random.Random(seed), 0

    def query(self, outer: list[str], depth: int, items: str | None = None) -> str:
        """A query that may name the outer columns; `items` say what it selects."""
        source, columns = self._from(depth)
        wheres = [self._condition(columns, outer, depth) for _ in range(self._dice.randint(0, 2))]
        where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
        if items is None:
            parts = [self._value(columns, outer, depth), self._dice.choice(columns)]
            items = ", ".join(f"{part} AS o{i}" for i, part in enumerate(parts))
            if self._dice.random() < 0.2:
                items = f"DISTINCT {items}"
        elif items == "column":
            items = self._dice.choice([*columns, *outer])
        elif items == "total":
            function = self._dice.choice(["count(*)", "max({})", "sum({})", "count({})"])
            items = function.format(self._dice.choice(columns))
        return f"SELECT {items} FROM {source}{where}"

    def _from(self, depth: int) -> tuple[str, list[str]]:
        first, columns = self._relation(depth)
        if self._dice.random() < 0.5:
            return first, columns
        second, others = self._relation(depth)
        join = self._dice.choice(JOINS)
        on = f"{self._dice.choice(columns)} {self._dice.choice(EQUAL)} {self._dice.choice(others)}"
        if self._dice.random() < 0.3:
            on += f" AND {self._dice.choice(columns)} <= {self._dice.choice(others)}"
        kept = columns if "I JOIN" in join else columns + others
        return f"{first} {join} {second} ON {on}", kept

    def _relation(self, depth: int) -> tuple[str, list[str]]:
        self._aliases += 1
        alias = f"r{self._aliases}"
        kind = self._dice.random()
        if depth > 0 and kind < 0.15:
            return f"({self.query([], depth - 1)}) AS {alias}", [f"{alias}.o0", f"{alias}.o1"]
        if depth > 0 and kind < 0.25:
            total = self._dice.choice(["sum(y)", "count(*)"])
            inner = f"SELECT x AS o0, {total} AS o1 FROM a GROUP BY x"
            return f"({inner}) AS {alias}", [f"{alias}.o0", f"{alias}.o1"]
        table = self._dice.choice(list(COLUMNS))
        return f"{table} AS {alias}", [f"{alias}.{column}" for column in COLUMNS[table]]

    def _condition(self, columns: list[str], outer: list[str], depth: int) -> str:
        both = columns + outer
        kind = self._dice.random()
        if depth > 0 and kind < 0.5:
            inner, wanted = depth - 1, self._dice.choice(["exists", "in", "value", "or"])
            negated = self._dice.choice(["", "NOT "])
            if wanted == "exists":
                return f"{negated}EXISTS ({self.query(both, inner, '1')})"
            if wanted == "in":
                value = self._dice.choice(columns)
                return f"{value} {negated}IN ({self.query(both, inner, 'column')})"
            if wanted == "value":
                value = self._dice.choice(columns)
                return f"{value} >= ({self.query(both, inner, 'total')})"
            one, other = (self._condition(columns, outer, inner) for _ in range(2))
            return f"{negated}({one} OR {other})"
        return f"{self._dice.choice(columns)} {self._dice.choice(EQUAL)} {self._operand(both)}"

    def _value(self, columns: list[str], outer: list[str], depth: int) -> str:
        if depth > 0 and self._dice.random() < 0.3:
            return f"({self.query(columns + outer, depth - 1, 'total')})"
        return self._dice.choice(columns)

    def _operand(self, columns: list[str]) -> str:
        return self._dice.choice([*columns, str(self._dice.randint(0, 3))])


@pytest.mark.parametrize("seed", [*range(40), 255])
def test_as_duckdb(seed: int) -> None:
    check(Writer(seed).query([], 2))

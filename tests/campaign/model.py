"""The model of a campaign: which writes are in the database, and what the views must then hold.

Law: a write is in the model exactly if the store acknowledged it, or if it was under way when its
process died and all of its rows are there. The rows at a cut are those of the writes that lie
before it in every log they touched; no cut may split a write. Views are DuckDB's answer over them.
"""

from __future__ import annotations

import atexit
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import duckdb
import polars as pl
import sqlglot

from viewkeep.stores.contract import Cut

Key = tuple[Any, ...]
Row = dict[str, Any]
Rows = dict[Key, Row]
Change = tuple[Key, Row | None]  # a row that a write leaves, or None where it leaves none
Effect = Callable[[Rows], list[Change]]  # what a write leaves, by the rows that it meets


class Finding(Exception):
    """A promise that was broken."""


@dataclass(frozen=True)
class Write:
    """A write that is in the database: the rows it left and its end in each log it touched."""

    number: int
    table: int
    changes: tuple[Change, ...]
    ends: Mapping[str, int]

    def is_inside(self, cut: Cut) -> bool:
        each = {end <= cut.position(log) for log, end in self.ends.items()}
        if len(each) > 1:
            raise Finding(f"cut {cut} splits write {self.number}, which ends at {self.ends}")
        return each == {True}


@dataclass
class Model:
    """All writes in the order of their commits, and the rows after them."""

    writes: list[Write] = field(default_factory=list)
    rows: dict[int, Rows] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)  # of the logs' ends
    operations: int = 0
    numbers: int = 0  # of writes begun

    def new_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def table(self, number: int) -> Rows:
        return self.rows.setdefault(number, {})

    def effective(self, table: int, changes: Sequence[Change]) -> list[Change]:
        """Without the deletions of rows that are not there, which leave nothing in the log."""
        return [c for c in changes if c[1] is not None or c[0] in self.table(table)]

    def commit(
        self, number: int, table: int, changes: Sequence[Change], ends: Mapping[str, int]
    ) -> None:
        """The store has these rows; `ends` are the ends of the logs that it touched."""
        done = self.effective(table, changes)
        before = {log: self.positions.get(log, 0) for log in ends}
        moved = {log: end for log, end in ends.items() if end > before[log]}
        grown = sum(end - before[log] for log, end in moved.items())
        if grown != len(done):
            raise Finding(f"a write of {len(done)} operations moved the logs by {grown}")
        self.positions |= moved
        self.operations += len(done)
        apply(self.table(table), done)
        if done:
            self.writes.append(Write(number, table, tuple(done), moved))

    def at(self, cut: Cut) -> dict[int, Rows]:
        """The rows of every table before a cut."""
        found: dict[int, Rows] = {}
        for write in self.writes:
            if write.is_inside(cut):
                apply(found.setdefault(write.table, {}), write.changes)
        return found


def apply(rows: Rows, changes: Iterable[Change]) -> None:
    """Change the rows of a table as a write does."""
    for key, row in changes:
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row


Multiset = Counter[tuple[Any, ...]]


def multiset(rows: Sequence[Sequence[Any]]) -> Multiset:
    """Rows as a multiset; floats rounded, since two engines add up in different orders."""
    return Counter(tuple(_plain(value) for value in row) for row in rows)


def _plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def answers(
    tables: Mapping[str, tuple[pl.Schema, Rows]], views: Mapping[str, str]
) -> dict[str, Multiset]:
    """What DuckDB says that these views hold over these base rows; views may read earlier ones."""
    oracle = _oracle()
    made = []
    try:
        for name, (schema, rows) in tables.items():
            frame = pl.DataFrame(list(rows.values()), schema=schema, orient="row")
            oracle.register(name, frame.to_arrow())
        for name, text in views.items():
            oracle.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {in_duckdb(text)}")
            made.append(name)
        return {name: multiset(oracle.execute(f"FROM {name}").fetchall()) for name in views}
    finally:
        for name in made:
            oracle.execute(f"DROP VIEW {name}")
        for name in tables:
            oracle.unregister(name)


@cache
def in_duckdb(text: str) -> str:
    """SQL of ours as DuckDB reads it, however it was spelt."""
    return sqlglot.transpile(text, read="spark", write="duckdb")[0]


@cache
def _oracle() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("SET TimeZone='UTC'; SET threads=1")
    atexit.register(_oracle.cache_clear)
    return made

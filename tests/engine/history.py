"""Random histories of base tables: a model that knows the rows at every cut by replaying writes.

The model is independent of the store: it keeps each write with the log positions that the store
returned, and replays those that lie before a cut. It also checks that no cut splits a write.
"""

from __future__ import annotations

import atexit
import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import sqlglot
from hypothesis import strategies as st

from viewkeep.catalog import Catalog
from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.programs import load_plan
from viewkeep.plan.nodes import Source, View, WantedKeys
from viewkeep.plan.program import Placement
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateTable, CreateView
from viewkeep.stores.contract import Cut, Kind, Store, TableWrite

TABLE = """CREATE TABLE items (
  id BIGINT, part INT, g STRING, h INT, x BIGINT, d DOUBLE, m DECIMAL(12,2),
  b BOOLEAN, day DATE, ts TIMESTAMP, raw BINARY, PRIMARY KEY (id, part))"""

Row = dict[str, Any]
# In memory where there is such a folder: these tests are about values, not about disks.
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None


Model = dict[str, dict[tuple[Any, ...], Row]]  # table -> key -> row


@dataclass
class Write:
    """One call of `store.tables.write`: its effect on the model, and where it lies in the logs."""

    effect: Callable[[Model], None]
    positions: dict[str, int]

    def inside(self, cut: Cut) -> bool:
        each = {cut.position(log) >= end for log, end in self.positions.items()}
        assert len(each) <= 1, "a cut splits a write"
        return each == {True}


class Table:
    """A base table of a history: its schema and codecs."""

    def __init__(self, catalog: Catalog, text: str):
        created = analyse(parse(text)[0], catalog.resolve)
        assert isinstance(created, CreateTable)
        catalog.create_table(created.name, created.schema)
        source = catalog.resolve(created.name)
        assert isinstance(source, Source)
        self.source, self.schema = source, source.schema
        self.keys = KeyCodec(self.schema.types(self.schema.key))
        self.rows = RowCodec(self.schema.columns)

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.schema.key)


@dataclass
class History:
    """A store with some tables, and the model of what was written to them."""

    store: Store
    texts: tuple[str, ...] = (TABLE,)
    writes: list[Write] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog = Catalog(self.store)
        made = [Table(self.catalog, text) for text in self.texts]
        self.tables = {table.source.table: table for table in made}
        self.first = made[0].source.table

    def create_view(self, text: str) -> None:
        statement = analyse(parse(text)[0], self.catalog.resolve)
        assert isinstance(statement, CreateView)
        self.catalog.create_view(statement.view, or_replace=statement.or_replace)

    def put(self, rows: list[Row], table: str = "") -> None:
        """Whole or partial puts: a missing column keeps its value."""
        name = table or self.first
        base = self.tables[name]
        names = base.schema.names
        writes, steps = [], list[Callable[[Model], None]]()
        for row in rows:
            whole = [row.get(column) for column in names]
            columns = tuple(base.schema.index(column) for column in row)
            writes.append(
                TableWrite(
                    base.source.number,
                    base.rows,
                    Kind.PUT,
                    [base.keys.encode_one(base.key_of(row))],
                    [base.rows.encode_one(whole)],
                    columns=None if len(columns) == len(whole) else columns,
                )
            )

            def step(model: Model, row: Row = row) -> None:
                held = model[name]
                old = held.get(base.key_of(row), dict.fromkeys(names))
                held[base.key_of(row)] = {**old, **row}

            steps.append(step)
        self._note(writes, steps)

    def delete(self, keys: Sequence[tuple[Any, ...]], table: str = "") -> None:
        name = table or self.first
        base = self.tables[name]
        encoded = [base.keys.encode_one(key) for key in keys]
        write = TableWrite(base.source.number, base.rows, Kind.DELETE, encoded)

        def step(model: Model) -> None:
            for key in keys:
                model[name].pop(tuple(key), None)

        self._note([write], [step])

    def _note(self, writes: list[TableWrite], steps: list[Callable[[Model], None]]) -> None:
        def effect(model: Model) -> None:
            for step in steps:
                step(model)

        before = self.store.log.head()
        ends = self.store.tables.write(writes).positions
        # A node whose rows did not exist is touched, but nothing is logged there.
        logged = {log: end for log, end in ends.items() if end > before.position(log)}
        if logged:
            self.writes.append(Write(effect, logged))

    def rows_at(self, cut: Cut) -> dict[str, list[Row]]:
        model: Model = {name: {} for name in self.tables}
        for write in self.writes:
            if write.inside(cut):
                write.effect(model)
        return {name: list(rows.values()) for name, rows in model.items()}

    def check(self) -> None:
        """Every ready view equals DuckDB's answer over the rows at the published cut."""
        epochs = Epochs(self.store)
        published = epochs.read().published
        plan = load_plan(self.store, published.plan)
        for name, rows in self.answers(published.cut, plan.views).items():
            if not epochs.ready(name):
                continue
            wanted = plan.views[name].wanted
            if wanted is not None:  # of a partial view the rows of wanted keys
                keys = set(wanted_keys(self.store, wanted, published.cut))
                places = [plan.views[name].visible.index(column) for column in wanted.values]
                rows = [row for row in rows if tuple(row[place] for place in places) in keys]
            found = view_rows(self.store, plan.program.placements[name], published.epoch)
            assert_same(found, rows, name)

    def answers(self, cut: Cut, views: Mapping[str, View]) -> dict[str, list[tuple[Any, ...]]]:
        """DuckDB's answers to the queries of views over the rows at a cut."""
        oracle = _oracle()
        for name, rows in self.rows_at(cut).items():
            schema = self.tables[name].schema.polars
            oracle.register(name, pl.DataFrame(rows, schema=schema, orient="row").to_arrow())
        for name, view in views.items():
            text = sqlglot.transpile(view.sql, read="spark", write="duckdb")[0]
            oracle.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {text}")
        found = {name: oracle.execute(f"SELECT * FROM {name}").fetchall() for name in views}
        for name in views:  # another history may have a table of that name
            oracle.execute(f"DROP VIEW {name}")
        return found


@cache
def _oracle() -> duckdb.DuckDBPyConnection:
    """One connection for all checks: opening one takes as long as a short history."""
    made = duckdb.connect()
    made.execute("SET TimeZone='UTC'")
    atexit.register(_oracle.cache_clear)  # DuckDB complains of connections that outlive it
    return made


def wanted_keys(store: Store, wanted: WantedKeys, at: Cut | None) -> list[tuple[Any, ...]]:
    """The values of the keys that are wanted at a cut, or now."""
    codec = RowCodec(wanted.schema.columns)
    places = [wanted.schema.index(name) for name in wanted.values]
    rows = []
    for part in range(store.tables.parts):
        rows += store.tables.scan(part, wanted.number, limit=1_000_000, at=at).rows
    return [codec.decode_one(row, places) for row in rows]


def view_rows(store: Store, placement: Placement, epoch: int) -> list[tuple[Any, ...]]:
    """The visible rows of a view at an epoch, from every shard."""
    table = placement.table
    names = [column.name for column in table.columns]
    places = [names.index(inner) for _, inner in placement.columns]
    found = []
    for shard in range(store.state.shards):
        chunk = store.state.scan(shard, table.number, limit=1_000_000, at=epoch)
        found += [table.row_codec.decode_one(row, places) for row in chunk.rows]
    return found


def assert_same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]], name: str) -> None:
    """Equal as multisets; numbers to 1e-9 where one side is a float."""
    rest = list(expected)
    for row in found:
        match = next((i for i, other in enumerate(rest) if _same_row(row, other)), None)
        assert match is not None, f"{name}: unexpected {row}; expected {rest}"
        rest.pop(match)
    assert not rest, f"{name}: missing {rest}; found {found}"


def _same_row(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        if a is None or b is None:
            return a is b
        x, y = float(a), float(b)
        if x != x or y != y:
            return x != x and y != y
        if math.isinf(x) or math.isinf(y):
            return x == y
        allowed = 1e-9 * max(1.0, abs(x), abs(y))
        if isinstance(a, Decimal):  # DuckDB's average of decimals is a double, Spark's is rounded
            allowed += 0.5 * 10.0 ** int(a.as_tuple().exponent)
        return abs(x - y) <= allowed
    return bool(a == b)


_texts = st.sampled_from(["", "a", "b", "A", "ab", "é", "a\x00b", "zz", "b" * 300 + "x", "b" * 300])
_moments = st.datetimes(dt.datetime(1969, 12, 30), dt.datetime(2024, 3, 1))
values: dict[str, st.SearchStrategy[Any]] = {
    "g": st.none() | _texts,
    "h": st.none() | st.integers(-2, 2),
    "x": st.none() | st.integers(-3, 3) | st.integers(-(2**40), 2**40),
    "d": st.none()
    | st.sampled_from([0.0, -0.0, 0.1, 0.2, 1e16, -1e16, float("nan"), float("inf")]),
    "m": st.none() | st.decimals(-1000, 1000, places=2).map(Decimal),
    "b": st.none() | st.booleans(),
    "day": st.none() | st.dates(dt.date(1969, 12, 30), dt.date(2024, 3, 1)),
    "ts": st.none() | _moments,
    "raw": st.none() | st.sampled_from([b"", b"\x00", b"\xff", b"ab"]),
}
keys = st.tuples(st.integers(0, 5), st.integers(0, 1))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """A put of a whole row or of some columns."""
    key = draw(keys)
    names = list(values)
    chosen = names if draw(st.booleans()) else draw(st.lists(st.sampled_from(names), unique=True))
    made: Row = {"id": key[0], "part": key[1]}
    made.update({name: draw(values[name]) for name in chosen})
    return made

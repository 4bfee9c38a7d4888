"""Aggregates over joins, aggregated first and not: both equal DuckDB's answer at every epoch.

Each query is kept three times: as the planner chooses, with sides grouped wherever that is right,
and never. The three have the same rows, to the last digit where nothing is a DOUBLE.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

import viewkeep
from viewkeep.plan.nodes import Aggregate, Join, nodes

from ..slt.epochs import run_epochs
from ..slt.oracle import Twin, difference, same_row

# In memory where there is such a folder: these tests are about values, not about disks.
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None

TABLES = {
    "a": "id BIGINT, k INT, g STRING, x BIGINT, w INT, s DECIMAL(4,2), PRIMARY KEY (id)",
    "b": "id INT, part INT, k INT, a BIGINT, y BIGINT, m DECIMAL(12,2), wide DECIMAL(30,4), "
    "d DOUBLE, f BOOLEAN, s DECIMAL(5,1), PRIMARY KEY (id, part)",
    "c": "k INT, b INT, z BIGINT, h STRING, n DECIMAL(5,1), e DOUBLE, PRIMARY KEY (k)",
}
BIG = 9_223_372_036_854_775_807
VALUES: dict[str, list[Any]] = {
    "BIGINT": [None, 0, 1, 2, 2, -3],
    "INT": [None, 0, 1, 2, 3],
    "STRING": [None, "", "p", "q"],
    "DECIMAL(12,2)": [None, Decimal("0.00"), Decimal("-1.25"), Decimal("9999999999.99")],
    "DECIMAL(5,1)": [None, Decimal("0.5"), Decimal("-9999.9")],
    "DECIMAL(30,4)": [
        None, Decimal("1.0001"), Decimal("-5.5000"), Decimal("1234567890123456789.1234"),
        Decimal("-99999999999999999999999999.9999"),
    ],
    "DECIMAL(4,2)": [None, Decimal("0.25"), Decimal("-99.99"), Decimal("7.00")],
    "DOUBLE": [None, 0.5, -0.25, 3.0, float("inf"), float("nan")],
    "BOOLEAN": [None, True, False],
}  # fmt: skip
HINTS = {"auto": "", "first": "/*+ AGGREGATE_FIRST */", "never": "/*+ NO_AGGREGATE_FIRST */"}
CALLS = [
    "COUNT(*)", "COUNT({n})", "SUM({n})", "AVG({n})", "MIN({n})", "MAX({n})", "SUM({n})",
    "COUNT(DISTINCT {n})", "SUM({i} * {i})", "SUM({i} + {i})", "BOOL_AND(b.f)", "BOOL_OR(b.f)",
    "BIT_XOR({i})", "COUNT({i} + {i})", "SUM(coalesce({i}, 7))", "SUM({i}) FILTER (WHERE b.f)",
    "SUM(CASE WHEN {i} > 0 THEN {n} END)", "SUM(2)", "SUM({i} * {i} - {i})", "AVG({i} - {i})",
    "SUM({l} * ({l} - {l}))", "SUM({l} - {l} * {l} + {l})", "SUM({s} * {s})", "AVG({s} - {s})",
    "COUNT({l} * {l})", "SUM(-({l} * {l}) * {l})", "SUM(({s} + 1) * {s})",
]  # fmt: skip
INTEGERS = {"a": ["x", "w", "k"], "b": ["y", "k"], "c": ["z", "b"]}
NUMBERS = {"a": ["x", "w"], "b": ["y", "m", "wide", "d", "s"], "c": ["z", "n", "e"]}
LONG = {"a": ["x", "id"], "b": ["y", "a"], "c": ["z"]}
SHORT = {"a": ["s", "w"], "b": ["s"], "c": ["n"]}
GROUPS = {"a": ["g", "k", "id"], "b": ["k", "f", "part"], "c": ["h", "b"]}
ON = {
    ("a", "b"): ["a.id = b.a", "a.k = b.k", "a.k = b.k AND a.x = b.y", "a.id = b.a AND a.w < b.k"],
    ("b", "c"): ["b.k = c.k", "b.id = c.b", "b.y = c.z"],
    ("a", "c"): ["a.k = c.b", "a.w = c.k", "a.x < c.z", "TRUE"],
}
KINDS = ["JOIN"] * 4 + ["LEFT JOIN"] * 3 + ["RIGHT JOIN", "FULL JOIN"]


def make_query(random: Random) -> str:
    """A query with a place for a hint."""
    order = random.choice([["a", "b"], ["b", "a"], ["b", "c"], ["a", "b", "c"], ["c", "b", "a"]])
    text, seen, tested = order[0], order[:1], ""
    for name in order[1:]:
        other = random.choice([s for s in seen if (*sorted((s, name)),) in ON])
        on = random.choice(ON[(*sorted((other, name)),)])  # type: ignore[index]
        if len(seen) == 1 and len(order) == 2 and random.random() < 0.25:
            word = random.choice(["EXISTS", "NOT EXISTS"])
            tested = f" WHERE {word} (SELECT 1 FROM {name} WHERE {on})"
            break
        text += f" {random.choice(KINDS)} {name} ON {on}"
        seen.append(name)
    grouped = random.choices(seen, k=random.choice([0, 1, 1, 2]))
    keys = list(dict.fromkeys(f"{t}.{random.choice(GROUPS[t])}" for t in grouped))
    if not tested and random.random() < 0.3:
        t, u = random.choice(seen), random.choice(seen)
        tested = random.choice(
            [f" WHERE {t}.{GROUPS[t][0]} IS NOT NULL", f" WHERE {_one(random, INTEGERS, [t])} > 0",
             f" WHERE {_one(random, INTEGERS, [t])} <= {_one(random, INTEGERS, [u])} + 1"]
        )  # fmt: skip
    calls = []
    for number in range(random.randint(1, 3)):
        call = random.choice([c for c in CALLS if "b.f" not in c or "b" in seen])
        while "{" in call:
            if "{n}" in call:
                call = call.replace("{n}", _one(random, NUMBERS, seen), 1)
            if "{i}" in call:
                call = call.replace("{i}", _one(random, INTEGERS, seen), 1)
            if "{l}" in call:
                call = call.replace("{l}", _one(random, LONG, seen), 1)
            if "{s}" in call:
                call = call.replace("{s}", _one(random, SHORT, seen), 1)
        calls.append(f"{call} AS c{number}")
    shown = ", ".join([*(f"{key} AS k{i}" for i, key in enumerate(keys)), *calls])
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {{hint}} {shown} FROM {text}{tested}{group}"


def _one(random: Random, columns: dict[str, list[str]], tables: list[str]) -> str:
    table = random.choice(tables)
    return f"{table}.{random.choice(columns[table])}"


class Round:
    """A database and DuckDB beside it, with the same tables and writes."""

    def __init__(self, db: viewkeep.Database, seed: int):
        self.db, self.random, self.twin = db, Random(seed), Twin()
        self.columns: dict[str, list[tuple[str, str]]] = {}
        self.texts: dict[str, str] = {}
        self.story: list[str] = []
        for name, columns in TABLES.items():
            self.run(f"CREATE TABLE {name} ({columns})")
            given = [part.split(" ", 1) for part in columns.split(", PRIMARY")[0].split(", ")]
            self.columns[name] = [(one, kind) for one, kind in given]

    def run(self, text: str) -> None:
        self.db.sql(text)
        self.twin.run(text)

    def create(self, query: str) -> None:
        number = len(self.texts)
        plain = query.format(hint="")
        try:
            self.twin.create_view(f"q{number}", plain)
        except Exception as error:
            raise AssertionError(plain) from error
        self.texts[f"q{number}"] = query
        for name, hint in HINTS.items():
            self.db.sql(f"CREATE VIEW q{number}_{name} AS {query.format(hint=hint)}")

    def write(self, table: str, most: int) -> None:
        made = {}
        for _ in range(self.random.randint(0, most)):
            row = {name: self.random.choice(VALUES[kind]) for name, kind in self.columns[table]}
            for key in ("id", "part") if table != "c" else ("k",):
                if key in row:
                    row[key] = self.random.randint(0, 1 if key == "part" else 4)
            made[tuple(row[k] for k in ("id", "part", "k") if k in row)[:2]] = row
        if table == "c":
            made = {row["k"]: row for row in made.values()}
        rows = list(made.values())
        self.story.append(f"put {table} {rows}")
        if rows:
            self.db.put(table, rows)
        marks = ", ".join("?" for _ in self.columns[table])
        for row in rows:
            text = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"
            self.twin.connection.execute(text, list(row.values()))

    def delete(self, table: str) -> None:
        key = "k" if table == "c" else "id"
        low = self.random.randint(0, 4)
        self.story.append(f"delete {table} {low}")
        self.run(f"DELETE FROM {table} WHERE {key} = {low}")

    def epoch(self) -> None:
        run_epochs(self.db.store)
        self.check()

    def check(self) -> None:
        for name, query in self.texts.items():
            expected = self.twin.rows(f"SELECT * FROM {name}")
            found = {hint: self.db.scan(f"{name}_{hint}").tuples() for hint in HINTS}
            for hint, rows in found.items():
                told = f"{hint}: {query}\n" + "\n".join(self.story)
                wrong = difference(rows, expected)
                assert not wrong, f"{told}\n{wrong}"
                assert _alike(rows, found["never"]), f"{told}\n{rows}\n{found['never']}"


def _alike(rows: list[Any], others: list[Any]) -> bool:
    """The same rows, of the same types; doubles to the tolerance."""
    if Counter(map(repr, rows)) == Counter(map(repr, others)):
        return True
    rest = list(others)
    for row in rows:
        same = (
            i for i, other in enumerate(rest) if _same_types(row, other) and same_row(row, other)
        )
        place = next(same, None)
        if place is None:
            return False
        rest.pop(place)
    return not rest


def _same_types(one: Any, other: Any) -> bool:
    return [(type(v), v if type(v) is Decimal else 0) for v in one] == [
        (type(v), v if type(v) is Decimal else 0) for v in other
    ]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="viewkeep-first-", dir=FOLDER) as made:
        yield Path(made)


def play(folder: Path, seed: int, queries: int = 4) -> set[bool]:
    """One history; whether there were views that are aggregated first, and others."""
    with viewkeep.open(folder / f"{seed}.vk", nodes=1, shards=2, durability="relaxed") as db:
        one = Round(db, seed)
        for number in range(queries):
            if number == queries // 2:  # the others are loaded from rows that are there
                for table in TABLES:
                    one.write(table, 8)
                one.epoch()
            one.create(make_query(one.random))
        for step in range(5):
            for table in TABLES:
                if one.random.random() < 0.6:
                    one.write(table, 1 if step % 2 else 6)
                if one.random.random() < 0.4:
                    one.delete(table)
            one.epoch()
        for table in TABLES:
            one.run(f"DELETE FROM {table}")
        one.epoch()
        views = db.catalog.current().views
        return {is_aggregated_first(views[f"{name}_first"].node) for name in one.texts}


def is_aggregated_first(root: Any) -> bool:
    """Whether an Aggregate is an input of a join."""
    joins = [node for node in nodes([root]) if isinstance(node, Join)]
    return any(isinstance(side, Aggregate) for join in joins for side in (join.left, join.right))


@pytest.mark.parametrize("seed", range(6))
def test_histories(folder: Path, seed: int) -> None:
    play(folder, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_long_histories(folder: Path, seed: int) -> None:
    play(folder, seed, 8)

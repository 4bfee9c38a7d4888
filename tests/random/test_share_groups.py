"""Views that share groups hold what they would hold alone, whoever came first and whoever stays.

Each history is played in two databases: in one the widest views come first, so that others use
their groups, in the other they come last, so that each has its own. Both equal DuckDB's answer, and
each other to the last digit, also after views were dropped whose groups others use.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import viewkeep
from viewkeep.plan.nodes import Aggregate

from ..slt.epochs import run_epochs
from ..slt.oracle import Twin, difference

FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
TABLES = [
    "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
    "CREATE TABLE p (id INT PRIMARY KEY, k INT, v BIGINT, m DECIMAL(30,4), w INT)",
]
CALLS = {
    "v": ["SUM(v)", "COUNT(v)", "AVG(v)", "MIN(v)", "MAX(v)", "COUNT(DISTINCT v)", "BIT_XOR(v)"],
    "m": ["SUM(m)", "COUNT(m)", "AVG(m)", "MIN(m)", "MAX(m)"],
    "w": ["SUM(w)", "COUNT(w)", "AVG(w)", "MAX(w)"],
}
INNER = "SELECT k, {calls} FROM p{where} GROUP BY k"
NARROW = [
    "SELECT k, {calls} FROM p{where} GROUP BY k HAVING COUNT(*) > 1",
    "SELECT t.id, t.a, q.c0, q.c1 FROM t JOIN (" + INNER + ") q ON q.k = t.id",
    "SELECT t.id, q.c0, q.c1 FROM t LEFT JOIN (" + INNER + ") q ON q.k = t.a",
    "SELECT t.a, {calls} FROM t JOIN p ON p.k = t.id{where} GROUP BY t.a",
    "SELECT t.a, {calls} FROM t LEFT JOIN p ON p.k = t.id{where} GROUP BY t.a",
    "SELECT c0, COUNT(*) AS n, MIN(c1) AS low FROM (" + INNER + ") q GROUP BY c0",
    "SELECT x.k, x.c0, y.n FROM (" + INNER + ") x JOIN (SELECT k, COUNT(*) AS n, MAX(v) AS high"
    " FROM p{where} GROUP BY k) y ON x.k = y.k WHERE y.high IS NOT NULL",
]


def listed(calls: list[str]) -> str:
    return ", ".join(f"{call} AS c{i}" for i, call in enumerate(calls))


def make_views(random: Random) -> list[str]:
    """The first has all calls of some columns; the others, some of them."""
    columns = random.sample(sorted(CALLS), random.choice([1, 1, 2]))
    every = ["COUNT(*)", *(call for column in columns for call in CALLS[column])]
    where = random.choice(["", "", " WHERE w > 0"])
    wide = random.sample(every, random.randint(len(every) // 2, len(every)))
    wide = list(dict.fromkeys([*wide, "COUNT(*)", f"SUM({columns[0]})", f"COUNT({columns[0]})"]))
    found = [INNER.format(calls=listed(wide), where=where)]
    for shape in random.sample(NARROW, 4):
        # DuckDB's averages are DOUBLEs, some of which are equal where ours are not: no groups.
        first = random.choice([call for call in wide if not call.startswith("AVG")])
        calls = [first, random.choice([call for call in wide if call != first])]
        found.append(shape.format(calls=listed(calls), where=where))
    return found


class Pair:
    """Two databases and DuckDB with the same tables, views and writes."""

    def __init__(self, folder: Path, random: Random):
        self.random, self.twin = random, Twin()
        options = {"nodes": 1, "shards": 2}
        self.dbs = [
            viewkeep.open(folder / f"{name}.vk", durability="relaxed", **options)  # type: ignore[arg-type]
            for name in ("first", "last")
        ]
        self.texts = dict(enumerate(make_views(random)))

    def run(self, text: str) -> None:
        for db in self.dbs:
            db.sql(text)
        self.twin.run(text)

    def create(self) -> None:
        for number, text in self.texts.items():
            self.twin.create_view(f"v{number}", text)
        for db, order in zip(self.dbs, (1, -1), strict=True):
            for number, text in list(self.texts.items())[::order]:
                db.sql(f"CREATE VIEW v{number} AS {text}")

    def drop(self, number: int) -> None:
        del self.texts[number]
        for db in self.dbs:
            db.sql(f"DROP VIEW v{number}")

    def change(self) -> None:
        random = self.random
        for _ in range(random.randint(1, 8)):
            row = [
                random.choice(["NULL", "0", "1", "2", "3"]),
                random.choice(["NULL", "-1", "5", "7", "1000000007"]),
                random.choice(["NULL", "0.5000", "-99999999999999999999999999.9999", "7.2500"]),
                random.choice(["0", "1", "2"]),
            ]
            key = random.randint(0, 9)
            self.run(f"DELETE FROM p WHERE id = {key}")
            if random.random() < 0.8:
                self.run(f"INSERT INTO p VALUES ({key}, {', '.join(row)})")
        key = random.randint(0, 3)
        self.run(f"DELETE FROM t WHERE id = {key}")
        if random.random() < 0.8:
            self.run(f"INSERT INTO t VALUES ({key}, {random.choice(['NULL', '0', '1'])})")

    def check(self) -> None:
        for db in self.dbs:
            run_epochs(db.store)
        for number, text in self.texts.items():
            expected = self.twin.rows(f"SELECT * FROM v{number}")
            found = [db.scan(f"v{number}").tuples() for db in self.dbs]
            wrong = difference(found[0], expected)
            assert not wrong, f"{text}\n{wrong}"
            assert Counter(map(repr, found[0])) == Counter(map(repr, found[1])), text


def groups(db: viewkeep.Database) -> int:
    """How many Aggregates there are."""
    operators = db.catalog.current().program.operators
    return sum(isinstance(operator.node, Aggregate) for operator in operators)


def play(seed: int) -> int:
    """One history; how many Aggregates fewer there were where the widest view came first."""
    with tempfile.TemporaryDirectory(prefix="viewkeep-share-", dir=FOLDER) as folder:
        pair = Pair(Path(folder), Random(seed))
        try:
            for text in TABLES:
                pair.run(text)
            if seed % 2:  # the views are loaded from rows that are there
                pair.change()
            pair.create()
            saved = groups(pair.dbs[1]) - groups(pair.dbs[0])
            for step in range(5):
                pair.change()
                pair.check()
                if step in (1, 3):
                    pair.drop(0 if step == 1 else pair.random.choice(list(pair.texts)))
            return saved
        finally:
            for db in pair.dbs:
                db.close()


@pytest.mark.parametrize("first", range(0, 6, 3))
def test_histories(first: int) -> None:
    assert sum(play(seed) for seed in range(first, first + 3)) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_long_histories(seed: int) -> None:
    play(seed)

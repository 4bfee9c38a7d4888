"""Plays one round: a random schema, random views over it, random writes, and a check at each epoch.

Law: a round follows from its seed alone, and a failure says all that is needed to repeat it: the
seed, the tables, the views, the writes so far and the rows that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import duckdb

from viewkeep.database import Database
from viewkeep.errors import Unsupported

from ..slt.epochs import run_epochs
from ..slt.oracle import Twin, difference
from .generator import ROUNDED, Generator, Query
from .schemas import Write, random_tables, random_write

VIEWS = 4


@dataclass
class Tally:
    """What the rounds did: queries kept and refused by us, and those that DuckDB does not take."""

    kept: int = 0
    checks: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    foreign: Counter[str] = field(default_factory=Counter)


class Round:
    """One round in a database that is left empty if the round ends well."""

    def __init__(self, db: Database, seed: int, tally: Tally):
        self.db, self.seed, self.tally = db, seed, tally
        self.random = Random(seed)
        self.twin = Twin()
        self.tables = random_tables(self.random)
        self.generator = Generator(self.random, self.tables)
        self.views: dict[str, str] = {}
        self.writes: list[str] = []

    def play(self) -> None:
        """Some views come before all rows, some between, some after; at the end all rows go."""
        try:
            self._play()
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n{self.story()}") from error
        finally:
            self.twin.close()
        self.clear()

    def _play(self) -> None:
        for table in self.tables:
            self.db.sql(table.sql)
            self.twin.run(table.sql)
        early = self.random.randint(1, VIEWS - 1)
        for number in range(early):
            self.create(f"v{number}")
        self.change()
        self.change()
        for number in range(early, VIEWS):
            self.create(f"v{number}")
        self.epoch()
        self.change()
        self.change()
        for table in self.tables:
            rows = self.db.scan(table.name).tuples()
            self.write(Write(table, [], [row[: table.keys] for row in rows]))
        self.epoch()

    def create(self, name: str) -> None:
        """A view that both engines take; what one of them does not take is counted."""
        query = self.generator.view()
        try:
            self.twin.create_view(name, query.sql)
        except duckdb.Error as error:
            self.tally.foreign[str(error).splitlines()[0]] += 1
            return
        self.views[name] = query.sql
        try:
            self.db.sql(f"CREATE VIEW {name} AS {query.sql}")
        except Unsupported as error:
            self.tally.refused[error.reason] += 1
            del self.views[name]
            self.twin.connection.execute(f"DROP VIEW {name}")
            self.twin.views.remove(name)
            return
        self.tally.kept += 1
        if self._may_be_read(query):
            self.generator.views[name] = query.columns

    def _may_be_read(self, query: Query) -> bool:
        return all(column.kind != ROUNDED for column in query.columns)

    def change(self) -> None:
        for table in self.tables:
            if self.random.random() < 0.7:
                self.write(random_write(self.random, table))
        self.epoch()

    def write(self, write: Write) -> None:
        self.writes.append(write.shown)
        names = [name for name, _ in write.table.columns]
        if write.put:
            self.db.put(write.table.name, [dict(zip(names, row, strict=True)) for row in write.put])
        if write.delete:
            keys = [key[0] if len(key) == 1 else key for key in write.delete]
            self.db.delete_many(write.table.name, keys)
        model = self.twin.connection
        table, slots = write.table.name, ", ".join("?" for _ in names)
        for row in write.put:
            model.execute(f"INSERT OR REPLACE INTO {table} VALUES ({slots})", row)
        match = " AND ".join(f"{name} = ?" for name in names[: write.table.keys])
        for key in write.delete:
            model.execute(f"DELETE FROM {table} WHERE {match}", key)

    def epoch(self) -> None:
        run_epochs(self.db.store)
        self.writes.append("-- epoch")
        for name in self.views:
            expected = self.twin.rows(f"SELECT * FROM {name}")
            self.tally.checks += 1
            if wrong := difference(self.db.scan(name).tuples(), expected):
                raise AssertionError(f"{name} differs from DuckDB: {wrong}")

    def clear(self) -> None:
        for name in reversed(self.views):
            self.db.sql(f"DROP VIEW {name}")
        for table in self.tables:
            self.db.sql(f"DROP TABLE {table.name}")

    def story(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}; again: RANDOM_SEED={self.seed} RANDOM_SECONDS=0 "
                "pytest tests/random",
                *(table.sql for table in self.tables),
                *(f"CREATE VIEW {name} AS {sql}" for name, sql in self.views.items()),
                *self.writes,
            ]
        )


def play(make: Callable[[], Database], seed: int, more: Callable[[], bool], tally: Tally) -> None:
    """Rounds of consecutive seeds in one database, at least one, while there is `more` time."""
    db = make()
    try:
        while True:
            Round(db, seed, tally).play()
            seed += 1
            if not more():
                return
    finally:
        db.close()

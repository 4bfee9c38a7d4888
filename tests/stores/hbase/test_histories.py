"""Random histories by an ordinary client, while HBase moves what it has; DuckDB checks each round.

`SEED=7 ROUNDS=40 make test-hbase ARGS=tests/stores/hbase/test_histories.py` is another, longer one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

import viewkeep
from viewkeep.access.live import lost_rows
from viewkeep.engine.local import catch_up
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.store import HbaseStore
from viewkeep.stores.hbase.wire import Cell, Column, Delete, Deletion, Put

pytestmark = pytest.mark.hbase

SEED, ROUNDS = int(os.environ.get("SEED", "1")), int(os.environ.get("ROUNDS", "6"))
TABLES = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, author STRING, title STRING)
    USING hbase OPTIONS ('key' = '{id:text}', 'columns' = 'title=t:title');
CREATE TABLE votes (story BIGINT, user STRING, n BIGINT, PRIMARY KEY (story, user))
    USING hbase OPTIONS ('key' = '{user:text}/{story}', 'columns' = 'n=f:n:text')
"""
VIEWS = {
    "scores": "SELECT story, COUNT(*) AS c, SUM(n) AS s, MAX(n) AS m FROM votes GROUP BY story",
    "authors": "SELECT s.author, COUNT(*) AS c, SUM(v.n) AS t FROM votes v JOIN stories s "
    "ON v.story = s.id GROUP BY s.author",
    "titled": "SELECT s.id, s.title, v.user, v.n FROM stories s JOIN votes v ON v.story = s.id",
    "quiet": "SELECT id, title FROM stories WHERE id NOT IN (SELECT story FROM votes)",
    "best": "SELECT user, story, n FROM votes ORDER BY n DESC, user, story LIMIT 5",
}


class History:
    """The client: it writes at random, and knows HBase alone."""

    def __init__(self, connection: HbaseConnection, namespace: str, seed: int):
        self.client, self.source, self.at = connection, Random(seed), 0
        self.stories, self.votes = f"{namespace}:stories", f"{namespace}:votes"
        self.deleted: set[bytes] = set()

    def write(self, count: int) -> None:
        for _ in range(count):
            self.at = max(self.at + 1, time.time_ns() // 1_000_000)
            if self.source.random() < 0.2:
                self._story(str(self.source.randrange(12)).encode())
            else:
                user = f"u{self.source.randrange(15)}/".encode()
                self._vote(user + self.source.randrange(12).to_bytes(8, "big"))

    def mark(self) -> set[tuple[str, bytes, int]]:
        """A last write to each region, so that all before it are in the log once these are."""
        self.at = max(self.at + 1, time.time_ns() // 1_000_000)
        marks = set()
        for table, cell in (
            (self.stories, Cell(b"t", b"mark", b"", self.at)),
            (self.votes, Cell(b"f", b"mark", b"", self.at)),
        ):
            for region in self.client.regions(table):
                row = (region.start or b"") + b"\0"
                self.client.put(table, [Put(row, [cell])])
                marks.add((table, row, self.at))
        return marks

    def _story(self, key: bytes) -> None:
        cells = [
            Cell(family, name, self.source.choice(values), self.at)
            for family, name, values in (
                (b"f", b"author", (b"ann", b"bob", b"\xff")),
                (b"t", b"title", (b"x", b"y", b"z")),
            )
            if self.source.random() < 0.8
        ]
        if cells and self.source.random() < 0.8:
            self.client.put(self.stories, [Put(key, cells)])
        elif self.source.random() < 0.5:
            self.client.delete(self.stories, [Delete(key, None, self.at)])
        else:
            title = [Column(b"t", b"title", self.at)]
            self.client.delete(self.stories, [Delete(key, title, kind=Deletion.CELLS)])

    def _vote(self, key: bytes) -> None:
        # Once HBase has compacted a deletion away, it shows what comes late below it; DELTA hides
        # that. So no row that was deleted is written late here.
        chance = self.source.random()
        if chance < 0.2:
            self.deleted.add(key)
            self.client.delete(self.votes, [Delete(key, None, self.at)])
            return
        is_late = chance < 0.4 and key not in self.deleted
        at = self.at - self.source.randrange(1, 100_000) if is_late else self.at
        value = b"?" if chance > 0.95 else str(self.source.randrange(100)).encode()
        self.client.put(self.votes, [Put(key, [Cell(b"f", b"n", value, at)])])

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows as SQL should see them, read here by hand."""
        stories, votes = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for row in self.client.scan(self.stories, limit=10_000):
            cells = {cell.qualifier: cell.value for cell in row.cells}
            author, title = cells.get(b"author"), cells.get(b"title")
            author = None if author == b"\xff" else author
            if (row.key or b"").isdigit() and (author is not None or title is not None):
                texts = [None if one is None else one.decode() for one in (author, title)]
                stories.append((int(row.key or b""), *texts))
        for row in self.client.scan(self.votes, limit=10_000):
            user, slash, story = (row.key or b"").partition(b"/")
            values = [cell.value for cell in row.cells if cell.qualifier == b"n"]
            if slash and len(story) == 8 and values and values[0].isdigit():
                votes.append((int.from_bytes(story, "big"), user.decode(), int(values[0])))
        return {"stories": stories, "votes": votes}


def expected(tables: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE stories (id BIGINT, author VARCHAR, title VARCHAR)")
        connection.execute("CREATE TABLE votes (story BIGINT, user VARCHAR, n BIGINT)")
        for name, rows in tables.items():
            if rows:
                connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        return {
            name: sorted(connection.execute(sql).fetchall(), key=repr)
            for name, sql in VIEWS.items()
        }


@pytest.mark.parametrize("seed", [SEED])
def test_views_are_their_queries(
    seed: int,
    connection: HbaseConnection,
    namespace: str,
    cluster: Any,
    peer: Callable[[str], None],
    tmp_path: Path,
) -> None:
    url = f"hbase://{connection.address}/{namespace}?state={tmp_path}"
    with closing(viewkeep.make(url, shards=2)) as db:
        peer(f"{namespace}:log")
        assert isinstance(db.store, HbaseStore)
        for statement in TABLES.split(";"):
            db.sql(statement)
        history = History(connection, namespace, seed)
        history.write(60)
        for name, sql in VIEWS.items():
            db.sql(f"CREATE VIEW {name} AS {sql}")
        for number in range(ROUNDS):
            table = history.source.choice([history.stories, history.votes])
            event = history.source.choice(
                [("split", table, "u3"), ("merge", table, number), ("move", table, number)]
            )
            history.write(20)
            how = cluster.event(*event)
            history.write(20)
            cluster.event("flush", table)
            if number % 4 == 2:
                dead = history.source.choice(["region1", "region2"])
                cluster.run("kill", dead)
                history.write(20)
                cluster.run("start", dead)
            history.write(20)
            before = db.store.log.kept()
            db.store.log.after_write(before, history.mark(), 120)
            catch_up(db.store)
            wanted = expected(history.tables())
            shown = {
                name: sorted((tuple(row.values()) for row in db.scan(name)), key=repr)
                for name in VIEWS
            }
            assert shown == wanted, f"seed {seed}, round {number}, {event}: {how}"
        pin = db.epochs.pin()
        for source in db.catalog.current().tables.values():
            assert lost_rows(db.store, db.epochs, source, pin) == 0

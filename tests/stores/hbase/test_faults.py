"""A view over a table of HBase while clients write, regions move and region servers die."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.stores.hbase.conftest import Cluster

import viewkeep
from viewkeep.engine.local import catch_up
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.wire import Cell, Column, Delete, Deletion, Put

pytestmark = pytest.mark.hbase
ROUNDS = int(os.environ.get("ROUNDS", "1"))
PATIENCE = 180.0  # seconds for what was written to be in the view, whatever died
CLIENTS = 3
CREATE = """CREATE TABLE votes (story STRING, user STRING, n BIGINT, PRIMARY KEY (story, user))
            USING hbase OPTIONS ('table' = '{table}', 'key' = '{{story:text}}|{{user:text}}',
                'columns' = 'n=d:n:text')"""
SCORES = """CREATE VIEW scores AS
            SELECT story, COUNT(*) AS votes, SUM(n) AS total FROM votes GROUP BY story"""

Votes = dict[str, int]


class Client:
    """An ordinary client, which writes rows of its own; `votes` are those that are there."""

    def __init__(self, port: int, table: str, name: str, source: random.Random):
        self._connection, self._table = HbaseConnection("127.0.0.1", port), table
        self._name, self._source = name, source
        self._at = time.time_ns() // 1_000_000
        self.votes, self.writes = Votes(), 0

    def write(self) -> None:
        """Put or delete a row, or try to from the past."""
        source = self._source
        row = f"{source.choice('bhnt')}{source.randrange(3)}|{self._name}{source.randrange(5)}"
        self._at += 2
        choice = source.random()
        if choice < 0.6:
            self._put(row, self._at, self.writes)
            self.votes[row] = self.writes
        elif choice < 0.75:
            self._delete(Delete(row.encode(), timestamp=self._at))
            self.votes.pop(row, None)
        elif choice < 0.9:
            column = Column(b"d", b"n", self._at)
            self._delete(Delete(row.encode(), [column], kind=Deletion.CELLS))
            self.votes.pop(row, None)
        elif row in self.votes:
            self._put(row, 1, -1)  # older than what is there
        self.writes += 1

    def close(self) -> None:
        self._connection.close()

    def _put(self, row: str, at: int, n: int) -> None:
        cell = Cell(b"d", b"n", b"%d" % n, at)
        self._connection.put(self._table, [Put(row.encode(), [cell])])

    def _delete(self, delete: Delete) -> None:
        self._connection.delete(self._table, [delete])


def scores(votes: Votes) -> dict[str, tuple[int, int]]:
    """The view, computed anew."""
    found: dict[str, tuple[int, int]] = {}
    for row, n in votes.items():
        count, total = found.get(row.partition("|")[0], (0, 0))
        found[row.partition("|")[0]] = count + 1, total + n
    return found


@pytest.fixture
def db(
    cluster: Cluster, namespace: str, peer: Callable[[str], None], tmp_path: Path
) -> Iterator[viewkeep.Database]:
    url = f"hbase://127.0.0.1:{cluster.port}/{namespace}?state={tmp_path}"
    with closing(viewkeep.make(url, shards=2)) as made:
        peer(f"{namespace}:log")
        made.sql(CREATE.format(table=f"{namespace}:votes"))
        made.sql(SCORES)
        yield made


@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
def test_nothing_is_lost_and_nothing_counts_twice(
    db: viewkeep.Database, cluster: Cluster, namespace: str, seed: int
) -> None:
    source, table = random.Random(seed), f"{namespace}:votes"
    names = "abc"[:CLIENTS]
    clients = [Client(cluster.port, table, name, random.Random(f"{seed} {name}")) for name in names]
    over, failures = threading.Event(), list[BaseException]()

    def again(call: Callable[[], object]) -> None:
        try:
            while not over.is_set():
                call()
        except BaseException as error:
            failures.append(error)
            over.set()

    calls = [*(client.write for client in clients), partial(catch_up, db.store)]
    threads = [threading.Thread(target=again, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    events = ["split c", "split i", "move 0", "kill", "flush", "merge 0", "move 1", "kill"]
    events += ["compact", "split o", "move 2", "merge 1"]
    try:
        for event in [events[0], *source.sample(events[1:], len(events) - 1)]:
            before = sum(client.writes for client in clients)
            if event == "kill":
                server = source.choice(["region1", "region2"])
                cluster.run("kill", server)
                cluster.run("start", server)
            else:
                kind, *rest = event.split()
                cluster.event(kind, table, *rest)
            deadline = time.monotonic() + PATIENCE
            while sum(client.writes for client in clients) < before + 60 and not over.is_set():
                assert time.monotonic() < deadline, f"clients do not write after {event}"
                over.wait(0.02)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
    assert not failures, failures
    wanted = scores({row: n for client in clients for row, n in client.votes.items()})
    deadline, looks, shown = time.monotonic() + PATIENCE, threading.Event(), None
    while shown != wanted:
        assert time.monotonic() < deadline, (shown, wanted)
        catch_up(db.store)
        shown = {row["story"]: (row["votes"], row["total"]) for row in db.scan("scores")}
        looks.wait(0.05)

"""Views over a table of HBase while clients write, and everything that can die or move does.

All rounds share a cluster, a database and its clients. A round lets one or two things happen while
clients write and a driver keeps the views; then the views must be what the clients' models say. In
the first round and one of eight, `verify` recomputes them in Spark and must agree.

`SEED=1 ROUNDS=200 make test-hbase ARGS=tests/stores/hbase/test_faults.py` is a long run
(docs/campaign.md has those that were made). A seed gives the events and the writes, not which comes
first.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.stores.hbase.clients import CREATE, VIEWS, Client, Row, expected
from tests.stores.hbase.conftest import ROOT, Cluster, namespace_of, peer_of

import viewkeep
from viewkeep.errors import NotReady
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.wire import Family

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.hbase

SEED, ROUNDS = int(os.environ.get("SEED", "1")), int(os.environ.get("ROUNDS", "3"))
PATIENCE = 240.0  # seconds for clients to write again, and for views to show what they wrote
CLIENTS = "abc"
WRITES = 30  # of all clients after each event
PAUSE = 0.01  # seconds between two writes of a client
VERIFIED = 8  # of so many rounds one is verified
BACKLOG = 6_000  # rows that are written while no driver runs
VERSIONS = 1_000  # that HBase keeps, so that a deleted one uncovers the one before it


class Site:
    """A database, its clients, and the process that keeps its views."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path):
        self.cluster, self.namespace, self.seed = cluster, namespace, 0
        self.url = f"hbase://127.0.0.1:{cluster.port}/{namespace}?state={folder / 'state'}"
        self.table = f"{namespace}:votes"
        self.clients = [Client(cluster.port, self.table, name, SEED) for name in CLIENTS]
        self.bulk = Client(cluster.port, self.table, "z", SEED)
        self._said = folder / "driver.log"
        self._driver: subprocess.Popen[bytes] | None = None

    def make(self, connection: HbaseConnection) -> None:
        """Make the database, the clients' table and the views."""
        with closing(viewkeep.make(self.url, shards=2)) as db:
            families = [Family(name, versions=VERSIONS, scope=1) for name in (b"d", b"e")]
            connection.create_table(self.table, families)
            db.sql(CREATE.format(table=self.table))
            for name, sql in VIEWS.items():
                db.sql(f"CREATE VIEW {name} AS {sql}")

    def drive(self) -> None:
        """Start the driver, unless it runs."""
        if self._driver is None:
            self.seed += 1
            words = [sys.executable, "-m", "tests.stores.hbase.driver", self.url, str(self.seed)]
            with self._said.open("ab") as log:
                self._driver = subprocess.Popen(
                    words, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log
                )

    def check_driver(self) -> None:
        if self._driver is not None and self._driver.poll() is not None:
            raise AssertionError(f"the driver has ended:\n{self._said.read_text()[-4_000:]}")

    def kill_driver(self) -> None:
        """kill -9, wherever it is."""
        if self._driver is not None:
            self._driver.kill()
            self._driver.communicate()
            self._driver = None

    def close(self) -> None:
        if self._driver is not None:
            self._driver.communicate(timeout=PATIENCE)
        for client in (*self.clients, self.bulk):
            client.close()

    @property
    def writes(self) -> int:
        return sum(client.writes for client in self.clients)

    def rows(self) -> dict[tuple[str, str], Row]:
        """What all clients have left."""
        clients = (*self.clients, self.bulk)
        return {key: row for client in clients for key, row in client.rows().items()}


Event = Callable[[Site, random.Random], None]


def _table(site: Site, source: random.Random) -> str:
    """The clients' table, mostly, or one of viewkeep's own."""
    return f"{site.namespace}:{source.choice(['votes', 'votes', 'log', 'meta', 'scores'])}"


def _asked(*words: str) -> Event:
    """What an administrator asks HBase for; `N` is a region and `K` a key."""

    def happen(site: Site, source: random.Random) -> None:
        table = f"{site.namespace}:votes" if words[0] == "split" else _table(site, source)
        given = {"N": str(source.randrange(8)), "K": source.choice("cegikmoqs")}
        site.cluster.event(words[0], table, *(given[word] for word in words[1:]))

    return happen


def _killed(*names: str) -> Event:
    """kill -9 of one or more processes of the cluster."""
    return lambda site, source: site.cluster.kill(*names)


def _lose_session(site: Site, source: random.Random) -> None:
    """ZooKeeper ends the session of a region server that stands still."""
    site.cluster.end_session(site.table)


def _kill_driver(site: Site, source: random.Random) -> None:
    site.kill_driver()
    site.drive()


def _backlog(site: Site, source: random.Random) -> None:
    """viewkeep is away while clients write: as much as there would be after an hour."""
    site.kill_driver()
    site.bulk.write_many(BACKLOG)
    site.drive()


EVENTS: dict[str, Event] = {
    "kill region1": _killed("region1"),
    "split": _asked("split", "K"),
    "kill master": _killed("master"),
    "move": _asked("move", "N"),
    "kill ZooKeeper": _killed("zookeeper"),
    "flush": _asked("flush"),
    "backlog": _backlog,
    "merge": _asked("merge", "N"),
    "kill region2": _killed("region2"),
    "lose session": _lose_session,
    "compact": _asked("compact"),
    "kill driver": _kill_driver,
    "kill Thrift": _killed("thrift"),
    "kill both region servers": _killed("region1", "region2"),
    "kill master and region2": _killed("master", "region2"),
    "kill ZooKeeper and region1": _killed("zookeeper", "region1"),
}


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("faults")
    with (
        closing(HbaseConnection("127.0.0.1", cluster.port)) as connection,
        namespace_of(connection) as namespace,
        peer_of(cluster) as peer,
        closing(Site(cluster, namespace, folder)) as site,
        cluster.supervised(),
    ):
        site.make(connection)
        peer(f"{namespace}:log")
        site.drive()
        with closing(viewkeep.open(site.url, create=False)) as db:
            await_views(site, db, expected({}), ["the start"])
        yield site


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_views_are_what_clients_left(site: Site, spark: SparkSession, seed: int) -> None:
    source = random.Random(seed)
    names = [list(EVENTS)[seed % len(EVENTS)]]
    names += source.sample(list(EVENTS), source.randrange(2))
    over, failures = threading.Event(), list[BaseException]()

    def write(client: Client) -> None:
        try:
            while not over.wait(PAUSE):
                client.write()
        except BaseException as error:
            failures.append(error)
            over.set()

    threads = [threading.Thread(target=write, args=[client]) for client in site.clients]
    for thread in threads:
        thread.start()
    try:
        for name in names:
            EVENTS[name](site, source)
            before = site.writes
            deadline = time.monotonic() + PATIENCE
            while site.writes < before + WRITES and not over.is_set():
                assert time.monotonic() < deadline, f"clients do not write after {name}"
                over.wait(0.02)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, (names, failures)
    wanted = expected(site.rows())
    with closing(viewkeep.open(site.url, create=False)) as db:
        await_views(site, db, wanted, names)
        if (seed - SEED) % VERIFIED == 0:
            verdicts = db.verify(spark=spark)
            assert verdicts
            assert all(verdict.ok for verdict in verdicts), (names, list(map(str, verdicts)))


def await_views(
    site: Site, db: viewkeep.Database, wanted: dict[str, set[tuple[object, ...]]], names: list[str]
) -> None:
    """Wait until the views are those that are wanted; what differs if they do not become so."""
    deadline, looks = time.monotonic() + PATIENCE, threading.Event()
    while True:
        site.check_driver()
        differences = dict[str, set[tuple[object, ...]]]()
        for name in VIEWS:
            try:
                shown = {tuple(row.values()) for row in db.scan(name)}
            except NotReady:
                differences[name] = wanted[name]
                continue
            if shown != wanted[name]:
                differences[name] = shown ^ wanted[name]
        if not differences:
            return
        assert time.monotonic() < deadline, (names, differences)
        looks.wait(0.1)

"""A real HBase cluster for the tests that are marked `hbase`; see `scripts/hbase/cluster.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from viewkeep.errors import StoreError
from viewkeep.stores.hbase.connection import HbaseConnection

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts/hbase"
sys.path.insert(0, str(SCRIPTS))
import cluster as scripts  # noqa: E402

PORT = int(os.environ.get("VIEWKEEP_HBASE_PORT", "22300"))
PATIENCE = 240.0  # seconds for HBase to notice what has died
LOOK = 0.2  # seconds between two looks at processes


@dataclass
class Cluster:
    """The cluster's scripts, and one process for what an administrator does."""

    port: int
    _events: subprocess.Popen[str] | None = field(default=None, repr=False)

    def run(self, *words: str) -> str:
        """A command of `cluster.py`."""
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / "cluster.py"), *words],
            env={**os.environ, "VIEWKEEP_HBASE_PORT": str(self.port)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def is_up(self) -> bool:
        return self._status().returncode == 0

    def kill(self, *names: str) -> None:
        """kill -9 of those processes that run; the supervisor notes their successors."""
        for name in names:
            if (pid := self._scripts.pid(name)) is not None:
                os.kill(pid, signal.SIGKILL)

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """While the block runs, what ends is started again, as a supervisor does."""
        over, failures = threading.Event(), list[BaseException]()

        def supervise() -> None:
            try:
                while not over.wait(LOOK):
                    for name in scripts.STARTS:
                        self._scripts.start(name)  # unless it runs
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=supervise)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert not failures, failures

    def end_session(self, table: str) -> None:
        """A server with regions of a table stands still until another has them, and is killed.

        ZooKeeper ends its session meanwhile. It is not woken up: on a local file system, where
        nobody takes its log from it, it would acknowledge writes that HBase then loses.
        """
        with closing(HbaseConnection("127.0.0.1", self.port)) as connection:
            own = min(_ports(connection, table))
        name, looks = scripts.NAMES[own - self.port], threading.Event()
        deadline, pid = time.monotonic() + PATIENCE, self._scripts.pid(name)
        if pid is None:
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            with closing(HbaseConnection("127.0.0.1", self.port)) as connection:
                while own in _ports(connection, table):
                    assert time.monotonic() < deadline, f"{name} keeps its regions of {table}"
                    looks.wait(LOOK)
        finally:
            os.kill(pid, signal.SIGKILL)

    @property
    def _scripts(self) -> scripts.Cluster:
        return scripts.Cluster(scripts.Cluster.of_environment().home, self.port)

    def _status(self) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(SCRIPTS / "cluster.py"), "status"]
        env = {**os.environ, "VIEWKEEP_HBASE_PORT": str(self.port)}
        return subprocess.run(words, env=env, capture_output=True, text=True)

    def event(self, *words: object) -> str:
        """Something that HBase does to a table (`Events.java`); how it went."""
        if self._events is None:
            self._events = self._begin_events()
        process = self._events
        assert process.stdin is not None
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()
        return _answer(process)

    def close(self) -> None:
        if self._events is not None:
            self._events.communicate(timeout=60)

    def _begin_events(self) -> subprocess.Popen[str]:
        words = self.run("java", "viewkeep.hbase.Events").splitlines()
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert _answer(process) == "ready"
        return process


def _ports(connection: HbaseConnection, table: str) -> set[int]:
    """The servers of a table's regions, by their ports; all that there are while nobody knows."""
    try:
        return {one.server.port or 0 for one in connection.locations(table)}
    except StoreError:
        return {connection.port + scripts.NAMES.index(name) for name in ("region1", "region2")}


def _answer(process: subprocess.Popen[str]) -> str:
    """The next line that is an answer; the rest is what HBase has to say."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("= "):
            return line[2:].strip()
    raise AssertionError("the process for events has ended")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster that runs; one that was started for the tests is ended after them."""
    cluster = Cluster(PORT)
    was_up = cluster.is_up
    cluster.run("up")
    yield cluster
    cluster.close()
    if not was_up:
        cluster.run("down")


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[HbaseConnection]:
    with closing(HbaseConnection("127.0.0.1", cluster.port)) as made:
        yield made


@contextmanager
def namespace_of(connection: HbaseConnection) -> Iterator[str]:
    """A namespace of its own, whose tables are dropped afterwards."""
    name = f"test{uuid.uuid4().hex[:12]}"
    try:
        yield name
    finally:
        if name in connection.namespaces():
            for table in connection.tables(name):
                connection.drop_table(table)
            connection.drop_namespace(name)


@contextmanager
def peer_of(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Adds a peer that appends to a log table, and removes it afterwards."""
    added: list[str] = []

    def add(log_table: str) -> None:
        name = f"t{uuid.uuid4().hex[:8]}"
        cluster.run("peer", "add", name, log_table)
        added.append(name)

    try:
        yield add
    finally:
        for name in added:
            cluster.run("peer", "remove", name)


@pytest.fixture
def namespace(connection: HbaseConnection) -> Iterator[str]:
    """A namespace of its own for a test."""
    with namespace_of(connection) as name:
        yield name


@pytest.fixture
def peer(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Adds a peer that appends to a log table, until the test is over."""
    with peer_of(cluster) as add:
        yield add

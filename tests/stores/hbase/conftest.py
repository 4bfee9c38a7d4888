"""A real HBase cluster for the tests that are marked `hbase`; see `scripts/hbase/cluster.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from viewkeep.stores.hbase.connection import HbaseConnection

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts/hbase"
PORT = int(os.environ.get("VIEWKEEP_HBASE_PORT", "22300"))


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
        words = [sys.executable, str(SCRIPTS / "cluster.py"), "status"]
        env = {**os.environ, "VIEWKEEP_HBASE_PORT": str(self.port)}
        return subprocess.run(words, env=env, capture_output=True).returncode == 0

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


@pytest.fixture
def namespace(connection: HbaseConnection) -> Iterator[str]:
    """A namespace of its own for a test, whose tables are dropped after it."""
    name = f"test{uuid.uuid4().hex[:12]}"
    yield name
    if name in connection.namespaces():
        for table in connection.tables(name):
            connection.drop_table(table)
        connection.drop_namespace(name)


@pytest.fixture
def peer(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Adds a peer that appends to a log table, until the test is over."""
    added: list[str] = []

    def add(log_table: str) -> None:
        name = f"t{uuid.uuid4().hex[:8]}"
        cluster.run("peer", "add", name, log_table)
        added.append(name)

    yield add
    for name in added:
        cluster.run("peer", "remove", name)

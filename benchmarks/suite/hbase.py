"""A cluster of HBase on loopback for the workload `hbase`, and a client of it that writes.

Law: a task's operations are written by an ordinary client in Java, which knows nothing of viewkeep.
Each has a timestamp of its own, so what they leave is what `Task.final` says.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import viewkeep
from suite.bench import Bench
from suite.contract import NotMeasured
from suite.processes import tree
from suite.task import Change, Task
from viewkeep.database import Database
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.wire import Cell, Family, Put

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/hbase/cluster.py"
PORT = int(os.environ.get("VIEWKEEP_HBASE_PORT", "22500"))
REGIONS = 4  # of each base table, so that every server has some
BATCH = 100  # rows of one call of the client
SECONDS = 300.0  # until what was written is in the log, or a server is up again
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cluster:
    """The cluster's scripts, and the client's process."""

    folder: Path
    _writer: subprocess.Popen[str] | None = field(default=None, repr=False)
    _was_up: bool = False
    _numbers: int = 0

    def __enter__(self) -> Cluster:
        self._was_up = self._script("status").returncode == 0
        self.run("up")
        return self

    def __exit__(self, *ended: object) -> None:
        if self._writer is not None:
            self._writer.communicate(timeout=60)
        if not self._was_up:
            self.run("down")
            home = os.environ.get("VIEWKEEP_HBASE") or Path.home() / ".cache/viewkeep/hbase"
            shutil.rmtree(Path(home) / f"cluster-{PORT}")

    def run(self, *words: str) -> str:
        """A command of `cluster.py`."""
        done = self._script(*words)
        if done.returncode:
            raise NotMeasured((done.stdout + done.stderr).strip())
        return done.stdout

    def serve(self, count: int) -> None:
        """Have one or two region servers run, and all regions on them."""
        running = [name for name in self.pids() if name.startswith("region")]
        if count == len(running):
            return
        self.run("kill" if count == 1 else "start", "region2")
        deadline = time.monotonic() + SECONDS
        with self.connect() as connection:
            while self._servers(connection) != count:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"HBase does not have {count} region servers")

    def _servers(self, connection: HbaseConnection) -> int:
        """How many region servers get regions of a new table."""
        connection.create_table(
            "probe", [Family(b"f")], [bytes([n]) for n in range(1, 2 * REGIONS)]
        )
        found = {(one.server.host, one.server.port) for one in connection.locations("probe")}
        connection.drop_table("probe")
        return len(found)

    def pids(self) -> dict[str, int]:
        """The processes that run, by their names."""
        lines = (line.split() for line in self._script("status").stdout.splitlines())
        return {words[1]: int(words[-1]) for words in lines if words[-2:-1] == ["pid"]}

    @contextmanager
    def connect(self) -> Iterator[HbaseConnection]:
        connection = HbaseConnection("127.0.0.1", PORT)
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def database(self, tables: Mapping[str, Sequence[str]], keys: int) -> Iterator[Site]:
        """An empty database over some tables, whose peer reports what is written to them.

        `tables` are their columns, the key first; keys are from 0 to `keys`.
        """
        self._numbers += 1
        name = f"bench{self._numbers}"
        state = self.folder / name
        with self.connect() as connection:
            url = f"hbase://{connection.address}/{name}?state={state}"
            site = Site(self, connection, name, url, list(tables))
            splits = [struct.pack(">q", keys * part // REGIONS) for part in range(1, REGIONS)]
            for table in tables:
                connection.create_table(
                    f"{name}:{table}", [Family(b"f", versions=1, scope=1)], splits
                )
            site.db = viewkeep.make(site.url, shards=2)
            try:
                site.report(True)
                for table, columns in tables.items():
                    site.db.sql(
                        f"CREATE TABLE {table} ({columns[0]} BIGINT PRIMARY KEY, "
                        + ", ".join(f"{column} BIGINT" for column in columns[1:])
                        + ") USING hbase"
                    )
                yield site
            finally:
                site.db.close()
                site.report(False)
                for table in connection.tables(name):
                    connection.drop_table(table)
                connection.drop_namespace(name)
                shutil.rmtree(state, ignore_errors=True)

    def write(self, words: Sequence[object]) -> float:
        """One command of the client (`Writer.java`); the seconds that it took."""
        if self._writer is None:
            self._writer = subprocess.Popen(
                self.run("java", "viewkeep.hbase.Writer").splitlines(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            _answer(self._writer)
        assert self._writer.stdin is not None
        self._writer.stdin.write(" ".join(map(str, words)) + "\n")
        self._writer.stdin.flush()
        return float(_answer(self._writer))

    def measure(self, *words: object) -> float:
        """What a class of ours measures in a process of its own."""
        command = self.run("java", *map(str, words)).splitlines()
        done = subprocess.run(command, capture_output=True, text=True)
        found = [line[2:] for line in done.stdout.splitlines() if line.startswith("= ")]
        if not found:
            raise RuntimeError(done.stderr[-2_000:])
        return float(found[0])

    def _script(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(SCRIPT), *words],
            env={**os.environ, "VIEWKEEP_HBASE_PORT": str(PORT)},
            capture_output=True,
            text=True,
        )


@dataclass
class Site:
    """A database, and what its client writes."""

    cluster: Cluster
    client: HbaseConnection
    name: str
    url: str
    tables: Sequence[str]
    db: Database = field(init=False)
    _reports: bool = False

    def report(self, on: bool) -> None:
        """Add the database's peer, or remove it."""
        if on != self._reports:
            words = ["add", self.name, f"{self.name}:log"] if on else ["remove", self.name]
            self.cluster.run("peer", *words)
            self._reports = on

    def write(
        self,
        table: str,
        file: Operations,
        start: int = 0,
        count: int | None = None,
        *,
        threads: int = 2,
        rate: float = 0,
    ) -> float:
        """Write some operations of a file; the seconds that it took."""
        count = file.count - start if count is None else count
        words = (f"{self.name}:{table}", file.path, ",".join(file.columns), start, count)
        return self.cluster.write([*words, threads, BATCH, rate])

    def await_log(self) -> None:
        """Wait until the log has all that was written: a last row in each region shows it."""
        log, at, marks = self.db.store.log, time.time_ns() // 1_000_000, set()
        before = log.head()
        for table in self.tables:
            name = f"{self.name}:{table}"
            for region in self.client.regions(name):
                row = (region.start or b"") + b"\0"
                self.client.put(name, [Put(row, [Cell(b"f", b"mark", b"", at)])])
                marks.add((name, row, at))
        log.after_write(before, marks, SECONDS)

    def await_views(self) -> None:
        """Wait until a pipeline has published all that the log has."""
        head, published = self.db.store.log.head(), self.db.epochs.read().published
        deadline = time.monotonic() + 4 * SECONDS
        while not published.cut.covers(head):
            if time.monotonic() > deadline:
                raise RuntimeError("the views do not catch up")
            published = self.db.epochs.wait(published.epoch, 1.0)


@dataclass(frozen=True)
class Operations:
    """Operations on one table in a file, as the client reads them."""

    path: Path
    columns: tuple[str, ...]
    count: int

    @staticmethod
    def of(changes: Sequence[Change], columns: Sequence[str], path: Path) -> Operations:
        """Puts and deletions in their order; `columns` begin with the key."""
        parts = list[Any]()
        for change in changes:
            if change.puts is not None:
                rows = np.zeros((len(change.puts), 1 + len(columns)), ">i8")
                for place, name in enumerate(columns, 1):
                    rows[:, place] = change.puts[name].to_numpy()
                parts.append(rows)
            if change.deletes is not None:
                rows = np.zeros((len(change.deletes), 1 + len(columns)), ">i8")
                rows[:, 0], rows[:, 1] = 1, change.deletes.to_numpy()
                parts.append(rows)
        whole = np.concatenate(parts)
        form = np.dtype([("is_deletion", "u1"), ("values", ">i8", (len(columns),))])
        written = np.zeros(len(whole), form)
        written["is_deletion"], written["values"] = whole[:, 0], whole[:, 1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        written.tofile(path)
        return Operations(path, tuple(columns[1:]), len(whole))


def operations(task: Task, folder: Path) -> dict[str, Operations]:
    """A task's operations, a file for each table."""
    return {
        table: Operations.of(
            [one for one in task.changes if one.table == table], list(columns), folder / table
        )
        for table, columns in task.tables.items()
    }


def cluster_of(bench: Bench) -> Callable[[], Cluster]:
    """The one cluster of a run, started when it is asked for."""
    made = list[Cluster]()

    def given() -> Cluster:
        if not made:
            made.append(bench.keep(Cluster(bench.place("hbase"))))
        return made[0]

    return given


def _answer(client: subprocess.Popen[str]) -> str:
    """The next line that is an answer; the rest is what HBase has to say."""
    assert client.stdout is not None
    for line in client.stdout:
        if line.startswith("= no"):
            raise RuntimeError(line[5:].strip())
        if line.startswith("= "):
            return line[2:].strip()
    raise RuntimeError("the client has ended")


def processor_seconds(pids: Sequence[int]) -> float:
    """What processes have used, with those children of theirs that have ended."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, words[11:15]))
    return ticks / _TICKS


@dataclass
class Spent:
    """Processor time of viewkeep (this process and below it) and of HBase, since it was made."""

    cluster: Cluster

    def __post_init__(self) -> None:
        self._before = self._now()

    def __call__(self) -> dict[str, float]:
        now = self._now()
        return {name: value - self._before[name] for name, value in now.items()}

    def _now(self) -> dict[str, float]:
        of_hbase = list(self.cluster.pids().values())
        return {
            "viewkeep": processor_seconds(tree(os.getpid())),
            "HBase": processor_seconds(of_hbase),
        }

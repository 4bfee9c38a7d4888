"""The log of a real cluster: what clients write, and what HBase does to their tables meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from tests.stores.hbase.conftest import Cluster

from viewkeep.stores.contract import START, Cut
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.log import HbaseLog
from viewkeep.stores.hbase.log_table import (
    DELETE_CELLS,
    DELETE_FAMILY,
    DELETE_FAMILY_VERSION,
    DELETE_VERSION,
    PUT,
    RowChange,
)
from viewkeep.stores.hbase.wire import Cell, Column, Delete, Deletion, Family, Put

pytestmark = pytest.mark.hbase
SEED, ROUNDS = int(os.environ.get("SEED", "1")), int(os.environ.get("ROUNDS", "2"))
PATIENCE = 180.0  # seconds for what was written to come, whatever died


@dataclass
class Trial:
    """A table of users, and a log of it."""

    connection: HbaseConnection
    log: HbaseLog
    table: str
    seen: dict[bytes, set[int]] = field(default_factory=dict)  # timestamps by row
    cut: Cut = START

    def put(self, row: bytes, number: int) -> None:
        cell = Cell(b"f", b"n", b"%d" % number, number)
        self.connection.put(self.table, [Put(row, [cell])])

    def read(self, stop: Cut, operations: int = 1 << 40) -> None:
        """Read on to a cut, through cuts of so many operations; each keeps the order of rows."""
        while not self.cut.covers(stop):
            cut = self.log.bounded_cut(self.cut, stop, operations, 1 << 40)
            for split in self.log.splits(self.cut, cut):
                for change in self.log.changes(split):
                    numbers = (cell.timestamp for cell in change.cells)
                    self.seen.setdefault(change.row, set()).update(numbers)
            self.cut = cut
            for row, numbers in self.seen.items():
                assert len(numbers) == max(numbers), f"{row!r} lacks an earlier change"

    def read_until(self, written: dict[bytes, int], operations: int = 1 << 40) -> None:
        """Read on until all that was written has come."""
        deadline, looks = time.monotonic() + PATIENCE, threading.Event()
        while {row: len(numbers) for row, numbers in self.seen.items()} != written:
            assert time.monotonic() < deadline, "what was written has not come"
            self.read(self.log.head(), operations)
            looks.wait(0.02)


@pytest.fixture
def trial(cluster: Cluster, peer: Callable[[str], None]) -> Iterator[Trial]:
    name = f"t{uuid.uuid4().hex[:8]}"
    connection = HbaseConnection("127.0.0.1", cluster.port)
    log = HbaseLog(connection, f"{name}:log", lambda change, tables: [])
    log.create()
    connection.create_table(f"{name}:user", [Family(b"f", scope=1), Family(b"g", scope=1)])
    log.add_table(f"{name}:user")
    peer(log.table)
    yield Trial(connection, log, f"{name}:user")
    for table in (f"{name}:user", log.table):
        connection.drop_table(table)
    connection.drop_namespace(name)
    connection.close()


def test_the_log_has_what_clients_do(trial: Trial) -> None:
    connection, table = trial.connection, trial.table
    connection.put(table, [Put(b"r", [Cell(b"f", b"a", b"1", 10), Cell(b"g", b"b", b"2", 10)])])
    connection.put(table, [Put(b"r", [Cell(b"f", b"a", b"0", 5)])])  # in the past
    for column, kind in (
        (Column(b"f", b"a", 5), Deletion.VERSION),
        (Column(b"f", b"a", 6), Deletion.CELLS),
        (Column(b"g", None, 7), Deletion.FAMILY),
        (Column(b"g", None, 8), Deletion.FAMILY_VERSION),
    ):
        connection.delete(table, [Delete(b"r", [column], kind=kind)])
    connection.delete(table, [Delete(b"r", timestamp=9)])
    connection.put(table, [Put(b"s", [Cell(b"f", b"a", b"end", 1)])])
    cut = trial.log.after_write(START, {(table, b"s", 1)}, PATIENCE)
    changes = [one for split in trial.log.splits(START, cut) for one in trial.log.changes(split)]
    assert [(one.row, one.table) for one in changes] == [(b"r", table)] * 7 + [(b"s", table)]
    found = [
        (c.type, c.timestamp, c.family, c.qualifier, c.value) for o in changes for c in o.cells
    ]
    assert found[:6] == [
        (PUT, 10, b"f", b"a", b"1"),
        (PUT, 10, b"g", b"b", b"2"),
        (PUT, 5, b"f", b"a", b"0"),
        (DELETE_VERSION, 5, b"f", b"a", b""),
        (DELETE_CELLS, 6, b"f", b"a", b""),
        (DELETE_FAMILY, 7, b"g", b"", b""),
    ]
    assert found[6] == (DELETE_FAMILY_VERSION, 8, b"g", b"", b"")
    assert sorted(found[7:9]) == [
        (DELETE_FAMILY, 9, b"f", b"", b""),
        (DELETE_FAMILY, 9, b"g", b"", b""),
    ]
    assert [one.sequence for one in changes[:-1]] == sorted(one.sequence for one in changes[:-1])


def test_large_rows_and_batches_come_whole(trial: Trial) -> None:
    value = random.Random(1).randbytes(5 << 20)  # more than a batch, and than a piece of one
    trial.connection.put(trial.table, [Put(b"large", [Cell(b"f", b"v", value, 1)])])
    rows = [Put(b"%05d" % n, [Cell(b"f", b"v", b"x" * 500, 1)]) for n in range(5_000)]
    trial.connection.put(trial.table, rows)
    keys = {(trial.table, put.row, 1) for put in rows} | {(trial.table, b"large", 1)}
    cut = trial.log.after_write(START, keys, PATIENCE)
    changes = list[RowChange]()
    for split in trial.log.splits(START, cut):
        changes += trial.log.changes(split)
    (large,) = (one for one in changes if one.row == b"large")
    assert large.cells[0].value == value
    assert {one.row for one in changes} == {b"large", *(put.row for put in rows)}


def test_while_the_log_table_is_away_nothing_is_lost(trial: Trial, cluster: Cluster) -> None:
    trial.put(b"a", 1)
    trial.read_until({b"a": 1})
    assert cluster.event("disable", trial.log.table) == "ok"
    for number in range(2, 200):
        trial.put(b"a", number)
    assert cluster.event("enable", trial.log.table) == "ok"
    trial.read_until({b"a": 199})


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_events_lose_nothing_and_keep_the_order_of_each_row(
    trial: Trial, cluster: Cluster, seed: int
) -> None:
    """Clients write while regions split, move and merge and servers die; a reader reads on."""
    source = random.Random(seed)
    over, failures = threading.Event(), list[BaseException]()
    written: list[dict[bytes, int]] = [{} for _ in range(4)]

    def write(number: int) -> None:
        mine, chance = written[number], random.Random(seed * 10 + number)
        while not over.is_set():
            row = b"%s%d" % (chance.choice([b"b", b"h", b"n", b"t"]), number)
            trial.put(row, mine.get(row, 0) + 1)
            mine[row] = mine.get(row, 0) + 1

    def read() -> None:
        while not over.is_set():
            trial.read(trial.log.head(), source.randrange(1, 200))
            if chance.random() < 0.2:
                trial.log.truncate(trial.cut)

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)
            over.set()

    chance = random.Random(seed)
    calls = [partial(write, number) for number in range(len(written))]
    threads = [threading.Thread(target=guarded, args=[call]) for call in [*calls, read]]
    for thread in threads:
        thread.start()
    try:
        events = ["split e", "move 0", "kill", "split k", "flush", "merge 0", "move 1", "kill"]
        events += ["compact", "split q", "move 2", "merge 1"]
        for event in events[:2] + source.sample(events[2:], len(events) - 2):
            if over.is_set():
                break
            before = sum(sum(some.values()) for some in written)
            if event == "kill":
                name = source.choice(["region1", "region2"])
                cluster.run("kill", name)
                cluster.run("start", name)
            else:
                kind, *rest = event.split()
                cluster.event(kind, trial.table, *rest)
            deadline = time.monotonic() + PATIENCE
            while sum(sum(some.values()) for some in written) < before + 100 and not over.is_set():
                assert time.monotonic() < deadline, f"clients do not write after {event}"
                over.wait(0.02)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    trial.read_until({row: at for some in written for row, at in some.items()}, 500)

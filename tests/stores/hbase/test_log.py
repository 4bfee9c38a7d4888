"""The log of an HBase database over a log table in memory; `test_log_cluster` has a real one."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.stores.hbase.appenders import Appender, Lost, MemoryTable

from viewkeep.cells import CellOperation, put
from viewkeep.errors import Corrupt, EpochGone, OutcomeUnknown, StoreError
from viewkeep.stores.contract import START, Cut
from viewkeep.stores.hbase.log import IDLE, HbaseLog
from viewkeep.stores.hbase.log_table import (
    DELETE_CELLS,
    DELETE_FAMILY,
    DELETE_FAMILY_VERSION,
    DELETE_VERSION,
    HEADS,
    PUT,
    RowChange,
    WalCell,
    batch_key,
    read_batch,
)

NEVER = 1 << 60


def change(number: int, *, row: bytes = b"r", region: str = "one", table: str = "t") -> RowChange:
    """A change whose timestamp is its number."""
    cell = WalCell(PUT, number, b"f", b"q", b"%d" % number)
    return RowChange(table, region, number, 1_000 + number, row, [cell])


def operations(found: RowChange, tables: frozenset[int] | None = None) -> list[CellOperation]:
    if tables is not None and 1 not in tables:
        return []
    return [put(1, found.row, cell.timestamp) for cell in found.cells]


def numbers(log: HbaseLog, start: Cut, stop: Cut) -> list[int]:
    return [
        found.cells[0].timestamp
        for split in log.splits(start, stop)
        for found in log.changes(split)
    ]


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


@pytest.fixture
def log(table: MemoryTable) -> HbaseLog:
    log = HbaseLog(table, "d:log", operations)  # type: ignore[arg-type]
    log.create()
    log.add_table("t")
    return log


def test_bytes_are_those_that_java_writes() -> None:
    text = (Path(__file__).parent / "batch.hex").read_text()
    assert list(read_batch(bytes.fromhex(text))) == [
        RowChange(
            "votes",
            "0123456789abcdef",
            7,
            1_700_000_000_000,
            b"r1",
            [WalCell(PUT, 11, b"f", b"a", b"one"), WalCell(PUT, 11, b"f", b"b", b"")],
        ),
        RowChange(
            "votes",
            "0123456789abcdef",
            7,
            1_700_000_000_000,
            b"r2",
            [WalCell(DELETE_FAMILY, 12, b"f", b"", b"")],
        ),
        RowChange(
            "news:stories",
            "fedcba9876543210",
            8,
            1_700_000_000_005,
            b"r1",
            [
                WalCell(DELETE_CELLS, 13, b"g", b"a", b""),
                WalCell(DELETE_VERSION, 14, b"g", b"a", b""),
                WalCell(DELETE_FAMILY_VERSION, 15, b"g", b"", b""),
            ],
        ),
    ]


def test_a_batch_of_another_version_names_the_way_out() -> None:
    with pytest.raises(Corrupt, match="Install the jar"):
        list(read_batch(b"\x02\0\0"))


def test_an_empty_log_has_a_cut(log: HbaseLog) -> None:
    assert log.head() == Cut() == log.kept()
    assert log.first_after(START) is None
    assert log.splits(START, log.head()) == []


def test_the_head_moves_with_what_was_appended(log: HbaseLog, table: MemoryTable) -> None:
    one, two = Appender(table, "one"), Appender(table, "two")
    one.append([change(1), change(2)])
    first = log.head()
    two.append([change(3)])
    assert log.head().covers(first)
    assert not first.covers(log.head())
    assert (first.births, log.head().births) == ({}, {"2": 2})
    assert (first.operations, log.head().operations) == (2, 3)
    assert log.head().watermark == 1_003_000_000
    assert numbers(log, START, first) == [1, 2]
    assert numbers(log, first, log.head()) == [3]
    assert log.first_after(first) == 1_003_000_000
    assert log.first_after(log.head()) is None


def test_tables_of_others_are_not_logged(log: HbaseLog, table: MemoryTable) -> None:
    server = Appender(table, "one")
    server.append([change(1, table="other")])
    server.append([change(2), change(3, table="other")])
    log.drop_table("t")
    server.append([change(4)])
    assert numbers(log, START, log.head()) == [2]


def test_operations_come_from_the_change_and_by_table(log: HbaseLog, table: MemoryTable) -> None:
    Appender(table, "one").append([change(5)])
    (split,) = log.splits(START, log.head())
    assert [operation.timestamp for operation in log.cells(split)] == [5]
    assert list(log.cells(split, frozenset([2]))) == []
    with pytest.raises(StoreError, match="cells"):
        list(log.read(split))


@pytest.mark.parametrize("fail", ["rows", "answer"])
def test_what_fails_comes_again_in_another_log(
    log: HbaseLog, table: MemoryTable, fail: str
) -> None:
    server = Appender(table, "one", per_batch=1)
    server.append([change(1)])
    with pytest.raises(Lost):
        server.append([change(2), change(3)], fail=fail)
    before = log.head()
    server.append([change(2), change(3)])
    assert sorted(set(numbers(log, START, log.head()))) == [1, 2, 3]
    assert numbers(log, before, log.head()) == [2, 3]
    assert server.begun == [1, 2]


def test_a_split_is_divided_at_any_operation(log: HbaseLog, table: MemoryTable) -> None:
    Appender(table, "one", per_batch=4).append([change(number) for number in range(10)])
    (split,) = log.splits(START, log.head())
    pieces = log.divide(split, [3, 1, 2, 4])
    assert [piece.operations for piece in pieces] == [3, 1, 2, 4]
    found = [[one.cells[0].timestamp for one in log.changes(piece)] for piece in pieces]
    assert found == [[0, 1, 2], [3], [4, 5], [6, 7, 8, 9]]


def test_a_write_is_found_in_its_logs(log: HbaseLog, table: MemoryTable) -> None:
    one, two = Appender(table, "one"), Appender(table, "two")
    one.append([change(1)])
    before = log.head()
    one.append([change(2, row=b"a"), change(3, row=b"b")])
    two.append([change(4, row=b"c")])
    cut = log.after_write(before, {("t", b"a", 2), ("t", b"c", 4)}, 0)
    assert (cut.positions, cut.births) == ({"1": 2, "2": 1}, {"2": 2})
    assert log.head().covers(cut)
    assert not before.covers(cut)


def test_a_write_that_does_not_come_is_told(log: HbaseLog, table: MemoryTable) -> None:
    Appender(table, "one").append([change(1)])
    with pytest.raises(OutcomeUnknown, match="lacks 1 of them"):
        log.after_write(START, {("t", b"r", 1), ("t", b"r", 2)}, 0)


def test_truncation_keeps_what_comes_after_the_cut(log: HbaseLog, table: MemoryTable) -> None:
    server = Appender(table, "one", per_batch=2)
    server.append([change(number) for number in range(6)])
    cut = log.head()
    server.append([change(6)])
    while log.truncate(cut, 1):
        pass
    assert log.kept().positions == {"1": 6}
    assert numbers(log, cut, log.head()) == [6]
    for call in (lambda: numbers(log, START, cut), lambda: log.first_after(START)):
        with pytest.raises(EpochGone):
            call()
    left = [key for key, cells in table.rows.items() if cells and key != HEADS]
    assert left == [batch_key(1, 7)]


def test_a_truncation_that_died_is_taken_up(
    log: HbaseLog, table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Appender(table, "one", per_batch=1)
    server.append([change(number) for number in range(4)])
    for call in ("put", "delete"):
        with monkeypatch.context() as patch:
            patch.setattr(table, call, _lose)
            with pytest.raises(Lost):
                log.truncate(log.head(), 2)
    assert log.truncate(log.head(), 1)
    while log.truncate(log.head(), 1):
        pass
    assert log.kept().positions == {"1": 4}
    assert [key for key, cells in table.rows.items() if cells] == [HEADS]


def _lose(*arguments: object) -> None:
    raise Lost


def test_an_idle_log_ends_and_its_server_begins_another(log: HbaseLog, table: MemoryTable) -> None:
    idle, busy = Appender(table, "idle"), Appender(table, "busy")
    idle.append([change(1)])
    old = log.head()
    busy.append([change(2 + IDLE)])
    assert not log.truncate(log.head())
    assert set(log.head().positions) == {"2"}
    assert log.head().covers(old)
    assert log.head().operations == 2
    assert log.head().watermark >= old.watermark
    last = log.head()
    with pytest.raises(Lost):
        idle.append([change(3)])
    assert log.head() == last, "what is past the end of a log is not there"
    idle.append([change(3)])
    assert numbers(log, last, log.head()) == [3]
    assert log.head().births == {"2": 2, "3": 3}


def test_a_log_that_moves_while_it_is_ended_goes_on(log: HbaseLog, table: MemoryTable) -> None:
    idle, busy = Appender(table, "idle"), Appender(table, "busy")
    idle.append([change(1)])
    busy.append([change(2 + IDLE)])
    cut, end = log.head(), log._end

    def late(number: int, heads: Any) -> None:
        idle.append([change(3)])
        end(number, heads)

    log._end = late  # type: ignore[method-assign]
    log.truncate(cut)
    assert numbers(log, cut, log.head()) == [3]


@pytest.mark.parametrize("seed", range(60))
def test_smaller_cuts_keep_the_order_of_each_region(seed: int) -> None:
    """Regions move among servers that fail; every bounded cut has each region's first changes."""
    source = random.Random(seed)
    table = MemoryTable()
    log = HbaseLog(table, "d:log", operations)  # type: ignore[arg-type]
    log.add_table("t")
    servers = [Appender(table, f"s{n}", per_batch=source.randrange(1, 4)) for n in range(3)]
    made = dict.fromkeys("abc", 0)
    for _ in range(40):
        server = source.choice(servers)
        some = list[RowChange]()
        for region in made:
            for _ in range(source.randrange(3)):
                made[region] += 1
                some.append(change(made[region], row=region.encode(), region=region))
        while True:
            try:
                server.append(some, fail=source.choice(["", "", "", "rows", "answer"]))
                break
            except Lost:
                server = source.choice(servers)
        if source.random() < 0.1:
            log.truncate(START)
    head, cut = log.head(), START
    seen = dict.fromkeys(made, 0)
    while not cut.covers(head):
        most = source.randrange(1, 12)
        following = log.bounded_cut(cut, head, most, source.choice([NEVER, 100]))
        assert following.covers(cut)
        assert not cut.covers(following)
        assert following.operations - cut.operations <= max(most, 3)
        assert following.watermark >= cut.watermark
        come = [found for split in log.splits(cut, following) for found in log.changes(split)]
        assert len(come) == following.operations - cut.operations
        for region in made:
            some = [one for one in come if one.region == region]
            known = sorted({*range(seen[region] + 1), *(one.sequence for one in some)})
            assert all(after - before == 1 for before, after in pairwise(known)), region
            seen[region] = known[-1]
        cut = following
    assert seen == made
    assert log.bounded_cut(START, head, NEVER, NEVER) is head


def test_a_table_that_was_listed_again_stays_listed(log: HbaseLog) -> None:
    """Whoever drops a table of SQL does not take the one of HBase from a new table over it."""
    before = log.listed("t")
    assert before is not None
    assert log.listed("other") is None
    log.add_table("t")
    log.drop_table("t", before)
    assert log.heads().tables == {"t"}
    log.drop_table("t", log.listed("t"))
    assert log.listed("t") is None
    assert log.heads().tables == frozenset()

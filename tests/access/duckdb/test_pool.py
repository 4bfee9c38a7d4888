"""DuckDB's processes: whatever a query does, it ends in time and within its memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from viewkeep.access.duckdb.pool import DuckError, DuckPool, DuckRelations
from viewkeep.engine.budget import Budget, Turns
from viewkeep.errors import Overloaded, QueryTimeout, QueryTooLarge

MEMORY = 128 << 20
MOST_LATE = 5.0  # seconds after a deadline, on a machine that is busy with other things

# None of these is ended by DuckDB's interrupt() within ten seconds.
ENDLESS = {
    "a scalar function": "SELECT levenshtein(repeat('a', 400000), repeat('b', 400000)) AS n",
    "a regular expression": "SELECT count(*) AS n FROM range(100) t(i) "
    "WHERE regexp_matches(repeat('a', 30000000), '(a|aa)*b' || i)",
}
# What interrupt() ends; here they must end as well.
LONG = {
    "rows without end": "SELECT count(*) AS n FROM range(1000000000000)",
    "recursion": "WITH RECURSIVE r AS (SELECT 1 i UNION ALL SELECT i FROM r) SELECT 1 AS n FROM r",
}
# DuckDB's memory_limit of 256 MB does not keep the first three below 1 GB.
LARGE = {
    "repeat": "SELECT length(repeat('x', 1000000000)) AS n",
    "replace": "SELECT length(replace(repeat('a', 50000000), 'a', repeat('b', 100))) AS n",
    "a list": "SELECT length(list_sort(range(400000000))) AS n",
    "an aggregate": "SELECT length(list(i)) AS n FROM range(1000000000) t(i)",
    "a sort": "SELECT hash(i) || repeat('y', 40) AS n FROM range(30000000) t(i) ORDER BY 1",
    "a result": "SELECT repeat('x', 1000) AS n FROM range(10000000)",
}


@pytest.fixture
def pool() -> Iterator[DuckPool]:
    made = DuckPool()
    yield made
    made.close()


def ask(pool: DuckPool, text: str, budget: Budget) -> list[tuple[object, ...]]:
    with DuckRelations(budget) as relations:
        relations.add("t", pl.DataFrame({"x": [1]}).to_arrow(), [pl.DataFrame({"x": [1, 2]})])
        table = pool.run(text, relations, budget).table
    return [tuple(row.values()) for row in table.to_pylist()]


def children() -> set[int]:
    """The processes that all threads of this one have started."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(number) for number in (task / "children").read_text().split()}
    return found


@pytest.mark.parametrize("text", [*ENDLESS.values(), *LONG.values()], ids=[*ENDLESS, *LONG])
def test_what_takes_long_is_ended(pool: DuckPool, text: str) -> None:
    before, began = children(), time.monotonic()
    with pytest.raises(QueryTimeout, match=r"longer than 0\.5 s"):
        ask(pool, text, Budget(0.5, MEMORY))
    assert time.monotonic() - began < 0.5 + MOST_LATE
    assert children() == before  # the work has ended, and its memory is free
    assert ask(pool, "SELECT sum(x)::INT FROM t", Budget(60, MEMORY)) == [(3,)]


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_what_takes_much_memory_is_ended(pool: DuckPool, text: str) -> None:
    before = children()
    with pytest.raises(QueryTooLarge):
        ask(pool, text, Budget(120, MEMORY))
    for child in children() - before:  # if it is kept, it has given the memory back
        status = Path(f"/proc/{child}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        assert int(peak.split()[1]) << 10 < 250 << 20
    assert ask(pool, "SELECT sum(x)::INT FROM t", Budget(60, MEMORY)) == [(3,)]


def test_a_process_is_used_again(pool: DuckPool) -> None:
    before = children()
    assert ask(pool, "SELECT x FROM t ORDER BY x", Budget(60, MEMORY)) == [(1,), (2,)]
    (child,) = children() - before
    ask(pool, "SELECT setseed(0.5)", Budget(60, MEMORY))
    with pytest.raises(DuckError, match="nothing"):
        ask(pool, "SELECT nothing FROM t", Budget(60, MEMORY))
    assert children() - before == {child}
    pool.close()
    assert children() == before


def test_a_process_that_was_killed_is_replaced(pool: DuckPool) -> None:
    before = children()
    ask(pool, "SELECT 1 AS x", Budget(60, MEMORY))
    (child,) = children() - before
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert ask(pool, "SELECT 2 AS x", Budget(60, MEMORY)) == [(2,)]


def test_a_process_that_dies_within_a_query(pool: DuckPool) -> None:
    before, failed = children(), threading.Event()

    def run() -> None:
        with pytest.raises(QueryTooLarge, match=r"ended DuckDB's process \(SIGKILL\)"):
            ask(pool, LONG["rows without end"], Budget(60, MEMORY))
        failed.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not (made := children() - before):
        pass
    for child in made:
        os.kill(child, signal.SIGKILL)
    thread.join()
    assert failed.is_set()


def test_it_ends_with_its_parent() -> None:
    """Also while DuckDB works, and also if the parent is killed."""
    code = (
        "import threading, os, sys, time\n"
        "from viewkeep.access.duckdb.pool import POOL, DuckRelations\n"
        "from viewkeep.engine.budget import Budget\n"
        "budget = Budget(60)\n"
        "relations = DuckRelations(budget)\n"
        "POOL.run('SELECT 1', relations, budget)\n"
        "print(POOL._idle[0]._process.pid, flush=True)\n"
        "POOL.run('SELECT count(*) FROM range(1000000000000)', relations, budget)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        idle = _ticks(child)
        while _ticks(child) < idle + 10:
            pass  # until DuckDB is at work
        parent.kill()
    while _runs(child):
        pass


def _ticks(process: int) -> int:
    """The processor time that a process has used, in hundredths of a second."""
    fields = Path(f"/proc/{process}/stat").read_text().split(") ")[1].split()
    return int(fields[11]) + int(fields[12])


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def test_large_queries_take_turns(pool: DuckPool) -> None:
    """Of two that need all there is, the second waits; it is told so if that takes too long."""
    turns = Turns(MEMORY)
    with Budget(60, MEMORY, turns=turns).applied() as first:
        first.take_turn()
        second = Budget(0.1, MEMORY, turns=turns)
        with pytest.raises(Overloaded, match=r"128 MiB.*max_memory.*try again"):
            ask(pool, "SELECT 1 AS x", second)
        with Budget(60, MEMORY, turns=turns).applied() as small:
            small.hold(1 << 20, "a small query")  # which does not wait
    with Budget(60, MEMORY, turns=turns).applied() as third:
        assert ask(pool, "SELECT 1 AS x", third) == [(1,)]


def test_turns_come_in_order() -> None:
    turns, order = Turns(2), list[int]()
    turns.take(2, None)

    def wait(number: int, size: int) -> None:
        turns.take(size, None)
        order.append(number)
        turns.give(size)

    threads = [threading.Thread(target=wait, args=(n, 2 - n % 2)) for n in range(4)]
    for number, thread in enumerate(threads):
        thread.start()
        while len(turns._waiting) <= number:
            pass
    turns.give(2)
    for thread in threads:
        thread.join()
    assert order[0] == 0
    assert sorted(order) == [0, 1, 2, 3]


def test_what_is_read_counts(pool: DuckPool) -> None:
    budget = Budget(60, MEMORY)
    wide = pl.DataFrame({"x": ["x" * 1_000] * 50_000})
    frames = [wide] * 3
    with (
        DuckRelations(budget) as relations,
        pytest.raises(QueryTooLarge, match="reading wide for DuckDB"),
    ):
        relations.add("wide", wide.clear().to_arrow(), frames)

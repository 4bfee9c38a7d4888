"""Budgets of our own engine: a query asks for memory before it takes it, and ends in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from viewkeep.engine import batches, budget
from viewkeep.engine.batches import filter_batches, project_batches
from viewkeep.engine.budget import MIB, SMALL, Budget, Cancel, Turns
from viewkeep.errors import (
    Overloaded,
    QueryCancelled,
    QueryTimeout,
    QueryTooLarge,
    Timeout,
    Unsupported,
)
from viewkeep.expr import Call, Lit, Ref
from viewkeep.ops.evaluate import filter_rows, project
from viewkeep.ops.sizes import most_bytes
from viewkeep.types import BIGINT, BOOLEAN, STRING

if TYPE_CHECKING:
    from viewkeep import Database, Session

MEMORY = 64 * MIB
WIDE = 20_000  # rows of the table `wide`, with a text of 1,000 bytes each


@pytest.fixture
def wide(db: Database) -> Database:
    db.sql("CREATE TABLE wide (id BIGINT PRIMARY KEY, g BIGINT, s STRING)")
    db.put("wide", [{"id": n, "g": n % 10, "s": f"{n:01000}"} for n in range(WIDE)])
    return db


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.s, b.s AS t FROM wide a, wide b",
        "SELECT count(*) AS n FROM wide a, wide b WHERE a.s < b.s",
        "SELECT a.s, b.s AS t FROM wide a JOIN wide b ON a.g = b.g",
        "SELECT a.id, b.id AS other FROM wide a LEFT JOIN wide b ON a.g <> b.g",
        "SELECT repeat(s, 1000) AS s FROM wide",
        "SELECT max(repeat(s, 1000)) AS s FROM wide",
        "SELECT replace(s, '0', repeat('x', 1000)) AS s FROM wide",
        "SELECT concat(s, s, s, s, s, s, s, s, s, s) AS s FROM wide",
        "SELECT string_agg(concat(s, s, s), ',') AS s FROM wide",
        "SELECT g, array_agg(concat(s, s, s)) AS s FROM wide GROUP BY g",
        "SELECT DISTINCT concat(s, s, s, s) AS s FROM wide",
        "SELECT id FROM wide ORDER BY concat(s, s, s, s)",
    ],
)
def test_what_takes_much_memory_is_refused(wide: Database, text: str) -> None:
    before = _memory()
    Path("/proc/self/clear_refs").write_text("5")  # let VmHWM begin anew
    with pytest.raises(QueryTooLarge, match=r"\(max_query_memory\)|rows, and 20,000,000 are"):
        wide.sql(text, max_query_memory=MEMORY)
    assert _memory("VmHWM") - before < 6 * MEMORY  # far from what the query would have taken
    assert wide.sql("SELECT count(*) AS n FROM wide").one() == {"n": WIDE}


@pytest.mark.parametrize("before", ["", "CREATE VIEW v AS "])
def test_large_constants_are_not_made(wide: Database, before: str) -> None:
    """Constants are computed when a statement is planned, for views too."""
    text = "SELECT id, replace(repeat('a', 1000000), 'a', repeat('b', 1000000)) AS t FROM wide"
    with pytest.raises(Unsupported, match=r"replace of constants .* and 16,777,216 are the limit"):
        wide.sql(before + text)


def test_memory_is_counted_as_it_is_read(wide: Database) -> None:
    with pytest.raises(QueryTooLarge, match="reading rows needs"):
        wide.sql("SELECT * FROM wide", max_query_memory=10 * MIB)
    with pytest.raises(QueryTooLarge, match="reading rows needs"):
        wide.sql("DELETE FROM wide WHERE length(s) > 1", max_query_memory=10 * MIB)
    assert wide.aggregate("wide", "count(*)") == {"count(*)": WIDE}
    assert len(wide.sql("SELECT s FROM wide WHERE id IN (1, 2)", max_query_memory=MIB)) == 2
    assert len(wide.sql("SELECT id, length(s) AS n FROM wide", max_query_memory=MEMORY)) == WIDE
    assert len(wide.scan("wide")) == WIDE  # a read of rows has no budget of its own


@pytest.mark.parametrize(
    "text",
    [
        # 2,000,000 rows that are computed one by one; and 20 GB of text, a batch at a time.
        "SELECT sum(length(initcap(concat(a.id, ' ', b.id)))) AS n FROM wide a JOIN wide b "
        "ON a.g = b.g AND b.id < 1000",
        "SELECT id FROM wide WHERE repeat(s, 1000) < s",
    ],
)
def test_a_query_ends_at_its_deadline(wide: Database, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(QueryTimeout, match=r"longer than 0\.5 s.*\(max_seconds\)"):
        wide.sql(text, max_seconds=0.5)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("before", ["", "EXPLAIN ", "CREATE VIEW v AS "])
def test_planning_ends_at_the_deadline(wide: Database, before: str) -> None:
    """The order of so many joins of a table with itself takes seconds."""
    joins = " ".join(f"JOIN wide w{n} ON w{n}.id = w{n - 1}.id" for n in range(1, 60))
    began = time.process_time()
    with pytest.raises(QueryTimeout, match=r"longer than 0\.2 s.*\(max_seconds\)"):
        wide.sql(f"{before}SELECT w0.id FROM wide w0 {joins}", max_seconds=0.2)
    assert time.process_time() - began < 2
    assert wide.sql("SELECT id FROM wide WHERE id = 7", max_seconds=60).one() == {"id": 7}


def runner(db: Database | Session, way: str) -> Callable[..., object]:
    """One of the calls that run SQL, with the text and its limits."""
    return {
        "sql": db.sql,
        "execute": lambda text, **limits: list(db.execute(text, **limits)),
        "prepare": lambda text, **limits: db.prepare(text).run(**limits),
    }[way]


WAYS = ("sql", "execute", "prepare")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("in_session", [False, True], ids=["database", "session"])
def test_every_call_that_runs_sql_takes_limits(wide: Database, way: str, in_session: bool) -> None:
    run = runner(wide.session() if in_session else wide, way)
    with pytest.raises(QueryTooLarge, match=r"reading rows needs.*\(max_query_memory\)"):
        run("SELECT * FROM wide", max_query_memory=10 * MIB)
    with pytest.raises(QueryTimeout, match=r"longer than 0 s.*\(max_seconds\)"):
        run("SELECT * FROM wide", max_seconds=0)
    assert run("SELECT id FROM wide WHERE id < 3", max_seconds=60, max_query_memory=MEMORY)
    assert budget.current() is None
    assert run("SELECT * FROM wide"), "the limits were those of the calls before"


def test_limits_are_for_each_of_several_results(wide: Database) -> None:
    text = "SELECT id FROM wide WHERE id = 1; SELECT * FROM wide; SELECT 3 AS n"
    results = wide.execute(text, max_query_memory=10 * MIB)
    assert next(results).one() == {"id": 1}
    assert budget.current() is None, "the caller's own work has none"
    with pytest.raises(QueryTooLarge):
        next(results)


@pytest.mark.parametrize("way", WAYS)
def test_waiting_for_an_epoch_takes_of_the_seconds(
    wide: Database, catch_up: Callable[[], object], way: str
) -> None:
    wide.sql("CREATE VIEW v AS SELECT g, count(*) AS n FROM wide GROUP BY g")
    catch_up()
    session = wide.session(timeout=600)
    session.put("wide", {"id": 1, "g": 0, "s": ""})
    run = runner(session, way)
    with pytest.raises(Timeout, match=r"after 0.* s what the query reads lacks 1 operation"):
        run("SELECT * FROM v", max_seconds=0.01)


def test_what_nobody_wants_any_more_ends(wide: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, hold = Cancel(), Budget.hold

    def holding(self: Budget, size: int, what: str) -> None:
        hold(self, size, what)
        cancel.set()  # in the middle of the query

    monkeypatch.setattr(Budget, "hold", holding)
    with Budget(cancel=cancel).applied(), pytest.raises(QueryCancelled, match="has gone"):
        wide.sql("SELECT count(*) AS n FROM wide a JOIN wide b ON a.g = b.g")


def test_a_query_that_waits_for_its_turn_can_be_cancelled() -> None:
    turns, cancel, waits = Turns(MEMORY), Cancel(), threading.Event()
    turns.take(MEMORY, None)
    ended: list[BaseException] = []

    class Telling(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waits.set()
            return super().wait(timeout)

    turns._changed = Telling()

    def query() -> None:
        try:
            turns.take(MEMORY, None, cancel)
        except QueryCancelled as error:
            ended.append(error)

    thread = threading.Thread(target=query)
    thread.start()
    assert waits.wait(60)
    cancel.set()
    thread.join(60)
    assert len(ended) == 1
    turns.give(MEMORY)
    turns.take(MEMORY, time.monotonic() + 10)  # nobody stands in the way


def test_a_small_query_does_not_wait(wide: Database) -> None:
    turns = Turns(MEMORY)
    turns.take(MEMORY, None)
    with Budget(0.2, MEMORY, turns=turns).applied():
        assert len(wide.sql("SELECT id FROM wide WHERE id < 1000 AND id IN (1, 2)")) == 2
        with pytest.raises(Overloaded, match="max_memory"):
            wide.sql("SELECT id FROM wide WHERE s = ''")
    turns.give(MEMORY)
    with Budget(60, MEMORY, turns=turns).applied() as budget:
        assert len(wide.sql("SELECT id FROM wide WHERE s = ''")) == 0
        assert budget.memory > SMALL
    turns.take(MEMORY, time.monotonic() + 10)  # all was given back


TEXTS = pl.DataFrame(
    {"s": [None, "", "a", "äöü", "x" * 50, "longer than others"] * 20, "n": range(120)},
    schema={"s": pl.String, "n": pl.Int64},
)
S, N = Ref("s", STRING), Ref("n", BIGINT)
GROWING = [
    Call("repeat", (S, N), STRING),
    Call("repeat", (Call("concat", (S, S), STRING), Lit(3, BIGINT)), STRING),
    Call("lpad", (S, N, Lit("öx", STRING)), STRING),
    Call("rpad", (S, Lit(30, BIGINT), Lit(" ", STRING)), STRING),
    Call("replace", (S, Lit("x", STRING), S), STRING),
    Call("replace", (Call("repeat", (S, N), STRING), Lit("a", STRING), Lit("äää", STRING)), STRING),
]


@pytest.mark.parametrize("expr", GROWING, ids=str)
def test_texts_are_no_larger_than_was_said(expr: Call) -> None:
    said = TEXTS.select(most_bytes(expr)).to_series()
    made = project(TEXTS, [("made", expr)]).get_column("made").str.len_bytes().fill_null(0)
    assert (made <= said).all()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(batches, "BATCH_BYTES", 500)
    monkeypatch.setattr(batches, "BATCH_ROWS", 7)
    return None


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 120])
@pytest.mark.parametrize("expr", [*GROWING, S, Call("concat", (S, S), STRING)], ids=str)
def test_batches_are_as_the_whole(expr: Ref | Call, rows: int) -> None:
    frame, outputs = TEXTS.head(rows), [("made", expr)]
    made = project_batches(frame, outputs, ["n"], Budget())
    assert made.equals(project(frame, outputs, ["n"]))
    predicate = Call("gt", (expr, S), BOOLEAN)
    assert filter_batches(frame, predicate, Budget()).equals(filter_rows(frame, predicate))


def _memory(name: str = "VmRSS") -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

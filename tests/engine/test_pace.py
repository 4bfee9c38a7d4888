"""The size of epochs: grows while epochs are short, shrinks when they are long, stays in bounds."""

from __future__ import annotations

from pathlib import Path

import viewkeep
from viewkeep.engine.epochs import Limits, OpenEpoch, Published
from viewkeep.engine.pace import ALONE_LOADED, ALONE_ROWS, LEAST_OPERATIONS, MOST, Pace, Work
from viewkeep.engine.report import Report
from viewkeep.plan.program import Program
from viewkeep.stores.contract import START, Cut

EMPTY = Program((), {})


def epoch(number: int, seconds: float, more: bool = True, loading: bool = False) -> Published:
    left = {"feed": {"0": "00"}} if loading else {}
    return Published(number, START, 1, loading=left, seconds=seconds, more=more)


def test_grows_to_the_limits_while_epochs_are_short() -> None:
    pace = Pace(share=0.1)
    for number in range(10):
        pace.learn(epoch(number, 0.3))
    assert pace.limits == MOST


def test_an_epoch_that_was_not_full_teaches_nothing() -> None:
    pace = Pace(share=0.1)
    before = pace.limits
    pace.learn(epoch(1, 0.2, more=False))
    assert pace.limits == before


def test_the_same_epoch_counts_once() -> None:
    pace = Pace(share=0.01)
    published = epoch(1, 0.3)
    pace.learn(published)
    before = pace.limits
    pace.learn(published)
    assert pace.limits == before


def test_shrinks_in_proportion_and_not_below_the_least() -> None:
    pace = Pace()
    pace.learn(epoch(1, 12.0))
    assert pace.limits.operations == MOST.operations // 4
    for number in range(2, 20):
        pace.learn(epoch(number, 100.0))
    assert pace.limits.operations == LEAST_OPERATIONS


def test_loading_grows_too_and_small_limits_are_kept() -> None:
    pace = Pace(Limits(operations=8, size=100, chunk=4), share=0.5)
    for number in range(10):
        assert pace.limits.operations <= 8
        assert pace.limits.chunk <= 4
        pace.learn(epoch(number, 0.1, more=False, loading=True))
    assert pace.limits == Limits(operations=8, size=100, chunk=4)


def test_epochs_that_load_a_view_are_shorter() -> None:
    pace = Pace()
    pace.learn(epoch(1, 4.0, loading=True))
    assert pace.limits.chunk == MOST.chunk // 4
    pace.learn(epoch(2, 4.0))
    assert pace.limits.chunk == MOST.chunk // 4


def test_a_full_epoch_tells_of_a_backlog() -> None:
    pace = Pace()
    assert not pace.was_full
    pace.learn(epoch(1, 0.3))
    assert pace.was_full
    pace.learn(epoch(2, 0.3, more=False))
    assert not pace.was_full


def test_epochs_are_some_time_apart_unless_there_is_a_backlog() -> None:
    pace = Pace(every=2.0)
    assert pace.is_due(0.0)
    pace.begin(0.0)
    assert not pace.is_due(1.9)
    assert pace.is_due(2.0)
    pace.learn(epoch(1, 0.3))
    assert pace.is_due(0.1)


def opened(operations: int, loaded: int = 0) -> OpenEpoch:
    left = {"feed": {"0": "00"}} if loaded else {}
    return OpenEpoch(1, START, Cut(operations=operations), 1, 0, left, loaded, 0)


def test_an_epoch_of_little_work_runs_in_one_task() -> None:
    work = Work()
    assert work.is_little(opened(ALONE_ROWS), EMPTY)
    assert not work.is_little(opened(ALONE_ROWS + 1), EMPTY)
    assert work.is_little(opened(1, loaded=ALONE_LOADED), EMPTY)
    assert not work.is_little(opened(1, loaded=ALONE_LOADED + 1), EMPTY)


def test_the_first_guess_is_a_row_for_each_view_of_a_table(tmp_path: Path) -> None:
    with viewkeep.make(tmp_path / "test.vk") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
        for number in range(4):
            db.sql(f"CREATE VIEW v{number} AS SELECT id FROM t WHERE a > {number}")
        program = db.catalog.current().program
    work = Work()
    assert work.is_little(opened(ALONE_ROWS // 4), program)
    assert not work.is_little(opened(ALONE_ROWS // 4 + 1), program)
    work.learn(opened(10), [Report(0, rows_in=10)])
    assert work.is_little(opened(ALONE_ROWS), program)


def test_work_is_learnt_from_what_operations_have_cost() -> None:
    work = Work()
    work.learn(opened(10), [Report(0, rows_in=10), Report(1, rows_in=500, rows_written=490)])
    assert work.is_little(opened(ALONE_ROWS // 100), EMPTY)
    assert not work.is_little(opened(ALONE_ROWS // 50), EMPTY)
    for _ in range(10):
        work.learn(opened(10), [Report(0, rows_in=10)])
    assert work.is_little(opened(ALONE_ROWS), EMPTY)

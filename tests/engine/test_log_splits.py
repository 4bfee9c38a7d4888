"""Shares of level 0: every operation once, about equal, the same bytes wherever logs are cut."""

from __future__ import annotations

from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.delta import WEIGHT
from viewkeep.engine import log_splits
from viewkeep.engine.epochs import Epochs, Limits, OpenEpoch
from viewkeep.engine.exchange import REPORT
from viewkeep.engine.inbox import Inbox
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.loading import Loading
from viewkeep.engine.local import catch_up, run_epoch
from viewkeep.engine.log_splits import even_splits, is_whole, levels_to_run, whole_logs
from viewkeep.engine.operators import executors
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import reports_of
from viewkeep.engine.spool import Message
from viewkeep.errors import PipelineError
from viewkeep.ops.aggregates.ordered import TIMES
from viewkeep.plan.program import Program
from viewkeep.stores import create_store
from viewkeep.stores.contract import Capabilities, Chunk, LogSplit, Store
from viewkeep.stores.lmdb.cuts import cut_at
from viewkeep.stores.lmdb.parts import LmdbLog

from .history import History

KEYED = ["SELECT * FROM items", "SELECT id, part, x + 1 AS y FROM items WHERE x > 3"]
SENT = [
    "SELECT g, COUNT(*) AS n, SUM(x) AS s, MIN(x) AS lo, MAX(d) AS hi FROM items GROUP BY g",
    "SELECT g, SUM(d) AS s, AVG(d) AS a FROM items GROUP BY g",
    "SELECT a.id, b.x FROM items a JOIN items b ON a.id = b.part",
    "SELECT g, x FROM items ORDER BY x DESC LIMIT 3",
]

NO_VIEWS = Program((), {})


@pytest.fixture(autouse=True)
def _small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_splits, "_LEAST", 1)


def store_of(epoch: OpenEpoch) -> Store:
    """As much of a store as has to do with splits."""
    nodes = [None] * len(epoch.cut.positions)
    log = LmdbLog(cast(Any, SimpleNamespace(database=SimpleNamespace(nodes=nodes))))
    return cast(Store, SimpleNamespace(log=log, capabilities=Capabilities()))


def opened(counts: list[int], tasks: int, loading: Loading | None = None) -> OpenEpoch:
    starts = tuple(10 * node for node in range(len(counts)))
    stops = tuple(start + count for start, count in zip(starts, counts, strict=True))
    return OpenEpoch(
        2, cut_at(1, starts), cut_at(2, stops), 1, 1, loading or {}, 100, 0, tasks=tasks
    )


def sizes(shares: list[list[LogSplit]]) -> list[int]:
    return [sum(split.operations for split in share) for share in shares]


def even(epoch: OpenEpoch, program: Program = NO_VIEWS) -> list[list[LogSplit]]:
    return [list(share) for share in even_splits(store_of(epoch), program, epoch)]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=6), st.integers(1, 9))
def test_every_operation_is_in_one_share(counts: list[int], tasks: int) -> None:
    epoch = opened(counts, tasks)
    shares = even(epoch)
    found: dict[str, list[LogSplit]] = {}
    for split in chain.from_iterable(shares):
        found.setdefault(split.log, []).append(split)
    for log in whole_logs(store_of(epoch), epoch):
        parts = sorted(found[log.log])
        assert (parts[0].start, parts[-1].stop) == (log.start, log.stop)
        assert all(one.stop == other.start for one, other in pairwise(parts))
    assert sum(sizes(shares)) == epoch.operations
    if tasks > 1:
        assert len(shares) <= max(tasks, len(counts))
        # The last piece comes to a task that has no more than the others on average.
        assert max(sizes(shares)) <= (2 + 1 / 8) * epoch.operations / tasks + 2


@pytest.mark.parametrize(
    ("counts", "tasks", "expected"),
    [
        ([5_000, 505_000], 2, [255_000, 255_000]),  # one hot row
        ([700, 300], 2, [500, 500]),
        ([550, 450], 2, [550, 450]),  # as even as it needs to be: no log is cut
        ([450, 550], 2, [550, 450]),
        ([800], 4, [200, 200, 200, 200]),
        ([100, 100, 100, 100], 2, [200, 200]),
        ([100, 100, 100, 100], 3, [200, 100, 100]),  # none is larger than a share
        ([300, 100, 100, 100], 4, [150, 150, 200, 100]),
        ([0, 0, 900], 3, [300, 300, 300]),
        ([1, 0], 2, [1, 0]),
        ([1_000], 1, [1_000]),
    ],
)
def test_shares(counts: list[int], tasks: int, expected: list[int]) -> None:
    assert sizes(even(opened(counts, tasks))) == expected


def test_few_operations_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_splits, "_LEAST", 100)
    for counts, tasks in (([0, 199], 2), ([0, 0], 4), ([10, 30], 64)):
        epoch = opened(counts, tasks)
        assert even(epoch) == [[log] for log in whole_logs(store_of(epoch), epoch)]
    assert sizes(even(opened([0, 300], 64))) == [100, 100, 100]


def test_logs_stay_whole_where_rows_are_loaded() -> None:
    epoch = opened([5, 900], 2, {"feed": {"0": "", "1": ""}})
    assert even(epoch) == [[log] for log in whole_logs(store_of(epoch), epoch)]


def test_the_one_log_of_views_that_are_written_at_level_0_stays_whole(history: History) -> None:
    history.create_view(f"CREATE VIEW v AS {KEYED[0]}")
    program = history.catalog.current().program
    assert sizes(even(opened([900], 4), program)) == [900]
    assert sizes(even(opened([400, 500], 4), program)) == [500, 400]
    assert sizes(even(opened([100, 700], 4), program)) == [400, 400]


@pytest.fixture(params=[2, 4])
def history(tmp_path: Path, request: pytest.FixtureRequest) -> History:
    """One row that is put, changed and deleted over and over, and some others."""
    url = str(tmp_path / "db")
    made = History(create_store(url, shards=request.param, durability="relaxed"))
    made.put([{"id": i, "part": i % 3, "g": "a", "x": i, "d": 0.1 * i} for i in range(6)])
    return made


def hot_row(history: History) -> None:
    for number in range(30):
        key = {"id": 1, "part": 1}
        if number % 7 == 5:
            history.delete([(1, 1)])
        else:
            history.put([{**key, "g": "ab"[number % 2], "x": number, "d": number / 3}])
        if number % 10 == 0:
            history.put([{"id": number, "part": 0, "g": "b", "x": -number, "d": 1e6}])


@pytest.mark.parametrize("selects", [KEYED, SENT, KEYED + SENT])
def test_logs_cut_anywhere_give_the_same_bytes(history: History, selects: list[str]) -> None:
    store = history.store
    for i, text in enumerate(selects):
        history.create_view(f"CREATE VIEW v{i} AS {text}")
    catch_up(store)
    hot_row(history)
    epochs = Epochs(store)
    term = epochs.acquire().term
    epoch = epochs.open_next(term, Limits())
    assert epoch is not None
    assert not epoch.loading
    program = load_plan(store, epoch.plan).program
    hot = max(whole_logs(store, epoch), key=lambda log: log.operations)
    others = [log for log in whole_logs(store, epoch) if log != hot]
    written = []
    for at in range(1, hot.operations):
        cut = [*store.log.divide(hot, [at, hot.operations - at]), *others]
        run(store, epoch, program, cut[:: 1 if at % 2 else -1])
        written.append(state_of(store, program, epoch.epoch))
    run(store, epoch, program, store.log.divide(hot, [1] * hot.operations) + others)
    written.append(state_of(store, program, epoch.epoch))
    reports = run_epoch(store, epoch)
    written.append(state_of(store, program, epoch.epoch))
    assert all(state == written[-1] for state in written)
    epochs.publish(term, epoch, reports)
    history.check()


@pytest.mark.parametrize("selects", [KEYED, SENT, KEYED + SENT])
def test_many_tasks_of_a_hot_row(history: History, selects: list[str]) -> None:
    """What a cut log writes is all there is: no whole run has written the epoch before."""
    for i, text in enumerate(selects):
        history.create_view(f"CREATE VIEW v{i} AS {text}")
    catch_up(history.store)
    epochs = Epochs(history.store)
    term = epochs.acquire().term
    for tasks in (2, 3, 8):
        hot_row(history)
        epoch = epochs.open_next(term, Limits(tasks=tasks))
        assert epoch is not None
        program = load_plan(history.store, epoch.plan).program
        shares = even(epoch, program)
        assert len(shares) == (2 if program.at_level(0) else tasks)
        assert not all(is_whole(epoch, s) for s in chain.from_iterable(shares))
        epochs.publish(term, epoch, run_epoch(history.store, epoch, tasks))
        history.check()


def test_whoever_runs_an_epoch_rounds_as_others_did(history: History) -> None:
    """Sums of DOUBLEs, and of their squares, are rounded with each part that is added up."""
    store = history.store
    history.create_view(
        "CREATE VIEW v AS SELECT g, SUM(d) AS s, STDDEV(d) AS v FROM items GROUP BY g"
    )
    history.create_view("CREATE VIEW w AS SELECT COUNT(*) AS n, SUM(s) AS s, STDDEV(v) AS v FROM v")
    catch_up(store)
    for d in (1e40, 1.0, 1e-20, 0.0):
        history.put([{"id": 1, "part": 1, "g": "w", "d": d}])
    for number in range(60):
        row = {"id": number, "part": 1, "g": "abcdefg"[number % 7], "d": number / 7}
        history.put([row, {"id": 1, "part": 1, "g": "a", "d": number / 3}])
    epochs = Epochs(store)
    term = epochs.acquire().term
    written = []
    for tasks in (3, 1, 2, 4):
        epoch = epochs.open_next(term, Limits(tasks=tasks))
        assert epoch is not None
        program = load_plan(store, epoch.plan).program
        assert len(even_splits(store, program, epoch)) == 3  # as when it was opened
        run_epoch(store, epoch, tasks)
        written.append(state_of(store, program, epoch.epoch))
    assert all(state == written[0] for state in written)


def test_a_level_that_lacks_is_an_error(history: History) -> None:
    history.create_view(f"CREATE VIEW v AS {SENT[0]}")
    epochs = Epochs(history.store)
    epoch = epochs.open_next(epochs.acquire().term, Limits())
    assert epoch is not None
    sent = [
        m
        for log in whole_logs(history.store, epoch)
        for m in run_sources(history.store, epoch, log)
    ]
    with pytest.raises(PipelineError, match="a level that did not run"):
        reports_of(sent)
    assert len(reports_of(m for m in sent if m[0] == REPORT)) == 2


def run(store: Store, epoch: OpenEpoch, program: Program, splits: list[LogSplit]) -> None:
    messages: list[Message] = [m for s in splits for m in run_sources(store, epoch, s)]
    for level in range(1, levels_to_run(store, program, epoch, [splits])):
        messages = list(run_level(store, epoch, level, range(store.state.shards), messages))


def state_of(store: Store, program: Program, epoch: int) -> list[Chunk]:
    return [
        store.state.scan(shard, table.number, limit=10**6, at=epoch)
        for operator in program.operators
        for table in operator.tables
        for shard in range(store.state.shards)
    ]


def test_values_that_came_and_went_are_not_sent(history: History) -> None:
    epoch = opened_after_updates(history, "SELECT g, MIN(x) AS lo FROM items GROUP BY g")
    values = pl.concat(sent_by(history, epoch, whole_logs(history.store, epoch), "values0"))
    assert sorted(values[TIMES].to_list()) == [-1, 1]  # the first value and the last


def test_of_a_hot_row_few_changes_are_sent(history: History) -> None:
    epoch = opened_after_updates(history, KEYED[0])
    hot = max(whole_logs(history.store, epoch), key=lambda log: log.operations)
    cut = history.store.log.divide(hot, [20, hot.operations - 20])
    sent = sent_by(history, epoch, cut, "rows")
    assert [sorted(rows[WEIGHT].to_list()) for rows in sent] == [[-1, 1], [-1, 1]]


def opened_after_updates(history: History, text: str) -> OpenEpoch:
    """The epoch that brings fifty updates of one row to a view."""
    history.create_view(f"CREATE VIEW v AS {text}")
    catch_up(history.store)
    for number in range(50):
        history.put([{"id": 1, "part": 1, "g": "a", "x": 100 + number}])
    epochs = Epochs(history.store)
    epoch = epochs.open_next(epochs.acquire().term, Limits())
    assert epoch is not None
    return epoch


def sent_by(
    history: History, epoch: OpenEpoch, splits: list[LogSplit], name: str
) -> list[pl.DataFrame]:
    """The frames of one name that come to the only operator."""
    program = load_plan(history.store, epoch.plan).program
    (operator,) = program.operators
    sent = [m for s in splits for m in run_sources(history.store, epoch, s)]
    frames = []
    for shard, blob in sent:
        if shard != REPORT:
            inbox = Inbox({operator.id})
            assert not list(inbox.receive(shard, [blob]))
            (part,) = inbox.parts(executors(program)[operator.id])
            frames.append(part[name])
    return frames

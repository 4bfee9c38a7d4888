"""The two lanes: where the rows lane gives up, and what it shows of itself.

That both write the same bytes is compared at every epoch of the random histories (`lanes`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from random import Random

import pytest

import viewkeep
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance, catch_up
from viewkeep.engine.operators import EXECUTORS
from viewkeep.engine.operators.join import executor as joins
from viewkeep.engine.operators.sides import rows as sides
from viewkeep.engine.programs import load_plan
from viewkeep.engine.rows import epoch as rows_lane
from viewkeep.engine.rows.epoch import run_rows
from viewkeep.errors import OperatorFailed
from viewkeep.plan import nodes
from viewkeep.stores import create_store

from .history import FOLDER, History
from .lanes import in_both_lanes

A = "CREATE TABLE a (id BIGINT PRIMARY KEY, k INT, s STRING, x DOUBLE)"
B = "CREATE TABLE b (id BIGINT PRIMARY KEY, k INT, s STRING)"
VIEWS = {
    "inner_join": "SELECT a.id, b.id AS other, a.s FROM a JOIN b ON a.k = b.k",
    "left_join": "SELECT a.id, b.s FROM a LEFT JOIN b ON a.k = b.k",
    "anti_join": "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "top_rows": "SELECT k, id FROM a QUALIFY row_number() OVER (PARTITION BY k ORDER BY x, id) < 3",
    "sums": "SELECT k, SUM(x) AS s, VARIANCE(x) AS v, COUNT(DISTINCT s) AS n FROM a GROUP BY k",
    "extremes": "SELECT k, MIN(s) AS low, MAX(x) AS high FROM a GROUP BY k",
    "windows": "SELECT id, LAG(x) OVER (PARTITION BY k ORDER BY id) AS before FROM a",
    "percentiles": "SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS mid FROM a "
    "GROUP BY k",
    "texts": "SELECT k, string_agg(s, ',') WITHIN GROUP (ORDER BY s) AS all_s FROM a GROUP BY k",
    "sines": "SELECT id, sin(x) AS y FROM a WHERE sin(x) > 0",
    "unions": "SELECT s FROM a UNION SELECT s FROM b",
    "totals": "SELECT COUNT(*) AS n, SUM(x) AS s FROM a",
}


@pytest.fixture
def history() -> Iterator[History]:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        try:
            made = History(store, (A, B))
            for name, text in VIEWS.items():
                made.create_view(f"CREATE VIEW {name} AS {text}")
            catch_up(store)
            yield made
        finally:
            store.close()


def play(history: History, check: Callable[[int], None] = lambda _: None) -> None:
    """A history in both lanes; `check` is told the number of each epoch that has run."""
    random, store = Random(1), history.store
    epochs = Epochs(store)
    term = epochs.acquire().term
    for number in range(40):
        for name in ("a", "b"):
            rows = [
                {
                    "id": random.randrange(12),
                    "k": random.choice([None, 1, 2, 3]),
                    "s": random.choice([None, "", "x", "y" * 300]),
                    **({"x": random.choice([None, 0.1, -0.0, 1e6, -5.0])} if name == "a" else {}),
                }
                for _ in range(3)
            ]
            history.put(rows, name)
            history.delete([(random.randrange(12),)], name)
        epoch = epochs.open_next(term, Limits())
        assert epoch is not None
        epochs.publish(term, epoch, in_both_lanes(store, epoch, 2, random))
        history.check()
        check(number)


def test_lanes_agree_where_one_lacks_a_row_form(history: History) -> None:
    """Windows, percentiles, texts put together and sines take the columns lane for their step."""
    play(history)


LOADED = {
    **{f"{name}_again": f"SELECT * FROM ({text}) AS again" for name, text in VIEWS.items()},
    "by_k": "SELECT k, id, x FROM a ORDER BY k",
    "of_views": "SELECT s, COUNT(*) AS n, SUM(x) AS x FROM a WHERE x > 0 GROUP BY s",
    "of_joins": "SELECT a.s, COUNT(*) AS n, SUM(a.x) AS x FROM a JOIN b ON a.k = b.k GROUP BY a.s",
    "of_left_joins": "SELECT b.s, MAX(a.x) AS x FROM a LEFT JOIN b ON a.k = b.k GROUP BY b.s",
    "of_top_rows": "SELECT n.k, a.s FROM (SELECT k, MIN(id) AS id FROM a GROUP BY k) AS n "
    "JOIN a ON n.id = a.id",
    "of_constants": "SELECT a.id, v.y FROM a JOIN (VALUES (1, 'x'), (2, 'y')) AS v(k, y) "
    "ON a.k = v.k",
}


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_views_are_loaded_in_both_lanes(history: History, chunk: int) -> None:
    """From tables and from other views, while rows change; and an epoch may load nothing."""
    random, store = Random(chunk), history.store
    epochs = Epochs(store)

    def change(count: int) -> None:
        for name in ("a", "b"):
            rows = [
                {
                    "id": random.randrange(40),
                    "k": random.choice([None, 1, 2, 3]),
                    "s": random.choice([None, "", "x", "y" * 300]),
                    **({"x": random.choice([None, 0.1, -0.0, 1e6, -5.0])} if name == "a" else {}),
                }
                for _ in range(count)
            ]
            history.put(rows, name)
            history.delete([(random.randrange(40),)], name)

    change(60)
    catch_up(store)
    for name, text in LOADED.items():
        history.create_view(f"CREATE VIEW {name} AS {text}")
    lease = epochs.acquire()
    loaded = nothing = 0
    for number in range(1_000):
        if number % 3:
            change(1)
        limits = Limits(chunk=chunk, beside=None if number % 4 else 0)
        epoch = epochs.open_next(lease.term, limits)
        if epoch is None:
            break
        published = epochs.publish(lease.term, epoch, in_both_lanes(store, epoch, 2, random))
        loaded += published.rows_loaded
        nothing += bool(epoch.loading) and not published.rows_loaded
        if not published.loading and number % 3 == 0:
            break
    epochs.release(lease)
    assert loaded > 100
    assert nothing or chunk == 50
    assert all(epochs.ready(name) for name in LOADED)
    catch_up(store)
    history.check()


def test_an_epoch_that_loads_a_few_rows_takes_the_rows_lane(history: History) -> None:
    store, epochs = history.store, Epochs(history.store)
    history.put([{"id": n, "k": 1, "s": "x", "x": 0.5} for n in range(100)], "a")
    catch_up(store)
    history.create_view("CREATE VIEW again AS SELECT s, COUNT(*) AS n FROM a GROUP BY s")
    term = epochs.acquire().term
    epoch = epochs.open_next(term, Limits(chunk=20))
    assert epoch is not None
    reports = run_rows(store, epoch, load_plan(store, epoch.plan).program)
    assert reports is not None
    assert 0 < epochs.publish(term, epoch, reports).rows_loaded <= epoch.rows_to_load
    epoch = epochs.open_next(term, Limits(chunk=rows_lane.FEW + 1))
    assert epoch is not None
    assert run_rows(store, epoch, load_plan(store, epoch.plan).program) is None


def test_an_epoch_that_grows_too_large_changes_lanes(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "MOST_ROWS", 4)
    monkeypatch.setattr(joins, "MOST_ROWS", 4)
    taken: list[bool] = []

    def counted(*given: object) -> object:
        reports = run_rows(*given)  # type: ignore[arg-type]
        taken.append(reports is not None)
        return reports

    monkeypatch.setattr("viewkeep.engine.local.run_rows", counted)
    play(history)
    assert True in taken
    assert False in taken


def test_few_operations_of_large_rows_take_the_columns_lane(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_lane, "_MOST_BYTES", 1_000)
    history.put([{"id": 1, "k": 1, "s": "y" * 2_000, "x": 0.5}], "a")
    epochs = Epochs(history.store)
    term = epochs.acquire().term
    epoch = epochs.open_next(term, Limits())
    assert epoch is not None
    assert run_rows(history.store, epoch, load_plan(history.store, epoch.plan).program) is None
    epochs.publish(term, epoch, in_both_lanes(history.store, epoch, 1, Random(1)))
    history.check()


def test_a_window_that_moves_many_rows_takes_the_columns_lane(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_lane, "TOGETHER", 20)
    history.put([{"id": n, "k": 1, "s": "x", "x": 0.5} for n in range(5, 40)], "a")
    catch_up(history.store)
    history.create_view(
        "CREATE VIEW numbered AS SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS n "
        "FROM a"
    )
    catch_up(history.store)
    history.put([{"id": 1, "k": 1, "s": "x", "x": 0.5}], "a")
    catch_up(history.store)
    history.check()


def test_operators_change_lanes_by_themselves(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator with more input than the others takes the columns lane within a rows epoch."""
    monkeypatch.setattr(rows_lane, "FEW", 20)
    play(history)


def test_sums_beyond_64_bits_wrap_in_both_lanes(history: History) -> None:
    """Also where the rows lane has added them up and the columns lane takes over."""
    long = "y" * 700
    history.create_view(
        "CREATE VIEW longest AS SELECT k, MAX(s) AS s, SUM(id) AS n FROM a GROUP BY k"
    )
    catch_up(history.store)
    random, epochs = Random(1), Epochs(history.store)
    term = epochs.acquire().term
    for s in (long, "short"):
        history.put([{"id": (1 << 62) + n, "k": 1, "s": s, "x": 0.5} for n in range(3)], "a")
        epoch = epochs.open_next(term, Limits())
        assert epoch is not None
        epochs.publish(term, epoch, in_both_lanes(history.store, epoch, 1, random))


def test_the_rows_lane_blames_an_operator(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> object:
        raise ValueError("no such row")

    monkeypatch.setattr("viewkeep.engine.operators.top_k.TopKExecutor.run_rows", broken)
    history.put([{"id": 1, "k": 1, "s": "x", "x": 0.5}], "a")
    term = Epochs(history.store).acquire().term
    with pytest.raises(OperatorFailed, match=r"TOP-K.*which top_rows reads: ValueError: no such"):
        advance(history.store, term)


def test_every_kind_of_operator_has_an_executor() -> None:
    kinds = {kind for kind in vars(nodes).values() if isinstance(kind, type) and is_dataclass(kind)}
    assert {*EXECUTORS} == {kind for kind in kinds if issubclass(kind, nodes.OperatorNode)}


def test_the_code_of_views_can_be_read(tmp_path: Path) -> None:
    with viewkeep.make(tmp_path / "test.vk") as db:
        db.sql(f"{A}; {B}")
        for name, text in VIEWS.items():
            db.sql(f"CREATE VIEW {name} AS {text}")
        code = db.explain("inner_join", code=True)
        assert "# input from table a" in code
        assert "        c_k = values[1]\n" in code
        assert "# takes the columns lane" in db.explain("sines", code=True)
        assert "it has no row form" in db.explain("windows", code=True)
        assert "group[2] += weight" in db.explain("SELECT COUNT(x) FROM a GROUP BY k", code=True)
        for name in VIEWS:
            compile(db.explain(name, code=True), name, "exec")

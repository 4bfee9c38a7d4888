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

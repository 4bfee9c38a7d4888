"""Every view type, at every published epoch of random histories, equals DuckDB's recomputation."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from viewkeep.engine import log_splits
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.log_splits import whole_logs
from viewkeep.engine.programs import load_plan
from viewkeep.stores import create_store

from .history import FOLDER, History, keys, rows
from .lanes import in_both_lanes

VIEWS = [
    "SELECT * FROM items",
    "SELECT x, g FROM items WHERE x > 0 AND g IS NOT NULL",
    "SELECT id, part, x * 2 + h AS y, coalesce(g, 'none') AS up FROM items WHERE NOT b OR x < 2",
    "SELECT g, COUNT(*) AS n FROM items GROUP BY g",
    "SELECT g, h, COUNT(*) AS n, COUNT(x) AS nx, SUM(x) AS sx, AVG(x) AS ax FROM items "
    "GROUP BY g, h",
    "SELECT h, SUM(m) AS sm, AVG(m) AS am, MIN(m) AS lo, MAX(m) AS hi FROM items GROUP BY h",
    "SELECT h, SUM(d) AS sd, AVG(d) AS ad, MIN(d) AS lo, MAX(d) AS hi FROM items GROUP BY h",
    "SELECT b, MIN(g) AS g0, MAX(g) AS g1, COUNT(DISTINCT g) AS gs FROM items GROUP BY b",
    "SELECT MIN(day) AS d0, MAX(day) AS d1, MIN(ts) AS t0, MAX(ts) AS t1 FROM items",
    "SELECT COUNT(*) AS n, SUM(x) AS s, COUNT(DISTINCT x) AS dx FROM items",
    "SELECT h, COUNT(*) FILTER (WHERE x > 0) AS pos, SUM(x) FILTER (WHERE b) AS sb FROM items "
    "GROUP BY h HAVING COUNT(*) > 1",
    "SELECT h + 1 AS k, MAX(x) - MIN(x) AS spread FROM items WHERE h IS NOT NULL GROUP BY h + 1",
    "SELECT raw, b, COUNT(*) AS n FROM items GROUP BY raw, b",
    "SELECT d, COUNT(*) AS n FROM items GROUP BY d",
    "SELECT DISTINCT g, b FROM items",
    "SELECT id, g FROM items ORDER BY g DESC, x",
    "SELECT id, day, CASE WHEN x > 0 THEN 'p' WHEN x < 0 THEN 'n' END AS sign FROM items "
    "WHERE day < DATE '2000-01-01' OR day IS NULL",
]
STACKED = [
    "CREATE VIEW per_g AS SELECT g, h, COUNT(*) AS n, SUM(x) AS s FROM items GROUP BY g, h",
    "CREATE VIEW per_h AS SELECT h, COUNT(*) AS gs, SUM(n) AS n, MAX(s) AS s FROM per_g GROUP BY h",
    "CREATE VIEW big AS SELECT g, n FROM per_g WHERE n > 1",
    "CREATE VIEW top AS SELECT COUNT(*) AS k, MAX(n) AS n FROM per_h",
]

step = st.one_of(
    st.tuples(st.just("put"), st.lists(rows(), min_size=1, max_size=5)),
    st.tuples(st.just("delete"), st.lists(keys, min_size=1, max_size=3)),
    st.tuples(st.just("epoch"), st.integers(1, 6)),
)
histories = st.lists(step, min_size=1, max_size=14)
slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
# Shrinking replays a history hundreds of times; a failure prints how to replay it instead.
phases = (Phase.explicit, Phase.reuse, Phase.generate)


def play(statements: list[str], late: list[str], history: list[tuple[str, Any]], seed: int) -> None:
    """Run a history; views of `late` are created half way, over rows that exist."""
    random = Random(seed)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        try:
            model = History(store)
            for text in statements:
                model.create_view(text)
            epochs = Epochs(store)
            term = epochs.acquire().term
            middle = len(history) // 2
            for number, (kind, detail) in enumerate([*history, ("epoch", 6)]):
                if number == middle:
                    for text in late:
                        model.create_view(text)
                if kind == "put":
                    model.put(detail)
                elif kind == "delete":
                    model.delete(detail)
                else:
                    limits = Limits(operations=detail, chunk=2, tasks=random.choice([1, 2, 4]))
                    one_epoch(model, epochs, term, limits, random)
            while one_epoch(model, epochs, term, Limits(chunk=2), random):
                pass
            assert all(epochs.ready(name) for name in model.catalog.current().views)
        finally:
            store.close()


@pytest.fixture(autouse=True, scope="module")
def _small_shares() -> Iterator[None]:
    """Logs are cut however few operations they have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_splits, "_LEAST", 1)
        yield


def one_epoch(model: History, epochs: Epochs, term: int, limits: Limits, random: Random) -> bool:
    """Open, run (sometimes twice, with messages in another order), publish and check an epoch."""
    store = model.store
    epoch = epochs.open_next(term, limits)
    if epoch is None:
        return False
    if random.random() < 0.3:  # a first attempt that ends before it is published
        messages = [m for log in whole_logs(store, epoch) for m in run_sources(store, epoch, log)]
        random.shuffle(messages)
        if load_plan(store, epoch.plan).program.levels > 1:
            list(run_level(store, epoch, 1, range(store.state.shards), messages))
    reports = in_both_lanes(store, epoch, random.choice([1, 2, 4]), random)
    epochs.publish(term, epoch, reports)
    model.check()
    if random.random() < 0.5:
        housekeep(store, budget=random.choice([1, 100]))
        model.check()
    return True


def created(selects: list[str]) -> list[str]:
    return [f"CREATE VIEW v{i} AS {text}" for i, text in enumerate(selects)]


@settings(max_examples=200, deadline=None, suppress_health_check=slow, phases=phases)
@given(
    st.lists(st.sampled_from(VIEWS), min_size=2, max_size=4, unique=True),
    histories,
    st.integers(0, 2**32),
)
def test_views_equal_recomputation(
    selects: list[str], history: list[tuple[str, Any]], seed: int
) -> None:
    statements = created(selects)
    split = seed % (len(statements) + 1)
    play(statements[:split], statements[split:], history, seed)


@settings(max_examples=100, deadline=None, suppress_health_check=slow, phases=phases)
@given(st.integers(0, len(STACKED)), histories, st.integers(0, 2**32))
def test_views_on_views(split: int, history: list[tuple[str, Any]], seed: int) -> None:
    play(STACKED[:split], STACKED[split:], history, seed)


def test_every_view_type_takes_part() -> None:
    """A fixed history over all views at once, so that none depends on chance to be run."""
    row = {"g": "a", "h": 1, "x": 5, "d": 0.1, "m": None, "b": True}
    rows = [{"id": i, "part": i % 2, **row, "x": i} for i in range(6)]
    history: list[tuple[str, Any]] = [
        ("put", rows),
        ("epoch", 6),
        ("delete", [(0, 0)]),
        ("epoch", 6),
        ("put", [{"id": 1, "part": 1, "g": None}]),
        ("epoch", 6),
    ]
    play(created(VIEWS), [], history, 1)
    play([], created(VIEWS), history, 2)
    play(list(itertools.islice(STACKED, 2)), STACKED[2:], history, 3)

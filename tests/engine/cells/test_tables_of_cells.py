"""Views over tables whose log brings operations on cells, epoch by epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.history import History
from tests.slt.epochs import run_epochs

from viewkeep.engine.epochs import Epochs
from viewkeep.engine.local import advance
from viewkeep.errors import StoreError
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import LogSplit, Store

VOTES = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, w DECIMAL(12,2), t STRING)"
SCORES = "CREATE VIEW scores AS SELECT story, COUNT(*) AS n, SUM(w) AS s FROM votes GROUP BY story"
ALL = "CREATE VIEW all_votes AS SELECT * FROM votes"
PAIRS = """CREATE VIEW pairs AS SELECT a.id AS a, b.id AS b
    FROM votes a JOIN votes b ON a.story = b.story AND a.id < b.id"""
LOGS = {
    "stripped": "twice=0",
    "twice": "twice=50",
    "any order": "twice=30,reorder=1,rivals=30",
    "larger value wins": "twice=30,reorder=1,rivals=30,ties=value",
}


@pytest.fixture(params=LOGS.values(), ids=LOGS)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    url = f"awkward:seed=1,{request.param}:{tmp_path}/a.vk"
    store = create_store(url, nodes=2, shards=2, durability="relaxed")
    yield History(store, (VOTES,))
    store.close()


def write(history: History, source: random.Random, count: int) -> None:
    """Some whole rows, some columns of rows, some deletions."""
    for _ in range(count):
        row: dict[str, Any] = {
            "id": source.randrange(40),
            "story": source.randrange(5),
            "w": source.randrange(100),
            "t": source.choice([None, "", "bb"]),
        }
        match source.randrange(3):
            case 0:
                history.put([row])
            case 1:
                name = source.choice(["story", "w", "t"])
                history.put([{"id": row["id"], name: row[name]}])
            case 2:
                history.delete([(row["id"],)])


def test_views_are_exact_at_every_epoch(history: History) -> None:
    source = random.Random(1)
    write(history, source, 30)
    for view in (SCORES, ALL, PAIRS):
        history.create_view(view)
    for count in (0, 1, 5, 100, 3):
        write(history, source, count)
        run_epochs(history.store)
        history.check()


def test_a_table_with_rows_is_loaded_by_a_scan_while_its_log_goes_on(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeep.engine.cells.loading._MOST_ROWS", 2)
    source = random.Random(2)
    write(history, source, 200)
    run_epochs(history.store)  # no view reads the table: the log is passed over
    history.store.log.truncate(history.store.log.head())
    history.create_view(SCORES)
    epochs = Epochs(history.store)
    lease = epochs.acquire()
    loading = steps = 0
    while advance(history.store, lease.term) is not None:
        steps += 1
        loading += not epochs.ready("scores")
        write(history, source, 5 if steps < 6 else 0)
        history.check()
        if steps == 3:
            history.create_view(ALL)
    assert loading > 3
    assert epochs.ready("scores")
    assert epochs.ready("all_votes")
    epochs.release(lease)
    history.check()


def test_the_log_tells_nothing_of_rows(history: History) -> None:
    store = open_store(history.store.url)
    with pytest.raises(StoreError, match="operations on cells"):
        next(store.log.read(LogSplit("node-0", 0, 1, 1)))
    with pytest.raises(StoreError, match="no past"):
        store.tables.scan(0, 1, limit=1, at=store.log.head())
    assert isinstance(store, Store)
    store.close()

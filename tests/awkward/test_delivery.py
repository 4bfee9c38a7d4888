"""Late operations, replayed tails, logs that are split and merged while they are read.

The law is Definition 2 of Jin, Liu and Salem: at every epoch a view is what the operations that
have been delivered give when they are applied in the order of their timestamps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from viewkeep.cells import CellOperation
from viewkeep.codec.cells import decoder
from viewkeep.codec.keys import KeyCodec
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import advance
from viewkeep.stores import create_store
from viewkeep.stores.contract import START, Cut, Store
from viewkeep.testing.awkward import AwkwardStore

from ..engine.history import History, Row
from ..ops.cells import model

VOTES = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, w DECIMAL(12,2), t STRING)"
VIEWS = [
    "CREATE VIEW scores AS SELECT story, COUNT(*) AS n, SUM(w) AS s FROM votes GROUP BY story",
    "CREATE VIEW all_votes AS SELECT * FROM votes",
    """CREATE VIEW pairs AS SELECT a.id AS a, b.id AS b
       FROM votes a JOIN votes b ON a.story = b.story AND a.id < b.id""",
]
DELIVERIES = {
    "logs that change": "logs=3,rivals=20",
    "tails replayed": "lose=50,replay=30,logs=2",
    "late": "late=20,logs=2,rivals=20",
    "all": "late=20,lose=30,logs=3,rivals=20,ties=value",
}


class Delivered(History):
    """A history whose rows at a cut are those of the operations delivered before it."""

    def rows_at(self, cut: Cut) -> dict[str, list[Row]]:
        assert isinstance(self.store, AwkwardStore)
        delivered: list[CellOperation] = []
        for split in self.store.log.splits(START, cut):
            delivered += self.store.log.cells(split)
        distinct = list(dict.fromkeys(delivered))
        schema = self.tables[self.first].schema
        keys = KeyCodec(schema.types(schema.key))
        decoders = [decoder(column.type) for column in schema.columns]
        rows = []
        for key in {one.key for one in distinct}:
            cells = model.visible_row(distinct, key, self.store.awkwardness.rules)
            if cells is not None:
                row: Row = dict.fromkeys(schema.names)
                row.update(zip(schema.key, keys.decode_one(key), strict=True))
                row.update((schema.names[n], decoders[n](data)) for n, data in cells.items())
                rows.append(row)
        return {self.first: rows}


@pytest.fixture(params=DELIVERIES.values(), ids=DELIVERIES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = f"awkward:seed=1,{request.param}:{tmp_path}/a.vk"
    store = create_store(url, nodes=2, shards=2, durability="relaxed")
    yield store
    store.close()


def write(history: History, source: random.Random, count: int) -> None:
    for _ in range(count):
        row: dict[str, Any] = {
            "id": source.randrange(12),
            "story": source.randrange(4),
            "w": source.randrange(100),
            "t": source.choice([None, "", "bb"]),
        }
        if source.random() < 0.3:
            history.delete([(row["id"],)])
        else:
            name = source.choice(["story", "w", "t"])
            history.put([row if source.random() < 0.5 else {"id": row["id"], name: row[name]}])


def test_views_are_what_was_delivered(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "COLUMNS", (1, 2, 3))
    history, source = Delivered(store, (VOTES,)), random.Random(1)
    for view in VIEWS:
        history.create_view(view)
    epochs = Epochs(store)
    lease = epochs.acquire()
    for _ in range(12):
        write(history, source, source.choice([1, 4, 12]))
        while advance(store, lease.term, Limits(operations=source.choice([5, 1000]))) is not None:
            history.check()
    settle(history, lease.term)
    delivered = history.rows_at(store.log.head())["votes"]
    assert sorted(delivered, key=by_id) == sorted(live(history), key=by_id)


def test_a_table_is_loaded_while_operations_are_late(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the end it has all rows, whatever the scan saw before its operations came."""
    history, source = History(store, (VOTES,)), random.Random(2)
    epochs = Epochs(store)
    lease = epochs.acquire()
    write(history, source, 60)
    for view in VIEWS:
        history.create_view(view)
        for _ in range(3):
            write(history, source, 6)
            advance(store, lease.term, Limits(chunk=3))
            housekeep(store)
    settle(history, lease.term)
    assert all(epochs.ready(name) for name in history.catalog.current().views)
    monkeypatch.setattr(history, "rows_at", lambda cut: {"votes": live(history)})
    history.check()


def settle(history: History, term: int) -> None:
    """Until nothing is late any more."""
    for _ in range(6):
        while advance(history.store, term) is not None:
            pass
        history.store.log.head()


def live(history: History) -> list[Row]:
    """The rows of the base table as they are now."""
    store, table = history.store, history.tables["votes"]
    found = []
    for part in range(store.tables.parts):
        found += store.tables.scan(part, table.source.number, limit=1000).rows
    return [dict(zip(table.schema.names, table.rows.decode_one(row), strict=True)) for row in found]


def by_id(row: Row) -> int:
    number = row["id"]
    assert isinstance(number, int)
    return number

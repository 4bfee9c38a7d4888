"""Partial views: every read of random histories is what recomputation gives at its cut.

Writes, epochs in both lanes, reads that hit and miss, evictions, snapshots and restarts come in any
order. A read is compared with DuckDB's answer over the base rows at the cut that was read; the rows
that the view has kept are compared with the answer for the keys that are wanted at that cut.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from viewkeep.access.partial import PartialRelation
from viewkeep.access.reads import DatabaseReader, ReadPoint, Snapshot
from viewkeep.catalog import Catalog
from viewkeep.engine import log_splits
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.wanted import WantedTable
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import Store

from .history import FOLDER, History, assert_same
from .lanes import in_both_lanes

TABLES = (
    "CREATE TABLE stories (id BIGINT, author STRING, score INT, PRIMARY KEY (id))",
    "CREATE TABLE votes (voter INT, story BIGINT, weight INT, PRIMARY KEY (voter, story))",
    "CREATE TABLE authors (name STRING, karma INT, PRIMARY KEY (name))",
)
VIEWS = (
    "CREATE VIEW v WITH (partial = true) AS SELECT * FROM stories WHERE score > 0",
    "CREATE VIEW v WITH (partial = 'author') AS SELECT author, id, score FROM stories",
    "CREATE VIEW v WITH (partial = true) AS "
    "SELECT author, COUNT(*) AS n, SUM(score) AS s, MAX(score) AS m FROM stories GROUP BY author",
    "CREATE VIEW v WITH (partial = true) AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story",
    "CREATE VIEW v AS SELECT s.id, s.author, COUNT(*) AS n, SUM(v.weight) AS w "
    "FROM stories s JOIN votes v ON v.story = s.id WHERE s.id = ? GROUP BY s.id, s.author",
    "CREATE VIEW v AS SELECT s.id, s.author, COUNT(v.voter) AS n "
    "FROM stories s LEFT JOIN votes v ON v.story = s.id WHERE s.id = ? GROUP BY s.id, s.author",
    "CREATE VIEW v AS SELECT s.id, s.author, a.karma, v.voter, v.weight FROM stories s "
    "JOIN votes v ON v.story = s.id LEFT JOIN authors a ON a.name = s.author WHERE ? = s.id",
    "CREATE VIEW v AS SELECT s.author, v.voter, SUM(v.weight) AS w FROM votes v "
    "JOIN stories s ON v.story = s.id WHERE s.author = ? GROUP BY s.author, v.voter",
    "CREATE VIEW v AS SELECT s.author, s.id, s.score FROM stories s "
    "WHERE s.author = ? AND s.id IN (SELECT story FROM votes WHERE weight > 0)",
    "CREATE VIEW v AS SELECT s.author, s.id FROM stories s WHERE s.author = ? "
    "AND NOT EXISTS (SELECT 1 FROM votes v WHERE v.story = s.id)",
    "CREATE VIEW v WITH (partial = 'author') AS SELECT author, id, score FROM (SELECT author, id, "
    "score, ROW_NUMBER() OVER (PARTITION BY author ORDER BY score DESC, id) AS place "
    "FROM stories) WHERE place <= 2",
    "CREATE VIEW v WITH (partial = 'k') AS SELECT id AS k, 's' AS what FROM stories "
    "UNION ALL SELECT story AS k, 'v' AS what FROM votes",
    "CREATE VIEW v WITH (partial = true) AS SELECT DISTINCT author, score FROM stories",
    "CREATE VIEW v AS SELECT voter, weight, COUNT(*) AS n FROM votes "
    "WHERE voter = ? AND weight = ? GROUP BY voter, weight",
    "CREATE VIEW v AS SELECT s.author, s.id, s.score FROM stories s WHERE s.author = ? "
    "AND s.score >= (SELECT AVG(score) FROM stories t WHERE t.author = s.author)",
)
STEPS = {
    "write": 5,
    "epoch": 5,
    "read": 8,
    "read_snapshot": 2,
    "pin": 1,
    "evict": 1,
    "restart": 0.4,
    "crash": 0.4,
    "replace": 0.3,
}
AUTHORS = [None, "ada", "bob", "cy", "dee"]
VALUES: dict[str, list[Any]] = {
    "id": list(range(6)),
    "story": list(range(6)),
    "k": list(range(6)),
    "voter": list(range(4)),
    "weight": [None, -1, 0, 1, 2],
    "author": AUTHORS,
}


class Play:
    """One view over random writes, with what reads it and what checks each read."""

    def __init__(self, folder: str, view: str, seed: int):
        self.random, self.url = Random(seed), str(Path(folder) / "db")
        self.first = self.text = view
        nodes = self.random.choice([1, 2])
        store = create_store(self.url, durability="relaxed", nodes=nodes)
        self.model = History(store, TABLES)
        self.snapshots: list[Snapshot] = []
        self._begin(store)

    def _begin(self, store: Store) -> None:
        self.store, self.model.store = store, store
        self.epochs = Epochs(store)
        self.term = self.epochs.acquire(ttl=0.0).term
        self.reader = DatabaseReader(store, self.epochs, self.url)

    def create(self) -> None:
        self.model.create_view(self.text)

    def close(self) -> None:
        for snapshot in self.snapshots:
            snapshot.close()
        self.snapshots = []
        self.store.close()

    # -- steps ---------------------------------------------------------------------------------

    def write(self) -> None:
        random = self.random
        for _ in range(random.randint(1, 4)):
            match random.randrange(5):
                case 0:
                    row = {"id": random.choice(VALUES["id"]), "author": random.choice(AUTHORS)}
                    self.model.put([{**row, "score": random.choice([None, 0, 1, 2])}], "stories")
                case 1 | 2:
                    row = {name: random.choice(VALUES[name]) for name in ("voter", "story")}
                    self.model.put([{**row, "weight": random.choice(VALUES["weight"])}], "votes")
                case 3:
                    name = random.choice(AUTHORS[1:])
                    self.model.put([{"name": name, "karma": random.randint(0, 9)}], "authors")
                case _:
                    table = random.choice(["stories", "votes", "authors"])
                    names = {"stories": ["id"], "votes": ["voter", "story"]}.get(table)
                    key = [random.choice(VALUES[n]) for n in names] if names else ["ada"]
                    self.model.delete([tuple(key)], table)

    def epoch(self) -> None:
        limits = Limits(operations=self.random.choice([1, 3, 100]), chunk=2, tasks=2)
        epoch = self.epochs.open_next(self.term, limits)
        if epoch is not None:
            reports = in_both_lanes(self.store, epoch, self.random.choice([1, 2]), self.random)
            self.epochs.publish(self.term, epoch, reports)
            self.model.check()
            if self.random.random() < 0.5:
                housekeep(self.store, budget=self.random.choice([1, 100]))

    def read(self) -> None:
        published = self.epochs.read().published
        if not self.epochs.ready("v"):
            return
        self._read(ReadPoint(published))

    def read_snapshot(self) -> None:
        if self.snapshots:
            self._read(self.random.choice(self.snapshots).point)

    def pin(self) -> None:
        if self.epochs.ready("v"):
            self.snapshots.append(self.reader.snapshot(600.0))
        if len(self.snapshots) > 2:
            self.snapshots.pop(0).close()

    def replace(self) -> None:
        """Another view takes the name, or the same one with fewer rows."""
        if "v" in self.model.catalog.current().views:
            self.text = self.random.choice([self.first, self.random.choice(VIEWS)])
            self.model.create_view(self.text.replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))

    def evict(self) -> None:
        view = self.model.catalog.current().views.get("v")
        if view is not None:
            assert view.wanted is not None
            table = WantedTable(view.wanted)
            some = [key for key, _ in table.all(self.store) if self.random.random() < 0.5]
            self.store.tables.write([table.given_up(some)])

    def restart(self) -> None:
        self.close()
        self._begin(open_store(self.url))
        self.model.catalog = Catalog(self.store)

    def crash(self) -> None:
        """The process ends while an epoch is open, which may have been run in part."""
        epoch = self.epochs.open_next(self.term, Limits(operations=2, chunk=2))
        if epoch is not None and self.random.random() < 0.5:
            in_both_lanes(self.store, epoch, 1, self.random)
        self.restart()

    # -- checks --------------------------------------------------------------------------------

    def _read(self, point: ReadPoint) -> None:
        relation = self.reader.open("v", point)
        assert isinstance(relation, PartialRelation)
        wanted, random = relation.partial.wanted, self.random
        values = tuple(random.choice(VALUES[name]) for name in wanted.values)
        assert point.cut is not None
        expected = [
            row
            for row in self.model.answers(point.cut, {"v": relation.view})["v"]
            if all(
                row[relation.names.index(n)] == v
                for n, v in zip(wanted.values, values, strict=True)
            )
        ]
        match random.randrange(3):
            case 0:
                found = self.reader.scan_at("v", point, prefix=values).tuples()
                assert_same(found, expected, f"{self.text} {values}")
            case 1:
                found = self.reader.scan_at("v", point, prefix=values, limit=1).tuples()
                assert len(found) == min(1, len(expected))
                assert all(row in expected for row in found), self.text
            case _:
                self._get(relation, point, values, expected)

    def _get(
        self,
        relation: PartialRelation,
        point: ReadPoint,
        values: tuple[Any, ...],
        expected: list[tuple[Any, ...]],
    ) -> None:
        if not set(relation.key) <= set(relation.names):
            return  # its key is hidden in part
        at = [relation.names.index(name) for name in relation.key]
        keys = {tuple(row[place] for place in at): row for row in expected}
        absent = values + tuple(self.random.randrange(9) for _ in relation.key[len(values) :])
        if any(relation.schema[n].type.name == "STRING" for n in relation.key[len(values) :]):
            absent = values + ("x",) * (len(relation.key) - len(values))
        wanted = [*keys, *([absent] if absent not in keys else [])]
        self.random.shuffle(wanted)
        if self.random.random() < 0.5:
            rows = self.reader.rows_at("v", wanted, point)
        else:
            rows = [self.reader.row_at("v", key, point) for key in wanted]
        found = [tuple(row.values()) for row in rows if row is not None]
        assert_same(found, expected, f"{self.text} {values}")


@pytest.fixture(autouse=True, scope="module")
def _small_shares():  # type: ignore[no-untyped-def]
    """Logs are cut however few operations they have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_splits, "_LEAST", 1)
        yield


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("view", range(len(VIEWS)))
def test_every_read_is_the_full_views(view: int, seed: int) -> None:
    play(view, seed)


@pytest.mark.long
@pytest.mark.parametrize("view", range(len(VIEWS)))
def test_more_histories(view: int) -> None:
    for seed in range(4, 40):
        play(view, seed)


def play(view: int, seed: int) -> None:
    """A random history of one of the views."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        play = Play(folder, VIEWS[view], 100 * seed + view)
        random = play.random
        try:
            before = random.choice([0, 12])
            for step in range(60):
                if step == before:
                    play.create()
                kind = random.choices(list(STEPS), list(STEPS.values()))[0]
                getattr(play, kind)()
        finally:
            play.close()

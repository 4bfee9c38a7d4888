"""Joins, TOP-K and windows under attack: what they cost, where rows lie, and what a retry writes.

Every history here runs each epoch several times, with other tasks, orders and sizes of pieces; the
state must be the same bytes, each row on the shard and under the key where readers look for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import viewkeep
from viewkeep.access.relations import ViewRelation
from viewkeep.codec.key_order import hash_keys
from viewkeep.engine import amounts, changes, exchange, frames, state
from viewkeep.engine.epochs import Epochs, Limits, OpenEpoch
from viewkeep.engine.exchange import REPORT, Exchanged, Outbox, encode_keys
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.local import catch_up
from viewkeep.engine.log_splits import levels_to_run, whole_logs
from viewkeep.engine.operators.sides import columns as sides
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import Report
from viewkeep.engine.spool import Message
from viewkeep.engine.state import ShardState
from viewkeep.plan.program import Program
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateView
from viewkeep.stores import create_store
from viewkeep.stores.contract import Chunk, Found, LogSplit, Store

from .history import FOLDER, History

pytestmark = pytest.mark.usefixtures("columns_lane")

A = "CREATE TABLE a (id BIGINT, k INT, s STRING, d DOUBLE, b BOOLEAN, PRIMARY KEY (id))"
B = (
    "CREATE TABLE b (id BIGINT, part INT, k INT, s STRING, d DOUBLE, b BOOLEAN, "
    "PRIMARY KEY (id, part))"
)
# Each list is created in order, since the later ones read the earlier ones.
VIEWS = [
    ["SELECT id, k FROM a UNION ALL SELECT id, k FROM a"],
    ["SELECT u.k, b.id FROM (SELECT k FROM a UNION ALL SELECT k FROM a) u JOIN b ON u.k = b.k"],
    ["SELECT k FROM a EXCEPT ALL SELECT k FROM b"],
    ["SELECT id FROM a x WHERE EXISTS (SELECT 1 FROM a y WHERE y.k = x.k AND y.id <> x.id)"],
    ["SELECT id FROM a WHERE k NOT IN (SELECT k FROM b WHERE b)"],
    [
        "SELECT x.k, x.n, y.n AS m FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) x "
        "LEFT JOIN (SELECT k, COUNT(*) AS n FROM a GROUP BY k) y ON x.n = y.n"
    ],
    [
        "SELECT a.id, x.n, y.t FROM a JOIN (SELECT k, COUNT(*) AS n FROM b GROUP BY k) x "
        "ON a.k = x.k LEFT JOIN (SELECT n, COUNT(*) AS t FROM "
        "(SELECT k, COUNT(*) AS n FROM b GROUP BY k) q GROUP BY n) y ON y.n = x.n"
    ],
    ["SELECT a.id, b.id AS j, b.part FROM a FULL JOIN b ON a.k <=> b.k AND a.b = b.b"],
    ["SELECT a.id, b.id AS j, b.part FROM a FULL JOIN b ON a.s = b.s AND a.k < b.k"],
    ["SELECT a.id, b.id AS j, a.d FROM a LEFT JOIN b ON a.d = b.d"],
    [
        "SELECT x.d, x.n, y.n AS m FROM (SELECT d, COUNT(*) AS n FROM a GROUP BY d) x "
        "FULL JOIN (SELECT d, COUNT(*) AS n FROM b GROUP BY d) y ON x.d = y.d"
    ],
    ["SELECT a.id, b.id AS j FROM a LEFT JOIN b ON a.k = 1"],
    ["SELECT COUNT(*) AS n, MAX(b.d) AS q FROM a LEFT JOIN b ON a.s = b.s"],
    ["SELECT id, s, k FROM a ORDER BY s DESC, k, id LIMIT 3 OFFSET 1"],
    ["SELECT id FROM a ORDER BY id LIMIT 0"],
    [
        "SELECT id, part, s, d FROM b QUALIFY "
        "ROW_NUMBER() OVER (PARTITION BY s, s ORDER BY d DESC, id, part) <= 1"
    ],
    ["SELECT id, LAG(s) OVER (ORDER BY s, id) AS p, LEAD(k, 2) OVER (ORDER BY s, id) AS q FROM a"],
    [
        "SELECT id, part, SUM(k) OVER (PARTITION BY s ORDER BY d, id, part "
        "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS w FROM b"
    ],
    [
        "SELECT x.id, x.p, b.id AS j FROM (SELECT id, LAG(k) OVER (ORDER BY id DESC) AS p FROM a) "
        "x LEFT JOIN b ON x.p = b.k"
    ],
    ["SELECT k, COUNT(*) AS n FROM b GROUP BY k ORDER BY n DESC"],
    ["SELECT id, (SELECT COUNT(*) FROM b WHERE b.k < a.k) AS n FROM a"],
    [
        "SELECT a.id, a.k, b.s FROM a JOIN b ON a.k = b.k",
        "SELECT s, COUNT(*) AS n FROM {0} GROUP BY s",
        "SELECT p.id, q.n FROM {0} p LEFT JOIN {1} q ON p.s = q.s",
    ],
    [
        "SELECT id, k, s FROM a ORDER BY s DESC, id LIMIT 4",
        "SELECT p.id, b.d FROM {0} p LEFT JOIN b ON p.s = b.s",
        "SELECT id, COUNT(*) AS n FROM {1} GROUP BY id ORDER BY id DESC",
    ],
]
TEXTS = [None, "", "x", "a\0b", "x" * 223, "x" * 300, "x" * 300 + "1", "x" * 600, "x" * 600 + "1"]
DOUBLES = [None, 0.0, -0.0, 1.5, float("nan"), float("inf")]


@contextmanager
def history(nodes: int = 1, shards: int = 1) -> Iterator[History]:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        url = str(Path(folder) / "db")
        store = create_store(url, durability="relaxed", nodes=nodes, shards=shards)
        try:
            yield History(store, (A, B))
        finally:
            store.close()


class Play:
    """A random history with views that come, go, are replaced and built anew."""

    def __init__(self, model: History, seed: int, patch: pytest.MonkeyPatch):
        self.model, self.random, self.patch = model, Random(seed), patch
        self.store = model.store
        self.epochs = Epochs(self.store)
        self.term = self.epochs.acquire(ttl=600).term
        self.views: dict[str, str] = {}

    def create(self, texts: list[str]) -> None:
        names: list[str] = []
        for text in texts:
            names.append(f"v{len(self.views)}")
            self.views[names[-1]] = text.format(*names)
            self.define(names[-1])

    def define(self, name: str, replaces: bool = False) -> None:
        words = "CREATE OR REPLACE VIEW" if replaces else "CREATE VIEW"
        catalog = self.model.catalog
        made = analyse(
            parse(f"{words} {name} AS {self.views[name]}")[0],
            catalog.resolve,
            catalog.current().program.existing,
        )
        assert isinstance(made, CreateView)
        catalog.create_view(made.view, or_replace=replaces)

    def disturb(self) -> None:
        """Drop and create a view, replace it by itself, or build it anew."""
        if not self.views:
            return
        name, catalog = self.random.choice(list(self.views)), self.model.catalog
        if any(name in view.reads for view in catalog.current().views.values()):
            return
        kind = self.random.choice(["drop", "replace", "rebuild"])
        if kind == "rebuild":
            catalog.rebuild_view(name)
        elif kind == "replace":
            self.define(name, replaces=True)
        else:
            catalog.drop_view(name)
            if self.random.random() < 0.5:
                self.epoch(2)
            self.define(name)

    def write(self) -> None:
        random, table = self.random, self.random.choice("ab")
        if random.random() < 0.65:
            self.model.put([self.row(table) for _ in range(random.randint(1, 4))], table)
        else:
            keys = [(random.randint(0, 7), random.randint(0, 1)) for _ in range(2)]
            self.model.delete([key[: 1 if table == "a" else 2] for key in keys], table)

    def row(self, table: str) -> dict[str, Any]:
        random = self.random
        row: dict[str, Any] = {"id": random.randint(0, 7)}
        if table == "b":
            row["part"] = random.randint(0, 1)
        values: dict[str, list[Any]] = {
            "k": [None, 0, 1, 2],
            "s": TEXTS,
            "d": DOUBLES,
            "b": [None, True, False],
        }
        row.update({n: random.choice(v) for n, v in values.items() if random.random() < 0.8})
        return row

    def epoch(self, chunk: int) -> bool:
        """One epoch, broken off at some level, then run twice; both must write the same."""
        random, store = self.random, self.store
        limits = Limits(operations=random.choice([2, 9, 50]), chunk=chunk)
        epoch = self.epochs.open_next(self.term, limits)
        if epoch is None:
            return False
        program = load_plan(store, epoch.plan).program
        self.run(epoch, program, random.randint(1, program.levels))
        first = self.run(epoch, program, program.levels)
        written = state_of(store, program, epoch.epoch)
        second = self.run(epoch, program, program.levels)
        assert written == state_of(store, program, epoch.epoch)
        assert progress_of(first) == progress_of(second)
        self.epochs.publish(self.term, epoch, second)
        self.model.check()
        check_places(store, program, epoch.epoch)
        if random.random() < 0.5:
            housekeep(store, budget=random.choice([1, 100]))
            self.model.check()
        return True

    def run(self, epoch: OpenEpoch, program: Program, levels: int) -> list[Report]:
        """The tasks of the first levels, in any order, number and size of pieces."""
        random, store = self.random, self.store
        self.patch.setattr(sides, "ROWS_AT_ONCE", random.choice([1, 2, 200_000]))
        self.patch.setattr(state, "ROWS_AT_ONCE", random.choice([1, 2, 20_000]))
        self.patch.setattr(exchange, "_COMBINE_AT", random.choice([1, 100_000]))
        self.patch.setattr(exchange, "_SEND_AT", random.choice([1, 3, 400_000]))
        self.patch.setattr(amounts, "TOGETHER", random.choice([1, 3, 10_000]))
        self.patch.setattr(changes, "_FEW", random.choice([1, 3, 10_000]))
        self.patch.setattr(changes, "_MUCH", random.choice([1, 300, 1 << 20]))
        self.patch.setattr(frames, "_FEW", random.choice([0, 1_000]))
        messages: list[Message] = []
        shares = cut_anywhere(store, epoch, random)
        for split in random.sample(shares, len(shares)):
            messages += run_sources(store, epoch, split)
        if levels == program.levels:
            levels = levels_to_run(store, program, epoch, [shares])
        for number in range(1, levels):
            sent, messages = messages, []
            random.shuffle(sent)
            tasks = random.randint(1, 5)
            for task in random.sample(range(tasks), tasks):
                mine = [message for message in sent if message[0] % tasks == task]
                shards = list(range(task, store.state.shards, tasks))
                messages += run_level(store, epoch, number, shards, mine)
        return [Report.decode(blob) for shard, blob in messages if shard == REPORT]


def cut_anywhere(store: Store, epoch: OpenEpoch, random: Random) -> list[LogSplit]:
    """The epoch's logs, cut at any places if they may be; splits may be empty."""
    found = whole_logs(store, epoch)
    if epoch.loading:
        return found
    cut = []
    for log in found:
        count = random.choice([0, 0, 1, 3])
        inner = sorted(random.randint(0, log.operations) for _ in range(count))
        ends = [0, *inner, log.operations]
        cut += store.log.divide(log, [stop - start for start, stop in pairwise(ends)])
    return cut


def progress_of(reports: list[Report]) -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {}
    for report in reports:
        for feed, parts in report.progress.items():
            found.setdefault(feed, {}).update(parts)
    return found


def state_of(store: Store, program: Program, epoch: int) -> dict[tuple[int, int], Chunk]:
    return {
        (shard, table.number): store.state.scan(shard, table.number, limit=10**6, at=epoch)
        for operator in program.operators
        for table in operator.tables
        for shard in range(store.state.shards)
    }


def check_places(store: Store, program: Program, epoch: int) -> None:
    """Every row lies under its key on its shard, where a reader of the view finds it."""
    found = state_of(store, program, epoch)
    for operator in program.operators:
        table = operator.rows_table
        for shard in range(store.state.shards) if operator.tables else ():
            chunk = found[shard, table.number]
            rows = table.row_codec.decode(chunk.rows)
            assert table.keys(rows, "").to_list() == chunk.keys
            homes = hash_keys(encode_keys(table.shard_codec, rows, table.shard_by))
            assert set((homes % store.state.shards).tolist()) <= {shard}
    for placement in program.placements.values():
        reader, table = ViewRelation(placement, store.state.shards), placement.table
        places = [[c.name for c in table.columns].index(name) for name in table.key_names]
        for shard in range(store.state.shards):
            rows_ = found[shard, table.number].rows
            keys = [table.row_codec.decode_one(row, places) for row in rows_]
            assert reader.find(store, keys, epoch) == rows_


@pytest.mark.parametrize("seed", range(12))
def test_a_retry_in_any_order_writes_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    nodes = random.choice([1, 1, 2, 3])
    with history(nodes, nodes * random.choice([1, 2, 3])) as model:
        play = Play(model, seed, monkeypatch)
        # Every kind of view takes part in some of the seeds, whatever chance has it.
        waiting = [VIEWS[(seed + step) % len(VIEWS)] for step in (0, 7, 13)]
        for _ in range(random.randint(0, 2)):
            play.create(waiting.pop())
        for step in range(14):
            if waiting and step % 4 == 3:
                play.create(waiting.pop())
            if random.random() < 0.15:
                play.disturb()
            play.write()
            if random.random() < 0.5:
                play.epoch(random.choice([1, 2, 5]))
        for _ in range(100):
            if not play.epoch(3):
                break
        assert all(play.epochs.ready(name) for name in model.catalog.current().views)


def test_a_window_reads_a_row_once_for_all_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    read = [0]
    scan = ShardState.scan

    def counted(self: ShardState, *args: Any, **named: Any) -> Chunk:
        chunk = scan(self, *args, **named)
        read[0] += len(chunk.keys)
        return chunk

    with history() as model:
        model.create_view("CREATE VIEW v AS SELECT id, LAG(k) OVER (ORDER BY id) AS p FROM a")
        model.put([{"id": 2 * n, "k": n} for n in range(300)])
        catch_up(model.store)
        model.put([{"id": 2 * n + 1, "k": -n} for n in range(300)])
        monkeypatch.setattr(ShardState, "scan", counted)
        catch_up(model.store)
        model.check()
    assert read[0] <= 1_000  # 300 rows are there; 90,000 are read


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.id, x.n FROM a JOIN (SELECT k, MAX(id) AS n FROM b GROUP BY k) x ON a.k = x.k",
        "SELECT a.id, x.k FROM a LEFT JOIN (SELECT DISTINCT k FROM b) x ON a.k = x.k",
    ],
)
def test_a_group_that_shows_the_same_changes_no_join(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = [0]
    find = ShardState.find

    def counted(self: ShardState, *args: Any, **named: Any) -> Iterator[Found]:
        for batch in find(self, *args, **named):
            read[0] += len(batch.keys)
            yield batch

    with history() as model:
        model.create_view(f"CREATE VIEW v AS {text}")
        model.put([{"id": n, "k": 1} for n in range(500)])
        model.put([{"id": 9, "part": 0, "k": 1}], "b")
        catch_up(model.store)
        monkeypatch.setattr(ShardState, "find", counted)
        model.put([{"id": 3, "part": 0, "k": 1}], "b")
        catch_up(model.store)
        model.check()
    assert read[0] == 0  # neither MAX(id) nor the distinct k is another; 500 rows are read


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The most rows that an outbox held."""
    most = [0]
    put = Outbox.put

    def watched(self: Outbox, to: Exchanged, name: str, frame: pl.DataFrame) -> None:
        put(self, to, name, frame)
        most[0] = max(most[0], self._amount)

    monkeypatch.setattr(Outbox, "put", watched)
    return most


def test_loading_from_a_join_is_sent_in_pieces(
    held: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    join_text = "FROM a JOIN b ON a.k = b.k"
    with history() as model:
        hint = "/*+ NO_AGGREGATE_FIRST */"  # so that both views read one join
        model.create_view(
            f"CREATE VIEW n AS SELECT {hint} a.k, COUNT(*) AS n {join_text} GROUP BY a.k"
        )
        model.put([{"id": n, "k": 1} for n in range(40)])
        model.put([{"id": n, "part": 0, "k": 1} for n in range(100)], "b")
        catch_up(model.store)
        held[0] = 0
        monkeypatch.setattr(exchange, "_SEND_AT", 200)
        monkeypatch.setattr(sides, "ROWS_AT_ONCE", 100)
        monkeypatch.setattr(state, "ROWS_AT_ONCE", 100)
        model.create_view(f"CREATE VIEW late AS SELECT a.id, a.k, b.id AS j, b.k AS kk {join_text}")
        catch_up(model.store)
        assert Epochs(model.store).ready("late")
    assert 0 < held[0] <= 400  # 4,000 rows are held


def test_many_views_are_loaded_in_pieces(held: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with history() as model:
        model.create_view("CREATE VIEW n AS SELECT COUNT(*) AS n FROM a")
        model.put([{"id": n, "k": n} for n in range(100)])
        catch_up(model.store)
        held[0] = 0
        monkeypatch.setattr(exchange, "_SEND_AT", 200)
        for n in range(20):
            model.create_view(f"CREATE VIEW v{n} AS SELECT k + {n} AS x, id FROM a ORDER BY x")
        catch_up(model.store)
        model.check()
    assert 0 < held[0] <= 400  # 2,000 rows are held


def test_a_view_reads_the_view_that_is_there(tmp_path: Path) -> None:
    with viewkeep.make(str(tmp_path / "db"), durability="relaxed") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k INT)")
        db.sql("CREATE VIEW v AS SELECT id FROM t WHERE id > 5")
        db.put("t", [{"id": 1, "k": 1}, {"id": 9, "k": 2}])
        db.create_views(
            "CREATE VIEW IF NOT EXISTS v AS SELECT id FROM t; CREATE VIEW w AS SELECT id FROM v"
        )
        catch_up(db.store)
        assert db.scan("w").tuples() == db.scan("v").tuples() == [(9,)]

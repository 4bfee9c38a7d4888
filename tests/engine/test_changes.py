"""Level 0 reads a log once, whatever the number of tables, and misses nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import viewkeep
from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine import changes
from viewkeep.engine.blame import Blame
from viewkeep.engine.changes import Tail, base_changes
from viewkeep.engine.local import catch_up
from viewkeep.engine.programs import newest_plan
from viewkeep.stores.contract import START
from viewkeep.stores.lmdb import log

pytestmark = pytest.mark.usefixtures("columns_lane")

TABLES = 5


@pytest.mark.parametrize("few", [1, 7, 10_000])
@pytest.mark.parametrize("much", [1, 400, 1_000_000])
def test_changes_of_tables_written_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, much: int
) -> None:
    monkeypatch.setattr(changes, "_FEW", few)
    monkeypatch.setattr(changes, "_MUCH", much)
    monkeypatch.setattr(log, "BATCH_OPERATIONS", 16)
    random = Random(few * much)
    expected: dict[str, dict[tuple[int, int], int]] = {}
    with viewkeep.make(tmp_path / "test.vk", nodes=1) as db:
        for number in range(TABLES):
            db.sql(f"CREATE TABLE t{number} (k BIGINT PRIMARY KEY, x BIGINT)")
            db.sql(f"CREATE VIEW v{number} AS SELECT x, COUNT(*) AS n FROM t{number} GROUP BY x")
            expected[f"t{number}"] = {}
        rows: dict[str, dict[int, int]] = {name: {} for name in expected}
        for _ in range(200):
            name, key, value = (random.choice(list(rows)), random.randrange(9), random.random())
            count, held = expected[name], rows[name]
            if key in held:
                count[key, held[key]] = count.get((key, held[key]), 0) - 1
            if value < 0.8:
                held[key] = int(value * 10)
                count[key, held[key]] = count.get((key, held[key]), 0) + 1
                db.put(name, {"k": key, "x": held[key]})
            else:
                held.pop(key, None)
                db.delete(name, key)
        store = db.store
        program = newest_plan(store).program
        tails = [Tail(source, frozenset(("k", "x")), True) for source in program.sources]
        found: dict[str, list[pl.DataFrame]] = {}
        (split,) = store.log.splits(START, store.log.head())
        for tail, delta in base_changes(store, split, tails, Blame(program)):
            assert delta.columns == ["k", "x", WEIGHT, KEY]
            found.setdefault(tail.source.table, []).append(delta)
        for name, count in expected.items():
            summed = pl.concat(found[name]).group_by("k", "x").agg(pl.col(WEIGHT).sum())
            assert {(k, x): n for k, x, n in summed.rows() if n} == {
                value: n for value, n in count.items() if n
            }
        if few == 10_000 and much == 1_000_000:
            assert [len(parts) for parts in found.values()] == [1] * TABLES
        else:
            assert all(len(parts) > 1 for parts in found.values())


def test_a_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    parse = log.segments.parse

    def watched(first: int, values: Any) -> Any:
        read.append(first)
        return parse(first, values)

    with viewkeep.make(tmp_path / "test.vk", nodes=1) as db:
        for number in range(TABLES):
            db.sql(f"CREATE TABLE t{number} (k BIGINT PRIMARY KEY, x BIGINT)")
            db.sql(f"CREATE VIEW v{number} AS SELECT x, COUNT(*) AS n FROM t{number} GROUP BY x")
        catch_up(db.store)
        for number in range(TABLES):
            db.put(f"t{number}", {"k": 1, "x": 2})
        monkeypatch.setattr(log.segments, "parse", watched)
        catch_up(db.store)
        assert [db.get(f"v{number}", 2) for number in range(TABLES)] == [{"x": 2, "n": 1}] * TABLES
    assert len(read) == 1

"""Every promise of the pages stands there still, and names a test that there is (docs/promises.md).

Below, tests for promises that no other test holds.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import viewkeep
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.lease import holder
from viewkeep.errors import InvalidRow, UnknownName

if TYPE_CHECKING:
    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs" / "promises.md"


def promises() -> list[tuple[str, str, str]]:
    """The page, the sentence and the tests of each row."""
    found, page = [], ""
    for line in LIST.read_text().splitlines():
        if heading := re.match(r"## \[.*\]\((.*)\)", line):
            page = heading[1]
        elif row := re.match(r'\| "(.*)" \| (.*) \|$', line):
            found.append((page, row[1], row[2]))
    return found


@cache
def words(page: str) -> str:
    """A page without its line breaks."""
    return " ".join((LIST.parent / page).read_text().split())


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("page", "sentence", "tests"), promises())
def test_a_promise_is_held_by_a_test(page: str, sentence: str, tests: str) -> None:
    assert sentence in words(page), f"{page} no longer says so"
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
    assert named, "a promise without a test"
    for file, name in named:
        assert name in functions_of(file), f"{file} has no {name}"


def test_every_page_has_promises() -> None:
    """The list is read, whatever becomes of its form."""
    pages = [page for page, _, _ in promises()]
    for page in ("../README.md", "operations.md", "http.md", "serving.md", "python.md"):
        assert pages.count(page) >= 5, page


# -- promises that no other test holds ---------------------------------------------------------


def test_a_copy_of_the_folder_is_a_backup(
    db: viewkeep.Database, catch_up: CatchUp, tmp_path: Path
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT)")
    db.sql("CREATE VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    db.put("t", [{"id": number, "g": number % 3} for number in range(20)])
    catch_up()
    db.put("t", {"id": 20, "g": 0})  # in the log, not yet in the view
    shutil.copytree(tmp_path / "test.vk", tmp_path / "copy.vk")
    db.put("t", {"id": 21, "g": 0})
    with viewkeep.open(tmp_path / "copy.vk", create=False) as copy:
        assert len(copy.scan("t")) == 21
        assert copy.get("v", 0) == {"g": 0, "n": 7}
        viewkeep.engine.local.catch_up(copy.store)
        assert copy.get("v", 0) == {"g": 0, "n": 8}


def test_a_driver_on_another_machine_keeps_its_lease_until_it_ends(
    db: viewkeep.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from viewkeep.engine import lease, standstill

    clock = [1_000_000.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(standstill.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(lease.time, "sleep", sleep)
    epochs = Epochs(db.store)
    mine = epochs.acquire()
    assert mine.ttl == 30.0
    elsewhere = replace(mine, host="elsewhere", pid=1, mark="elsewhere/1/1")
    assert db.store.meta.cas("lease", lease._bytes(mine), lease._bytes(elsewhere))
    began = clock[0]
    assert epochs.acquire().term == mine.term + 1
    assert 29.9 < clock[0] - began < 30.1
    held = holder(db.store)
    assert held is not None
    assert asdict(held)["host"] != "elsewhere"


def test_a_database_without_views_passes_over_its_log(
    db: viewkeep.Database, catch_up: CatchUp
) -> None:
    from viewkeep.engine.housekeeping import housekeep

    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    for start in range(0, 5_000, 1_000):
        db.put("t", [{"id": start + number} for number in range(1_000)])
    first = catch_up()
    assert first.cut.positions == db.store.log.head().positions
    assert first.epoch == 1, "one epoch passes over all of it"
    housekeep(db.store)
    assert sum(db.store.sizes().log_operations.values()) == 0


def test_what_is_undone_within_an_epoch_is_no_change(
    db: viewkeep.Database, catch_up: CatchUp
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT)")
    db.sql("CREATE VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    db.put("t", [{"id": 1, "g": 1}, {"id": 2, "g": 1}])
    catch_up()
    feed = db.subscribe("v")
    feed.poll()
    db.put("t", {"id": 3, "g": 1})
    db.delete("t", 3)
    db.put("t", {"id": 1, "g": 2})
    db.put("t", {"id": 1, "g": 1})
    published = catch_up()
    assert feed.poll() == []
    assert feed.epoch == published.epoch


def test_values_fit_their_columns_exactly(db: viewkeep.Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, d DECIMAL(10, 2))")
    db.put("t", pl.DataFrame({"id": [1], "n": [3.0], "d": [7]}))
    db.put("t", {"id": 2, "n": 3, "d": Decimal("7.25")})
    db.put("t", {"id": 5, "d": 2.5})
    for wrong in ({"n": 3.5}, {"d": 0.1}, {"d": Decimal("7.255")}, {"n": "3"}):
        with pytest.raises(InvalidRow):
            db.put("t", [{"id": 3, "n": 1}, {"id": 4, **wrong}])
        with pytest.raises(InvalidRow):
            db.put(
                "t", pl.DataFrame({"id": [4], **{name: [value] for name, value in wrong.items()}})
            )
    assert db.scan("t").tuples() == [
        (1, 3, Decimal("7.00")),
        (2, 3, Decimal("7.25")),
        (5, None, Decimal("2.50")),
    ]


def test_views_are_created_all_or_none(db: viewkeep.Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT)")
    with pytest.raises(UnknownName):
        db.create_views("CREATE VIEW a AS SELECT g FROM t; CREATE VIEW b AS SELECT x FROM t")
    assert db.views() == []
    text = "CREATE VIEW a AS SELECT id FROM t; CREATE VIEW b AS SELECT id FROM a"
    assert db.create_views(text) == ["a", "b"]
    assert db.views() == ["a", "b"]


def test_a_parameter_is_never_read_as_sql(db: viewkeep.Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, s STRING)")
    text = "x'; DROP TABLE t; --"
    db.sql("INSERT INTO t VALUES (1, ?)", [text])
    assert db.sql("SELECT s FROM t WHERE s = ?", [text]).tuples() == [(text,)]
    assert db.sql("SELECT ? AS s", ["id) FROM t --"]).tuples() == [("id) FROM t --",)]

"""Bounds of a database on disk: `max_size`, the reserve, and removing it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import viewkeep
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.errors import StoreError, StoreFull
from viewkeep.stores import drop_store
from viewkeep.stores.lmdb import room
from viewkeep.stores.lmdb.database import SMALLEST


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[viewkeep.Database]:
    monkeypatch.setattr(room, "_FRESH_SECONDS", 0.0)
    url = tmp_path / "a.vk"
    with viewkeep.make(url, durability="relaxed", max_size=SMALLEST) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, s STRING)")
        yield db


def fill(db: viewkeep.Database) -> int:
    """Rows until the database says that it is full; how many it has taken."""
    for number in range(100):
        try:
            db.put("t", [{"k": number * 100 + i, "s": "x" * 1000} for i in range(100)])
        except StoreFull:
            return number * 100
    raise AssertionError("a hundred times the limit went in")


def test_a_full_database_takes_no_rows(small: viewkeep.Database) -> None:
    rows = fill(small)
    assert rows > 0
    status = small.status()
    assert status.max_bytes == SMALLEST
    assert SMALLEST <= status.used_bytes < 2 * SMALLEST
    assert status.refusal is not None
    with pytest.raises(StoreFull, match=r"max_size is 1\.0 MiB; .*raise max_size"):
        small.put("t", {"k": -1})
    assert "takes no rows" in viewkeep.status.line(status)
    assert small.sql("SELECT COUNT(*) AS n FROM t").one() == {"n": rows}  # nothing by halves


def test_deletes_and_housekeeping_make_room(small: viewkeep.Database) -> None:
    rows = fill(small)
    small.delete_many("t", range(rows))
    catch_up(small.store)
    while housekeep(small.store):
        pass
    small.put("t", {"k": 1, "s": "again"})


def test_max_size_is_raised_while_it_is_open(small: viewkeep.Database) -> None:
    fill(small)
    file = Path(small.store.url.removeprefix("lmdb:")) / "viewkeep.json"
    file.write_text(file.read_text().replace(str(SMALLEST), str(64 * SMALLEST)))
    small.put("t", {"k": -1, "s": "there is room"})
    assert small.status().max_bytes == 64 * SMALLEST


def test_rows_are_refused_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_FRESH_SECONDS", 0.0)
    with viewkeep.open(tmp_path / "a.vk", durability="relaxed") as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY)")
        db.put("t", {"k": 1})
        left = SimpleNamespace(f_bavail=(room.RESERVE >> 10) - 1, f_frsize=1 << 10)
        monkeypatch.setattr(os, "statvfs", lambda path: left)
        with pytest.raises(StoreFull, match=r"the disk has 16\.0 MiB left"):
            db.put("t", {"k": 2})
        db.delete("t", 1)
        assert "disk" in str(db.status().refusal)
        left.f_bavail += 1
        db.put("t", {"k": 2})


def test_too_small_a_limit(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="max_size is at least"):
        viewkeep.make(tmp_path / "a.vk", max_size=10)


def test_drop_removes_all_of_it(tmp_path: Path) -> None:
    url = tmp_path / "a.vk"
    viewkeep.make(url).close()
    drop_store(str(url))
    assert not url.exists()
    with pytest.raises(StoreError, match="no database"):
        drop_store(str(url))


def test_drop_leaves_what_is_not_ours(tmp_path: Path) -> None:
    url = tmp_path / "a.vk"
    viewkeep.make(url).close()
    (url / "notes.txt").write_text("mine")
    drop_store(str(url))
    assert [entry.name for entry in url.iterdir()] == ["notes.txt"]


def test_drop_refuses_what_is_open_here(tmp_path: Path) -> None:
    with viewkeep.make(tmp_path / "a.vk") as db, pytest.raises(StoreError, match="is open"):
        drop_store(db.url)
    drop_store(db.url)


def test_drop_refuses_what_another_process_has_open(tmp_path: Path) -> None:
    url = str(tmp_path / "a.vk")
    viewkeep.make(url).close()
    code = f"import viewkeep; db = viewkeep.open({url!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match="open in another process"):
            drop_store(url)
        assert viewkeep.open(url, create=False).tables() == []
        other.communicate("\n")


def test_an_interrupted_drop_leaves_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path / "a.vk"
    viewkeep.make(url).close()
    monkeypatch.setattr("shutil.rmtree", lambda path: (_ for _ in ()).throw(OSError("stopped")))
    with pytest.raises(StoreError, match="stopped"):
        drop_store(str(url))
    with pytest.raises(StoreError, match="no database"):
        viewkeep.open(url, create=False)
    viewkeep.make(url).close()  # takes over what is left

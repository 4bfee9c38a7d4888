"""Backups, restoring and exports: what comes back is what was there."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

import viewkeep
from viewkeep import Database
from viewkeep.access import backup as backups
from viewkeep.access.backup import BackupFolder
from viewkeep.engine.local import catch_up
from viewkeep.errors import BackupError, InvalidRow, UnknownName

TABLES = """
CREATE TABLE people (name STRING PRIMARY KEY, born DATE, height DOUBLE, paid DECIMAL(10,2),
    photo BINARY, seen TIMESTAMP, active BOOLEAN, visits INT);
CREATE TABLE votes (story BIGINT, voter STRING, stars INT, PRIMARY KEY (story, voter))
"""
VIEWS = """
CREATE VIEW scores AS SELECT story, COUNT(*) AS votes, AVG(stars) AS mean FROM votes GROUP BY story;
CREATE VIEW best (s, n) AS SELECT story, votes FROM scores ORDER BY votes DESC, story LIMIT 3;
CREATE VIEW firsts AS SELECT voter, story FROM votes
    QUALIFY row_number() OVER (PARTITION BY voter ORDER BY story) = 1;
CREATE INDEX by_voter ON votes (voter DESC)
"""
PEOPLE = [
    {
        "name": 'it\'s \\ "Ann"\n,;',
        "born": dt.date(1999, 12, 31),
        "height": 1.5e-300,
        "paid": Decimal("-12345678.90"),
        "photo": b"\x00\xff'",
        "seen": dt.datetime(2026, 1, 2, 3, 4, 5, 678901),
        "active": True,
        "visits": -(2**31),
    },
    {"name": "zoë", "height": float("inf"), "visits": 2**31 - 1},
    {"name": "nobody"},
]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "PART_ROWS", 64)
    monkeypatch.setattr(backups, "_LEAST_ROWS", 16)


@pytest.fixture
def site(db: Database) -> Database:
    db.sql(TABLES)
    db.sql(VIEWS)
    db.put("people", PEOPLE)
    db.put("votes", votes(range(2_000)))
    return db


def votes(numbers: range) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "story": [n % 37 for n in numbers],
            "voter": [f"voter {n}" for n in numbers],
            "stars": [None if n % 5 == 0 else n % 7 for n in numbers],
        },
        schema={"story": pl.Int64, "voter": pl.String, "stars": pl.Int32},
    )


def content(db: Database) -> dict[str, list[dict[str, object]]]:
    catch_up(db.store)
    return {name: db.scan(name).rows() for name in [*db.tables(), *db.views()]}


def test_what_is_restored_is_what_was_there(site: Database, tmp_path: Path) -> None:
    done = site.backup(tmp_path / "backups")
    assert (done.rows, done.new_parts) == (2_003, done.parts)
    assert done.parts > 10
    with viewkeep.restore(tmp_path / "backups", tmp_path / "again.vk") as again:
        assert content(again) == content(site)
        assert [again.schema(v) for v in again.views()] == [site.schema(v) for v in site.views()]
        assert (again.store.tables.parts, again.store.state.shards) == (
            site.store.tables.parts,
            site.store.state.shards,
        )
        site.delete("votes", (0, "voter 0"))
        again.delete("votes", (0, "voter 0"))
        assert content(again) == content(site)
        again.backup(tmp_path / "backups 2")  # what was restored can be backed up


def test_a_later_backup_writes_what_has_changed(site: Database, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    first = site.backup(folder)
    assert site.backup(folder).new_parts == 0
    site.put("votes", votes(range(2_000, 2_001)))
    site.delete("votes", (1, "voter 1"))
    changed = site.backup(folder)
    assert 1 <= changed.new_parts <= first.parts / 3
    assert changed.rows == first.rows
    site.sql("DROP VIEW best; DROP VIEW scores; DROP VIEW firsts; DROP INDEX by_voter")
    site.sql("DROP TABLE votes")
    last = site.backup(folder)
    names = [saved.name for saved in BackupFolder(folder).backups()]
    assert len(names) == 4
    assert names[-1] == last.name

    with viewkeep.restore(folder, tmp_path / "old.vk", backup=first.name) as old:
        assert old.get("votes", (1, "voter 1")) is not None
        assert old.get("votes", (2_000 % 37, "voter 2000")) is None
    with viewkeep.restore(folder, tmp_path / "new.vk") as new:
        assert new.tables() == ["people"]
    with pytest.raises(BackupError, match="newest is"):
        viewkeep.restore(folder, tmp_path / "none.vk", backup="yesterday")

    assert BackupFolder(folder).keep(1) > 0
    assert [saved.name for saved in BackupFolder(folder).backups()] == [last.name]
    with viewkeep.restore(folder, tmp_path / "kept.vk") as kept:
        assert kept.scan("people").rows() == site.scan("people").rows()


def test_a_backup_sees_one_moment_while_writers_go_on(db: Database, tmp_path: Path) -> None:
    """Pairs of rows are written together, over all nodes; no backup has one of them alone."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, turn BIGINT)")
    db.sql("CREATE VIEW turns AS SELECT turn, COUNT(*) AS n FROM t GROUP BY turn")
    db.put("t", [{"id": i, "turn": 0} for i in range(500)])
    ended = threading.Event()

    def write() -> None:
        turn = 0
        while not ended.is_set():
            turn += 1
            db.put("t", [{"id": i, "turn": turn} for i in range(500)])
            catch_up(db.store)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        names = [db.backup(tmp_path / "backups").name for _ in range(5)]
    finally:
        ended.set()
        writer.join()
    for name in names:
        with viewkeep.restore(tmp_path / "backups", tmp_path / name, backup=name) as again:
            turns = {row["turn"] for row in again.scan("t")}
            assert (len(again.scan("t")), len(turns)) == (500, 1)


def test_damage_is_noticed_and_leaves_nothing(site: Database, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    site.backup(folder)
    part = max((folder / "parts").glob("*/*.parquet"), key=lambda path: path.stat().st_size)
    whole = part.read_bytes()
    for damaged in (whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], None):
        if damaged is None:
            part.unlink()
        else:
            part.write_bytes(damaged)
        with pytest.raises(BackupError, match=r"damaged|missing"):
            viewkeep.restore(folder, tmp_path / "again.vk")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["backups", "test.vk"]
    part.write_bytes(whole)
    viewkeep.restore(folder, tmp_path / "again.vk").close()
    with pytest.raises(BackupError, match="exists"):
        viewkeep.restore(folder, tmp_path / "again.vk")
    (record,) = (folder / "backups").glob("*.json")
    record.write_text(record.read_text()[:-20])
    with pytest.raises(BackupError, match="damaged"):
        viewkeep.restore(folder, tmp_path / "third.vk")


def test_a_backup_that_was_cut_off_is_none(
    site: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backups"
    before = site.backup(folder)
    site.put("votes", votes(range(2_000, 4_000)))
    monkeypatch.setattr(BackupFolder, "write", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        site.backup(folder)
    monkeypatch.undo()
    with viewkeep.restore(folder, tmp_path / "again.vk") as again:
        assert len(again.scan("votes")) == 2_000
    assert BackupFolder(folder).read().name == before.name


def test_a_restore_that_was_killed_is_done_again(site: Database, tmp_path: Path) -> None:
    site.backup(tmp_path / "backups")
    (tmp_path / "again.vk.restoring").mkdir()
    (tmp_path / "again.vk.restoring" / "viewkeep.json").write_text("{")
    with viewkeep.restore(tmp_path / "backups", tmp_path / "again.vk", nodes=1) as again:
        assert content(again) == content(site)
        assert again.store.tables.parts == 1


def test_no_backup(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="no backup"):
        viewkeep.restore(tmp_path, tmp_path / "again.vk")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
def test_exports_load_again(site: Database, tmp_path: Path, suffix: str) -> None:
    for name in site.tables():
        path = tmp_path / f"{name}.{suffix}"
        assert site.export(name, path) == len(site.scan(name))
        with viewkeep.open(tmp_path / f"{suffix}-{name}.vk") as again:
            again.sql(TABLES)
            again.load(name, path, progress=False)
            assert again.scan(name).rows() == site.scan(name).rows()


def test_views_are_exported_at_the_published_epoch(site: Database, tmp_path: Path) -> None:
    catch_up(site.store)
    expected = site.scan("best").polars()
    site.put("votes", votes(range(2_000, 3_000)))
    assert site.export("BEST", tmp_path / "best.parquet") == 3
    assert pl.read_parquet(tmp_path / "best.parquet").rows() == expected.rows()
    with pytest.raises(UnknownName, match="INSERT"):
        site.export("best", tmp_path / "best.sql")
    with pytest.raises(InvalidRow, match="format"):
        site.export("best", tmp_path / "best.xlsx")
    with pytest.raises(UnknownName):
        site.export("wurst", tmp_path / "best.csv")
    assert not list(tmp_path.glob(".*"))


def test_sql_exports_run(site: Database, tmp_path: Path) -> None:
    with viewkeep.open(tmp_path / "again.vk") as again:
        for name in site.tables():
            site.export(name, tmp_path / f"{name}.sql")
            again.sql((tmp_path / f"{name}.sql").read_text())
            assert again.scan(name).rows() == site.scan(name).rows()

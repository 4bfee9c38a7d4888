"""Loading folders, globs and several files; following a folder, exactly once."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import viewkeep
from viewkeep.errors import DuplicateKey, InvalidRow

if TYPE_CHECKING:
    from viewkeep import Database


@pytest.fixture
def site(db: Database) -> Database:
    db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, day DATE, stars INT)")
    return db


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def part(folder: Path, name: str, ids: range) -> None:
    """A file that appears whole, as Spark makes its own."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"_{name}"
    pl.DataFrame({"id": list(ids), "stars": [n % 5 for n in ids]}).write_parquet(draft)
    draft.rename(folder / name)


def ids(db: Database) -> list[int]:
    return [row["id"] for row in db.scan("votes")]


def test_a_folder_as_spark_writes_it(site: Database, inbox: Path) -> None:
    out = inbox / "out"
    part(out / "day=2026-01-01", "part-00000.snappy.parquet", range(3))
    part(out / "day=2026-01-02", "part-00000.snappy.parquet", range(3, 5))
    part(out / "day=__HIVE_DEFAULT_PARTITION__", "part-00001.snappy.parquet", range(5, 6))
    (out / "_SUCCESS").touch()
    (out / "day=2026-01-01" / ".part-00000.snappy.parquet.crc").write_bytes(b"crc")
    part(out / "_temporary" / "0", "part-9.parquet", range(90, 99))
    loaded = site.load("votes", out, progress=False)
    assert (loaded.rows, loaded.files) == (6, 3)
    days = {row["id"]: row["day"] for row in site.scan("votes")}
    first, second = dt.date(2026, 1, 1), dt.date(2026, 1, 2)
    assert days == {0: first, 1: first, 2: first, 3: second, 4: second, 5: None}


def test_globs_and_several_files(site: Database, inbox: Path) -> None:
    for number in range(4):
        part(inbox, f"{number}.parquet", range(number * 2, number * 2 + 2))
    assert site.load("votes", str(inbox / "[01].parquet"), progress=False).files == 2
    assert site.load("votes", [inbox / "2.parquet", inbox / "3.parquet"]).rows == 4
    assert ids(site) == list(range(8))
    with pytest.raises(InvalidRow, match="no file matches"):
        site.load("votes", str(inbox / "*.csv"))
    (inbox / "empty").mkdir()
    with pytest.raises(InvalidRow, match="holds no Parquet"):
        site.load("votes", inbox / "empty")


def test_csv_files_in_folders_of_days(site: Database, inbox: Path) -> None:
    folder = inbox / "day=2026-02-03"
    folder.mkdir()
    (folder / "a.csv").write_text("id,stars\n1,5\n2,\n")
    site.load("votes", inbox, progress=False)
    assert site.get("votes", 2) == {"id": 2, "day": dt.date(2026, 2, 3), "stars": None}
    wrong = inbox / "other" / "month=1"
    wrong.mkdir(parents=True)
    (wrong / "b.csv").write_text("id,stars\n3,5\n")
    with pytest.raises(InvalidRow, match="votes has no column month"):
        site.load("votes", inbox / "other", progress=False)


def test_an_error_names_the_file(site: Database, inbox: Path) -> None:
    part(inbox, "1.parquet", range(3))
    (inbox / "2.csv").write_text("id,stars\n7,one\n")
    with pytest.raises(InvalidRow, match=r"2\.csv: votes, row 1: column stars.*3 rows before"):
        site.load("votes", inbox, progress=False)


def test_each_file_is_taken_once(site: Database, inbox: Path) -> None:
    loader = site.follow("votes", inbox)
    assert list(loader.look()) == []
    part(inbox, "a.parquet", range(5))
    assert list(loader.look()) == []  # it may still grow
    assert [(taken.file, taken.rows) for taken in loader.look()] == [("a.parquet", 5)]
    part(inbox / "later", "b.parquet", range(5, 7))
    site.delete("votes", 0)
    again = site.follow("votes", inbox)  # as after a restart
    assert [taken.file for taken in again.look(settled=True)] == ["later/b.parquet"]
    assert list(again.look(settled=True)) == list(loader.look(settled=True)) == []
    assert ids(site) == list(range(1, 7))  # the row that was deleted did not come back
    assert len(site.scan("loaded_files")) == 2


def test_a_file_goes_on_where_it_was_left(site: Database, inbox: Path) -> None:
    part(inbox, "a.parquet", range(10))
    loader = site.follow("votes", inbox)
    loader.batch_rows, write = 3, loader.write
    left = iter([True, True])

    def dies(writes: object) -> object:
        if next(left, None) is None:
            raise OSError("killed")
        return write(writes)  # type: ignore[arg-type]

    loader.write = dies
    with pytest.raises(OSError, match="killed"):
        list(loader.look(settled=True))
    assert ids(site) == list(range(6))
    again = site.follow("votes", inbox)
    again.batch_rows = 4  # of other sizes
    assert [taken.rows for taken in again.look(settled=True)] == [4]
    assert ids(site) == list(range(10))


def test_a_bad_file_stops_the_loader(site: Database, inbox: Path) -> None:
    part(inbox, "a.parquet", range(5))
    part(inbox, "b.parquet", range(4, 6))
    loader = site.follow("votes", inbox)
    with pytest.raises(DuplicateKey, match=r"b\.parquet.*0 rows of it are loaded"):
        list(loader.look(settled=True))
    (inbox / "b.parquet").unlink()
    assert list(loader.look(settled=True)) == []
    assert ids(site) == list(range(5))


def test_two_loaders_share_a_folder(site: Database, inbox: Path) -> None:
    for number in range(6):
        part(inbox, f"{number}.parquet", range(number * 50, number * 50 + 50))
    failures: list[BaseException] = []

    def take() -> None:
        try:
            loader = site.follow("votes", inbox)
            loader.batch_rows = 7
            list(loader.look(settled=True))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ids(site) == list(range(300))


def test_once_each_through_kills(tmp_path: Path) -> None:
    """A loader that is killed at random moments, while files come: every row once."""
    url, inbox = str(tmp_path / "a.vk"), tmp_path / "inbox"
    with viewkeep.open(url, durability="relaxed") as db:
        # A row for each arrival: a row that came twice would be counted twice.
        db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, day DATE, stars INT)")
    code = (
        "import sys, viewkeep\n"
        "with viewkeep.open(sys.argv[1]) as db:\n"
        "    loader = db.follow('votes', sys.argv[2]); loader.batch_rows = 5\n"
        "    print('ready', flush=True)\n"
        "    for taken in loader.look(settled=True): print(taken.file, flush=True)\n"
    )
    choice, total = random.Random(7), 0
    for number in range(5):
        part(inbox, f"{number}.parquet", range(total, total + 400))
        total += 400
        with subprocess.Popen(
            [sys.executable, "-c", code, url, str(inbox)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with viewkeep.open(url) as db:  # killed after so many rows
                goal = choice.randrange(total - 300, total)
                while len(db.scan("votes")) < goal and process.poll() is None:
                    pass
            process.send_signal(signal.SIGKILL)
    with viewkeep.open(url) as db:
        list(db.follow("votes", inbox).look(settled=True))
        assert ids(db) == list(range(total))
        assert all(row["is_whole"] for row in db.scan("loaded_files"))
        assert db.sql("SELECT SUM(loaded) AS n FROM loaded_files").one() == {"n": total}
    assert os.listdir(inbox)

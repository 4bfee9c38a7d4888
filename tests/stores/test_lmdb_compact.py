"""Compaction: smaller files with the same records, whatever happens in between."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import viewkeep
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.errors import Corrupt, StoreError, StoreFull
from viewkeep.stores import compact_store
from viewkeep.stores.lmdb import compact, environment

from . import processes

ROWS = 10_000
DATA = "data.mdb"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database that has held ten times what it holds."""
    path = tmp_path / "db.vk"
    with viewkeep.make(path, durability="relaxed") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)")
        db.sql("CREATE TABLE gone (id BIGINT PRIMARY KEY, s STRING)")
        db.sql("CREATE VIEW v AS SELECT s, COUNT(*) AS n FROM t GROUP BY s")
        db.put("t", [{"id": n, "s": f"{n % 7}"} for n in range(100)])
        db.put("gone", [{"id": n, "s": "x" * 500} for n in range(ROWS)])
        catch_up(db.store)
        db.sql("DROP TABLE gone")
        catch_up(db.store)
        while housekeep(db.store):
            pass
    return str(path)


def files(url: str) -> list[Path]:
    return sorted(Path(url).glob(f"*/{DATA}"))


def size(url: str) -> int:
    return sum(file.stat().st_size for file in files(url))


def check(url: str) -> None:
    """All is there, and the database goes on."""
    with viewkeep.open(url, create=False) as db:
        assert len(db.scan("t")) >= 100
        assert {row["s"]: row["n"] for row in db.scan("v").rows()}.keys() == set("0123456")
        number = len(db.scan("t"))
        db.put("t", {"id": number, "s": "0"})
        catch_up(db.store)
        assert sum(row["n"] for row in db.scan("v").rows()) == number + 1


def test_files_get_smaller_and_hold_the_same(url: str) -> None:
    modes = [file.stat().st_mode for file in files(url)]
    before = size(url)
    assert before > ROWS * 500
    assert compact_store(url) == (before, size(url))
    assert size(url) < before / 3
    assert [file.stat().st_mode for file in files(url)] == modes
    assert not list(Path(url).glob("*/compacted.mdb"))
    check(url)
    again, _ = compact_store(url)
    assert size(url) <= again
    check(url)


def test_the_commit_records_of_a_copy_are_not_made_again(tmp_path: Path) -> None:
    """Its transactions are counted from 1, and those in the records had numbers like these."""
    path = str(tmp_path / "small.vk")
    with viewkeep.make(path, nodes=1, shards=1) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)")
        db.put("t", [{"id": n, "s": "x" * 300} for n in range(2_000)])
        db.sql("DELETE FROM t WHERE id < 1900")
    for number in range(6):
        compact_store(path)
        with viewkeep.open(path, create=False) as db:
            assert len(db.scan("t")) == 100 + number
            db.put("t", {"id": number, "s": "y"})
            db.put("t", {"id": number, "s": "z"})


def test_it_refuses_while_somebody_has_it_open(url: str) -> None:
    before = size(url)
    with viewkeep.open(url), pytest.raises(StoreError, match="open in this process"):
        compact_store(url)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import viewkeep; db = viewkeep.open({url!r}); print('open', flush=True); input()",
        ],
        env=processes.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreError, match="open in another process"):
            compact_store(url)
    finally:
        holder.communicate(b"\n")
    assert size(url) == before
    check(url)


KILLED = """
import os, signal, sys
from viewkeep.stores import compact_store
from viewkeep.stores.lmdb import compact

left = int(sys.argv[2])

def dies(function):
    def run(*given):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        function(*given)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
    return run

compact.os.replace = dies(os.replace)
compact.os.fsync = dies(os.fsync)
compact_store(sys.argv[1])
"""


def test_killed_at_any_place_it_leaves_a_whole_database(url: str, tmp_path: Path) -> None:
    """Before and after each file is synced and takes its place."""
    for place in range(100):
        copy = str(tmp_path / f"copy-{place}.vk")
        shutil.copytree(url, copy)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, copy, str(place)],
            env=processes.environment(),
            check=False,
        )
        check(copy)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        before, after = compact_store(copy)
        assert after <= before
        assert not list(Path(copy).glob("*/compacted.mdb"))
        check(copy)
    assert place > 15


def test_a_full_disk_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, os.strerror(28))

    before = size(url)
    monkeypatch.setattr(compact.os, "fsync", full)
    with pytest.raises(StoreFull):
        compact_store(url)
    monkeypatch.undo()
    assert size(url) == before
    assert not list(Path(url).glob("*/compacted.mdb"))
    check(url)


def test_a_copy_that_lacks_records_does_not_take_the_place(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([[3], [2]])
    monkeypatch.setattr(compact, "_counts", lambda env, dbs: next(counts))
    with pytest.raises(Corrupt, match="other records"):
        compact_store(url)
    monkeypatch.undo()
    check(url)


def test_who_opens_it_meanwhile_gets_the_new_file(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB waits before it opens a file; then another one may have taken its place."""
    made = environment._open
    calls = []

    def replaced(path: Path, *given: object, **options: object) -> object:
        if not calls:
            copy = path / "copy"
            shutil.copy(path / DATA, copy)
            os.replace(copy, path / DATA)
        calls.append(path)
        return made(path, *given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(environment, "_open", replaced)
    with viewkeep.open(url) as db, viewkeep.open(url) as other:
        assert len(calls) == len(set(calls)) + 1, "each file is open once, but the first"
        db.put("t", {"id": 1_000, "s": "x"})
        assert other.get("t", 1_000) == {"id": 1_000, "s": "x"}


def test_a_process_that_opens_it_meanwhile_waits(url: str) -> None:
    """What it then writes is in the new file, and not in the old one."""
    folder = Path(url) / "node-0"
    rows = [{"id": n} for n in range(1_000, 1_100)]
    code = f"import viewkeep; viewkeep.open({url!r}).put('t', {rows})"
    with environment.closed_to_others(folder):
        with pytest.raises(StoreError, match="is being compacted"):
            viewkeep.open(url, create=False)
        writer = subprocess.Popen([sys.executable, "-c", code], env=processes.environment())
        while not waits_for_lock(writer.pid):
            assert writer.poll() is None
            threading.Event().wait(0.01)
        shutil.copy(folder / DATA, folder / "copy")
        os.replace(folder / "copy", folder / DATA)
    assert writer.wait(60) == 0
    with viewkeep.open(url, create=False) as db:
        assert len(db.scan("t")) == 200


def waits_for_lock(process: int) -> bool:
    """Whether a process waits for a lock of a file, by what the system says."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f" {process} " in line for line in lines)

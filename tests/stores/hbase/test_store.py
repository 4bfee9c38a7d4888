"""Views over tables of HBase that its ordinary clients write, on a real cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import viewkeep
from viewkeep.access.live import lost_rows
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.errors import (
    DuplicateKey,
    EpochGone,
    Fenced,
    InvalidRow,
    StoreError,
    UnknownName,
    Unsupported,
)
from viewkeep.plan.nodes import CellSource
from viewkeep.stores import open_store
from viewkeep.stores.contract import StateWrite
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.store import HbaseStore
from viewkeep.stores.hbase.wire import Cell, Column, Delete, Deletion, Family, Put

pytestmark = pytest.mark.hbase

CREATE = """CREATE TABLE votes (story STRING, user STRING, n BIGINT, note STRING,
                PRIMARY KEY (story, user))
            USING hbase OPTIONS ('table' = '{table}', 'key' = '{{story:text}}|{{user:text}}',
                'columns' = 'n=d:n:text, note=e:note')"""
SCORES = """CREATE VIEW scores AS
            SELECT story, COUNT(*) AS votes, SUM(n) AS total FROM votes GROUP BY story"""


class Site:
    """A database, and a client of HBase that knows nothing of it."""

    def __init__(self, url: str, namespace: str, connection: HbaseConnection):
        self.url, self.namespace, self.client = url, namespace, connection
        self.table = f"{namespace}:votes"
        self._at = time.time_ns() // 1_000_000

    def vote(self, key: str, n: object, at: int | None = None, note: str | None = None) -> int:
        """Put as HBase's shell would: n as text."""
        self._at = max(self._at + 1, time.time_ns() // 1_000_000)
        at = self._at if at is None else at
        cells = [Cell(b"d", b"n", str(n).encode(), at)]
        cells += [] if note is None else [Cell(b"e", b"note", note.encode(), at)]
        self.client.put(self.table, [Put(key.encode(), cells)])
        return at

    def delete(self, key: str, columns: list[Column], kind: int) -> None:
        self.client.delete(self.table, [Delete(key.encode(), columns, kind=kind)])

    def settle(self, db: viewkeep.Database) -> dict[str, tuple[int, int]]:
        """The view once all that was written by now is in it, checked against HBase itself."""
        mark = self.vote("mark|mark", 0)
        written = {(self.table, b"mark|mark", mark)}
        assert isinstance(db.store, HbaseStore)
        db.store.log.after_write(db.store.log.kept(), written, 60)
        catch_up(db.store)
        shown = {row["story"]: (row["votes"], row["total"]) for row in db.scan("scores")}
        assert shown.pop("mark") == (1, 0)
        assert shown == self.recomputed()
        return shown

    def recomputed(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for row in self.client.scan(self.table, limit=10_000):
            story, _, user = (row.key or b"").decode(errors="replace").partition("|")
            values = {(cell.family, cell.qualifier): cell.value for cell in row.cells}
            text = values.get((b"d", b"n"), b"")
            n = int(text) if text.isdigit() else None
            if (
                story not in ("mark", "\ufffd")
                and user
                and (n is not None or (b"e", b"note") in values)
            ):
                votes, total = found.get(story, (0, 0))
                found[story] = votes + 1, total + (n or 0)
        return found


@pytest.fixture
def site(
    connection: HbaseConnection,
    namespace: str,
    peer: Callable[[str], None],
    tmp_path: Path,
) -> Site:
    url = f"hbase://{connection.address}/{namespace}?state={tmp_path}"
    viewkeep.make(url, shards=2).close()
    peer(f"{namespace}:log")
    return Site(url, namespace, connection)


@pytest.fixture
def db(site: Site) -> Iterator[viewkeep.Database]:
    with closing(viewkeep.open(site.url, create=False)) as made:
        yield made


def test_rows_of_ordinary_clients_are_kept(site: Site, db: viewkeep.Database) -> None:
    """Those that were there before, late ones, and everything that a client can delete."""
    client = site.client
    client.create_table(site.table, [Family(b"d", versions=5), Family(b"e")])
    for number in range(20):
        site.vote(f"s{number % 3}|u{number}", number)
    before = site.vote("s0|gone", 1)
    site.delete("s0|gone", [Column(b"d", b"n", before)], Deletion.CELLS)
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    assert len(site.settle(db)) == 3

    first = site.vote("s1|me", 5)
    site.vote("s1|me", 7)
    site.vote("s2|late", 3, at=first - 100_000)
    site.vote("s2|late", 2, at=first - 200_000)
    site.vote("s0|gone", 9, at=before - 1)  # HBase hides it, and so do we
    assert site.settle(db)["s1"][1] == sum(range(1, 20, 3)) + 7

    latest = site.vote("s1|me", 100)
    site.delete("s1|me", [Column(b"d", b"n", latest)], Deletion.VERSION)
    assert site.settle(db)["s1"][1] == sum(range(1, 20, 3)) + 7
    site.vote("s1|me", 8, note="note")
    now = site.vote("s1|other", 1, note="note")
    site.delete("s1|me", [Column(b"d", None, now)], Deletion.FAMILY)
    assert site.settle(db)["s1"] == (9, sum(range(1, 20, 3)) + 1)
    client.delete(site.table, [Delete(b"s1|other", None, now + 1), Delete(b"s1|me", None, now + 1)])
    assert site.settle(db)["s1"] == (7, sum(range(1, 20, 3)))


def test_bad_cells_and_row_keys_stop_nothing(site: Site, db: viewkeep.Database) -> None:
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    site.vote("s|a", 1)
    site.vote("s|b", "many", note="b")
    site.vote("no-separator", 5)
    site.client.put(site.table, [Put(b"\xff|x", [Cell(b"d", b"n", b"1", 1)])])
    catch_up(db.store)
    site.settle(db)
    (met,) = db.status().unreadable
    assert met.table == "votes"
    assert met.rows >= 2
    assert met.cells >= 1
    assert met.last


def test_a_view_is_read_at_its_epoch_and_by_anyone(site: Site, db: viewkeep.Database) -> None:
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    site.vote("s|a", 1)
    site.settle(db)
    with db.snapshot() as then:
        for number in range(40):
            site.vote(f"s|{number}", 2)
            catch_up(db.store)
            housekeep(db.store)
        site.settle(db)
        assert then.get("scores", "s") == {"story": "s", "votes": 1, "total": 1}
    assert db.get("scores", "s") == {"story": "s", "votes": 41, "total": 81}
    (row,) = [
        row
        for row in site.client.scan(f"{site.namespace}:scores", limit=100)
        if b"mark" not in (row.key or b"")
    ]
    shown = {cell.qualifier: cell.value for cell in row.cells if cell.family == b"v"}
    assert shown == {
        b"story": b"s",
        b"votes": (41).to_bytes(8, "big"),
        b"total": (81).to_bytes(8, "big"),
    }


def test_rows_are_written_by_viewkeep_too(site: Site, db: viewkeep.Database) -> None:
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    with db.session() as session:
        session.put("votes", {"story": "s", "user": "a", "n": 1, "note": None})
        session.put("votes", [{"story": "s", "user": f"u{n}", "n": n} for n in range(20)])
        catch_up(db.store)
        assert session.get("scores", "s") == {"story": "s", "votes": 21, "total": 191}
        db.sql("UPDATE votes SET n = 50, note = 'x' WHERE story = 's' AND user = 'a'")
        db.sql("DELETE FROM votes WHERE story = 's' AND user = 'u19'")
        db.sql("INSERT INTO votes VALUES ('t', 'a', 2, NULL)")
        with pytest.raises(DuplicateKey):
            db.sql("INSERT INTO votes VALUES ('t', 'a', 3, NULL)")
        with pytest.raises(InvalidRow, match="not NULL"):
            db.sql("INSERT INTO votes VALUES ('t', 'b', NULL, NULL)")
        with pytest.raises(InvalidRow, match="ends it in the row key"):
            db.sql("INSERT INTO votes VALUES ('a|b', 'c', 1, NULL)")
    catch_up(db.store)
    assert site.settle(db) == {"s": (20, 221), "t": (1, 2)}
    assert db.get("votes", ("s", "a")) == {"story": "s", "user": "a", "n": 50, "note": "x"}
    rows = db.scan("votes", prefix=("s",), limit=3)
    assert [row["user"] for row in rows] == ["a", "u0", "u1"]
    pin = db.epochs.pin()
    assert lost_rows(db.store, db.epochs, db.catalog.current().tables["votes"], pin) == 0


def test_a_table_without_a_place_is_made(site: Site, db: viewkeep.Database) -> None:
    """It lies in the database's namespace; dropping it leaves its rows."""
    db.sql("CREATE TABLE pages (id BIGINT PRIMARY KEY, title STRING)")
    db.put("pages", {"id": -1, "title": "a"})
    db.sql("CREATE VIEW titles AS SELECT id, title FROM pages")
    catch_up(db.store)
    assert db.get("titles", -1) == {"id": -1, "title": "a"}
    db.sql("DROP VIEW titles")
    db.sql("DROP TABLE pages")
    catch_up(db.store)
    with pytest.raises(UnknownName):
        db.get("pages", -1)
    (row,) = site.client.scan(f"{site.namespace}:pages", limit=10)
    assert (row.key, row.cells[0].value) == ((-1).to_bytes(8, "big", signed=True), b"a")


def test_a_table_that_is_dropped_is_logged_no_longer(site: Site, db: viewkeep.Database) -> None:
    """Unless another table of SQL is over the same one of HBase."""
    assert isinstance(db.store, HbaseStore)
    other = CREATE.replace("TABLE votes", "TABLE others")
    for statement in (CREATE, other):
        db.sql(statement.format(table=site.table))
    for name, listed in (("votes", {site.table}), ("others", set())):
        db.sql(f"DROP TABLE {name}")
        catch_up(db.store)
        while housekeep(db.store):
            pass
        assert db.store.log.heads().tables == listed
    db.sql(CREATE.format(table=site.table))
    assert db.store.log.heads().tables == {site.table}


def test_its_statement_makes_the_table_again(site: Site, db: viewkeep.Database) -> None:
    db.sql(CREATE.format(table=site.table))
    ((text,),) = db.sql("SHOW CREATE TABLE votes").tuples()
    before = db.catalog.current().tables["votes"]
    db.sql("DROP TABLE votes")
    db.sql(text)
    after = db.catalog.current().tables["votes"]
    assert isinstance(before, CellSource)
    assert isinstance(after, CellSource)
    assert (after.schema, after.options) == (before.schema, before.options)


def test_a_replaced_view_is_a_table_beside_the_old_one(site: Site, db: viewkeep.Database) -> None:
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    site.vote("s|a", 4)
    site.settle(db)
    db.sql(SCORES.replace("VIEW", "OR REPLACE VIEW").replace("SUM(n)", "MAX(n)"))
    catch_up(db.store)
    assert db.get("scores", "s") == {"story": "s", "votes": 1, "total": 4}
    tables = [name for name in site.client.tables(site.namespace) if ":scores" in name]
    assert len(tables) >= 1


def test_epochs_that_were_given_up_are_taken_back(site: Site, db: viewkeep.Database) -> None:
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    site.vote("s|a", 1)
    site.settle(db)
    views, at = db.store.views, db.epochs.read().published.epoch
    placement = db.catalog.current().program.placements["scores"]
    number = placement.table.number
    held = {
        shard: views.scan(shard, number, limit=10, at=at) for shard in range(db.store.state.shards)
    }
    shard = next(shard for shard, chunk in held.items() if chunk.keys)
    keys = held[shard].keys
    new = [b"\x01x\0\0"]
    rows = held[shard].rows
    views.apply(
        shard, at + 1, at, [StateWrite(number, [*keys, *new], [None] * len(keys) + rows[:1])]
    )
    assert views.get(shard, number, keys, at) == rows
    assert views.get(shard, number, [*keys, *new], at + 1) == [None] * len(keys) + rows[:1]
    views.revert(shard, at, at + 2)
    views.revert(shard, at, at + 2)
    assert views.get(shard, number, [*keys, *new], None) == [*rows, None]
    assert views.scan(shard, number, limit=10, at=at + 2) == held[shard]
    with pytest.raises(Fenced):
        views.apply(shard, at + 2, at, [StateWrite(number, new, rows[:1])])
    shown = site.client.get_many(f"{site.namespace}:scores", [bytes([shard]) + k for k in keys])
    assert all(any(cell.family == b"v" for cell in row.cells) for row in shown)
    views.apply(shard, at + 3, at, [StateWrite(number, keys[:1], [None])])
    assert views.get(shard, number, keys[:1], at + 3) == [None]
    assert views.changes(shard, number, at, at + 3, limit=10).versions == [
        [(at, rows[0]), (at + 3, None)]
    ]


def test_what_a_late_task_left_is_passed_over(site: Site, db: viewkeep.Database) -> None:
    """A task of an epoch that was given up may die after its write, before it takes that back."""
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    site.vote("s|a", 1)
    site.settle(db)
    views, name = db.store.views, f"{site.namespace}:scores"
    number = db.catalog.current().program.placements["scores"].table.number
    chunks = [views.scan(shard, number, limit=9, at=None) for shard in range(2)]
    row = next(row for chunk in chunks for row in chunk.rows)
    one, two, gone = keys = [b"\x01one\0\0", b"\x01two\0\0", b"\x01zgone\0\0"]
    views.apply(0, 1000, 990, [StateWrite(number, keys, [row] * 3)])
    views.apply(0, 1001, 990, [StateWrite(number, [gone], [None])])
    views.revert(0, 1001, 1003)
    left = {one: b"", two: b"", gone: row}
    cells = {key: [Cell(b"r", b"", value)] for key, value in left.items()}
    site.client.put(name, [Put(b"\0" + key, some, 1002) for key, some in cells.items()])
    for at in (1001, 1003, 1004, None):
        assert views.get(0, number, keys, at) == [row, row, None]
        chunk = views.scan(0, number, limit=9, at=at)
        shown = dict(zip(chunk.keys, chunk.rows, strict=True))
        assert [shown.get(key) for key in keys] == [row, row, None]
    changed = views.changes(0, number, 1000, 1004, start=one, limit=9)
    assert (changed.keys, changed.versions) == ([gone], [[(1000, row), (1001, None)]])
    views.apply(0, 1008, 1004, [StateWrite(number, [two], [row])])  # a multiple of 16 trims
    versions = site.client.get(name, b"\0" + two, [Column(b"r")], versions=100)
    assert [cell.timestamp for cell in versions.cells] == [1008, 1000]
    assert not views.sweep(0, 1006)
    assert views.get(0, number, keys, 1006) == [row, row, None]
    views.revert(1, 1001, 1003)
    with pytest.raises(Fenced, match="given up"):
        views.apply(1, 1002, 990, [])
    with pytest.raises(Fenced, match="was closed"):
        views.apply(0, 1000, 990, [StateWrite(number, [gone], [row])])


def test_versions_go_with_the_horizon(site: Site, db: viewkeep.Database) -> None:
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    site.vote("s|a", 1)
    site.settle(db)
    views = db.store.views
    number = db.catalog.current().program.placements["scores"].table.number
    (row,) = [
        row
        for shard in range(2)
        for chunk in [views.scan(shard, number, limit=9, at=None)]
        for key, row in zip(chunk.keys, chunk.rows, strict=True)
        if b"mark" not in key
    ]
    keys, name = [b"\x01kept\0\0", b"\x01gone\0\0"], f"{site.namespace}:scores"
    for epoch in range(1000, 1011):
        views.apply(0, epoch, 990, [StateWrite(number, keys, [row, row])])
    views.apply(0, 1011, 990, [StateWrite(number, keys[1:], [None])])
    assert views.get(0, number, keys, 1005) == [row, row]
    assert views.get(0, number, keys, 1011) == [row, None]
    views.apply(0, 1024, 1015, [StateWrite(number, keys[:1], [row])])  # a multiple of 16 trims
    versions = site.client.get(name, b"\0" + keys[0], [Column(b"r")], versions=100)
    assert [cell.timestamp for cell in versions.cells] == [1024, 1010]
    assert views.get(0, number, keys, 1015) == [row, None]
    with pytest.raises(EpochGone, match="1014"):
        views.get(0, number, keys, 1014)
    with pytest.raises(EpochGone):
        views.scan(0, number, limit=1, at=1014)
    with pytest.raises(EpochGone):
        views.changes(0, number, 1014, 1024, limit=1)
    assert not views.sweep(0, 1016)
    assert not site.client.get(name, b"\0" + keys[1]).cells
    assert views.get(0, number, keys, 1016) == [row, None]


def test_what_cannot_be(site: Site, db: viewkeep.Database) -> None:
    site.client.create_table(site.table, [Family(b"d")])
    with pytest.raises(StoreError, match="has no family e; it has d"):
        db.sql(CREATE.format(table=site.table))
    with pytest.raises(Unsupported, match="no option 'tabel'"):
        db.sql("CREATE TABLE t (a STRING PRIMARY KEY, b INT) USING hbase OPTIONS ('tabel' = 'x')")
    with pytest.raises(StoreError, match="is a database already"):
        viewkeep.make(site.url)
    nowhere = site.url.replace(site.namespace, "nowhere")
    with pytest.raises(StoreError, match="there is no database at"):
        viewkeep.open(nowhere, create=False)


def test_other_processes_see_the_same(site: Site, db: viewkeep.Database) -> None:
    db.sql(CREATE.format(table=site.table))
    db.sql(SCORES)
    site.vote("s|a", 1)
    site.settle(db)
    seen = db.store.ticks()
    with closing(open_store(site.url)) as other:
        assert other.ticks() == seen
        assert other.meta.cas("a", None, b"1")
        assert db.store.wait(seen, 30) == other.ticks() != seen
    seen = db.store.ticks()
    site.vote("s|b", 1)
    assert db.store.wait(seen, 30) != seen

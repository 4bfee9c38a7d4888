"""Reading tables and views: keys, prefixes, ranges, at one cut."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viewkeep
from viewkeep.errors import (
    EpochGone,
    InvalidReadPoint,
    InvalidRow,
    Locked,
    NotReady,
    Timeout,
    UnknownName,
)
from viewkeep.stores.contract import Store
from viewkeep.stores.wrapped import WrappedStore

if TYPE_CHECKING:
    from pathlib import Path

    from viewkeep import Database
    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]

SITE = """
    CREATE TABLE votes (story BIGINT, voter STRING, stars INT, PRIMARY KEY (story, voter));
    CREATE VIEW scores AS SELECT story, COUNT(*) AS votes, SUM(stars) AS stars
        FROM votes GROUP BY story;
    CREATE VIEW totals AS SELECT COUNT(*) AS votes FROM votes;
    CREATE VIEW ranking AS SELECT votes, story FROM scores ORDER BY votes DESC, story;
"""


@pytest.fixture
def site(db: Database) -> Database:
    db.sql(SITE)
    return db


def vote(db: Database, story: int, count: int) -> None:
    db.put("votes", [{"story": story, "voter": f"v{n}", "stars": n} for n in range(count)])


def test_views_before_and_after_the_pipeline(site: Database, catch_up: CatchUp) -> None:
    vote(site, 1, 3)
    with pytest.raises(
        NotReady, match=r"scores waits to be loaded; run the pipeline: viewkeep run"
    ):
        site.get("scores", 1)
    catch_up()
    assert site.get("scores", 1) == {"story": 1, "votes": 3, "stars": 3}
    assert site.get("scores", (1,)) == site.get("scores", {"story": 1})
    assert site.get("scores", 2) is None
    assert site.get("totals") == {"votes": 3}


def test_stable_and_latest(site: Database, catch_up: CatchUp) -> None:
    vote(site, 1, 2)
    catch_up()
    vote(site, 1, 5)
    assert site.get("scores", 1) == {"story": 1, "votes": 2, "stars": 1}
    assert len(site.scan("votes")) == 5
    assert len(site.scan("votes", at="latest")) == 5
    assert len(site.scan("votes", at="stable")) == 2
    assert site.get("votes", (1, "v4")) is not None
    assert site.get("votes", (1, "v4"), at="stable") is None
    with pytest.raises(InvalidReadPoint, match="stable"):
        site.get("scores", 1, at="yesterday")  # type: ignore[arg-type]


def test_get_many(site: Database, catch_up: CatchUp) -> None:
    for story in range(20):
        vote(site, story, story + 1)
    catch_up()
    rows = site.get_many("scores", [3, 99, 0])
    assert [row and row["votes"] for row in rows] == [4, None, 1]
    assert site.get_many("votes", [(1, "v0"), (1, "zz")])[1] is None


def test_prefix_and_range(site: Database, catch_up: CatchUp) -> None:
    for story in range(10):
        vote(site, story, 3)
    catch_up()
    assert [r["voter"] for r in site.scan("votes", prefix=4)] == ["v0", "v1", "v2"]
    assert site.scan("votes", prefix=(4,), range=("v1", None)).tuples() == [
        (4, "v1", 1),
        (4, "v2", 2),
    ]
    assert [r["story"] for r in site.scan("scores", range=(3, 6))] == [3, 4, 5]
    assert [r["story"] for r in site.scan("scores", range=(None, 2))] == [0, 1]
    assert [r["story"] for r in site.scan("scores", limit=2, reverse=True)] == [9, 8]
    assert len(site.scan("scores", limit=0)) == 0
    assert len(site.scan("scores", prefix=77)) == 0
    with pytest.raises(InvalidRow, match="the key of scores is"):
        site.scan("scores", prefix=(1, 2))
    with pytest.raises(InvalidRow, match="key column 1: needs an int"):
        site.scan("scores", prefix="one")
    with pytest.raises(InvalidRow, match="negative"):
        site.scan("scores", limit=-1)


def test_index_view_is_read_in_its_order(site: Database, catch_up: CatchUp) -> None:
    for story, count in ((1, 2), (2, 5), (3, 1), (4, 5)):
        vote(site, story, count)
    catch_up()
    assert site.scan("ranking").tuples() == [(5, 2), (5, 4), (2, 1), (1, 3)]
    assert site.scan("ranking", limit=2).tuples() == [(5, 2), (5, 4)]
    assert site.scan("ranking", prefix=5).tuples() == [(5, 2), (5, 4)]
    with pytest.raises(InvalidRow, match="Use scan"):
        site.get("ranking", 5)


def test_multi_view_read_is_one_cut(site: Database, catch_up: CatchUp) -> None:
    vote(site, 1, 2)
    catch_up()
    vote(site, 1, 4)
    rows = site.read([("scores", 1), ("totals", ()), ("votes", (1, "v3"))])
    assert rows == [{"story": 1, "votes": 2, "stars": 1}, {"votes": 2}, None]


def test_snapshot_holds_one_cut(site: Database, catch_up: CatchUp) -> None:
    vote(site, 1, 2)
    catch_up()
    with site.snapshot() as snapshot:
        for count in range(3, 9):
            vote(site, 1, count)
            catch_up()
        assert snapshot.get("scores", 1) == {"story": 1, "votes": 2, "stars": 1}
        assert snapshot.get_many("scores", [1, 2])[1] is None
        assert len(snapshot.scan("votes")) == 2
        assert snapshot.epoch < site.status().epoch
    assert site.get("scores", 1) == {"story": 1, "votes": 8, "stars": 28}
    vote(site, 1, 9)
    catch_up()
    with pytest.raises(EpochGone):
        snapshot.get("scores", 1)


class LockedTwice(WrappedStore):
    """Its records are locked by a process that is stopped, when two in a row are to change."""

    def __init__(self, inner: Store):
        super().__init__(inner)
        self.refusals = 0
        self.goes_on = threading.Event()  # a record has changed since

    def call(self, method: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if method == "meta.cas" and self.refusals:
            self.refusals -= 1
            raise Locked("another process has kept others from writing")
        found = act(*args, **options)
        if method == "meta.cas":
            self.goes_on.set()
        return found


def test_a_snapshot_is_kept_though_its_pin_cannot_be_renewed_at_once(
    site: Database, catch_up: CatchUp
) -> None:
    vote(site, 1, 2)
    catch_up()
    store = LockedTwice(site.store)
    with viewkeep.Database(store, site.url).snapshot(seconds=0.3) as snapshot:
        store.goes_on.clear()
        store.refusals = 2
        assert store.goes_on.wait(20), "nobody renews the pin any more"
        assert not store.refusals
        assert snapshot.get("scores", 1) == {"story": 1, "votes": 2, "stars": 1}


def test_a_transfer_never_changes_the_total(db: Database, catch_up: CatchUp) -> None:
    """Readers in threads, epochs in this one: every stable scan adds up."""
    db.sql("""
        CREATE TABLE accounts (id INT PRIMARY KEY, owner STRING, balance BIGINT);
        CREATE VIEW owners AS SELECT owner, SUM(balance) AS balance FROM accounts GROUP BY owner;
    """)
    balances = dict.fromkeys(range(10), 100)
    db.put("accounts", [{"id": n, "owner": f"o{n}", "balance": 100} for n in balances])
    catch_up()
    totals: list[int] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                totals.append(sum(row["balance"] for row in db.scan("owners")))
                found = db.read([("owners", f"o{n}") for n in balances])
                totals.append(sum(row["balance"] for row in found if row))
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(40):
        giver, taker = step % 10, (step * 7 + 3) % 10
        if giver == taker:
            continue
        balances[giver] -= step
        balances[taker] += step
        db.put("accounts", [{"id": n, "balance": balances[n]} for n in (giver, taker)])
        catch_up()
    done.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert set(totals) == {1000}


def test_wait_covers_my_writes(site: Database, catch_up: CatchUp) -> None:
    site.wait(timeout=0)
    vote(site, 1, 2)
    with pytest.raises(Timeout, match="2 of your operations behind"):
        site.wait(timeout=0.01)
    catch_up()
    assert site.wait(timeout=1).cut == site.store.log.head() or site.wait(timeout=1).epoch > 0


def test_dropped_and_created_anew(site: Database, catch_up: CatchUp) -> None:
    vote(site, 1, 2)
    catch_up()
    assert site.get("totals") == {"votes": 2}
    site.sql("DROP VIEW totals")
    with pytest.raises(UnknownName):
        site.get("totals")
    site.sql("CREATE VIEW totals AS SELECT SUM(stars) AS stars FROM votes")
    with pytest.raises(NotReady):
        site.get("totals")
    catch_up()
    assert site.get("totals") == {"stars": 1}


def test_another_process_or_object_sees_changes(site: Database, catch_up: CatchUp) -> None:
    other = viewkeep.open(site.url)
    assert other.tables() == ["votes"]
    vote(site, 1, 2)
    catch_up()
    assert other.get("scores", 1) == {"story": 1, "votes": 2, "stars": 1}
    site.sql("CREATE TABLE more (k INT PRIMARY KEY)")
    other.put("more", {"k": 1})
    assert site.get("more", 1) == {"k": 1}
    other.close()


def test_status(site: Database, catch_up: CatchUp) -> None:
    vote(site, 1, 3)
    before = site.status()
    assert (before.epoch, before.lag) == (0, 3)
    assert 0 < before.lag_seconds < 60
    assert {view.state for view in before.views} == {"waiting"}
    catch_up()
    after = site.status()
    assert after.lag == 0
    assert after.epoch > 0
    assert {view.state for view in after.views} == {"ready"}
    assert after.tables == ("votes",)
    assert after.base_bytes > 0


def test_open_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(viewkeep.errors.StoreError, match="make one: viewkeep init"):
        viewkeep.open(tmp_path / "none.vk", create=False)
    viewkeep.make(tmp_path / "a.vk", nodes=3).close()
    with pytest.raises(viewkeep.errors.StoreError, match="already"):
        viewkeep.make(tmp_path / "a.vk")
    with viewkeep.open(tmp_path / "a.vk") as db:
        assert db.store.tables.parts == 3
    (tmp_path / "file").write_text("x")
    with pytest.raises(viewkeep.errors.StoreError, match="is a file"):
        viewkeep.open(tmp_path / "file")


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(-50, 50), st.text(max_size=3)), unique=True, max_size=30))
def test_scans_are_in_key_order(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("order")
    with viewkeep.open(folder / "a.vk", durability="relaxed", nodes=3) as db:
        db.sql("CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a, b))")
        db.put("t", [{"a": a, "b": b} for a, b in keys])
        expected: list[tuple[Any, ...]] = sorted(keys, key=lambda key: (key[0], key[1].encode()))
        assert db.scan("t").tuples() == expected
        assert db.scan("t", reverse=True, limit=3).tuples() == expected[::-1][:3]
        within = [key for key in expected if -10 <= key[0] < 10]
        assert db.scan("t", range=(-10, 10)).tuples() == within

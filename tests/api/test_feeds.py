"""Change feeds: replayed, they are the view at every epoch, whatever happens to the pipeline."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import viewkeep
from viewkeep.access import relations as relations_module
from viewkeep.access.feeds import feed_pins as pins_module
from viewkeep.access.feeds import turns as turns_module
from viewkeep.access.feeds.feed import Event, Feed, Feeds
from viewkeep.access.feeds.turns import PART_ROWS
from viewkeep.access.relations import ViewRelation
from viewkeep.access.tokens import read_token, write_token
from viewkeep.engine import local
from viewkeep.engine.epochs import Epochs, Limits, Published
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.identity import database_id
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.local import run_epoch
from viewkeep.engine.log_splits import whole_logs
from viewkeep.engine.programs import load_plan
from viewkeep.errors import EpochGone, InvalidRow, InvalidToken, Locked, NotReady, UnknownName
from viewkeep.stores.contract import Store
from viewkeep.stores.wrapped import WrappedStore

if TYPE_CHECKING:
    from viewkeep import Database

    CatchUp = Callable[[], Published]

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]

TABLES = """
    CREATE TABLE items (id INT PRIMARY KEY, g STRING, h INT, x BIGINT);
    CREATE VIEW sums AS SELECT g, h, COUNT(*) AS n, SUM(x) AS s FROM items GROUP BY g, h;
    CREATE VIEW spans AS SELECT g, MAX(x) - MIN(x) AS span FROM items GROUP BY g;
    CREATE VIEW picked AS SELECT id, x FROM items WHERE x > 0;
    CREATE VIEW ranking AS SELECT x, id FROM items ORDER BY x DESC, id;
    CREATE VIEW total AS SELECT COUNT(*) AS n FROM items;
"""


def recomputed(rows: list[Row]) -> dict[str, Rows]:
    """Every view from the base rows, by plain Python."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    spans: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        groups.setdefault((row["g"], row["h"]), []).append(row)
        values = spans.setdefault((row["g"],), [])
        if row["x"] is not None:
            values.append(row["x"])
    sums: Rows = {}
    for (g, h), members in groups.items():
        known = [row["x"] for row in members if row["x"] is not None]
        s = sum(known) if known else None
        sums[g, h] = {"g": g, "h": h, "n": len(members), "s": s}
    return {
        "sums": sums,
        "spans": {
            (g,): {"g": g, "span": max(xs) - min(xs) if xs else None} for (g,), xs in spans.items()
        },
        "picked": {(r["id"],): {"id": r["id"], "x": r["x"]} for r in rows if r["x"] and r["x"] > 0},
        "ranking": {(r["x"], r["id"]): {"x": r["x"], "id": r["id"]} for r in rows},
        "total": {(): {"n": len(rows)}},
    }


class Replay:
    """A feed's events, applied one after another and compared with every epoch's recomputation."""

    def __init__(self, view: str, prefix: tuple[Any, ...] = (), rows: Rows | None = None):
        self.view, self.prefix, self.rows = view, prefix, rows or {}
        self.epoch = 0
        self.more = False  # whether the epoch of the last event is not complete

    def expected(self, views: dict[str, Rows]) -> Rows:
        size = len(self.prefix)
        return {k: row for k, row in views[self.view].items() if k[:size] == self.prefix}

    def apply(self, event: Event) -> None:
        """Every change starts from what is there, and changes something."""
        if event.rows is not None:
            key = {"sums": ["g", "h"], "spans": ["g"], "picked": ["id"], "total": []}
            names = key.get(self.view, ["x", "id"])
            came = {tuple(row[name] for name in names): row for row in event.rows}
            assert not self.rows.keys() & came.keys(), "a row came twice"
            self.rows |= came
            self.epoch, self.more = event.epoch, event.more
            return
        assert event.epoch >= self.epoch + (not self.more), "an epoch came twice, or too late"
        assert event.epoch == self.epoch or not self.more, "an epoch was left half way"
        self.epoch, self.more = event.epoch, event.more
        for change in event.changes:
            assert change.old != change.new
            assert self.rows.get(change.key) == change.old
            if change.new is None:
                del self.rows[change.key]
            else:
                self.rows[change.key] = change.new
        assert len({change.key for change in event.changes}) == len(event.changes)

    def follow(self, events: list[Event], history: dict[int, dict[str, Rows]], upto: int) -> None:
        """Apply events and compare with each epoch of the history on the way."""
        for event in events:
            for epoch in range(max(self.epoch, 1), event.epoch):
                if self.epoch:
                    assert not self.more
                    assert self.rows == self.expected(history[epoch]), (self.view, epoch)
            self.apply(event)
        for epoch in range(self.epoch, upto + 1) if not self.more else ():
            assert self.rows == self.expected(history[epoch]), (self.view, epoch)


class World:
    """A database under random writes, with the recomputed views of every published epoch."""

    def __init__(self, db: Database, seed: int):
        self.db, self.random = db, random.Random(seed)
        self.epochs = Epochs(db.store)
        self.lease = self.epochs.acquire()
        self.writes: list[tuple[dict[str, int], dict[int, Row | None]]] = []
        self.history: dict[int, dict[str, Rows]] = {}
        self.rows: dict[int, Row] = {}
        db.sql(TABLES)
        while self.publish():
            pass

    def write(self) -> None:
        chance = self.random
        effect: dict[int, Row | None] = {}
        before = self.db.store.log.head()
        ids = chance.sample(range(12), chance.randrange(1, 5))
        if chance.random() < 0.3:
            self.db.delete_many("items", ids)
            effect = dict.fromkeys(ids)
        else:
            made = [
                {
                    "id": i,
                    "g": chance.choice(["a", "b", None]),
                    "h": chance.randrange(2),
                    "x": chance.choice([None, -1, 0, 5, 7]),
                }
                for i in ids
            ]
            self.db.put("items", made)
            effect = {row["id"]: row for row in made}
        after = self.db.store.log.head().positions
        ends = {log: end for log, end in after.items() if end > before.position(log)}
        if ends:
            self.writes.append((ends, effect))

    def publish(self) -> bool:
        """One epoch; sometimes it is begun by a driver that dies before publishing it."""
        store, chance = self.db.store, self.random
        limits = Limits(operations=chance.randrange(1, 8), chunk=3)
        epoch = self.epochs.open_next(self.lease.term, limits)
        if epoch is None:
            return False
        if chance.random() < 0.3:
            messages = [
                m for log in whole_logs(store, epoch) for m in run_sources(store, epoch, log)
            ]
            if load_plan(store, epoch.plan).program.levels > 1 and chance.random() < 0.5:
                list(run_level(store, epoch, 1, range(store.state.shards), messages))
            self.epochs.release(self.lease)
            self.lease = self.epochs.acquire()
            epoch = self.epochs.open_epoch(epoch.epoch)
        reports = run_epoch(store, epoch, tasks=chance.choice([1, 2]))
        published = self.epochs.publish(self.lease.term, epoch, reports)
        rows: dict[int, Row | None] = {}
        for ends, effect in self.writes:
            if all(end <= published.cut.position(log) for log, end in ends.items()):
                rows |= effect
        present = [row for row in rows.values() if row is not None]
        self.history[published.epoch] = recomputed(present)
        if chance.random() < 0.5:
            housekeep(store, budget=chance.choice([2, 100]))
        return True


PREFIXES: dict[str, list[tuple[Any, ...]]] = {
    "sums": [(), ("a",), ("b", 1), (None,)],
    "spans": [(), ("b",)],
    "picked": [(), (3,)],
    "ranking": [(), (5,)],
    "total": [()],
}


@pytest.mark.parametrize("seed", range(8))
def test_replayed_feeds_are_the_view_at_every_epoch(db: Database, seed: int) -> None:
    """Feeds that come and go, are resumed, or are slow, while drivers die and are replaced."""
    play(World(db, seed))


@pytest.mark.parametrize("part", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_parts_of_any_size_are_the_view_at_every_epoch(
    db: Database, monkeypatch: pytest.MonkeyPatch, part: int, seed: int
) -> None:
    """The same with epochs that come in parts, resumed in their middle too."""
    monkeypatch.setattr(turns_module, "PART_ROWS", part)
    monkeypatch.setattr(turns_module, "_WALKS", seed)
    monkeypatch.setattr(turns_module, "_CACHED", 1000 * seed)
    monkeypatch.setattr(relations_module, "STEP", 1 + seed)
    play(World(db, 100 + seed))


def play(world: World) -> None:
    chance, db = world.random, world.db
    live: list[tuple[Feed, Replay]] = []
    for _ in range(40):
        step = chance.random()
        if step < 0.4:
            world.write()
        elif step < 0.65:
            world.publish()
        elif step < 0.75 and len(live) < 8:
            view = chance.choice(list(PREFIXES))
            prefix = chance.choice(PREFIXES[view])
            live.append((db.subscribe(view, prefix=prefix), Replay(view, prefix)))
        elif live:
            place = chance.randrange(len(live))
            feed, replay = live[place]
            assert feed.more == (replay.more or not replay.epoch)
            if step < 0.85:
                replay.follow(feed.poll(), world.history, feed.epoch)
            elif (event := feed.next(timeout=0)) is not None:
                replay.follow([event], world.history, event.epoch)
            token = feed.token
            if token is not None and step > 0.95:
                feed.close()
                again = db.subscribe(replay.view, prefix=replay.prefix, token=token)
                live[place] = (again, replay)
    while world.publish():
        pass
    last = max(world.history)
    for feed, replay in live:
        while feed.epoch < last or feed.more:
            replay.follow(feed.poll(), world.history, feed.epoch)
        assert feed.poll() == []
        replay.follow([], world.history, last)
        assert replay.rows == replay.expected(recomputed_now(world))


def recomputed_now(world: World) -> dict[str, Rows]:
    return recomputed(world.db.scan("items").rows())


@pytest.mark.parametrize("seed", [1, 2])
def test_resumed_from_every_epoch(db: Database, seed: int) -> None:
    world = World(db, seed)
    views = list(PREFIXES)
    with db.snapshot():
        feeds = {view: db.subscribe(view, progress=True) for view in views}
        replays = {view: Replay(view) for view in views}
        states: dict[str, list[tuple[str, int, Rows]]] = {view: [] for view in views}
        for _ in range(25):
            world.write()
            world.publish()
            for view in views:
                for event in feeds[view].poll():
                    if event.rows is not None or event.changes:
                        replays[view].apply(event)
                    if event.token is not None:
                        states[view].append((event.token, event.epoch, dict(replays[view].rows)))
        last = max(world.history)
        elsewhere = viewkeep.open(db.url)
        for view in views:
            assert len(states[view]) > 15
            for token, epoch, rows in states[view]:
                assert rows == Replay(view).expected(world.history[epoch])
                replay = Replay(view, rows=dict(rows))
                replay.epoch = epoch
                feed = world.random.choice([db, elsewhere]).subscribe(view, token=token)
                replay.follow(feed.poll(), world.history, last)
                assert feed.epoch == last
        elsewhere.close()


def test_readers_in_threads_while_epochs_pass(db: Database) -> None:
    world = World(db, 3)
    failures: list[BaseException] = []
    done = threading.Event()
    ends: dict[str, int] = {}

    def follow(view: str) -> None:
        try:
            replay = Replay(view)
            with db.subscribe(view) as feed:
                while not done.is_set() or feed.epoch < max(world.history):
                    event = feed.next(timeout=0.01)
                    if event is not None:
                        replay.apply(event)
                        known = world.history.get(event.epoch)  # published, maybe not recomputed
                        assert known is None or replay.rows == replay.expected(known)
                ends[view] = feed.epoch
                assert replay.rows == replay.expected(world.history[feed.epoch])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=follow, args=(view,)) for view in PREFIXES]
    for thread in threads:
        thread.start()
    for _ in range(40):
        world.write()
        world.publish()
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(ends.values()) == {max(world.history)}


DRIVER = """
import sys, viewkeep
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import advance
db = viewkeep.open(sys.argv[1])
lease = Epochs(db.store).acquire()
print("driving", flush=True)
while True:
    if advance(db.store, lease.term, Limits(operations=4)) is not None:
        housekeep(db.store)
"""


def test_a_killed_pipeline_neither_loses_nor_doubles(db: Database, catch_up: CatchUp) -> None:
    """Drivers are killed at any moment; at every epoch the replayed balances add up."""
    db.sql("""
        CREATE TABLE accounts (id INT PRIMARY KEY, owner INT, balance BIGINT);
        CREATE VIEW owners AS SELECT owner, SUM(balance) AS balance FROM accounts GROUP BY owner;
    """)
    balances = dict.fromkeys(range(20), 100)
    db.put("accounts", [{"id": n, "owner": n % 7, "balance": 100} for n in balances])
    catch_up()
    chance = random.Random(1)
    feed = db.subscribe("owners")
    held: dict[tuple[object, ...], Row] = {}

    def take(event: Event) -> None:
        for row in event.rows or ():
            held[row["owner"],] = row
        for change in event.changes:
            assert held.get(change.key) == change.old
            assert change.new is not None
            held[change.key] = change.new
        assert sum(row["balance"] for row in held.values()) == 2000

    for _ in range(5):
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, db.url], stdout=subprocess.PIPE, text=True
        )
        assert driver.stdout is not None
        assert driver.stdout.readline() == "driving\n"
        for _ in range(chance.randrange(2, 6)):
            given: Event | None = None
            while given is None:
                giver, taker = chance.sample(range(20), 2)
                balances[giver] -= 7
                balances[taker] += 7
                db.put("accounts", [{"id": n, "balance": balances[n]} for n in (giver, taker)])
                given = feed.next(timeout=0.01)
            take(given)
        driver.kill()
        driver.wait()
        driver.stdout.close()
    last = catch_up().epoch
    while feed.epoch < last:
        for event in feed.poll():
            take(event)
    owners = {(row["owner"],): row for row in db.scan("owners")}
    expected = {o: sum(balances[n] for n in balances if n % 7 == o) for o in range(7)}
    assert held == owners
    assert {row["owner"]: row["balance"] for row in owners.values()} == expected


SITE = """
    CREATE TABLE votes (id INT PRIMARY KEY, story INT, stars INT);
    CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story;
    CREATE VIEW means AS SELECT story, AVG(stars) AS mean FROM votes GROUP BY story;
"""


@pytest.fixture
def site(db: Database, catch_up: CatchUp) -> Database:
    db.sql(SITE)
    db.put("votes", [{"id": n, "story": n % 3, "stars": 2} for n in range(6)])
    catch_up()
    return db


def test_rows_then_changes(site: Database, catch_up: CatchUp) -> None:
    feed = site.subscribe("scores", prefix=1)
    assert feed.token is None
    (first,) = feed.poll()
    assert (first.kind, first.rows, first.more) == ("rows", ({"story": 1, "votes": 2},), False)
    assert feed.poll() == []
    site.put("votes", [{"id": 7, "story": 1}, {"id": 8, "story": 2}])
    assert feed.poll() == []
    epoch = catch_up().epoch
    (second,) = feed.poll()
    assert (second.kind, second.epoch, second.rows) == ("changes", epoch, None)
    (change,) = second.changes
    assert (change.key, change.old, change.new) == (
        (1,),
        {"story": 1, "votes": 2},
        {"story": 1, "votes": 3},
    )
    site.delete_many("votes", [1, 4, 7])
    catch_up()
    event = feed.next(timeout=0)
    assert event is not None
    assert event.changes[0].new is None
    assert event.token == feed.token


class RefusingOnce(WrappedStore):
    """Its nth call finds the store locked by a process that is stopped; all others work."""

    def __init__(self, inner: Store, call: int):
        super().__init__(inner)
        self.left = call

    def call(self, method: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise Locked("another process has kept others from writing")
        return act(*args, **options)


def asked(ask: Callable[[], Any]) -> Any:
    """What is answered, at the second time if need be."""
    try:
        return ask()
    except Locked:
        return ask()


def test_a_call_that_fails_loses_no_event(site: Database, catch_up: CatchUp) -> None:
    """Whichever call of the store it is: who asks the feed again gets what there was to give."""
    votes = itertools.count(10)
    for call in itertools.count(1):
        # As in a database of an earlier version, which has no id until a token needs it.
        site.store.meta.cas("database", site.store.meta.get("database"), None)
        store = RefusingOnce(site.store, call)
        db = viewkeep.Database(store, site.url)
        rows: Rows = {}

        def take(events: list[Event], rows: Rows = rows) -> None:
            for event in events:
                rows |= {(row["story"],): row for row in event.rows or ()}
                for change in event.changes:
                    assert rows.get(change.key) == change.old
                    assert change.new is not None
                    rows[change.key] = change.new

        def vote() -> None:
            number = next(votes)
            site.put("votes", {"id": number, "story": number % 3})
            catch_up()

        feed = asked(lambda db=db: db.subscribe("scores"))
        take(asked(feed.poll))
        vote()
        take([asked(lambda feed=feed: feed.next(timeout=0))])
        token = asked(lambda feed=feed: feed.token)
        vote()
        feed = asked(lambda db=db, token=token: db.subscribe("scores", token=token))
        vote()
        take(asked(feed.poll))
        take(asked(feed.poll))
        assert list(rows.values()) == site.scan("scores").rows()
        if store.left > 0:
            break
    assert call > 20


def test_what_the_view_does_not_show_is_no_change(site: Database, catch_up: CatchUp) -> None:
    feed = site.subscribe("means")
    feed.poll()
    site.put("votes", {"id": 9, "story": 1, "stars": 2})
    catch_up()
    assert feed.poll() == []
    assert feed.epoch == site.status().epoch, "the token moves on though nothing is to tell"


def test_feeds_of_the_same_rows_read_once(
    site: Database, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    changes = ViewRelation.changes

    def counted(self: ViewRelation, *args: Any) -> Any:
        reads.append(1)
        return changes(self, *args)

    monkeypatch.setattr(ViewRelation, "changes", counted)
    feeds = [site.subscribe("scores") for _ in range(5)] + [site.subscribe("scores", prefix=1)]
    for feed in feeds:
        feed.poll()
    site.put("votes", {"id": 9, "story": 1})
    catch_up()
    first, *others = [feed.poll()[0].changes for feed in feeds]
    assert others == [first] * 5
    assert len(reads) == 2


def test_progress_events(site: Database, catch_up: CatchUp) -> None:
    feed = site.subscribe("scores", prefix=1, progress=True)
    feed.poll()
    site.put("votes", {"id": 9, "story": 2})
    epoch = catch_up().epoch
    (event,) = feed.poll()
    assert (event.kind, event.epoch, event.changes) == ("changes", epoch, ())


def test_many_rows_come_in_parts(db: Database, catch_up: CatchUp) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE VIEW v AS SELECT k FROM t")
    db.put("t", [{"k": k} for k in range(PART_ROWS + 10)])
    catch_up()
    feed = db.subscribe("v")
    (first,) = feed.poll()
    assert (first.more, first.token, feed.more) == (True, feed.token, True)
    db.put("t", {"k": -1})
    catch_up()
    again = db.subscribe("v", token=first.token).poll()
    (second,) = feed.poll()
    assert (second.more, second.epoch) == (False, first.epoch)
    assert again == [second], "it goes on in the middle of the first rows"
    assert first.rows is not None
    assert second.rows is not None
    assert [row["k"] for row in first.rows + second.rows] == list(range(PART_ROWS + 10))
    (third,) = feed.poll()
    assert [change.key for change in third.changes] == [(-1,)]


def test_a_large_epoch_comes_in_parts(
    db: Database, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch with more changes than one part holds, resumed after each of them."""
    monkeypatch.setattr(turns_module, "PART_ROWS", 100)
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, x INT); CREATE VIEW v AS SELECT k, x FROM t")
    db.put("t", [{"k": k, "x": 0} for k in range(1050)])
    catch_up()
    feed, others = db.subscribe("v"), [db.subscribe("v") for _ in range(2)]
    for one in (feed, *others):
        while one.more:
            one.poll()
    before = feed.epoch
    db.put("t", [{"k": k, "x": 1} for k in range(1000)])
    large = catch_up().epoch
    db.put("t", {"k": 1049, "x": 2})
    small = catch_up().epoch
    seen: list[int] = []
    tokens: list[tuple[str, int]] = []
    while feed.epoch < small:
        (event,) = feed.poll()
        assert len(event.changes) <= 100
        if event.epoch == large:
            assert feed.epoch == (before if event.more else large)
        assert event.more == (event.epoch == large and len(seen) < 900)
        seen += [key for change in event.changes if isinstance(key := change.key[0], int)]
        tokens.append((event.token, len(seen)))
    assert seen == [*range(1000), 1049]
    elsewhere = viewkeep.open(db.url)
    for token, count in tokens:
        rest: list[int] = []
        again = elsewhere.subscribe("v", token=token)
        while found := again.poll():
            rest += [change.key[0] for event in found for change in event.changes]  # type: ignore[misc]
        assert rest == seen[count:]
    elsewhere.close()


def test_a_part_keeps_its_epoch_for_another_process(
    db: Database, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on in the middle of an epoch takes over the pin that still keeps it."""
    monkeypatch.setattr(turns_module, "PART_ROWS", 10)
    monkeypatch.setattr(relations_module, "STEP", 5)
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, x INT); CREATE VIEW v AS SELECT k, x FROM t")
    db.put("t", [{"k": k, "x": 0} for k in range(100)])
    catch_up()
    first = Feeds(db._reader, seconds=600.0)
    feed = first.open("v")
    while feed.more:
        feed.poll()
    db.put("t", [{"k": k, "x": 1} for k in range(100)])
    catch_up()
    (event,) = feed.poll()
    assert event.more
    again = Feeds(db._reader, seconds=600.0).open("v", token=event.token)
    for pin in first.pins._pins:
        db.epochs.unpin(pin)  # as if its process had ended, and its time were over
    keys = [change.key[0] for change in event.changes]
    for number in range(2, 12):
        db.put("t", [{"k": k, "x": number} for k in range(100)])
        catch_up()
        housekeep(db.store)
        (event,) = again.poll()
        keys += [change.key[0] for change in event.changes]
        assert all(change.new and change.new["x"] == 1 for change in event.changes)
        if not event.more:
            break
    assert keys == list(range(100))


FOLLOWER = """
import sys, viewkeep
db = viewkeep.open(sys.argv[1])
feed = db.subscribe("v", token=sys.argv[2])
def memory():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if "RssAnon" in line)
start = most = memory()
count = 0
while found := feed.poll():
    count += sum(len(event.changes) for event in found)
    most = max(most, memory())
print(count, feed.epoch, most - start)
"""


@pytest.mark.parametrize("rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_large_epoch_takes_little_memory(db: Database, rows: int) -> None:
    """The list of all changes of the smaller one would take more than 200 MB."""
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, x INT); CREATE VIEW v AS SELECT k, x FROM t")
    local.catch_up(db.store)
    with db.snapshot():
        (event,) = db.subscribe("v").poll()
        db.put("t", pl.DataFrame({"k": range(rows), "x": [1] * rows}))
        last = local.catch_up(db.store, Limits(operations=rows, size=1 << 30)).epoch
        assert last == event.epoch + 1
        command = [sys.executable, "-c", FOLLOWER, db.url, event.token]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
    count, epoch, kilobytes = made.stdout.split()
    assert (int(count), int(epoch)) == (rows, last)
    assert int(kilobytes) < 60_000


def test_first_rows_that_are_gone_half_way(
    db: Database, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feed that failed stays failed: it never passes off the rest as all there is."""
    monkeypatch.setattr(relations_module, "STEP", 100)
    db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE VIEW v AS SELECT k FROM t")
    db.put("t", [{"k": k} for k in range(2 * PART_ROWS)])
    catch_up()
    feed = Feeds(db._reader, seconds=0.0).open("v")
    assert feed.poll()[0].more
    for k in range(4):
        db.put("t", {"k": -k})
        catch_up()
    for _ in range(3):
        with pytest.raises(EpochGone, match="Subscribe anew"):
            feed.poll()
    with pytest.raises(EpochGone, match="Subscribe anew"):
        db.subscribe("v", token=feed.token)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP VIEW scores",
        "DROP VIEW scores; CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes "
        "GROUP BY story",
        None,
    ],
)
def test_a_view_that_is_another_ends_its_feeds(
    site: Database, catch_up: CatchUp, statement: str | None
) -> None:
    feed = site.subscribe("scores")
    feed.poll()
    site.put("votes", {"id": 10, "story": 1})
    catch_up()
    assert len(feed.poll()) == 1
    token = feed.token
    if statement is None:
        site.catalog.rebuild_view("scores")
    else:
        site.sql(statement)
    site.put("votes", {"id": 11, "story": 1})
    catch_up()
    for _ in range(2):
        with pytest.raises(EpochGone, match=r"scores.*rebuilt, dropped or created anew.*Subs"):
            feed.poll()
    if statement != "DROP VIEW scores":
        with pytest.raises(EpochGone, match="rebuilt, dropped or created anew"):
            site.subscribe("scores", token=token)
        assert len(site.subscribe("scores").poll()) == 1
    else:
        with pytest.raises(UnknownName):
            site.subscribe("scores", token=token)


REPLACEMENTS = [
    "SELECT story, SUM(stars) AS votes FROM votes GROUP BY story",
    "SELECT COUNT(*) AS votes, story FROM votes GROUP BY story",
    "SELECT story, id, stars FROM votes ORDER BY story, id",
]


@pytest.mark.parametrize("query", REPLACEMENTS)
def test_feeds_pass_over_to_a_view_that_replaces_theirs(
    site: Database, catch_up: CatchUp, query: str
) -> None:
    """An event says that what was given is void, and begins with rows of the new view."""
    whole, one, late = site.subscribe("scores"), site.subscribe("scores", prefix=1), None
    for feed in (whole, one):
        (event,) = feed.poll()
        assert event.kind == "rows"
    old = whole.token
    site.put("votes", {"id": 10, "story": 1, "stars": 4})
    site.sql(f"CREATE OR REPLACE VIEW scores AS {query}")
    published = catch_up()
    late = site.subscribe("scores", token=old)
    for feed in (whole, one, late):
        rows = site.scan("scores", prefix=1 if feed is one else None).rows()
        (event,) = feed.poll()
        assert (event.kind, event.epoch, event.more) == ("replaced", published.epoch, False)
        assert list(event.rows or ()) == rows
    site.put("votes", {"id": 11, "story": 1, "stars": 4})
    catch_up()
    for feed in (whole, one, late, site.subscribe("scores", token=whole.token)):
        (event,) = feed.poll()
        assert event.kind == "changes"
        assert [change.new for change in event.changes] != []
        assert not feed.poll()


def test_a_feed_passes_over_several_replacements_at_once(site: Database, catch_up: CatchUp) -> None:
    """Also when the rows of all views in between are gone."""
    feeds = Feeds(site._reader, seconds=0.0)
    feed = feeds.open("scores")
    feed.poll()
    for query in REPLACEMENTS:
        site.sql(f"CREATE OR REPLACE VIEW scores AS {query}")
        site.put("votes", {"id": 10, "story": 1, "stars": 4})
        catch_up()
        while housekeep(site.store):
            pass
    (event,) = feed.poll()
    assert event.kind == "replaced"
    assert list(event.rows or ()) == site.scan("scores").rows()


def test_a_prefix_that_the_new_view_cannot_have_ends_a_feed(
    site: Database, catch_up: CatchUp
) -> None:
    feed = site.subscribe("scores", prefix=1)
    feed.poll()
    site.sql("CREATE OR REPLACE VIEW scores AS SELECT COUNT(*) AS n FROM votes")
    catch_up()
    for _ in range(2):
        with pytest.raises(EpochGone, match="was replaced, and the key of scores is"):
            feed.poll()


def test_the_rows_of_a_replaced_view_come_in_parts(
    site: Database, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first part says so, and a feed can be resumed from it."""
    monkeypatch.setattr(turns_module, "PART_ROWS", 1)
    feed = site.subscribe("scores")
    feed.poll()
    site.sql(f"CREATE OR REPLACE VIEW scores AS {REPLACEMENTS[0]}")
    catch_up()
    (event,) = feed.poll()
    assert (event.kind, event.more) == ("replaced", True)
    rows = list(event.rows or ())
    again = site.subscribe("scores", token=event.token)
    while again.more:
        (event,) = again.poll()
        assert event.kind == "rows"
        rows += event.rows or ()
    assert rows == site.scan("scores").rows()


def test_a_call_that_fails_while_a_feed_passes_over(site: Database, catch_up: CatchUp) -> None:
    """Until it has given rows of the new view it stands in the old one, and so does its token."""
    store = RefusingOnce(site.store, 0)
    db = viewkeep.Database(store, site.url)
    for call in itertools.count(1):
        feed = db.subscribe("scores")
        feed.poll()
        old = feed.token
        site.sql(f"CREATE OR REPLACE VIEW scores AS {REPLACEMENTS[call % 2]}")
        catch_up()
        store.left = call
        try:
            (event,) = feed.poll()
        except Locked:
            assert feed.token == old
            (event,) = feed.poll()
        assert event.kind == "replaced"
        assert list(event.rows or ()) == site.scan("scores").rows()
        if store.left > 0:
            break
    assert call > 8


def test_other_views_come_and_go(site: Database, catch_up: CatchUp) -> None:
    feed = site.subscribe("scores")
    feed.poll()
    site.sql("CREATE VIEW more AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story")
    site.sql("DROP VIEW means")
    catch_up()
    site.put("votes", {"id": 10, "story": 1})
    catch_up()
    housekeep(site.store)
    (event,) = feed.poll()
    assert event.changes[0].new == {"story": 1, "votes": 3}


def test_a_slow_feed_loses_its_place(site: Database, catch_up: CatchUp) -> None:
    """Pins that expire at once: the horizon moves on, and the feed says so."""
    feeds = Feeds(site._reader, seconds=0.0)
    feed = feeds.open("scores")
    feed.poll()
    token = feed.token
    for number in range(20, 26):
        site.put("votes", {"id": number, "story": 1})
        catch_up()
    with pytest.raises(EpochGone, match=r"feed of scores cannot go on after epoch \d+"):
        feed.poll()
    with pytest.raises(EpochGone, match="Subscribe anew"):
        site.subscribe("scores", token=token)


def test_the_pin_follows_the_slowest_feed(site: Database, catch_up: CatchUp) -> None:
    feeds = Feeds(site._reader, seconds=600.0)
    fast, slow = feeds.open("scores"), feeds.open("scores")
    numbers = iter(range(20, 99))

    def epoch(*asked: Feed) -> None:
        site.put("votes", {"id": next(numbers), "story": 1})
        catch_up()
        for feed in asked:
            feed.poll()

    def pinned() -> list[int]:
        return sorted(pin.epoch for pin in site.epochs.pins())

    (first,) = pinned()
    feeds.pins._step = 600.0  # the pin stays where it is
    for _ in range(4):
        epoch(fast, slow)
    assert pinned() == [first]
    place = slow.epoch
    feeds.pins._step = 0.0
    for _ in range(6):
        epoch(fast)
    low, high = pinned()
    assert low < place < high, "the next pin waits until the slowest has got to it"
    assert [event.epoch for event in slow.poll()] == list(range(place + 1, place + 7))
    for _ in range(4):
        epoch(fast, slow)
    assert place < pinned()[0]
    assert len(pinned()) <= 2


def test_a_pin_is_renewed_while_feeds_are_asked(
    site: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(pins_module.time, "monotonic", lambda: clock[0])
    feeds = Feeds(site._reader, seconds=600.0)
    asked, idle = feeds.open("scores"), feeds.open("means")
    (first,) = site.epochs.pins()
    for _ in range(3):
        clock[0] += 250.0
        asked.poll()
    (pin,) = site.epochs.pins()
    assert (pin.id, pin.epoch) == (first.id, first.epoch)
    assert pin.beat > first.beat
    assert list(feeds.pins._places) == [asked._id], "the other one was not asked for too long"
    assert idle.poll()[0].kind == "rows"
    site.epochs.unpin(pin)  # as if it had expired
    clock[0] += 250.0
    asked.poll()
    (anew,) = site.epochs.pins()
    assert anew.id != pin.id


def test_a_feed_keeps_its_place_for_all_of_its_seconds(
    site: Database, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked just before its pin would be renewed, and then after nearly all of its seconds."""
    clock = [time.time()]
    for name in ("time", "monotonic"):
        monkeypatch.setattr(pins_module.time, name, lambda: clock[0])
    feed = Feeds(site._reader, seconds=30.0).open("scores")
    feed.poll()
    clock[0] += 9.9
    feed.poll()
    for number in range(20, 26):
        site.put("votes", {"id": number, "story": 1})
        clock[0] += 4.9  # 29.4 seconds in all
        catch_up()
    assert len(feed.poll()) == 6


def test_tokens_are_checked(site: Database, catch_up: CatchUp) -> None:
    feed = site.subscribe("scores")
    feed.poll()
    token = feed.token
    assert token is not None
    site.subscribe("scores", token=token)
    with pytest.raises(EpochGone, match="another view"):
        site.subscribe("means", token=token)
    with pytest.raises(InvalidToken, match="other keys"):
        site.subscribe("scores", prefix=1, token=token)
    for wrong in ("", "x", token[:-1], token[:-1] + "g", token.replace("f2", "s2"), token + "0"):
        with pytest.raises(InvalidToken):
            site.subscribe("scores", token=wrong)
    with pytest.raises(InvalidToken, match="damaged"):
        site.subscribe("scores", token=token.replace(f".{feed.epoch}.", ".99."))
    other = write_token("f2", "0a1b", read_token("f2", database_id(site.store), token, "feed"))
    with pytest.raises(InvalidToken, match=r"feed is of another database \(0a1b\)"):
        site.subscribe("scores", token=other)


def test_what_cannot_be_subscribed_to(site: Database) -> None:
    with pytest.raises(UnknownName, match="base table; feeds are of views"):
        site.subscribe("votes")
    with pytest.raises(UnknownName, match="Did you mean scores"):
        site.subscribe("score")
    with pytest.raises(InvalidRow, match="the key of scores"):
        site.subscribe("scores", prefix=(1, 2))
    site.sql("CREATE VIEW late AS SELECT id FROM votes")
    with pytest.raises(NotReady):
        site.subscribe("late")


def test_closing_ends_a_waiting_reader(site: Database) -> None:
    feed = site.subscribe("scores")
    seen: list[Event] = []
    started = threading.Event()

    def follow() -> None:
        for event in feed:
            seen.append(event)
            started.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert started.wait(10)
    feed.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(seen) == 1
    assert feed.next() is None
    assert feed.poll() == []

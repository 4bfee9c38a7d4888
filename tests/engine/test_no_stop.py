"""Views come, change and go while others are read, written to and kept: nobody waits or fails."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import viewkeep
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up, run_epoch
from viewkeep.engine.programs import newest_plan
from viewkeep.errors import Conflict

STORIES, ROWS, CHUNK = 10, 400, 40
TABLE = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, stars BIGINT)"
KEPT = "CREATE VIEW totals AS SELECT COUNT(*) AS n, SUM(stars) AS s FROM votes"
SCORES = (
    "SELECT story, COUNT(*) AS n FROM votes GROUP BY story",
    "SELECT story, SUM(stars) AS n FROM votes GROUP BY story",
    "SELECT story, MAX(id) AS n FROM votes GROUP BY story",
)


class Threads:
    """Work that goes on in threads until it is stopped; what it raises is raised at the end."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.errors: list[BaseException] = []
        self.counts: dict[str, int] = {}
        self._threads: list[threading.Thread] = []

    def start(self, name: str, step: Callable[[int], None]) -> None:
        def run() -> None:
            while not self.stopped.is_set():
                try:
                    step(self.counts.get(name, 0))
                except BaseException as error:
                    self.errors.append(error)
                    self.stopped.set()
                    return
                self.counts[name] = self.counts.get(name, 0) + 1

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def join(self) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


@contextmanager
def threads() -> Iterator[Threads]:
    made = Threads()
    try:
        yield made
    finally:
        made.join()


def test_views_come_change_and_go_under_load(tmp_path: Path) -> None:
    """No read fails, no epoch of the others is left out, and what is dropped is freed."""
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as db, threads() as running:
        db.sql(f"{TABLE}; {KEPT}; CREATE VIEW scores AS {SCORES[0]}")
        rows = [{"id": i, "story": i % STORIES, "stars": 1} for i in range(ROWS)]
        db.put("votes", rows)
        catch_up(db.store)
        epochs = Epochs(db.store)
        lease = epochs.acquire()
        published = threading.Condition()

        def drive(_: int) -> None:
            opened = epochs.open_next(lease.term, Limits(chunk=CHUNK))
            if opened is not None:
                epochs.publish(lease.term, opened, run_epoch(db.store, opened))
                housekeep(db.store)
            with published:
                published.notify_all()

        def write(count: int) -> None:
            number = ROWS + count % 50
            db.put("votes", {"id": number, "story": number % STORIES, "stars": 1})

        def read(count: int) -> None:
            with db.snapshot() as snapshot:
                total = snapshot.get("totals")
                scores = snapshot.scan("scores").rows()
            assert total is not None
            assert ROWS <= total["n"] == total["s"] <= ROWS + 50, "the others are as of one cut"
            # Which of the views stands under the name is seen by its numbers, never a part of one.
            numbers = sum(row["n"] for row in scores)
            is_highest = numbers > 2 * (ROWS + 50)
            assert len(scores) == STORIES
            assert is_highest or numbers == total["n"]
            direct = db.get("scores", count % STORIES)
            assert direct is not None
            assert db.sql(f"SELECT n FROM scores WHERE story = {count % STORIES}").one()["n"] > 0

        def until(what: Callable[[], bool]) -> None:
            with published:
                while not what() and not running.stopped.is_set():
                    published.wait(1)

        running.start("epochs", drive)
        running.start("writes", write)
        running.start("reads", read)
        running.start("more reads", read)
        for number in range(6):
            db.sql(f"CREATE VIEW extra AS SELECT stars, id, story AS s{number} FROM votes")
            db.sql(f"CREATE OR REPLACE VIEW scores AS {SCORES[(number + 1) % 3]}")
            until(lambda: not newest_plan(db.store).successors and db.epochs.ready("extra"))
            db.sql("DROP VIEW extra")
            reads, count = dict(running.counts), running.counts["reads"]
            until(lambda count=count: running.counts["reads"] > count)  # type: ignore[misc]
            assert running.counts["writes"] > reads["writes"] // 2
        running.join()
        epochs.release(lease)
        catch_up(db.store)
        while housekeep(db.store):
            pass
        plan = newest_plan(db.store)
        held = {number for number, size in db.store.sizes().tables.items() if size.rows}
        assert held <= plan.state_numbers
        assert set(running.counts) == {"epochs", "writes", "reads", "more reads"}


def test_status_tells_how_long_loading_will_take(tmp_path: Path) -> None:
    """Shares rise, and at no chunk is less left to do than there is."""
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as db:
        db.sql(f"{TABLE}; {KEPT}")
        db.put("votes", [{"id": i, "story": 1, "stars": 1} for i in range(ROWS)])
        catch_up(db.store)
        db.sql(f"CREATE VIEW scores AS {SCORES[0]}")
        epochs = Epochs(db.store)
        term = epochs.acquire().term
        shares = []
        while (opened := epochs.open_next(term, Limits(chunk=CHUNK))) is not None:
            epochs.publish(term, opened, run_epoch(db.store, opened))
            (view,) = (view for view in db.status().views if view.name == "scores")
            if view.state == "loading":
                told = re.search(
                    r"rows in, \d parts? left, about (\d+)%, [\d,]+ s left", view.progress
                )
                assert told is not None, view.progress
                shares.append(int(told[1]))
        assert shares == sorted(shares)
        assert len(set(shares)) > 2
        assert view.state == "ready"


def test_a_table_changes_under_load(tmp_path: Path) -> None:
    """Writers, readers and epochs go on while columns come and go; views stay exact."""
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as db, threads() as running:
        db.sql(f"{TABLE}; {KEPT}; CREATE VIEW scores AS {SCORES[0]}")
        db.put("votes", [{"id": i, "story": i % STORIES, "stars": 1} for i in range(ROWS)])
        catch_up(db.store)
        epochs = Epochs(db.store)
        lease = epochs.acquire()

        def drive(_: int) -> None:
            opened = epochs.open_next(lease.term, Limits(chunk=CHUNK))
            if opened is not None:
                epochs.publish(lease.term, opened, run_epoch(db.store, opened))
                housekeep(db.store)

        def write(count: int) -> None:
            number = ROWS + count % 50
            with suppress(Conflict):  # between two versions of the table: written again later
                db.put("votes", {"id": number, "story": number % STORIES, "stars": 1})

        def read(count: int) -> None:
            total = db.get("totals")
            assert total is not None
            assert ROWS <= total["n"] == total["s"] <= ROWS + 50
            row = db.get("votes", count % ROWS)
            assert row is not None
            assert row["stars"] == 1
            assert db.sql("SELECT COUNT(*) AS n FROM votes WHERE stars = 1").one()["n"] >= ROWS
            assert len(db.scan("votes", limit=100)) == 100

        for name, step in (("epochs", drive), ("writes", write), ("reads", read)):
            running.start(name, step)
        for number in range(12):
            db.sql(f"ALTER TABLE votes ADD COLUMN c{number} STRING DEFAULT 'x'")
            if number % 2:
                db.sql(f"ALTER TABLE votes DROP COLUMN c{number - 1}")
            reads = running.counts.get("reads", 0)
            while running.counts.get("reads", 0) <= reads and not running.stopped.is_set():
                epochs.wait(epochs.read().published.epoch, 0.05)
        running.join()
        epochs.release(lease)
        catch_up(db.store)
        rows = db.scan("votes").rows()
        assert all(row[f"c{number}"] == "x" for row in rows for number in range(1, 12, 2))
        assert db.get("totals") == {"n": len(rows), "s": len(rows)}
        counts = {row["story"]: row["n"] for row in db.scan("scores").rows()}
        assert counts == Counter(row["story"] for row in rows)

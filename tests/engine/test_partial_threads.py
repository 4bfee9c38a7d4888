"""Partial views while threads write, read, evict and run epochs at once: as the full view reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import viewkeep
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import advance, catch_up
from viewkeep.engine.wanted import WantedTable

STORIES, READS, READERS = 40, 150, 3
QUERY = (
    "SELECT s.id, s.title, COUNT(*) AS votes, MAX(v.id) AS last FROM stories s "
    "JOIN votes v ON v.story = s.id {} GROUP BY s.id, s.title"
)


@contextmanager
def repeated(step: Callable[[], object], failures: list[BaseException]) -> Iterator[None]:
    """A step again and again, in a thread."""
    ended = threading.Event()

    def run() -> None:
        try:
            while not ended.is_set():
                step()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_reads_in_threads_are_the_full_views(tmp_path: Path) -> None:
    random, failures, names = Random(1), list[BaseException](), [0]
    with viewkeep.open(str(tmp_path / "db"), durability="relaxed") as db:
        db.sql("CREATE TABLE stories (id BIGINT PRIMARY KEY, title STRING)")
        db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT)")
        db.sql(f"CREATE VIEW whole AS {QUERY.format('')}")
        db.sql(f"CREATE VIEW page AS {QUERY.format('WHERE s.id = ?')}")
        catch_up(db.store)
        wanted = db.catalog.current().views["page"].wanted
        assert wanted is not None
        keys, epochs = WantedTable(wanted), Epochs(db.store)
        term = epochs.acquire().term

        def write() -> None:
            names[0] += 1
            story = random.randrange(STORIES)
            db.put("stories", {"id": story, "title": f"t{names[0]}"})
            db.put("votes", {"id": random.randrange(200), "story": random.randrange(STORIES)})

        def epoch() -> None:
            if advance(db.store, term, Limits(operations=20, chunk=5)) is not None:
                housekeep(db.store)

        def evict() -> None:
            gone = [key for key, _ in keys.all(db.store) if random.random() < 0.05]
            db.store.tables.write([keys.given_up(gone)])
            epochs.wait(epochs.read().published.epoch, 1.0)

        def read(seed: int) -> None:
            mine = Random(seed)
            for _ in range(READS):
                story = mine.randrange(STORIES)
                with db.snapshot() as snapshot:
                    full = snapshot.scan("whole", prefix=story).rows()
                    assert snapshot.scan("page", prefix=story).rows() == full

        with ExitStack() as running:
            for step in (write, epoch, evict):
                running.enter_context(repeated(step, failures))
            readers = [threading.Thread(target=_noting(read, n, failures)) for n in range(READERS)]
            for thread in readers:
                thread.start()
            for thread in readers:
                thread.join()
    assert not failures, failures[0]


def _noting(
    read: Callable[[int], None], seed: int, failures: list[BaseException]
) -> Callable[[], None]:
    def run() -> None:
        try:
            read(seed)
        except BaseException as error:
            failures.append(error)

    return run

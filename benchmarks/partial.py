"""What a partial view costs beside a full one: epochs, reads that hit and miss, and memory.

Votes for stories, as in the paper on Noria. Two databases have the same rows; in one the view of
each story's votes is whole, in the other it is partial. They take turns, in this process and
without Spark. `takeover` is the experiment of that paper's figure 10: a database in use gets a new
view, and reads of it begin at once.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table
from shared.measure import database

import viewkeep
from viewkeep.access.reads import DatabaseReader, ReadPoint
from viewkeep.database import Database
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import advance, catch_up
from viewkeep.engine.wanted import WantedTable

TABLES = """
    CREATE TABLE stories (id BIGINT PRIMARY KEY, title STRING);
    CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, voter BIGINT);
"""
SELECT = "SELECT s.id, s.title, COUNT(*) AS votes, MAX(v.voter) AS last FROM stories s "
JOIN = "JOIN votes v ON v.story = s.id "
GROUP = "GROUP BY s.id, s.title"
FULL = f"{SELECT}{JOIN}{GROUP}"
PARTIAL = f"{SELECT}{JOIN}WHERE s.id = ? {GROUP}"
LIMITS = Limits(operations=200_000)
WRITE_ROWS = 50_000
SHARES, BOUNDS = (0.0, 0.1, 0.5, 1.0), (1.0, 0.5, 0.1)

Figures = dict[str, float]


class Site:
    """Stories with votes, and a view `page` of them, full or partial."""

    def __init__(self, db: Database, stories: int, votes: int, seed: int = 1):
        self.db, self.stories, self.votes = db, stories, 0
        self.random = np.random.default_rng(seed)
        self.ranks = self.random.random(stories)  # in which order keys are wanted
        db.sql(TABLES)
        ids = np.arange(stories)
        db.put("stories", pl.DataFrame({"id": ids, "title": [f"story {n}" for n in ids]}))
        while self.votes < votes:
            self.vote(min(WRITE_ROWS, votes - self.votes))

    def vote(self, count: int) -> None:
        """More votes for random stories."""
        ids = np.arange(self.votes, self.votes + count)
        story, voter = (self.random.integers(0, most, count) for most in (self.stories, 10**6))
        self.db.put("votes", pl.DataFrame({"id": ids, "story": story, "voter": voter}))
        self.votes += count

    def view(self, query: str) -> None:
        """The view, loaded."""
        self.db.sql(f"CREATE VIEW page AS {query}")
        self.catch_up()

    def catch_up(self) -> None:
        catch_up(self.db.store, LIMITS)

    def want(self, share: float) -> None:
        """Have the view keep this share of the stories: those wanted before, and others."""
        view = self.db.catalog.current().views["page"]
        assert view.wanted is not None
        table = WantedTable(view.wanted)
        chosen = np.flatnonzero(self.ranks < share).tolist()
        table.want(self.db.store, [table.codec.encode_one((key,)) for key in chosen], 0)
        self.catch_up()

    def epoch(self, votes: int) -> float:
        """Seconds of processor time that an epoch of so many votes takes."""
        self.vote(votes)
        began = time.process_time()
        self.catch_up()
        return time.process_time() - began

    def read(self, key: int) -> float:
        """Seconds that a read of a story takes."""
        began = time.perf_counter()
        self.db.scan("page", prefix=(key,)).rows()
        return time.perf_counter() - began


def epochs(
    stories: int, votes: int, shares: list[float], updates: int, rounds: int
) -> dict[float, dict[str, list[float]]]:
    """Milliseconds of epochs with a full view, and with a partial one that has some of its keys."""
    found: dict[float, dict[str, list[float]]] = {}
    with ExitStack() as opened:
        sites = _sites(opened, stories, votes)
        for share in shares:
            found[share] = {"full": [], "partial": []}
            sites["partial"].want(share)
            for number in range(rounds + 1):
                for name, site in sites.items():
                    spent = site.epoch(updates)
                    if number:  # the first is to warm up
                        found[share][name].append(spent * 1e3)
    return found


def reads(stories: int, votes: int, count: int) -> dict[str, list[float]]:
    """Microseconds of reads: of a full view, hits and misses of a partial one."""
    found: dict[str, list[float]] = {"full": [], "hit": [], "miss": []}
    with ExitStack() as opened:
        sites = _sites(opened, stories, votes)
        keys = sites["partial"].random.permutation(stories)[:count].tolist()
        for key in keys:
            found["miss"].append(sites["partial"].read(key) * 1e6)
        sites["partial"].catch_up()
        for key in keys:
            found["full"].append(sites["full"].read(key) * 1e6)
            found["hit"].append(sites["partial"].read(key) * 1e6)
        for key in keys[:100]:
            rows = [site.db.scan("page", prefix=(key,)).rows() for site in sites.values()]
            if rows[0] != rows[1]:
                raise SystemExit(f"story {key}: {rows[1]}, and the full view has {rows[0]}")
    return found


def bounds(stories: int, votes: int, shares: list[float], count: int) -> Iterator[Figures]:
    """State and reads of skewed keys at bounds that leave shares of what may be evicted."""
    with database("relaxed") as db:
        site = Site(db, stories, votes)
        site.view(PARTIAL)
        site.want(1.0)
        whole = db.status()
        essential = whole.essential_bytes
        for share in shares:
            db.limit_memory(None if share == 1 else int(essential + share * whole.evictable_bytes))
            for _ in range(3):  # until what goes at first is gone
                site.vote(1)
                site.catch_up()
                housekeep(db.store)
            spent, peak = list[float](), 0
            for place, key in enumerate(site.random.zipf(1.2, count) % stories):
                spent.append(site.read(int(key)) * 1e6)
                if place % 200 == 0:
                    site.vote(100)
                    site.catch_up()
                    housekeep(db.store)
                    site.catch_up()
                    now = db.status()
                    peak = max(peak, now.essential_bytes + now.evictable_bytes)
            last = db.status()
            yield {
                "share of evictable state": share,
                "bound": float(last.memory_bound or 0),
                "essential bytes": float(last.essential_bytes),
                "rows of state, bytes": float(last.essential_bytes + last.evictable_bytes),
                "peak bytes": float(peak),
                "read p50, us": float(np.percentile(spent, 50)),
                "read p99, us": float(np.percentile(spent, 99)),
            }


def takeover(stories: int, votes: int, query: str, seconds: float) -> Figures:
    """A database in use gets a new view, which differs from the one that it has in an aggregate.

    Reads of it begin at once, with skewed keys.
    """
    with database("relaxed") as db:
        site = Site(db, stories, votes)
        db.sql(f"CREATE VIEW earlier AS {query.replace('MAX', 'MIN')}")
        site.catch_up()
        with _Driver(db) as driver:
            before = _use(site, driver, seconds, None)
            db.sql(f"CREATE VIEW page AS {query}")
            after = _use(site, driver, seconds, "page")
    return {
        "first answer, s": after["first"],
        "share of reads answered": after["answered"],
        "share of hits in the last tenth": after["hits"],
        "write p50 before, ms": before["write"],
        "write p50 after, ms": after["write"],
        "epoch p50 before, ms": before["epoch"],
        "epoch p50 after, ms": after["epoch"],
        "epoch max after, ms": after["longest"],
    }


class _Driver:
    """Runs epochs in a thread, and notes what each takes."""

    def __init__(self, db: Database):
        self.db, self.spent = db, list[float]()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Driver:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        records = Epochs(self.db.store)
        lease = records.acquire()
        while not self._ended.is_set():
            began = time.perf_counter()
            if advance(self.db.store, lease.term) is None:
                self._ended.wait(0.002)
            else:
                self.spent.append(time.perf_counter() - began)
        records.release(lease)


def _use(site: Site, driver: _Driver, seconds: float, view: str | None) -> Figures:
    """Write and read for some seconds: one write of ten votes to ten reads."""
    driver.spent.clear()
    reader = DatabaseReader(site.db.store, site.db.epochs, site.db.url)
    keys = site.random.zipf(1.3, 100_000) % site.stories
    began, first = time.perf_counter(), float("nan")
    written, tried, answered, last, hits, place = list[float](), 0, 0, 0, 0, 0
    while (now := time.perf_counter() - began) < seconds:
        at = time.perf_counter()
        site.vote(10)
        written.append(time.perf_counter() - at)
        for _ in range(10 if view else 0):
            place += 1
            tried += 1
            try:
                relation = reader.open("page", ReadPoint(reader.published()))
                missed = getattr(relation, "misses", 0)
                reader.scan("page", prefix=(int(keys[place % len(keys)]),))
            except viewkeep.errors.NotReady:
                continue
            answered += 1
            if first != first:
                first = time.perf_counter() - began
            if now > 0.9 * seconds:
                last += 1
                hits += getattr(relation, "misses", 0) == missed
    epochs_ = driver.spent or [float("nan")]
    return {
        "first": first,
        "answered": answered / max(1, tried),
        "hits": hits / max(1, last),
        "write": float(np.median(written)) * 1e3,
        "epoch": float(np.median(epochs_)) * 1e3,
        "longest": max(epochs_) * 1e3,
    }


def _sites(opened: ExitStack, stories: int, votes: int) -> dict[str, Site]:
    """Two databases with the same rows and a view: full in one, partial in the other."""
    made = {}
    for name, query in (("full", FULL), ("partial", PARTIAL)):
        made[name] = Site(opened.enter_context(database("relaxed")), stories, votes)
        made[name].view(query)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=100_000)
    parser.add_argument("--votes", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=1_000, help="votes of an epoch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--reads", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the takeover")
    parser.add_argument("--plot", type=Path, help="write an SVG here")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    stories, votes = arguments.stories, arguments.votes
    figures: dict[str, Figures] = {}
    measured = epochs(stories, votes, list(SHARES), arguments.updates, arguments.rounds)
    for share, spent in measured.items():
        full, partial = (float(np.median(spent[name])) for name in ("full", "partial"))
        figures[f"epochs, {share:.0%} wanted"] = {
            "full, ms": full,
            "partial, ms": partial,
            "ratio": partial / full,
        }
    read = reads(stories, votes, min(stories, arguments.reads))
    for name, times in read.items():
        figures[f"reads: {name}"] = {
            f"p{rank}, us": float(np.percentile(times, rank)) for rank in (50, 95, 99)
        }
    for bound in bounds(stories, votes, list(BOUNDS), arguments.reads):
        figures[f"bound at {bound['share of evictable state']:.0%}"] = bound
    for name, query in (("partial", PARTIAL), ("full", FULL)):
        figures[f"new view, {name}"] = takeover(stories, votes, query, arguments.seconds)
    table = Table("what", "figure", "value")
    for what, found in figures.items():
        for name, value in found.items():
            table.add_row(what, name, f"{value:,.3f}")
            what = ""
    Console().print(table)
    if arguments.plot:
        from shared.plot import partial

        partial(figures, arguments.plot)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Views that aggregate joins, aggregated first and not, in one run: state, loading and epochs.

    python benchmarks/aggregate_first.py partners     one changed row that has many partners
    python benchmarks/aggregate_first.py site         the news site's author_scores
    python benchmarks/aggregate_first.py finance      sums over joins of an order book
    python benchmarks/aggregate_first.py tpch         the queries of TPC-H that the pass changes

The plan without it is the same query with the hint NO_AGGREGATE_FIRST. Each view is there alone
while it is measured, in this process without Spark; at the end both are created again and must have
the same rows. The figures are processor time, medians, which a busy machine changes little.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the tests' tables, queries and refreshes

import numpy as np
import polars as pl
from shared.measure import database
from tests.slt.oracle import difference
from tests.tpch.refresh import Refresh
from tests.tpch.schema import QUERIES, create_tables, generate, load, load_duckdb

import viewkeep
from viewkeep.database import Database
from viewkeep.engine.epochs import Limits
from viewkeep.engine.local import catch_up

HINTS = ("NO_AGGREGATE_FIRST", "")
LOADED = Limits(operations=200_000)


@dataclass
class Figures:
    """What one view took; processor seconds, a list for each kind of change."""

    levels: int = 0
    state: int = 0
    loading: float = 0.0
    spent: dict[str, list[float]] = field(default_factory=dict)


Change = Callable[[], object]


def compare(db: Database, text: str, changes: dict[str, Change], turns: int) -> list[Figures]:
    """Load the view each way, and run each change so many times; one view is there at a time."""
    found = []
    for hint in HINTS:
        made = Figures()
        db.sql(f"CREATE VIEW v AS {hinted(text, hint)}")
        made.loading = processor(lambda: catch_up(db.store, LOADED))
        for turn in range(turns + 1):
            for name, change in changes.items():
                change()
                spent = processor(lambda: catch_up(db.store, LOADED))
                if turn:  # the first warms up
                    made.spent.setdefault(name, []).append(spent)
        made.state = sum(operator.bytes for operator in db.status().operators)
        made.levels = db.catalog.current().program.levels
        db.sql("DROP VIEW v")
        catch_up(db.store)
        found.append(made)
    for number, hint in enumerate(HINTS):
        db.sql(f"CREATE VIEW v{number} AS {hinted(text, hint)}")
    catch_up(db.store, LOADED)
    rows = [db.scan(f"v{number}").tuples() for number in range(len(HINTS))]
    assert not difference(*rows), text
    for number in range(len(HINTS)):
        db.sql(f"DROP VIEW v{number}")
    catch_up(db.store)
    return found


def hinted(text: str, hint: str) -> str:
    """The query with a hint after its first SELECT; it holds for the whole query."""
    return text.replace("SELECT", f"SELECT /*+ {hint} */", 1) if hint else text


def processor(step: Callable[[], object]) -> float:
    """Processor seconds of this process."""
    began = time.process_time()
    step()
    return time.process_time() - began


def heading(changes: list[str]) -> None:
    heads = ["query", "levels", "state", "loading, s", *(f"{name}, ms" for name in changes)]
    print(f"\n| {' | '.join(heads)} |\n|---{'|---:' * (len(heads) - 1)}|", flush=True)


def show(name: str, found: list[Figures]) -> None:
    """A line of a table, each cell without and with it."""
    cells = [" → ".join(str(one.levels) for one in found)]
    cells.append(" → ".join(_size(one.state) for one in found))
    cells.append(" → ".join(f"{one.loading:.1f}" for one in found))
    for kind in found[0].spent:
        cells.append(" → ".join(f"{statistics.median(o.spent[kind]) * 1e3:.1f}" for o in found))
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


# -- one row with many partners --------------------------------------------------------------------


def partners(count: int, turns: int) -> None:
    """Authors of stories: one story has `count` votes, and moves from author to author."""
    with database("relaxed") as db:
        db.sql("CREATE TABLE stories (id BIGINT PRIMARY KEY, author STRING)")
        db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, stars INT)")
        db.put("stories", [{"id": n, "author": f"a{n % 10}"} for n in range(100)])
        for start in range(0, count, 200_000):
            ids = np.arange(start, min(count, start + 200_000))
            story = pl.Series([1] * len(ids), dtype=pl.Int64)
            stars = pl.Series(ids % 5, dtype=pl.Int32)
            db.put("votes", pl.DataFrame({"id": ids, "story": story, "stars": stars}))
            catch_up(db.store, LOADED)
        names, ids = iter(range(10**9)), iter(range(count, 10**9))
        text = (
            "SELECT s.author, SUM(v.stars) AS score, COUNT(*) AS votes "
            "FROM votes v JOIN stories s ON v.story = s.id GROUP BY s.author"
        )
        changes: dict[str, Change] = {
            "the story": lambda: db.put("stories", {"id": 1, "author": f"b{next(names)}"}),
            "a vote": lambda: db.put("votes", {"id": next(ids), "story": 1, "stars": 3}),
        }
        heading(list(changes))
        show(f"{count:,} partners", compare(db, text, changes, turns))


# -- the news site ---------------------------------------------------------------------------------


def site(votes: int, turns: int) -> None:
    """The view of the demo, over votes that are spread as its own are."""
    from viewkeep.demo.site import SKEW, STORIES, VIEWS

    text = next(part for part in VIEWS.split(";") if "VIEW author_scores" in part)
    text = text[text.index("SELECT") :].strip()
    random = np.random.default_rng(1)
    with database("relaxed") as db:
        db.sql("CREATE TABLE stories (id BIGINT PRIMARY KEY, author STRING)")
        db.sql(
            "CREATE TABLE votes (story BIGINT, voter BIGINT, stars INT, PRIMARY KEY (story, voter))"
        )
        db.put("stories", [{"id": n, "author": f"a{n % 30}"} for n in range(STORIES)])
        for start in range(0, votes, 100_000):
            db.put("votes", _votes(random, start, min(votes, start + 100_000), SKEW, STORIES))
            catch_up(db.store, LOADED)
        later = iter(range(votes, 10**9, 1_000))
        changes: dict[str, Change] = {
            "1 vote": lambda: db.put("votes", _votes(random, (n := next(later)), n + 1, 2, 300)),
            "1,000 votes": lambda: db.put(
                "votes", _votes(random, (n := next(later)), n + 1_000, 2, 300)
            ),
        }
        heading(list(changes))
        show(f"author_scores, {votes:,} votes", compare(db, text, changes, turns))


def _votes(
    random: np.random.Generator, start: int, stop: int, skew: float, stories: int
) -> pl.DataFrame:
    count = stop - start
    story = random.zipf(skew, count) % stories
    stars = pl.Series(random.integers(1, 6, count), dtype=pl.Int32)
    return pl.DataFrame({"story": story, "voter": np.arange(start, stop), "stars": stars})


# -- an order book ---------------------------------------------------------------------------------

BOOK = "id BIGINT PRIMARY KEY, t BIGINT, broker INT, volume BIGINT, price BIGINT"
FINANCE = {
    "BSV": "SELECT x.broker, SUM(x.volume * x.price * (y.volume * y.price)) AS bsv "
    "FROM bids x JOIN bids y ON x.broker = y.broker GROUP BY x.broker",
    "AXF by price": "SELECT b.broker, SUM(a.volume) - SUM(b.volume) AS axf "
    "FROM bids b JOIN asks a ON b.broker = a.broker AND a.price = b.price GROUP BY b.broker",
    "VWAP": "SELECT SUM(b1.price * b1.volume) AS vwap FROM bids b1 "
    "WHERE (SELECT SUM(b3.volume) FROM bids b3) > 4 * "
    "(SELECT SUM(b2.volume) FROM bids b2 WHERE b2.price > b1.price)",
    "PSP": "SELECT SUM(a.price - b.price) AS psp FROM bids b CROSS JOIN asks a "
    "WHERE b.volume > 100 AND a.volume > 100",
    "spread": "SELECT b.broker, SUM(a.price - b.price) AS spread, COUNT(*) AS pairs "
    "FROM bids b JOIN asks a ON b.broker = a.broker GROUP BY b.broker",
}


def finance(orders: int, turns: int) -> None:
    """Sums over joins of bids and asks, 10 brokers; DBToaster's queries as far as they are sums."""
    random = np.random.default_rng(2)
    with database("relaxed") as db:
        for table in ("bids", "asks"):
            db.sql(f"CREATE TABLE {table} ({BOOK})")
            db.put(table, _orders(random, 0, orders))
        catch_up(db.store, LOADED)
        # Orders are replaced, so that the second view sees no larger book than the first.
        places = cycle(range(0, orders - 99, 100))
        changes: dict[str, Change] = {
            "1 bid": lambda: db.put("bids", _orders(random, (n := next(places)), n + 1)),
            "100 bids": lambda: db.put("bids", _orders(random, (n := next(places)), n + 100)),
        }
        heading(list(changes))
        for name, text in FINANCE.items():
            show(name, compare(db, text, changes, turns))


def _orders(random: np.random.Generator, start: int, stop: int) -> pl.DataFrame:
    count = stop - start
    return pl.DataFrame(
        {
            "id": np.arange(start, stop),
            "t": np.arange(start, stop),
            "broker": pl.Series(random.integers(0, 10, count), dtype=pl.Int32),
            "volume": random.integers(1, 1_000, count),
            "price": random.integers(9_000, 11_000, count),
        }
    )


# -- TPC-H -----------------------------------------------------------------------------------------


def tpch(scale: float, turns: int, names: list[str]) -> None:
    """Queries that aggregate joins; each batch of changes is of all five tables."""
    with tempfile.TemporaryDirectory(prefix="viewkeep-first-") as folder:
        data = generate(Path(folder), scale)
        model = load_duckdb(data)
        refresh = Refresh(model, seed=7)
        with viewkeep.make(Path(folder) / "tpch.vk", durability="relaxed") as db:
            create_tables(db)
            load(db, data)
            catch_up(db.store)

            def change(size: int) -> Change:
                return lambda: refresh.apply(db, refresh.batch(round(size * 0.75)))

            changes = {"100 changes": change(100), "1,000 changes": change(1_000)}
            heading(list(changes))
            for name in names or changed(db):
                show(name.upper(), compare(db, QUERIES[name], changes, turns))
        model.close()


def changed(db: Database) -> Iterator[str]:
    """The queries whose plan the pass changes."""
    for name, text in QUERIES.items():
        plans = {db.explain(f"CREATE VIEW v AS {hinted(text, hint)}") for hint in HINTS}
        if len(plans) > 1:
            yield name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("partners", "site", "finance", "tpch", "all"))
    parser.add_argument("--partners", type=int, default=1_000_000)
    parser.add_argument("--votes", type=int, default=200_000)
    parser.add_argument("--orders", type=int, default=1_000)
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("queries", nargs="*")
    given = parser.parse_intermixed_args()
    if given.what in ("partners", "all"):
        partners(given.partners, given.turns)
    if given.what in ("site", "all"):
        site(given.votes, given.turns)
    if given.what in ("finance", "all"):
        finance(given.orders, given.turns)
    if given.what in ("tpch", "all"):
        tpch(given.scale, given.turns, given.queries)


if __name__ == "__main__":
    main()

"""What small epochs cost in each lane: processor time of one process, without Spark.

The news site's plan (8 views) with 300 stories and 20,000 votes. Epochs of 1 to 3,000 votes run by
turns in the rows lane and in the columns lane, so that both meet the same state and the same noise.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from pathlib import Path
from random import Random

from shared.measure import database, show

from viewkeep.database import Database
from viewkeep.demo.site import TABLES, VIEWS, Traffic
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance, catch_up
from viewkeep.engine.rows import epoch as rows_lane

SIZES = (1, 10, 100, 300, 1_000, 3_000)
STORIES, VOTERS = 300, 20_000
ONE_VIEW = """CREATE VIEW author_scores AS
    SELECT s.author, SUM(v.stars) AS score, COUNT(*) AS votes
    FROM votes v JOIN stories s ON v.story = s.id GROUP BY s.author"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    parser.add_argument("--profile", type=Path, help="write a profile of epochs of one vote")
    arguments = parser.parse_args()
    rounds = 5 if arguments.quick else 25
    for title, views in (("the news site, 8 views", VIEWS), ("one view, a join", ONE_VIEW)):
        with database("relaxed") as db:
            fill(db, views)
            if arguments.profile:
                profile(db, arguments.profile)
                return
            show(title, measure(db, rounds))


def fill(db: Database, views: str) -> None:
    db.sql(TABLES)
    db.sql(views)
    Traffic(db, 1, lambda _: None).publish_stories()
    random = Random(1)
    for _ in range(20):
        db.put("votes", [vote(random) for _ in range(1_000)])
    catch_up(db.store)


def vote(random: Random) -> dict[str, int]:
    story = min(int(random.paretovariate(0.8)), STORIES)
    return {"story": story, "voter": random.randrange(VOTERS), "stars": random.randint(1, 5)}


def measure(db: Database, rounds: int) -> dict[str, float]:
    random, figures = Random(2), dict[str, float]()
    term = Epochs(db.store).acquire().term
    for size in SIZES:
        spent: dict[int, list[float]] = {-1: [], 10**9: []}
        for _ in range(rounds if size < 1_000 else max(3, rounds // 5)):
            for limit, times in spent.items():
                db.put("votes", [vote(random) for _ in range(size)])
                rows_lane.FEW = limit
                gc.collect()
                began = time.process_time()
                advance(db.store, term, Limits())
                times.append(time.process_time() - began)
        columns, rows = (1_000 * statistics.median(times) for times in spent.values())
        figures[f"{size:,} votes, rows lane, ms"] = rows
        figures[f"{size:,} votes, columns lane, ms"] = columns
        figures[f"{size:,} votes, columns / rows"] = columns / rows
    return figures


def profile(db: Database, path: Path) -> None:
    import cProfile

    random, term = Random(2), Epochs(db.store).acquire().term
    profiler = cProfile.Profile()
    for _ in range(200):
        db.put("votes", [vote(random)])
        profiler.enable()
        advance(db.store, term, Limits())
        profiler.disable()
    profiler.dump_stats(path)


if __name__ == "__main__":
    main()

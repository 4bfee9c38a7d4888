"""What state on the workers' own disks costs: machines are folders of one process, without Spark.

The news site's plan (8 views) with 300 stories and 20,000 votes; every epoch handles more votes.
The same votes go to four databases by turns, so that all meet the same noise:

- embedded: state lies in the store;
- sticky: state is apart, and every epoch runs on the same machine;
- taken over: three machines take turns, so each has to catch up with the two epochs before, of
  every shard, before it runs its own;
- new machine (one epoch in five): the machine has an empty disk, and begins with a snapshot.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random

from epochs import TABLES, VIEWS, vote
from shared.measure import show

import viewkeep
from viewkeep.database import Database
from viewkeep.demo.site import Traffic
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance, catch_up
from viewkeep.stores import open_store
from viewkeep.stores.apart import ApartStore
from viewkeep.stores.contract import Store

SIZES = (10, 1_000, 20_000)
MACHINES = 3


class Scene:
    """A database, and the machines that run its epochs."""

    def __init__(self, folder: Path, name: str, durability: str):
        self.folder, self.name = folder / name, name
        self.is_apart = name != "embedded"
        self.db = viewkeep.open(self.url("home"), nodes=2, shards=4, durability=durability)
        self.db.sql(TABLES)
        self.db.sql(VIEWS)
        Traffic(self.db, 1, lambda _: None).publish_stories()
        self.turn = 0

    def url(self, machine: str) -> str:
        if not self.is_apart:
            return str(self.folder / "db")
        shared = f"changelog={self.folder / 'changelog'}"
        return f"apart:{self.folder / 'db'}?state={self.folder / machine}&{shared}"

    def fill(self, random: Random) -> None:
        for _ in range(20):
            self.db.put("votes", [vote(random) for _ in range(1_000)])
        catch_up(self.db.store)
        self.term = Epochs(self.db.store).acquire().term
        if isinstance(self.db.store, ApartStore):
            published = Epochs(self.db.store).read().published.epoch
            for replica in self.db.store.state.replicas:
                replica.at(published)
                replica.snapshot()
        names = [f"machine {n}" for n in range(MACHINES)] if self.name == "taken over" else ["one"]
        self.machines = [open_store(self.url(name)) for name in names]

    def epoch(self) -> tuple[float, float]:
        """The seconds of an epoch, and of processor time."""
        self.turn += 1
        if self.name == "new machine":
            fresh = self.url(f"new {self.turn}")
            return _timed(lambda: _run_new(fresh, self.term))
        store: Store = self.machines[self.turn % len(self.machines)]
        return _timed(lambda: advance(store, self.term, Limits()))

    def changelog_bytes(self) -> int:
        folder = self.folder / "changelog"
        return sum(path.stat().st_size for path in folder.rglob("log-*/*"))

    def close(self) -> None:
        for machine in self.machines:
            machine.close()
        self.db.close()


def _run_new(url: str, term: int) -> None:
    with closing(open_store(url)) as store:
        advance(store, term, Limits())


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    gc.collect()
    began, processor = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - began, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    parser.add_argument("--durability", choices=("full", "relaxed"), default="relaxed")
    parser.add_argument("--folder", type=Path, help="where disks are; default: in memory")
    arguments = parser.parse_args()
    rounds = 7 if arguments.quick else 21
    parent = arguments.folder or Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="viewkeep-scale-", dir=parent))
    try:
        with ExitStack() as stack:
            scenes = []
            for name in ("embedded", "sticky", "taken over", "new machine"):
                scene = Scene(folder, name, arguments.durability)
                scene.fill(Random(1))
                stack.callback(scene.close)
                scenes.append(scene)
            for size in SIZES:
                show(f"{size:,} votes an epoch", figures(*measure(scenes, size, rounds)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(
    scenes: list[Scene], size: int, rounds: int
) -> tuple[dict[str, list[tuple[float, float]]], float]:
    """Seconds and processor time of each scene's epochs, and the changelog's bytes for a vote."""
    random = Random(size)
    spent: dict[str, list[tuple[float, float]]] = {scene.name: [] for scene in scenes}
    before = scenes[1].changelog_bytes()
    for turn in range(rounds):
        votes = [vote(random) for _ in range(size)]
        for scene in scenes:
            scene.db.put("votes", votes)
            if scene.name != "new machine" or turn % 5 == 0:
                spent[scene.name].append(scene.epoch())
            else:
                _timed(lambda scene=scene: advance(scene.machines[0], scene.term, Limits()))
    check(scenes)
    return spent, (scenes[1].changelog_bytes() - before) / size / rounds


def figures(spent: dict[str, list[tuple[float, float]]], grown: float) -> dict[str, float]:
    """Medians, and their ratios to state in the store."""
    found = dict[str, float]()
    base = statistics.median(processor for _, processor in spent["embedded"])
    for name, times in spent.items():
        found[f"{name}, ms"] = 1_000 * statistics.median(seconds for seconds, _ in times)
        middle = statistics.median(processor for _, processor in times)
        found[f"{name}, ms of processor time"] = 1_000 * middle
        if name != "embedded":
            found[f"{name} / embedded, processor time"] = middle / base
    found["changelog, bytes for each vote"] = grown
    return found


def check(scenes: list[Scene]) -> None:
    """All hold the same rows."""
    expected, *others = [rows_of(scene.db) for scene in scenes]
    assert all(found == expected for found in others)


def rows_of(db: Database) -> dict[str, list[str]]:
    return {view: sorted(map(str, db.scan(view).rows())) for view in db.views()}


if __name__ == "__main__":
    main()

"""State apart: any machine runs any epoch, machines are lost at any time, and the rows are those
of the embedded store, byte for byte."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.local import run_epoch
from viewkeep.engine.log_splits import whole_logs
from viewkeep.engine.programs import load_plan
from viewkeep.stores import create_store, open_store
from viewkeep.stores.apart import ApartStore
from viewkeep.stores.contract import Store

from .history import FOLDER, History
from .lanes import in_both_lanes
from .test_histories import STACKED, VIEWS, created, histories

SHARDS = 4
slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
phases = (Phase.explicit, Phase.reuse, Phase.generate)
MACHINES = ("home", "ann", "bob")


@dataclass
class Machines:
    """Some machines with a state folder each, and what they share."""

    folder: Path
    table: bool = False  # the changelog is in the store, and not in a folder beside it

    def url(self, machine: str) -> str:
        shared = "" if self.table else f"&changelog={self.folder / 'changelog'}"
        return f"apart:{self.folder / 'db'}?state={self.folder / machine}{shared}"

    @contextmanager
    def on(self, machine: str) -> Iterator[ApartStore]:
        """A process on a machine."""
        with closing(open_store(self.url(machine))) as store:
            assert isinstance(store, ApartStore)
            yield store

    def lose(self, machine: str) -> None:
        """The disk of a machine is gone."""
        shutil.rmtree(self.folder / machine, ignore_errors=True)


@pytest.fixture(params=["folder", "table"])
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Machines:
    return Machines(tmp_path, request.param == "table")


def create(machines: Machines) -> ApartStore:
    made = create_store(machines.url("home"), shards=SHARDS, durability="relaxed")
    assert isinstance(made, ApartStore)
    return made


State = dict[tuple[int, int], list[tuple[bytes, bytes]]]


def state_of(store: Store) -> State:
    """All rows of all state tables at the published epoch."""
    published = Epochs(store).read().published
    program = load_plan(store, published.plan).program
    found = {}
    for table in (table for operator in program.operators for table in operator.tables):
        for shard in range(store.state.shards):
            chunk = store.state.scan(shard, table.number, limit=10**6, at=published.epoch)
            found[shard, table.number] = list(zip(chunk.keys, chunk.rows, strict=True))
    return found


def assert_views_are_state(store: Store) -> None:
    """The rows of views are the same in the store as in state."""
    published = Epochs(store).read().published
    for placement in load_plan(store, published.plan).program.placements.values():
        for shard in range(store.state.shards):
            found, expected = (
                part.scan(shard, placement.table.number, limit=10**6, at=published.epoch)
                for part in (store.views, store.state)
            )
            assert found == expected, placement


def play(statements: list[str], late: list[str], history: list[tuple[str, Any]], seed: int) -> None:
    """Run a history on an embedded store, and with state apart on machines that come and go."""
    random = Random(seed)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        machines = Machines(Path(folder), table=seed % 2 == 0)
        embedded = create_store(f"{folder}/embedded", shards=SHARDS, durability="relaxed")
        with closing(embedded), closing(create(machines)) as home:
            models = [History(embedded), History(home)]
            terms = [Epochs(model.store).acquire().term for model in models]
            for text in statements:
                for model in models:
                    model.create_view(text)
            middle = len(history) // 2

            def one_epoch(limits: Limits) -> bool:
                opened = Epochs(embedded).open_next(terms[0], limits)
                if opened is not None:
                    Epochs(embedded).publish(terms[0], opened, run_epoch(embedded, opened))
                return epoch_apart(machines, models[1], terms[1], limits, random)

            for number, (kind, detail) in enumerate([*history, ("epoch", 6)]):
                for model in models:
                    if number == middle:
                        for text in late:
                            model.create_view(text)
                    if kind == "put":
                        model.put(detail)
                    elif kind == "delete":
                        model.delete(detail)
                if kind == "epoch":
                    one_epoch(Limits(operations=detail, chunk=2))
                    assert state_of(home) == state_of(embedded)
            while one_epoch(Limits(chunk=2)):
                assert state_of(home) == state_of(embedded)
            assert Epochs(embedded).open_next(terms[0], Limits()) is None
            models[1].check()


def epoch_apart(
    machines: Machines, model: History, term: int, limits: Limits, random: Random
) -> bool:
    """One epoch, some of it run twice or by several machines, and a disk that is lost."""
    epoch = Epochs(model.store).open_next(term, limits)
    if epoch is None:
        return False
    program = load_plan(model.store, epoch.plan).program
    with machines.on(random.choice(MACHINES)) as other:
        if random.random() < 0.4:  # an attempt that ends in the middle
            messages = [
                m for log in whole_logs(other, epoch) for m in run_sources(other, epoch, log)
            ]
            random.shuffle(messages)
            if program.levels > 1:
                shards = random.sample(range(SHARDS), random.randrange(SHARDS))
                mine = [message for message in messages if message[0] in shards]
                list(run_level(other, epoch, 1, shards, mine))
    if random.random() < 0.3:
        machines.lose(random.choice(MACHINES))
    with machines.on(random.choice(MACHINES)) as worker:
        reports = in_both_lanes(worker, epoch, random.choice([1, 2, 4]), random)
        Epochs(worker).publish(term, epoch, reports)
        if random.random() < 0.3:
            for shard in random.sample(range(SHARDS), 2):
                worker.state.replicas[shard].at(epoch.epoch)
                worker.state.replicas[shard].snapshot()
        if random.random() < 0.3:
            housekeep(worker, budget=random.choice([1, 100]))
    model.check()
    assert_views_are_state(model.store)
    return True


@settings(max_examples=15, deadline=None, suppress_health_check=slow, phases=phases)
@given(
    st.lists(st.sampled_from(VIEWS), min_size=2, max_size=4, unique=True),
    histories,
    st.integers(0, 2**32),
)
def test_rows_are_those_of_the_embedded_store(
    selects: list[str], history: list[tuple[str, Any]], seed: int
) -> None:
    statements = created(selects)
    split = seed % (len(statements) + 1)
    play(statements[:split], statements[split:], history, seed)


@settings(max_examples=10, deadline=None, suppress_health_check=slow, phases=phases)
@given(st.integers(0, len(STACKED)), histories, st.integers(0, 2**32))
def test_views_on_views(split: int, history: list[tuple[str, Any]], seed: int) -> None:
    play(STACKED[:split], STACKED[split:], history, seed)


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=slow, phases=phases)
@given(
    st.lists(st.sampled_from(VIEWS), min_size=2, max_size=4, unique=True),
    histories,
    st.integers(0, 2**32),
)
def test_many_histories(selects: list[str], history: list[tuple[str, Any]], seed: int) -> None:
    play(created(selects), STACKED, history, seed)


def test_a_worker_that_loses_its_disk_between_epochs(machines: Machines) -> None:
    with closing(create(machines)) as home:
        model = History(home)
        model.create_view(
            "CREATE VIEW v AS SELECT h, COUNT(*) AS n, MAX(x) AS x FROM items GROUP BY h"
        )
        term = Epochs(home).acquire().term
        for turn in range(8):
            model.put([{"id": n, "part": turn, "h": n % 3, "x": n * turn} for n in range(6)])
            machines.lose("worker")
            with machines.on("worker") as worker:
                epoch = Epochs(worker).open_next(term, Limits())
                assert epoch is not None
                Epochs(worker).publish(term, epoch, run_epoch(worker, epoch))
            model.check()


def test_state_becomes_a_view(machines: Machines) -> None:
    """Views come and go over state that others keep; epochs are given up in between."""
    random = Random(5)
    inner = "SELECT g, COUNT(*) AS n FROM items GROUP BY g"
    outer = f"SELECT n, COUNT(*) AS groups FROM ({inner}) GROUP BY n"
    with closing(create(machines)) as home:
        model, epochs = History(home), Epochs(home)
        model.create_view(f"CREATE VIEW o AS {outer}")
        term = epochs.acquire().term
        for turn in range(12):
            model.put([{"id": random.randrange(20), "part": 0, "g": random.choice("abc")}])
            model.delete([(random.randrange(20), 0)])
            if turn % 4 == 1:
                model.create_view(f"CREATE VIEW i AS {inner}")
            if turn % 4 == 3:
                model.catalog.drop_view("i")
            if turn % 3 == 1:
                epoch = epochs.open_next(term, Limits())
                assert epoch is not None
                with machines.on("ann") as worker:
                    run_epoch(worker, epoch)
                epochs.abandon(term, epoch)
            if turn % 5 == 4:
                machines.lose("home")
            while epoch_apart(machines, model, term, Limits(operations=3), random):
                pass

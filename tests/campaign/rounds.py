"""One round of the campaign: writers, drivers, readers, feeds and sessions on a failing machine.

Law: after every step and at the end, nothing acknowledged is lost, nothing is half or doubled,
every published epoch equals the oracle, and every feed and session goes on in order without gaps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from viewkeep.access.writes import BaseTable
from viewkeep.codec.keys import KeyCodec
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.engine.programs import load_plan, newest_plan
from viewkeep.errors import Locked, OutcomeUnknown, StoreFull, ViewkeepError
from viewkeep.plan.nodes import View
from viewkeep.stores import open_store
from viewkeep.stores.contract import Cut
from viewkeep.types import BIGINT, INT

from . import schema
from .actor import Actor, tuples
from .damage import damage
from .defining import Definer, Names
from .disk import Disk
from .driving import Driver, Housekeeper, Resident, Zombie
from .following import Follower
from .model import Change, Finding, Model, Multiset, Rows, answers, multiset
from .reading import Reader, Session, Snapshooter
from .world import LOCKS, PLACES, CutStore, Death, Intent, PowerLoss, Process, World
from .writing import Clock, Writer

STEPS = 30
STEP_SECONDS = 0.4
ACTORS = (
    Writer, Driver, Resident, Zombie, Housekeeper, Reader, Snapshooter, Follower, Session,
    Definer, Clock,
)  # fmt: skip
KEY_CODECS = {"id": KeyCodec((BIGINT,)), "a": KeyCodec((BIGINT, INT))}  # by the first column
A = TypeVar("A", bound=Actor)


class Round:
    """A database, the actors on it, and the model that they are held against."""

    def __init__(self, seed: int, folder: Path, disk: Disk):
        rng = random.Random(seed)
        nodes = rng.choice((1, 2, 2, 3))
        self.world = World(
            seed, folder, disk, nodes, nodes * rng.choice((1, 2)), rng.choice(("full", "relaxed"))
        )
        self.rng, self.model = self.world.rng, Model()
        self.world.on_write, self.world.interrupt = self.write, self.interrupted
        self.processes: dict[str, Process] = {}
        self.actors = {kind: kind(self) for kind in ACTORS}
        self.expected: dict[int, dict[str, Multiset]] = {}  # epoch -> view -> rows
        self.views: dict[int, Mapping[str, View]] = {}  # of the epochs that were checked
        self.cuts: dict[int, Cut] = {}
        self.names = Names()
        self.pending: list[_Pending] = []
        self.depth = 0
        self.acting: type[Actor] = Writer

    @property
    def history(self) -> list[str]:
        return self.world.history

    def remove(self) -> None:
        self.world.remove()

    def actor(self, kind: type[A]) -> A:
        found = self.actors[kind]
        assert isinstance(found, kind)
        return found

    # -- running -------------------------------------------------------------------------------

    def play(self) -> Counter[str]:
        world = self.world
        world.note(f"{world.nodes} nodes, {world.shards} shards, {world.mode}")
        with world.running():
            self.set_up()
            world.disk.begin(Path(world.url))
            try:
                for _ in range(STEPS):
                    self.step()
                self.finish()
            finally:
                world.disk.end()
                self.drop_processes()
        if self.rng.random() < 0.1:
            self.damage()
        return world.happened

    def process(self, name: str) -> Process:
        if name not in self.processes:
            self.processes[name] = Process(self.world, name)
        return self.processes[name]

    def drop_processes(self) -> None:
        for process in self.processes.values():
            with suppress(Exception):
                process.end()
        self.processes.clear()

    def set_up(self) -> None:
        db = self.process("watcher").db
        definer = self.actor(Definer)
        definer.create_table(db, "accounts", schema.ACCOUNTS)
        definer.create_table(db, "items", schema.ITEMS)
        for name in self.rng.sample(sorted(schema.VIEWS), self.rng.randrange(1, 4)):
            definer.create_view(db, name)
        if self.rng.random() < 0.25:
            for name in self.rng.sample(sorted(schema.SHAPES), 4):
                if name not in self.names.texts:
                    definer.create_view(db, name)

    def step(self, busy: str = "") -> None:
        """One step of one actor, with at most one fault; the model is checked after it."""
        world, rng = self.world, self.rng
        kind = rng.choices(ACTORS, [kind.weight for kind in ACTORS])[0]
        if self.depth and rng.random() < 0.4:
            kind = self.acting  # two of a kind are the likeliest to be in each other's way
        name = rng.choice(kind.hosts)
        if name == busy:
            return  # that process is inside a call
        outer = world.current, world.fault, self.acting
        refusals = world.refusals
        world.fault, self.acting = None, kind
        full = self.plan_fault()
        world.note(f"{'  ' * self.depth}{kind.name()} in {name}")
        world.pass_time(STEP_SECONDS)
        try:
            world.current = self.process(name)
            self.actors[kind].act(world.current)
        except (StoreFull, OutcomeUnknown):
            if full:
                self.refused()
            elif world.disk.is_dead and self.depth:
                raise PowerLoss from None
            elif world.disk.is_dead:
                self.power_lost()
            else:
                raise
        except Locked as error:
            if world.refusals == refusals:
                raise Finding(f"{name}: nobody keeps the lock, but {error}") from error
            self.settle()
        except Death:
            self.died(name)
        except PowerLoss:
            if self.depth:
                raise
            self.power_lost()
        except ViewkeepError as error:
            if world.disk.is_dead and not self.depth:
                self.power_lost()
            elif world.disk.is_dead:
                raise PowerLoss from None
            else:
                raise Finding(f"{name}: {type(error).__name__}: {error}") from error
        finally:
            world.disk.disarm()
            world.current, world.fault, self.acting = outer
        self.check()

    def plan_fault(self) -> bool:
        """Choose what goes wrong in a step; whether the disk may run full."""
        world, rng = self.world, self.rng
        chance, after = rng.random(), rng.choice((1, 1, 2, 2, 3, 4, 6, 9))
        if chance < 0.14:
            world.fault = ("death", rng.choice(PLACES), after)
        elif chance < 0.34 and self.depth == 0:
            world.fault = ("another step", rng.choice(PLACES[:2]), after)
        elif chance < 0.38 and self.depth == 0 and world.mode == "full" and world.disk.is_there:
            world.fault = ("power loss", rng.choice(PLACES), after)
        elif chance < 0.42 and self.depth == 0 and world.mode == "full" and world.disk.is_there:
            world.disk.cut_power(rng.randrange(1, 12))
        elif chance < 0.48 and self.depth == 0 and world.disk.is_there:
            world.disk.run_full(rng.randrange(1, 5), rng.choice((1, 1, 3)), rng.random() < 0.5)
            return True
        elif chance < 0.54:
            world.fault = ("refusal", LOCKS, after)
        return False

    def interrupted(self, process: Process | None) -> None:
        """Another process runs a whole step between two store calls of this one."""
        self.depth += 1
        try:
            for _ in range(self.rng.choice((1, 1, 2))):
                self.step(busy=process.name if process else "")
        finally:
            self.depth -= 1

    # -- writes and what became of them --------------------------------------------------------

    def write(self, store: CutStore, writes: Any) -> Any:
        intent, table = store.process.intent, writes[0].table
        assert intent is not None
        rows = self.model.table(table)
        if len(self.model.writes) > intent.began:
            codec = KEY_CODECS[writes[0].codec.columns[0].name]
            keys = {codec.decode_one(key) for write in writes for key in write.keys}
            rows = {key: row for key, row in rows.items() if key in keys}
        changes = self.model.effective(table, intent.effect(rows))
        before = self.world.disk.faults
        begun = _Pending(intent.number, table, changes, may_be_done=True)
        try:
            cut = store.inner.tables.write(writes)
        except (Death, PowerLoss):
            self.pending.append(begun)
            raise
        except Locked:
            self.pending.append(replace(begun, may_be_done=False))
            raise
        except ViewkeepError as error:
            if self.world.disk.is_dead:
                self.pending.append(begun)
            elif self.world.disk.faults > before:
                self.world.happened["write on a full disk"] += 1
                unknown = isinstance(error, OutcomeUnknown)
                self.pending.append(replace(begun, may_be_done=unknown))
                if not isinstance(error, (StoreFull, OutcomeUnknown)):
                    raise Finding(f"a full disk is {type(error).__name__}: {error}") from error
            raise
        self.model.commit(intent.number, table, changes, cut.positions)
        return cut

    def settle(self) -> None:
        """Find out whether the writes that were under way are there: whole, or not at all."""
        pending, self.pending = self.pending, []
        if not pending:
            return
        db = self.process("watcher").db
        head = db.store.inner.log.head()
        names = {source.number: name for name, source in db.catalog.current().tables.items()}
        for write in pending:
            if write.table not in names:
                raise Finding("the table of a write was dropped while it was under way")
            if self.is_there(db, names[write.table], write, head.operations):
                if not write.may_be_done:
                    raise Finding("a refused write is there")
                ends = head.positions
                self.model.commit(write.number, write.table, write.changes, ends)

    def is_there(self, db: Any, table: str, write: _Pending, operations: int) -> bool:
        """Whether all rows are as the write leaves them; if it leaves all as they were, the log
        tells."""
        there = set()
        for key, row in dict(write.changes).items():  # the last change of each key
            got, old = db.get(table, key), self.model.table(write.table).get(key)
            if got not in (row, old):
                raise Finding(f"{table} {key} is {got}, neither {old} nor {row}")
            if row != old:
                there.add(got == row)
        if len(there) > 1:
            raise Finding(f"half a write: only some of the rows of {write} are there")
        return there.pop() if there else operations > self.model.operations

    def died(self, name: str) -> None:
        if process := self.processes.pop(name, None):  # else it died while it opened the database
            process.end()
        self.forget(name)
        self.settle()

    def power_lost(self) -> None:
        world = self.world
        world.disk.freeze()
        world.happened["power loss"] += 1
        names = list(self.processes)
        self.processes.clear()
        world.power_up()
        for name in names:
            self.forget(name)
        self.settle()

    def refused(self) -> None:
        self.world.disk.disarm()  # there is room again: what was promised is now completed
        self.world.happened["full disk"] += 1
        self.settle()

    def forget(self, name: str) -> None:
        for actor in self.actors.values():
            actor.forget(name)

    # -- checks --------------------------------------------------------------------------------

    def check(self) -> None:
        """Every published epoch equals the oracle; each is looked at once."""
        fault, self.world.fault = self.world.fault, None
        try:
            self._check(self.process("watcher").db)
        finally:
            self.world.fault = fault

    def _check(self, db: Any) -> None:
        self.names.check(db.catalog.current())
        published = db.epochs.read().published
        if published.epoch in self.expected or not published.epoch:
            return
        if self.expected and published.epoch < max(self.expected):
            raise Finding(f"epoch {max(self.expected)} was published, now it is {published.epoch}")
        plan = load_plan(db.store, published.plan)
        rows = self.model.at(published.cut)
        tables = {
            name: (source.schema.polars, rows.get(source.number, {}))
            for name, source in plan.tables.items()
        }
        expected = answers(tables, {name: view.sql for name, view in plan.views.items()})
        self.cuts[published.epoch], self.views[published.epoch] = published.cut, plan.views
        self.expected[published.epoch] = ready = {}
        current = db.catalog.current()
        for name in plan.views:
            if not db.epochs.ready(name) or current.generations.get(name) != plan.generations[name]:
                continue
            found = multiset(db.scan(name, at=published.epoch).tuples())
            if found != expected[name]:
                raise Finding(
                    f"view {name} at epoch {published.epoch}: {found - expected[name]} are too "
                    f"many, {expected[name] - found} are missing"
                )
            ready[name] = expected[name]

    def expected_rows(self, view: str, epoch: int) -> Multiset | None:
        """A view at a published epoch, by the oracle; None if it was not loaded then."""
        self.check()
        return self.expected.get(epoch, {}).get(view)

    def view_at(self, name: str, epoch: int) -> View:
        """The view that a name stood for at an epoch."""
        return self.views[epoch][name]

    def epochs_since(self, begin: int) -> range:
        """The epochs that were published while something ran that began at this one."""
        self.check()
        return range(begin, max(self.cuts, default=0) + 1)

    def compare(self, name: str, found: Multiset, epochs: Iterable[int]) -> None:
        """A read must be the view at one of the epochs that were published while it ran."""
        known = [rows for e in epochs if (rows := self.expected_rows(name, e)) is not None]
        if known and found not in known:
            raise Finding(f"a read of {name} is {found}; expected one of {known}")

    def table_at(self, number: int, cut: Cut) -> Multiset:
        """A base table at a cut, by the model."""
        return multiset(tuples(self.model.at(cut).get(number, {}).values()))

    def finish(self) -> None:
        """No more faults: all catches up, and is as the model says."""
        world = self.world
        world.note("finish")
        for name in list(self.processes):
            self.processes.pop(name).end()
            self.forget(name)
        watcher = self.process("watcher")
        world.current = watcher
        catch_up(watcher.store, set_aside=True)
        self.check()
        self.repair(watcher)
        housekeep(watcher.store)
        follower = self.actor(Follower)
        for one in list(follower.following):
            for _ in range(20):  # more than it has parts
                if one in follower.following:
                    follower.follow(self.process("follower"), one)
        self.actor(Session).act(self.process("session_user"))
        if watcher.store.inner.log.head().operations != self.model.operations:
            raise Finding("the logs hold more or fewer operations than were written")
        for name, source in watcher.db.catalog.current().tables.items():
            found = multiset(watcher.db.scan(name).tuples())
            rows = self.model.table(source.number).values()
            if found != multiset(tuples(rows)):
                raise Finding(f"table {name} is {found}; the model has {list(rows)}")

    def damage(self) -> None:
        """Bytes of the files change: what is read then was once written, or is refused."""
        store = open_store(self.world.url)
        current = newest_plan(store)
        store.close()
        tables = {source.number: BaseTable(source) for source in current.tables.values()}
        states = sorted(set(current.numbers.values()))

        def decode(record: Any) -> Any:
            (kind, table, *place), value = record
            if kind not in ("base", "log") or table not in tables:
                return record
            base = tables[table]
            key = base.key_codec.decode_one(place.pop())
            return (kind, table, *place, key), value and base.row_codec.decode_one(value)

        for write in self.model.writes:
            for key, row in write.changes:
                values = None if row is None else tuple(row.values())
                self.world.ever.values["base", write.table, key].add(values)
        self.world.happened += damage(
            self.rng, Path(self.world.url), states, decode, self.world.ever
        )

    def repair(self, watcher: Process) -> None:
        """The rows that views failed on are corrected: then no view is failed."""
        if not watcher.db.catalog.current().failed:
            return
        number = self.model.new_number()

        def effect(rows: Rows) -> list[Change]:
            bad = {key: row for key, row in rows.items() if row["s"] == schema.POISON}
            return [(key, {**row, "s": "x", "w": number}) for key, row in bad.items()]

        watcher.intent = Intent(number, effect, len(self.model.writes))
        text = f"UPDATE items SET s = 'x', w = {number} WHERE s = '{schema.POISON}'"
        watcher.db.sql(text)
        self.world.happened["view repaired"] += len(watcher.db.repair())
        catch_up(watcher.store)
        self.check()
        if missing := set(watcher.db.views()) - set(self.expected_views()):
            raise Finding(f"views {sorted(missing)} are not there after their repair")

    def expected_views(self) -> Iterable[str]:
        """The views that the last epoch has."""
        return self.expected[max(self.expected)]


@dataclass(frozen=True)
class _Pending:
    """A write that was under way when its process died, or that was refused."""

    number: int
    table: int
    changes: list[Change]
    may_be_done: bool

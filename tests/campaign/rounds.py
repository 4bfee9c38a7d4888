"""One round of the campaign: writers, drivers, readers, feeds and sessions on a failing machine.

Law: after every step and at the end, nothing acknowledged is lost, nothing is half or doubled,
every published epoch equals the oracle, and every feed and session goes on in order without gaps.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from viewkeep.engine.epochs import Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.local import catch_up
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import reports_of
from viewkeep.engine.stretches import even_stretches, levels_to_run
from viewkeep.errors import (
    CatalogError,
    DuplicateKey,
    EpochGone,
    Fenced,
    NotReady,
    OutcomeUnknown,
    PipelineError,
    StoreFull,
    Timeout,
    UnknownName,
    ViewkeepError,
)

from . import schema
from .disk import Disk
from .model import Change, Finding, Model, Multiset, answers, multiset
from .world import PLACES, CutStore, Death, PowerLoss, Process, World

STEPS = 30
ACCOUNT_IDS, ITEM_IDS = range(7), range(4)


class Round:
    """A database, the actors on it, and the model that they are held against."""

    def __init__(self, seed: int, folder: Path, disk: Disk):
        rng = random.Random(seed)
        nodes = rng.choice((1, 2, 2, 3))
        self.world = World(
            seed, folder, disk, nodes, nodes * rng.choice((1, 2)), rng.choice(("full", "relaxed"))
        )
        self.rng, self.model = self.world.rng, Model(nodes)
        self.world.on_write, self.world.interrupt = self.write, self.interrupted
        self.processes: dict[str, Process] = {}
        self.expected: dict[int, dict[str, Multiset]] = {}
        self.depth = 0
        self.pending: list[tuple[list[Change], bool]] = []  # writes under way at a death
        self.late: list[Any] = []  # epochs whose tasks may come again
        self.term = 0
        self.drive: dict[str, Any] | None = None
        self.feed: dict[str, Any] = {}
        self.session: dict[str, Any] = {"token": None, "epoch": 0, "writes": 0}

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
        db.sql(schema.ACCOUNTS)
        db.sql(schema.ITEMS)
        for name in self.rng.sample(sorted(schema.VIEWS), self.rng.randrange(1, 4)):
            self.create_view(db, name)

    def create_view(self, db: Any, name: str) -> None:
        db.sql(f"CREATE VIEW {name} AS {schema.VIEWS[name]}")
        for over, (under, text) in schema.OVER_VIEWS.items():
            if under == name and self.rng.random() < 0.6:
                db.sql(f"CREATE VIEW {over} AS {text}")

    def step(self, exclude: str = "") -> None:
        """One step of one actor, with at most one fault; the model is checked after it."""
        world, rng = self.world, self.rng
        choices = [name for name in ACTORS if name != exclude]
        name = rng.choices(choices, [ACTORS[n] for n in choices])[0]
        outer = world.current, world.fault
        world.fault = None
        full = self.plan_fault()
        world.note(f"{'  ' * self.depth}{name}")
        try:
            world.current = self.process(name)
            getattr(self, name)(world.current)
        except (StoreFull, OutcomeUnknown):
            if not full:
                raise
            self.refused()
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
            world.current, world.fault = outer
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
        return False

    def interrupted(self, process: Process | None) -> None:
        """Another process runs a whole step between two store calls of this one."""
        self.depth += 1
        try:
            for _ in range(self.rng.choice((1, 1, 2))):
                self.step(exclude=process.name if process else "")
        finally:
            self.depth -= 1

    # -- writes and what became of them --------------------------------------------------------

    def write(self, store: CutStore, writes: Any) -> Any:
        effect = store.process.effect
        changes = self.model.effective(effect(self.model)) if effect else []
        before = self.world.disk.faults
        try:
            ends = store.inner.write(writes)
        except (Death, PowerLoss):
            self.pending.append((changes, True))
            raise
        except ViewkeepError as error:
            if self.world.disk.is_dead:
                self.pending.append((changes, True))
            elif self.world.disk.faults > before:
                self.world.happened["write on a full disk"] += 1
                self.pending.append((changes, isinstance(error, OutcomeUnknown)))
                if not isinstance(error, (StoreFull, OutcomeUnknown)):
                    raise Finding(f"a full disk is {type(error).__name__}: {error}") from error
            raise
        self.model.commit(changes, ends)
        if store.process.name == "session_user":
            self.session["writes"] = len(self.model.writes)
        return ends

    def settle(self) -> None:
        """Find out whether the writes that were under way are there: whole, or not at all."""
        pending, self.pending = self.pending, []
        if not pending:
            return
        db = self.process("watcher").db
        head = db.store.inner.head()
        names = {source.number: name for name, source in db.catalog.current().tables.items()}
        for changes, may_be_done in pending:
            there = []
            for table, key, row in changes:
                if table not in names:
                    continue
                got = db.get(names[table], key)
                if got == row:
                    there.append(True)
                elif got == self.model.table(table).get(key):
                    there.append(False)
                else:
                    raise Finding(f"{names[table]} {key} is {got}, neither old nor new")
            if len(set(there)) > 1:
                raise Finding(f"half a write: {sum(there)} of {len(there)} rows are there")
            if there and there[0]:
                if not may_be_done:
                    raise Finding("a refused write is there")
                self.model.commit(changes, dict(enumerate(head.offsets)))

    def died(self, name: str) -> None:
        self.processes.pop(name).end()
        self.forget(name)
        self.settle()

    def power_lost(self) -> None:
        world = self.world
        world.disk.freeze()
        world.happened["power loss"] += 1
        self.processes.clear()
        world.power_up()
        for name in ACTORS:
            self.forget(name)
        self.settle()

    def refused(self) -> None:
        self.world.disk.disarm()  # there is room again: what was promised is now completed
        self.world.happened["full disk"] += 1
        self.settle()

    def forget(self, name: str) -> None:
        """What a process had in memory is gone; tokens that a client keeps are not."""
        if name == "driver":
            self.drive = None
        if name == "follower" and self.feed:
            self.feed["feed"] = None

    # -- actors --------------------------------------------------------------------------------

    def writer(self, process: Process) -> None:
        rng, db = self.rng, process.db
        number = self.model.new_number()
        kind = rng.choice(("put", "put", "transfer", "transfer", "items", "delete", "insert"))
        tables = db.catalog.current().tables
        accounts, items = tables["accounts"].number, tables["items"].number
        if kind == "put":
            rows = [self.account(key, number) for key in rng.sample(ACCOUNT_IDS, 3)]
            process.effect = lambda _: [(accounts, (row["id"],), row) for row in rows]
            db.put("accounts", rows)
        elif kind == "transfer":
            self.transfer(process, accounts, number)
        elif kind == "items":
            rows = [self.item(number) for _ in range(2)]
            rows = list({(row["a"], row["b"]): row for row in rows}.values())
            process.effect = lambda _: [(items, (row["a"], row["b"]), row) for row in rows]
            db.put("items", rows)
        elif kind == "delete":
            keys = rng.sample(ACCOUNT_IDS, 2)
            process.effect = lambda _: [(accounts, (key,), None) for key in keys]
            db.delete_many("accounts", keys)
        else:
            row = self.account(rng.choice(ACCOUNT_IDS), number)
            process.effect = lambda _: [(accounts, (row["id"],), row)]
            with suppress(DuplicateKey):
                db.insert("accounts", [row])

    def transfer(self, process: Process, accounts: int, number: int) -> None:
        """Move money between the accounts of an owner by one conditional statement."""
        owner = self.rng.randrange(3)

        def effect(model: Model) -> list[Change]:
            return [
                (accounts, key, {**row, "amount": row["amount"] + 1, "w": number})
                for key, row in model.table(accounts).items()
                if row["owner"] == owner
            ]

        process.effect = effect
        process.db.sql(
            f"UPDATE accounts SET amount = amount + 1, w = {number} WHERE owner = {owner}"
        )

    def account(self, key: int, number: int) -> dict[str, Any]:
        rng = self.rng
        return {"id": key, "owner": rng.randrange(3), "amount": rng.randrange(100), "w": number}

    def item(self, number: int) -> dict[str, Any]:
        rng = self.rng
        a, b = rng.choice(ITEM_IDS), rng.randrange(3)
        return {"a": a, "b": b, "v": rng.randrange(9), "s": rng.choice("xyz"), "w": number}

    def driver(self, process: Process) -> None:
        """Some of a driver's work: an epoch's next tasks, in any order, some of them twice."""
        rng, epochs = self.rng, process.db.epochs
        if self.drive is None:
            try:
                lease = epochs.acquire()
            except PipelineError:
                return  # another driver is alive
            self.drive = {"lease": lease, "epoch": None}
        drive = self.drive
        term = drive["lease"].term
        try:
            limits = Limits(operations=rng.randrange(2, 12), chunk=3, tasks=rng.choice((1, 2)))
            epoch = epochs.open_next(term, limits)
            if epoch is None:
                return
            self.late = [*self.late[-4:], (term, epoch)]
            reports = self.run(process, epoch)
            if rng.random() < 0.1:
                return  # publishing waits for the next step, which runs all tasks again
            epochs.publish(term, epoch, reports)
        except Fenced:
            self.drive = None

    def run(self, process: Process, epoch: Any) -> list[Any]:
        rng, store = self.rng, process.store
        program = load_plan(store, epoch.plan).program
        shares = even_stretches(program, epoch)
        messages: list[Any] = []
        for stretch in rng.sample(flat := [s for share in shares for s in share], len(flat)):
            if rng.random() < 0.15:
                self.world.happened["task run twice"] += 1
                list(run_sources(store, epoch, stretch))
            messages += run_sources(store, epoch, stretch)
        for level in range(1, levels_to_run(program, epoch, shares)):
            sent, messages = messages, []
            rng.shuffle(sent)
            tasks = rng.randrange(1, store.shards + 1)
            for task in rng.sample(range(tasks), tasks):
                mine = [message for message in sent if message[0] % tasks == task]
                shards = range(task, store.shards, tasks)
                if rng.random() < 0.15:
                    self.world.happened["task run twice"] += 1
                    next(run_level(store, epoch, level, shards, mine), None)  # given up
                messages += run_level(store, epoch, level, shards, mine)
        return reports_of(messages)

    def zombie(self, process: Process) -> None:
        """A driver of an earlier epoch or term runs its tasks again and tries to publish."""
        if not self.late:
            return
        term, epoch = self.rng.choice(self.late)
        record = process.db.epochs.read()
        self.world.happened["stale driver"] += 1
        with suppress(Fenced, EpochGone):
            self.run(process, epoch)
        if record.term == term and record.open is not None:
            return  # it is the driver of now
        try:
            done = process.db.epochs.publish(term, epoch, [])
        except Fenced:
            return
        if done.epoch != epoch.epoch or done.epoch != record.published.epoch:
            raise Finding(f"a driver of term {term} published epoch {epoch.epoch} late")

    def housekeeper(self, process: Process) -> None:
        housekeep(process.store, budget=self.rng.choice((2, 5, 1000)))

    def reader(self, process: Process) -> None:
        name = self.rng.choice(sorted(process.db.catalog.current().views) or ["none"])
        start = process.db.epochs.read().published.epoch
        try:
            found = multiset(process.db.scan(name).tuples())
        except (NotReady, UnknownName):
            return
        self.check()
        self.compare(name, found, range(start, process.db.epochs.read().published.epoch + 1))

    def compare(self, name: str, found: Multiset, epochs: range) -> None:
        """A read must be the view at one of the epochs that were published while it ran."""
        known = [self.expected[e][name] for e in epochs if name in self.expected.get(e, {})]
        if known and found not in known:
            raise Finding(f"a read of {name} is {found}; expected one of {known}")

    def follower(self, process: Process) -> None:
        feed = self.feed
        views = sorted(process.db.catalog.current().views)
        if not feed or feed["view"] not in views:
            if not views:
                return
            feed = self.feed = {"view": self.rng.choice(views), "feed": None, "token": None}
        try:
            if feed["feed"] is None:
                feed["feed"] = process.db.subscribe(feed["view"], token=feed["token"])
                if feed["token"] is None:
                    feed["rows"], feed["epoch"] = Counter(), -1
            # What a follower has taken in and its token are kept together.
            rows, epoch = feed["rows"].copy(), feed["epoch"]
            for event in feed["feed"].poll():
                epoch = self.take(event, rows, epoch, feed["view"])
        except (NotReady, UnknownName):  # it was dropped just now
            return
        except EpochGone as error:
            if not self.world.ahead and "replaced" not in str(error):
                raise Finding(f"a feed lost its place: {error}") from error
            self.feed = {}
            return
        token = feed["feed"].token
        feed.update(rows=rows, epoch=epoch)
        if token is None:
            feed["feed"] = feed["token"] = None
            return
        feed["token"] = token
        self.check()
        self.compare(feed["view"], +rows, range(feed["feed"].epoch, feed["feed"].epoch + 1))
        if self.rng.random() < 0.3:
            feed["feed"].close()
            feed["feed"] = None  # go on from the token

    @staticmethod
    def take(event: Any, rows: Multiset, epoch: int, view: str) -> int:
        if event.kind == "rows":
            rows.update(multiset([tuple(row.values()) for row in event.rows]))
            return int(event.epoch)
        if event.epoch < epoch:
            raise Finding(f"the feed of {view} went back from epoch {epoch} to {event.epoch}")
        for change in event.changes:
            if change.old is not None:
                old = multiset([tuple(change.old.values())])
                if not old <= rows:
                    raise Finding(f"the feed of {view} takes away {old}, which it never gave")
                rows.subtract(old)
            if change.new is not None:
                rows.update(multiset([tuple(change.new.values())]))
        return int(event.epoch)

    def session_user(self, process: Process) -> None:
        state = self.session
        session = process.db.session(state["token"], timeout=0)
        if self.rng.random() < 0.6:
            number = self.model.new_number()
            accounts = process.db.catalog.current().tables["accounts"].number
            row = self.account(self.rng.choice(ACCOUNT_IDS), number)
            process.effect = lambda _: [(accounts, (row["id"],), row)]
            session.put("accounts", [row])
            state["token"] = session.token
        views = sorted(process.db.catalog.current().views)
        if not views:
            return
        name = self.rng.choice(views)
        start = process.db.epochs.read().published.epoch
        try:
            found = multiset(session.scan(name).tuples())
        except (NotReady, Timeout, UnknownName):
            return
        state["token"] = session.token
        if session.epoch < state["epoch"]:
            raise Finding(f"a session went back from epoch {state['epoch']} to {session.epoch}")
        state["epoch"] = session.epoch
        self.check()
        self.compare(name, found, range(start, session.epoch + 1))

    def definer(self, process: Process) -> None:
        """Schema changes as they come."""
        db, rng = process.db, self.rng
        views = db.catalog.current().views
        with suppress(CatalogError):  # a view that another is written over stays
            if views and rng.random() < 0.4:
                db.sql(f"DROP VIEW {rng.choice(sorted(views))}")
            elif rng.random() < 0.3:
                there = "notes" in db.catalog.current().tables
                db.sql("DROP TABLE notes" if there else schema.NOTES)
            else:
                self.create_view(db, rng.choice(sorted(schema.VIEWS)))
        self.world.happened["schema change"] += 1

    def clock(self, process: Process) -> None:
        jump = self.rng.choice((-3600.0, -1.0, 0.5, 2.0, 100.0))
        self.world.now += jump
        self.world.ahead = max(self.world.ahead, jump)
        self.world.happened["clock jump"] += 1

    # -- checks --------------------------------------------------------------------------------

    def check(self) -> None:
        """Every published epoch equals the oracle; each is looked at once."""
        fault, self.world.fault = self.world.fault, None
        try:
            self._check(self.process("watcher").db)
        finally:
            self.world.fault = fault

    def _check(self, db: Any) -> None:
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

    def finish(self) -> None:
        """No more faults: all catches up, and is as the model says."""
        world = self.world
        world.note("finish")
        for name in list(self.processes):
            self.processes.pop(name).end()
            self.forget(name)
        watcher = self.process("watcher")
        world.current = watcher
        catch_up(watcher.store)
        housekeep(watcher.store)
        self.check()
        for _ in range(2):
            self.follower(self.process("follower"))
        self.session_user(self.process("session_user"))
        if sum(watcher.store.inner.head().offsets) != self.model.operations:
            raise Finding("the logs hold more or fewer operations than were written")
        for name, source in watcher.db.catalog.current().tables.items():
            found = multiset(watcher.db.scan(name).tuples())
            rows = self.model.table(source.number).values()
            if found != multiset([tuple(row.values()) for row in rows]):
                raise Finding(f"table {name} is {found}; the model has {list(rows)}")


ACTORS = {
    "writer": 8,
    "driver": 10,
    "zombie": 2,
    "housekeeper": 2,
    "reader": 3,
    "follower": 3,
    "session_user": 3,
    "definer": 1.5,
    "clock": 1,
}

"""What the real processes of a campaign run: a writer, a driver or a reader on one database.

Law: a process tells its parent what it is about to write before it writes, and what it has seen
after it saw it. Its own fault happens at a place that is counted, so it comes again with the seed;
what the other processes do meanwhile is the system's choice.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import viewkeep.database  # now, before any process is forked
from viewkeep.engine.epochs import Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import run_epoch
from viewkeep.errors import (
    Conflict,
    EpochGone,
    Fenced,
    Locked,
    NotReady,
    OutcomeUnknown,
    PipelineError,
    Timeout,
)
from viewkeep.stores import open_store
from viewkeep.stores.lmdb.environment import Environment

from .model import Change, Rows
from .world import CutStore, CutTransaction

LEASE_SECONDS = 0.5
WRITES = 12  # of one writer before it ends by itself
_PAUSE = 0.002  # of a process that has nothing to do


@dataclass(frozen=True)
class Announced:
    """A write before it is made: its number, and what it does to the rows it meets."""

    number: int
    table: str
    kind: str
    details: Any

    def effect(self, rows: Rows) -> list[Change]:
        number, details = self.number, self.details
        if self.kind == "put":
            return [(tuple(row[name] for name in _KEYS[self.table]), row) for row in details]
        if self.kind == "transfer":
            return [
                (key, {**row, "amount": row["amount"] + 1, "w": number})
                for key, row in rows.items()
                if row["owner"] == details
            ]
        return [((key,), None) for key in details if (key,) in rows]

    def make(self, db: Any) -> int:
        """The number of rows that it changed."""
        if self.kind == "put":
            return int(db.put(self.table, self.details))
        if self.kind == "transfer":
            text = f"UPDATE accounts SET amount = amount + 1, w = {self.number} WHERE owner = ?"
            return int(db.sql(text, [self.details]).affected)
        keys = ", ".join(map(str, self.details))
        return int(db.sql(f"DELETE FROM accounts WHERE id IN ({keys})").affected)


_KEYS = {"accounts": ("id",), "items": ("a", "b")}


@dataclass(frozen=True)
class Given:
    """What a process is started with; `state` is what its client has kept of the one before it."""

    url: str
    seed: int
    first: int  # the number of its first write
    owner: int  # of the keys that only writers of this place write and delete
    fault: tuple[str, str, int] | None
    state: dict[str, Any]


class Program:
    """A process: opens the database, takes steps until it is told to end, and says what it saw."""

    def __init__(self, pipe: Connection, given: Given):
        self.pipe, self.given = pipe, given
        self.rng, self.fault = random.Random(given.seed), given.fault
        self.number = given.first
        self.making = 0  # the number of the write that is under way
        self.children: list[int] = []
        self.db: Any = None
        self.disk = SimpleNamespace(is_dead=False)  # as CutTransaction asks it

    def say(self, what: str, *more: object) -> None:
        self.pipe.send((what, *more))

    def main(self) -> None:
        begin = Environment.begin

        def cut_begin(shared: Environment, *, write: bool = False, buffers: bool = False) -> Any:
            txn = begin(shared, write=write, buffers=buffers)
            return CutTransaction(txn, self) if write else txn

        Environment.begin = cut_begin  # type: ignore[method-assign]
        Environment.within = lambda shared, txn: shared.env.begin(  # type: ignore[method-assign]
            None, getattr(txn, "txn", txn), True
        )
        while self.db is None:
            with self.locked():
                store = CutStore(open_store(self.given.url), SimpleNamespace(world=self))
                self.db = viewkeep.Database(store, self.given.url)
        self.say("ready")
        while not self.is_over():
            with self.locked():
                self.step()
        for child in self.children:
            os.waitpid(child, 0)
        self.say("ended")

    def locked(self) -> Any:
        """A stopped process keeps others waiting, but not for ever."""
        return _Told(self)

    def is_over(self) -> bool:
        return self.pipe.poll(0) and self.pipe.recv() == "end"

    def step(self) -> None:
        raise NotImplementedError

    def called(self, method: str, args: tuple[Any, ...]) -> None:
        """Nobody asks a real process what it has stored."""

    def write(self, store: CutStore, writes: Any) -> Any:
        # A statement with a condition writes the rows that it has read, if they are still so.
        self.say("writing", self.making, [key for write in writes for key in write.keys])
        return store.inner.tables.write(writes)

    def announced(self, made: Announced, make: Callable[[Any], int] | None = None) -> bool:
        """Make a write, telling before and after it; whether it was acknowledged."""
        self.say("begin", made)
        self.making = made.number
        try:
            count = (make or made.make)(self.db)
        except (Locked, Conflict) as error:
            self.say("refused", made.number, type(error).__name__)
            return False
        except OutcomeUnknown:
            self.say("unknown", made.number)
            return False
        self.say("done", made.number, count)
        return True

    def new_put(self) -> Announced:
        rng, number = self.rng, self.number
        self.number += 1
        if rng.random() < 0.3:
            keys = rng.sample([(a, b) for a in range(4) for b in range(3)], 2)
            items = [
                {
                    "a": a,
                    "b": b,
                    "v": rng.randrange(9),
                    "s": rng.choice("xyz"),
                    "x": 0.1 * b,
                    "w": number,
                }
                for a, b in keys
            ]
            return Announced(number, "items", "put", items)
        mine = [100 * self.given.owner + place for place in range(4)]
        ids = [*rng.sample(range(7), 2), rng.choice(mine)]
        rows = [
            {"id": key, "owner": rng.randrange(3), "amount": rng.randrange(100), "w": number}
            for key in ids
        ]
        return Announced(number, "accounts", "put", rows)

    # -- faults --------------------------------------------------------------------------------

    def at(self, place: str, process: Any) -> None:
        """A place where the planned fault may happen."""
        if self.fault is None or self.fault[1] != place:
            return
        what, where, left = self.fault
        if left > 1:
            self.fault = (what, where, left - 1)
            return
        self.fault = None
        self.say(what, where)
        if what == "fork":
            self.fork()
        else:
            os.kill(os.getpid(), signal.SIGKILL if what == "kill" else signal.SIGSTOP)

    def fork(self) -> None:
        """A child opens the database, reads, writes, and ends while this process goes on."""
        put = self.new_put()
        self.say("begin", put)
        child = os.fork()
        if child:
            self.children.append(child)
            return
        try:
            with suppress(Locked, OutcomeUnknown):
                self.db.store.inner.close()
                other = viewkeep.open(self.given.url)
                other.get("accounts", 1)
                put.make(other)
                other.get("items", (1, 1))
                if self.rng.random() < 0.5:
                    other.close()
                del other
                gc.collect()
        finally:
            os._exit(0)


class _Told:
    def __init__(self, program: Program):
        self.program = program

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: object, trace: object) -> bool:
        if kind is not None and issubclass(kind, Locked):
            self.program.say("locked")
            return True
        return False


class Writer(Program):
    """Writes over several nodes, one after the other."""

    left = WRITES

    def step(self) -> None:
        if not self.left:
            time.sleep(_PAUSE)
            return
        self.left -= 1
        kind = self.rng.choice(("put", "put", "put", "transfer", "delete"))
        made = self.new_put()
        if kind == "transfer":
            made = Announced(made.number, "accounts", "transfer", self.rng.randrange(3))
        elif kind == "delete":
            mine = [100 * self.given.owner + place for place in range(4)]
            made = Announced(made.number, "accounts", "delete", self.rng.sample(mine, 3))
        self.announced(made)


class Driver(Program):
    """Runs epochs while it has the lease."""

    lease: Any = None

    def step(self) -> None:
        epochs = self.db.epochs
        try:
            if self.lease is None:
                self.lease = epochs.acquire(LEASE_SECONDS)
            epochs.renew(self.lease)
            limits = Limits(operations=self.rng.randrange(2, 20), chunk=5)
            epoch = epochs.open_next(self.lease.term, limits)
            if epoch is None:
                time.sleep(_PAUSE)
                return
            self.say("opened", epoch.epoch, epoch.cut, epoch.plan)
            reports = run_epoch(self.db.store, epoch, self.rng.choice((1, 2)))
            epochs.publish(self.lease.term, epoch, reports)
            self.say("published", epoch.epoch)
            if self.rng.random() < 0.5:
                housekeep(self.db.store, self.rng.choice((5, 1000)))
        except (Fenced, EpochGone) as error:
            self.lease = None
            self.say("fenced", str(error))
        except PipelineError:
            time.sleep(5 * _PAUSE)  # another driver is at work


class Reader(Program):
    """Reads, a feed, snapshots, and a session that goes on where the process before it stopped."""

    def __init__(self, pipe: Connection, given: Given):
        super().__init__(pipe, given)
        self.view = given.state["view"]
        self.token, self.session_token = given.state["feed"], given.state["session"]
        self.feed: Any = None

    def step(self) -> None:
        kind = self.rng.choice((self.read, self.follow, self.follow, self.go_on, self.snapshot))
        with suppress(NotReady):
            kind()
        time.sleep(_PAUSE)

    def read(self) -> None:
        view = self.rng.choice(self.given.state["views"])
        found = self.db.scan(view)
        self.say("read", view, found.epoch, found.tuples())

    def follow(self) -> None:
        if self.feed is None:
            self.feed = self.db.subscribe(self.view, token=self.token)
        events = self.feed.poll()
        if events or self.feed.token != self.token:
            self.token = self.feed.token
            self.say("feed", self.token, self.feed.epoch, events)
        if self.token is not None and self.rng.random() < 0.2:
            self.feed.close()
            self.feed = None

    def go_on(self) -> None:
        session = self.db.session(self.session_token, timeout=0.05)
        if self.rng.random() < 0.5:
            put = self.new_put()
            if self.announced(put, lambda _: session.put(put.table, put.details)):
                self.say("wrote", session.token, put.number)
                self.session_token = session.token
        with suppress(Timeout):
            view = self.rng.choice(self.given.state["views"])
            found = session.scan(view)
            self.session_token = session.token
            self.say("session", session.token, view, found.epoch, found.tuples())

    def snapshot(self) -> None:
        view = self.rng.choice(self.given.state["views"])
        with self.db.snapshot(seconds=20.0) as snapshot:
            for _ in range(3):
                self.say("read", view, snapshot.epoch, snapshot.scan(view).tuples())
                time.sleep(_PAUSE)


PROGRAMS = {"writer": Writer, "driver": Driver, "reader": Reader}


def run(role: str, pipe: Connection, given: Given) -> None:
    """The whole life of a process."""
    try:
        PROGRAMS[role](pipe, given).main()
    except BaseException as error:
        with suppress(OSError):
            pipe.send(("failed", f"{type(error).__name__}: {error}"))
        raise
    finally:
        pipe.close()

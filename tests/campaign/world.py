"""A machine in one process: a clock, a disk, and processes that die between any two commits.

Law: with the same seed the same steps and the same faults happen. A process that dies keeps
nothing in memory; a machine that loses power keeps what was synced and any part of the rest.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb

import viewkeep
from viewkeep.access.feeds import turns
from viewkeep.engine import lease, log_splits, resident
from viewkeep.errors import Locked
from viewkeep.ops.functions import hashes
from viewkeep.stores import create_store, open_store
from viewkeep.stores.lmdb import environment, living
from viewkeep.stores.lmdb.environment import Environment
from viewkeep.stores.lmdb.locks import WriteLock
from viewkeep.stores.wrapped import WrappedStore

from .damage import Ever
from .disk import Disk
from .model import Effect
from .schema import POISON

START = 1_700_000_000.0
PLACES = ("before a call", "after a call", "before a commit", "after a commit")
LOCKS = "before a lock"


def _poisoned_md5(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    if raw == POISON.encode():
        raise ValueError("the well is poisoned")
    return hashlib.md5(raw).hexdigest()


class Death(BaseException):
    """A process was killed here. No code may take it for an error that it can handle."""


class PowerLoss(BaseException):
    """The machine died here, and every process with it."""


@dataclass(frozen=True)
class Intent:
    """The write that a process is about to make: its number, what it leaves, and when it began.

    A statement with a condition writes the rows that it has read, if they are still as they were:
    rows that have come to match since it `began` stay as they are.
    """

    number: int
    effect: Effect
    began: int  # the number of writes before it


class Process:
    """A process of the machine: its number, its store, its database object."""

    def __init__(self, world: World, name: str):
        self.world, self.name = world, name
        self.pid = world.new_pid()
        self.intent: Intent | None = None
        try:
            self.store = CutStore(open_store(world.url), self)
        except BaseException:  # it may die while it completes what another one began
            world.live.discard(self.pid)
            raise
        self.db = viewkeep.Database(self.store, world.url)

    def end(self) -> None:
        self.world.live.discard(self.pid)
        self.store.inner.close()


class CutStore(WrappedStore):
    """A store whose calls are places where its process may die or another one runs a step."""

    def __init__(self, inner: Any, process: Process):
        super().__init__(inner)
        self.process = process

    def call(self, method: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        world = self.process.world
        world.at("before a call", self.process)
        world.called(method, args)
        is_write = method == "tables.write"
        result = world.write(self, *args) if is_write else act(*args, **options)
        world.at("after a call", self.process)
        return result


class CutTransaction:
    """A write transaction whose commit is a place to die at."""

    def __init__(self, txn: Any, world: World):
        self.txn, self.world = txn, world
        self.get, self.put, self.delete = txn.get, txn.put, txn.delete
        self.cursor, self.abort = txn.cursor, txn.abort

    def __getattr__(self, name: str) -> Any:
        return getattr(self.txn, name)

    def __enter__(self) -> CutTransaction:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.commit()
        else:
            self.txn.abort()

    def commit(self) -> None:
        try:
            self.world.at("before a commit", None)
        except BaseException:
            self.txn.abort()  # the system does so for a process that died
            raise
        try:
            self.txn.commit()
        except lmdb.Error:
            if self.world.disk.is_dead:
                raise PowerLoss from None
            raise
        self.world.at("after a commit", None)


class World:
    """One round's machine, in a folder of its own."""

    def __init__(self, seed: int, folder: Path, disk: Disk, nodes: int, shards: int, mode: str):
        self.rng, self.disk, self.mode = random.Random(seed), disk, mode
        self.url = str(folder / "db")
        self.nodes, self.shards = nodes, shards
        self.happened: Counter[str] = Counter()
        self.ever = Ever()
        self.history: list[str] = []
        self.live: set[int] = set()
        self.pids, self.attempts = 1000, 0
        self.now = START
        self.monotonic = 0.0
        self.leaps = 0  # jumps of the clock that no pin outlasts
        self.refusals = 0  # locks that nobody got
        self.current: Process | None = None
        self.sleeper: Process | None = None  # others may run steps while it sleeps
        self.fault: tuple[str, str, int] | None = None  # what, where, after how many places
        self.interrupt: Callable[[Process | None], None] | None = None
        self.on_write: Any = None
        create_store(self.url, nodes=nodes, shards=shards, durability=mode).close()

    def new_pid(self) -> int:
        self.pids += 1
        self.live.add(self.pids)
        return self.pids

    def new_attempt(self) -> Any:
        """An id that is the same in a replay."""
        self.attempts += 1
        return SimpleNamespace(hex=f"{self.attempts:032x}")

    def pass_time(self, seconds: float) -> None:
        """Time goes by between two steps."""
        self.now += seconds
        self.monotonic += seconds

    def sleep(self, seconds: float) -> None:
        """A process waits: time goes by, and others may run whole steps."""
        self.pass_time(seconds)
        if self.sleeper is self.current is not None and self.interrupt is not None:
            sleeper, self.sleeper = self.sleeper, None  # one of them at a time
            try:
                if self.rng.random() < 0.03:
                    self.happened["another step during a sleep"] += 1
                    self.interrupt(sleeper)
            finally:
                self.sleeper = sleeper

    @contextmanager
    def others_while_asleep(self, process: Process) -> Iterator[None]:
        """Others run steps while this process sleeps."""
        outer, self.sleeper = self.sleeper, process
        try:
            yield
        finally:
            self.sleeper = outer

    def note(self, text: str) -> None:
        self.history.append(text)

    def at(self, place: str, process: Process | None) -> None:
        """A place where the planned fault may happen."""
        if self.fault is None or self.fault[1] != place:
            return
        what, where, left = self.fault
        if left > 1:
            self.fault = (what, where, left - 1)
            return
        self.fault = None
        self.happened[f"{what} {where}"] += 1
        self.note(f"    {what} {where}")
        if what == "another step" and self.interrupt is not None:
            self.interrupt(process)
        elif what == "refusal":
            self.refusals += 1
            raise Locked("a process that is stopped keeps the lock")
        elif what == "death":
            raise Death
        elif what == "power loss":
            self.disk.freeze()
            raise PowerLoss

    def called(self, method: str, args: tuple[Any, ...]) -> None:
        self.ever.note(method, args)

    def write(self, store: CutStore, writes: Any) -> Any:
        return self.on_write(store, writes)

    def power_up(self) -> None:
        """All handles are gone; the disk holds what was synced and some of the rest."""
        for key, shared in list(environment._shared.items()):
            if str(shared.path).startswith(self.url):
                del environment._shared[key]
                shared.env.close()
        self.live.clear()
        if self.mode == "full":
            keep = self.rng.choice((0, 50, 90, 100))
            lost = self.disk.lose(self.rng.getrandbits(40), keep)
            self.happened["sectors lost"] += lost
            self.note(f"    power is back; {lost} unsynced sectors are lost")
        for file in Path(self.url).glob("*/lock.mdb"):
            file.unlink()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The clock, the numbers of processes and the transactions are the world's."""
        begin, within, enter = Environment.begin, Environment.within, WriteLock.__enter__

        def cut_begin(shared: Environment, *, write: bool = False, buffers: bool = False) -> Any:
            txn = begin(shared, write=write, buffers=buffers)
            return CutTransaction(txn, self) if write else txn

        def cut_within(shared: Environment, txn: Any) -> Any:
            return within(shared, getattr(txn, "txn", txn))

        def cut_enter(lock: WriteLock) -> None:
            self.at(LOCKS, self.current)
            enter(lock)

        def clock() -> float:
            self.now += 1e-6
            return self.now

        patches: list[tuple[Any, str, Any]] = [
            (Environment, "begin", cut_begin),
            (Environment, "within", cut_within),
            (WriteLock, "__enter__", cut_enter),
            (time, "time", clock),
            (time, "time_ns", lambda: int(clock() * 1e9)),
            (time, "monotonic", lambda: self.monotonic),
            (time, "sleep", self.sleep),
            (resident, "uuid", SimpleNamespace(uuid4=self.new_attempt)),
            (lease, "os", SimpleNamespace(getpid=lambda: self.current.pid if self.current else 1)),
            (living, "os", SimpleNamespace(getpid=lambda: self.current.pid if self.current else 1)),
            (living, "_started", lambda pid: "alive" if pid in self.live else ""),
            (log_splits, "_LEAST", 2),
            (turns, "PART_ROWS", 3),
            (hashes, "_md5", _poisoned_md5),
        ]
        saved = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
        for owner, name, value in patches:
            setattr(owner, name, value)
        try:
            yield
        finally:
            for owner, name, value in saved:
                setattr(owner, name, value)

    def remove(self) -> None:
        with suppress(Exception):
            self.power_up()
        shutil.rmtree(self.url, ignore_errors=True)

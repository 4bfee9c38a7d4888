"""A round with real processes: killed, stopped, continued and forked while they use one database.

Law: as for every round. What cannot be seen from outside, the order of the writes, is read off the
log, one write after the other; each must be what one process announced, whole and once. The seed
gives the processes, what they do and where they fail; in which order the system runs them it does
not, so a seed that finds something may have to be played several times.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import viewkeep
from viewkeep.access.writes import BaseTable
from viewkeep.engine.local import catch_up
from viewkeep.errors import Locked, NotReady, ViewkeepError
from viewkeep.stores import create_store
from viewkeep.stores.contract import Cut
from viewkeep.stores.lmdb import state

from . import schema
from .disk import Disk
from .following import take
from .model import Change, Finding, Key, Model, Multiset, answers, multiset
from .program import Announced, Given, run
from .world import PLACES

ROLES = ("writer", "writer", "driver", "driver", "reader")
LOCK_SECONDS = 0.25
STOPPED_SECONDS = 0.7  # at most: longer than a lock is waited for, and than a lease lasts
SECONDS = 2.5  # of a round, before all processes are told to end
HANG_SECONDS = 60.0


@dataclass
class _Place:
    """A place for a process: when one is killed, another takes it with what a client has kept."""

    role: str
    owner: int
    state: dict[str, Any] = field(default_factory=dict)
    process: Any = None
    pipe: Connection | None = None
    stopped: float | None = None  # when it has to go on


class ProcessRound:
    """Writers, drivers and a reader as processes of their own, and a model that follows the log."""

    def __init__(self, seed: int, folder: Path, disk: Disk):
        del disk  # real processes meet the disk of the system
        self.rng = rng = random.Random(seed)
        self.url = str(folder / "processes")
        self.history: list[str] = []
        self.happened: Counter[str] = Counter()
        self.nodes = rng.choice((1, 2, 2, 3))
        self.model = Model()
        self.announced: dict[int, Announced] = {}
        self.keys: dict[int, set[Key]] = {}  # of the rows that a write is about to write
        self.refused: set[int] = set()
        self.counts: dict[int, int] = {}  # acknowledged writes -> rows that they changed
        self.found: set[int] = set()  # writes that the log holds
        self.cuts: dict[int, tuple[Cut, int]] = {}  # epoch -> its cut and plan
        self.seen: list[tuple[str, str, int, Multiset]] = []  # what, view, epoch, rows
        self.own: list[int] = []  # writes of the session
        self.covered: list[tuple[int, int]] = []  # epoch that the session read, writes before it
        self.session_epoch = 0
        self.following: Multiset = Counter()
        self.fed: list[str] = []  # what the feed gave, in words
        self.starts = self.readies = 0
        self.places = [_Place(role, owner + 1) for owner, role in enumerate(ROLES)]

    def play(self) -> Counter[str]:
        self.set_up()
        try:
            for place in self.places:
                self.start(place)
            while self.readies < len(self.places) and any(p.pipe for p in self.places):
                self.listen(0.02)
                self.let_go_on()
            moments = sorted(self.rng.sample(range(5, 150), 6))
            began, messages = time.monotonic(), 0
            while time.monotonic() - began < SECONDS:
                messages += self.listen(0.02)
                self.let_go_on()
                while moments and moments[0] <= messages:
                    moments.pop(0)
                    self.disturb()
                    self.follow_log()
                for place in self.places:
                    if place.pipe is None:
                        self.start(place)
            self.end()
            self.finish()
        except Exception:
            with suppress(ViewkeepError):
                self.explain()
            raise
        finally:
            self.kill_all()
            self.db.close()
        return self.happened

    def remove(self) -> None:
        shutil.rmtree(self.url, ignore_errors=True)

    def note(self, text: str) -> None:
        self.history.append(text)

    def set_up(self) -> None:
        rng = self.rng
        self.remove()
        create_store(
            self.url,
            nodes=self.nodes,
            shards=self.nodes * rng.choice((1, 2)),
            durability=rng.choice(("full", "relaxed")),
        ).close()
        settings = Path(self.url) / "viewkeep.json"
        kept = json.loads(settings.read_text())
        settings.write_text(json.dumps({**kept, "lock_seconds": LOCK_SECONDS}))
        self.db = viewkeep.open(self.url)
        self.db.sql(schema.ACCOUNTS)
        self.db.sql(schema.ITEMS)
        self.views = rng.sample(sorted(schema.VIEWS), 3)
        for name in self.views:
            self.db.sql(f"CREATE VIEW {name} AS {schema.VIEWS[name]}")
        tables = self.db.catalog.current().tables
        self.tables = {source.number: BaseTable(source) for source in tables.values()}
        self.numbers = {name: source.number for name, source in tables.items()}
        self.pin = self.db.epochs.pin()
        self.position = self.pin.cut
        for place in self.places:
            if place.role == "reader":
                place.state = {"view": self.views[0], "views": self.views}
                place.state |= {"feed": None, "session": None}
        self.note(f"{self.nodes} nodes, views {', '.join(self.views)}")

    # -- processes -----------------------------------------------------------------------------

    def start(self, place: _Place) -> None:
        """A new process, which fails at a place of its own."""
        self.starts += 1
        rng, fault = self.rng, None
        if rng.random() < 0.8:
            what = rng.choice(("kill", "kill", "stop", "fork"))
            where = rng.choice(PLACES[:2] if what == "fork" else PLACES)
            fault = (what, where, rng.choice((1, 2, 4, 8, 15, 30, 60)))
        seed = rng.getrandbits(40)
        given = Given(self.url, seed, 1000 * self.starts, place.owner, fault, dict(place.state))
        ours, theirs = _CONTEXT.Pipe()
        place.process = _CONTEXT.Process(target=run, args=(place.role, theirs, given), daemon=True)
        place.process.start()
        theirs.close()
        place.pipe, place.stopped = ours, None
        self.note(f"start {place.role} {place.owner}: {fault}")

    def disturb(self) -> None:
        """At a moment that no process has chosen, kill or stop one."""
        place = self.rng.choice(self.places)
        if place.pipe is None or place.stopped is not None:
            return
        what = self.rng.choice(("kill", "stop", "stop"))
        self.signal(place, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        self.happened[f"{what} at any moment"] += 1
        self.note(f"{what} {place.role} {place.owner}")

    def signal(self, place: _Place, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(place.process.pid, number)
        if number == signal.SIGSTOP:
            longest = self.rng.choice((0.05, 0.3, STOPPED_SECONDS))
            place.stopped = time.monotonic() + longest
        elif number == signal.SIGCONT:
            place.stopped = None

    def let_go_on(self, everybody: bool = False) -> None:
        for place in self.places:
            if place.stopped is not None and (everybody or time.monotonic() > place.stopped):
                self.signal(place, signal.SIGCONT)

    def end(self) -> None:
        """No more faults: everybody goes on, and ends when it is told to."""
        self.let_go_on(everybody=True)
        for place in self.places:
            if place.pipe is not None:
                with suppress(OSError):
                    place.pipe.send("end")
        deadline = time.monotonic() + HANG_SECONDS
        while any(place.pipe is not None for place in self.places):
            self.listen(0.05)
            for place in self.places:
                if place.pipe is not None:  # it may have stopped itself just after it was let go on
                    self.signal(place, signal.SIGCONT)
            if time.monotonic() > deadline:
                left = [f"{p.role} {p.owner}" for p in self.places if p.pipe is not None]
                raise Finding(f"{', '.join(left)} did not end in {HANG_SECONDS:g} s")

    def kill_all(self) -> None:
        for place in self.places:
            if place.process is not None:
                self.signal(place, signal.SIGKILL)
                place.process.join()
                place.process.close()
                place.process = None

    # -- what they say -------------------------------------------------------------------------

    def listen(self, seconds: float) -> int:
        """Take what the processes have said, and see which have ended; the number of messages."""
        count = 0
        while ready := wait([p.pipe for p in self.places if p.pipe is not None], seconds):
            for place in self.places:
                if place.pipe in ready:
                    count += self.take_one(place)
            seconds = 0.0
        return count

    def take_one(self, place: _Place) -> int:
        assert place.pipe is not None
        try:
            message = place.pipe.recv()
        except (EOFError, ConnectionResetError):
            place.pipe.close()
            place.pipe = None
            place.process.join()
            place.process.close()
            place.process = place.stopped = None
            return 0
        getattr(self, f"on_{message[0]}")(place, *message[1:])
        return 1

    def on_ready(self, place: _Place) -> None:
        self.readies += 1

    def on_begin(self, place: _Place, announced: Announced) -> None:
        self.announced[announced.number] = announced

    def on_writing(self, place: _Place, number: int, keys: list[bytes]) -> None:
        codec = self.tables[self.numbers[self.announced[number].table]].key_codec
        self.keys[number] = {codec.decode_one(key) for key in keys}

    def on_done(self, place: _Place, number: int, count: int) -> None:
        self.counts[number] = count

    def on_refused(self, place: _Place, number: int, error: str) -> None:
        self.refused.add(number)
        self.happened[f"write refused: {error}"] += 1

    def on_unknown(self, place: _Place, number: int) -> None:
        self.happened["outcome unknown"] += 1

    def on_locked(self, place: _Place) -> None:
        self.happened["waited for a lock in vain"] += 1

    def on_kill(self, place: _Place, where: str) -> None:
        self.happened[f"kill {where}"] += 1
        self.note(f"{place.role} {place.owner} is killed {where}")

    def on_stop(self, place: _Place, where: str) -> None:
        self.happened[f"stop {where}"] += 1
        self.note(f"{place.role} {place.owner} stops {where}")
        place.stopped = time.monotonic() + self.rng.choice((0.05, 0.3, STOPPED_SECONDS))

    def on_fork(self, place: _Place, where: str) -> None:
        self.happened[f"fork {where}"] += 1
        self.note(f"{place.role} {place.owner} forks {where}")

    def on_opened(self, place: _Place, epoch: int, cut: Cut, plan: int) -> None:
        if self.cuts.setdefault(epoch, (cut, plan)) != (cut, plan):
            raise Finding(f"epoch {epoch} was opened with {self.cuts[epoch][0]}, then with {cut}")

    def on_published(self, place: _Place, epoch: int) -> None:
        self.happened["epoch published"] += 1

    def on_fenced(self, place: _Place, error: str) -> None:
        self.happened["driver fenced"] += 1

    def on_failed(self, place: _Place, error: str) -> None:
        raise Finding(f"{place.role} {place.owner} failed: {error}")

    def on_ended(self, place: _Place) -> None:
        self.note(f"{place.role} {place.owner} ends")

    def on_read(self, place: _Place, view: str, epoch: int, rows: Any) -> None:
        self.seen.append(("a read", view, epoch, multiset(rows)))

    def on_wrote(self, place: _Place, token: str, number: int) -> None:
        place.state["session"] = token
        self.own.append(number)

    def on_session(self, place: _Place, token: str, view: str, epoch: int, rows: Any) -> None:
        if epoch < self.session_epoch:
            raise Finding(f"a session went back from epoch {self.session_epoch} to {epoch}")
        place.state["session"], self.session_epoch = token, epoch
        self.covered.append((epoch, len(self.own)))
        self.seen.append(("a session", view, epoch, multiset(rows)))

    def on_feed(self, place: _Place, token: str | None, epoch: int, events: Any) -> None:
        given = [(event.epoch, event.rows or event.changes) for event in events]
        self.fed.append(f"after {place.state['feed']} comes {given}, up to epoch {epoch}: {token}")
        last = -1
        for event in events:
            last = take(event, self.following, last, place.state["view"])
        place.state["feed"] = token
        self.seen.append(("a feed", place.state["view"], epoch, +self.following))

    # -- the log -------------------------------------------------------------------------------

    def follow_log(self) -> None:
        """Read on, one write after the other; a pin keeps the log after the place we are at."""
        with suppress(Locked):  # by a process that is stopped now
            pin = self.db.epochs.pin()
            head = self.db.store.log.head()
            self.listen(0.0)  # what was announced before it was written
            while not self.position.covers(head):
                after = self.db.store.log.bounded_cut(self.position, head, 1, 1)
                self.take_write(after)
                self.position = after
            self.db.epochs.unpin(self.pin)
            self.pin = pin
            self.look()

    def take_write(self, after: Cut) -> None:
        """The next write in the log must be what was announced, whole, and once."""
        splits = [one for one in self.db.store.log.splits(self.position, after) if not one.is_empty]
        ends = {split.log: split.stop for split in splits}
        changes: list[Change] = []
        tables = set()
        for split in splits:
            for batch in self.db.store.log.read(split):
                tables.add(batch.table)
                base = self.tables[batch.table]
                for key, row in zip(batch.keys.to_list(), batch.rows.to_list(), strict=True):
                    values = None if row is None else base.row_codec.decode_one(row)
                    changes.append(
                        (
                            base.key_codec.decode_one(key),
                            None if values is None else dict(zip(base.names, values, strict=True)),
                        )
                    )
        (table,) = tables
        number = self.number_of(table, changes)
        if number in self.refused:
            raise Finding(f"write {number} was refused, but is there")
        if number in self.found:
            raise Finding(f"write {number} is there twice")
        self.found.add(number)
        expected = self.expected_changes(self.announced[number])
        if _sorted(changes) != _sorted(expected):
            raise Finding(f"write {number} is {changes} in the log; announced was {expected}")
        self.model.commit(number, table, changes, ends)

    def number_of(self, table: int, changes: list[Change]) -> int:
        numbers = {row["w"] for _, row in changes if row is not None}
        if len(numbers) == 1:
            return int(numbers.pop())
        if numbers:
            raise Finding(f"no cut lies between the writes {sorted(numbers)}")
        # Only one writer at a time deletes a key; acknowledged deletions come first.
        wanted = _sorted(changes)
        for number in sorted(self.announced, key=lambda n: (not self.counts.get(n), n)):
            made = self.announced[number]
            if made.kind != "delete" or number in self.found or number in self.refused:
                continue
            if self.counts.get(number) != 0 and _sorted(self.expected_changes(made)) == wanted:
                return number
        raise Finding(f"nobody announced to delete {[key for key, _ in changes]} of table {table}")

    def expected_changes(self, made: Announced) -> list[Change]:
        table = self.numbers[made.table]
        rows = self.model.table(table)
        if made.number in self.keys:
            rows = {key: row for key, row in rows.items() if key in self.keys[made.number]}
        return self.model.effective(table, made.effect(rows))

    def look(self) -> None:
        """All views at one epoch, by a process that nothing happens to."""
        with self.db.snapshot(seconds=60.0) as snapshot:
            for view in self.views:
                with suppress(NotReady):
                    rows = multiset(snapshot.scan(view).tuples())
                    self.seen.append(("a snapshot", view, snapshot.epoch, rows))

    # -- at the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """All catches up; nothing acknowledged is lost, and all that was seen was so."""
        published = catch_up(self.db.store)
        self.follow_log()
        for number, count in self.counts.items():
            if count and number not in self.found:
                raise Finding(
                    f"write {number} was acknowledged and is lost: {self.announced[number]}"
                )
        self.cuts[published.epoch] = (published.cut, published.plan)
        self.happened["write found in the log"] += len(self.found)
        for name, number in self.numbers.items():
            found = multiset(self.db.scan(name).tuples())
            rows = [tuple(row.values()) for row in self.model.table(number).values()]
            if found != multiset(rows):
                raise Finding(f"table {name} is {found}; the log says {rows}")
        for view in self.views:
            rows = multiset(self.db.scan(view).tuples())
            self.seen.append(("the end", view, published.epoch, rows))
        self.check_seen()
        self.check_session()

    def check_seen(self) -> None:
        for epoch in sorted({epoch for _, _, epoch, _ in self.seen if epoch}):
            if epoch not in self.cuts:
                continue  # run by `catch_up`, which tells of the last one only
            expected = self.answers(self.cuts[epoch][0])
            for what, view, at, rows in self.seen:
                if at == epoch and rows != expected[view]:
                    raise Finding(f"{what} of {view} at {epoch} is {rows}, not {expected[view]}")
                self.happened["read compared"] += at == epoch

    def explain(self) -> None:
        """Note how the store stands and what the feed gave, for whoever asks how it came."""
        self.kill_all()
        epochs = self.db.epochs
        self.note(f"the record is {epochs.read()}")
        self.history += [f"pin of epoch {pin.epoch}: {pin.id}" for pin in epochs.pins()]
        for shard in self.db.store._database.shards:
            seen, horizon = state.seen(shard)
            self.note(f"{shard.path.name} has seen epoch {seen}, and is kept from {horizon} on")
        self.history += [f"epoch {epoch} was opened: {c}" for epoch, (c, _) in self.cuts.items()]
        self.history += [f"the feed: {given}" for given in self.fed]

    def answers(self, cut: Cut) -> dict[str, Multiset]:
        rows = self.model.at(cut)
        current = self.db.catalog.current()
        tables = {
            name: (source.schema.polars, rows.get(source.number, {}))
            for name, source in current.tables.items()
        }
        return answers(tables, {name: schema.VIEWS[name] for name in self.views})

    def check_session(self) -> None:
        """The epochs that the session read have what it had written before."""
        writes = {write.number: write for write in self.model.writes}
        for epoch, count in self.covered:
            for number in self.own[:count]:
                if epoch in self.cuts and not writes[number].is_inside(self.cuts[epoch][0]):
                    raise Finding(f"the session read epoch {epoch} without its write {number}")


def _sorted(changes: list[Change]) -> list[Change]:
    return sorted(changes, key=repr)


_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.campaign.program"])

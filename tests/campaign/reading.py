"""Who reads: stable reads, snapshots, and sessions that go on in other processes.

Law: a read is the view at one epoch that was published while it ran; a snapshot reads the same for
its whole life; a session sees its own writes and never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from viewkeep import ANY
from viewkeep.errors import EpochGone, Timeout
from viewkeep.plan.nodes import View

from .actor import UNREADABLE, Actor
from .model import Finding, Multiset, multiset
from .world import Process
from .writing import ACCOUNT_IDS, account


class Reader(Actor):
    """Stable reads of every kind."""

    weight = 4
    hosts = ("reader", "second_reader")

    def act(self, process: Process) -> None:
        views = self.views(process)
        kind = self.rng.choice((self.scan, self.select, self.select, self.together, self.base))
        if views or kind == self.base:
            kind(process, views)

    def scan(self, process: Process, views: list[str]) -> None:
        name = self.rng.choice(views)
        begin = process.db.epochs.read().published.epoch
        try:
            found = multiset(process.db.scan(name).tuples())
        except UNREADABLE:
            return
        self.round.compare(name, found, self.round.epochs_since(begin))

    def select(self, process: Process, views: list[str]) -> None:
        """A prefix, a range or a slice, in pages, at one epoch; keys come in order."""
        name = self.rng.choice(views)
        try:
            epoch = process.db.epochs.read().published.epoch
            expected = self.round.expected_rows(name, epoch)
            if not expected or not key_of(view := self.round.view_at(name, epoch)):
                return
            selection, chosen = select(self.rng, expected, view)
            found = self.pages(process, name, epoch, selection)
        except (*UNREADABLE, EpochGone):
            return  # another epoch was published meanwhile
        self.happened("selection read")
        if multiset(found) != multiset(chosen):
            raise Finding(f"a selection of {name} at epoch {epoch} is {found}, not {chosen}")

    def pages(self, process: Process, name: str, epoch: int, selection: Any) -> list[Any]:
        limit, after, found = self.rng.choice((None, 1, 2)), None, list[Any]()
        reverse = self.rng.random() < 0.3
        while True:
            page = process.db.scan(
                name, at=epoch, limit=limit, reverse=reverse, after=after, **selection
            )
            found += page.tuples()
            after = page.next
            if after is None:
                return found

    def together(self, process: Process, views: list[str]) -> None:
        """Two views in one query are seen at one epoch."""
        names = self.rng.choices(views, k=2)
        begin = process.db.epochs.read().published.epoch
        text = " UNION ALL ".join(
            f"SELECT {place} AS place, COUNT(*) AS n FROM {name}"
            for place, name in enumerate(names)
        )
        try:
            found = dict(process.db.sql(text).tuples())
        except UNREADABLE:
            return
        counts = []
        for epoch in self.round.epochs_since(begin):
            known = [self.round.expected_rows(name, epoch) for name in names]
            if None in known:
                return
            counts.append(
                {place: rows.total() for place, rows in enumerate(known) if rows is not None}
            )
        self.happened("two views read at once")
        if counts and found not in counts:
            raise Finding(f"{names} have {found} rows; they were {counts} at any one epoch")

    def base(self, process: Process, views: list[str]) -> None:
        """Base tables at the published cut: rows of now, taken back by the log."""
        begin = process.db.epochs.read().published.epoch
        name = self.rng.choice(("accounts", "items"))
        found = multiset(process.db.scan(name, at="stable").tuples())
        number = process.db.catalog.current().tables[name].number
        cuts = [self.round.cuts[e] for e in self.round.epochs_since(begin) if e in self.round.cuts]
        known = [self.round.table_at(number, cut) for cut in cuts]
        if known and found not in known:
            raise Finding(f"table {name} at the published cut is {found}, not one of {known}")


def key_of(view: View) -> list[int]:
    """The places of a view's key among its columns; none if the view does not show them all."""
    key = view.schema.key
    return [view.visible.index(name) for name in key] if set(key) <= set(view.visible) else []


def select(rng: Any, rows: Multiset, view: View) -> tuple[dict[str, Any], list[Any]]:
    """A random selection, and the rows that it should give."""
    key = key_of(view)
    all_rows = list(rows.elements())
    values = tuple(rng.choice(all_rows)[place] for place in key)
    kind, length = rng.choice(("prefix", "slice", "range")), rng.randrange(1, len(key) + 1)
    if kind == "prefix" and None not in values[:length]:
        prefix = values[:length]
        chosen = [r for r in all_rows if tuple(r[place] for place in key[:length]) == prefix]
        return {"prefix": prefix}, chosen
    if kind == "slice" and len(key) > 1 and values[-1] is not None:
        chosen = [r for r in all_rows if r[key[-1]] == values[-1]]
        return {"slice": (*[ANY] * (len(key) - 1), values[-1])}, chosen
    if kind == "range" and isinstance(values[0], int):
        sign = -1 if view.node.key[0].descending else 1
        low = sign * values[0]
        high = low + rng.randrange(3)
        chosen = [r for r in all_rows if r[key[0]] is not None and low <= sign * r[key[0]] < high]
        return {"range": (sign * low, sign * high)}, chosen
    return {}, all_rows


@dataclass(eq=False)
class _Held:
    """A snapshot with what it has shown so far, and the jumps of the clock before it."""

    host: str
    snapshot: Any
    leaps: int
    seen: dict[str, Multiset] = field(default_factory=dict)


class Snapshooter(Actor):
    """Snapshots that live through publications, sweeps and schema changes."""

    weight = 2.5
    hosts = ("snapshooter", "second_reader")

    def __init__(self, round: Any):
        super().__init__(round)
        self.held: list[_Held] = []

    def forget(self, host: str) -> None:
        for held in self.held:
            if held.host == host:
                held.snapshot._closed.set()  # its process renews the pin no more
        self.held = [held for held in self.held if held.host != host]

    def act(self, process: Process) -> None:
        mine = [held for held in self.held if held.host == process.name]
        if len(mine) < 2 and self.rng.random() < 0.5:
            leaps = self.world.leaps
            mine.append(_Held(process.name, process.db.snapshot(seconds=60.0), leaps))
            self.held.append(mine[-1])
        for held in mine:
            self.look(process, held)
        if mine and self.rng.random() < 0.2:
            held = self.rng.choice(mine)
            self.held = [other for other in self.held if other is not held]
            held.snapshot.close()

    def look(self, process: Process, held: _Held) -> None:
        """Everything reads as it did, and as the epoch was."""
        round, snapshot = self.round, held.snapshot
        names = [*self.views(process), "accounts", "items"]
        for name in self.rng.sample(names, min(2, len(names))):
            try:
                found = multiset(snapshot.scan(name).tuples())
            except UNREADABLE:
                continue
            except EpochGone as error:
                if held.leaps == self.world.leaps:
                    raise Finding(f"the snapshot of epoch {snapshot.epoch}: {error}") from error
                # The clock jumped over the end of its pin.
                self.held = [other for other in self.held if other is not held]
                snapshot._closed.set()
                return
            self.happened("snapshot read")
            number = process.db.catalog.current().tables.get(name)
            if number is not None:
                expected = round.table_at(number.number, snapshot.cut)
            else:
                expected = held.seen.setdefault(name, found)
                known = round.expected_rows(name, snapshot.epoch)
                if known is not None and known != found:
                    raise Finding(f"a snapshot of {name} at {snapshot.epoch}: {found}, not {known}")
            if found != expected:
                raise Finding(f"a snapshot of {name} was {expected} and now is {found}")


class Session(Actor):
    """One session that goes on in several processes by its token."""

    weight = 3
    hosts = ("session_user", "reader", "second_reader")

    def __init__(self, round: Any):
        super().__init__(round)
        self.token: str | None = None
        self.epoch = 0
        self.written: list[int] = []  # numbers of the writes that the token is about
        self.is_busy = False

    def act(self, process: Process) -> None:
        if self.is_busy:
            return  # another process has the token now
        self.is_busy = True
        try:
            self.go_on(process)
        finally:
            self.is_busy = False

    def go_on(self, process: Process) -> None:
        session = process.db.session(self.token, timeout=0)
        if self.rng.random() < 0.6:
            number = self.model.new_number()
            row = account(self.rng, self.rng.choice(ACCOUNT_IDS), number)
            self.intend(process, number, lambda _: [((row["id"],), row)])
            session.put("accounts", [row])
            self.token = session.token
            self.written.append(number)
        views = self.views(process)
        if not views:
            return
        name = self.rng.choice(views)
        begin = process.db.epochs.read().published.epoch
        try:
            found = multiset(session.scan(name).tuples())
        except (*UNREADABLE, Timeout):
            return
        self.token = session.token
        if session.epoch < self.epoch:
            raise Finding(f"a session went back from epoch {self.epoch} to {session.epoch}")
        self.round.check()
        epochs = [e for e in range(max(begin, self.epoch), session.epoch + 1) if self.covers(e)]
        if not epochs:
            raise Finding(f"a session read epoch {session.epoch} without all of its own writes")
        self.epoch = session.epoch
        self.round.compare(name, found, epochs)

    def covers(self, epoch: int) -> bool:
        """Whether an epoch has all that the session has written."""
        cut = self.round.cuts.get(epoch)
        if cut is None:
            return True
        mine = set(self.written)
        return all(write.is_inside(cut) for write in self.model.writes if write.number in mine)

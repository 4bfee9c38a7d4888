"""Who follows changes: feeds that go on from their tokens in other processes.

Law: the rows of the first epoch with the changes since are the view at the feed's epoch. What a
follower has taken in and its token are kept together, so nothing is lost and nothing comes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from viewkeep.access.feeds import turns
from viewkeep.errors import EpochGone, NotReady, UnknownName, ViewFailed

from .actor import Actor, tuples
from .model import Finding, Multiset, multiset
from .reading import key_of
from .world import Process

_LOST = ("replaced", "rebuilt", "dropped")


@dataclass(eq=False)
class _Following:
    """A feed, what it has given so far, and where it goes on."""

    view: str
    prefix: Any = None
    place: int = 0  # of the prefix among the columns
    part: int = turns.PART_ROWS  # rows or changes that an event may hold
    feed: Any = None
    host: str = ""
    token: str | None = None
    epoch: int = -1
    is_busy: bool = False  # another process is about to go on with it
    rows: Multiset = field(default_factory=Counter)


class Follower(Actor):
    """Feeds of whole views, and of the keys of a prefix."""

    weight = 4
    hosts = ("follower", "reader")

    def __init__(self, round: Any):
        super().__init__(round)
        self.following: list[_Following] = []

    def forget(self, host: str) -> None:
        for one in self.following:
            if one.host == host:
                one.feed = None

    def act(self, process: Process) -> None:
        views = self.views(process)
        self.following = [one for one in self.following if one.view in views]
        if views and (not self.following or (len(self.following) < 3 and self.rng.random() < 0.3)):
            self.following.append(self.start(self.rng.choice(views)))
        if self.following and not (one := self.rng.choice(self.following)).is_busy:
            one.is_busy = True
            try:
                self.follow(process, one)
            finally:
                one.is_busy = False

    def start(self, view: str) -> _Following:
        made, epoch = _Following(view), max(self.round.cuts, default=0)
        if epoch % 2:
            made.part = 1 + epoch % 3  # many epochs come in parts then
        rows = self.round.expected_rows(view, epoch)
        key = key_of(self.round.view_at(view, epoch)) if rows else []
        if rows and key and self.rng.random() < 0.3:
            made.place = key[0]
            made.prefix = self.rng.choice(sorted(rows, key=repr))[made.place]
        return made

    def follow(self, process: Process, one: _Following) -> None:
        try:
            if one.feed is not None and one.host != process.name:
                return  # it is open in another process
            if one.feed is None:
                with patch.object(turns, "PART_ROWS", one.part):
                    one.feed = process.db.subscribe(one.view, prefix=one.prefix, token=one.token)
                one.host = process.name
                if one.token is None:
                    one.rows, one.epoch = Counter(), -1
                else:
                    self.happened("feed resumed" + " within an epoch" * one.feed.more)
            for event in self.ask(one.feed):
                one.epoch = take(event, one.rows, one.epoch, one.view)
                one.token = event.token
        except (NotReady, UnknownName):  # it was dropped just now
            return
        except (EpochGone, ViewFailed) as error:
            # Pins that a jump of the clock has ended come back only when they are next renewed.
            is_gone = isinstance(error, EpochGone) and not self.world.leaps
            if is_gone and not any(word in str(error) for word in _LOST):
                raise Finding(f"a feed lost its place: {error}") from error
            self.following = [other for other in self.following if other is not one]
            return
        one.token = one.feed.token
        known = self.round.expected_rows(one.view, one.feed.epoch)
        if known is not None and one.prefix is not None:  # another view may have other columns
            one.place = key_of(self.round.view_at(one.view, one.feed.epoch))[0]
        if known is not None and one.token is not None and not one.feed.more:
            if one.prefix is not None:
                known = Counter({r: n for r, n in known.items() if r[one.place] == one.prefix})
            if +one.rows != known:
                raise Finding(f"the feed of {one.view} {one.prefix} has {+one.rows}, not {known}")
        if self.rng.random() < 0.4:
            one.feed.close()
            one.feed = None  # go on from the token

    def ask(self, feed: Any) -> Iterator[Any]:
        """All that is there, or one part of it, which may end within an epoch."""
        if self.rng.random() < 0.6:
            event = feed.next(timeout=0)
            if event is not None:
                yield event
            return
        while events := feed.poll():
            yield from events


def take(event: Any, rows: Multiset, epoch: int, view: str) -> int:
    """Bring the rows of a follower up to an event; the epoch of it."""
    if event.kind == "replaced":
        rows.clear()
    if event.rows is not None:
        rows.update(multiset(tuples(event.rows)))
        return int(event.epoch)
    if event.epoch < epoch:
        raise Finding(f"the feed of {view} went back from epoch {epoch} to {event.epoch}")
    for change in event.changes:
        if change.old is not None:
            old = multiset(tuples([change.old]))
            if not old <= rows:
                raise Finding(f"the feed of {view} takes away {old}, which it never gave")
            rows.subtract(old)
        if change.new is not None:
            rows.update(multiset(tuples([change.new])))
    return int(event.epoch)

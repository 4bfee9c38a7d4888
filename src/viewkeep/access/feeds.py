"""Change feeds: the rows of a view at one epoch, then what each published epoch changed.

Law: the rows of the first epoch with the changes of epochs up to e applied are exactly the view at
e, for every e; a feed resumed from a token goes on after the epoch of that token, with nothing
missed and nothing doubled, or is refused with EpochGone. No state of its own is kept for it: the
versions of the view's rows, held by a pin, are the feed.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from types import TracebackType
from typing import Any, Literal
from zlib import crc32

from viewkeep.access.keeper import Keeper
from viewkeep.access.ranges import Bounds, bounds_of
from viewkeep.access.readers import ViewReader
from viewkeep.access.reads import Reader, ReadPoint
from viewkeep.access.tokens import read_number, read_token, write_token
from viewkeep.access.writes import Key
from viewkeep.engine.epochs import Published
from viewkeep.engine.programs import load_plan
from viewkeep.errors import EpochGone, InvalidToken, UnknownName

KEEP_SECONDS = 30.0  # how long a feed that nobody asks can still be resumed
_TURN_SECONDS = 0.1  # after which a waiting feed looks whether it was closed, and asks for its pin
PART_ROWS = 5_000  # of the first epoch, in one event
_CACHED = 32  # ranges of epochs whose changes are kept for other feeds of the same view
_IDENTITIES = 1_000  # remembered
_CACHED_CHANGES = 10_000  # in one range, at most
_KIND, _WHAT = "f1", "feed"

EpochChanges = tuple[tuple[int, tuple["Change", ...]], ...]  # epochs that changed something


@dataclass(frozen=True)
class Change:
    """One row of a view before and after an epoch: None where there is no row.

    `key` has the values of all key columns, those that the view does not show among them.
    """

    key: tuple[object, ...]
    old: dict[str, Any] | None
    new: dict[str, Any] | None


@dataclass(frozen=True)
class Event:
    """What a feed gives: rows of its first epoch, or the changes of one epoch.

    `more` says that further rows of the same epoch follow. `token` is where a feed that has seen
    this event can be resumed; None while the rows of the first epoch are not complete.
    """

    epoch: int
    token: str | None
    rows: tuple[dict[str, Any], ...] | None = None
    changes: tuple[Change, ...] = ()
    more: bool = False

    @property
    def kind(self) -> Literal["rows", "changes"]:
        """Whether this is a part of the first epoch's rows, or the changes of an epoch."""
        return "changes" if self.rows is None else "rows"


@dataclass(frozen=True)
class _Identity:
    """Which rows a view's name stands for: changes if it is replaced, rebuilt, or made anew."""

    view: str
    generation: int
    table: int


class Feeds:
    """The feeds of one database: they share a pin, and what they read of the same view."""

    def __init__(self, reader: Reader, seconds: float = KEEP_SECONDS):
        self.reader, self.keeper = reader, Keeper(reader.epochs, seconds)
        self._identities: dict[tuple[int, str], _Identity] = {}  # by plan, which never changes
        self._known: OrderedDict[tuple[object, ...], EpochChanges] = OrderedDict()
        self._lock = threading.Lock()

    def open(
        self,
        view: str,
        *,
        prefix: Key | None = None,
        token: str | None = None,
        progress: bool = False,
    ) -> Feed:
        """A feed of a view, or of the rows whose keys start with `prefix`; see `Feed`."""
        return Feed(self, view, prefix, token, progress)

    def identity(self, view: str, at: Published) -> _Identity | None:
        """What a view's name stands for at an epoch; None if it has no such view."""
        known = self._identities.get((at.plan, view))
        if known is not None:
            return known
        plan = load_plan(self.reader.store, at.plan)
        placement = plan.program.placements.get(view)
        if placement is None:
            return None
        made = _Identity(view, plan.generations[view], placement.table.number)
        if len(self._identities) > _IDENTITIES:
            self._identities.clear()
        self._identities[at.plan, view] = made
        return made

    def changes(
        self, identity: _Identity, reader: ViewReader, bounds: Bounds, after: int, upto: int
    ) -> EpochChanges:
        """What each epoch in (after, upto] changed in a range, read once for all feeds of it."""
        wanted = (identity, bounds.start, bounds.stop, after, upto)
        with self._lock:
            known = self._known.get(wanted)
        if known is not None:
            return known
        found = reader.changes(self.reader.store, bounds, after, upto)
        made = []
        for epoch, rows in groupby(found, itemgetter(0)):
            shown = tuple(
                change for _, _, old, new in rows if (change := _change(reader, old, new))
            )
            if shown:
                made.append((epoch, shown))
        if len(found) <= _CACHED_CHANGES:
            with self._lock:
                self._known[wanted] = tuple(made)
                while len(self._known) > _CACHED:
                    self._known.popitem(last=False)
        return tuple(made)


class Feed:
    """The rows of a view at one epoch, then the changes of each epoch; an iterator of `Event`.

    Ask with `next` (which waits), `poll` (which does not), or by iterating. A feed is for one
    thread; `close` may come from any. It raises EpochGone when it cannot go on: it was not asked
    for so long that its epoch is gone, or the view was replaced, rebuilt or dropped. Then subscribe
    anew.
    """

    def __init__(
        self, feeds: Feeds, view: str, prefix: Key | None, token: str | None, progress: bool
    ):
        self._feeds, self.view, self._progress = feeds, view, progress
        self._id = feeds.keeper.new_id()
        self._closed = threading.Event()
        self._waiting: deque[Event] = deque()
        self._rows: Iterator[bytes] | None = None
        self._failed: Exception | None = None
        epochs = feeds.reader.epochs
        feeds.keeper.keep(self._id, epochs.read().published.epoch)
        # Read after the pin was taken, so that this epoch and its tables stay.
        published = epochs.read().published
        self._open(published, prefix)
        if token is None:
            self._position = published.epoch
            self._rows = self._reader.walk(feeds.reader.store, self._bounds, published.epoch)
        else:
            self._position = self._resumed(token, published)
        self._seen = self._position  # what the caller has got; `_position` is what was read
        if token is not None:
            self._waiting.extend(self._read())  # now, while its epoch is kept

    def _open(self, published: Published, prefix: Key | None) -> None:
        reader = self._feeds.reader
        if self.view in reader.current().tables:
            hint = f"Make a view: CREATE VIEW ... AS SELECT * FROM {self.view}"
            raise UnknownName(f"{self.view} is a base table; feeds are of views", hint=hint)
        found = reader.open(self.view, ReadPoint(published))
        identity = self._feeds.identity(self.view, published)
        if not isinstance(found, ViewReader) or identity is None:
            raise reader.not_ready(self.view)
        self._reader, self._identity = found, identity
        self._bounds = bounds_of(found.key_codec, found.key, self.view, prefix=prefix)

    # -- asking --------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that the events given so far lead to."""
        return self._seen

    @property
    def token(self) -> str | None:
        """Where to resume after the events given so far; None while the first rows come in."""
        return None if self._rows is not None else self._token(self._seen)

    def poll(self) -> list[Event]:
        """The events that are there now; none if nothing was published. Never waits."""
        found = [*self._waiting] or self._read()
        self._waiting.clear()
        self._seen = self._position
        return found

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there is none within `timeout` seconds, or the feed is closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed.is_set():
            if not self._waiting:
                self._waiting.extend(self._read())
            if self._waiting:
                event = self._waiting.popleft()
                self._seen = event.epoch if self._waiting else self._position
                return event
            self._seen = self._position
            left = _TURN_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            self._feeds.reader.watch.wait(self._position, min(left, _TURN_SECONDS))
        return None

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def close(self) -> None:
        """End the feed. It can be resumed by its token for some seconds; twice is harmless."""
        self._closed.set()

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------

    def _read(self) -> list[Event]:
        if self._closed.is_set():
            return []
        if self._failed is not None:
            raise self._failed
        self._feeds.keeper.keep(self._id, self._seen)
        published = self._feeds.reader.epochs.read().published
        try:
            if self._rows is not None:
                return [self._first_rows(self._rows)]
            if published.epoch == self._position:
                return []
            found = self._feeds.changes(
                self._identity, self._reader, self._bounds, self._position, published.epoch
            )
            self._check_identity()
        except EpochGone as error:
            self._failed = EpochGone(
                f"the feed of {self.view} cannot go on after epoch {self._position}: {error}. "
                "Subscribe anew"
            )
            raise self._failed from error
        self._position = published.epoch
        events = [Event(epoch, self._token(epoch), changes=changes) for epoch, changes in found]
        if self._progress and (not events or events[-1].epoch < published.epoch):
            events.append(Event(published.epoch, self._token(published.epoch)))
        return events

    def _first_rows(self, rows: Iterator[bytes]) -> Event:
        try:
            part = list(islice(rows, PART_ROWS))
        except Exception as error:
            self._failed = error  # what the iterator would give next is not what comes next
            raise
        self._check_identity()
        more = len(part) == PART_ROWS
        if not more:
            self._rows = None
        shown = tuple(self._reader.frame(part).to_dicts())
        token = None if more else self._token(self._position)
        return Event(self._position, token, rows=shown, more=more)

    def _check_identity(self) -> None:
        """Refuse what was read if the rows may not have been this view's.

        After reading: a table is dropped only when a plan without it was published.
        """
        published = self._feeds.reader.epochs.read().published
        if self._feeds.identity(self.view, published) != self._identity:
            raise EpochGone(f"view {self.view} was replaced, rebuilt or dropped")

    # -- tokens --------------------------------------------------------------------------------

    def _token(self, epoch: int) -> str:
        identity = self._identity
        key = f"{crc32(self._bounds.start):08x}"
        return write_token(_KIND, (epoch, identity.generation, identity.table, key))

    def _resumed(self, token: str, published: Published) -> int:
        """The epoch of a token, if it is of this view and of these keys."""
        parts = read_token(_KIND, token, _WHAT)
        if len(parts) != 4:
            raise InvalidToken("the token of the feed is damaged; take it over whole")
        epoch, generation, table = (read_number(part, _WHAT) for part in parts[:3])
        found = _Identity(self.view, generation, table)
        if found != self._identity:
            raise EpochGone(
                f"the token is of another view than {self.view} is now: it was replaced, rebuilt "
                "or dropped, or the token is another view's. Subscribe anew"
            )
        if self._token(epoch) != token:
            raise InvalidToken(f"the token is of a feed of other keys of {self.view}")
        if epoch > published.epoch:
            raise InvalidToken(
                f"the token is of epoch {epoch}, but the published one is {published.epoch}: "
                "it belongs to another database"
            )
        return epoch


def _change(reader: ViewReader, old: bytes | None, new: bytes | None) -> Change | None:
    """A change as the view shows it; None if what it shows is the same."""
    row = new if new is not None else old
    if row is None:
        return None
    before = None if old is None else reader.as_dict(old)
    after = None if new is None else reader.as_dict(new)
    # State rows hold more than the view shows. NaN equals itself here, so compare what it prints.
    if before == after or (before and after and repr(before) == repr(after)):
        return None
    return Change(reader.key_of(row), before, after)

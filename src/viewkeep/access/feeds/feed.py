"""Change feeds: the rows of a view at one epoch, then what each published epoch changed.

Law: the rows of the first epoch with the changes of epochs up to e applied are exactly the view at
e, for every e. Rows and changes come in parts of bounded size; the view is at e when the part that
says no `more` was applied. A feed resumed from a token goes on after the part of that token, with
nothing missed and nothing doubled, or is refused with EpochGone. Where another view took the name
in one step, the feed passes over: an event "replaced" begins anew with rows of the new view at its
epoch. No state of its own is kept for a feed: the versions of the view's rows, held by a pin, are
the feed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, NamedTuple
from zlib import crc32

from viewkeep.access.feeds.feed_pins import FeedPins
from viewkeep.access.feeds.turns import (
    Change,
    FeedPart,
    FeedPosition,
    FeedTurns,
    Identity,
    Selection,
)
from viewkeep.access.ranges import bounds_of
from viewkeep.access.reads import DatabaseReader, ReadPoint
from viewkeep.access.relations import ViewRelation
from viewkeep.access.tokens import read_bytes, read_number, read_token, write_bytes, write_token
from viewkeep.access.writes import Key
from viewkeep.engine.epochs import Published
from viewkeep.engine.programs import load_definition, load_plan
from viewkeep.errors import EpochGone, InvalidRow, InvalidToken, UnknownName

KEEP_SECONDS = 30.0  # how long a feed that nobody asks can still be resumed
_TURN_SECONDS = 0.1  # after which a waiting feed looks whether it was closed, and asks for its pin
_IDENTITIES = 1_000  # remembered
_KIND, _WHAT = "f2", "feed"
_ROWS, _CHANGES = "r", "c"  # in tokens: what the key is a position in


@dataclass(frozen=True)
class Event:
    """What a feed gives: rows of its first epoch, or changes of one epoch.

    With `replaced`, another view has taken the name: what was given before is void, and these are
    the first rows of the new one, of which the following events are. `more` says that further rows
    or changes of the same epoch follow; the view is at `epoch` when it is false. `token` is where a
    feed that has seen this event can be resumed, in the middle of an epoch too.
    """

    epoch: int
    token: str
    rows: tuple[dict[str, Any], ...] | None = None
    changes: tuple[Change, ...] = ()
    more: bool = False
    replaced: bool = False

    @property
    def kind(self) -> Literal["rows", "changes", "replaced"]:
        """Whether this is a part of the first epoch's rows, or the changes of an epoch.

        Or the first rows of a view that has replaced the one before.
        """
        if self.replaced:
            return "replaced"
        return "changes" if self.rows is None else "rows"


class _ReadingPlace(NamedTuple):
    """Where a feed reads on: in which rows, from where, and whether these have replaced others."""

    selection: Selection
    position: FeedPosition
    replaced: bool = False  # and the caller has not been told


class Feeds:
    """The feeds of one database: they share a pin, and what they read of the same view."""

    def __init__(self, reader: DatabaseReader, seconds: float = KEEP_SECONDS):
        self.reader, self.pins = reader, FeedPins(reader.epochs, seconds)
        self.turns = FeedTurns(reader.store)
        self._identities: dict[tuple[int, str], Identity] = {}  # by plan, which never changes

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

    def replaced(self, view: str, generation: int, at: Published) -> Identity | None:
        """What has replaced a view of this name and generation since; None if nothing has.

        One that was rebuilt, or dropped and created anew, has not been replaced.
        """
        now = self.identity(view, at)
        if now is None or not now.origin <= generation != now.generation:
            return None
        before = load_definition(self.reader.store, generation)
        return now if before is not None and before.name == view else None

    def identity(self, view: str, at: Published) -> Identity | None:
        """What a view's name stands for at an epoch; None if it has no such view."""
        known = self._identities.get((at.plan, view))
        if known is not None:
            return known
        plan = load_plan(self.reader.store, at.plan)
        placement = plan.program.placements.get(view)
        if placement is None:
            return None
        origin = plan.origin(view)
        assert origin is not None
        made = Identity(view, plan.generations[view], placement.table.number, origin)
        if len(self._identities) > _IDENTITIES:
            self._identities.clear()
        self._identities[at.plan, view] = made
        return made


class Feed:
    """The rows of a view at one epoch, then the changes of each epoch; an iterator of `Event`.

    Ask with `next` (which waits), `poll` (which does not), or by iterating. A feed is for one
    thread; `close` may come from any. It raises EpochGone when it cannot go on: it was not asked
    for so long that its epoch is gone, or the view was rebuilt or dropped. Then subscribe anew.
    """

    def __init__(
        self, feeds: Feeds, view: str, prefix: Key | None, token: str | None, progress: bool
    ):
        self._feeds, self.view, self._progress = feeds, view.lower(), progress
        self._prefix = prefix
        self._id = feeds.pins.new_id()
        self._closed = threading.Event()
        self._waiting: deque[tuple[Event, _ReadingPlace]] = deque()
        self._failed: Exception | None = None
        epochs = feeds.reader.epochs
        feeds.pins.keep(self._id, epochs.read().published.epoch)
        # Read after the pin was taken, so that this epoch and its tables stay.
        published = epochs.read().published
        selection = self._select(published)
        start = FeedPosition(published.epoch, loading=True)
        self._read_upto = _ReadingPlace(selection, start)
        if token is not None:
            self._read_upto = self._resumed(token, selection, published)
            feeds.pins.resume(self._id, self._read_upto.position.epoch)
        self._seen = self._read_upto  # what the caller has got
        if token is not None:
            self._waiting.extend(self._read())  # now, while its epoch is kept

    def _select(self, published: Published) -> Selection:
        reader = self._feeds.reader
        if self.view in reader.current().tables:
            hint = f"Make a view: CREATE VIEW ... AS SELECT * FROM {self.view}"
            raise UnknownName(f"{self.view} is a base table; feeds are of views", hint=hint)
        found = reader.open(self.view, ReadPoint(published))
        identity = self._feeds.identity(self.view, published)
        if not isinstance(found, ViewRelation) or identity is None:
            raise reader.not_ready(self.view)
        found.check_whole("a change feed")
        bounds = bounds_of(found.key_codec, found.key, self.view, prefix=self._prefix)
        return Selection(identity, found, bounds)

    # -- asking --------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that the events given so far lead to, or are leading to by its first rows.

        While the changes of an epoch come in parts it is the one before.
        """
        return self._seen.position.epoch

    @property
    def more(self) -> bool:
        """Whether further rows or changes of the epoch of the last event follow."""
        return not self._seen.position.is_whole

    @property
    def token(self) -> str | None:
        """Where to resume after the events given so far; None before the first."""
        is_first = self._seen.position == FeedPosition(self.epoch, loading=True)
        return None if is_first else self._token(self._seen)

    def poll(self) -> list[Event]:
        """The next events that are there, some thousand rows at most; never waits.

        None are left when it gives none.
        """
        found = [*self._waiting] or self._read()
        self._waiting.clear()
        self._seen = self._read_upto
        return [event for event, _ in found]

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there is none within `timeout` seconds, or the feed is closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed.is_set():
            if not self._waiting:
                self._waiting.extend(self._read())
            if self._waiting:
                event, after = self._waiting.popleft()
                self._seen = after if self._waiting else self._read_upto
                return event
            self._seen = self._read_upto
            left = _TURN_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            self._feeds.reader.watch.wait(self.epoch, min(left, _TURN_SECONDS))
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

    def _read(self) -> list[tuple[Event, _ReadingPlace]]:
        """The next events, each with the place after it; none if nothing is left to read.

        If any call of the store fails, the feed is where it was: tokens need the database's id, so
        that may be after the rows were read.
        """
        if self._closed.is_set():
            return []
        if self._failed is not None:
            raise self._failed
        self._feeds.pins.keep(self._id, self.epoch)
        published = self._feeds.reader.epochs.read().published
        place, last = self._read_upto, FeedPosition(published.epoch)
        parts: tuple[FeedPart, ...] = ()
        while not parts and place.position != last:
            place, parts = self._turn(place, published)
            is_last = place.position == last
            if self._progress and is_last and (not parts or parts[-1].epoch < last.epoch):
                parts = (*parts, FeedPart(last.epoch, last))
        after = [_ReadingPlace(place.selection, part.after) for part in parts]
        events = [
            Event(part.epoch, self._token(at), part.rows, part.changes, part.more)
            for part, at in zip(parts, after, strict=True)
        ]
        if events and place.replaced:
            place, events[0] = place._replace(replaced=False), replace(events[0], replaced=True)
        self._read_upto = place
        return list(zip(events, after, strict=True))

    def _turn(
        self, place: _ReadingPlace, published: Published
    ) -> tuple[_ReadingPlace, tuple[FeedPart, ...]]:
        turns, (selection, position, _) = self._feeds.turns, place
        try:
            if position.loading:
                turn = turns.rows(selection, position)
            else:
                turn = turns.changes(selection, position, published.epoch)
            is_same = self._is_same(selection)
        except EpochGone as error:
            if not self._is_same(selection):
                return self._passed_over(place)
            raise self._fail(place, str(error)) from error
        if not is_same:
            return self._passed_over(place)
        return place._replace(position=turn.after), turn.parts

    def _is_same(self, selection: Selection) -> bool:
        """Whether what was read are this view's rows.

        Asked after reading: a table is dropped only when a plan without it was published.
        """
        published = self._feeds.reader.epochs.read().published
        return self._feeds.identity(self.view, published) == selection.identity

    def _passed_over(self, place: _ReadingPlace) -> tuple[_ReadingPlace, tuple[FeedPart, ...]]:
        """The first rows of the view that has replaced this one; EpochGone if none has."""
        published = self._feeds.reader.epochs.read().published
        generation = place.selection.identity.generation
        if self._feeds.replaced(self.view, generation, published) is None:
            self._feeds.reader.refuse_failed(self.view)
            raise self._fail(place, f"view {self.view} was rebuilt, dropped or created anew")
        try:
            selection = self._select(published)
        except InvalidRow as error:
            raise self._fail(place, f"view {self.view} was replaced, and {error}") from error
        start = FeedPosition(published.epoch, loading=True)
        return self._turn(_ReadingPlace(selection, start, replaced=True), published)

    def _fail(self, place: _ReadingPlace, why: str) -> EpochGone:
        """The error that this feed ends with."""
        self._failed = EpochGone(
            f"the feed of {self.view} cannot go on after epoch {place.position.epoch}: {why}. "
            "Subscribe anew"
        )
        return self._failed

    # -- tokens --------------------------------------------------------------------------------

    def _token(self, place: _ReadingPlace) -> str:
        identity, bounds = place.selection.identity, place.selection.bounds
        position = place.position
        parts = [position.epoch, identity.generation, identity.table]
        range_id = f"{crc32(bounds.start):08x}"
        database = self._feeds.reader.identity
        if position.key is None:
            return write_token(_KIND, database, (*parts, range_id))
        phase = _ROWS if position.loading else _CHANGES
        return write_token(_KIND, database, (*parts, range_id, phase, write_bytes(position.key)))

    def _resumed(self, token: str, selection: Selection, published: Published) -> _ReadingPlace:
        """The place of a token, if it is of this view and of these keys."""
        parts = read_token(_KIND, self._feeds.reader.identity, token, _WHAT)
        if len(parts) not in (4, 6):
            raise InvalidToken("the token of the feed is damaged; take it over whole")
        epoch, generation, table = (read_number(part, _WHAT) for part in parts[:3])
        now = selection.identity
        if (generation, table) != (now.generation, now.table):
            if self._feeds.replaced(self.view, generation, published) == now:
                start = FeedPosition(published.epoch, loading=True)
                return _ReadingPlace(selection, start, replaced=True)
            raise EpochGone(
                f"the token is of another view than {self.view} is now: it was rebuilt, dropped or "
                "created anew, or the token is another view's. Subscribe anew"
            )
        position = FeedPosition(epoch)
        if len(parts) == 6:
            position = FeedPosition(epoch, read_bytes(parts[5], _WHAT), loading=parts[4] == _ROWS)
        place = _ReadingPlace(selection, position)
        if self._token(place) != token:
            raise InvalidToken(f"the token is of a feed of other keys of {self.view}")
        if epoch + (position.key is not None and not position.loading) > published.epoch:
            raise InvalidToken(
                f"the token is of epoch {epoch}, but the published one is {published.epoch}: "
                "it belongs to another database"
            )
        return place

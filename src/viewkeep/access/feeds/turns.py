"""What a feed reads in one turn: some first rows, some whole epochs, or a part of one epoch.

Law: a turn is a function of the position that it starts from and of the epochs published by then;
turns put together give the rows of the first epoch once, in key order, then every change once, in
the order of epochs and of keys within one. A turn holds at most `PART_ROWS` rows or changes,
however many an epoch has changed, and reading one takes memory for some rows of each shard.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from viewkeep.access.ranges import ScanBounds
from viewkeep.access.relations import ViewRelation
from viewkeep.stores.contract import Store

PART_ROWS = 5_000  # rows or changes in one turn
_CACHED = 50_000  # changes, in all turns that are kept for other feeds of the same rows
_TURN = 500  # what a turn counts as beside its changes
_WALKS = 16  # kept where some feed may go on

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Change:
    """One row of a view before and after an epoch: None where there is no row.

    `key` has the values of all key columns, those that the view does not show among them.
    """

    key: tuple[object, ...]
    old: dict[str, Any] | None
    new: dict[str, Any] | None


class Identity(NamedTuple):
    """Which rows a view's name stands for: changes if it is replaced, rebuilt, or made anew.

    `origin` stays the same while it is replaced.
    """

    view: str
    generation: int
    table: int
    origin: int


@dataclass(frozen=True)
class Selection:
    """The rows that feeds follow, and how they are read."""

    identity: Identity
    relation: ViewRelation
    bounds: ScanBounds

    @property
    def rows(self) -> tuple[Identity, bytes, bytes | None]:
        """What tells one selection from others."""
        return self.identity, self.bounds.start, self.bounds.stop

    def after(self, key: bytes | None) -> ScanBounds:
        """The range without the rows up to a key."""
        return self.bounds if key is None else replace(self.bounds, start=key + b"\0")


class FeedPosition(NamedTuple):
    """How far a feed has got: all of `epoch`; with `key`, and the next one's changes up to it.

    With `loading`, only the rows of `epoch` itself up to `key`.
    """

    epoch: int
    key: bytes | None = None
    loading: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the rows and changes up to here are exactly the view at `epoch`."""
        return self.key is None and not self.loading


class FeedPart(NamedTuple):
    """Rows of the first epoch, or changes of one epoch, and the position after them."""

    epoch: int
    after: FeedPosition
    rows: tuple[dict[str, Any], ...] | None = None
    changes: tuple[Change, ...] = ()

    @property
    def more(self) -> bool:
        """Whether further rows or changes of the same epoch follow."""
        return not self.after.is_whole


class FeedTurn(NamedTuple):
    """What was read, and the position after it: past epochs that changed nothing as well."""

    parts: tuple[FeedPart, ...]
    after: FeedPosition

    @property
    def size(self) -> int:
        """What it counts as among those that are kept."""
        return _TURN + sum(len(part.changes) for part in self.parts)


class FeedTurns:
    """Reads turns of all feeds of one database; feeds of the same rows share what was read."""

    def __init__(self, store: Store):
        self._store = store
        self._known: OrderedDict[tuple[object, ...], FeedTurn] = OrderedDict()
        self._walks: OrderedDict[tuple[object, ...], _Walk[Any]] = OrderedDict()
        self._held = 0  # in all of `_known`
        self._lock = threading.Lock()

    def rows(self, selection: Selection, position: FeedPosition) -> FeedTurn:
        """The next rows of the first epoch."""
        relation, epoch = selection.relation, position.epoch
        walk = self._resumed(selection, position)
        if walk is None:
            walk = _Walk(relation.walk(self._store, selection.after(position.key), epoch))
        found, after = walk.take(PART_ROWS), FeedPosition(epoch)
        if walk.more:
            after = FeedPosition(epoch, found[-1][0], loading=True)
            self._leave(selection, after, walk)
        shown = tuple(relation.frame([row for _, row in found]).to_dicts())
        return FeedTurn((FeedPart(epoch, after, rows=shown),), after)

    def changes(self, selection: Selection, position: FeedPosition, upto: int) -> FeedTurn:
        """What comes after a position, of epochs up to `upto`, which is a later one."""
        wanted = (*selection.rows, position, upto)
        with self._lock:
            known = self._known.get(wanted)
        if known is not None:
            return known
        turn = self._epochs(selection, position.epoch, upto) if position.is_whole else None
        if turn is None:
            turn = self._part(selection, position)
        with self._lock:
            if wanted not in self._known:
                self._known[wanted] = turn
                self._held += turn.size
            while self._held > _CACHED:
                self._held -= self._known.popitem(last=False)[1].size
        return turn

    def _epochs(self, selection: Selection, after: int, upto: int) -> FeedTurn | None:
        """Whole epochs from `after` on, as many as fit; None if even the next one does not."""
        relation = selection.relation
        while (
            found := relation.changes(self._store, selection.bounds, after, upto, PART_ROWS)
        ) is None:
            if upto == after + 1:
                return None
            upto = after + max(1, (upto - after) // 4)
        parts = []
        for epoch, rows in groupby(found, itemgetter(0)):
            shown = tuple(made for _, _, old, new in rows if (made := _change(relation, old, new)))
            if shown:
                parts.append(FeedPart(epoch, FeedPosition(epoch), changes=shown))
        return FeedTurn(tuple(parts), FeedPosition(upto))

    def _part(self, selection: Selection, position: FeedPosition) -> FeedTurn:
        """The next changes of one epoch, which may have more."""
        epoch = position.epoch + 1
        walk = self._resumed(selection, position)
        if walk is None:
            walk = _Walk(self._shown(selection, position))
        found, after = walk.take(PART_ROWS), FeedPosition(epoch)
        if walk.more:
            after = FeedPosition(position.epoch, found[-1][0])
            self._leave(selection, after, walk)
        if not found:
            return FeedTurn((), after)
        return FeedTurn(
            (FeedPart(epoch, after, changes=tuple(change for _, change in found)),), after
        )

    def _shown(
        self, selection: Selection, position: FeedPosition
    ) -> Iterator[tuple[bytes, Change]]:
        relation, bounds = selection.relation, selection.after(position.key)
        for key, old, new in relation.walk_changes(self._store, bounds, position.epoch):
            change = _change(relation, old, new)
            if change is not None:
                yield key, change

    def _resumed(self, selection: Selection, position: FeedPosition) -> _Walk[Any] | None:
        """The walk that some feed has left at this position; else one begins there by seeks."""
        with self._lock:
            return self._walks.pop((*selection.rows, position), None)

    def _leave(self, selection: Selection, position: FeedPosition, walk: _Walk[Any]) -> None:
        with self._lock:
            self._walks[(*selection.rows, position)] = walk
            while len(self._walks) > _WALKS:
                self._walks.popitem(last=False)


class _Walk(Generic[_Item]):
    """Items that are read as they are asked for, by one who always knows whether there are more."""

    def __init__(self, items: Iterator[_Item]):
        self._items = items
        self._following = list(islice(items, 1))

    @property
    def more(self) -> bool:
        return bool(self._following)

    def take(self, count: int) -> list[_Item]:
        """The next items, at most so many."""
        found = [*self._following, *islice(self._items, count)]
        self._following = found[count:]
        return found[:count]


def _change(relation: ViewRelation, old: bytes | None, new: bytes | None) -> Change | None:
    """A change as the view shows it; None if what it shows is the same."""
    row = new if new is not None else old
    if row is None:
        return None
    before = None if old is None else relation.as_dict(old)
    after = None if new is None else relation.as_dict(new)
    # State rows hold more than the view shows. NaN equals itself here, so compare what it prints.
    if before == after or (before and after and repr(before) == repr(after)):
        return None
    return Change(relation.key_of(row), before, after)

"""Views: each a table of HBase, whose cells are stamped with the epochs that wrote them.

    row key    u8 shard, then the key as `codec.keys` writes it
    family r   the row as `codec.rows` writes it, a version for each epoch; empty if it was deleted
    family v   the view's columns, as HBase's `Bytes` writes them: what other programs read

Law: viewkeep reads family r at the published epoch: the newest version at or before it, whatever
later epochs write meanwhile. Others read family v as it is now. One row changes by one put, and an
epoch's rows change one by one; that is why readers need an epoch.

Writing the same rows of an epoch again changes nothing, so a task that runs twice does no harm. One
that is late in an epoch which was given up is told so before it writes, and again afterwards, and
then takes back what it wrote. If it dies in between, its versions stay; readers know which epochs
were given up and pass over them. What trimming hides is behind the horizon, which is noted first.
A reader looks at both notes after its read, so it never takes a row for the one of its epoch
wrongly. A task of an epoch at or before the horizon is refused: what it would write may be hidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, Final

from viewkeep.codec.cells import encoder
from viewkeep.codec.keys import MAX_KEY, prefix_end
from viewkeep.codec.patterns import KeyPattern
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import EpochGone, Fenced, InvalidRow, StoreError
from viewkeep.stores.contract import Changed, Chunk, NamedView, StateWrite, Views
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.meta import HbaseMeta
from viewkeep.stores.hbase.wire import Cell, Column, Delete, Deletion, Family, Put, Row, Times

ROWS, SHOWN = b"r", b"v"
MOST_SHARDS: Final = 256
_ROW = Column(ROWS, b"")
_TABLE, _NAME = "hbase/view/", "hbase/name/"  # meta records: tables by number, numbers by name
_ABANDONED = "hbase/abandoned/"  # meta records by shard: epochs that were given up,
_HORIZON = "hbase/horizon/"  # and the epoch before which versions may be hidden
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")  # what the names of HBase's tables do not have
_PAGE = 5_000  # rows of one call
_GIVEN_UP = 100  # runs of epochs of which versions may still come
_TRIM = 16  # one epoch of so many trims the rows that it writes
_SWEEP = 256  # epochs from one look for deleted rows to the next: it goes through all rows
_ALL_VERSIONS = 2**31 - 1
_DELETED = b"SingleColumnValueFilter('r', '', =, 'binary:')"  # the newest version is empty


@dataclass(frozen=True)
class _Marks:
    """What is noted of a shard."""

    horizon: int
    abandoned: list[tuple[int, int]]  # epochs that were given up: after < epoch <= upto

    def has(self, epoch: int) -> bool:
        """Whether versions of an epoch count."""
        return not any(after < epoch <= upto for after, upto in self.abandoned)


@dataclass(frozen=True)
class _Shown:
    """How the rows of a view become cells for others."""

    shape: NamedView

    @cached_property
    def _codec(self) -> RowCodec:
        return RowCodec(self.shape.schema.columns)

    @cached_property
    def _columns(self) -> list[tuple[bytes, int, Any]]:
        schema = self.shape.schema
        return [
            (outer.encode(), schema.index(inner), encoder(schema[inner].type))
            for outer, inner in self.shape.shown
            if not schema[inner].type.is_array
        ]

    def cells(self, row: bytes) -> tuple[list[Cell], list[bytes]]:
        """The cells of a row, and the columns that are NULL."""
        cells, nulls = list[Cell](), list[bytes]()
        values = self._codec.decode_one(row) if self._columns else ()
        for name, place, encode in self._columns:
            if values[place] is None:
                nulls.append(name)
            else:
                cells.append(Cell(SHOWN, name, encode(values[place])))
        return cells, nulls


class HbaseViews(Views):
    """The views of one database."""

    def __init__(self, connection: HbaseConnection, namespace: str, meta: HbaseMeta):
        self._connection, self._namespace, self._meta = connection, namespace, meta
        self._shown: dict[int, _Shown] = {}
        self._plans: list[Callable[[], Iterable[NamedView]]] = []
        self._tables: dict[int, str] = {}
        self._swept: dict[int, int] = {}  # shard: the horizon at the last look for deleted rows
        self._lock = Lock()

    def learn(self, shapes: Callable[[], Iterable[NamedView]]) -> None:
        """Be told of views; they are looked at once one is written that is not known."""
        with self._lock:
            self._plans.append(shapes)

    # Reads.

    def get(
        self, shard: int, table: int, keys: Sequence[bytes], at: int | None
    ) -> list[bytes | None]:
        name = self._table(table)
        if name is None:
            return [None] * len(keys)
        wanted = [_row_key(shard, key) for key in keys]
        found = self._connection.get_many(name, wanted, [_ROW], times=_upto(at))
        return self._values(shard, name, found, at)

    def scan(
        self,
        shard: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: int | None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        keys, rows = list[bytes](), list[bytes]()
        low, high = _row_key(shard, start), _end(shard, stop)
        name, more = self._table(table), True
        while name is not None and more and len(keys) <= limit:
            page = min(_PAGE, max(limit + 1 - len(keys), 100))
            found = self._connection.scan(
                name, low, high, [_ROW], limit=page, times=_upto(at), reverse=reverse
            )
            for row, value in zip(found, self._values(shard, name, found, at), strict=True):
                key = (row.key or b"")[1:]
                if value is not None and (only is None or only.matches(key)):
                    keys.append(key)
                    rows.append(value)
            more = len(found) == page
            if more and reverse:
                high = found[-1].key
            elif more:
                low = (found[-1].key or b"") + b"\0"
        if name is None:
            self._marks(shard, at)
        return Chunk(keys[:limit], rows[:limit], len(keys) > limit)

    def changes(
        self,
        shard: int,
        table: int,
        after: int,
        upto: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
    ) -> Changed:
        keys, versions = list[bytes](), list[list[tuple[int, bytes | None]]]()
        low, high, name, more = _row_key(shard, start), _end(shard, stop), self._table(table), True
        while name is not None and more and len(keys) <= limit:
            changed = self._connection.scan(
                name,
                low,
                high,
                [_ROW],
                limit=_PAGE,
                times=Times(after + 1, upto + 1),
                versions=_ALL_VERSIONS,
            )
            row_keys = [row.key or b"" for row in changed]
            before = self._connection.get_many(name, row_keys, [_ROW], times=_upto(after))
            marks = self._marks(shard, after)
            for row, old in zip(changed, self._values(shard, name, before, after), strict=True):
                known = [(after, old)]
                for cell in sorted(row.cells, key=lambda cell: cell.timestamp):
                    if marks.has(cell.timestamp) and (cell.value or None) != known[-1][1]:
                        known.append((cell.timestamp, cell.value or None))
                if len(known) > 1:
                    keys.append((row.key or b"")[1:])
                    versions.append(known)
            more = len(changed) == _PAGE
            low = row_keys[-1] + b"\0" if more else low
        if name is None:
            self._marks(shard, after)
        return Changed(keys[:limit], versions[:limit], len(keys) > limit)

    # Writes.

    def apply(self, shard: int, epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
        marks = self._marks(shard)
        if epoch <= marks.horizon:
            raise Fenced(f"epoch {epoch} was closed; versions up to {marks.horizon} may be hidden")
        _check(marks, epoch)
        written: list[tuple[str, list[bytes]]] = []
        for write in writes:
            name, shown = self._made(write.table), self._shown_as(write.table)
            puts, deletes = list[Put](), list[Delete]()
            for key, row in zip(write.key_list, _listed(write.rows), strict=True):
                if len(key) > MAX_KEY:
                    raise InvalidRow(f"a key of {len(key)} bytes is too long")
                row_key = _row_key(shard, key)
                cells, nulls = ([], None) if row is None else shown.cells(row)
                cells.append(Cell(ROWS, b"", row or b""))
                puts.append(Put(row_key, cells, epoch))
                if nulls is None:
                    gone = [Column(SHOWN, None, epoch)]
                    deletes.append(Delete(row_key, gone, kind=Deletion.FAMILY))
                elif nulls:
                    gone = [Column(SHOWN, column, epoch) for column in nulls]
                    deletes.append(Delete(row_key, gone, kind=Deletion.CELLS))
            self._connection.put(name, puts)
            self._connection.delete(name, deletes)
            written.append((name, [put.row for put in puts]))
        try:
            _check(self._marks(shard), epoch)
        except Fenced:
            for name, keys in written:
                self._take_back(name, self._connection.get_many(name, keys, [_ROW]), epoch, epoch)
            raise
        if epoch % _TRIM == 0:
            self._raise_horizon(shard, horizon)
            for name, keys in written:
                self._trim(shard, name, keys, horizon)

    def revert(self, shard: int, after: int, upto: int) -> None:
        record = f"{_ABANDONED}{shard}"
        while True:
            raw = self._meta.get(record)
            known = [(first, last) for first, last in json.loads(raw or b"[]")]
            if (after, upto) in known:
                break
            # A driver that died while it did this is followed by one that gives up more.
            kept = [(first, last) for first, last in known if first < after or last > upto]
            for first, last in kept[: 1 - _GIVEN_UP]:
                self._forget(shard, first, last)
            new = json.dumps([*kept[1 - _GIVEN_UP :], (after, upto)]).encode()
            if self._meta.cas(record, raw, new):
                break
        self._forget(shard, after, upto)

    def sweep(self, shard: int, horizon: int, budget: int = 10_000) -> bool:
        with self._lock:
            if horizon < self._swept.get(shard, 0) + _SWEEP:
                return False
        self._raise_horizon(shard, horizon)
        for _, value in self._meta.scan(_TABLE):
            name, low, more = value.decode(), bytes([shard]), True
            while more:
                deleted = self._connection.scan(
                    name, low, _end(shard, None), [_ROW], limit=min(_PAGE, budget), filter=_DELETED
                )
                values = self._values(shard, name, deleted, None)
                old = [
                    row
                    for row, value in zip(deleted, values, strict=True)
                    if row.cells[0].timestamp <= horizon and value is None
                ]
                self._take_back(name, old, 0, horizon)
                budget -= len(old)
                if budget <= 0:
                    return True
                more = len(deleted) == _PAGE
                low = (deleted[-1].key or b"") + b"\0" if more else low
        with self._lock:
            self._swept[shard] = horizon
        return False

    def drop(self, shard: int, table: int, budget: int = 10_000) -> bool:
        raw = self._meta.get(f"{_TABLE}{table}")
        if raw is not None:
            self._connection.drop_table(raw.decode())
            for record, value in self._meta.scan(_NAME):
                if value == str(table).encode():
                    self._meta.cas(record, value, None)
            self._meta.cas(f"{_TABLE}{table}", raw, None)
        with self._lock:
            self._tables.pop(table, None)
        return False

    def table_of(self, number: int) -> str | None:
        """The table of HBase that has a view; None if nothing was written to it yet."""
        return self._table(number)

    def _table(self, number: int) -> str | None:
        with self._lock:
            known = self._tables.get(number)
        if known is None and (raw := self._meta.get(f"{_TABLE}{number}")) is not None:
            known = raw.decode()
            with self._lock:
                self._tables[number] = known
        return known

    def _made(self, number: int) -> str:
        """The table of HBase, which is made if it is not there.

        It has the view's name if that is free: a view that replaces another is loaded beside it.
        """
        known = self._table(number)
        if known is not None:
            return known
        view = _NO_NAME.sub("_", self._shown_as(number).shape.name.removesuffix(" (new)"))
        self._meta.cas(f"{_NAME}{view}", None, str(number).encode())
        is_first = self._meta.get(f"{_NAME}{view}") == str(number).encode()
        name = f"{self._namespace}:{view}" + ("" if is_first else f".{number}")
        self._connection.create_table(
            name, [Family(ROWS, versions=_ALL_VERSIONS), Family(SHOWN, versions=1)]
        )
        self._meta.cas(f"{_TABLE}{number}", None, name.encode())
        return self._table(number) or name

    def _shown_as(self, number: int) -> _Shown:
        with self._lock:
            plans, self._plans = self._plans, []
        for plan in plans:
            for shape in plan():
                self._shown.setdefault(shape.number, _Shown(shape))
        if number not in self._shown:
            raise StoreError(f"no plan that this process knows has a view in table {number}")
        return self._shown[number]

    def _marks(self, shard: int, at: int | None = None) -> _Marks:
        """The notes of a shard; EpochGone if versions that a read at an epoch needs may be gone."""
        names = f"{_HORIZON}{shard}", f"{_ABANDONED}{shard}"
        horizon, abandoned = self._meta.get_many(names)
        marks = _Marks(int(horizon or 0), json.loads(abandoned or b"[]"))
        if at is not None and at < marks.horizon:
            raise EpochGone(f"epoch {at} is no longer kept; pin an epoch to keep it")
        return marks

    def _values(
        self, shard: int, name: str, rows: Sequence[Row], at: int | None
    ) -> list[bytes | None]:
        """The values of rows whose newest versions at or before an epoch were read."""
        marks = self._marks(shard, at)
        values = [_value(row) for row in rows]
        late = [
            place
            for place, row in enumerate(rows)
            if row.cells and not marks.has(row.cells[0].timestamp)
        ]
        if late:
            keys = [rows[place].key or b"" for place in late]
            found = self._connection.get_many(
                name, keys, [_ROW], times=_upto(at), versions=_ALL_VERSIONS
            )
            for place, row in zip(late, found, strict=True):
                kept = [cell for cell in row.cells if marks.has(cell.timestamp)]
                newest = max(kept, key=lambda cell: cell.timestamp, default=None)
                values[place] = None if newest is None else newest.value or None
        return values

    def _raise_horizon(self, shard: int, horizon: int) -> None:
        record = f"{_HORIZON}{shard}"
        while int((raw := self._meta.get(record)) or 0) < horizon:
            self._meta.cas(record, raw, str(horizon).encode())

    def _forget(self, shard: int, after: int, upto: int) -> None:
        """Hide what epochs that were given up have written."""
        for number, value in self._meta.scan(_TABLE):
            name, low, more = value.decode(), bytes([shard]), True
            while more:
                rows = self._connection.scan(
                    name,
                    low,
                    _end(shard, None),
                    [_ROW],
                    limit=_PAGE,
                    times=Times(after + 1, upto + 1),
                )
                self._take_back(name, rows, after + 1, upto)
                self._show_again(shard, int(number.removeprefix(_TABLE)), name, rows, upto + 1)
                more = len(rows) == _PAGE
                low = (rows[-1].key or b"") + b"\0" if more else low

    def _take_back(self, name: str, rows: Sequence[Row], first: int, last: int) -> None:
        """Hide what epochs from `first` to `last` have written to these rows."""
        keys = [row.key for row in rows if row.key is not None]
        found = self._connection.get_many(
            name, keys, [_ROW], times=Times(first, last + 1), versions=_ALL_VERSIONS
        )
        stamps = [(row.key or b"", cell.timestamp) for row in found for cell in row.cells]
        self._connection.delete(
            name,
            [
                Delete(
                    key,
                    [Column(ROWS, timestamp=at), Column(SHOWN, timestamp=at)],
                    kind=Deletion.FAMILY_VERSION,
                )
                for key, at in stamps
            ],
        )

    def _show_again(self, shard: int, number: int, name: str, rows: Sequence[Row], at: int) -> None:
        """Have others read what viewkeep reads: epochs that were given up may have hidden it."""
        with suppress(StoreError):  # a view that was dropped
            self._shown_as(number)
        shown, puts = self._shown.get(number), list[Put]()
        if shown is None:
            return
        newest = self._connection.get_many(name, [row.key or b"" for row in rows], [_ROW])
        for row, held in zip(newest, self._values(shard, name, newest, None), strict=True):
            # HBase takes no put without a cell, as of a row whose columns are all NULL.
            if held is not None and (cells := shown.cells(held)[0]):
                puts.append(Put(row.key or b"", cells, at))
        self._connection.put(name, puts)

    def _trim(self, shard: int, name: str, keys: Sequence[bytes], horizon: int) -> None:
        """Hide the versions of these rows that nobody at or after the horizon reads."""
        found = self._connection.get_many(
            name, keys, [_ROW], times=_upto(horizon), versions=_ALL_VERSIONS
        )
        marks, old = self._marks(shard), list[Delete]()
        for row in found:
            times = sorted((cell.timestamp for cell in row.cells), reverse=True)
            kept = next(filter(marks.has, times), None)
            old += [
                Delete(row.key or b"", [Column(ROWS, b"", at)], kind=Deletion.VERSION)
                for at in times
                if at != kept
            ]
        self._connection.delete(name, old)


def _check(marks: _Marks, epoch: int) -> None:
    """Fenced if the epoch was given up."""
    if not marks.has(epoch):
        raise Fenced(f"epoch {epoch} was given up by another driver")


def _row_key(shard: int, key: bytes) -> bytes:
    return bytes([shard]) + key


def _end(shard: int, stop: bytes | None) -> bytes | None:
    """Where the keys of a shard end that are less than `stop`."""
    return prefix_end(bytes([shard])) if stop is None else _row_key(shard, stop)


def _upto(at: int | None) -> Times | None:
    return None if at is None else Times(0, at + 1)


def _value(row: Row) -> bytes | None:
    return (row.cells[0].value or None) if row.cells else None


def _listed(rows: Any) -> Sequence[bytes | None]:
    return rows if isinstance(rows, Sequence) else list(rows)

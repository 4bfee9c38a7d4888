"""Rows into operations: what `put`, `insert` and `delete` hand to the store.

Law: a row is checked column by column before anything is written, and one call becomes one
`Store.write`, so it is done whole or not at all. Few rows go one by one through the scalar codecs;
frames go through the vectorised ones.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import groupby
from typing import Any, TypeAlias, cast

from viewkeep.access.incoming import as_polars, check_columns, conform, is_frame
from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.tablerows import Newer
from viewkeep.deferred import pl
from viewkeep.errors import Corrupt, DuplicateKey, InvalidRow
from viewkeep.plan.nodes import Source
from viewkeep.stores.contract import ABSENT, Kind, Tables, TableWrite

LOAD_ROWS = 20_000  # that a load writes at once
Key: TypeAlias = object  # a scalar, a tuple or a dict
_SCALARS = {int, str, bytes, bool, float, Decimal, dt.date, dt.datetime, type(None)}


class BaseTable:
    """A base table with its codecs, and the operations on it.

    `newer` tells its reader of columns that were changed since.
    """

    def __init__(self, source: Source, newer: Newer | None = None):
        self.name, self.number, self.schema = source.table, source.number, source.schema
        self.names = self.schema.names
        self.key = self.schema.key
        self.key_codec = KeyCodec(self.schema.types(self.key))
        self.row_codec = source.codec(newer)
        numbers, defaults = dict(source.rows.columns), dict(source.rows.defaults)
        self.defaults = {name: defaults.get(numbers[name]) for name in self.names}
        self._key_at = tuple(self.schema.index(name) for name in self.key)
        self._width = len(self.names)
        self._known = frozenset(self.names)

    @cached_property
    def _required(self) -> tuple[int, ...]:
        """Positions of the columns that must not be NULL."""
        return tuple(
            index
            for index, column in enumerate(self.schema.columns)
            if not column.nullable or index in self._key_at
        )

    # -- keys ----------------------------------------------------------------------------------

    def key_values(self, key: object) -> tuple[object, ...]:
        """A key given as a scalar, a tuple or a dict, as one value per key column."""
        values = key_tuple(key, self.key, self.name)
        if len(values) != len(self.key):
            raise InvalidRow(
                f"the key of {self.name} is ({', '.join(self.key)}); got {len(values)} of them"
            )
        return values

    def encode_key(self, key: object) -> bytes:
        """Key bytes of a key given as a scalar, a tuple or a dict."""
        values = self.key_values(key)
        if None in values:
            raise InvalidRow(f"{self.name}: key column {self.key[values.index(None)]} is NULL")
        try:
            return self.key_codec.encode_one(values)
        except InvalidRow as error:
            raise InvalidRow(f"{self.name}: {error}") from error

    def encode_keys(self, keys: Sequence[object]) -> list[bytes]:
        """`encode_key` of each key."""
        columns = key_columns(keys, len(self.key), self.key_values)
        if any(None in column for column in columns):
            return [self.encode_key(key) for key in keys]
        try:
            return self.key_codec.encode_many(columns) if columns else []
        except InvalidRow as error:
            raise InvalidRow(f"{self.name}: {error}") from error

    # -- operations ----------------------------------------------------------------------------

    def puts(self, rows: object) -> list[TableWrite]:
        """Upserts of a dict, of dicts, or of a frame; columns left out keep their values."""
        if isinstance(rows, Mapping):
            return [self._put_dicts((rows,))]
        if is_frame(rows):
            return self.put_frame(conform(self.schema, as_polars(rows), table=self.name))
        # Rows of different columns become several operations of one call, in order.
        writes: list[TableWrite] = []
        first = 1
        for _, run in groupby(_dicts(rows, self.name), key=lambda row: row.keys()):
            same = tuple(run)
            writes.append(self._put_dicts(same, first))
            first += len(same)
        return writes

    def inserts(self, rows: object) -> list[TableWrite]:
        """Insertions of a dict, of dicts, or of a frame; refused if a key exists."""
        if is_frame(rows):
            return self.put_frame(conform(self.schema, as_polars(rows), table=self.name), True)
        single = isinstance(rows, Mapping)
        given = (rows,) if isinstance(rows, Mapping) else tuple(_dicts(rows, self.name))
        if not given:
            return []
        keys, values = self._encode_dicts(given, None, None if single else 1)
        return [self._write(Kind.PUT, keys, values, expect_absent=True)]

    def put_frame(
        self, frame: pl.DataFrame, absent: bool = False, first_row: int = 1
    ) -> list[TableWrite]:
        """Operations for a frame that `incoming.conform` has made; `absent` refuses known keys."""
        if not frame.height:
            return []
        self.refuse_nulls(frame, first_row)
        given = tuple(self.schema.index(name) for name in frame.columns)
        if absent and (lost := [i for i in self._required if i not in given]):
            raise InvalidRow(f"{self.name}: {self._null(lost[0])}, and is not given")
        missing = [c for c in self.schema.columns if c.name not in frame.columns]
        if missing:
            blank = self.row_codec.decode([self.row_codec.blank])
            frame = frame.with_columns(
                blank[c.name].new_from_index(0, frame.height) for c in missing
            )
        frame = frame.select(self.names)
        keys = self.key_codec.encode([frame.get_column(name) for name in self.key])
        columns = given if missing and not absent else None
        return [self._write(Kind.PUT, keys, self.row_codec.encode(frame), columns, absent)]

    def put_encoded(
        self, keys: Sequence[bytes], rows: Sequence[bytes], columns: tuple[int, ...] | None
    ) -> TableWrite:
        """The operation that another process has made of a frame by `put_frame`."""
        return self._write(Kind.PUT, keys, rows, columns)

    def refuse_nulls(self, frame: pl.DataFrame, first_row: int = 1) -> None:
        """Refuse a frame with a NULL where the schema allows none."""
        for index in self._required:
            name = self.names[index]
            if name in frame.columns and frame.get_column(name).null_count():
                row = first_row + (frame.get_column(name).is_null().arg_max() or 0)
                raise InvalidRow(f"{self.name}, row {row}: {self._null(index)}")

    def deletes(self, keys: Sequence[bytes]) -> TableWrite:
        """Deletions of whole rows."""
        return self._write(Kind.DELETE, keys, None)

    def clears(self, key: object, columns: Iterable[str]) -> TableWrite:
        """Some columns of one row set to NULL; a row that is not there stays absent."""
        names = tuple(map(self.schema.spelt, columns))
        check_columns(self.schema, names, self.name)
        positions = tuple(self.schema.index(name) for name in names)
        for position in positions:
            if position in self._required:
                raise InvalidRow(f"{self.name}: column {self.names[position]} must not be NULL")
        values: list[object] = [None] * self._width
        for position, value in zip(self._key_at, self.key_values(key), strict=True):
            values[position] = value
        return TableWrite(
            self.number,
            self.row_codec,
            Kind.PUT,
            [self.encode_key(key)],
            [self.row_codec.encode_one(values)],
            columns=positions,
            existing_only=True,
        )

    def duplicate(self, key: bytes) -> DuplicateKey:
        """The error for an insertion that met this key."""
        values = self.row_key_text(key)
        return DuplicateKey(
            f"{self.name} has a row with {values} already; nothing was written. "
            "To replace rows use put, INSERT OR REPLACE, or load with replace"
        )

    def row_key_text(self, key: bytes) -> str:
        """A key in words."""
        try:
            values = self.key_codec.decode_one(key)
        except Corrupt:
            return f"key {key[:40]!r}..."
        return ", ".join(f"{n} = {v!r}" for n, v in zip(self.key, values, strict=True))

    # -- decoding ------------------------------------------------------------------------------

    def frame(self, rows: Sequence[bytes], names: Sequence[str] | None = None) -> pl.DataFrame:
        """The frame of row bytes."""
        return self.row_codec.decode(rows, names)

    def key_of(self, row: bytes) -> tuple[object, ...]:
        """The values of a row's key columns."""
        return tuple(self.row_codec.decode_one(row, self._key_at))

    def as_dict(self, row: bytes) -> dict[str, Any]:
        """One row as a dict."""
        return dict(zip(self.names, self.row_codec.decode_one(row), strict=True))

    # -- private -------------------------------------------------------------------------------

    def _write(
        self,
        kind: Kind,
        keys: Sequence[bytes],
        rows: Sequence[bytes] | None,
        columns: tuple[int, ...] | None = None,
        expect_absent: bool = False,
    ) -> TableWrite:
        expect = ABSENT if expect_absent else None
        return TableWrite(self.number, self.row_codec, kind, keys, rows, columns, expect=expect)

    def _put_dicts(
        self, rows: Sequence[Mapping[str, object]], first_row: int | None = None
    ) -> TableWrite:
        """One operation for rows that have the same columns."""
        if not rows[0].keys() <= self._known:
            rows = [self._own(row) for row in rows]
        given = rows[0]
        if len(given) == self._width:
            keys, encoded = self._encode_dicts(rows, None, first_row)
            return self._write(Kind.PUT, keys, encoded)
        check_columns(self.schema, tuple(given), self.name)
        columns = tuple(i for i, name in enumerate(self.names) if name in given)
        keys, encoded = self._encode_dicts(rows, columns, first_row)
        return self._write(Kind.PUT, keys, encoded, columns)

    def _encode_dicts(
        self,
        rows: Sequence[Mapping[str, object]],
        given: Iterable[int] | None,
        first_row: int | None = None,
    ) -> tuple[list[bytes], list[bytes]]:
        """Keys and row bytes; columns of `given` (None: all) that must not be NULL are checked."""
        names, key_at, defaults = self.names, self._key_at, self.defaults
        required: Iterable[int] = self._required
        if given is not None:
            required = sorted(set(required) & set(given) | set(key_at))
        encode_key, encode_row = self.key_codec.encode_one, self.row_codec.encode_one
        keys: list[bytes] = []
        encoded: list[bytes] = []
        for row in rows:
            if len(row) == self._width and row.keys() <= self._known:
                values = [row[name] for name in names]
            else:
                row = self._own(row)
                values = [row[name] if name in row else defaults[name] for name in names]
            try:
                for index in required:
                    if values[index] is None:
                        raise InvalidRow(self._null(index))
                keys.append(encode_key([values[index] for index in key_at]))
                encoded.append(encode_row(values))
            except InvalidRow as error:
                number = None if first_row is None else first_row + len(encoded)
                raise self._blame(error, number) from error
        return keys, encoded

    def _own(self, row: Mapping[str, object]) -> Mapping[str, object]:
        """A row under the columns' own names; the case of a name does not matter."""
        if all(name in self.names for name in row):
            return row
        own = {self.schema.spelt(name): value for name, value in row.items()}
        if len(own) < len(row):
            raise InvalidRow(f"{self.name}: a row has a column twice: {', '.join(map(str, row))}")
        check_columns(self.schema, tuple(row), self.name)
        return own

    def _blame(self, error: InvalidRow, row: int | None) -> InvalidRow:
        where = self.name if row is None else f"{self.name}, row {row}"
        text = str(error)
        for position, name in enumerate(self.key):
            text = text.replace(f"key column {position + 1}:", f"key column {name}:")
        return InvalidRow(f"{where}: {text}")

    def _null(self, index: int) -> str:
        name = self.names[index]
        return f"{'key ' if name in self.key else ''}column {name} must not be NULL"


def duplicate_among(
    writes: Sequence[TableWrite], error: DuplicateKey, tables: Tables, sources: Iterable[Source]
) -> DuplicateKey:
    """The store's error in the words of the table: which key it was."""
    known = {source.number: source for source in sources}
    for write in writes:
        if write.expect != ABSENT or write.table not in known:
            continue
        base = BaseTable(known[write.table])
        seen: set[bytes] = set()
        for key, row in zip(write.keys, tables.get(write.table, write.keys), strict=True):
            if row is not None or key in seen:
                return base.duplicate(key)
            seen.add(key)
    return error


def key_tuple(key: object, names: Sequence[str], what: str) -> tuple[object, ...]:
    """A key or prefix given as a scalar, a tuple or a dict, as values in key order."""
    if isinstance(key, tuple):
        return key
    if isinstance(key, list):
        return tuple(key)
    if isinstance(key, Mapping):
        key = named_key(key, names, what)
        given = [name for name in names if name in key]
        if given != list(names[: len(given)]):
            raise InvalidRow(f"the key of {what} starts with {names[0]}, which is not given")
        return tuple(key[name] for name in given)
    return (key,)


def named_key(key: Mapping[Any, object], names: Sequence[str], what: str) -> Mapping[Any, object]:
    """A key given by column, under the columns' own names; the case of a name does not matter."""
    if all(name in names for name in key):
        return key
    own = {str(name).lower(): value for name, value in key.items()}
    if unknown := [name for name in key if str(name).lower() not in names]:
        raise InvalidRow(f"{unknown[0]} is not in the key of {what} ({', '.join(names)})")
    if len(own) < len(key):
        raise InvalidRow(f"a column of the key of {what} is given twice")
    return own


def key_columns(
    keys: Sequence[object], width: int, values_of: Callable[[object], tuple[object, ...]]
) -> list[Sequence[object]]:
    """The values of each key column of many keys; none if there are no keys or no columns.

    `values_of` gives the values of a key that is no plain scalar or tuple of the right length.
    """
    kinds = set(map(type, keys))
    if width == 1 and kinds <= _SCALARS:
        return [keys] if keys else []
    if kinds == {tuple} and set(map(len, cast(Any, keys))) == {width}:
        return list(zip(*cast(Any, keys), strict=True))
    return list(zip(*map(values_of, keys), strict=True))


def _dicts(rows: object, table: str) -> Iterable[Mapping[str, object]]:
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise InvalidRow(f"{table}: rows are dicts or a frame, not {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise InvalidRow(f"{table}, row {number}: a row is a dict, not {type(row).__name__}")
        yield row

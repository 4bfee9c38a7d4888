"""How rows of a table of HBase are rows of SQL: the options of `CREATE TABLE ... USING hbase`.

Law: what can be read is a function of a row's key and cells alone. A row key that is none of ours
has no row, and a cell that is no value of its column reads as NULL; both are counted, and nothing
stops for them.

    table    the table of HBase                                     default: the table's own name
    key      the row key: column names in braces, with what stands between them
             '{region:text(2)}{user}|{day:text}'                    default: all, as bytes
    family   the family of columns that `columns` does not name     default: f
    columns  'votes=d:n:text, note=d:note': family:qualifier:encoding of some columns

Two row keys are never one row: one whose values would be written otherwise (012 for 12) is none of
ours. A row is there while a mapped column has a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from viewkeep.cells import CellOperation, delete_cells, delete_row, delete_versions, put
from viewkeep.codec.cells import encoder
from viewkeep.codec.keys import MAX_KEY, KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.codec.scalars import to_physical
from viewkeep.errors import InvalidRow, Unsupported
from viewkeep.stores.contract import NamedTable, Unreadable
from viewkeep.stores.hbase.encodings import BadBytes, Encoding, encoding
from viewkeep.stores.hbase.log_table import (
    DELETE_CELLS,
    DELETE_FAMILY,
    DELETE_FAMILY_VERSION,
    DELETE_VERSION,
    PUT,
    WalCell,
)
from viewkeep.stores.hbase.wire import Cell

OPTIONS: Final = frozenset({"table", "key", "family", "columns"})

_PART = re.compile(r"\{([^{}:]+)(?::([a-z]+))?(?:\((\d+)\))?\}")
_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")


class KeyPiece(NamedTuple):
    """A piece of the row key: a key column by its place among them, or bytes that always stand."""

    place: int
    encoding: Encoding | None
    literal: bytes


class TableMapping:
    """One table of SQL over one of HBase."""

    def __init__(self, shape: NamedTable):
        self.name, self.number, self.schema = shape.name, shape.number, shape.schema
        self.unreadable = Unreadable()  # as this process has met it
        options = dict(shape.options)
        if unknown := options.keys() - OPTIONS:
            raise Unsupported(
                f"USING hbase has no option {sorted(unknown)[0]!r}",
                hint=f"The options are {', '.join(sorted(OPTIONS))}",
            )
        schema = self.schema
        self.table = options.get("table", shape.name)
        if not _NAME.fullmatch(self.table):
            raise Unsupported(f"{self.table!r} is no name of a table in HBase")
        self.row_codec = RowCodec(schema.columns)
        self.key_codec = KeyCodec(schema.types(schema.key))
        self.parts = _parts(shape, options.get("key", "".join(f"{{{k}}}" for k in schema.key)))
        self.columns = _columns(shape, options)
        if not self.columns:
            raise Unsupported(
                f"table {shape.name} needs a column besides its key",
                hint="A row of HBase is there while it has a cell",
            )
        self.families = sorted({family for family, _ in self.columns})
        self._key_places = [schema.index(name) for name in schema.key]

    # Row keys.

    def row_key(self, values: Sequence[Any]) -> bytes:
        """The row key of the values of the key columns."""
        try:
            return b"".join(
                part.literal if part.encoding is None else self._encoded(part, values[part.place])
                for part in self.parts
            )
        except BadBytes as error:
            raise InvalidRow(str(error)) from error

    def _encoded(self, part: KeyPiece, value: Any) -> bytes:
        assert part.encoding is not None
        data = part.encoding.encode(value)
        if part.literal and part.literal in data:
            raise BadBytes(f"{value!r} has the {part.literal!r} that ends it in the row key")
        return data

    def key_values(self, row_key: bytes) -> tuple[Any, ...]:
        """The values of the key columns; BadBytes if the row key is none of ours."""
        values, at = [None] * len(self._key_places), 0
        for part in self.parts:
            if part.encoding is None:
                if not row_key.startswith(part.literal, at):
                    raise BadBytes(f"row key {row_key[:60]!r} lacks {part.literal!r}")
                at += len(part.literal)
                continue
            if part.encoding.width is not None:
                end = at + part.encoding.width
            elif part.literal:
                end = row_key.find(part.literal, at)
            else:
                end = len(row_key)
            if not at <= end <= len(row_key):
                raise BadBytes(f"row key {row_key[:60]!r} ends too early")
            values[part.place] = part.encoding.decode(row_key[at:end])
            at = end
        if at != len(row_key):
            raise BadBytes(f"row key {row_key[:60]!r} goes on after its end")
        return tuple(values)

    def key_of(self, row_key: bytes) -> tuple[bytes, bytes | None] | None:
        """The key of a row key, and the whole one where it was cut; None if it is none of ours."""
        try:
            values = self.key_values(row_key)
            # Such as 012: it would be the row of 12, which has a row key of its own.
            if not self._is_exact and self.row_key(values) != row_key:
                raise BadBytes(f"row key {row_key[:60]!r} is not how these values are written")
        except (BadBytes, InvalidRow) as error:
            met = self.unreadable
            self.unreadable = replace(met, rows=met.rows + 1, last=str(error))
            return None
        key = self.key_codec.encode_one(values)
        if len(key) < MAX_KEY:
            return key, None
        physical = [convert(value) for convert, value in zip(self._physical, values, strict=True)]
        return key, self.key_codec.packer.call(*physical)

    @cached_property
    def _is_exact(self) -> bool:
        """Whether row keys that can be read are as they would be written: 0.8 us less for each."""
        return all(part.encoding is None or part.encoding.is_exact for part in self.parts)

    @cached_property
    def _physical(self) -> list[Any]:
        return [to_physical(type) for type in self.schema.types(self.schema.key)]

    # Rows.

    def row_of(self, row_key: bytes, cells: Sequence[Cell]) -> tuple[bytes, bytes] | None:
        """The key and the row of a row of HBase; None if it is not there, or none of ours."""
        values: list[Any] = [None] * len(self.schema.columns)
        is_there = False
        for cell in cells:
            place = self.columns.get((cell.family, cell.qualifier))
            if place is not None:
                values[place[0]] = self._read(place, cell.value)
                is_there |= values[place[0]] is not None
        found = self.key_of(row_key) if is_there else None
        if found is None:
            return None
        for at, value in zip(self._key_places, self.key_values(row_key), strict=True):
            values[at] = value
        return found[0], self.row_codec.encode_one(values)

    def cells_of(self, row: bytes) -> tuple[bytes, dict[tuple[bytes, bytes], bytes | None]]:
        """The row key of a row, and its cells; None for a column that is NULL."""
        values = self.row_codec.decode_one(row)
        cells = {
            column: None if values[place] is None else form.encode(values[place])
            for column, (place, form) in self.columns.items()
        }
        return self.row_key([values[at] for at in self._key_places]), cells

    # Operations.

    def operations(
        self, row_key: bytes, cells: Iterable[WalCell], sequence: int
    ) -> Iterator[CellOperation]:
        """What cells of one row, in the order in which HBase took them, say to SQL."""
        found = None
        puts: dict[int, dict[int, bytes | None]] = {}
        for type, at, family, qualifier, value in cells:
            place = self.columns.get((family, qualifier))
            touches = place is not None if type in (PUT, DELETE_VERSION, DELETE_CELLS) else True
            if not touches or (place is None and family not in self._of_family):
                continue
            if found is None and (found := self.key_of(row_key)) is None:
                return
            key = found[0]
            if type == PUT and place is not None:
                puts.setdefault(at, {})[place[0]] = self._canonical(place, value)
            elif type == DELETE_VERSION and place is not None:
                yield delete_versions(self.number, key, at, [place[0]])
            elif type == DELETE_CELLS and place is not None:
                yield delete_cells(self.number, key, at, [place[0]])
            elif type == DELETE_FAMILY and len(self._of_family) == 1:
                yield delete_row(self.number, key, at)
            elif type == DELETE_FAMILY:
                yield delete_cells(self.number, key, at, self._of_family[family])
            elif type == DELETE_FAMILY_VERSION:
                yield delete_versions(self.number, key, at, self._of_family[family])
        for at, row in puts.items():
            assert found is not None
            yield put(self.number, found[0], at, row.items(), sequence=sequence, whole_key=found[1])

    @cached_property
    def _of_family(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for (family, _), (place, _) in self.columns.items():
            found.setdefault(family, []).append(place)
        return found

    @cached_property
    def _encoders(self) -> list[Any]:
        return [None if c.type.is_array else encoder(c.type) for c in self.schema.columns]

    def _canonical(self, place: tuple[int, Encoding], data: bytes) -> bytes | None:
        """A value as DELTA keeps it."""
        value, form = self._read(place, data), place[1]
        if value is None:
            return None
        is_kept = form.is_exact and form.name == "bytes"
        return data if is_kept else self._encoders[place[0]](value)

    def _read(self, place: tuple[int, Encoding], data: bytes) -> Any:
        try:
            return place[1].decode(data)
        except BadBytes as error:
            met, reason = self.unreadable, f"{self.schema.columns[place[0]].name}: {error}"
            self.unreadable = replace(met, cells=met.cells + 1, last=reason)
            return None


def _parts(shape: NamedTable, text: str) -> list[KeyPiece]:
    """The row key as its option says."""
    schema, parts, at = shape.schema, list[KeyPiece](), 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            end = text.find("{", at + 1)
            end = len(text) if end < 0 else end
            if "{" in text[at:end] or "}" in text[at:end]:
                raise _wrong_key(shape, text)
            parts.append(KeyPiece(-1, None, text[at:end].encode()))
            at = end
            continue
        name, form, width = match[1].strip().lower(), match[2] or "", match[3]
        if name not in schema.key:
            raise _wrong_key(shape, text)
        made = encoding(schema[name].type, form, int(width) if width else None)
        parts.append(KeyPiece(schema.key.index(name), made, b""))
        at = match.end()
    if sorted(part.place for part in parts if part.encoding) != list(range(len(schema.key))):
        raise _wrong_key(shape, text)
    for number, (part, after) in enumerate(zip(parts, [*parts[1:], None], strict=True)):
        if part.encoding is None or part.encoding.width is not None or after is None:
            continue
        if after.encoding is not None:
            raise Unsupported(
                f"in the row key {text!r}, {schema.key[part.place]} has no end",
                hint="Give it a width, as {name:text(8)}, or write what stands after it",
            )
        parts[number] = part._replace(literal=after.literal)
    return parts


def _wrong_key(shape: NamedTable, text: str) -> Unsupported:
    example = "|".join(f"{{{name}}}" for name in shape.schema.key)
    return Unsupported(
        f"the row key {text!r} has not each key column once", hint=f"Such as '{example}'"
    )


def _columns(
    shape: NamedTable, options: Mapping[str, str]
) -> dict[tuple[bytes, bytes], tuple[int, Encoding]]:
    """Where in the row each column is that is no key column, by family and qualifier."""
    schema, given = shape.schema, dict[str, list[str]]()
    for item in filter(None, (one.strip() for one in options.get("columns", "").split(","))):
        name, equals, where = item.partition("=")
        pieces = where.strip().split(":")
        name = name.strip().lower()
        if not equals or len(pieces) not in (2, 3) or name not in schema or name in schema.key:
            raise Unsupported(
                f"{item!r} says nothing of a column of {shape.name}",
                hint="Write column=family:qualifier, or column=family:qualifier:text",
            )
        given[name] = pieces
    found: dict[tuple[bytes, bytes], tuple[int, Encoding]] = {}
    for place, column in enumerate(schema.columns):
        if column.name in schema.key:
            continue
        default = [options.get("family", "f"), column.name]
        family, qualifier, *form = given.get(column.name, default)
        where_ = (family.encode(), qualifier.encode())
        if where_ in found:
            raise Unsupported(f"two columns of {shape.name} are {family}:{qualifier}")
        found[where_] = place, encoding(column.type, form[0] if form else "")
    return found

"""Order-preserving key bytes: comparing two keys as bytes compares their column values in order.

Law: for values a, b of the same types, `encode_one(a) < encode_one(b)` exactly when a < b, NULLs
first, each column in its own direction; and a prefix of the columns encodes to a byte prefix.

    column  = marker payload                      a descending column inverts all its bytes
    marker  = 00 NULL | 01 value
    payload = BOOLEAN             1 byte
              INT, DATE           4 bytes big-endian, sign bit flipped
              BIGINT, TIMESTAMP   8 bytes likewise
              DOUBLE              8 bytes: sign bit flipped, or all bits if negative; NaN greatest
              DECIMAL            16 bytes: unscaled i128, big-endian, sign bit flipped
              STRING, BINARY      bytes with 00 written as 00 FF, then 00 00

A NULL of a fixed-width type has a payload of zeros, so such keys have one width; a NULL STRING or
BINARY is its marker alone. The end 00 00 (and not 00) keeps the order where a descending column or
the end of the key follows.

Stores bound the length of keys. A key of MAX_KEY bytes or more is cut and ends in a digest of the
whole: equality is kept; the order among keys that agree on their first KEPT bytes is that of the
digests. Such keys cannot be decoded, and need not be: rows hold all columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from viewkeep.codec.packed import (
    Packed,
    listed,
    longest,
    scatter_ranges,
    slice_out,
    starts_of,
    windows,
)
from viewkeep.codec.physical import (
    FEW,
    WIDTHS,
    binary_series,
    check_dtype,
    decimal_halves,
    fixed_values,
    null_mask,
    variable_values,
)
from viewkeep.codec.rowsource import (
    DIGEST,
    INVERT,
    SIGN,
    Generated,
    key_of_row,
    key_packer,
)
from viewkeep.codec.rowsource import MAX_KEY as MAX_KEY
from viewkeep.codec.rowsource import bounded as bounded
from viewkeep.codec.scalars import to_physical, to_python
from viewkeep.deferred import np, pl
from viewkeep.errors import Corrupt, InvalidRow, Unsupported
from viewkeep.types import DataType

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEPT = MAX_KEY - DIGEST
GROUP_BYTES = 224  # of a group within a key: leaves room for what tells its rows apart

_ALL = (1 << 64) - 1


class KeyCodec:
    """Keys of these column types, each ascending unless `descending` says otherwise."""

    def __init__(self, types: tuple[DataType, ...], descending: tuple[bool, ...] | None = None):
        self.types = tuple(types)
        self.descending = tuple(descending) if descending else (False,) * len(self.types)
        if len(self.descending) != len(self.types):
            raise ValueError("one direction per key column is needed")
        if any(type.is_array for type in self.types):
            raise Unsupported(
                "nothing is ordered, grouped or matched by an ARRAY",
                hint="Use its elements, or STRING_AGG",
            )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, KeyCodec)
            and self.types == other.types
            and self.descending == other.descending
        )

    def __hash__(self) -> int:
        return hash((self.types, self.descending))

    def __reduce__(self) -> tuple[object, ...]:
        return (KeyCodec, (self.types, self.descending))

    def encode(self, columns: Sequence[pl.Series]) -> list[bytes]:
        """The keys of the rows whose key columns these are, in key order."""
        return listed(self.pack(columns))

    def encode_series(self, columns: Sequence[pl.Series], name: str) -> pl.Series:
        """The keys of rows as a BINARY column."""
        return key_series(self.pack(columns), name)

    def pack(self, columns: Sequence[pl.Series]) -> list[bytes] | Packed:
        """The keys of rows: a list if they are few, without a Python object for each if many."""
        if len(columns) != len(self.types):
            raise InvalidRow(f"a key has {len(self.types)} columns, not {len(columns)}")
        if not columns:
            raise InvalidRow("a key without columns has no row count; use encode_one")
        count = len(columns[0])
        if count <= FEW:
            return self._encode_few(columns, count)
        parts = self._parts(columns, count)
        if len(parts) == 1 and parts[0].spans is None:
            return _bounded_packed(Packed.from_matrix(parts[0].data))
        spans = sum((part.widths(count) for part in parts), np.zeros(count, np.int64))
        at = starts = starts_of(spans)
        if len(parts) == 1:
            return _bounded_packed(Packed(parts[0].data, starts, spans))
        target = np.empty(int(spans.sum()), np.uint8)
        for part in parts:
            if part.spans is None:
                windows(target, part.width)[at] = part.rows(count)
            else:
                scatter_ranges(target, at, part.spans, part.data)
            at = at + part.widths(count)
        return _bounded_packed(Packed(target, starts, spans))

    def _encode_few(self, columns: Sequence[pl.Series], count: int) -> list[bytes]:
        lists = []
        for series, type in zip(columns, self.types, strict=True):
            if len(series) != count:
                raise InvalidRow("the key columns differ in length")
            lists.append(check_dtype(series, type, series.name or "of the key").to_list())
        return [self.encode_one(values) for values in zip(*lists, strict=True)]

    def encode_one(self, values: Sequence[object]) -> bytes:
        """The key of these values, or for fewer values than columns the prefix of such keys.

        A prefix longer than KEPT bytes is cut there, so a scan of it may meet other rows too.
        """
        key = b"".join(
            [encode(value) for encode, value in zip(self._encoders, values, strict=False)]
        )
        if len(values) == len(self.types):
            return bounded(key) if len(key) >= MAX_KEY else key
        if len(values) > len(self.types):
            raise InvalidRow(f"a key has {len(self.types)} columns, not {len(values)}")
        return key[:KEPT]

    def encode_many(self, columns: Sequence[Sequence[object]]) -> list[bytes]:
        """`encode_one` of many keys, given as the values of each of their columns.

        For fewer columns than the key has, the prefixes of such keys.
        """
        if len(columns) > len(self.types):
            raise InvalidRow(f"a key has {len(self.types)} columns, not {len(columns)}")
        pairs = zip(self._bulk, columns, strict=False)
        parts = [encode(values) for encode, values in pairs]
        keys = parts[0] if len(parts) == 1 else list(map(b"".join, zip(*parts, strict=True)))
        if len(columns) == len(self.types):
            return bounded_all(keys)
        return [key[:KEPT] for key in keys]

    def column_encoder(self, place: int) -> Callable[[object], bytes]:
        """Encodes values of one column as they stand within a key, whole however long."""
        return self._encoders[place]

    def decode_one(self, key: bytes) -> tuple[object, ...]:
        """The values of a key, or of a prefix of whole columns."""
        if len(key) >= MAX_KEY:
            raise Corrupt("a key that was cut cannot be decoded; its row holds the columns")
        return self.decode_whole(key)

    def decode_whole(self, key: bytes) -> tuple[object, ...]:
        """The same of a key that no store has cut, however long."""
        values = self.physical(key)
        try:
            return tuple(
                value if python is None or value is None else python(value)
                for python, value in zip(self._python, values, strict=False)
            )
        except (ValueError, OverflowError) as error:
            raise Corrupt(f"key bytes {key[:40]!r} do not fit the key's types") from error

    def physical(self, key: bytes) -> tuple[Any, ...]:
        """The physical values (`codec.scalars`) of such a key."""
        values: list[Any] = []
        at = 0
        try:
            for type, descending in zip(self.types, self.descending, strict=True):
                if at == len(key):
                    break
                value, at = _decode(key, at, type, descending)
                values.append(value)
        except (IndexError, ValueError, OverflowError) as error:
            raise Corrupt(f"key bytes {key[:40]!r} do not fit the key's types") from error
        if at != len(key):
            raise Corrupt(f"key bytes {key[:40]!r} are longer than the key's types")
        return tuple(values)

    @cached_property
    def _python(self) -> list[Callable[[Any], Any] | None]:
        return [to_python(type) for type in self.types]

    @property
    def packer(self) -> Generated:
        """Gives the key of physical values, whole however long."""
        return key_packer(self.types, self.descending)

    def of_row(self, places: Sequence[int]) -> Callable[[Sequence[Any]], bytes]:
        """Gives the key of the physical values at these places of a row."""
        return key_of_row(self.types, self.descending, tuple(places)).call

    @cached_property
    def _encoders(self) -> list[Callable[[object], bytes]]:
        return [
            _encoder(type, descending, f"key column {index + 1}")
            for index, (type, descending) in enumerate(
                zip(self.types, self.descending, strict=True)
            )
        ]

    @cached_property
    def _bulk(self) -> list[Callable[[Sequence[object]], list[bytes]]]:
        return [
            _bulk_encoder(type, encode, descending)
            for type, encode, descending in zip(
                self.types, self._encoders, self.descending, strict=True
            )
        ]

    def _parts(self, columns: Sequence[pl.Series], count: int) -> list[_Part]:
        """The key bytes in runs: neighbouring fixed-width columns share one matrix."""
        parts: list[_Part] = []
        run: list[NDArray[np.uint8]] = []
        for series, type, descending in zip(columns, self.types, self.descending, strict=True):
            series = check_dtype(series, type, series.name or "of the key")
            if len(series) != count:
                raise InvalidRow("the key columns differ in length")
            if not type.is_variable:
                matrix = _fixed_matrix(series, type)
                run.append(~matrix if descending else matrix)
                continue
            if run:
                parts.append(_Part(np.hstack(run), None))
                run = []
            data, spans = _variable_bytes(series)
            parts.append(_Part(~data if descending else data, spans))
        if run:
            parts.append(_Part(run[0] if len(run) == 1 else np.hstack(run), None))
        return parts


class _Part:
    """Some bytes of every key: a matrix of one width, or bytes back to back with their spans."""

    def __init__(self, data: NDArray[np.uint8], spans: NDArray[np.int64] | None):
        self.data, self.spans = data, spans

    @property
    def width(self) -> int:
        return int(self.data.shape[1])

    def widths(self, count: int) -> NDArray[np.int64]:
        return np.full(count, self.width, np.int64) if self.spans is None else self.spans

    def rows(self, count: int) -> NDArray[np.void]:
        return np.ascontiguousarray(self.data).view(np.dtype((np.void, self.width))).reshape(count)


def bounded_all(keys: list[bytes]) -> list[bytes]:
    """`bounded` of each key."""
    return keys if longest(keys) < MAX_KEY else [bounded(key) for key in keys]


def _bounded_packed(keys: Packed) -> Packed:
    if longest(keys) < MAX_KEY:
        return keys
    return Packed.from_list([bounded(key) for key in keys.all_bytes()])


def key_series(keys: list[bytes] | Packed, name: str) -> pl.Series:
    """Keys as a BINARY column."""
    if isinstance(keys, Packed):
        return binary_series(name, keys)
    return pl.Series(name, keys, pl.Binary)


def group_prefix(group: bytes) -> bytes:
    """What the keys of a group's rows start with, and those of no other group.

    The bytes of a whole group are no beginning of another group's. Whatever is cut is longer than
    anything that is not, so that stays true of the prefixes.
    """
    if len(group) < GROUP_BYTES:
        return group
    return group[:GROUP_BYTES] + blake2b(group, digest_size=DIGEST).digest()


def prefix_end(prefix: bytes) -> bytes | None:
    """The smallest bytes after all keys with this prefix; None if there is no end."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes([stripped[-1] + 1])


def _fixed_matrix(series: pl.Series, type: DataType) -> NDArray[np.uint8]:
    """Marker and payload of a fixed-width column as an (n, 1 + width) matrix."""
    count, width = len(series), WIDTHS[type.name]
    matrix = np.empty((count, 1 + width), np.uint8)
    matrix[:, 0] = 1
    if type.is_decimal:
        low, high = decimal_halves(series)
        sortable = high.view(np.uint64) ^ np.uint64(SIGN[8])
        matrix[:, 1:9] = sortable.astype(">u8").view(np.uint8).reshape(count, 8)
        matrix[:, 9:17] = low.astype(">u8").view(np.uint8).reshape(count, 8)
    else:
        values = np.ascontiguousarray(fixed_values(series, type))
        bits = values.view(f"u{width}")
        if type.name == "DOUBLE":
            bits = bits ^ np.where(bits >> np.uint64(63), np.uint64(_ALL), np.uint64(SIGN[8]))
        elif width > 1:
            bits = bits ^ bits.dtype.type(SIGN[width])
        matrix[:, 1:] = bits.astype(f">u{width}").view(np.uint8).reshape(count, width)
    nulls = null_mask(series)
    if nulls is not None:
        matrix[nulls] = 0
    return matrix


def _variable_bytes(series: pl.Series) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Marker, escaped bytes and end of a STRING or BINARY column, back to back."""
    data, lengths = variable_values(series)
    if data.size and not data.all():
        # Values with a NUL byte are rare, so they may cost a Python call each.
        escaped = [item.replace(b"\0", b"\0\xff") for item in slice_out(data.tobytes(), lengths)]
        data = np.frombuffer(b"".join(escaped), np.uint8)
        lengths = np.fromiter(map(len, escaped), np.int64, len(escaped))
    spans = lengths + 3
    nulls = null_mask(series)
    if nulls is not None:
        spans[nulls] = 1
    starts = starts_of(spans)
    target = np.zeros(int(spans.sum()), np.uint8)
    target[starts if nulls is None else starts[~nulls]] = 1
    scatter_ranges(target, starts + 1, lengths, data)
    return target, spans


def _encoder(type: DataType, descending: bool, name: str) -> Callable[[object], bytes]:
    """The scalar twin of `_fixed_matrix` and `_variable_bytes`."""
    physical = to_physical(type)
    key = key_packer((type,), (descending,)).call
    null: bytes = key(None)

    def encode(value: object) -> bytes:
        if value is None:
            return null
        try:
            made: bytes = key(physical(value))
        except ValueError as error:
            raise InvalidRow(f"{name}: {error}") from error
        return made

    return encode


def _bulk_encoder(
    type_: DataType, encode: Callable[[object], bytes], descending: bool
) -> Callable[[Sequence[object]], list[bytes]]:
    """Encodes many values of a column: integers without a call of Python's for each."""
    if descending or type_.name not in ("INT", "BIGINT"):
        return lambda values: [encode(value) for value in values]
    width = WIDTHS[type_.name]
    pack, sign = struct.Struct(">BI" if width == 4 else ">BQ").pack, SIGN[width]

    def encode_many(values: Sequence[Any]) -> list[bytes]:
        if set(map(type, values)) == {int}:
            try:
                return [pack(1, value + sign) for value in values]
            except struct.error:
                pass  # one does not fit: the encoder of one says which
        return [encode(value) for value in values]

    return encode_many


def _unflip_double(data: bytes) -> bytes:
    if data[0] & 0x80:
        return bytes([data[0] & 0x7F]) + data[1:]
    return data.translate(INVERT)


def _decode(key: bytes, at: int, type: DataType, descending: bool) -> tuple[Any, int]:
    """One column's physical value at this place of a key, and where the next column starts."""
    if descending:
        value, used = _decode(key[at:].translate(INVERT), 0, type, False)
        return value, at + used
    marker = key[at]
    if marker > 1:
        raise ValueError(f"no such marker: {marker}")
    if type.is_variable:
        if not marker:
            return None, at + 1
        end = at + 1
        while True:
            end = key.index(b"\0", end)
            if key[end + 1] == 0:
                break
            end += 2
        return key[at + 1 : end].replace(b"\0\xff", b"\0"), end + 2
    end = at + 1 + WIDTHS[type.name]
    data = key[at + 1 : end]
    if len(key) < end:
        raise ValueError("the key ends early")
    if not marker:
        return None, end
    if type.name == "BOOLEAN":
        return data[0], end
    if type.name == "DOUBLE":
        return struct.unpack(">d", _unflip_double(data))[0], end
    return int.from_bytes(data, "big") - SIGN[len(data)], end

"""The binary form of a row's state.

Law: `unpack(pack(state)) == state`, and equal states have equal bytes.

    ┌───────┬──────┬─────────┬──────────┬───────────┬─────────┬────────┬───┐
    │ flags │ base │ deleted │ inserted │ whole key │ columns │ column │ … │
    │  u8   │  v   │    v    │    v     │  v bytes  │    v    │        │   │
    └───────┴──────┴─────────┴──────────┴───────────┴─────────┴────────┴───┘
    flags   1 deleted · 2 inserted · 4 whole key: only what is flagged follows
    v       unsigned, seven bits a byte, low ones first, the top bit set if more follow
    base    the latest timestamp in the row, zigzag; the others are written as what they lie below
            it: one byte each where one operation wrote the row

    column  ┌───────┬─────────┬───────────────────┬──────────────────────────────────────────┐
            │ head  │ through │ gone              │ versions                                 │
            │  v    │    v    │ v, v each         │ v unless one: timestamp, sequence, value │
            └───────┴─────────┴───────────────────┴──────────────────────────────────────────┘
    head    (columns since the one before) << 4 | 8 sequences | 4 not one version | 2 gone
            | 1 through
"""

from __future__ import annotations

from viewkeep.errors import Corrupt
from viewkeep.ops.cells.column import ColumnState, Version
from viewkeep.ops.cells.row import RowState

_DELETED, _INSERTED, _WHOLE_KEY = 1, 2, 4
_THROUGH, _GONE, _NOT_ONE, _SEQUENCES = 1, 2, 4, 8
_SEVERAL = _THROUGH | _GONE | _NOT_ONE


def pack(state: RowState) -> bytes:
    """The bytes of a state."""
    columns, deleted, inserted, whole_key = state
    base = _latest(state)
    flags = 0
    if deleted is not None:
        flags |= _DELETED
    if inserted is not None:
        flags |= _INSERTED
    if whole_key is not None:
        flags |= _WHOLE_KEY
    out = bytearray([flags])
    _write(out, base << 1 if base >= 0 else (-base << 1) - 1)
    if deleted is not None:
        _write(out, base - deleted)
    if inserted is not None:
        _write(out, base - inserted)
    if whole_key is not None:
        _write(out, len(whole_key))
        out += whole_key
    _write(out, len(columns))
    last = 0
    for number in sorted(columns):
        _write_column(out, number - last, columns[number], base)
        last = number
    return bytes(out)


def unpack(data: bytes) -> RowState:
    """The state with these bytes."""
    try:
        state, end = _read_row(data)
    except IndexError as error:
        raise Corrupt("the state of a base row ends too early") from error
    if end != len(data):
        raise Corrupt("the state of a base row does not end where its bytes do")
    return state


def _write_column(out: bytearray, step: int, column: ColumnState, base: int) -> None:
    versions, through, gone = column
    head = step << 4
    if through is not None:
        head |= _THROUGH
    if gone:
        head |= _GONE
    if len(versions) != 1:
        head |= _NOT_ONE
    sequences = False
    for version in versions:
        if version[1]:
            sequences = True
            head |= _SEQUENCES
            break
    _write(out, head)
    if through is not None:
        _write(out, base - through)
    if gone:
        _write(out, len(gone))
        for at in gone:
            _write(out, base - at)
    if len(versions) != 1:
        _write(out, len(versions))
    for timestamp, sequence, value in versions:
        _write(out, base - timestamp)
        if sequences:
            _write(out, sequence)
        _write(out, len(value))
        out += value


def _read_row(data: bytes) -> tuple[RowState, int]:
    flags = data[0]
    zigzag, at = _read(data, 1)
    base = -((zigzag + 1) >> 1) if zigzag & 1 else zigzag >> 1
    deleted = inserted = whole_key = None
    if flags & _DELETED:
        below, at = _read(data, at)
        deleted = base - below
    if flags & _INSERTED:
        below, at = _read(data, at)
        inserted = base - below
    if flags & _WHOLE_KEY:
        length, at = _read(data, at)
        whole_key, at = data[at : at + length], at + length
    count, at = _read(data, at)
    columns, number = dict[int, ColumnState](), 0
    for _ in range(count):
        head, at = (data[at], at + 1) if data[at] < 0x80 else _read(data, at)
        number += head >> 4
        if head & _SEVERAL:
            columns[number], at = _read_column(data, at, head, base)
            continue
        # One version and no deletion, as most cells have: 0.9 us instead of 1.8.
        below, at = (data[at], at + 1) if data[at] < 0x80 else _read(data, at)
        sequence = 0
        if head & _SEQUENCES:
            sequence, at = _read(data, at)
        length, at = (data[at], at + 1) if data[at] < 0x80 else _read(data, at)
        value = data[at : at + length]
        columns[number] = ColumnState((Version(base - below, sequence, value),))
        at += length
    return RowState(columns, deleted, inserted, whole_key), at


def _read_column(data: bytes, at: int, head: int, base: int) -> tuple[ColumnState, int]:
    through: int | None = None
    gone: tuple[int, ...] = ()
    versions, count = list[Version](), 1
    if head & _THROUGH:
        below, at = _read(data, at)
        through = base - below
    if head & _GONE:
        several, at = _read(data, at)
        times = list[int]()
        for _ in range(several):
            below, at = _read(data, at)
            times.append(base - below)
        gone = tuple(times)
    if head & _NOT_ONE:
        count, at = _read(data, at)
    for _ in range(count):
        below, at = _read(data, at)
        sequence = 0
        if head & _SEQUENCES:
            sequence, at = _read(data, at)
        length, at = _read(data, at)
        versions.append(Version(base - below, sequence, data[at : at + length]))
        at += length
    return ColumnState(tuple(versions), through, gone), at


def _latest(state: RowState) -> int:
    """The latest timestamp in a state, 0 if there is none."""
    columns, deleted, inserted, _ = state
    found = [at for at in (deleted, inserted) if at is not None]
    for versions, through, gone in columns.values():
        if versions:
            found.append(versions[0][0])
        if gone:
            found.append(gone[0])
        if through is not None:
            found.append(through)
    return max(found) if found else 0


def _write(out: bytearray, number: int) -> None:
    if number < 0x80:
        out.append(number)
        return
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _read(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7

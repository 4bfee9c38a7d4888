"""Records come back as they were made, are the same whoever makes them, and show damage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec.packed import Packed
from viewkeep.errors import Corrupt
from viewkeep.stores.changelog.records import Record, RecordKind, agree, check, decode, same
from viewkeep.stores.contract import StateWrite

ROWS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.binary(max_size=12)),
    st.one_of(st.none(), st.binary(max_size=40)),
    max_size=30,
)


def writes_of(rows: dict[tuple[int, bytes], bytes | None]) -> tuple[StateWrite, ...]:
    tables: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for (table, key), row in rows.items():
        tables.setdefault(table, []).append((key, row))
    return tuple(
        StateWrite(table, [key for key, _ in pairs], [row for _, row in pairs])
        for table, pairs in tables.items()
    )


def rows_of(record: Record) -> dict[tuple[int, bytes], bytes | None]:
    return {
        (write.table, key): row
        for write in record.writes
        for key, row in zip(write.key_list, write.rows, strict=True)
    }


def made(rows: dict[tuple[int, bytes], bytes | None]) -> Record:
    return Record(RecordKind.WRITES, 3, 1, 9, 7, 8, writes_of(rows))


@given(ROWS)
def test_round_trip(rows: dict[tuple[int, bytes], bytes | None]) -> None:
    record = decode(made(rows).encode(), "it")
    assert rows_of(record) == rows
    assert replace(record, writes=()) == Record(RecordKind.WRITES, 3, 1, 9, 7, 8)


@given(ROWS, st.randoms(use_true_random=False))
def test_any_order_makes_the_same_bytes(rows, source) -> None:  # type: ignore[no-untyped-def]
    pairs = list(rows.items())
    source.shuffle(pairs)
    assert made(dict(pairs)).encode() == made(rows).encode()
    packed = replace(
        made(rows),
        writes=tuple(
            StateWrite(write.table, Packed.from_list(write.keys), Packed.from_list(write.rows))
            for write in made(dict(sorted(rows.items()))).writes
        ),
    )
    assert packed.encode() == made(rows).encode()


def test_a_hint_does_not_make_another_record() -> None:
    plain = made({(1, b"a"): b"x"})
    hinted = replace(plain, writes=tuple(replace(w, are_new=True) for w in plain.writes))
    assert same(plain.encode(), hinted.encode())
    assert decode(hinted.encode(), "it").writes[0].are_new


@given(ROWS, ROWS)
def test_same_is_equality(one, other) -> None:  # type: ignore[no-untyped-def]
    assert same(made(one).encode(), made(other).encode()) == (one == other)


@given(ROWS, ROWS)
def test_agree_is_about_rows_that_both_write(one, other) -> None:  # type: ignore[no-untyped-def]
    common = one.keys() & other.keys()
    assert agree(made(one), made(other)) == all(one[key] == other[key] for key in common)


def test_other_kinds() -> None:
    revert = Record(RecordKind.REVERT, 1, 0xFFFFFFFF, 12, 10)
    assert decode(revert.encode(), "it") == revert
    assert not same(revert.encode(), replace(revert, before=9).encode())
    drop = Record(RecordKind.DROP, 1, 0x80000007, 12, 0, table=7)
    assert decode(drop.encode(), "it") == drop


def test_every_damaged_byte_shows() -> None:
    data = made({(1, b"key"): b"row" * 9, (2, b"gone"): None}).encode()
    check(data, "it")
    for place in range(len(data)):
        wrong = bytearray(data)
        wrong[place] ^= 0x40
        with pytest.raises(Corrupt, match="it is damaged"):
            check(bytes(wrong), "it")
    for size in range(len(data)):
        with pytest.raises(Corrupt, match="it is damaged"):
            check(data[:size], "it")

"""The bytes of one value in a cell."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.codec.strategies import canonical, types, values

from viewkeep.codec.cells import decoder, encoder
from viewkeep.types import BIGINT, DOUBLE, INT, STRING, DataType


@given(types.flatmap(lambda kind: st.tuples(st.just(kind), values(kind))))
def test_a_value_and_back(case: tuple[DataType, Any]) -> None:
    type, value = case
    assert canonical(decoder(type)(encoder(type)(value))) == canonical(value)


def test_bytes_are_those_of_other_stores() -> None:
    assert encoder(INT)(-2) == b"\xff\xff\xff\xfe"
    assert encoder(BIGINT)(258) == bytes([0, 0, 0, 0, 0, 0, 1, 2])
    assert encoder(DOUBLE)(1.0) == bytes([0x3F, 0xF0, 0, 0, 0, 0, 0, 0])
    assert encoder(STRING)("é") == "é".encode()

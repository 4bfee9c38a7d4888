"""The keys of state tables: a group that is cut, then what tells its rows apart."""

from __future__ import annotations

import polars as pl
import pytest

from viewkeep.codec.keys import GROUP_BYTES, bounded, group_prefix
from viewkeep.codec.physical import FEW
from viewkeep.plan.nodes import KeyPart
from viewkeep.plan.operators import StateTable
from viewkeep.types import BIGINT, STRING, Column

COLUMNS = (Column("number", BIGINT), Column("name", STRING), Column("rest", STRING))


def table(*key: str, group: int | None) -> StateTable:
    return StateTable(1, "rows", COLUMNS, tuple(KeyPart(name) for name in key), key[:1], group)


@pytest.mark.parametrize("count", [5, FEW + 5])
@pytest.mark.parametrize("key", [("number", "rest"), ("name", "rest"), ("name", "number")])
@pytest.mark.parametrize("long", [(), ("name",), ("rest",), ("name", "rest")])
def test_the_keys_of_groups(count: int, key: tuple[str, ...], long: tuple[str, ...]) -> None:
    texts = {
        name: [f"{i:03}" * (i % 3 * GROUP_BYTES if name in long else 1) for i in range(count)]
        for name in ("name", "rest")
    }
    rows = pl.DataFrame({"number": range(count), **texts})
    held = table(*key, group=1)
    expected = [
        bounded(group_prefix(group) + end)
        for group, end in zip(
            (held.group_codec.encode_one((value,)) for value in rows[key[0]]),
            (held.rest_codec.encode_one((value,)) for value in rows[key[1]]),
            strict=True,
        )
    ]
    assert held.keys(rows, "key").to_list() == expected
    for made, group in zip(expected, held.groups([rows[key[0]]], count, "group"), strict=True):
        assert made.startswith(held.prefix(group))


def test_the_keys_of_tables_without_groups() -> None:
    rows = pl.DataFrame({"number": range(3), "name": ["a"] * 3, "rest": ["b"] * 3})
    held = table("name", "number", group=None)
    expected = [held.key_codec.encode_one(("a", number)) for number in range(3)]
    assert held.keys(rows, "key").to_list() == expected
    assert table("name", group=0).keys(rows, "key").to_list() == [
        held.key_codec.encode_one(("a",)) for _ in range(3)
    ]

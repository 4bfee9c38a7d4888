"""Values in JSON: exact both ways, over the socket and one by one."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.errors import InvalidRow
from viewkeep.serve.http.values import dumps, key_of_texts, loads, row_of
from viewkeep.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Column,
    Schema,
    decimal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

TYPES = {
    "b": BOOLEAN,
    "i": INT,
    "n": BIGINT,
    "d": DOUBLE,
    "m": decimal(38, 10),
    "s": STRING,
    "x": BINARY,
    "day": DATE,
    "t": TIMESTAMP,
}
SCHEMA = Schema(tuple(Column(name, type) for name, type in TYPES.items()), ("n", "s", "m"))

VALUES = st.fixed_dictionaries(
    {
        "b": st.none() | st.booleans(),
        "i": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "n": st.integers(-(1 << 63), (1 << 63) - 1),
        "d": st.none() | st.floats(),
        "m": st.decimals(-(10**27), 10**27, places=10),
        "s": st.text(st.characters(exclude_categories=("Cs",))),
        "x": st.none() | st.binary(),
        "day": st.none() | st.dates(),
        "t": st.none() | st.datetimes(),
    }
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and bool(one == other)


@given(VALUES)
def test_what_is_sent_can_be_taken(row: dict[str, Any]) -> None:
    sent = dumps(row)
    json.loads(sent, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    found = row_of(loads(sent), SCHEMA, "t")
    assert all(same(row[name], found[name]) for name in row), (row, found)


@given(VALUES)
def test_keys_as_texts(row: dict[str, Any]) -> None:
    texts = [str(row["n"]), row["s"], format(row["m"], "f")]
    assert key_of_texts(texts, SCHEMA, "t") == (row["n"], row["s"], row["m"])


@pytest.mark.parametrize(
    ("column", "given", "expected"),
    [
        ("n", b"9007199254740993", 9007199254740993),
        ("n", b'"9007199254740993"', 9007199254740993),
        ("n", b"3.0", 3),
        ("d", b"1", 1),
        ("d", b"0.1", 0.1),
        ("d", b'"0.1"', 0.1),
        ("d", b'"-Infinity"', -math.inf),
        ("m", b"0.1000000001", Decimal("0.1000000001")),
        ("m", b'"12.50"', Decimal("12.50")),
        ("m", b"7", 7),
        ("x", b'"AP8="', b"\x00\xff"),
        ("t", b'"2024-02-29T12:00:00+02:00"', dt.datetime(2024, 2, 29, 10)),
        ("t", b'"2024-02-29 12:00:00.5"', dt.datetime(2024, 2, 29, 12, 0, 0, 500_000)),
        ("t", b'"2024-02-29"', dt.datetime(2024, 2, 29)),
    ],
)
def test_taken(column: str, given: bytes, expected: object) -> None:
    assert row_of({column: loads(given)}, SCHEMA, "t") == {column: expected}


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("n", '"1e3"'),
        ("n", '""'),
        ("n", '"٣"'),
        ("n", f'"{"9" * 100}"'),
        ("d", '"nan"'),
        ("d", '"x"'),
        ("d", "1e999"),
        ("m", '"Infinity"'),
        ("m", '"sNaN"'),
        ("m", '"x"'),
        ("x", '"*"'),
        ("x", "1"),
        ("day", '"2023-02-29"'),
        ("day", "20240229"),
        ("t", '"yesterday"'),
        ("t", '"0001-01-01T00:00:00+14:00"'),
        ("t", "[]"),
    ],
)
def test_refused(column: str, given: str) -> None:
    with pytest.raises(InvalidRow, match=f"t: column {column} "):
        row_of({column: loads(given.encode())}, SCHEMA, "t")


def test_numbers_that_would_not_end() -> None:
    for text in (b"1e999999999", b"[-1e-999999999]", b"0e999999999"):
        with pytest.raises(ValueError, match=r"the exponent of .* is out of range"):
            loads(text)
    for column in ("i", "m", "d"):
        value = Decimal("1e999999")
        try:
            found = row_of({column: value}, SCHEMA, "t")[column]
        except InvalidRow:
            continue
        assert found == value  # left for the column's own check, which compares magnitudes


def test_empty_texts_are_null_but_for_text() -> None:
    assert key_of_texts(["", "", ""], SCHEMA, "t") == (None, "", None)


def test_every_type_over_the_socket(
    db: Database, serve: Callable[..., Server], catch_up: Callable[[], Published]
) -> None:
    db.sql(
        "CREATE TABLE wide (id BIGINT PRIMARY KEY, b BOOLEAN, d DOUBLE, m DECIMAL(38,10), "
        "s STRING, x BINARY, day DATE, t TIMESTAMP);"
        "CREATE VIEW copied AS SELECT * FROM wide;"
        "CREATE VIEW listed AS SELECT b, ARRAY_AGG(m) AS all_m FROM wide GROUP BY b"
    )
    rows = [
        {
            "id": (1 << 63) - 1,
            "b": True,
            "d": "NaN",
            "m": "1234567890123456789012345678.0123456789",
            "s": 'Zoë "quoted"\n\u2028',
            "x": "AAEC",
            "day": "0001-01-01",
            "t": "9999-12-31T23:59:59.999999Z",
        },
        {"id": -1, "b": None, "d": -0.5, "m": None, "s": "", "x": "", "day": None, "t": None},
    ]
    with httpx.Client(base_url=serve(db).http_url) as client:
        assert client.put("/v1/wide/rows", json={"rows": rows}).json() == {"written": 2}
        catch_up()
        for name in ("wide", "copied"):
            assert client.get(f"/v1/{name}/rows").json()["rows"] == [rows[1], rows[0]]
            found = client.get(f"/v1/{name}/row", params={"key": (1 << 63) - 1})
            assert found.json() == {"row": rows[0]}
        found = client.post("/v1/sql", json={"sql": "SELECT * FROM copied WHERE id = -1"})
        assert found.json()["rows"] == [rows[1]]
        found = client.get("/v1/listed/rows").json()["rows"]
        assert {"b": True, "all_m": ["1234567890123456789012345678.0123456789"]} in found
        lost = {"id": 1, "m": "0.00000000001"}
        said = client.put("/v1/wide/rows", json={"rows": [lost]}).json()["error"]["message"]
        assert "decimal places" in said
        null = client.get("/v1/listed/row?key=").json()["row"]
        assert null is not None
        assert null["b"] is None

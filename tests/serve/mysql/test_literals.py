"""A text is its shape and its constants, whatever is in it."""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.serve.mysql.faults import Fault
from viewkeep.serve.mysql.literals import SplitStatement, mysql_text, split

CONSTANTS = (
    st.integers(0, 2**64)
    | st.decimals(0, 10**9, places=3)
    | st.floats(0, allow_infinity=False, allow_nan=False)
    | st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
    | st.binary(max_size=8)
)


@given(st.lists(CONSTANTS, min_size=1, max_size=5))
def test_constants_are_read_as_they_were_written(values: list[int]) -> None:
    text = "SELECT " + ", ".join(mysql_text(value) for value in values)
    (statement,) = split(text)
    assert list(statement.values) == values
    assert [type(value) for value in statement.values] == [type(value) for value in values]
    (again,) = split(statement.text)
    assert (again.shape, again.values) == (statement.shape, statement.values)


@given(st.text(alphabet="ab1 .,'\"`\\;?-/*#@x_\n(=e0", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        statements = split(text)
    except Fault:
        return
    for statement in statements:
        again = split(statement.text)
        assert [(s.shape, s.values) for s in again] == [(statement.shape, statement.values)]


@given(st.lists(CONSTANTS | st.none() | st.booleans() | st.integers(-9, -1), max_size=4))
def test_values_take_the_places_of_question_marks(values: list[int]) -> None:
    text = "SELECT 'own', `?`, '?' " + "".join(", ? , 7" for _ in values)
    (statement,) = split(text)
    assert statement.parameters == len(values)
    bound = statement.bound(values)
    found = iter(bound.values)
    assert (next(found), next(found)) == ("own", "?")
    for value in values:
        if value is not None and not isinstance(value, bool):
            inner = next(found)
            negative = not isinstance(value, str | bytes) and value < 0
            assert inner == (-value if negative else value)
        assert next(found) == 7
    assert not bound.parameters


@pytest.mark.parametrize(
    ("text", "shape", "values"),
    [
        ("SELECT a1 FROM t2", "SELECT a1 FROM t2", ()),
        ("x = 'a''b\\'c'", "x = \0s", ("a'b'c",)),
        ('x = "a""b"', "x = \0s", ('a"b',)),
        ("x IN (1, 2.5,3e1)", "x IN (\0n, \0d,\0f)", (1, Decimal("2.5"), 30.0)),
        ("x = 0xFF OR x = X'4142'", "x = \0b OR x = \0b", (b"\xff", b"AB")),
        ("_binary'\\0a' , _utf8mb4'é'", "\0b , \0s", (b"\0a", "é")),
        ("a /* 'c' 1 */ -- 2\n # 3\n 4", "a  \0n", (4,)),
        ("/*!40101 SET NAMES utf8 */", "SET NAMES utf8", ()),
        ("a-1--2", "a-\0n- -\0n", (1, 2)),
        ('a x"41"', "a x \0s", ("41",)),
        ('_binary"a""b"', "\0b", (b'a"b',)),
        ("5--/* no comment begins before this */1", "\0n- - \0n", (5, 1)),
        ("LIKE '50\\%'", "LIKE \0s", ("50\\%",)),
        ("t.`1'x` = @`v`", "t.`1'x` = @`v`", ()),
        ("n'x' + 1a", "\0s + 1a", ("x",)),
    ],
)
def test_shapes(text: str, shape: str, values: tuple[object, ...]) -> None:
    (statement,) = split(text)
    assert re.sub(r"\s+", " ", statement.shape) == re.sub(r"\s+", " ", shape)
    assert statement.values == values


def test_statements_are_told_apart() -> None:
    found = split("SELECT ';' ; ; UPDATE t SET a = 1 -- ; x\n; (SELECT 2)")
    assert [statement.words[0] for statement in found] == ["SELECT", "UPDATE", "SELECT"]
    assert split("  /* nothing */ ;") == []
    assert SplitStatement("a", ()).text == "a"


def test_a_long_text_takes_no_longer_than_its_length() -> None:
    """Comments and strings that never end are gone through once."""
    for text in ("/* " * 200_000, "'" + "''" * 200_000, "- " * 200_000, "a.b`" * 100_000 + "`"):
        with suppress(Fault):
            split(text)

"""A translation that was kept is the one that would be made anew."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.serve.mysql.dialect.rewrite import Surroundings
from viewkeep.serve.mysql.dialect.translate import Translation, Translator
from viewkeep.serve.mysql.faults import Fault
from viewkeep.serve.mysql.literals import SplitStatement, mysql_text, split
from viewkeep.types import BIGINT, BOOLEAN, STRING, TIMESTAMP, Column, Schema

SCHEMA = Schema(
    (
        Column("id", BIGINT, False),
        Column("a", BIGINT),
        Column("f", BOOLEAN),
        Column("s", STRING),
        Column("ts", TIMESTAMP),
    ),
    ("id",),
)
AROUND = Surroundings(lambda name: SCHEMA if name in ("t", "u") else None)
QUERIES = [
    "SELECT * FROM t WHERE id = {} AND a > {}",
    "SELECT {}, a + {}, s AS x FROM t WHERE s LIKE {} LIMIT 3",
    "SELECT f = {} FROM t WHERE f = {} OR {} = id",
    "SELECT a FROM t WHERE id IN ({}, {}) AND a BETWEEN {} AND 9",
    "SELECT DATE_FORMAT(ts, {}), CONCAT(s, {}) FROM t WHERE ts > {}",
    "SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > {} AND a <> {} ORDER BY {} LIMIT 4",
    "UPDATE t SET a = {}, s = {}, f = {} WHERE id = 3",
    "DELETE FROM t WHERE id = -{} AND s <=> {} AND a < {}",
    "SELECT t.id, t.s, u.a FROM t JOIN u ON t.id = u.id AND u.a = {} WHERE t.s <> {} AND {} < 5",
]
VALUES = (
    st.integers(0, 5)
    | st.sampled_from(["", "a%", "%Y", "%Y-%m", "x'y", "\\"])
    | st.just(Decimal("1.5"))
)


def filled(translation: Translation, statement: SplitStatement) -> str:
    values = iter(translation.values(statement))
    return "".join(
        spark_text(next(values)) if part == "?" else part
        for part in _parts(translation.text, len(translation.places))
    )


def spark_text(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return mysql_text(value)


def _parts(text: str, places: int) -> list[str]:
    pieces = text.split("?") if places else [text]
    made = [pieces[0]]
    for piece in pieces[1:]:
        made += ["?", piece]
    return made


@given(
    st.sampled_from(QUERIES), st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=2, max_size=4)
)
def test_kept_translations_are_those_made_anew(query: str, runs: list[tuple[Any, ...]]) -> None:
    kept = Translator()
    for values in runs:
        (statement,) = split(query.format(*map(mysql_text, values)))
        try:
            anew = Translator().make(statement, 1, AROUND)
        except Fault:
            with pytest.raises(Fault):
                kept.make(statement, 1, AROUND)
            continue
        found = kept.find(statement, 1) or kept.make(statement, 1, AROUND)
        again = kept.find(statement, 1)
        assert filled(found, statement) == filled(anew, statement)
        assert again is not None
        assert (again.text, again.places, again.names) == (anew.text, anew.places, anew.names)


def test_what_only_the_session_knows_is_not_kept() -> None:
    around = Surroundings(
        lambda name: SCHEMA, variable=lambda name: 7, functions={"now": lambda: "2024-01-01"}
    )
    translator = Translator()
    for text in ("SELECT @@x, a FROM t", "SELECT a FROM t WHERE ts > NOW()", "SELECT @y FROM t"):
        (statement,) = split(text)
        translator.make(statement, 1, around)
        assert translator.find(statement, 1) is None


def test_what_names_another_database_is_not_kept() -> None:
    translator = Translator()
    (statement,) = split("SELECT * FROM tables")
    inside = Surroundings(lambda name: None, database="information_schema")
    assert translator.make(statement, 1, inside).system is not None
    assert translator.find(statement, 1) is None
    assert translator.make(statement, 1, AROUND).system is None
    assert translator.find(statement, 2) is None, "another plan may have other tables"

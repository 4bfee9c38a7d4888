"""LIKE written for DuckDB: it means the same, and takes no time that grows with its signs."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import parse_one

from viewkeep.errors import Unsupported
from viewkeep.sql.duckdb_sql.likes import linear_likes

TEXTS = ["", "a", "ab", "a_b", "a%b", "A\nb", "😀", "a\\b", "x.y", "aab"]
CASES = {
    "s LIKE 'a%'": {"a", "ab", "a_b", "a%b", "a\\b", "aab"},
    "s NOT LIKE '%'": set(),
    "s LIKE '_'": {"a", "😀"},
    "s LIKE 'A_b'": {"A\nb"},
    "s LIKE 'a|_b' ESCAPE '|'": {"a_b"},
    "s LIKE 'x.y'": {"x.y"},
    "s LIKE 'x_y' AND NOT s LIKE ''": {"x.y"},
    "s ILIKE 'A%B'": {"ab", "a_b", "a%b", "A\nb", "a\\b", "aab"},
    "(s LIKE '%a_b')": {"a_b", "a%b", "a\\b", "aab"},
}


@pytest.mark.parametrize("condition", CASES)
def test_it_means_the_same(condition: str) -> None:
    values = ", ".join("('" + text + "')" for text in TEXTS)
    tree = linear_likes(
        parse_one(f"SELECT s FROM (VALUES {values}) t(s) WHERE {condition}", read="duckdb")
    )
    assert {row[0] for row in duckdb.execute(tree.sql("duckdb")).fetchall()} == CASES[condition]


def test_signs_cost_nothing() -> None:
    tree = linear_likes(parse_one(f"SELECT '{'a' * 10_000}' LIKE '{'%a_' * 40}b'", read="duckdb"))
    assert duckdb.execute(tree.sql("duckdb")).fetchone() == (False,)


def test_a_pattern_that_is_no_constant_is_refused() -> None:
    with pytest.raises(Unsupported, match="constant pattern"):
        linear_likes(parse_one("SELECT s LIKE u FROM t", read="duckdb"))

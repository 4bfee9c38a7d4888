"""What is not taken is refused, with its reason; docs/sql.md lists nothing that is not so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from viewkeep.errors import SqlError, SqlSyntaxError, TypeMismatch, UnknownName, Unsupported

from ..catalog import Names

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"


def listed() -> dict[str, str]:
    """The refused statements of the page, with the reasons that it gives."""
    table = PAGE.read_text().partition("## Refused")[2]
    return dict(re.findall(r"^\| `{1,2}(.+?)`{1,2} \| (.+?) \|$", table, re.M))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", listed())
def test_the_page_is_right(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        Names().statement(text)
    assert caught.value.reason.startswith(listed()[text])


def test_the_page_lists_them() -> None:
    assert len(listed()) > 50


MORE = {
    "CREATE TABLE u (a INT PRIMARY KEY) USING parquet": (
        Unsupported,
        "a table is created with USING",
    ),
    "CREATE TABLE u (a INT PRIMARY KEY) OPTIONS ('b' = 'c')": (
        Unsupported,
        "a table is created with USING",
    ),
    "CREATE TABLE u (a INT PRIMARY KEY) USING hbase OPTIONS ('b' = 1 + 1)": (
        Unsupported,
        "an option is a name and a text",
    ),
    "CREATE TABLE u (a INT PRIMARY KEY) USING hbase PARTITIONED BY (a)": (
        Unsupported,
        "this property is not supported",
    ),
    "CREATE VIEW u USING hbase AS SELECT a FROM t": (SqlError, ""),
    "SELECT u.* FROM t": (UnknownName, "there is no table u in this query"),
    "SELECT t.a FROM t AS q": (UnknownName, "there is no table t in this query"),
    "SELECT sa FROM t WHERE zz = 1": (UnknownName, "there is no column zz in t"),
    "SELECT count(*) FROM t GROUP BY zz.a": (UnknownName, "there is no table zz in this query"),
    "SELECT a FROM nowhere": (UnknownName, "there is no table or view nowhere"),
    "SELECT uper(s) FROM t": (UnknownName, "there is no function uper"),
    "SELECT add(a, 1) FROM t": (UnknownName, "there is no function add"),
    "SELECT a FROM t WHERE a": (TypeMismatch, "a condition must be BOOLEAN, not INT"),
    "SELECT CASE WHEN a THEN 1 END FROM t": (TypeMismatch, "CASE(INT, INT, NULL)"),
    "SELECT sum(d) FROM t": (TypeMismatch, "sum of DATE has no meaning"),
    "SELECT 1e999 FROM t": (TypeMismatch, "1e999 is too large for DOUBLE"),
    f"SELECT {'9' * 39} FROM t": (TypeMismatch, f"{'9' * 39} has 39 digits"),
    "SELECT if(f, 1) FROM t": (TypeMismatch, "IF takes a condition and two values"),
    "SELECT extract(upper FROM s) FROM t": (Unsupported, "EXTRACT takes year"),
    "SELECT (a, b) IN ((1, 2)) FROM t": (Unsupported, "IN takes one value on its left"),
    "SELECT count(t.*) FROM t": (Unsupported, "count takes one column"),
    "SELECT sum(*) FROM t": (Unsupported, "* is an argument of COUNT alone"),
    "SELECT a FROM t GROUP BY a HAVING b > 1": (Unsupported, "b is neither grouped by"),
    "SELECT max(b) AS a FROM t GROUP BY b ORDER BY max(a)": (
        Unsupported,
        "a is a column and an item of SELECT",
    ),
    "SELECT a FROM t ORDER BY 2": (Unsupported, "ORDER BY 2: there are 1 items in SELECT"),
    "SELECT a FROM t ORDER BY -1": (Unsupported, "ORDER BY -1: there are 1 items in SELECT"),
    "SELECT a FROM t GROUP BY 0": (Unsupported, "GROUP BY 0: there are 1 items in SELECT"),
    "SELECT count(*) FROM t GROUP BY 1": (Unsupported, "GROUP BY comes before aggregates"),
    "SELECT a FROM t LIMIT 1 + 1": (Unsupported, "LIMIT takes a number"),
    "SELECT z FROM (SELECT a, b FROM t) q(z)": (Unsupported, "q names 1 columns but has 2"),
    "SELECT z FROM (SELECT a, b FROM t) q(z, z)": (Unsupported, "two columns are called z"),
    "SELECT a FROM t@v1": (Unsupported, "this is not a name"),
    "SELECT 1 FROM t JOIN p USING (id)": (UnknownName, "there is no column id in p"),
    "SELECT q.a FROM t, p": (UnknownName, "there is no table q in this query"),
    "SELECT t.zz FROM t, p": (UnknownName, "there is no column zz in t"),
    "SELECT zz FROM t, p": (UnknownName, "there is no column zz in t, p"),
    "SELECT 1 FROM t JOIN p ON a": (TypeMismatch, "a condition must be BOOLEAN, not INT"),
    "SELECT 1 FROM t, p FULL JOIN t u ON k1 = u.id": (Unsupported, "FULL JOIN after a comma"),
    "SELECT 1 FROM t JOIN LATERAL (SELECT v FROM p) q": (Unsupported, "LATERAL is not taken"),
    "SELECT a FROM t WHERE (a, b) IN (SELECT v FROM p)": (
        Unsupported,
        "IN compares 2 values with 1 columns",
    ),
    "SELECT a FROM t WHERE a = ANY (SELECT v FROM p)": (Unsupported, "ANY and ALL are not taken"),
    "SELECT a FROM t WHERE a = (SELECT avg(v) FROM p WHERE k1 > t.a GROUP BY k2)": (
        Unsupported,
        "a subquery that gives a value must have at most one row",
    ),
    "SELECT a FROM t WHERE a = (SELECT NULL AS n FROM p)": (Unsupported, "n is NULL without a"),
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM p WHERE v = max(a))": (
        Unsupported,
        "WHERE chooses rows before they are grouped",
    ),
    "SELECT a FROM t WHERE a IN (SELECT zz FROM p)": (UnknownName, "there is no column zz in p"),
    "SELECT a FROM t UNION SELECT b FROM t ORDER BY b": (UnknownName, "there is no column b"),
    "SELECT NULL AS n UNION SELECT NULL": (Unsupported, "n is NULL without a type"),
    "SELECT collect_list(a) AS l FROM t UNION SELECT collect_list(b) FROM t": (
        Unsupported,
        "l is an ARRAY, which is not compared",
    ),
    "CREATE VIEW v AS SELECT a FROM t UNION SELECT b FROM t LIMIT 3": (
        Unsupported,
        "LIMIT without ORDER BY takes any rows",
    ),
    "SELECT n FROM VALUES ((SELECT 1)) AS v(n)": (Unsupported, "a subquery is not taken here"),
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM p)": (Unsupported, "a subquery is not taken here"),
    "VALUES (1)": (Unsupported, "Values statements are not taken"),
    "SELECT FROM t": (Unsupported, "SELECT needs items"),
    "WITH q AS (SELECT a FROM t), q AS (SELECT b FROM t) SELECT * FROM q": (
        Unsupported,
        "two CTEs are called q",
    ),
    "CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT a FROM t": (
        Unsupported,
        "OR REPLACE and IF NOT EXISTS contradict each other",
    ),
    "CREATE VIEW v (p) AS SELECT a, b FROM t": (Unsupported, "v names 1 columns but selects 2"),
    "CREATE VIEW v (p, p) AS SELECT a, b FROM t": (Unsupported, "two columns are called p"),
    "CREATE VIEW v (p COMMENT 'x') AS SELECT a FROM t": (
        Unsupported,
        "a view's columns have names only",
    ),
    "CREATE INDEX i ON t (a, a)": (Unsupported, "two columns are called a"),
    "CREATE INDEX i ON t (zz)": (UnknownName, "there is no column zz"),
    "CREATE INDEX i ON t (a NULLS LAST)": (Unsupported, "NULLS FIRST and LAST are fixed"),
    "CREATE INDEX ON t (a)": (Unsupported, "an index needs a name"),
    "CREATE TABLE u (a INT, b INT, PRIMARY KEY (a), PRIMARY KEY (b))": (
        Unsupported,
        "a table needs one PRIMARY KEY",
    ),
    "CREATE TABLE u (a INT PRIMARY KEY COMMENT 'x')": (Unsupported, "comments are not kept"),
    "DROP INDEX i ON t": (Unsupported, "DROP INDEX takes the name of the index alone"),
    "DROP SCHEMA s": (Unsupported, "there are no schemas"),
    "DESCRIBE EXTENDED t": (Unsupported, "DESCRIBE has one form"),
    "DESCRIBE SELECT a FROM t": (Unsupported, "the name of a table or view is needed here"),
    "EXPLAIN EXTENDED SELECT a FROM t": (Unsupported, "EXPLAIN has one form"),
    "SHOW COLUMNS FROM t": (Unsupported, "SHOW statements are not taken"),
    "EXPLAIN": (SqlSyntaxError, "EXPLAIN takes one statement"),
    "SELEKT a FROM t": (SqlSyntaxError, "syntax error at line 1, column 13"),
    "CREATE VIEW w AS SELECT a FROM t WHER a > 3": (
        SqlSyntaxError,
        "syntax error at line 1, column 39: Unexpected token",
    ),
    "CREATE VIEW w AS SELEC 1": (SqlSyntaxError, "syntax error at line 1, column 24: Unexpected"),
    "CREATE TABLE w (a INT PRIMARY KEY) b": (SqlSyntaxError, "syntax error at line 1, column 36"),
    "SELECT (a FROM t": (SqlSyntaxError, "syntax error at line 1, column 14: Expecting )"),
    "SELECT a FROM t WHERE 'a": (SqlSyntaxError, "syntax error: Error tokenizing"),
}


@pytest.mark.parametrize("text", MORE)
def test_refused(text: str) -> None:
    kind, reason = MORE[text]
    with pytest.raises(kind) as caught:
        Names().statement(text)
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CREATE TABLE", "syntax error at line 1, column 12: Expected table name"),
        ("SELECT a FROM t WHERE", "syntax error at line 1, column 21: Where is not complete"),
    ],
)
def test_syntax_errors_are_in_words_of_sql(text: str, reason: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        Names().statement(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'a\ud800' AS x",
        "CREATE VIEW v AS SELECT id, 'a\ud800' AS x FROM t",
        "CREATE VIEW v AS SELECT id FROM t WHERE s LIKE '%\udfff'",
        "CREATE VIEW `v\ud800` AS SELECT id FROM t",
        "SELECT 1 AS x -- \ud800",
    ],
)
def test_text_that_is_no_unicode_is_refused(text: str) -> None:
    """JSON can carry it. A view with it was stored, and every epoch failed."""
    with pytest.raises(SqlSyntaxError, match=r"half of a surrogate pair \(at: .*\\ud"):
        Names().statement(text)


def test_the_innermost_fragment_is_to_blame() -> None:
    with pytest.raises(TypeMismatch) as caught:
        Names().statement("SELECT a FROM t WHERE b > 1 AND coalesce(upper(s, s), 'x') = 'y'")
    assert caught.value.fragment == "UPPER(s, s)"


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    with pytest.raises(SqlError):
        Names().statement("SELECT " + "(" * 3000 + "a" + ")" * 3000 + " FROM t")

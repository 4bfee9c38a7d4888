"""Statements as values: names and types resolved, keys found, writes typed without loss."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from viewkeep.errors import SqlError, TypeMismatch, UnknownName, Unsupported
from viewkeep.expr import Expr
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.ops.functions import FUNCTIONS
from viewkeep.ops.functions.listing import page
from viewkeep.plan.nodes import Filter
from viewkeep.sql.expressions.scalars import lower
from viewkeep.sql.expressions.whole_keys import key_values
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.nodes import (
    CreateTable,
    CreateView,
    Delete,
    Describe,
    DropTable,
    DropView,
    Explain,
    Insert,
    ShowTables,
    Statement,
    Update,
)
from viewkeep.types import DOUBLE, INT, STRING, Column, Schema, decimal

from ..catalog import Names, P, T, shown
from .test_refusals import PAGE


def test_tables() -> None:
    made = Names().statement(
        "CREATE TABLE IF NOT EXISTS `My T` (A INT, b DECIMAL(5,1), PRIMARY KEY (a))"
    )
    schema = Schema((Column("a", INT, False), Column("b", decimal(5, 1))), ("a",))
    assert made == CreateTable("my t", schema, True)
    made = Names().statement("CREATE TABLE u (a STRING NOT NULL PRIMARY KEY, b FLOAT, c SMALLINT)")
    assert isinstance(made, CreateTable)
    assert [column.type for column in made.schema.columns] == [STRING, DOUBLE, INT]


STATEMENTS: dict[str, Statement] = {
    "DROP TABLE IF EXISTS T": DropTable("t", True),
    "DROP MATERIALIZED VIEW v": DropView("v"),
    "DROP INDEX IF EXISTS i": DropView("i", True),
    "SHOW TABLES": ShowTables(),
    "show views": ShowTables(views=True),
    "DESC T": Describe("t"),
    "DELETE FROM t": Delete("t"),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statement(text: str) -> None:
    assert Names().statement(text) == STATEMENTS[text]


def test_explain_and_flags() -> None:
    made = Names().statement("EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT a FROM t")
    assert isinstance(made, Explain)
    assert isinstance(made.statement, CreateView)
    assert made.statement.or_replace


def test_several_statements_and_comments() -> None:
    assert len(parse("SELECT a FROM t; -- one\n SELECT b FROM t;;")) == 2
    assert parse("") == parse(" ; ") == []


def constant(text: str) -> Expr:
    (tree,) = parse(f"SELECT {text}")
    return lower(tree.expressions[0], lambda _: None)


KEPT = [
    ("a", "2", 2),
    ("a", "1.0", 1),
    ("a", "-2147483648", -(2**31)),
    ("a", "1 + 1", 2),
    ("a", "NULL", None),
    ("id", "3", 3),
    ("x", "2", 2.0),
    ("x", "0.1", 0.1),
    ("m", "2", Decimal("2.00")),
    ("m", "1e2", Decimal("100.00")),
    ("m", "-1.5", Decimal("-1.50")),
    ("d", "'2020-01-31'", dt.date(2020, 1, 31)),
    ("ts", "'2020-01-31T10:00:00+02:00'", dt.datetime(2020, 1, 31, 8)),
    ("ts", "'2020-01-31 10:00:00.1234560'", dt.datetime(2020, 1, 31, 10, 0, 0, 123456)),
    ("ts", "DATE '2020-01-31'", dt.datetime(2020, 1, 31)),
    ("f", "NOT TRUE", False),
    ("s", "'it''s'", "it's"),
    ("bin", "X'00ff'", b"\x00\xff"),
]
LOST = [
    ("a", "1.5"),
    ("a", "'2'"),
    ("a", "99999999999"),
    ("a", "TRUE"),
    ("x", "9007199254740993"),
    ("m", "1.005"),
    ("m", "1.005e0"),
    ("m", "123456789.00"),
    ("d", "'soon'"),
    ("d", "'2020-01-31 10:00:00'"),
    ("d", "TIMESTAMP '2020-01-31 10:00:00'"),
    ("ts", "'2020-01-31 10:00:00.1234567'"),
    ("f", "1"),
    ("f", "'true'"),
    ("s", "2"),
    ("bin", "'abc'"),
]


@pytest.mark.parametrize(("column", "text", "value"), KEPT)
def test_constants_are_stored_as_they_are(column: str, text: str, value: object) -> None:
    other = "id" if column != "id" else "a"
    made = Names().statement(f"INSERT INTO t ({other}, {column}) VALUES (1, {text})")
    assert isinstance(made, Insert)
    assert made.rows == ((1, value),)
    assert type(made.rows[0][1]) is type(value)
    changed = Names().statement(f"UPDATE t SET {column} = {text}")
    assert isinstance(changed, Update)
    assert evaluate_one(changed.assignments[0][1], {}) == value


@pytest.mark.parametrize(("column", "text"), LOST)
def test_constants_that_would_change_are_refused(column: str, text: str) -> None:
    for statement in (
        f"INSERT INTO t (id, {column}) VALUES (1, {text})",
        f"UPDATE t SET {column} = {text}",
    ):
        with pytest.raises(TypeMismatch, match=f"column {column} is .* cannot hold this"):
            Names().statement(statement)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("a", "a + 1"),
        ("id", "a"),
        ("m", "m * 2"),
        ("m", "id"),
        ("x", "m"),
        ("ts", "d"),
        ("s", "upper(s)"),
        ("a", "CAST(x AS INT)"),
        ("a", "CASE WHEN f THEN a END"),
    ],
)
def test_expressions_that_fit(column: str, text: str) -> None:
    made = Names().statement(f"UPDATE t AS q SET q.{column} = {text} WHERE q.id = 1")
    assert isinstance(made, Update)
    assert made.assignments[0][1].type == T.schema[column].type
    Names().statement(
        f"INSERT INTO t (id, {column}) SELECT id, {text} AS given FROM t"
        if column != "id"
        else "DELETE FROM t"
    )


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("a", "id"),
        ("a", "x"),
        ("a", "m"),
        ("m", "m * 1.1"),
        ("m", "x"),
        ("d", "ts"),
        ("d", "s"),
        ("s", "a"),
    ],
)
def test_expressions_that_may_lose(column: str, text: str) -> None:
    with pytest.raises(TypeMismatch, match="may not hold"):
        Names().statement(f"UPDATE t SET {column} = {text}")
    with pytest.raises(TypeMismatch, match="may not hold"):
        Names().statement(f"INSERT INTO t (id, {column}) SELECT id, {text} AS given FROM t")


def test_inserted_queries_are_cast_and_keep_their_order() -> None:
    made = Names().statement(
        "INSERT OR REPLACE INTO t (id, x) SELECT a, b FROM t ORDER BY s LIMIT 2"
    )
    assert isinstance(made, Insert)
    assert made.replace
    assert made.query is not None
    assert shown(made.query.node) == "t | select cast(a AS BIGINT), cast(b AS DOUBLE), id, s"
    assert [inner for _, inner in made.query.columns] == ["cast(a AS BIGINT)", "cast(b AS DOUBLE)"]
    assert (made.query.order[0].name, made.query.limit) == ("s", 2)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("INSERT INTO t VALUES (1, 2)", Unsupported, "10 columns but 2 values"),
        ("INSERT INTO t (id, a) SELECT id FROM t", Unsupported, "2 columns are to be filled by 1"),
        ("INSERT INTO t (id, id) VALUES (1, 2)", Unsupported, "a column is named twice"),
        ("INSERT INTO t (id, zz) VALUES (1, 2)", UnknownName, "t has no column zz"),
        ("INSERT INTO t (id) VALUES (a)", UnknownName, "VALUES takes constants"),
        ("INSERT INTO nowhere VALUES (1)", UnknownName, "there is no table nowhere"),
        ("INSERT INTO v VALUES (1)", Unsupported, "v is a view, and views are not written"),
        ("UPDATE v SET a = 1", Unsupported, "v is a view, and views are not written"),
        ("DELETE FROM v", Unsupported, "v is a view, and views are not written"),
        ("INSERT OR IGNORE INTO t (id) VALUES (1)", Unsupported, "INSERT OR IGNORE"),
        ("INSERT INTO t AS q (id) VALUES (1)", Unsupported, "INSERT INTO takes a table without"),
        ("INSERT INTO t (id) VALUES (1) RETURNING id", Unsupported, "RETURNING is not taken"),
        ("UPDATE t SET a = 1 FROM p", Unsupported, "FROM is not taken in UPDATE"),
        ("UPDATE t SET zz = 1", UnknownName, "there is no column zz"),
        ("UPDATE t SET ts = now()", Unsupported, "now has another value"),
        ("UPDATE t SET a = 1 WHERE a", TypeMismatch, "a condition must be BOOLEAN"),
        ("DELETE FROM t WHERE id = 1 LIMIT 3", Unsupported, "LIMIT is not taken in DELETE"),
    ],
)
def test_writes_refused(text: str, kind: type[SqlError], reason: str) -> None:
    with pytest.raises(kind) as caught:
        Names("CREATE VIEW v AS SELECT a FROM t").statement(text)
    assert caught.value.reason.startswith(reason)


KEYS: list[tuple[str, object]] = [
    ("k1 = 1 AND k2 = 'x'", [(1, "x")]),
    ("'x' = k2 AND k1 IN (2, 1, 2, NULL) AND v > 3", [(1, "x"), (2, "x")]),
    ("k1 = '7' AND k2 = 'x'", [(7, "x")]),
    ("k1 = NULL AND k2 = 'x'", []),
    ("k1 = 1", None),
    ("k1 = 1 OR k2 = 'x'", None),
    ("k1 = v AND k2 = 'x'", None),
    ("k1 > 1 AND k2 = 'x'", None),
    ("k1 = 1.5 AND k2 = 'x'", None),
    ("k1 = 1 AND k2 = 5", None),
    ("NOT (k1 = 1 AND k2 = 'x')", None),
]


@pytest.mark.parametrize(("text", "keys"), KEYS)
def test_keys_named_by_a_predicate(text: str, keys: object) -> None:
    node = Names().query(f"SELECT v FROM p WHERE {text}").node
    condition = node.predicate if isinstance(node, Filter) else None
    assert key_values(condition, [P.schema[name] for name in P.schema.key]) == keys


def test_there_is_one_zero_and_one_nan_among_keys() -> None:
    node = (
        Names().query("SELECT a FROM t WHERE x IN (0.0D, -0.0D, double('NaN'), double('nan'))").node
    )
    assert isinstance(node, Filter)
    found = key_values(node.predicate, [T.schema["x"]])
    assert found is not None
    assert sorted(str(value) for (value,) in found) == ["0.0", "nan"]
    assert key_values(node.predicate, []) is None


def test_the_page_of_functions_is_current() -> None:
    assert (PAGE.parent / "functions.md").read_text() == page(), (
        "run python -m viewkeep.ops.functions.listing > docs/functions.md"
    )


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda function: function.name)
def test_examples_of_functions_run(function: object) -> None:
    example = getattr(function, "example")  # noqa: B009
    evaluate_one(constant(example), {})

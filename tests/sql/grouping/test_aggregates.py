"""Aggregates in SQL: lowered, typed, evaluated once, written out for Spark, or refused."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

from viewkeep.engine.adhoc import evaluate
from viewkeep.errors import SqlError, TypeMismatch, Unsupported
from viewkeep.plan.arrays import refuse_arrays
from viewkeep.plan.nodes import Aggregate, AggregateCall, Node
from viewkeep.plan.serial import decode, encode
from viewkeep.sql.parse.syntax import parse, text_of
from viewkeep.sql.spark_sql.determined import deterministic
from viewkeep.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, array, decimal

from ..catalog import Names, T

ROWS = pl.DataFrame(
    {
        "id": [1, 2, 3, 4, 5, 6],
        "a": [1, 1, 1, 2, 2, None],
        "b": [5, 3, None, 7, 7, None],
        "s": ["x", "y", "x", None, "é", None],
        "x": [1.5, 2.5, float("nan"), 0.5, 4.0, None],
        "f": [True, False, None, True, True, None],
    }
)


def calls(text: str) -> tuple[AggregateCall, ...]:
    node: Node = Names().query(text).node
    while not isinstance(node, Aggregate):
        node = node.input  # type: ignore[union-attr]
    return node.aggregates


def call(text: str) -> AggregateCall:
    (made,) = calls(f"SELECT {text} FROM t")
    return made


def answer(text: str) -> list[tuple[object, ...]]:
    """The rows of a query over ROWS."""
    query = Names().query(text)
    missing = [pl.lit(None, c.type.polars).alias(c.name) for c in T.columns if c.name not in ROWS]
    rows = ROWS.with_columns(missing).cast(dict(T.schema.polars))
    made = evaluate(query.node, lambda source: rows)
    return made.select([inner for _, inner in query.columns]).rows()


TYPES = {
    "stddev(a)": DOUBLE,
    "var_pop(m)": DOUBLE,
    "variance(s)": DOUBLE,
    "corr(a, m)": DOUBLE,
    "covar_samp(s, x)": DOUBLE,
    "bool_and(f)": BOOLEAN,
    "some(a > 1)": BOOLEAN,
    "bit_xor(a)": INT,
    "bit_xor(id)": BIGINT,
    "min_by(m, s)": decimal(10, 2),
    "max_by(s, a)": STRING,
    "max_by(NULL, a)": STRING,
    "percentile(a, 0.5)": DOUBLE,
    "percentile(s, 1)": DOUBLE,
    "median(m)": DOUBLE,
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY a)": DOUBLE,
    "listagg(a, ',')": STRING,
    "array_agg(a)": array(INT),
    "array_agg(s ORDER BY a DESC, x)": array(STRING),
    "array_agg(x ORDER BY a NULLS LAST)": array(DOUBLE),
    "string_agg(a, ',' ORDER BY s)": STRING,
    "string_agg(NULL, ',')": STRING,
    "listagg(NULL, NULL)": STRING,
    "array_agg(NULL)": array(STRING),
    "collect_set(m)": array(decimal(10, 2)),
    "count(DISTINCT a, s)": BIGINT,
    "any_value(d)": T.schema["d"].type,
}


@pytest.mark.parametrize("text", TYPES)
def test_types(text: str) -> None:
    assert call(text).type == TYPES[text]


@pytest.mark.parametrize("text", TYPES)
def test_plans_are_kept(text: str) -> None:
    made = call(text)
    assert decode(encode(made)) == made


SAME = [
    ("collect_list(a)", "array_agg(a)"),
    ("collect_set(a)", "array_agg(DISTINCT a)"),
    ("collect_list(a ORDER BY b)", "array_agg(a) WITHIN GROUP (ORDER BY b)"),
    ("array_agg(a ORDER BY a)", "array_agg(a)"),
    ("array_agg(a ORDER BY a NULLS LAST, b)", "array_agg(a)"),
    ("array_agg(a ORDER BY b, a)", "array_agg(a ORDER BY b, b DESC)"),
    ("array_agg(a ORDER BY b NULLS FIRST)", "array_agg(a ORDER BY b)"),
    ("array_agg(a ORDER BY b NULLS LAST)", "array_agg(a ORDER BY b IS NULL, b)"),
    ("array_agg(a ORDER BY b DESC NULLS FIRST)", "array_agg(a ORDER BY b IS NULL DESC, b DESC)"),
    ("collect_set(a ORDER BY t.a DESC)", "array_agg(DISTINCT a ORDER BY a DESC)"),
    ("string_agg(s, ',' ORDER BY a)", "listagg(s, ',') WITHIN GROUP (ORDER BY a)"),
    ("listagg(DISTINCT s, ',' ORDER BY s)", "listagg(DISTINCT s, ',')"),
    ("any_value(s)", "min(s)"),
    ("any_value(s, true)", "min(s)"),
    ("any_value(s) IGNORE NULLS", "min(s)"),
    ("every(f)", "bool_and(f)"),
    ("any(f)", "bool_or(f)"),
    ("std(a)", "stddev_samp(a)"),
    ("median(a)", "percentile(a, 0.5)"),
    ("percentile(a, 0.5)", "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)"),
    ("listagg(s, ',')", "string_agg(s, ',') WITHIN GROUP (ORDER BY s)"),
    ("count(DISTINCT a, a)", "count(DISTINCT a)"),
    ("min_by(a, b) FILTER (WHERE f)", "min_by(CASE WHEN f THEN a END, CASE WHEN f THEN b END)"),
]


@pytest.mark.parametrize(("text", "other"), SAME)
def test_equal_calls_are_one(text: str, other: str) -> None:
    assert call(text) == call(other)


DIFFERENT = [
    ("percentile_cont(0.3) WITHIN GROUP (ORDER BY a DESC)", "percentile(a, 0.3)"),
    ("percentile(a, 0.3)", "percentile(a, 0.4)"),
    ("listagg(s, ',')", "listagg(s, ';')"),
    ("listagg(s) WITHIN GROUP (ORDER BY a)", "listagg(s) WITHIN GROUP (ORDER BY a DESC)"),
    ("listagg(s)", "listagg(DISTINCT s)"),
    ("array_agg(s ORDER BY a)", "array_agg(s)"),
    ("array_agg(s ORDER BY s DESC)", "array_agg(s)"),
    ("array_agg(s ORDER BY a)", "array_agg(s ORDER BY a NULLS LAST)"),
    ("min_by(a, b)", "min_by(b, a)"),
]


@pytest.mark.parametrize(("text", "other"), DIFFERENT)
def test_different_calls_have_different_names(text: str, other: str) -> None:
    assert call(text).name != call(other).name


QUERIES = {
    "SELECT a, stddev(b), var_pop(b), bool_or(f), every(f), bit_xor(b) FROM t GROUP BY a": (
        "SELECT a, stddev(b), var_pop(b), bool_or(f), bool_and(f), bit_xor(b) FROM t GROUP BY a"
    ),
    "SELECT covar_pop(a, b), corr(a, b), count(a, b), count(DISTINCT a, b) FROM t": (
        "SELECT covar_pop(a, b), corr(a, b), 4, 3 FROM t"
    ),
    "SELECT a, median(b), percentile(b, 0.1), listagg(s, '-') FROM t GROUP BY a": (
        "SELECT a, median(b), quantile_cont(b, 0.1), string_agg(s, '-' ORDER BY s) FROM t "
        "GROUP BY a"
    ),
    "SELECT a, min_by(s, b), max_by(s, id), listagg(DISTINCT b, ' ') FROM t GROUP BY a": (
        "SELECT a, first(s ORDER BY b, s NULLS FIRST) FILTER (WHERE b IS NOT NULL), "
        "first(s ORDER BY id DESC), string_agg(DISTINCT b, ' ' ORDER BY b) FROM t GROUP BY a"
    ),
    "SELECT a, collect_list(b), collect_set(s), array_agg(x) FILTER (WHERE f) FROM t GROUP BY a": (
        "SELECT a, coalesce(list(b ORDER BY b) FILTER (WHERE b IS NOT NULL), []), "
        "coalesce(list_sort(list(DISTINCT s) FILTER (WHERE s IS NOT NULL)), []), "
        "coalesce(list(x ORDER BY x) FILTER (WHERE f AND x IS NOT NULL), []) FROM t GROUP BY a"
    ),
    "SELECT a, array_agg(s ORDER BY b DESC), array_agg(id ORDER BY s NULLS LAST, id DESC), "
    "string_agg(s, ',' ORDER BY x DESC) FROM t GROUP BY a": (
        "SELECT a, coalesce(list(s ORDER BY b DESC NULLS LAST, s) FILTER (WHERE s IS NOT NULL), "
        "[]), list(id ORDER BY s NULLS LAST, id DESC), string_agg(s, ',' ORDER BY x DESC, s) "
        "FROM t GROUP BY a"
    ),
    "SELECT array_agg(b ORDER BY f DESC NULLS FIRST, s) FILTER (WHERE a > 0), "
    "collect_set(b ORDER BY b DESC), array_agg(s ORDER BY id) FILTER (WHERE a > 9) FROM t": (
        "SELECT list(b ORDER BY f DESC NULLS FIRST, s NULLS FIRST, b) "
        "FILTER (WHERE a > 0 AND b IS NOT NULL), [7, 5, 3], []"
        " FROM t"
    ),
    "SELECT stddev(b) FROM t WHERE a > 5": "SELECT NULL",
    "SELECT median(b), listagg(s), min_by(a, b), bool_and(f), bit_xor(a) FROM t WHERE a > 5": (
        "SELECT NULL, NULL, NULL, NULL, NULL"
    ),
    "SELECT var_pop(b), var_samp(b), corr(a, b), covar_samp(a, b) FROM t WHERE id = 1": (
        "SELECT 0::DOUBLE, NULL, NULL, NULL"
    ),
    "SELECT var_pop(x), covar_pop(x, a), corr(x, a) FROM t": (
        "SELECT 'nan'::DOUBLE, 'nan'::DOUBLE, 'nan'::DOUBLE"
    ),
    "SELECT corr(a, 1), var_pop(1e200 * a), stddev_pop(1e200) FROM t": (
        "SELECT NULL, 'inf'::DOUBLE, 'inf'::DOUBLE"
    ),
    "SELECT a, any_value(s) AS v FROM t GROUP BY a HAVING any(f) ORDER BY median(b)": (
        "SELECT a, min(s) FROM t GROUP BY a HAVING bool_or(f)"
    ),
}


@pytest.mark.parametrize("text", QUERIES)
def test_as_duckdb(text: str) -> None:
    with duckdb.connect() as oracle:
        oracle.register("t", ROWS.to_arrow())
        wanted = oracle.execute(QUERIES[text]).fetchall()
    found = answer(text)
    assert sorted(map(shown, found)) == sorted(map(shown, wanted))


def shown(row: tuple[object, ...]) -> str:
    return repr([round(v, 12) if isinstance(v, float) else v for v in row])


WRITTEN = {
    "SELECT any_value(s) FROM t": "SELECT MIN(s) FROM t",
    "SELECT any_value(s) IGNORE NULLS FROM t": "SELECT MIN(s) FROM t",
    "SELECT any(f) FROM t": "SELECT BOOL_OR(f) FROM t",
    "SELECT min_by(a, b) FROM t": (
        "SELECT MIN_BY(a, CASE WHEN NOT b IS NULL THEN STRUCT(b, a) END) FROM t"
    ),
    "SELECT max_by(a, f OR g) FROM t": (
        "SELECT MAX_BY(a, CASE WHEN NOT (f OR g) IS NULL THEN STRUCT(f OR g, a) END) FROM t"
    ),
    "SELECT listagg(s) FILTER (WHERE f) FROM t": (
        "SELECT LISTAGG(s) WITHIN GROUP (ORDER BY s) FILTER(WHERE f) FROM t"
    ),
    "SELECT listagg(s, ',') WITHIN GROUP (ORDER BY a DESC) FROM t": (
        "SELECT LISTAGG(s, ',') WITHIN GROUP (ORDER BY a DESC, s) FROM t"
    ),
    "SELECT string_agg(DISTINCT s) WITHIN GROUP (ORDER BY s DESC) FROM t": (
        "SELECT CASE WHEN COUNT(s) > 0 THEN "
        "ARRAY_JOIN(CAST(SORT_ARRAY(COLLECT_SET(s), FALSE) AS ARRAY<STRING>), '') END FROM t"
    ),
    "SELECT collect_list(a) FILTER (WHERE f) FROM t": (
        "SELECT SORT_ARRAY(COLLECT_LIST(a) FILTER(WHERE f)) FROM t"
    ),
    "SELECT collect_set(a) FROM t": "SELECT SORT_ARRAY(COLLECT_SET(a)) FROM t",
    "SELECT array_agg(a ORDER BY a DESC) FROM t": "SELECT SORT_ARRAY(ARRAY_AGG(a), FALSE) FROM t",
    "SELECT collect_list(DISTINCT a ORDER BY t.a) FILTER (WHERE f) FROM t": (
        "SELECT SORT_ARRAY(COLLECT_LIST(DISTINCT a) FILTER(WHERE f)) FROM t"
    ),
    "SELECT array_agg(s ORDER BY b DESC NULLS FIRST) FILTER (WHERE f) FROM t": (
        "SELECT TRANSFORM(ARRAY_SORT(ARRAY_AGG(CASE WHEN NOT s IS NULL THEN "
        "STRUCT(b AS k0, s AS k1, s AS item) END) FILTER(WHERE f), (l, r) -> "
        "CASE WHEN l.k0 IS NOT DISTINCT FROM r.k0 THEN "
        "CASE WHEN l.k1 IS NOT DISTINCT FROM r.k1 THEN 0 WHEN l.k1 IS NULL THEN -1 "
        "WHEN r.k1 IS NULL THEN 1 WHEN l.k1 < r.k1 THEN -1 ELSE 1 END "
        "WHEN l.k0 IS NULL THEN -1 WHEN r.k0 IS NULL THEN 1 WHEN l.k0 < r.k0 THEN 1 ELSE -1 END), "
        "one -> one.item) FROM t"
    ),
    "SELECT string_agg(s, ',' ORDER BY a NULLS LAST) FROM t": (
        "SELECT STRING_AGG(s, ',') WITHIN GROUP (ORDER BY a NULLS LAST, s) FROM t"
    ),
    "SELECT listagg(DISTINCT s, ',' ORDER BY t.s) FILTER (WHERE f) FROM t": (
        "SELECT CASE WHEN COUNT(s) FILTER(WHERE f) > 0 THEN ARRAY_JOIN(CAST("
        "SORT_ARRAY(COLLECT_SET(s) FILTER(WHERE f)) AS ARRAY<STRING>), ',') END FROM t"
    ),
    "SELECT collect_list((SELECT any_value(v) FROM p)) FROM t": (
        "SELECT SORT_ARRAY(COLLECT_LIST((SELECT MIN(v) FROM p))) FROM t"
    ),
    "SELECT sum(a) FROM t HAVING min(b) > 1": "SELECT SUM(a) FROM t HAVING MIN(b) > 1",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_choices_are_written_out(text: str) -> None:
    (tree,) = parse(text)
    assert text_of(deterministic(tree)) == WRITTEN[text]


REFUSED: dict[str, tuple[type[SqlError], str]] = {
    "first(a)": (Unsupported, "the aggregate first is not taken"),
    "last(a) IGNORE NULLS": (Unsupported, "the aggregate last is not taken"),
    "first_value(a)": (Unsupported, "the aggregate first_value is not taken"),
    "mode(a)": (Unsupported, "the aggregate mode is not taken"),
    "bit_and(a)": (Unsupported, "the aggregate bit_and is not taken"),
    "bit_or(a)": (Unsupported, "the aggregate bit_or is not taken"),
    "approx_percentile(a, 0.5)": (Unsupported, "the aggregate approx_percentile is not taken"),
    "approx_count_distinct(a)": (Unsupported, "the aggregate approx_count_distinct is not taken"),
    "skewness(a)": (Unsupported, "the aggregate skewness is not taken"),
    "max(collect_list(a))": (Unsupported, "an aggregate inside an aggregate"),
    "collect_list(a, b)": (Unsupported, "collect_list takes one argument"),
    "array_agg(DISTINCT a ORDER BY b)": (Unsupported, "array_agg DISTINCT is ordered by its"),
    "array_agg(DISTINCT a ORDER BY a, b)": (Unsupported, "array_agg DISTINCT is ordered by its"),
    "collect_set(a ORDER BY b)": (Unsupported, "collect_set DISTINCT is ordered by its"),
    "array_agg(a ORDER BY NULL)": (Unsupported, "NULL orders nothing"),
    "array_agg(a ORDER BY b) WITHIN GROUP (ORDER BY b)": (Unsupported, "array_agg has two orders"),
    "sum(a ORDER BY b)": (Unsupported, "sum takes no ORDER BY inside"),
    "upper(s ORDER BY a)": (Unsupported, ""),
    "array_agg(a ORDER BY sum(b))": (Unsupported, "an aggregate inside an aggregate"),
    "array_agg(a, b ORDER BY b)": (Unsupported, "array_agg takes one argument"),
    "sum(a) IGNORE NULLS": (Unsupported, "sum has no treatment of NULLs"),
    "sum(a) WITHIN GROUP (ORDER BY a)": (Unsupported, "sum takes no WITHIN GROUP"),
    "median(a) WITHIN GROUP (ORDER BY a)": (Unsupported, "median takes no WITHIN GROUP"),
    "upper(s) WITHIN GROUP (ORDER BY a)": (Unsupported, "FILTER needs an aggregate"),
    "sum(a, b)": (Unsupported, "sum takes one argument"),
    "min_by(a)": (Unsupported, "min_by takes two arguments"),
    "min_by(DISTINCT a, b)": (Unsupported, "DISTINCT is not taken in min_by"),
    "corr(DISTINCT a, b)": (Unsupported, "DISTINCT is not taken in corr"),
    "percentile(a, 0.5, 2)": (Unsupported, "percentile takes two arguments"),
    "percentile(a, array(0.5, 0.9))": (Unsupported, "several fractions at once"),
    "percentile(a, b)": (TypeMismatch, "the fraction of percentile is a constant"),
    "percentile(a, 1.5)": (TypeMismatch, "the fraction of percentile is a constant"),
    "percentile(a, NULL)": (TypeMismatch, "the fraction of percentile is a constant"),
    "percentile_cont(0.5)": (Unsupported, "percentile_cont is of one expression"),
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY a, b)": (
        Unsupported,
        "percentile_cont is of one expression",
    ),
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY a NULLS LAST)": (
        Unsupported,
        "NULLS FIRST and LAST are fixed",
    ),
    "listagg(s) WITHIN GROUP (ORDER BY NULL)": (Unsupported, "NULL orders nothing"),
    "listagg(s, a)": (TypeMismatch, "the separator of listagg is a constant text"),
    "listagg(s, 1)": (TypeMismatch, "the separator of listagg is a constant text"),
    "listagg(bin)": (Unsupported, "listagg of BINARY is not taken"),
    "listagg(DISTINCT s) WITHIN GROUP (ORDER BY a)": (
        Unsupported,
        "listagg DISTINCT is ordered by its argument alone",
    ),
    "stddev(d)": (TypeMismatch, "stddev_samp of DATE has no meaning"),
    "corr(a, d)": (TypeMismatch, "corr of DATE has no meaning"),
    "median(f)": (TypeMismatch, "median of BOOLEAN has no meaning"),
    "bit_xor(x)": (TypeMismatch, "bit_xor of DOUBLE has no meaning"),
    "bool_or(a)": (TypeMismatch, "a condition must be BOOLEAN"),
    "median(sum(a))": (Unsupported, "an aggregate inside an aggregate"),
    "listagg(s) WITHIN GROUP (ORDER BY max(a))": (
        Unsupported,
        "an aggregate inside an aggregate",
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    kind, reason = REFUSED[text]
    with pytest.raises(kind) as caught:
        Names().statement(f"SELECT {text} FROM t")
    assert caught.value.reason.startswith(reason)
    assert caught.value.fragment


ARRAYS = "CREATE VIEW v AS SELECT a, collect_list(b) AS bs FROM t GROUP BY a"
COMPUTED = {
    "SELECT bs, count(*) FROM v GROUP BY bs": "nothing is grouped, ordered or matched",
    "SELECT DISTINCT bs FROM v": "nothing is grouped, ordered or matched",
    "SELECT a FROM v ORDER BY bs": "nothing is grouped, ordered or matched",
    "SELECT v.a FROM v JOIN v AS w ON v.bs = w.bs": "nothing is matched",
    "SELECT a FROM v WHERE bs = bs": "an ARRAY is shown, not computed with",
    "SELECT upper(bs) FROM v": "an ARRAY is shown, not computed with",
    "SELECT CAST(bs AS STRING) AS c FROM v": "an ARRAY is shown, not computed with",
    "SELECT collect_list(a) = collect_list(b) AS c FROM t": "an ARRAY is shown",
    "SELECT max(bs) FROM v": "an ARRAY is not aggregated",
    "SELECT collect_list(bs) FROM v": "an ARRAY is not aggregated",
    "SELECT count(DISTINCT bs) FROM v": "an ARRAY is not aggregated",
}


@pytest.mark.parametrize("text", COMPUTED)
def test_arrays_are_shown_and_not_computed_with(text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        Names(ARRAYS).query(text)
    assert caught.value.reason.startswith(COMPUTED[text])


@pytest.mark.parametrize(
    "text",
    ["SELECT a, bs FROM v WHERE a > 1", "SELECT coalesce(bs, bs) AS c, bs IS NULL AS n FROM v"],
)
def test_arrays_are_carried(text: str) -> None:
    refuse_arrays(Names(ARRAYS).query(text).node)


def test_first_says_what_would_work() -> None:
    with pytest.raises(Unsupported) as caught:
        Names().statement("SELECT first(a) FROM t")
    assert "MIN_BY" in (caught.value.hint or "")


def test_a_call_of_another_type_is_not_shared() -> None:
    made: dict[str, DataType] = {c.name: c.type for c in calls("SELECT sum(a), avg(a) FROM t")}
    assert sorted(map(str, made.values())) == ["BIGINT", "DOUBLE"]


def test_an_array_is_not_compared_with_text() -> None:
    with pytest.raises(TypeMismatch, match="STRING, ARRAY<INT>"):
        Names().query("SELECT a FROM t WHERE 'x' IN (SELECT collect_list(b) FROM t)")

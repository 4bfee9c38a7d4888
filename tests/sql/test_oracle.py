"""Random expressions over random rows evaluate as DuckDB evaluates them.

Only what the two systems mean alike: comparisons, logic, + - *, CASE, COALESCE, NULLIF, IN,
BETWEEN, IS NULL and simple string functions, over numbers too small to overflow.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb
import polars as pl
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeep.ops.evaluate import project

from .catalog import Names, T

COLUMNS = {"a": pl.Int32, "b": pl.Int32, "s": pl.String, "f": pl.Boolean}
TEXT = st.text(alphabet="abA %_", max_size=4)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-4, 4),
            "b": st.none() | st.integers(-4, 4),
            "s": st.none() | TEXT,
            "f": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=8,
)


def joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    """Texts side by side, in parentheses."""
    made = [part if isinstance(part, st.SearchStrategy) else st.just(part) for part in parts]
    return st.tuples(*made).map(lambda texts: f"({' '.join(texts)})")


def choices(kind: st.SearchStrategy[str], truth: st.SearchStrategy[str]) -> list[Any]:
    """The forms that give back any type of value."""
    return [
        joined("CASE WHEN", truth, "THEN", kind, "ELSE", kind, "END"),
        joined("CASE WHEN", truth, "THEN", kind, "END"),
        joined("coalesce(", kind, ",", kind, ")"),
        joined("nullif(", kind, ",", kind, ")"),
    ]


def expressions(depth: int) -> tuple[st.SearchStrategy[str], ...]:
    """Numbers, texts and truths of at most a depth."""
    number = st.sampled_from(["a", "b"]) | st.integers(-4, 4).map(str)
    text = st.just("s") | TEXT.map(lambda value: f"'{value}'")
    truth = st.sampled_from(["f", "TRUE", "FALSE"])
    for _ in range(depth):
        compare = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
        truths = [
            truth,
            joined(number, compare, number),
            joined(text, compare, text),
            joined(truth, st.sampled_from(["AND", "OR"]), truth),
            joined("NOT", truth),
            joined(number, st.sampled_from(["IS NULL", "IS NOT NULL"])),
            joined(truth, st.sampled_from(["IS TRUE", "IS NOT FALSE"])),
            joined(number, st.sampled_from(["IN", "NOT IN"]), "(", number, ",", number, ", NULL )"),
            joined(number, st.sampled_from(["IN", "NOT IN"]), "(1, 2, -3)"),
            joined(number, st.sampled_from(["BETWEEN", "NOT BETWEEN"]), number, "AND", number),
            joined(number, "IS DISTINCT FROM", number),
            joined("s", st.sampled_from(["LIKE", "NOT LIKE"]), st.sampled_from(["'a%'", "'_b'"])),
            *choices(truth, truth),
        ]
        numbers = [
            number,
            joined(number, st.sampled_from(["+", "-", "*"]), number),
            joined("- (", number, ")"),
            joined("length(", text, ")"),
            *choices(number, truth),
        ]
        texts = [
            text,
            joined(st.sampled_from(["upper(", "lower(", "reverse("]), text, ")"),
            joined("concat(", text, ",", "coalesce(", text, ", '') )").filter(_not_null_concat),
            joined("replace(", text, ", 'a', 'b')"),
            *choices(text, truth),
        ]
        number, text, truth = st.one_of(numbers), st.one_of(texts), st.one_of(truths)
    return number, text, truth


def _not_null_concat(text: str) -> bool:
    # DuckDB's concat passes over NULL; Spark's gives NULL. Literals cannot be NULL.
    return text.startswith("(concat( '")


ANY = st.one_of(*expressions(3))


@cache
def oracle() -> duckdb.DuckDBPyConnection:
    """One connection for all examples."""
    made = duckdb.connect()
    made.execute("SET threads = 1")
    return made


@settings(max_examples=400)
@given(text=ANY, rows=ROWS)
def test_as_duckdb(text: str, rows: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame(rows, schema=COLUMNS)
    query = Names().query(f"SELECT {text} AS value FROM t")
    whole = frame.with_columns(
        pl.lit(None, dtype=c.type.polars).alias(c.name) for c in T.columns if c.name not in COLUMNS
    )
    made = query.node
    outputs = [(o.name, o.expr) for o in getattr(made, "outputs", ())]
    ((_, inner),) = query.columns
    found = (project(whole, outputs) if outputs else whole).get_column(inner).to_list()
    (translated,) = sqlglot.transpile(f"SELECT {text} AS value", read="spark", write="duckdb")
    oracle().register("given_rows", frame.with_row_index("place").to_arrow())
    wanted = oracle().execute(f"{translated} FROM given_rows ORDER BY place").fetchall()
    assert found == [value for (value,) in wanted]

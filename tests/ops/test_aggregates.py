"""Totals are linear, products are exact, and percentiles are what sorting a list gives."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeep.delta import WEIGHT
from viewkeep.expr import Ref
from viewkeep.ops.aggregates import ordered
from viewkeep.ops.aggregates.bit_xor import BitXor
from viewkeep.ops.aggregates.moments import Product
from viewkeep.ops.aggregates.ordered import GROUP, TIMES, VALUE, Ordered, added_up, counted
from viewkeep.ops.aggregates.percentiles import ANCHOR, BELOW, RESULT, Percentile, percentiles
from viewkeep.ops.aggregates.sums import decimal_mean
from viewkeep.ops.aggregates.totals import Linear, Total, add_up, advance, merge
from viewkeep.types import BIGINT, DOUBLE, decimal

X, Y, N = Ref("x", DOUBLE), Ref("y", DOUBLE), Ref("n", BIGINT)
TOTALS: list[tuple[Linear, tuple[str, ...]]] = [
    (Total(X, False, "count(x)", True), ("x",)),
    (Product(X, X, False), ("x", "x")),
    (Product(X, Y, False), ("x", "y")),
    (BitXor(N, False), ("n",)),
    (Total(N, False, "count(n)", True, True), ("n",)),
]
LINEAR = [total for total, _ in TOTALS]
moderate = st.floats(-1e100, 1e100, allow_subnormal=False).filter(
    lambda value: value == 0 or abs(value) > 1e-100
)
numbers = st.none() | moderate | st.sampled_from([math.inf, -math.inf, math.nan, 1e300])
row = st.tuples(
    st.integers(0, 2), numbers, numbers, st.none() | st.integers(-(2**62), 2**62), st.just(1)
)
SCHEMA = {"g": pl.Int64, "x": pl.Float64, "y": pl.Float64, "n": pl.Int64, WEIGHT: pl.Int64}


def frame(rows: list[tuple[object, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def totalled(rows: list[tuple[object, ...]]) -> pl.DataFrame:
    return add_up(frame(rows), ["g"], "rows", TOTALS)


def as_values(made: pl.DataFrame) -> dict[int, dict[str, object]]:
    """Each group's totals; pairs as the exact numbers that they stand for."""
    found = {}
    for values in made.sort("g").to_dicts():
        for total in LINEAR:
            if isinstance(total, Product):
                pair = Fraction(values.pop(total.high)) + Fraction(values.pop(total.low))
                values[total.high] = pair
            elif isinstance(total, Total) and total.is_double:
                pair = Fraction(values.pop(total.sum)) + Fraction(values.pop(total.low))
                values[total.sum] = pair
        found[values["g"]] = values
    return found


def close(a: dict[int, dict[str, object]], b: dict[int, dict[str, object]], size: Fraction) -> bool:
    """Equal, and pairs to 100 bits of the largest term."""
    if a.keys() != b.keys():
        return False
    for group in a:
        for name, value in a[group].items():
            other = b[group][name]
            if isinstance(value, Fraction) and isinstance(other, Fraction):
                if abs(value - other) > size / 2**100:
                    return False
            elif value != other:
                return False
    return True


def largest(rows: list[tuple[object, ...]]) -> Fraction:
    finite = [
        abs(Fraction(value))
        for made in rows
        for value in made[1:3]
        if isinstance(value, float) and math.isfinite(value)
    ]
    return max([Fraction(1), *finite]) ** 2


@settings(max_examples=200)
@given(st.lists(row, min_size=1, max_size=8), st.lists(row, min_size=1, max_size=8))
def test_totals_are_linear(
    first: list[tuple[object, ...]], second: list[tuple[object, ...]]
) -> None:
    whole = as_values(totalled(first + second))
    parts = pl.concat([totalled(first), totalled(second)])
    assert close(as_values(merge(parts, "g", [], LINEAR, "rows")), whole, largest(first + second))


@settings(max_examples=200)
@given(st.lists(row, min_size=1, max_size=8), st.lists(row, min_size=1, max_size=8))
def test_what_is_added_can_be_removed(
    stays: list[tuple[object, ...]], goes: list[tuple[object, ...]]
) -> None:
    state = totalled(stays + goes)
    gain = totalled([(*made[:-1], -1) for made in goes])
    aligned = state.select("g").join(gain, on="g", how="left", maintain_order="left")
    left = pl.DataFrame([state["g"], *advance(state, aligned, LINEAR)])
    wanted = as_values(totalled(stays).drop("rows"))
    kept = {group: values for group, values in as_values(left).items() if group in wanted}
    assert close(kept, wanted, largest(stays + goes))


@given(moderate, moderate)
def test_products_are_exact(x: float, y: float) -> None:
    total = Product(X, Y, False)
    made = add_up(frame([(0, x, y, None, 1)]), ["g"], "rows", [(total, ("x", "y"))])
    whole = Fraction(made[total.high].item()) + Fraction(made[total.low].item())
    assert whole == Fraction(x) * Fraction(y) or abs(x * y) < 1e-290


@settings(max_examples=300)
@given(
    st.lists(st.integers(-5, 5), max_size=12),
    st.floats(0, 1),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_percentiles_of_lists(
    values: list[int], fraction: float, continuous: bool, descending: bool, distinct: bool
) -> None:
    counts = {value: values.count(value) for value in values}
    given_rows = pl.DataFrame(
        [(0, value, times) for value, times in counts.items()],
        schema={GROUP: pl.Int64, VALUE: pl.Int64, TIMES: pl.Int64},
        orient="row",
    )
    held = sorted(counts if distinct else values, reverse=descending)
    made = percentiles(
        given_rows, [len(held)], Percentile(fraction, continuous, descending), distinct
    )
    if not held:
        assert made.row(0) == (None, None, None)
        return
    if continuous:
        position = (len(held) - 1) * fraction
        low, high = held[math.floor(position)], held[math.ceil(position)]
        wanted = low + (high - low) * (position - math.floor(position))
    else:
        wanted = held[max(math.ceil(len(held) * fraction), 1) - 1]
    assert math.isclose(made[RESULT].item(), wanted, abs_tol=1e-12)
    assert made[BELOW].item() == sum(value < made[ANCHOR].item() for value in held)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.sampled_from([-1, 1]))))
def test_counted_values_add_up_whether_or_not_most_differ(rows: list[tuple[int, int, int]]) -> None:
    order = Ordered((N,), (False,), (True,))
    changes = pl.DataFrame(rows, {"g": pl.Int64, "n": pl.Int64, WEIGHT: pl.Int64}, orient="row")
    totals = Counter[tuple[int, int]]()
    for group, value, weight in rows:
        totals[group, value] += weight
    expected = sorted((*value, times) for value, times in totals.items() if times)
    for large in (0, len(rows)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ordered, "_LARGE", large)
            patch.setattr(ordered, "_SAMPLED", 1)
            gain = counted(changes, ["g"], order, ["n"], apart=True)
            added = counted(changes, ["g"], order, ["n"])
        assert sorted(added.select("g", VALUE, TIMES).rows()) == expected
        if large or len(expected) <= ordered._DIFFERENT * len(rows):
            assert sorted(gain.select("g", VALUE, TIMES).rows()) == expected
        else:
            assert gain.height == len(rows)
        assert sorted(added_up(gain).select("g", VALUE, TIMES).rows()) == expected


def test_an_average_of_many_digits_is_not_rounded_before_it_is_fitted() -> None:
    value = Decimal("-99999999999999999999999999.9999")
    assert decimal_mean(value, 1, decimal(34, 8)) == value
    assert decimal_mean(Decimal("1e26"), 1, decimal(34, 8)) is None

"""The predicate index: a row reaches every consumer that it satisfies, and few others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec.scalars import to_physical
from viewkeep.engine.rows.delta import Rows
from viewkeep.engine.rows.index import ConsumerIndex, bounds_of
from viewkeep.expr import Expr, Lit, Ref
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.ops.functions import call
from viewkeep.plan.program import Step
from viewkeep.types import BIGINT, DOUBLE, INT, STRING, DataType, decimal

TYPES: dict[str, DataType] = {"a": INT, "b": BIGINT, "s": STRING, "m": decimal(8, 2), "d": DOUBLE}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a": st.integers(-3, 3),
    "b": st.integers(-3, 3),
    "s": st.sampled_from(["", "a", "b", "é", "ab"]),
    "m": st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")]),
    "d": st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
}


@dataclass(frozen=True)
class Selection:
    """A consumer that begins with a predicate."""

    predicate: Expr

    @property
    def steps(self) -> Sequence[Step]:
        return (self.predicate,)


@st.composite
def comparisons(draw: st.DrawFn) -> Expr:
    name = draw(st.sampled_from(list(TYPES)))
    column = Ref(name, TYPES[name])
    function = draw(st.sampled_from(["eq", "gt", "ge", "lt", "le", "ne", "in", "null_safe_eq"]))
    count = draw(st.integers(1, 3)) if function == "in" else 1
    constants = [Lit(draw(VALUES[name]), TYPES[name]) for _ in range(count)]
    return call(function, [column, *constants])


predicates = st.recursive(
    comparisons(),
    lambda parts: st.tuples(st.sampled_from(["and", "or"]), parts, parts).map(
        lambda made: call(made[0], [made[1], made[2]])
    ),
    max_leaves=3,
)
rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def physical(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        None if row[name] is None else to_physical(kind)(row[name]) for name, kind in TYPES.items()
    )


@given(st.lists(predicates, min_size=1, max_size=8), st.lists(rows, min_size=1, max_size=5))
def test_nobody_is_left_out(wanted: list[Expr], found: list[dict[str, Any]]) -> None:
    consumers = [Selection(predicate) for predicate in wanted]
    index = ConsumerIndex(list(TYPES), consumers)
    delta: Rows = [(bytes([at]), physical(row), 1) for at, row in enumerate(found)]
    reached = [(id(consumer), key) for consumer, some in index.reached(delta) for key, *_ in some]
    assert len(reached) == len(set(reached))  # none gets a row twice
    for consumer in consumers:
        for at, row in enumerate(found):
            if evaluate_one(consumer.predicate, row):
                assert (id(consumer), bytes([at])) in reached


def test_constants_of_one_shape_share_a_look_up() -> None:
    """Of thousands of consumers a row reaches the one that asks for its value."""
    a, b = Ref("a", INT), Ref("b", BIGINT)
    equal = [Selection(call("eq", [a, Lit(n, INT)])) for n in range(5_000)]
    buckets = [
        Selection(
            call("and", [call("ge", [b, Lit(n, BIGINT)]), call("lt", [b, Lit(n + 10, BIGINT)])])
        )
        for n in range(0, 50_000, 10)
    ]
    thresholds = [Selection(call("le", [b, Lit(n, BIGINT)])) for n in range(0, 50_000, 10)]
    index = ConsumerIndex(["a", "b"], [*equal, *buckets, *thresholds])
    (first,) = (consumer for consumer, _ in index.reached([(b"", (7, None), 1)]))
    assert first is equal[7]
    reached = [consumer for consumer, _ in index.reached([(b"", (None, 49_985), 1)])]
    assert reached == [thresholds[-1], buckets[-2]]


def test_what_has_no_bounds_is_always_asked() -> None:
    d, a = Ref("d", DOUBLE), Ref("a", INT)
    assert bounds_of(()) is None
    assert bounds_of(((("x", a),),)) is None
    assert bounds_of((call("gt", [d, Lit(1.0, DOUBLE)]),)) is None  # NaN is above all numbers
    assert bounds_of((call("ne", [a, Lit(1, INT)]),)) is None
    some = bounds_of((call("in", [a, Lit(1, INT), Lit(2, INT)]),))
    assert some is not None
    assert some.values == {1, 2}

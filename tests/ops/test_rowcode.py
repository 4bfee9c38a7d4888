"""Row forms give what the kernels give, for every function and over awkward values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import polars as pl
import pytest

from viewkeep.codec.scalars import to_physical, to_python
from viewkeep.errors import ViewkeepError
from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.ops.evaluate import compute
from viewkeep.ops.functions import FUNCTIONS, call, cast_to
from viewkeep.ops.functions.casts import castable
from viewkeep.ops.rowcode import row_function
from viewkeep.plan.conditions import fold
from viewkeep.types import BIGINT, BINARY, BOOLEAN, DOUBLE, INT, STRING, DataType

from .functions import test_casts, test_choice, test_numbers, test_strings, test_times
from .functions.test_numbers import NUMBERS, Table

CASTS = [
    (table, cast_to(Ref(name, given), target))
    for table in (
        NUMBERS,
        test_times.TIMES,
        test_casts.OTHERS,
        test_casts.DOUBLES,
        test_casts.TEXTS,
    )
    for name, (given, _) in table.items()
    for target in test_casts.TARGETS
    if given != target and castable(given, target)
]


def agree(table: Table, exprs: Sequence[Expr]) -> int:
    """Assert that row forms give what kernels give; how many of the expressions have one."""
    frame = pl.DataFrame(
        {name: pl.Series(name, values, dtype=t.polars) for name, (t, values) in table.items()}
    )
    covered, wrong = 0, list[str]()
    for expr in exprs:
        made = row_function((expr,))
        if made is None:
            continue
        covered += 1
        wanted = compute(frame, [expr])[0].to_list()
        columns = [_physical(table, name) for name in made.columns]
        rows = zip(*columns, strict=True) if columns else [()] * frame.height
        for place, (values, want) in enumerate(zip(rows, wanted, strict=True)):
            got = _python(made.call(*values)[0], expr.type)
            if not same(got, want):
                given = {name: table[name][1][place] for name in made.columns}
                wrong.append(f"{expr} of {given}: {got!r}, kernel {want!r}\n{made.source}")
    assert not wrong, "\n" + "\n".join(wrong[:5]) + f"\n{len(wrong)} differ"
    return covered


def _physical(table: Table, name: str) -> list[Any]:
    type_, values = table[name]
    if type_ == DOUBLE:
        return list(values)  # a kernel may meet the -0.0 of another, which no column holds
    return [None if value is None else to_physical(type_)(value) for value in values]


def _python(value: Any, type_: DataType) -> Any:
    back = to_python(type_)
    return value if value is None or back is None else back(value)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("expr", [expr for expr, _ in test_numbers.ARITHMETIC], ids=str)
def test_arithmetic(expr: Expr) -> None:
    agree(NUMBERS, [expr])


def test_choices() -> None:
    agree(NUMBERS, [expr for expr, _ in test_choice.CASES])


def test_numbers_and_times() -> None:
    agree(NUMBERS, [expr for expr, _ in (*test_numbers.MATH, *test_numbers.BITS)])
    agree(test_times.TIMES, [expr for expr, _ in (*test_times.DATES, *test_times.INSTANTS)])


def test_all_casts() -> None:
    for table, expr in CASTS:
        agree(table, [expr])


def _folded(expr: Expr) -> Expr:
    """As in plans: no kernel meets constants alone, also where a function casts its arguments."""
    if not isinstance(expr, Call):
        return expr
    return fold(Call(expr.function, tuple(map(fold, expr.args)), expr.type))


@pytest.mark.parametrize("seed", range(25))
def test_calls_of_calls(seed: int) -> None:
    """Random expressions, in which each function meets what others give."""
    random = Random(seed)
    rows = 12
    table = {
        **{name: (t, list(values)[:rows]) for name, (t, values) in NUMBERS.items()},
        **{f"t_{n}": (t, (list(values) * 2)[:rows]) for n, (t, values) in test_times.TIMES.items()},
        "b": (BOOLEAN, [True, False, None] * 4),
    }
    pool: list[Expr] = [Ref(name, type_) for name, (type_, _) in table.items()]
    pool += [Lit(None, INT), Lit(3, INT), Lit(2.5, DOUBLE), Lit("a b", STRING), Lit(True, BOOLEAN)]
    names = [function.name for function in FUNCTIONS.values() if function.row]
    while len(pool) < 120:
        name, args = random.choice(names), random.choices(pool, k=random.choice((1, 2, 2, 3, 4)))
        try:
            made = (
                cast_to(args[0], random.choice(test_casts.TARGETS))
                if name == "cast"
                else (call(name, args))
            )
        except ViewkeepError:
            continue
        if len(str(made)) < 500:
            pool.append(_folded(made))
    assert agree(table, pool) > 40


def test_texts() -> None:
    s, t, n = zip(*test_strings.ROWS, strict=True)
    table = {
        "s": (STRING, s),
        "t": (STRING, t),
        "n": (INT, n),
        "b": (BINARY, [None if text is None else text.encode() for text in s]),
        "g": (BIGINT, n),
    }
    agree(table, [expr for expr, _ in test_strings.STRINGS])

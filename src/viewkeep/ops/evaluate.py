"""Runs typed expressions over polars frames.

Law: a result depends on the row alone, has exactly the type its expression says, and there is one
per row, also when the expression reads no column or the frame is empty. A time that a function
makes is of the years 1 to 9999, or NULL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from viewkeep.codec.scalars import to_physical, to_python
from viewkeep.deferred import pl
from viewkeep.expr import Call, Expr, Lit, Ref, Scalar, calls, rebuilt
from viewkeep.ops.functions import FUNCTIONS, Site
from viewkeep.ops.functions.casts import in_years
from viewkeep.ops.rowcode import row_function
from viewkeep.types import DataType

Stage: TypeAlias = tuple[tuple[str, Expr], ...]

_ANCHOR = "#rows"
_MOST = 30  # copies of columns in one expression
_MOST_DEEP = 50  # levels of calls in one expression
_MOST_BRANCHES = 50  # of a CASE


class _Staged(NamedTuple):
    """An expression over staged columns, its size, and how many stages come before it."""

    expr: Expr
    size: int
    after: int


def compute(df: pl.DataFrame, exprs: Sequence[Expr]) -> list[pl.Series]:
    """The values of each expression over the rows of a frame."""
    have = df.schema
    if all(isinstance(expr, Ref) and have[expr.name] == expr.type.polars for expr in exprs):
        return [df.get_column(expr.name) for expr in exprs if isinstance(expr, Ref)]
    stages, finals = _prepared(tuple(exprs))
    for stage in stages:
        df = df.with_columns(stage)
    return df.select(finals).get_columns()[:-1]


def filter_rows(df: pl.DataFrame, predicate: Expr) -> pl.DataFrame:
    """The rows for which the predicate is TRUE; FALSE and NULL are left out."""
    return df.filter(compute(df, [predicate])[0])


def project(
    df: pl.DataFrame, outputs: Sequence[tuple[str, Expr]], keep: Sequence[str] = ()
) -> pl.DataFrame:
    """A frame of computed columns under their names, and the `keep` columns as they are."""
    made = compute(df, [expr for _, expr in outputs])
    named = [column.alias(name) for column, (name, _) in zip(made, outputs, strict=True)]
    return pl.DataFrame([*named, *(df.get_column(name) for name in keep)])


@lru_cache(maxsize=1_000)
def _prepared(exprs: tuple[Expr, ...]) -> tuple[list[list[pl.Expr]], list[pl.Expr]]:
    """What polars computes for some expressions: stages, then each with its type, and an anchor."""
    stages, finals = _staged(exprs)
    made = [_compiled(expr).cast(expr.type.polars).alias(str(i)) for i, expr in enumerate(finals)]
    anchor = pl.int_range(pl.len()).alias(_ANCHOR)
    named = [[_compiled(expr).alias(name) for name, expr in stage] for stage in stages]
    return named, [*made, anchor]


def _compiled(expr: Expr) -> pl.Expr:
    """The polars expression that computes `expr` over a frame with the columns it refers to."""
    made: dict[int, pl.Expr] = {}

    def of(arg: Expr) -> pl.Expr:
        if isinstance(arg, Ref):
            return pl.col(arg.name)
        if isinstance(arg, Lit):
            return pl.lit(arg.value, dtype=arg.type.polars)
        return made[id(arg)]

    for call in calls([expr]):
        made[id(call)] = _built(call, [of(arg) for arg in call.args])
    return of(expr)


def _built(expr: Call, args: Sequence[pl.Expr]) -> pl.Expr:
    site = Site(
        tuple(args),
        tuple(arg.type for arg in expr.args),
        expr.type,
        {i: arg.value for i, arg in enumerate(expr.args) if isinstance(arg, Lit)},
    )
    return in_years(FUNCTIONS[expr.function].build(site), expr.type)


@lru_cache(maxsize=10_000)
def _staged(exprs: tuple[Expr, ...]) -> tuple[tuple[Stage, ...], tuple[Expr, ...]]:
    """The expressions, with parts that would be repeated too often computed in stages before.

    A kernel may use an argument many times, and polars repeats what stands there each time, so an
    expression of kernels within kernels grows exponentially with its depth. A part whose copies
    would take more than `_MOST` columns gets a column of its own first. So does a part of more than
    `_MOST_DEEP` levels, and the rest of a long CASE: polars takes the cube of a chain's length.
    """
    stages: list[list[tuple[str, Expr]]] = []
    known: dict[Expr, _Staged] = {}

    def staged(expr: Expr) -> _Staged:
        return known[expr] if isinstance(expr, Call) else _Staged(expr, 1, 0)

    def visit(expr: Call) -> _Staged:
        size, after = 1, 0
        args: list[Expr] = []
        for arg, copies in zip(expr.args, _copies(expr), strict=True):
            made, width, before = staged(arg)
            if isinstance(made, Call) and (
                (copies > 1 and copies * width > _MOST)
                or made.depth > _MOST_DEEP
                or (made.function == "case" and len(made.args) > 2 * _MOST_BRANCHES)
            ):
                made, width, before = put_before(made, before), 1, before + 1
            args.append(made)
            size, after = size + copies * width, max(after, before)
        return _Staged(Call(expr.function, tuple(args), expr.type), size, after)

    def put_before(expr: Call, stage: int) -> Ref:
        while len(stages) <= stage:
            stages.append([])
        name = next((name for name, there in stages[stage] if there == expr), None)
        if name is None:
            name = f"#stage{stage}.{len(stages[stage])}"
            stages[stage].append((name, expr))
        return Ref(name, expr.type)

    exprs = tuple(map(_in_parts, exprs))
    for call in calls(exprs):
        if call not in known:
            known[call] = visit(call)
    finals = tuple(staged(expr).expr for expr in exprs)
    return tuple(tuple(stage) for stage in stages), finals


def _in_parts(expr: Expr) -> Expr:
    """The expression with the last branches of a long CASE as a CASE in its ELSE, and so on."""

    def cut(call: Call, args: tuple[Expr, ...]) -> Expr:
        most = 2 * _MOST_BRANCHES
        while call.function == "case" and len(args) > most + 1:
            args = (*args[: -most - 1], Call("case", args[-most - 1 :], call.type))
        return call if args == call.args else Call(call.function, args, call.type)

    return rebuilt(expr, lambda leaf: leaf, cut)


@lru_cache(maxsize=10_000)
def _copies(expr: Call) -> tuple[int, ...]:
    """How often the kernel of a call uses each of its arguments."""
    names = [f"#{place}" for place in range(len(expr.args))]
    args = [
        _compiled(arg) if isinstance(arg, Lit) else pl.col(name)
        for name, arg in zip(names, expr.args, strict=True)
    ]
    used = Counter(_built(expr, args).meta.root_names())
    return tuple(used[name] for name in names)


def evaluate_one(expr: Expr, row: Mapping[str, Scalar]) -> Scalar:
    """The value of an expression for one row: by its row form if it has one, else as a frame."""
    form = row_function((expr,))
    if form is not None:
        types = _types(expr)
        physical = (
            None if row[name] is None else to_physical(types[name])(row[name])
            for name in form.columns
        )
        return _python(form.call(*physical)[0], expr.type)
    columns = [pl.Series("#", [None])]
    for name, type_ in _types(expr).items():
        columns.append(pl.Series(name, [row[name]], dtype=type_.polars))
    value: Scalar = project(pl.DataFrame(columns), [("value", expr)]).item()
    return value


def _types(expr: Expr) -> dict[str, DataType]:
    read = [expr, *(arg for call in calls([expr]) for arg in call.args)]
    return {ref.name: ref.type for ref in read if isinstance(ref, Ref)}


def _python(value: Any, type_: DataType) -> Scalar:
    back = to_python(type_)
    made: Scalar = value if value is None or back is None else back(value)
    return made

"""References between a query and the queries inside it, before they are made joins.

Law: a reference is a call, so that nobody takes it for a column of a query's own rows, and none is
left in a finished plan. A query inside refers to columns of those around it: level 1 is the query
just around, level 2 the one around that. The query around refers to the value of a subquery, or to
whether any of its rows fulfils a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from viewkeep.expr import Call, Expr, Ref
from viewkeep.ops.functions import VOID
from viewkeep.plan.conditions import rewritten
from viewkeep.types import BOOLEAN, DataType

_PREFIX = "#outer"
_SCALAR, _ROWS, _COLUMN, _ANY = "#scalar:", "#rows:", "#column:", "#any:"
# An argument that is neither a constant, which would be folded, nor a column.
MARK = Call("#", (), VOID)


def outer(name: str, type_: DataType, level: int = 1) -> Call:
    """A reference to a column of a query around."""
    return Call(f"{_PREFIX}:{level}:{name}", (MARK,), type_)


def outward(expr: Expr) -> Expr:
    """An expression over rows as a query inside sees it."""
    if isinstance(expr, Ref):
        return outer(expr.name, expr.type)
    return replaced(expr, lambda level, name, type_: outer(name, type_, level + 1), outward)


def inward(expr: Expr, meaning: Callable[[str, DataType], Expr]) -> Expr:
    """An expression of a subquery as the query around says it, which knows its columns."""

    def found(level: int, name: str, type_: DataType) -> Expr:
        return meaning(name, type_) if level == 1 else outer(name, type_, level - 1)

    return replaced(expr, found)


def outers(expr: Expr, level: int = 1) -> Iterator[Ref]:
    """The columns of the query around at a level that an expression reads."""
    if isinstance(expr, Call):
        read = _read(expr)
        if read is not None and read[0] == level:
            yield Ref(read[1], expr.type)
        for arg in expr.args:
            yield from outers(arg, level)


def has_outer(expr: Expr) -> bool:
    """Whether an expression reads rows of any query around."""
    if not isinstance(expr, Call):
        return False
    return expr.function.startswith(_PREFIX) or any(has_outer(arg) for arg in expr.args)


def replaced(
    expr: Expr,
    found: Callable[[int, str, DataType], Expr],
    own: Callable[[Expr], Expr] = lambda expr: expr,
) -> Expr:
    """An expression with other references to outer rows, in canonical form again."""
    if isinstance(expr, Ref):
        return own(expr)
    if not isinstance(expr, Call):
        return expr
    read = _read(expr)
    if read is not None:
        return found(*read, expr.type)
    return _over(expr, [replaced(arg, found, own) for arg in expr.args])


def scalar(key: str, type_: DataType) -> Call:
    """The value of a subquery."""
    return Call(_SCALAR + key, (MARK,), type_)


def rows(key: str, types: Iterable[DataType]) -> Call:
    """The rows of a subquery: a call whose arguments are its columns."""
    columns = tuple(Call(f"{_COLUMN}{i}:{key}", (MARK,), t) for i, t in enumerate(types))
    return Call(_ROWS + key, columns, VOID)


def any_row(of: Call, condition: Expr) -> Call:
    """Whether a condition holds for any row of a subquery: TRUE, FALSE, or NULL as OR has it."""
    return Call(_ANY + of.function.removeprefix(_ROWS), (MARK, condition), BOOLEAN)


def scalar_key(expr: Expr) -> str | None:
    """The subquery that an expression is the value of."""
    return _after(_SCALAR, expr)


def any_key(expr: Expr) -> str | None:
    """The subquery whose rows an expression asks about."""
    return _after(_ANY, expr)


def has_subquery(expr: Expr) -> bool:
    """Whether an expression refers to a subquery."""
    if not isinstance(expr, Call):
        return False
    known = scalar_key(expr) or any_key(expr)
    return known is not None or any(has_subquery(arg) for arg in expr.args)


def with_columns_of(expr: Expr, columns: Sequence[Expr]) -> Expr:
    """A condition on the rows of a subquery, with its columns put in."""
    return filled(expr, lambda call: _column(call, columns))


def filled(expr: Expr, meaning: Callable[[Call], Expr | None]) -> Expr:
    """An expression with calls replaced where they have a meaning, in canonical form again."""
    if not isinstance(expr, Call):
        return expr
    found = meaning(expr)
    if found is not None:
        return found
    return _over(expr, [filled(arg, meaning) for arg in expr.args])


def _column(call: Call, columns: Sequence[Expr]) -> Expr | None:
    place = _after(_COLUMN, call)
    return None if place is None else columns[int(place.partition(":")[0])]


def _after(prefix: str, expr: Expr) -> str | None:
    if isinstance(expr, Call) and expr.function.startswith(prefix):
        return expr.function.removeprefix(prefix)
    return None


def _over(expr: Call, args: Sequence[Expr]) -> Expr:
    """A call of other arguments, in canonical form."""
    if tuple(args) == expr.args:
        return expr
    slots = tuple(Ref(f"?{place}", arg.type) for place, arg in enumerate(args))
    by = {slot.name: arg for slot, arg in zip(slots, args, strict=True)}
    return rewritten(Call(expr.function, slots, expr.type), by)


def _read(expr: Call) -> tuple[int, str] | None:
    if not expr.function.startswith(_PREFIX):
        return None
    _, level, name = expr.function.split(":", 2)
    return int(level), name

"""How many bytes an expression may make of a row, before it is computed.

Law: for expressions that can grow (`GROWING`), `most_bytes` is an upper bound for all texts that
the expression makes on its way, up to letters that take more bytes in another case. Others make at
most the bytes that they read, once for each time that they read them.
"""

from __future__ import annotations

from functools import lru_cache

from viewkeep.deferred import pl
from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.ops.functions.strings import LONGEST_REPEATED

GROWING = frozenset({"repeat", "space", "lpad", "rpad", "replace", "regexp_replace"})
_SMALL = 32.0  # bytes of a value that is no text, and of what a text takes besides


@lru_cache(maxsize=10_000)
def grows(expr: Expr) -> bool:
    """Whether an expression may make much more bytes than it reads."""
    if not isinstance(expr, Call):
        return False
    return expr.function in GROWING or any(grows(arg) for arg in expr.args)


@lru_cache(maxsize=10_000)
def reads(expr: Expr) -> int:
    """How often an expression reads a column."""
    if isinstance(expr, Call):
        return sum(reads(arg) for arg in expr.args)
    return int(isinstance(expr, Ref))


def most_bytes(expr: Expr) -> pl.Expr:
    """A bound, per row, on the bytes of all values that an expression makes."""
    known: dict[Expr, pl.Expr] = {}
    _bound(expr, known)
    return pl.sum_horizontal(known.values())


def constant_bytes(expr: Expr) -> int:
    """A bound on what an expression of constants makes; 0 if it makes no more than it reads."""
    return int(pl.select(most_bytes(expr)).item()) if grows(expr) else 0


def _bound(expr: Expr, known: dict[Expr, pl.Expr]) -> pl.Expr:
    """A bound on the bytes of an expression's value; `known` gets those of the calls in it."""
    if isinstance(expr, Lit):
        text = isinstance(expr.value, str | bytes)
        return pl.lit(4.0 * len(expr.value) if text else _SMALL)  # type: ignore[arg-type]
    if isinstance(expr, Ref):
        return _read(expr)
    if expr not in known:
        known[expr] = _made(expr, [_bound(arg, known) for arg in expr.args])
    return known[expr]


def _read(expr: Ref) -> pl.Expr:
    column = pl.col(expr.name)
    if expr.type.is_array:
        size = column.list.len() * _SMALL
    elif expr.type.polars == pl.String:
        size = column.str.len_bytes() + _SMALL
    elif expr.type.polars == pl.Binary:
        size = column.bin.size() + _SMALL
    else:
        return pl.lit(_SMALL)
    return size.cast(pl.Float64).fill_null(0.0)


def _made(expr: Call, args: list[pl.Expr]) -> pl.Expr:
    match expr.function:
        case "repeat":
            return (args[0] * _number(expr.args[1])).clip(0.0, LONGEST_REPEATED) + _SMALL
        case "space":
            return _number(expr.args[0]).clip(0.0, LONGEST_REPEATED) + _SMALL
        case "lpad" | "rpad":
            return args[0] + (4.0 * _number(expr.args[1])).clip(0.0, LONGEST_REPEATED)
        case "replace":
            return args[0] * (1.0 + args[2]) if len(args) > 2 else args[0]
        case "regexp_replace":
            # There are matches at all places at most, and all groups of all are parts of the text.
            return (1.0 + 2.0 * args[0]) * args[2]
    return pl.sum_horizontal(pl.lit(_SMALL), *args)


def _number(expr: Expr) -> pl.Expr:
    """A bound on a count, which is exact where it is a constant or a column."""
    if isinstance(expr, Lit) and isinstance(expr.value, int):
        return pl.lit(float(expr.value))
    if isinstance(expr, Ref):
        return pl.col(expr.name).cast(pl.Float64).fill_null(0.0)
    return pl.lit(float(LONGEST_REPEATED))

"""Integers as bits in two's complement.

Law: an INT has 32 bits and a BIGINT 64, the result those of the wider argument; shifts count modulo
the width, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from viewkeep.deferred import pl
from viewkeep.ops.functions.coercion import VOID, accepts, integer_of
from viewkeep.ops.functions.function import Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.rowform import RowForm, RowSite, wrapped
from viewkeep.ops.functions.signatures import mismatch
from viewkeep.types import BIGINT, BOOLEAN, INT, DataType


def _integers(name: str, count: int) -> Resolve:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) != count or not all(t.is_integer or t == VOID for t in given):
            raise mismatch(name, given, "INT or BIGINT")
        type_ = BIGINT if BIGINT in given else INT
        return (type_,) * count, type_

    return resolve


def _shift(name: str) -> Resolve:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) != 2 or not all(accepts(t, INT) for t in given):
            raise mismatch(name, given, "an integer and a number of bits")
        type_ = integer_of(given[0]) if given[0].is_integer else INT
        return (type_, INT), type_

    return resolve


def _count_type(given: Sequence[DataType], constants: Constants) -> Signature:
    if len(given) != 1 or not (given[0].is_integer or given[0] in (BOOLEAN, VOID)):
        raise mismatch("bit_count", given, "one integer or BOOLEAN")
    return (BIGINT if given[0] != BOOLEAN else BOOLEAN,), INT


def _shifted(left: bool) -> Callable[[Site], pl.Expr]:
    def build(site: Site) -> pl.Expr:
        wide = site.result == BIGINT
        by = site.args[1] & pl.lit(63 if wide else 31, dtype=pl.Int32)
        # 2**63 is out of reach of a BIGINT, so the factor wraps to its least value, as the bits do.
        factor = pl.lit(2, dtype=pl.Int128).pow(by).cast(pl.Int64, wrap_numerical=True)
        if left:
            moved = site.first.cast(pl.Int64) * factor
            return moved.cast(site.result.polars, wrap_numerical=True)
        over = site.first.cast(pl.Int128) // pl.lit(2, dtype=pl.Int128).pow(by)
        return over.cast(site.result.polars)

    return build


def _binary(
    name: str, kernel: Callable[[pl.Expr, pl.Expr], pl.Expr], doc: str, sign: str
) -> Function:
    return Function(
        name,
        _integers(name, 2),
        lambda s: kernel(s.args[0], s.args[1]),
        doc,
        f"6 {sign} 3",
        row=lambda s: f"{s.args[0]} {sign} {s.args[1]}",
    )


def _row_shifted(sign: str) -> RowForm:
    def form(site: RowSite) -> str:
        by = f"({site.args[1]} & {63 if site.result == BIGINT else 31})"
        return wrapped(f"{site.first} {sign} {by}", site.result)

    return form


FUNCTIONS: tuple[Function, ...] = (
    _binary("bitand", lambda a, b: a & b, "The bits set in both.", "&"),
    _binary("bitor", lambda a, b: a | b, "The bits set in either.", "|"),
    _binary("bitxor", lambda a, b: a ^ b, "The bits set in one but not in both.", "^"),
    Function(
        "bitnot",
        _integers("bitnot", 1),
        lambda s: ~s.first,
        "Every bit turned.",
        "~5",
        row=lambda s: f"~{s.first}",
    ),
    Function(
        "shiftleft",
        _shift("shiftleft"),
        _shifted(True),
        "The bits moved towards the sign by a number of places.",
        "shiftleft(1, 4)",
        row=_row_shifted("<<"),
    ),
    Function(
        "shiftright",
        _shift("shiftright"),
        _shifted(False),
        "The bits moved away from the sign, which fills the room.",
        "shiftright(-16, 2)",
        row=_row_shifted(">>"),
    ),
    Function(
        "bit_count",
        _count_type,
        lambda s: s.first.cast(pl.Int64).bitwise_count_ones().cast(pl.Int32),
        "How many bits are set in the 64 bits of it.",
        "bit_count(7)",
        row=lambda s: f"({s.first} & {2**64 - 1:#x}).bit_count()",
    ),
)

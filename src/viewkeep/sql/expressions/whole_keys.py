"""Predicates that name whole keys, so that a statement reads rows by key instead of scanning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

from viewkeep.expr import Call, Expr, Lit, Ref, Scalar
from viewkeep.sql.expressions.canonical import conjuncts
from viewkeep.types import Column


def key_values(predicate: Expr | None, key: Sequence[Column]) -> list[tuple[Scalar, ...]] | None:
    """The only keys for which a predicate can be true, each once; None if it names no whole keys.

    Every key column must be compared with constants by = or IN. Other conditions may stand beside
    them: the keys returned are those worth reading, and the predicate still has to be checked.
    """
    if predicate is None or not key:
        return None
    options: dict[str, list[Scalar]] = {}
    for part in conjuncts(predicate):
        if isinstance(part, Call) and part.function in ("eq", "in"):
            target, *rest = part.args
            if isinstance(target, Ref) and target.name not in options:
                values = [arg.value for arg in rest if isinstance(arg, Lit)]
                if len(values) == len(rest):
                    options[target.name] = _different(values)
    if any(column.name not in options for column in key):
        return None
    return list(product(*(options[column.name] for column in key)))


def _different(values: Iterable[Scalar]) -> list[Scalar]:
    """The values without NULL, which equals nothing, and each once: 0.0 is -0.0, NaN is NaN."""
    found: dict[Scalar, None] = {}
    for value in values:
        if isinstance(value, float):
            value = math.nan if math.isnan(value) else value + 0.0
        if value is not None:
            found[value] = None
    return list(found)

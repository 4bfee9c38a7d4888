"""Predicates that name whole keys, so that a statement reads rows by key instead of scanning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from viewkeep.expr import Call, Expr, Lit, Ref, Scalar
from viewkeep.sql.expressions import conjuncts
from viewkeep.types import Column


def key_values(predicate: Expr | None, key: Sequence[Column]) -> list[tuple[Scalar, ...]] | None:
    """The only keys for which a predicate can be true; None if it does not name whole keys.

    Every key column must be compared with constants by = or IN. Other conditions may stand beside
    them: the keys returned are those worth reading, and the predicate still has to be checked.
    """
    if predicate is None:
        return None
    options: dict[str, list[Scalar]] = {}
    for part in conjuncts(predicate):
        if isinstance(part, Call) and part.function in ("eq", "in"):
            target, *rest = part.args
            if isinstance(target, Ref) and target.name not in options:
                values = [arg.value for arg in rest if isinstance(arg, Lit)]
                if len(values) == len(rest):
                    options[target.name] = [value for value in values if value is not None]
    if any(column.name not in options for column in key):
        return None
    return list(product(*(options[column.name] for column in key)))

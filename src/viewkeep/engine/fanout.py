"""One delta for many feeds: the predicates of all of them are evaluated together.

Law: each feed gets exactly the rows that its own steps would give it. A call of the expression
engine costs about 0.1 ms whatever it computes, so hundreds of selections over one table are one
call here, and a feed that gets no row costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from viewkeep.codec.keys import hash_keys
from viewkeep.delta import HOME, KEY, WEIGHT
from viewkeep.engine.steps import run_steps
from viewkeep.expr import Expr
from viewkeep.ops.evaluate import compute
from viewkeep.plan.program import Feed, Operator

_TOGETHER = 200  # predicates in one call


def fan_out(
    delta: pl.DataFrame, consumers: Sequence[tuple[Operator, Feed]], shards: int
) -> Iterator[tuple[Operator, Feed, pl.DataFrame]]:
    """The rows that come to each feed out of a delta of their producer, where there are any.

    Feeds that are local get the shard of each row too.
    """
    if delta.height == 0:
        return
    if any(feed.local for _, feed in consumers):
        homes = hash_keys(delta[KEY].to_list()) % np.uint32(shards)
        delta = delta.with_columns(pl.Series(HOME, homes))
    masks = _masks(delta, [p for _, feed in consumers if (p := _first(feed)) is not None])
    carried = [name for name in (KEY, HOME, WEIGHT) if name in delta.columns]
    for operator, feed in consumers:
        needed, steps = feed.narrowed
        predicate = _first(feed)
        rows = delta.select(*sorted(needed), *carried)
        if predicate is not None:
            mask = masks[predicate]
            if mask is None:
                continue
            rows, steps = rows.filter(mask), steps[1:]
        rows = run_steps(steps, rows)
        if rows.height:
            yield operator, feed, rows


def _first(feed: Feed) -> Expr | None:
    """The predicate that a feed begins with."""
    steps = feed.narrowed[1]
    return steps[0] if steps and not isinstance(steps[0], tuple) else None


def _masks(delta: pl.DataFrame, predicates: Sequence[Expr]) -> dict[Expr, pl.Series | None]:
    """The rows for which each predicate is TRUE; None where it is for none."""
    different = list(dict.fromkeys(predicates))
    made: dict[Expr, pl.Series | None] = {}
    for start in range(0, len(different), _TOGETHER):
        some = different[start : start + _TOGETHER]
        for predicate, mask in zip(some, compute(delta, some), strict=True):
            made[predicate] = mask if mask.any() else None
    return made

"""One delta for many feeds: what they have in common is computed once.

Law: each feed gets exactly the rows that its own steps would give it. A call of the expression
engine costs about 0.1 ms whatever it computes, so hundreds of selections over one table are one
call here, and a feed that gets no row costs next to nothing. Views that select rows of one table
hold the same keys and the same bytes, which are put in order and encoded before they are selected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from viewkeep.codec.key_order import hash_keys, order, rising
from viewkeep.codec.physical import packed_series
from viewkeep.codec.rows import RowCodec
from viewkeep.deferred import np, pl
from viewkeep.delta import HOME, KEY, WEIGHT
from viewkeep.engine.steps import run_steps
from viewkeep.expr import Expr
from viewkeep.ops.arrange import ENCODED
from viewkeep.ops.evaluate import compute
from viewkeep.plan.program import Operator, OperatorFeed, Step

_TOGETHER = 200  # predicates in one call


class _Share(NamedTuple):
    """What a feed gets of a delta: so many rows, those of a mask if there is one, and its steps."""

    operator: Operator
    feed: OperatorFeed
    mask: pl.Series | None
    height: int
    steps: tuple[Step, ...]

    @property
    def kept_whole(self) -> bool:
        """Whether the rows are stored as they are, in the shard where they are."""
        return self.feed.local and not self.steps


def fan_out(
    delta: pl.DataFrame, consumers: Sequence[tuple[Operator, OperatorFeed]], shards: int
) -> Iterator[tuple[Operator, OperatorFeed, pl.DataFrame]]:
    """The rows that come to each feed out of a delta of their producer, where there are any.

    Feeds that are local get the shard of each row too; and if many of them keep the same rows, the
    bytes of the rows in place of their columns.
    """
    if delta.height == 0:
        return
    local = sum(feed.local for _, feed in consumers)
    if local > 1 and not rising(delta[KEY]):
        delta = delta[order(packed_series(delta[KEY]))]
    columns = {column.name: column for column in delta}
    if local:
        homes = hash_keys(columns[KEY]) % np.uint32(shards)
        columns[HOME] = pl.Series(HOME, homes)
    shares = list(_shares(delta, consumers))
    encoded = _encoded(delta, shares)
    carried = [columns[name] for name in (KEY, HOME, WEIGHT) if name in columns]
    for operator, feed, mask, _, steps in shares:
        row = encoded.get(operator.id)
        own = [columns[name] for name in sorted(feed.narrowed[0])] if row is None else [row]
        taken = [*own, *carried]
        if mask is not None:
            taken = [column.filter(mask) for column in taken]
        rows = run_steps(steps, pl.DataFrame(taken))
        if rows.height:
            yield operator, feed, rows


def _shares(
    delta: pl.DataFrame, consumers: Sequence[tuple[Operator, OperatorFeed]]
) -> Iterator[_Share]:
    """The share of each feed that gets any rows."""
    steps = [feed.narrowed[1] for _, feed in consumers]
    masks = _masks(delta, [_predicate(some) for some in steps])
    for (operator, feed), some, mask in zip(consumers, steps, masks, strict=True):
        if mask is None:
            yield _Share(operator, feed, None, delta.height, some)
        elif height := int(mask.sum()):
            yield _Share(operator, feed, mask, height, some[1:])


def _predicate(steps: Sequence[Step]) -> Expr | None:
    """The predicate that steps begin with."""
    return steps[0] if steps and not isinstance(steps[0], tuple) else None


def _masks(delta: pl.DataFrame, predicates: Sequence[Expr | None]) -> list[pl.Series | None]:
    """The rows for which each predicate is TRUE; equal predicates are computed once."""
    places: dict[Expr, int] = {}
    found = [None if p is None else places.setdefault(p, len(places)) for p in predicates]
    different, made = list(places), list[pl.Series]()
    for start in range(0, len(different), _TOGETHER):
        made += compute(delta, different[start : start + _TOGETHER])
    return [None if place is None else made[place] for place in found]


def _encoded(delta: pl.DataFrame, shares: Sequence[_Share]) -> dict[str, pl.Series]:
    """The bytes of all rows, for operators that together keep more rows than there are."""
    codecs = {s.operator.id: s.operator.rows_table.row_codec for s in shares if s.kept_whole}
    wanted = Counter[RowCodec]()
    for share in shares:
        if share.kept_whole:
            wanted[codecs[share.operator.id]] += share.height
    made = {
        codec: codec.encode_series(delta, ENCODED)
        for codec, count in wanted.items()
        if count > delta.height
    }
    return {operator: made[codec] for operator, codec in codecs.items() if codec in made}

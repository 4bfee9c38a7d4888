"""What travels between levels: an operator's input, combined at the sender and split by shard.

An operator's input is a set of named frames. Every frame has a `#key` column; equal rows of one
frame may be added up anywhere on the way without changing the result, which is what makes the
map-side combine and the re-distribution free to regroup them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from viewkeep.codec.keys import KeyCodec, key_series
from viewkeep.codec.many import hash_keys
from viewkeep.codec.packed import Packed
from viewkeep.delta import KEY, WEIGHT, chosen, without
from viewkeep.engine.amounts import amount
from viewkeep.engine.frames import Body, to_body
from viewkeep.engine.spool import Message
from viewkeep.ops.aggregate import gains
from viewkeep.ops.arrange import ENCODED, ROW, net_rows
from viewkeep.ops.ordered import added_up, mostly_differ
from viewkeep.ops.totals import merge
from viewkeep.plan.nodes import Aggregate, Arrange
from viewkeep.plan.program import Operator

REPORT = -1  # the "shard" of reports, which travel on to the driver
GROUPS, ROWS, VALUES = "groups", "rows", "values"
SHARD = "#shard"
_COMBINE_AT = 100_000  # of one frame, as amounts
_SEND_AT = 400_000  # of all frames

Frames: TypeAlias = dict[str, pl.DataFrame]
Item: TypeAlias = tuple[str, str, Body]  # target operator, name of the frame, the frame


def pack(operator: Operator, delta: pl.DataFrame, shards: int) -> Frames:
    """A delta of the operator's input as its frames, with each row's shard.

    They are combined, but for values that are mostly different.
    """
    node = operator.node
    if isinstance(node, Arrange):
        return {ROWS: _rows_frame(operator, delta, shards)}
    assert isinstance(node, Aggregate)
    keys = [(key.name, key.expr) for key in node.keys]
    gain = gains(delta, keys, operator.accumulators, apart=True)
    frames = {GROUPS: _keyed(operator, gain.groups, shards)}
    names = [key.name for key in node.keys]
    for i, values in enumerate(gain.values):
        frames[values_name(i)] = without(_keyed(operator, values, shards), *names)
    return frames


def combine(operator: Operator, name: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Frames of one name put together, with equal rows added up."""
    whole = parts[0] if len(parts) == 1 else pl.concat(parts)
    node = operator.node
    if operator.ports:
        return whole
    if isinstance(node, Arrange):
        return whole if len(parts) == 1 else net_rows(whole).select(whole.columns)
    assert isinstance(node, Aggregate)
    if name == GROUPS:
        carried = [key.name for key in node.keys]
        carried += [SHARD] if SHARD in whole.columns else []
        kept = operator.accumulators
        return merge(whole, KEY, carried, kept.plain, kept.rows)
    if len(parts) == 1:
        return whole
    return added_up(whole)


@dataclass
class _Held:
    """What an outbox holds of one frame. Beyond the amount `limit` it is combined; None: never."""

    operator: Operator
    name: str
    limit: int | None
    parts: list[pl.DataFrame] = field(default_factory=list)
    amount: int = 0

    def take(self, frame: pl.DataFrame) -> None:
        self.parts.append(frame)
        self.amount += amount(frame)
        if self.limit is None or self.amount <= self.limit:
            return
        if len(self.parts) > 1 and self.name.startswith(VALUES) and mostly_differ(self.parts):
            self.limit = None
            return
        whole = combine(self.operator, self.name, self.parts)
        self.parts, self.amount = [whole], amount(whole)
        self.limit = max(_COMBINE_AT, 2 * self.amount)

    def whole(self) -> pl.DataFrame:
        if self.limit is None:
            return pl.concat(self.parts)
        return combine(self.operator, self.name, self.parts)


class Outbox:
    """Collects the inputs of operators that run at higher levels and sends them, a blob per shard.

    What is held is combined as it grows, so that its size is that of the result. Values of groups
    that turn out to be mostly different are not: that costs as much as receiving them.
    """

    def __init__(self, shards: int):
        self.shards = shards
        self._frames: dict[tuple[str, str], _Held] = {}
        self._amount = 0  # of all of them

    def add(self, operator: Operator, delta: pl.DataFrame) -> None:
        """Take a delta of an operator's input."""
        if delta.height == 0:
            return
        for name, frame in pack(operator, delta, self.shards).items():
            self.put(operator, name, frame)

    def forward(self, operator: Operator, port: int, rows: pl.DataFrame, shard: int) -> None:
        """Take changes of the table that a reader of a higher level reads on this shard."""
        if rows.height:
            here = pl.Series(SHARD, np.full(rows.height, shard, np.uint32))
            self.put(operator, port_name(port), rows.hstack([here]))

    def put(self, operator: Operator, name: str, frame: pl.DataFrame) -> None:
        """Take a frame of an operator's input, with each row's shard."""
        place = (operator.id, name)
        if place not in self._frames:
            self._frames[place] = _Held(operator, name, _COMBINE_AT)
        held = self._frames[place]
        before = held.amount
        held.take(frame)
        self._amount += held.amount - before

    @property
    def full(self) -> bool:
        """Whether enough is held that it should be sent on."""
        return self._amount > _SEND_AT

    def messages(self) -> Iterator[Message]:
        """Everything taken, as one blob per shard."""
        blobs: dict[int, list[Item]] = {}
        for target, name in list(self._frames):
            frame = self._frames.pop((target, name)).whole()
            shards = frame[SHARD].to_numpy()
            body = without(frame, SHARD)
            present = np.unique(shards).tolist()
            for shard in present:
                some = chosen(body, shards == shard) if len(present) > 1 else body
                blobs.setdefault(shard, []).append((target, name, to_body(some)))
        self._amount = 0
        while blobs:
            shard = next(iter(blobs))
            yield shard, pickle.dumps(blobs.pop(shard), protocol=5)


def values_name(place: int) -> str:
    """The name of the frame with the values for an ordered table of an Aggregate."""
    return f"{VALUES}{place}"


def port_name(port: int) -> str:
    """The name of the frame with the changes at a port of a reader."""
    return f"port{port}"


def shards_of(operator: Operator, frame: pl.DataFrame, shards: int) -> NDArray[np.uint32]:
    """The shard of each row, by the columns of its operator's zone."""
    table = operator.rows_table
    keys = encode_keys(table.shard_codec, frame, table.shard_by)
    return hash_keys(keys) % np.uint32(shards)


def encode_keys(codec: KeyCodec, frame: pl.DataFrame, names: Sequence[str]) -> list[bytes] | Packed:
    """The key of each row; the key of no columns is empty."""
    return codec.pack([frame[name] for name in names]) if names else [b""] * frame.height


def encode_rows(operator: Operator, delta: pl.DataFrame) -> pl.Series:
    """The row bytes of an Arrange's input rows, if they were not made before."""
    if ENCODED in delta.columns:
        return delta[ENCODED].alias(ROW)
    return operator.rows_table.row_codec.encode_series(delta, ROW)


def _rows_frame(operator: Operator, delta: pl.DataFrame, shards: int) -> pl.DataFrame:
    return pl.DataFrame(
        [
            operator.rows_table.keys(delta, KEY),
            encode_rows(operator, delta),
            delta[WEIGHT],
            pl.Series(SHARD, shards_of(operator, delta, shards), pl.UInt32),
        ]
    )


def _keyed(operator: Operator, frame: pl.DataFrame, shards: int) -> pl.DataFrame:
    """The frame with the encoded key of each row's group, and its shard."""
    assert isinstance(operator.node, Aggregate)
    keys = encode_keys(operator.rows_table.key_codec, frame, operator.node.row_key)
    shard = pl.Series(SHARD, hash_keys(keys) % np.uint32(shards), pl.UInt32)
    return frame.hstack([key_series(keys, KEY), shard])

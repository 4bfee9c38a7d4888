"""What travels between levels: an operator's input, combined at the sender and split by shard.

An operator's input is a set of named frames. Every frame has a `#key` column; equal rows of one
frame may be added up anywhere on the way without changing the result, which is what makes the
map-side combine and the re-distribution free to regroup them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.packed import Packed
from viewkeep.deferred import np, pl
from viewkeep.delta import chosen, without
from viewkeep.engine.amounts import amount
from viewkeep.engine.frames import Body, to_body
from viewkeep.engine.spool import Message
from viewkeep.ops.aggregates.ordered import mostly_differ
from viewkeep.plan.program import Operator

REPORT = -1  # the "shard" of reports, which travel on to the driver
GROUPS, ROWS, VALUES = "groups", "rows", "values"
SHARD = "#shard"
_COMBINE_AT = 100_000  # of one frame, as amounts
_SEND_AT = 400_000  # of all frames

Frames: TypeAlias = "dict[str, pl.DataFrame]"
Item: TypeAlias = tuple[str, str, Body]  # target operator, name of the frame, the frame


class Exchanged(Protocol):
    """How an operator's input is sent: as frames with a shard for each row, which add up."""

    @property
    def operator(self) -> Operator: ...

    def pack(self, delta: pl.DataFrame, shards: int) -> Frames:
        """A delta of the operator's input as its frames, with each row's shard."""
        ...

    def combine(self, name: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """Frames of one name put together, with equal rows added up."""
        ...


@dataclass
class _Held:
    """What an outbox holds of one frame. Beyond the amount `limit` it is combined; None: never."""

    to: Exchanged
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
        whole = self.to.combine(self.name, self.parts)
        self.parts, self.amount = [whole], amount(whole)
        self.limit = max(_COMBINE_AT, 2 * self.amount)

    def whole(self) -> pl.DataFrame:
        if self.limit is None:
            return pl.concat(self.parts)
        return self.to.combine(self.name, self.parts)


class Outbox:
    """Collects the inputs of operators that run at higher levels and sends them, a blob per shard.

    What is held is combined as it grows, so that its size is that of the result. Values of groups
    that turn out to be mostly different are not: that costs as much as receiving them.
    """

    def __init__(self, shards: int):
        self.shards = shards
        self._frames: dict[tuple[str, str], _Held] = {}
        self._amount = 0  # of all of them

    def add(self, to: Exchanged, delta: pl.DataFrame) -> None:
        """Take a delta of an operator's input."""
        if delta.height == 0:
            return
        for name, frame in to.pack(delta, self.shards).items():
            self.put(to, name, frame)

    def forward(self, to: Exchanged, port: int, rows: pl.DataFrame, shard: int) -> None:
        """Take changes of the table that a reader of a higher level reads on this shard."""
        if rows.height:
            here = pl.Series(SHARD, np.full(rows.height, shard, np.uint32))
            self.put(to, port_name(port), rows.hstack([here]))

    def put(self, to: Exchanged, name: str, frame: pl.DataFrame) -> None:
        """Take a frame of an operator's input, with each row's shard."""
        place = (to.operator.id, name)
        if place not in self._frames:
            self._frames[place] = _Held(to, name, _COMBINE_AT)
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


def encode_keys(codec: KeyCodec, frame: pl.DataFrame, names: Sequence[str]) -> list[bytes] | Packed:
    """The key of each row; the key of no columns is empty."""
    return codec.pack([frame[name] for name in names]) if names else [b""] * frame.height

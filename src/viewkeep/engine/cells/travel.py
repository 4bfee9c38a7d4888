"""Cell operations on their way to the shards of their rows.

Law: what travels are joins of operations: the state that they make of each row, and the ranges that
they delete. So a sender may merge any of them, and a receiver any of those. A range deletion goes
to every shard, since rows are spread by their whole key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from viewkeep.cells import CellKind, CellOperation, CellRules
from viewkeep.codec.key_order import hash_keys
from viewkeep.codec.keys import KEPT
from viewkeep.deferred import np, pl
from viewkeep.delta import KEY
from viewkeep.engine.exchange import SHARD, Frames
from viewkeep.errors import StoreError
from viewkeep.ops.cells import form, ranges, row
from viewkeep.ops.cells.ranges import DeletedRanges, Segment
from viewkeep.ops.cells.row import RowState
from viewkeep.stores.contract import ROW_BYTES

CELLS, RANGES = "cells", "ranges"
STATE, STOP, THROUGH = "#state", "#stop", "#through"


class CellBox:
    """Operations on their way: the state that they make of each row, and the ranges they delete."""

    def __init__(self) -> None:
        self.rows: dict[bytes, RowState] = {}
        self.segments: list[Segment] = []
        self.amount = 0  # of operations, as amounts

    def __len__(self) -> int:
        return len(self.rows) + len(self.segments)

    def take(self, operation: CellOperation, rules: CellRules) -> None:
        """Merge one operation in."""
        if operation.kind is CellKind.DELETE_RANGE:
            for bound in (operation.key, operation.stop or b""):
                if len(bound) > KEPT:
                    raise StoreError(
                        f"a range deletion has a bound of {len(bound)} bytes; longer ones than "
                        f"{KEPT} do not tell cut keys apart; delete the rows one by one"
                    )
            self.segments.append(Segment(operation.key, operation.stop, operation.timestamp))
            self.amount += 1
            return
        size = sum(len(value) for _, value in operation.cells if value is not None)
        self.amount += max(1, (size + len(operation.key)) // ROW_BYTES)
        self.join(operation.key, row.of(operation, rules), rules)

    def join(self, key: bytes, state: RowState, rules: CellRules) -> None:
        """Merge what operations make of one row."""
        before = self.rows.get(key)
        self.rows[key] = state if before is None else row.joined(before, state, rules)

    @property
    def ranges(self) -> DeletedRanges:
        """The ranges as one step function."""
        return ranges.highest(self.segments)


def combined(boxes: Sequence[CellBox], rules: CellRules) -> CellBox:
    """Boxes as one."""
    if len(boxes) == 1:
        return boxes[0]
    whole = CellBox()
    for box in boxes:
        for key, state in box.rows.items():
            whole.join(key, state, rules)
        whole.segments += box.segments
        whole.amount += box.amount
    whole.segments = list(whole.ranges.segments)
    return whole


def spread(box: CellBox, shards: int) -> Iterator[tuple[int, CellBox]]:
    """What goes to each shard."""
    made: dict[int, CellBox] = {}
    keys = list(box.rows)
    for key, home in zip(keys, hash_keys(keys) % np.uint32(shards), strict=True):
        made.setdefault(int(home), CellBox()).rows[key] = box.rows[key]
    if box.segments:
        for shard in range(shards):
            made.setdefault(shard, CellBox()).segments = list(box.ranges.segments)
    yield from sorted(made.items())


def frames_of(box: CellBox, shards: int) -> Frames:
    """A box as frames, with the shard of each row."""
    frames: Frames = {}
    if box.rows:
        keys = sorted(box.rows)
        homes = pl.Series(SHARD, hash_keys(keys) % np.uint32(shards), pl.UInt32)
        states = [form.pack(box.rows[key]) for key in keys]
        frames[CELLS] = pl.DataFrame(
            [pl.Series(KEY, keys, pl.Binary), pl.Series(STATE, states, pl.Binary), homes]
        )
    if box.segments:
        segments = box.ranges.segments
        one = pl.DataFrame(
            [
                pl.Series(KEY, [segment.start for segment in segments], pl.Binary),
                pl.Series(STOP, [segment.stop for segment in segments], pl.Binary),
                pl.Series(THROUGH, [segment.through for segment in segments], pl.Int64),
            ]
        )
        everywhere = (pl.Series(SHARD, np.full(one.height, s, np.uint32)) for s in range(shards))
        frames[RANGES] = pl.concat([one.hstack([shard]) for shard in everywhere])
    return frames


def rows_in(frames: Iterable[pl.DataFrame], rules: CellRules) -> dict[bytes, RowState]:
    """The states in frames, merged."""
    box = CellBox()
    for frame in frames:
        for key, data in zip(frame[KEY].to_list(), frame[STATE].to_list(), strict=True):
            box.join(key, form.unpack(data), rules)
    return box.rows


def ranges_in(frames: Iterable[pl.DataFrame]) -> DeletedRanges:
    """The range deletions in frames, merged."""
    return ranges.highest(
        Segment(*segment)
        for frame in frames
        for segment in frame.select(KEY, STOP, THROUGH).iter_rows()
    )


def merged_frame(frame: pl.DataFrame, rules: CellRules) -> pl.DataFrame:
    """A frame of states with one for each key of a shard."""
    if SHARD not in frame.columns or frame.select(SHARD, KEY).n_unique() == frame.height:
        return frame
    made: dict[tuple[int, bytes], RowState | bytes] = {}
    for shard, key, data in frame.select(SHARD, KEY, STATE).iter_rows():
        before = made.get((shard, key))
        if before is None:
            made[shard, key] = data
            continue
        known = form.unpack(before) if isinstance(before, bytes) else before
        made[shard, key] = row.joined(known, form.unpack(data), rules)
    bytes_of = [s if isinstance(s, bytes) else form.pack(s) for s in made.values()]
    return pl.DataFrame(
        [
            pl.Series(KEY, [key for _, key in made], pl.Binary),
            pl.Series(STATE, bytes_of, pl.Binary),
            pl.Series(SHARD, [shard for shard, _ in made], pl.UInt32),
        ]
    )

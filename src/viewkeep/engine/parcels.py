"""What travels between levels: an operator's input, combined at the sender and split by shard.

An operator's input is a set of named frames. Every frame has a `#key` column; equal rows of one
frame may be added up anywhere on the way without changing the result, which is what makes the
map-side combine and the re-distribution free to regroup them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from viewkeep.codec.keys import KeyCodec, hash_keys
from viewkeep.delta import KEY, WEIGHT, consolidate
from viewkeep.ops.aggregate import TIMES, VALUE, gains
from viewkeep.ops.arrange import ROW
from viewkeep.ops.totals import merge
from viewkeep.plan.nodes import Aggregate, Arrange
from viewkeep.plan.program import Operator

Message: TypeAlias = tuple[int, bytes]  # target shard, blob
REPORT = -1  # the "shard" of reports, which travel on to the driver
GROUPS, ROWS = "groups", "rows"
SHARD = "#shard"

Frames: TypeAlias = dict[str, pl.DataFrame]


def pack(operator: Operator, delta: pl.DataFrame, shards: int) -> Frames:
    """A delta of the operator's input as its frames, combined, with each row's shard."""
    node = operator.node
    if isinstance(node, Arrange):
        return {ROWS: _rows_frame(operator, delta, shards)}
    gain = gains(delta, [(key.name, key.expr) for key in node.keys], operator.accumulators)
    frames = {GROUPS: _keyed(operator, gain.groups, shards)}
    for i, values in enumerate(gain.values):
        frames[f"values{i}"] = _keyed(operator, values, shards)
    return frames


def combine(operator: Operator, name: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Frames of one name put together, with equal rows added up."""
    whole = parts[0] if len(parts) == 1 else pl.concat(parts)
    node = operator.node
    if isinstance(node, Arrange):
        if len(parts) == 1:
            return whole
        by = [column for column in whole.columns if column != WEIGHT]
        return consolidate(whole, by).select(whole.columns)
    carried = [key.name for key in node.keys]
    carried += [SHARD] if SHARD in whole.columns else []
    kept = operator.accumulators
    if name == GROUPS:
        return merge(whole, KEY, carried, kept.plain, kept.rows)
    if len(parts) == 1:
        return whole
    made = [pl.col(column).first() for column in carried]
    summed = whole.group_by(KEY, VALUE).agg(*made, pl.col(TIMES).sum())
    return summed.select(whole.columns)


class Outbox:
    """Collects the inputs of operators at higher levels and sends them, one blob per shard."""

    def __init__(self, shards: int):
        self.shards = shards
        self._parts: dict[tuple[str, str], tuple[Operator, list[pl.DataFrame]]] = {}

    def add(self, operator: Operator, delta: pl.DataFrame) -> None:
        """Take a delta of an operator's input."""
        if delta.height == 0:
            return
        for name, frame in pack(operator, delta, self.shards).items():
            _, parts = self._parts.setdefault((operator.id, name), (operator, []))
            parts.append(frame)

    def messages(self) -> Iterator[Message]:
        """Everything taken, as one blob per shard."""
        blobs: dict[int, list[tuple[str, str, bytes]]] = {}
        for (target, name), (operator, parts) in self._parts.items():
            frame = combine(operator, name, parts)
            shards = frame[SHARD].to_numpy()
            body = frame.drop(SHARD)
            for shard in np.unique(shards).tolist():
                chosen = body.filter(pl.Series(shards == shard))
                blobs.setdefault(shard, []).append((target, name, _to_ipc(chosen)))
        for shard, items in blobs.items():
            yield shard, pickle.dumps(items, protocol=5)
        self._parts.clear()


def unpack(blobs: Iterable[bytes]) -> dict[tuple[str, str], list[pl.DataFrame]]:
    """The frames in blobs for one shard, by operator and name."""
    found: dict[tuple[str, str], list[pl.DataFrame]] = {}
    for blob in blobs:
        for target, name, body in pickle.loads(blob):
            found.setdefault((target, name), []).append(_from_ipc(body))
    return found


def shards_of(operator: Operator, frame: pl.DataFrame, shards: int) -> NDArray[np.uint32]:
    """The shard of each row, by the columns of its operator's zone."""
    table = operator.rows_table
    keys = encode_keys(table.shard_codec, frame, table.shard_by)
    return hash_keys(keys) % np.uint32(shards)


def encode_keys(codec: KeyCodec, frame: pl.DataFrame, names: Sequence[str]) -> list[bytes]:
    """The key of each row; the key of no columns is empty."""
    return codec.encode([frame[name] for name in names]) if names else [b""] * frame.height


def encode_rows(operator: Operator, delta: pl.DataFrame) -> pl.Series:
    """The row bytes of an Arrange's input rows."""
    rows = operator.rows_table.row_codec.encode(delta)
    return pl.Series(ROW, rows, pl.Binary)


def _rows_frame(operator: Operator, delta: pl.DataFrame, shards: int) -> pl.DataFrame:
    table = operator.rows_table
    keys = encode_keys(table.key_codec, delta, table.key_names)
    return pl.DataFrame(
        [
            pl.Series(KEY, keys, pl.Binary),
            encode_rows(operator, delta),
            delta[WEIGHT],
            pl.Series(SHARD, shards_of(operator, delta, shards), pl.UInt32),
        ]
    )


def _keyed(operator: Operator, frame: pl.DataFrame, shards: int) -> pl.DataFrame:
    """The frame with the encoded key of each row's group, and its shard."""
    assert isinstance(operator.node, Aggregate)
    keys = encode_keys(operator.rows_table.key_codec, frame, operator.node.row_key)
    return frame.with_columns(
        pl.Series(KEY, keys, pl.Binary),
        pl.Series(SHARD, hash_keys(keys) % np.uint32(shards), pl.UInt32),
    )


def _to_ipc(frame: pl.DataFrame) -> bytes:
    sink = io.BytesIO()
    frame.write_ipc_stream(sink)
    return sink.getvalue()


def _from_ipc(body: bytes) -> pl.DataFrame:
    return pl.read_ipc_stream(io.BytesIO(body))

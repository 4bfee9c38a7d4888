"""Arrange: rows kept in a state table, under the key that its readers look for.

Law: a key identifies at most one row before and one after, so a consolidated delta has at most one
row of weight -1 and one of weight +1 under each key: the latter is put, a lone former deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeep.codec.key_order import hash_key, hash_keys
from viewkeep.codec.keys import GROUP_BYTES, MAX_KEY, bounded, group_prefix
from viewkeep.codec.rowsource import longest_key
from viewkeep.deferred import np, pl
from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine.budget import Budget
from viewkeep.engine.exchange import ROWS, SHARD, Frames, encode_keys
from viewkeep.engine.operators.executor import Fed
from viewkeep.engine.rows.delta import Boxes, Encoded, Rows
from viewkeep.engine.state import ShardState
from viewkeep.errors import PipelineError
from viewkeep.ops.arrange import ENCODED, ROW, changes_of, keyed, net_rows
from viewkeep.ops.rowcode import RowWriter
from viewkeep.plan.nodes import Arrange, Node
from viewkeep.plan.program import Operator


class ArrangeExecutor(Fed[Encoded]):
    """Runs an Arrange."""

    def new_box(self) -> Encoded:
        return []

    def size(self, box: Encoded) -> int:
        return len(box)

    def combined(self, boxes: Sequence[Encoded]) -> Encoded:
        return boxes[0] if len(boxes) == 1 else [row for box in boxes for row in box]

    def code(self) -> Iterator[tuple[str, str]]:
        codec = self.operator.rows_table.row_codec
        yield "row bytes", codec.packer.source
        yield "and back", codec.unpacker.source

    @classmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        assert isinstance(node, Arrange)
        return inputs[0].select([column.name for column in node.columns])

    def run_columns(self, state: ShardState, given: Frames, heard: bool) -> Iterator[pl.DataFrame]:
        table = self.operator.rows_table
        if ROWS not in given:
            return
        if not heard:
            state.stage(table, *changes_of(given[ROWS]))
            return
        net = net_rows(given[ROWS])
        state.stage(table, *keyed(net))
        if net.height:
            rows = table.row_codec.decode_series(net[ROW])
            yield rows.hstack([net[KEY], net[WEIGHT]])

    def run_rows(self, state: ShardState, boxes: Sequence[Encoded], heard: bool) -> Rows:
        table = self.operator.rows_table
        weights: dict[tuple[bytes, bytes], int] = {}
        for box in boxes:
            for key, row, weight in box:
                weights[key, row] = weights.get((key, row), 0) + weight
        net = [(key, row, weight) for (key, row), weight in weights.items() if weight]
        put: dict[bytes, bytes | None] = {key: row for key, row, weight in net if weight > 0}
        if len(put) < sum(weight > 0 for *_, weight in net) or any(w > 1 for *_, w in net):
            raise PipelineError("two rows of a view share one key: its input has doubled rows")
        for key, _, _ in net:
            put.setdefault(key, None)
        keys = sorted(put)
        state.stage(table, keys, [put[key] for key in keys])
        if not heard:
            return []
        unpack = table.row_codec.unpacker.call
        return [(key, unpack(row), weight) for key, row, weight in net]

    def write_input(self, writer: RowWriter, shard: str) -> None:
        table = self.operator.rows_table
        parts = [writer.column(name).source for name in table.key_names]
        cells = [writer.column(column.name).source for column in table.columns]
        leading, group = len(table.shard_by), table.group
        names, lines = writer.names, writer.lines
        names["PACK"], names["KEY"] = table.row_codec.packer.call, table.key_codec.packer.call
        lines.append(f"key = KEY({', '.join(parts)})")
        long = longest_key(table.key_codec.types)
        if not shard:
            names["HASH"] = hash_key
            by = "key"
            if leading < len(parts):
                names["SHARD_KEY"] = table.shard_codec.packer.call
                by = f"SHARD_KEY({', '.join(parts[:leading])})"
            if longest_key(table.shard_codec.types) >= MAX_KEY:
                names["BOUNDED"] = bounded
                by = f"BOUNDED({by})"
            lines.append(f"shard = HASH({by}) % shards")
            shard = "shard"
        if group and not table.unique_groups and long >= GROUP_BYTES:
            names["LONG"] = long_key
            names["GROUP_KEY"] = table.group_codec.packer.call
            names["REST_KEY"] = table.rest_codec.packer.call
            first, rest = ", ".join(parts[:group]), ", ".join(parts[group:])
            lines.append(f"if len(key) >= {GROUP_BYTES}:")
            lines.append(f"    key = LONG(GROUP_KEY({first}), REST_KEY({rest}))")
        elif long >= MAX_KEY:
            names["BOUNDED"] = bounded
            lines.append(f"if len(key) >= {MAX_KEY}: key = BOUNDED(key)")
        lines.append(f"boxes[{shard}].append((key, PACK({', '.join(cells)}), weight))")

    def pack(self, delta: pl.DataFrame, shards: int) -> Frames:
        table = self.operator.rows_table
        keys = encode_keys(table.shard_codec, delta, table.shard_by)
        return {
            ROWS: pl.DataFrame(
                [
                    table.keys(delta, KEY),
                    encode_rows(self.operator, delta),
                    delta[WEIGHT],
                    pl.Series(SHARD, hash_keys(keys) % np.uint32(shards), pl.UInt32),
                ]
            )
        }

    def combine(self, name: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
        whole = parts[0] if len(parts) == 1 else pl.concat(parts)
        return whole if len(parts) == 1 else net_rows(whole).select(whole.columns)

    def fill(self, boxes: Boxes[Encoded], frames: Frames) -> None:
        for frame in frames.values():
            columns = (frame[name].to_list() for name in (SHARD, KEY, ROW, WEIGHT))
            for shard, *row in zip(*columns, strict=True):
                boxes[shard].append(tuple(row))

    def frames_of(self, boxes: Sequence[Encoded]) -> Frames:
        rows = self.combined(boxes)
        return {
            ROWS: pl.DataFrame(
                [
                    pl.Series(KEY, [key for key, _, _ in rows], pl.Binary),
                    pl.Series(ROW, [row for _, row, _ in rows], pl.Binary),
                    pl.Series(WEIGHT, np.array([weight for *_, weight in rows], np.int64)),
                ]
            )
        }


def encode_rows(operator: Operator, delta: pl.DataFrame) -> pl.Series:
    """The row bytes of an Arrange's input rows, if they were not made before."""
    if ENCODED in delta.columns:
        return delta[ENCODED].alias(ROW)
    return operator.rows_table.row_codec.encode_series(delta, ROW)


def long_key(group: bytes, rest: bytes) -> bytes:
    """The key of a row whose group may be too long to stand in a key as it is."""
    return bounded(group_prefix(bounded(group)) + bounded(rest))

"""Runs an Aggregate: the rows lane, and the way into the columns lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from viewkeep.codec.key_order import hash_key, hash_keys
from viewkeep.codec.keys import key_series
from viewkeep.codec.rowsource import (
    MAX_KEY,
    Generated,
    bounded,
    compiled,
    longest_key,
    tuple_source,
)
from viewkeep.deferred import np, pl
from viewkeep.delta import KEY, without
from viewkeep.engine.budget import Budget
from viewkeep.engine.exchange import GROUPS, SHARD, Frames, encode_keys, values_name
from viewkeep.engine.operators.aggregate.columns import run_aggregate
from viewkeep.engine.operators.aggregate.whole import whole_aggregate
from viewkeep.engine.operators.executor import Fed
from viewkeep.engine.rows.convert import columns_of, tuples_of
from viewkeep.engine.rows.delta import Boxes, RowGains, Rows, Values
from viewkeep.engine.state import ShardState
from viewkeep.engine.values.ordered_rows import OrderedRows
from viewkeep.errors import PipelineError
from viewkeep.ops.aggregates import row_form
from viewkeep.ops.aggregates.accumulators import gains
from viewkeep.ops.aggregates.ordered import added_up
from viewkeep.ops.aggregates.totals import merge
from viewkeep.ops.rowcode import NoRowForm, RowWriter
from viewkeep.plan.nodes import Aggregate, Node
from viewkeep.plan.program import Operator
from viewkeep.types import BIGINT, DOUBLE, Column


class AggregateExecutor(Fed[RowGains]):
    """Runs an Aggregate."""

    def __init__(self, operator: Operator):
        super().__init__(operator)
        assert isinstance(operator.node, Aggregate)
        self.node, self.kept = operator.node, operator.node.accumulators
        self.table = operator.rows_table
        self.keys = len(self.node.keys)
        self.first_total = self.keys + 1

    @property
    def has_rows(self) -> bool:
        return self._has_rows

    @cached_property
    def _has_rows(self) -> bool:
        return all(total.has_row_form for total in self.kept.totals) and all(
            map(row_form.output_has_row_form, self.kept.outputs)
        )

    @cached_property
    def orders(self) -> list[OrderedRows]:
        """The ordered tables."""
        return [
            OrderedRows(table, order, self.kept)
            for table, order in zip(self.operator.tables[1:], self.kept.ordered, strict=True)
        ]

    @cached_property
    def _pairs(self) -> list[int]:
        return row_form.pairs_among(self.kept.plain, self.first_total)

    @property
    def settles(self) -> bool:
        return bool(self._pairs)

    def code(self) -> Iterator[tuple[str, str]]:
        if self.has_rows:
            yield "a group after its gain", self._advance.source
        yield "row bytes", self.table.row_codec.packer.source
        yield "and back", self.table.row_codec.unpacker.source

    # -- input ---------------------------------------------------------------------------------

    def new_box(self) -> RowGains:
        return RowGains(len(self.kept.ordered))

    def size(self, box: RowGains) -> int:
        return len(box)

    def settle(self, box: RowGains) -> None:
        for group in box.groups.values():
            row_form.settled(group, self._pairs)

    def combined(self, boxes: Sequence[RowGains]) -> RowGains:
        if len(boxes) == 1:
            return boxes[0]
        parts: dict[bytes, list[list[Any]]] = {}
        made = self.new_box()
        for box in boxes:
            for key, group in box.groups.items():
                parts.setdefault(key, []).append(group)
            for whole, values in zip(made.values, box.values, strict=True):
                for value, times in values.items():
                    whole[value] = whole.get(value, 0) + times
        for key, groups in parts.items():
            made.groups[key] = groups[0] if len(groups) == 1 else self._merged(groups)
        return made

    def _merged(self, groups: list[list[Any]]) -> list[Any]:
        made = list(groups[0])
        merging = [row_form.added, *row_form.merging(self.kept.plain)]
        for at, add_up in enumerate(merging, self.keys):
            add_up(groups, at, made)
        return made

    def write_input(self, writer: RowWriter, shard: str) -> None:
        if not self.has_rows:
            raise NoRowForm(", ".join(call.function for call in self.node.aggregates))
        names, lines = writer.names, writer.lines
        keys = [writer.variable(key.expr) for key in self.node.keys]
        arguments = {expr: writer.variable(expr) for expr in self.kept.arguments}
        names["KEY"] = self.table.key_codec.packer.call
        lines.append(f"key = KEY({', '.join(keys)})")
        if longest_key(self.table.key_codec.types) >= MAX_KEY:
            names["BOUNDED"] = bounded
            lines.append(f"if len(key) >= {MAX_KEY}: key = BOUNDED(key)")
        if not shard:
            names["HASH"] = hash_key
            shard = "HASH(key) % shards"
        lines.append(f"box = boxes[{shard}]")
        slots = [
            f"{source} + 0.0 if {source} is not None else None"
            if key.expr.type == DOUBLE
            else source
            for key, source in zip(self.node.keys, keys, strict=True)
        ]
        slots += ["0", *(zero for total in self.kept.plain for zero in row_form.zeros(total))]
        lines.append("group = box.groups.get(key)")
        lines.append(f"if group is None: group = box.groups[key] = [{', '.join(slots)}]")
        lines.append(f"group[{self.keys}] += weight")
        at = self.first_total
        for total in self.kept.plain:
            given = [arguments[expr] for expr in total.arguments]
            lines += total.row_gain(given, at, names)
            at += len(total.columns)
        for place, order in enumerate(self.kept.ordered):
            cells = [arguments[expr] for expr in order.exprs]
            for at_cell, expr in enumerate(order.exprs):
                if expr.type == DOUBLE:
                    name = f"x{place}_{at_cell}"
                    source = cells[at_cell]
                    lines.append(f"{name} = CANONICAL({source})")
                    names["CANONICAL"] = canonical
                    cells[at_cell] = name
            tests = [
                f"{cell} is not None"
                for cell, needed in zip(cells, order.needed, strict=True)
                if needed
            ]
            indent = ""
            if tests:
                lines.append(f"if {' and '.join(tests)}:")
                indent = "    "
            lines.append(f"{indent}value = (key, {tuple_source(cells)})")
            lines.append(
                f"{indent}box.values[{place}][value] = box.values[{place}].get(value, 0) + weight"
            )

    # -- the other lane ------------------------------------------------------------------------

    @cached_property
    def _gain_columns(self) -> list[Column]:
        keys = [key.column for key in self.node.keys]
        totals = [column for total in self.kept.plain for column in total.columns]
        return [*keys, Column(self.kept.rows, BIGINT), *totals]

    def pack(self, delta: pl.DataFrame, shards: int) -> Frames:
        """Its gains. They are combined, but for values that are mostly different."""
        keys = [(key.name, key.expr) for key in self.node.keys]
        gain = gains(delta, keys, self.kept, apart=True)
        frames = {GROUPS: self._sent(gain.groups, shards)}
        names = [key.name for key in self.node.keys]
        for place, values in enumerate(gain.values):
            frames[values_name(place)] = without(self._sent(values, shards), *names)
        return frames

    def _sent(self, frame: pl.DataFrame, shards: int) -> pl.DataFrame:
        """The frame with the encoded key of each row's group, and its shard."""
        keys = encode_keys(self.table.key_codec, frame, self.node.row_key)
        shard = pl.Series(SHARD, hash_keys(keys) % np.uint32(shards), pl.UInt32)
        return frame.hstack([key_series(keys, KEY), shard])

    def combine(self, name: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
        whole = parts[0] if len(parts) == 1 else pl.concat(parts)
        if name == GROUPS:
            carried = [key.name for key in self.node.keys]
            carried += [SHARD] if SHARD in whole.columns else []
            return merge(whole, KEY, carried, self.kept.plain, self.kept.rows)
        return whole if len(parts) == 1 else added_up(whole)

    def frames_of(self, boxes: Sequence[RowGains]) -> Frames:
        box = self.combined(boxes)
        made: Frames = {}
        if box.groups:
            wraps = [at for at, c in enumerate(self._gain_columns) if c.type == BIGINT]
            columns = columns_of(
                [_wrapped(group, wraps) for group in box.groups.values()], self._gain_columns
            )
            made[GROUPS] = pl.DataFrame([*columns, pl.Series(KEY, list(box.groups), pl.Binary)])
        for place, (order, values) in enumerate(zip(self.kept.ordered, box.values, strict=True)):
            if values:
                rows = [(*value, times) for (_, value), times in values.items()]
                keys = pl.Series(KEY, [key for key, _ in values], pl.Binary)
                columns = columns_of(rows, order.columns)
                made[values_name(place)] = pl.DataFrame([*columns, keys])
        return made

    def fill(self, boxes: Boxes[RowGains], frames: Frames) -> None:
        for name, frame in frames.items():
            heads = zip(frame[SHARD].to_list(), frame[KEY].to_list(), strict=True)
            if name == GROUPS:
                rows = tuples_of(frame, self._gain_columns)
                for (shard, key), row in zip(heads, rows, strict=True):
                    boxes[shard].groups[key] = list(row)
                continue
            place = int(name.removeprefix("values"))
            found = tuples_of(frame, self.kept.ordered[place].columns)
            for (shard, key), (*value, times) in zip(heads, found, strict=True):
                values = boxes[shard].values[place]
                at = (key, tuple(value))
                values[at] = values.get(at, 0) + times

    # -- running -------------------------------------------------------------------------------

    @classmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        assert isinstance(node, Aggregate)
        return whole_aggregate(node, inputs[0], budget)

    def run_columns(self, state: ShardState, given: Frames, heard: bool) -> Iterator[pl.DataFrame]:
        delta = run_aggregate(self.operator, state, given, heard)
        if delta is not None:
            yield delta

    def run_rows(self, state: ShardState, boxes: Sequence[RowGains], heard: bool) -> Rows:
        box = self.combined(boxes)
        keys = sorted(box.groups)
        unpack, pack = self.table.row_codec.unpacker.call, self.table.row_codec.packer.call
        old_rows = state.lookup(self.table, keys)
        olds = [None if row is None else unpack(row) for row in old_rows]
        rows_at = self._rows_at
        alive = [
            box.groups[key][self.keys] + (0 if old is None else old[rows_at]) > 0
            for key, old in zip(keys, olds, strict=True)
        ]
        staged = [
            order.advance(state, keys, values, olds, alive)
            for order, values in zip(self.orders, box.values, strict=True)
        ]
        advance, shown = self._advance.call, self._shown
        out: Rows = []
        put_keys: list[bytes] = []
        put_rows: list[bytes | None] = []
        for place, (key, old, old_row) in enumerate(zip(keys, olds, old_rows, strict=True)):
            found = [change.of_group(place) for change in staged]
            new = advance(self._zero if old is None else old, box.groups[key], found)
            count = new[rows_at]
            if count < 0:
                raise PipelineError(
                    f"a group of {self.operator.id} has fewer than no rows: an input row is lost"
                )
            new_row = pack(*new) if count > 0 or not self.keys else None
            if new_row == old_row:
                continue
            put_keys.append(key)
            put_rows.append(new_row)
            if not heard:
                continue
            before = None if old_row is None or old is None else tuple([old[at] for at in shown])
            after = None if new_row is None else tuple([new[at] for at in shown])
            if before is not None and after is not None and _same(before, after):
                continue
            if before is not None:
                out.append((key, before, -1))
            if after is not None:
                out.append((key, after, 1))
        for change in staged:
            change.stage(state)
        state.stage(self.table, put_keys, put_rows)
        return out

    @cached_property
    def _rows_at(self) -> int:
        return self._place[self.kept.rows]

    @cached_property
    def _place(self) -> dict[str, int]:
        return {column.name: place for place, column in enumerate(self.table.columns)}

    @cached_property
    def _shown(self) -> list[int]:
        return [self._place[column.name] for column in self.node.columns]

    @cached_property
    def _zero(self) -> Values:
        """The totals of a group that has none yet."""
        made: list[Any] = [None] * len(self.table.columns)
        made[self._rows_at] = 0
        for total in self.kept.totals:
            for column in total.columns:
                made[self._place[column.name]] = 0.0 if column.type == DOUBLE else 0
        return tuple(made)

    @cached_property
    def _advance(self) -> Generated:
        """`advance(old, group, found)`: the columns of a group after its gain.

        `found` has for each ordered table the gains of its distinct totals, and its outputs.
        """
        names: dict[str, object] = dict(row_form.NAMES)
        columns = {key.name: f"group[{at}]" for at, key in enumerate(self.node.keys)}
        lines = ["def advance(old, group, found):"]
        rows = self.kept.rows
        lines.append(f"    rows = old[{self._place[rows]}] + group[{self.keys}]")
        columns[rows] = "rows"
        at = self.first_total
        variables = 0
        gained: dict[str, str] = {}
        for total in self.kept.plain:
            for column in total.columns:
                gained[column.name] = f"group[{at}]"
                at += 1
        for place, order in enumerate(self.orders):
            at = 0
            for total in order.distinct:
                for column in total.columns:
                    gained[column.name] = f"found[{place}][0][{at}]"
                    at += 1
            for nth, name in enumerate(order.shown):
                columns[name] = f"found[{place}][1][{nth}]"
        for total in self.kept.totals:
            held = [f"old[{self._place[column.name]}]" for column in total.columns]
            more = [gained[column.name] for column in total.columns]
            made: list[str] = []
            for source in total.row_advance(held, more):
                if source.startswith("PAIR"):
                    lines.append(f"    n{variables}, n{variables + 1} = {source}")
                    made += [f"n{variables}", f"n{variables + 1}"]
                else:
                    lines.append(f"    n{variables} = {source}")
                    made.append(f"n{variables}")
                variables = variables + (2 if source.startswith("PAIR") else 1)
            for column, source in zip(total.columns, made, strict=True):
                columns.setdefault(column.name, source)
        for output in self.kept.outputs:
            if output.name not in columns:
                source = row_form.finish(output, columns, names)
                lines.append(f"    n{variables} = {source}")
                columns[output.name] = f"n{variables}"
                variables += 1
        cells = tuple_source([columns[column.name] for column in self.table.columns])
        lines.append(f"    return {cells}")
        return compiled(lines, names)


def canonical(value: float | None) -> float | None:
    """A DOUBLE as it is stored, so that equal values are one value of a dictionary."""
    if value is None:
        return None
    return value + 0.0 if value == value else _NAN


_NAN = float("nan")


def _wrapped(group: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """A gain whose BIGINTs, which Python adds up to any size, are those of 64 bits."""
    made = list(group)
    for at in places:
        if made[at] is not None:
            made[at] = (made[at] + (1 << 63) & (1 << 64) - 1) - (1 << 63)
    return made


def _same(before: Values, after: Values) -> bool:
    """Whether rows agree; NaN equals itself."""
    return all(a == b or (a != a and b != b) for a, b in zip(before, after, strict=True))

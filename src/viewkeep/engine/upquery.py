"""Rows of a partial view for keys that nobody has wanted before: its plan, for these keys alone.

Law: an upquery at epoch e gives the rows that the view would hold at e, had these keys been wanted.
It evaluates the plan that keeps the view with these keys in the place of the wanted ones. What the
plan restricts to wanted keys is computed from there upwards; the other sides of joins are whole in
state, and only the partners of these rows are read of them. So an upquery reads what has to do with
its keys, and never scans.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeep.codec.key_order import hash_keys
from viewkeep.codec.keys import KeyCodec
from viewkeep.deferred import np, pl
from viewkeep.delta import KEY, without
from viewkeep.engine import budget
from viewkeep.engine.adhoc import evaluated
from viewkeep.engine.budget import Budget
from viewkeep.engine.operators.sides.columns import TableSide
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import PLACE
from viewkeep.engine.wanted import wanted_row
from viewkeep.ops.evaluate import project
from viewkeep.plan.nodes import (
    Join,
    Node,
    Threshold,
    in_group_order,
    nodes,
)
from viewkeep.plan.program import Placement, Port, Program, StateTable
from viewkeep.stores.contract import Store


class PartialState:
    """A partial view in a program: its wanted keys, and its rows for other keys."""

    def __init__(self, program: Program, placement: Placement):
        wanted = placement.view.wanted
        assert wanted is not None
        self.program, self.placement, self.wanted = program, placement, wanted
        self.codec = KeyCodec(tuple(column.type for column in wanted.value_columns))
        self._types = {column.name: column.type.polars for column in wanted.schema.columns}
        node = placement.view.node
        self._restricted = {one.id for one in _above(node, wanted)}
        # Orders of several columns may differ from side to side; any of them tells.
        self._keys = program.consumers(f"table:{wanted.number}")[0][0].rows_table

    def are_wanted(self, store: Store, keys: Sequence[bytes], epoch: int) -> list[bool]:
        """Whether the view has the rows of these keys at an epoch."""
        frame, table = self._frame(keys), self._keys
        columns = [frame[name] for name in table.key_names[: table.group]]
        groups = table.groups(columns, frame.height, KEY).to_list()
        found = [False] * len(keys)
        for shard, places in _by_shard(table, columns, frame.height, store.state.shards):
            if table.unique_groups:
                rows = store.state.get(
                    shard, table.number, [groups[place] for place in places], epoch
                )
                for place, row in zip(places, rows, strict=True):
                    found[place] = row is not None
                continue
            prefixes = [table.prefix(groups[place]) for place in places]
            limits = [1] * len(prefixes)
            for batch in store.state.find(shard, table.number, prefixes, epoch, limits=limits):
                for place in batch.places:
                    found[places[place]] = True
        return found

    def rows(self, store: Store, keys: Sequence[bytes], epoch: int) -> dict[bytes, bytes]:
        """The rows of these keys at an epoch, under their keys in the view's table."""
        upquery = _Upquery(self, store, epoch, self._frame(keys))
        frame, table = upquery.rows(self.placement.view.node), self.placement.table
        # An Aggregate whose groups the view is has totals as well, which nobody reads.
        missing = [column for column in table.columns if column.name not in frame.columns]
        frame = frame.with_columns(pl.lit(None, c.type.polars).alias(c.name) for c in missing)
        rows = table.row_codec.encode_series(frame, "row")
        return dict(zip(table.keys(frame, KEY).to_list(), rows.to_list(), strict=True))

    def is_restricted(self, node: Node) -> bool:
        """Whether a node has rows of wanted keys alone."""
        return node.id in self._restricted

    def _frame(self, keys: Sequence[bytes]) -> pl.DataFrame:
        """Keys as rows of the table of wanted keys."""
        rows = [wanted_row(self.wanted, self.codec, key, None) for key in keys]
        return pl.DataFrame(rows, schema=self._types, orient="row")


class _Upquery:
    """The evaluation of a partial view's plan for some keys."""

    def __init__(self, partial: PartialState, store: Store, epoch: int, keys: pl.DataFrame):
        self._partial, self._store, self._epoch = partial, store, epoch
        self._budget = budget.current() or Budget()
        self._known = {partial.wanted.id: keys}

    def rows(self, node: Node) -> pl.DataFrame:
        """The rows of a node that is restricted to the keys."""
        if node.id not in self._known:
            self._budget.check()
            self._known[node.id] = self._evaluate(node)
        return self._known[node.id]

    def _evaluate(self, node: Node) -> pl.DataFrame:
        below = [
            self.rows(part) if self._partial.is_restricted(part) else None for part in node.inputs
        ]
        if isinstance(node, Join | Threshold):
            left, right = below
            if left is None:
                assert right is not None
                left = self._partners(node, 0, right)
                if isinstance(node, Join) and node.kind == "semi":
                    return left  # all of them have a partner
            elif right is None:
                right = self._partners(node, 1, left)
            return evaluated(node, [left, right], self._budget)
        return evaluated(node, [rows for rows in below if rows is not None], self._budget)

    def _partners(self, node: Join | Threshold, side: int, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of a whole side that match some rows of the other."""
        port = self._partial.program.by_id[node.id].ports[side]
        left, right = node.inputs
        matches = in_group_order(left, right, node.on)
        exprs = [match.left if side else match.right for match in matches]
        names = [f"#match{place}" for place in range(len(exprs))]
        different = project(rows, list(zip(names, exprs, strict=True)), ()).unique()
        height = different.height if exprs else min(1, rows.height)
        found = self._found(port, [different[name] for name in names], height)
        return found.select(column.name for column in node.inputs[side].columns)

    def _found(self, port: Port, columns: Sequence[pl.Series], count: int) -> pl.DataFrame:
        """The rows of these groups."""
        shards = self._store.state.shards
        groups = port.table.groups(columns, count, KEY).to_list()
        frames = [pl.DataFrame(schema={c.name: c.type.polars for c in port.columns})]
        names = frames[0].columns
        for shard, places in _by_shard(port.table, columns, count, shards):
            # As the next epoch would read it.
            state = ShardState(self._store, shard, self._epoch + 1, self._epoch)
            for frame in TableSide(port, state).partners([groups[place] for place in places]):
                self._budget.hold(int(frame.estimated_size()), "reading the rows of a key")
                if frame.height:
                    frames.append(without(frame, PLACE, KEY).select(names))
        return pl.concat(frames)


def _above(root: Node, leaf: Node) -> list[Node]:
    """A leaf, and the nodes of a plan that stand on it."""
    found: dict[str, Node] = {}
    for node in nodes([root]):
        if node == leaf or any(below.id in found for below in node.inputs):
            found[node.id] = node
    return list(found.values())


def _by_shard(
    table: StateTable, columns: Sequence[pl.Series], count: int, shards: int
) -> list[tuple[int, list[int]]]:
    """The shards of rows with these leading columns, and which rows lie on each."""
    if not columns:
        return [(int(hash_keys([b""])[0] % np.uint32(shards)), list(range(count)))]
    owners = hash_keys(table.shard_codec.encode(columns)) % np.uint32(shards)
    return [(int(s), np.flatnonzero(owners == s).tolist()) for s in np.unique(owners)]

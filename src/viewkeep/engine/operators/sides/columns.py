"""An arrangement as a reader sees it in the columns lane: its rows at the epoch before, by group.

Law: however many partners a group has, no more than `ROWS_AT_ONCE` pairs are in one frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from viewkeep.deferred import np, pl
from viewkeep.delta import KEY, WEIGHT, without
from viewkeep.engine.amounts import ROW_BYTES, amount_of, parts, row_sizes
from viewkeep.engine.groups import GROUP
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import PLACE, run_steps
from viewkeep.plan.program import Port

ROWS_AT_ONCE = 200_000  # as amounts


class TableSide:
    """One side: its table as of the epoch before, and how its rows are grouped."""

    def __init__(self, port: Port, state: ShardState):
        self.port, self.table, self.state = port, port.table, state

    def grouped(self, delta: pl.DataFrame) -> pl.DataFrame:
        """The rows with the bytes of their group."""
        columns = [delta[name] for name in self.port.group]
        return delta.hstack([self.table.groups(columns, delta.height, GROUP)])

    def partners(self, groups: list[bytes]) -> Iterator[pl.DataFrame]:
        """The rows of these groups, in batches; `#place` says which group a row is of."""
        if self.table.unique_groups:
            for start, some, rows in self.state.lookups(self.table, groups, ROWS_AT_ONCE):
                there = [i for i, row in enumerate(rows) if row is not None]
                found = [row for row in rows if row is not None]
                yield self._frame([start + i for i in there], [some[i] for i in there], found)
            return
        prefixes = [self.table.prefix(group) for group in groups]
        for batch in self.state.find(self.table, prefixes):
            yield self._frame(batch.places, batch.keys, batch.rows)

    def matched(self, others: pl.DataFrame, mine_is_left: bool = False) -> Iterator[pl.DataFrame]:
        """Rows of the other side with their partners here, weighted as the other side's rows."""
        groups, places = _numbered(others[GROUP])
        # The key of the result is that of the left row.
        placed = without(others, GROUP, KEY) if mine_is_left else without(others, GROUP)
        rows = _Placed(placed.hstack([places]), len(groups))
        for batch in self.partners(groups):
            mine = batch if mine_is_left else without(batch, KEY)
            for part in rows.pairs(mine):
                yield without(part, PLACE)

    def present(self, groups: pl.Series, moves: Moves) -> tuple[pl.Series, pl.Series]:
        """Of these groups those that had rows before the changes of this side, and have after."""
        sought: list[bytes] = groups.sort().to_list()
        before, stays = set[bytes](), set[bytes]()
        for group, key in self._first_keys(sought, moves.gone):
            before.add(group)
            if key not in moves.gone.get(group, ()):
                stays.add(group)
        after = stays | moves.come
        return (
            pl.Series(GROUP, [g for g in sought if g in before], pl.Binary),
            pl.Series(GROUP, [g for g in sought if g in after], pl.Binary),
        )

    def _first_keys(
        self, groups: list[bytes], gone: dict[bytes, set[bytes]]
    ) -> Iterator[tuple[bytes, bytes]]:
        """The first keys of each group: one more than go."""
        if self.table.unique_groups:
            for frame in self.partners(groups):
                for place, key in frame.select(PLACE, KEY).iter_rows():
                    yield groups[place], key
            return
        prefixes = [self.table.prefix(group) for group in groups]
        limits = [1 + len(gone.get(group, ())) for group in groups]
        for batch in self.state.find(self.table, prefixes, limits):
            for place, key in zip(batch.places, batch.keys, strict=True):
                yield groups[place], key

    def _frame(self, places: list[int], keys: list[bytes], rows: list[bytes]) -> pl.DataFrame:
        needed, steps = self.port.narrowed
        names = [column.name for column in self.table.columns if column.name in needed]
        frame = self.table.row_codec.decode(rows, names) if names else pl.DataFrame()
        frame = frame.hstack([pl.Series(PLACE, places, pl.Int64), pl.Series(KEY, keys, pl.Binary)])
        return run_steps(steps, frame)


class Moves:
    """What the changes of a side do to its groups: those that get rows, and the keys that go.

    All changes of a row are in one frame. An update of it is one of each weight: it stays.
    """

    def __init__(self, changes: Iterable[pl.DataFrame]):
        self.come: set[bytes] = set()
        self.gone: dict[bytes, set[bytes]] = {}
        for frame in changes:
            net = frame.group_by(GROUP, KEY).agg(pl.col(WEIGHT).sum())
            self.come.update(net.filter(pl.col(WEIGHT) > 0)[GROUP].unique().to_list())
            for group, key in net.filter(pl.col(WEIGHT) < 0).select(GROUP, KEY).iter_rows():
                self.gone.setdefault(group, set()).add(key)

    @property
    def groups(self) -> pl.Series:
        return pl.Series(GROUP, list(self.come | self.gone.keys()), pl.Binary)


def pairs(one: pl.DataFrame, other: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The pairs of the rows of two frames that have one group, in pieces; without the group."""
    rows, others = one.height, other.height
    size = others * int(one.estimated_size()) + rows * int(other.estimated_size())
    if amount_of(rows * others, size) <= ROWS_AT_ONCE:
        yield one.join(other, on=GROUP).drop(GROUP)
        return
    groups, places = _numbered(pl.concat([one[GROUP], other[GROUP]]))
    placed = _Placed(without(one, GROUP).hstack([places[:rows]]), len(groups))
    for part in placed.pairs(without(other, GROUP).hstack([places[rows:]])):
        yield without(part, PLACE)


class _Placed:
    """Rows with the places of their groups, to be joined with others on their places."""

    def __init__(self, rows: pl.DataFrame, groups: int):
        self._rows, self._sizes, self._places = rows, row_sizes(rows), rows[PLACE].to_numpy()
        self._counts = np.bincount(self._places, minlength=groups)
        self._held = np.bincount(self._places, self._sizes, groups)

    def pairs(self, others: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """The pairs of these rows and others, in pieces of at most `ROWS_AT_ONCE`."""
        places, sizes = others[PLACE].to_numpy(), row_sizes(others)
        counts = self._counts[places]
        joined = self._held[places] + counts * sizes
        amounts = np.maximum(counts, joined // ROW_BYTES).astype(np.int64)
        if amounts.sum() <= ROWS_AT_ONCE:
            yield self._rows.join(others, on=PLACE)
            return
        for part in parts(amounts, ROWS_AT_ONCE):
            some = others[part]
            if amounts[part].sum() <= ROWS_AT_ONCE:
                yield self._rows.join(some, on=PLACE)
                continue
            # A row may have more partners than that by itself.
            mine = np.flatnonzero(self._places == places[part.start])
            joined = self._sizes[mine] + sizes[part.start]
            amounts_here = np.maximum(1, joined // ROW_BYTES).astype(np.int64)
            for few in parts(amounts_here, ROWS_AT_ONCE):
                yield self._rows[mine[few]].join(some, on=PLACE)


def _numbered(groups: pl.Series) -> tuple[list[bytes], pl.Series]:
    """The different groups, and the place of each one's among them."""
    different = groups.unique()
    every = pl.DataFrame([different, pl.Series(PLACE, np.arange(len(different)))])
    placed = groups.to_frame().join(every, on=GROUP, how="left", maintain_order="left")
    return different.to_list(), placed[PLACE]

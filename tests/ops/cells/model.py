"""The model: the set of all cell operations ever, from which a row is computed anew each time.

Written from the rules of the stores alone and without a word of `viewkeep.ops`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from hypothesis import strategies as st

from viewkeep.cells import (
    CellKind,
    CellOperation,
    CellRules,
    TieRule,
    delete_cells,
    delete_range,
    delete_row,
    delete_versions,
    put,
)

KEYS = [b"", b"a", b"ab", b"b", b"c"]
COLUMNS = (1, 2, 5)
KEPT = 8  # timestamps of a cell that deletions of single versions may uncover
VALUES = [b"x", b"y", b"\xff", b"", None, False]  # False: not this column
RULES = [
    CellRules(TieRule.SEQUENCE, versions=True),
    CellRules(TieRule.SEQUENCE),
    CellRules(TieRule.VALUE),
]


def visible_row(
    operations: Collection[CellOperation], key: bytes, rules: CellRules
) -> dict[int, bytes] | None:
    """The row that these operations make, in whatever order they came."""
    mine = [one for one in operations if _touches(one, key)]
    wholly = [one.timestamp for one in mine if one.kind >= CellKind.DELETE_ROW]
    deleted = max(wholly, default=-(10**30))
    values = {}
    for column in COLUMNS:
        best, counts = None, _counting(mine, column, rules)
        for one in mine:
            for place, value in one.cells if one.kind is CellKind.PUT else ():
                if place != column or value is None or one.timestamp <= deleted:
                    continue
                if counts is not None and one.timestamp not in counts:
                    continue
                if any(_hides(other, column, one.timestamp) for other in mine):
                    continue
                tie = (one.sequence, value) if rules.ties is TieRule.SEQUENCE else (value,)
                if best is None or best < ((one.timestamp, *tie), value):
                    best = ((one.timestamp, *tie), value)
        if best is not None:
            values[column] = best[1]
    inserted = any(one.is_insert and one.timestamp > deleted for one in mine)
    return values if values or inserted else None


def _counting(
    mine: Sequence[CellOperation], column: int, rules: CellRules
) -> Collection[int] | None:
    """The timestamps of a column whose versions count; None: all."""
    if not rules.versions:
        return None
    named = {
        one.timestamp
        for one in mine
        for place, value in one.cells
        if place == column
        and (value is not None or one.kind is CellKind.DELETE_VERSIONS)
        and one.kind in (CellKind.PUT, CellKind.DELETE_VERSIONS)
    }
    return sorted(named, reverse=True)[:KEPT]


def _touches(one: CellOperation, key: bytes) -> bool:
    if one.kind is CellKind.DELETE_RANGE:
        return one.key <= key and (one.stop is None or key < one.stop)
    return one.key == key


def _hides(one: CellOperation, column: int, timestamp: int) -> bool:
    """Whether an operation deletes the version of a column with this timestamp."""
    for place, value in one.cells:
        if place == column and value is None:
            if one.kind is CellKind.DELETE_VERSIONS:
                return one.timestamp == timestamp
            return timestamp <= one.timestamp
    return False


def operations(
    rules: CellRules, low: int = -3, high: int = 8, keys: Sequence[bytes] = KEYS
) -> st.SearchStrategy[CellOperation]:
    """One operation on few keys at few timestamps, so that much meets."""
    return st.builds(
        partial(_operation, rules),
        st.sampled_from([*CellKind, CellKind.PUT, CellKind.PUT]),
        st.sampled_from(keys),
        st.integers(low, high),
        st.lists(st.sampled_from(VALUES), min_size=len(COLUMNS), max_size=len(COLUMNS)),
        st.integers(0, 1) | st.integers(0, 2**40),
        st.sampled_from([None, *KEYS, b"d"]),
    )


def _operation(
    rules: CellRules,
    kind: CellKind,
    key: bytes,
    at: int,
    values: Sequence[bytes | bool | None],
    sequence: int,
    stop: bytes | None,
) -> CellOperation:
    cells = [(c, v) for c, v in zip(COLUMNS, values, strict=True) if not isinstance(v, bool)]
    columns = [column for column, _ in cells]
    match kind:
        case CellKind.PUT:
            inserts = sequence % 2 == 0
            return put(0, key, at, cells, is_insert=inserts, sequence=sequence, whole_key=key * 9)
        case CellKind.DELETE_CELLS:
            return delete_cells(0, key, at, columns)
        case CellKind.DELETE_VERSIONS if rules.versions:
            return delete_versions(0, key, at, columns)
        case CellKind.DELETE_RANGE:
            return delete_range(0, key, stop, at)
        case _:
            return delete_row(0, key, at)

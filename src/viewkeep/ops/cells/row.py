"""What is kept of one row: its cells, its deletion, and when it was inserted.

Law: `joined` and `covered` are joins, and `purged` commutes with both for operations at or above
its bound. So the state is a function of the set of operations on the row, of the range deletions
that cover it, and of the bound. What a deletion hides is dropped; a deletion that a later one
covers is dropped too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from viewkeep.cells import CellKind, CellOperation, CellRules, TieRule
from viewkeep.errors import Unsupported
from viewkeep.ops.cells import column as cells
from viewkeep.ops.cells.column import ColumnState, Version, later


class RowState(NamedTuple):
    """One row of a base table as its operations made it. An empty state is not kept."""

    columns: Mapping[int, ColumnState]
    deleted: int | None = None  # cells at or before it are deleted, unless a range deletion says so
    inserted: int | None = None  # when it was last said to exist
    whole_key: bytes | None = None  # if its key is a cut one


NOTHING: Final = RowState({})


def of(operation: CellOperation, rules: CellRules) -> RowState:
    """The state that one operation on a row makes."""
    at, key = operation.timestamp, operation.whole_key
    match operation.kind:
        case CellKind.PUT:
            sequence = operation.sequence if rules.ties is TieRule.SEQUENCE else 0
            columns = {
                column: ColumnState(through=at)
                if value is None
                else ColumnState((Version(at, sequence, value),))
                for column, value in operation.cells
            }
            return _kept(columns, None, at if operation.is_insert else None, key)
        case CellKind.DELETE_CELLS:
            return RowState({column: ColumnState(through=at) for column, _ in operation.cells})
        case CellKind.DELETE_VERSIONS:
            if not rules.versions:
                raise Unsupported(
                    "a deletion of one version of a cell, in a store that says it has none",
                    hint="Declare `versions` in the store's rules for cells",
                )
            return RowState({column: ColumnState(gone=(at,)) for column, _ in operation.cells})
        case CellKind.DELETE_ROW:
            return RowState({}, deleted=at)
        case CellKind.DELETE_RANGE:
            raise ValueError("a range deletion is of no row: it is kept by `ranges`")


def joined(one: RowState, other: RowState, rules: CellRules) -> RowState:
    """The state after the operations of both."""
    if not one.columns and one == NOTHING:
        return other  # what comes is new, mostly
    columns = dict(one.columns)
    for column, state in other.columns.items():
        before = columns.get(column)
        columns[column] = state if before is None else cells.joined(before, state, rules)
    deleted = later(one.deleted, other.deleted)
    inserted = later(one.inserted, other.inserted)
    key = one.whole_key if one.whole_key is not None else other.whole_key
    if deleted is None:
        return _kept(columns, deleted, inserted, key)
    return _without(RowState(columns, deleted, inserted, key), deleted)


def merged(
    state: RowState, operations: Iterable[CellOperation], covering: int | None, rules: CellRules
) -> RowState:
    """The state after some more operations on the row.

    `covering` is the latest range deletion that covers it.
    """
    for operation in operations:
        state = joined(state, of(operation, rules), rules)
    return covered(state, covering)


def covered(state: RowState, timestamp: int | None) -> RowState:
    """The state under a range deletion, which is kept elsewhere."""
    if timestamp is None:
        return state
    if state.deleted is not None and state.deleted <= timestamp:
        state = state._replace(deleted=None)
    return _without(state, timestamp)


def purged(state: RowState, below: int) -> RowState:
    """The state when no operation with a timestamp below this one will come any more."""
    deleted = state.deleted if state.deleted is None or state.deleted >= below else None
    columns = {number: cells.purged(column, below) for number, column in state.columns.items()}
    return _kept(columns, deleted, state.inserted, state.whole_key)


def due(state: RowState) -> int | None:
    """The least bound with which `purged` changes the state; None: none does."""
    return min(_dues(state), default=None)


def visible(state: RowState) -> dict[int, bytes] | None:
    """The values of the row by column, those that are not NULL; None if there is no such row."""
    values = {
        number: column.versions[0].value
        for number, column in state.columns.items()
        if column.versions
    }
    return values if values or state.inserted is not None else None


def _without(state: RowState, deleted: int | None) -> RowState:
    """The state without what a deletion of the whole row hides or makes needless."""
    if deleted is None:
        return state
    columns = {}
    for number, column in state.columns.items():
        column = cells.hidden_by(column, deleted)
        if column.through is not None and column.through <= deleted:
            column = column._replace(through=None)
        columns[number] = column
    inserted = state.inserted
    if inserted is not None and inserted <= deleted:
        inserted = None
    return _kept(columns, state.deleted, inserted, state.whole_key)


def _kept(
    columns: Mapping[int, ColumnState],
    deleted: int | None,
    inserted: int | None,
    whole_key: bytes | None,
) -> RowState:
    """A state without columns that say nothing, and with the whole key if there is a row."""
    said = {number: column for number, column in columns.items() if column != _SILENT}
    if whole_key is not None and inserted is None:
        # Most keys are not cut, and need no look at the columns.
        whole_key = whole_key if any(column.versions for column in said.values()) else None
    return RowState(said, deleted, inserted, whole_key)


def _dues(state: RowState) -> Iterator[int]:
    if state.deleted is not None:
        yield state.deleted + 1
    for column in state.columns.values():
        if column.through is not None:
            yield column.through + 1
        if column.gone:
            yield column.gone[-1] + 1
        if len(column.versions) > 1:
            yield column.versions[-2].timestamp + 1


_SILENT: Final = ColumnState()

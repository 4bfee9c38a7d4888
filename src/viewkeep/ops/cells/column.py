"""What is kept of one cell: its versions, and the deletions that may still hide some.

Law: `joined` is a join. Kept are the versions that no deletion hides, newest first: one, or if the
store can delete single versions, since that uncovers older ones, those among the newest `KEPT`
timestamps that puts and such deletions name. So a cell that is put a million times stays small, and
a deletion of single versions uncovers nothing below the newest `KEPT`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from viewkeep.cells import CellRules

KEPT: Final = 8  # HBase keeps one version of a cell, unless its family says more


class Version(NamedTuple):
    """A value and what decides about it: greater is newer."""

    timestamp: int
    sequence: int  # 0 where ties are broken by the value
    value: bytes


class ColumnState(NamedTuple):
    """One cell of a row. At least one of the three says something."""

    versions: tuple[Version, ...] = ()  # newest first, one for each timestamp
    through: int | None = None  # versions at or before it are deleted
    gone: tuple[int, ...] = ()  # timestamps whose versions are deleted, falling


def joined(one: ColumnState, other: ColumnState, rules: CellRules) -> ColumnState:
    """The state after the operations of both."""
    if one == other:
        return one
    through = later(one.through, other.through)
    gone = {*one.gone, *other.gone}
    best: dict[int, Version] = {}
    for version in (*one.versions, *other.versions):
        if version.timestamp not in best or best[version.timestamp] < version:
            best[version.timestamp] = version
    if rules.versions and len(best) + len(gone) > KEPT:
        newest = set(sorted({*best, *gone}, reverse=True)[:KEPT])
        best = {at: version for at, version in best.items() if at in newest}
        gone &= newest
    versions = sorted((v for at, v in best.items() if at not in gone), reverse=True)
    whole = ColumnState(tuple(versions), through, tuple(sorted(gone, reverse=True)))
    made = hidden_by(whole, through)
    return made if rules.versions else made._replace(versions=made.versions[:1])


def hidden_by(column: ColumnState, timestamp: int | None) -> ColumnState:
    """The column without what a deletion of this timestamp hides or makes needless.

    The column's own deletion is kept.
    """
    if timestamp is None:
        return column
    versions = tuple(version for version in column.versions if version.timestamp > timestamp)
    gone = tuple(at for at in column.gone if at > timestamp)
    return ColumnState(versions, column.through, gone)


def purged(column: ColumnState, below: int) -> ColumnState:
    """The column when no operation with a timestamp below this one will come any more."""
    through = column.through if column.through is None or column.through >= below else None
    gone = tuple(at for at in column.gone if at >= below)
    recent = sum(version.timestamp >= below for version in column.versions)
    return ColumnState(column.versions[: recent + 1], through, gone)


def later(one: int | None, other: int | None) -> int | None:
    """The later of two timestamps, of which either may be missing."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)

"""What SQL knows of a table, for stores whose tables other programs read or write too."""

from __future__ import annotations

from dataclasses import dataclass

from viewkeep.types import Schema


@dataclass(frozen=True)
class NamedTable:
    """A base table, by its name, its number and the options it was created with."""

    name: str
    number: int
    schema: Schema
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NamedView:
    """A state table that a view is read from.

    `schema` has the columns of its rows, in their order, some of which may be the engine's own;
    `shown` has the name of each column of the view and of the column that it is in those rows.
    """

    name: str
    number: int
    schema: Schema
    shown: tuple[tuple[str, str], ...]

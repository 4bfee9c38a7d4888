"""What a plan is optimised for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """The columns that are wanted of a plan, and the ids of nodes that are kept already.

    `aggregate_first` is what a hint says of it: always, never, or None where there is no hint.
    """

    wanted: frozenset[str]
    existing: frozenset[str] = frozenset()
    aggregate_first: bool | None = None

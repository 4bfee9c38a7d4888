"""What a plan is optimised for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """The columns that are wanted of a plan, and the ids of nodes that are kept already."""

    wanted: frozenset[str]
    existing: frozenset[str] = frozenset()

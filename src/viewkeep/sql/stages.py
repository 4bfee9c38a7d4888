"""The planner's stages, from a syntax tree to operators that run, in the order in which they run.

A stage is known by its name: `docs/design/passes.md` says what it does, and golden cases under that
name in `tests/plan` show it. Law: every stage keeps the rows. Up to `choose_keys` a query is alone;
after it all views are one plan, in which each operator is there once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from viewkeep.plan.connect import connect, fused
from viewkeep.plan.nodes import ReaderNode, merged
from viewkeep.plan.passes import PASSES
from viewkeep.plan.place import place
from viewkeep.plan.share_groups import share_groups
from viewkeep.sql.select.query import lower_query
from viewkeep.sql.statements.definitions import keyed
from viewkeep.sql.subqueries.decorrelate import decorrelated


@dataclass(frozen=True)
class Stage:
    """A step of planning, and the function that does it."""

    name: str
    by: Callable[..., object]


STAGES: tuple[Stage, ...] = (
    Stage("qualify", lower_query),
    Stage("decorrelate", decorrelated),
    *(Stage(change.__name__, change) for change in dict.fromkeys(PASSES)),
    Stage("choose_keys", keyed),
    Stage("share_groups", share_groups),
    Stage("arrange", ReaderNode.sides),
    Stage("merge", merged),
    Stage("fuse", fused),
    Stage("share", connect),
    Stage("place", place),
)

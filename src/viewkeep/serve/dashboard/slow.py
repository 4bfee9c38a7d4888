"""The slowest epochs lately, and on which operators and views their time went."""

from __future__ import annotations

from typing import Any

from viewkeep.database import Database
from viewkeep.engine.costs import read_costs
from viewkeep.plan.explain import title
from viewkeep.serve.dashboard.titles import Titles

_SHOWN = 10
_MOST_VIEWS = 3  # named with an operator


def slow_epochs(db: Database) -> list[dict[str, Any]]:
    """The slowest first, of those that are kept."""
    program = db.catalog.current().program
    short, sources = Titles(program).short, {f"table:{s.number}": s for s in program.sources}

    def told(name: str, seconds: float, rows: int) -> dict[str, Any]:
        operator = program.by_id.get(name)
        users = [view for view, at in program.placements.items() if name in at.operators]
        what = "no longer in the plan" if operator is None else short(title(operator))
        if name in sources:
            what = f"reading {sources[name].table}"
        views = sorted(users)[:_MOST_VIEWS]
        more = len(users) - len(views)
        return {"what": what, "seconds": seconds, "rows": rows, "views": views, "more": more}

    found = sorted(read_costs(db.store).slowest, key=lambda one: -one.seconds)[:_SHOWN]
    return [
        {
            "epoch": one.epoch,
            "at": one.at / 1e9,
            "seconds": one.seconds,
            "operations": one.operations,
            "processor": one.processor,
            "operators": [told(*operator) for operator in one.operators],
        }
        for one in found
    ]

"""Tables and views as the browser lists them: what they are, how they stand, how far loaded.

Law: a view is said to be what a read of it would find. Its replacement, which is loaded beside it,
stands with it and not in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from viewkeep.access.reads import view_failed, view_unreadable
from viewkeep.database import Database
from viewkeep.engine.costs import read_costs
from viewkeep.engine.epochs import Published
from viewkeep.engine.load_progress import LoadProgress, Loads
from viewkeep.engine.programs import PlanVersion, load_plan, successor_name
from viewkeep.errors import EpochGone
from viewkeep.plan.nodes import View
from viewkeep.plan.program import Placement, Program
from viewkeep.serve.dashboard.sqltext import laid_out
from viewkeep.stores.contract import Sizes, Store, TableSize
from viewkeep.types import Schema

MOST_VIEWS = 500  # in one answer
MOST_COUNTED = 1_000  # rows of each view in a list that are counted at each look
MOST_COUNTED_ALONE = 10_000  # of a view with a page of its own; 10 ms of processor time
_MOST_COUNTS = 100  # views of an answer whose rows are counted


@dataclass(frozen=True)
class _Standing:
    """How a view stands."""

    state: str  # ready, loading, waiting or failed
    problem: str | None = None
    progress: LoadProgress | None = None

    def plain(self) -> dict[str, Any]:
        progress = self.progress
        return {
            "state": self.state,
            "problem": self.problem,
            "loaded": None if progress is None else progress.rows,
            "share": None if progress is None else round(progress.share, 4),
        }


class _Look:
    """One look at all views."""

    def __init__(self, db: Database, most_counted: int):
        self.db, self._most_counted = db, most_counted
        self.plan, self.published = db.catalog.current(), db.epochs.read().published
        self.sizes = db.store.sizes()
        self._read = load_plan(db.store, self.published.plan)
        self._loads = Loads(db.store, self._read.program, self.published)
        spent = read_costs(db.store)
        self._costs = spent.of_views(self.plan.program)
        self._whole = sum(seconds for seconds, _ in self._costs.values())
        self._counts = 0

    def names(self) -> list[str]:
        """All views, those among them that cannot be read."""
        return sorted({*self.plan.views, *self.plan.unreadable})

    def standing(self, name: str) -> _Standing:
        plan = self.plan
        if (failure := plan.failed.get(name)) is not None:
            return _Standing("failed", str(view_failed(name, failure, self.db.url)))
        if (reason := plan.unreadable.get(name)) is not None:
            return _Standing("failed", str(view_unreadable(name, reason)))
        return self._kept(self._read.program.placements.get(name), plan.views[name])

    def replacement(self, name: str) -> _Standing | None:
        """How far that is which will take the view's name."""
        new = successor_name(name)
        if (failure := self.plan.failed.get(new)) is not None:
            told = f"the view that was to replace {name} failed at epoch {failure.epoch}: "
            return _Standing("failed", f"{told}{failure.reason}. {name} goes on as it was")
        if (successor := self.plan.successors.get(name)) is None:
            return None
        return self._kept(self._read.program.placements.get(new), successor.apart)

    def _kept(self, placement: Placement | None, view: View) -> _Standing:
        if placement is None or placement.view != view:
            return _Standing("waiting")
        progress = self._loads.of(placement)
        return _Standing("ready" if progress is None else "loading", progress=progress)

    def entry(self, name: str) -> dict[str, Any]:
        """A view as the page shows it."""
        standing, replacement = self.standing(name), self.replacement(name)
        view, held = self.plan.views.get(name), self.plan.program.placements.get(name)
        size = TableSize() if held is None else table_size(held, self.sizes)
        rows = None
        if standing.state == "ready" and held is not None and self._counts < _MOST_COUNTS:
            self._counts += 1
            rows = rows_at(self.db.store, held, size, self.published, self._most_counted)
        seconds, changed = self._costs.get(name, (0.0, 0))
        return {
            "name": name,
            **standing.plain(),
            "replacement": None if replacement is None else replacement.plain(),
            "rows": rows,
            "held": size.rows,
            "bytes": size.bytes,
            "seconds": round(seconds, 3),
            "changed": changed,
            "cost": seconds / self._whole if self._whole else None,
            **({"columns": [], "key": []} if view is None else _schema(view.schema, view.visible)),
        }


def views_of(db: Database) -> dict[str, Any]:
    """All tables and views by name; of very many views those that are not ready, and the first."""
    look = _Look(db, MOST_COUNTED)
    states = {name: look.standing(name).state for name in look.names()}
    shown = sorted(states, key=lambda name: (states[name] == "ready", name))[:MOST_VIEWS]
    tables = [
        {"name": name, "state": "base", **_schema(source.schema, source.schema.names)}
        for name, source in sorted(look.plan.tables.items())
    ]
    return {
        "plan": look.plan.version,
        "url": db.url,
        "views": [look.entry(name) for name in sorted(shown)],
        "tables": tables[:MOST_VIEWS],
        "total": len(states),
        "ready": sum(state == "ready" for state in states.values()),
        "failed": sum(state == "failed" for state in states.values()),
    }


def view_of(db: Database, name: str) -> dict[str, Any]:
    """One view, with its SQL and that of its replacement."""
    look = _Look(db, MOST_COUNTED_ALONE)
    view, successor = look.plan.views.get(name), look.plan.successors.get(name)
    return {
        "url": db.url,
        "plan": look.plan.version,
        "epoch": look.published.epoch,
        **look.entry(name),
        "sql": None if view is None else laid_out(view.sql),
        "new_sql": None if successor is None else laid_out(successor.view.sql),
        "shared": _shared(look.plan, name),
    }


def sql_of(db: Database, names: list[str]) -> dict[str, str]:
    """The SQL of some views, a clause a line."""
    views = db.catalog.current().views
    return {name: laid_out(views[name].sql) for name in names if name in views}


def table_size(placement: Placement, sizes: Sizes) -> TableSize:
    """What the state table of a view holds."""
    return sizes.tables.get(placement.table.number, TableSize())


def rows_at(
    store: Store, placement: Placement, size: TableSize, published: Published, most: int
) -> int | None:
    """The rows of a view; None where its table holds more than `most`, old ones among them."""
    if size.rows > most:
        return None
    number, limit = placement.table.number, most + 1
    try:
        return sum(
            len(store.state.scan(shard, number, limit=limit, at=published.epoch).keys)
            for shard in range(store.state.shards)
        )
    except EpochGone:  # epochs follow each other fast; the next look may do
        return None


def _shared(plan: PlanVersion, name: str) -> list[str]:
    """The views that stand on some operator of this one."""
    program: Program = plan.program
    own = program.placements.get(name)
    if own is None:
        return []
    others = {other: placement.operators for other, placement in program.placements.items()}
    return sorted(
        other
        for other, operators in others.items()
        if other in plan.views and other != name and not operators.isdisjoint(own.operators)
    )


def _schema(schema: Schema, visible: tuple[str, ...]) -> dict[str, Any]:
    key = [{"name": name, "type": str(schema[name].type)} for name in schema.key]
    columns = [{"name": name, "type": str(schema[name].type)} for name in visible]
    return {"columns": columns, "key": key}

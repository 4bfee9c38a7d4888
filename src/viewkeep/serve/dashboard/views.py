"""Tables and views as the browser lists them: what they are, how they stand, how far loaded."""

from __future__ import annotations

from typing import Any

import sqlglot

from viewkeep.access.reads import view_failed
from viewkeep.database import Database
from viewkeep.engine.programs import load_plan
from viewkeep.serve.dashboard.progress import Loads
from viewkeep.stores.contract import TableSize
from viewkeep.types import Schema

MOST_VIEWS = 500  # in one answer


def views_of(db: Database) -> dict[str, Any]:
    """All tables and views by name; of very many views those that are not ready, and the first."""
    plan, published = db.catalog.current(), db.epochs.read().published
    sizes = db.store.sizes()
    program = load_plan(db.store, published.plan).program
    loads = Loads(db.store, program, published)
    views = []
    for name in sorted(plan.views):
        view, placement = plan.views[name], program.placements.get(name)
        known = placement is not None and placement.view == view
        progress = loads.of(placement) if known and placement is not None else None
        state = "waiting" if not known else "loading" if progress else "ready"
        views.append((view, "failed" if name in plan.failed else state, progress))
    shown = sorted(views, key=lambda one: (one[1] == "ready", one[0].name))[:MOST_VIEWS]
    listed = []
    for view, state, progress in sorted(shown, key=lambda one: one[0].name):
        held, failure = plan.program.placements.get(view.name), plan.failed.get(view.name)
        size = TableSize() if held is None else sizes.tables.get(held.table.number, TableSize())
        problem = None if failure is None else str(view_failed(view.name, failure, db.url))
        listed.append(
            {
                "name": view.name,
                "state": state,
                "problem": problem,
                "loaded": None if progress is None else progress.rows,
                "share": None if progress is None else round(progress.share, 4),
                "rows": size.rows,
                "bytes": size.bytes,
                **_schema(view.schema, view.visible),
            }
        )
    tables = [
        {"name": name, "state": "base", **_schema(source.schema, source.schema.names)}
        for name, source in sorted(plan.tables.items())
    ]
    return {
        "plan": plan.version,
        "url": db.url,
        "views": listed,
        "tables": tables[:MOST_VIEWS],
        "total": len(views),
        "ready": sum(state == "ready" for _, state, _ in views),
    }


def sql_of(db: Database, names: list[str]) -> dict[str, str]:
    """The SQL of some views, a clause a line."""
    views = db.catalog.current().views
    return {name: _laid_out(views[name].sql) for name in names if name in views}


def _laid_out(sql: str) -> str:
    # Databricks' dialect is Spark's with QUALIFY, which would else be written as a subquery.
    return "".join(sqlglot.transpile(sql, read="spark", write="databricks", pretty=True))


def _schema(schema: Schema, visible: tuple[str, ...]) -> dict[str, Any]:
    key = [{"name": name, "type": str(schema[name].type)} for name in schema.key]
    columns = [{"name": name, "type": str(schema[name].type)} for name in visible]
    return {"columns": columns, "key": key}

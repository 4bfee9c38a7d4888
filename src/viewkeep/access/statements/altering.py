"""ALTER TABLE over a catalog, and which views a change of a table would break.

Law: a view stays as it is over a changed table, with its state, if its SQL means the same there:
it can be written over the table, has the same columns, and reads the same columns of the table.
"""

from __future__ import annotations

from viewkeep.access.definitions import in_order
from viewkeep.access.statements.rewriting import newest_views, written_again
from viewkeep.catalog import Catalog
from viewkeep.engine.programs import PlanVersion
from viewkeep.errors import CatalogError
from viewkeep.plan.alterations import changed_columns
from viewkeep.plan.nodes import Source, View, sources
from viewkeep.plan.program import compile_program
from viewkeep.sql.relations.scope import Resolve
from viewkeep.sql.statements.nodes import AlterTable


def alter_table(catalog: Catalog, wanted: AlterTable, resolve: Resolve) -> None:
    """Change a table, unless a view that reads it would break; `resolve` is of the newest plan."""
    newest = catalog.current()

    def broken(new: Source) -> dict[str, str]:
        return broken_views(wanted, new, newest, resolve)

    catalog.alter_table(wanted, newest, broken)


def broken_views(
    wanted: AlterTable, new: Source, plan: PlanVersion, resolve: Resolve
) -> dict[str, str]:
    """The views that do not mean the same over the changed table, and why."""
    old = plan.tables[wanted.name]
    known = dict(old.rows.columns)
    came = {number for name, number in new.rows.columns if number not in known.values()}
    broken = needing_views(wanted, plan)
    rewritten: dict[str, View] = {}
    for view in in_order(newest_views(plan).values()):
        if wanted.name not in view.reads and rewritten.keys().isdisjoint(view.reads):
            continue
        if view.name in broken:
            continue
        try:
            again = written_again(
                view,
                {wanted.name, *rewritten},
                lambda name: new if name == wanted.name else rewritten.get(name) or resolve(name),
                plan.program.existing,
            ).view
        except CatalogError as error:
            broken[view.name] = str(error.__cause__ or error)
            continue
        if again.schema != view.schema or _columns_read(again, old.number) & came:
            broken[view.name] = "its SQL would mean something else"
            continue
        rewritten[view.name] = again
    return broken


def needing_views(wanted: AlterTable, plan: PlanVersion) -> dict[str, str]:
    """The views that read columns which do not stay as they are, also while others replace them."""
    old = plan.tables[wanted.name]
    gone = {number for one in wanted.alterations for number in changed_columns(old, one)}
    names = {number: name for name, number in old.rows.columns}
    needing: dict[str, str] = {}
    for view in (*plan.views.values(), *(s.view for s in plan.successors.values())):
        if not gone or all(base.number != old.number for base in sources(view.node)):
            continue
        lost = sorted(names[n] for n in _columns_read(view, old.number) & gone if n in names)
        if lost:
            needing[view.name] = f"it needs {', '.join(lost)}"
    return needing


def _columns_read(view: View, table: int) -> set[int]:
    """The numbers of the columns of a base table that a view reads."""
    found: set[int] = set()
    for operator in compile_program([view], lambda _: 0).operators:
        for feed in operator.feeds:
            source = feed.producer
            if isinstance(source, Source) and source.number == table:
                numbers = dict(source.rows.columns)
                found |= {numbers[name] for name in feed.narrowed[0]}
    return found

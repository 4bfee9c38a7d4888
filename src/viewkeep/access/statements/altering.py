"""Which views a change of a table would break.

Law: a view stays as it is over a changed table, with its state, if its SQL means the same there:
it can be written over the table, has the same columns, and reads the same columns of the table.
"""

from __future__ import annotations

from viewkeep.access.definitions import in_order
from viewkeep.access.statements.rewriting import newest_views, written_again
from viewkeep.engine.programs import PlanVersion
from viewkeep.errors import CatalogError
from viewkeep.plan.alterations import changed_columns
from viewkeep.plan.nodes import Source, View
from viewkeep.plan.program import compile_program
from viewkeep.sql.relations.scope import Resolve
from viewkeep.sql.statements.nodes import AlterTable


def broken_views(
    wanted: AlterTable, new: Source, plan: PlanVersion, resolve: Resolve
) -> dict[str, str]:
    """The views that do not mean the same over the changed table, and why."""
    old = plan.tables[wanted.name]
    gone = {number for one in wanted.alterations for number in changed_columns(old, one)}
    known = dict(old.rows.columns)
    came = {number for name, number in new.rows.columns if number not in known.values()}
    names = {number: name for name, number in known.items()}
    broken: dict[str, str] = {}
    rewritten: dict[str, View] = {}
    for view in in_order(newest_views(plan).values()):
        if wanted.name not in view.reads and rewritten.keys().isdisjoint(view.reads):
            continue
        if lost := sorted(names[n] for n in _columns_read(view, old.number) & gone if n in names):
            broken[view.name] = f"it needs {', '.join(lost)}"
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

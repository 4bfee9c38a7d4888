"""The catalog: tables and views as plan versions, changed one at a time and all or nothing.

Every change makes the plan version after the newest one. It takes effect in the pipeline at the
next epoch boundary; a plan version is immutable, so an epoch that is being run again finds the plan
it began with.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from viewkeep.engine.programs import PlanVersion, newest_plan, save_definitions
from viewkeep.engine.revision import extended, numbered, revise
from viewkeep.errors import CatalogError
from viewkeep.plan.nodes import CellSource, Source, View, sources
from viewkeep.plan.program import Program, producer_id
from viewkeep.sql.statements.nodes import CreateView
from viewkeep.stores.contract import Store
from viewkeep.types import Schema

_T = TypeVar("_T")


class Catalog:
    """The tables and views of one store. `changed` is called after each change."""

    def __init__(self, store: Store, changed: Callable[[], None] = lambda: None):
        self.store, self._changed = store, changed

    def current(self) -> PlanVersion:
        """The newest plan version."""
        return newest_plan(self.store)

    def resolve(self, name: str) -> Source | View | None:
        """The table or view of this name."""
        plan = self.current()
        return plan.tables.get(name) or plan.views.get(name)

    def create_table(self, name: str, schema: Schema, if_not_exists: bool = False) -> None:
        """Add a base table."""

        def change(plan: PlanVersion) -> PlanVersion | None:
            if if_not_exists and name in plan.tables:
                return None
            _refuse_taken(plan, name)
            source = self._source(name, plan.next_number, schema)
            return replace(
                plan, tables={**plan.tables, name: source}, next_number=plan.next_number + 1
            )

        self._commit(change)

    def _source(self, name: str, number: int, schema: Schema) -> Source:
        """A table of this store, by what its log tells of one."""
        rules = self.store.capabilities.cells
        if rules is None:
            return Source(name, number, schema)
        return CellSource(name, number, schema, rules.ties.value, rules.versions)

    def drop_table(self, name: str, if_exists: bool = False) -> None:
        """Remove a base table that no view reads; its rows are removed as epochs go by."""

        def change(plan: PlanVersion) -> PlanVersion | None:
            if name not in plan.tables:
                _missing(name, "table", plan.tables, if_exists)
                return None
            _refuse_read(plan, name)
            return replace(plan, tables=_without(plan.tables, name))

        self._commit(change)

    def create_view(
        self,
        view: View,
        if_not_exists: bool = False,
        or_replace: bool = False,
        basis: PlanVersion | None = None,
    ) -> None:
        """Add a view. The pipeline loads it from the rows that are there, while others go on.

        `basis` is the plan that the view's SQL was understood by; what it reads must be the same.
        """
        self.create_views([CreateView(view, if_not_exists, or_replace)], basis)

    def create_views(self, wanted: Sequence[CreateView], basis: PlanVersion | None = None) -> None:
        """Add views in one change, all or none; each may read those before it."""
        generations = save_definitions(self.store, [statement.view for statement in wanted])

        def change(plan: PlanVersion) -> PlanVersion | None:
            views, generation_of = dict(plan.views), dict(plan.generations)
            failed, repairs = dict(plan.failed), dict(plan.repairs)
            unreadable = dict(plan.unreadable)
            made = replace(
                plan,
                views=views,
                generations=generation_of,
                failed=failed,
                repairs=repairs,
                unreadable=unreadable,
            )
            added: dict[str, View] = {}
            replaced = False
            for statement, generation in zip(wanted, generations, strict=True):
                view = statement.view
                if view.name in views and statement.if_not_exists:
                    continue
                if view.name in views and statement.or_replace:
                    _refuse_read(made, view.name)
                    del views[view.name]
                    failed.pop(view.name, None)
                    repairs.pop(view.name, None)
                    replaced = True
                if view.name in unreadable and statement.or_replace:
                    del unreadable[view.name]
                    replaced = True
                _refuse_taken(made, view.name)
                _refuse_changed(made, view, basis or plan, added)
                views[view.name] = added[view.name] = view
                generation_of[view.name] = generation
            if not added:
                return None
            return numbered(made) if replaced else extended(made, plan, added.values())

        self._commit(change)

    def drop_view(self, name: str, if_exists: bool = False) -> None:
        """Remove a view that no other view is written over; its state goes as epochs go by."""

        def change(plan: PlanVersion) -> PlanVersion | None:
            if name not in plan.views and name not in plan.unreadable:
                _missing(name, "view", plan.views, if_exists)
                return None
            _refuse_read(plan, name)
            return numbered(_drop(plan, name))

        self._commit(change)

    def rebuild_view(self, name: str) -> None:
        """Give a view's state, and all that is computed from it, new tables to load afresh."""

        def change(plan: PlanVersion) -> PlanVersion | None:
            if name not in plan.views:
                _missing(name, "view", plan.views, False)
                return None
            if name in plan.failed:
                raise CatalogError(f"view {name} has failed: viewkeep repair loads it afresh")
            if name in plan.repairs:
                return None  # it will be loaded afresh
            stale = _touching(plan.program, name)
            kept = {k: n for k, n in plan.numbers.items() if k.split(" ", 1)[0] not in stale}
            return numbered(replace(plan, numbers=kept))

        self._commit(change)

    def repair_views(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        """Have failed views loaded afresh, with the failed views that read them.

        All failed views if none is named. They are loaded once an epoch has covered all that is
        written now, so that rows corrected before count as they are. Returns their names.
        """
        repaired: set[str] = set()

        def change(plan: PlanVersion) -> PlanVersion | None:
            for name in names:
                if name not in plan.views:
                    _missing(name, "view", plan.views, False)
                if name not in plan.failed:
                    raise CatalogError(f"view {name} has not failed, so there is nothing to repair")
            repaired.clear()
            todo = list(names or plan.failed)
            while todo:
                name = todo.pop()
                repaired.add(name)
                users = (user for user, view in plan.views.items() if name in view.reads)
                todo += [user for user in users if user in plan.failed and user not in repaired]
            if not repaired:
                return None
            left = {name: why for name, why in plan.failed.items() if name not in repaired}
            head = self.store.log.head()
            repairs = {**plan.repairs, **dict.fromkeys(repaired, head)}
            return replace(plan, failed=left, repairs=repairs)

        self._commit(change)
        return tuple(sorted(repaired))

    def _commit(self, change: Callable[[PlanVersion], PlanVersion | None]) -> None:
        revise(self.store, change)
        self._changed()


def _touching(program: Program, view: str) -> set[str]:
    """The operators that a view stands on, and all that stand on one of those."""
    stale = set(program.placements[view].operators)
    for operator in program.operators:  # producers come before consumers
        below = {producer_id(feed.producer) for feed in operator.feeds}
        if not stale.isdisjoint(below | {port.producer for port in operator.ports}):
            stale.add(operator.id)
    return stale


def _drop(plan: PlanVersion, name: str) -> PlanVersion:
    return replace(
        plan,
        views=_without(plan.views, name),
        generations=_without(plan.generations, name),
        failed=_without(plan.failed, name),
        repairs=_without(plan.repairs, name),
        unreadable=_without(plan.unreadable, name),
    )


def _without(items: Mapping[str, _T], name: str) -> dict[str, _T]:
    return {key: value for key, value in items.items() if key != name}


def _refuse_read(plan: PlanVersion, name: str) -> None:
    """Refuse to take away what the SQL of a view names: it could not be verified any more."""
    if users := sorted(user for user, view in plan.views.items() if name in view.reads):
        raise CatalogError(f"{name} is read by {', '.join(users)}; drop {_those(users)} first")


def _refuse_changed(
    plan: PlanVersion, view: View, basis: PlanVersion, added: Container[str]
) -> None:
    """Refuse a view whose tables or views are not those that its SQL was understood by."""
    lost = [name for name in view.reads if name not in plan.tables and name not in plan.views]
    lost += [
        name
        for name in view.reads
        if name not in added and plan.generations.get(name) != basis.generations.get(name)
    ]
    lost += [base.table for base in sources(view.node) if plan.tables.get(base.table) != base]
    if lost:
        raise CatalogError(
            f"{lost[0]}, which {view.name} reads, was dropped or replaced meanwhile; try again"
        )


def _those(users: list[str]) -> str:
    return "that view" if len(users) == 1 else "those views"


def _refuse_taken(plan: PlanVersion, name: str) -> None:
    views = name in plan.views or name in plan.unreadable
    kind = "table" if name in plan.tables else "view" if views else None
    if kind is not None:
        raise CatalogError(f"{kind} {name} exists already; drop it first, or choose another name")


def _missing(name: str, kind: str, among: Mapping[str, object], accepted: bool) -> None:
    """No change if a missing object is accepted, else an error."""
    if accepted:
        return
    near = difflib.get_close_matches(name, among, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise CatalogError(f"there is no {kind} {name}{hint}")

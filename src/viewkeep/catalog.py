"""The catalog: tables and views as plan versions, changed one at a time and all or nothing.

Every change makes the plan version after the newest one. It takes effect in the pipeline at the
next epoch boundary; a plan version is immutable, so an epoch that is being run again finds the plan
it began with.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from viewkeep.engine.housekeeping import note_dropped
from viewkeep.engine.programs import PlanVersion, commit_plan, newest_plan, save_definitions
from viewkeep.errors import CatalogError
from viewkeep.plan.nodes import Source, View, sources
from viewkeep.plan.program import Program, producer_id, state_keys
from viewkeep.sql.statements import CreateView
from viewkeep.stores.contract import Store
from viewkeep.types import Schema

_T = TypeVar("_T")


class Catalog:
    """The tables and views of one store."""

    def __init__(self, store: Store):
        self.store = store

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
            source = Source(name, plan.next_number, schema)
            return replace(
                plan, tables={**plan.tables, name: source}, next_number=plan.next_number + 1
            )

        self._commit(change)

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
            views, numbered = dict(plan.views), dict(plan.generations)
            made = replace(plan, views=views, generations=numbered)
            added: dict[str, View] = {}
            replaced = False
            for statement, generation in zip(wanted, generations, strict=True):
                view = statement.view
                if view.name in views and statement.if_not_exists:
                    continue
                if view.name in views and statement.or_replace:
                    _refuse_read(made, view.name)
                    del views[view.name]
                    replaced = True
                _refuse_taken(made, view.name)
                _refuse_changed(made, view, basis or plan, added)
                views[view.name] = added[view.name] = view
                numbered[view.name] = generation
            if not added:
                return None
            return _numbered(made) if replaced else _numbered(made, added.values())

        self._commit(change)

    def drop_view(self, name: str, if_exists: bool = False) -> None:
        """Remove a view that no other view is written over; its state goes as epochs go by."""

        def change(plan: PlanVersion) -> PlanVersion | None:
            if name not in plan.views:
                _missing(name, "view", plan.views, if_exists)
                return None
            _refuse_read(plan, name)
            return _numbered(_drop(plan, name))

        self._commit(change)

    def rebuild_view(self, name: str) -> None:
        """Give a view's state, and all that is computed from it, new tables to load afresh."""

        def change(plan: PlanVersion) -> PlanVersion | None:
            if name not in plan.views:
                _missing(name, "view", plan.views, False)
                return None
            stale = _touching(plan.program, name)
            kept = {k: n for k, n in plan.numbers.items() if k.split(" ", 1)[0] not in stale}
            return _numbered(replace(plan, numbers=kept))

        self._commit(change)

    def _commit(self, change: Callable[[PlanVersion], PlanVersion | None]) -> None:
        """Apply a change to the newest plan until no other writer got in between."""
        while True:
            old = self.current()
            changed = change(old)
            if changed is None:
                return
            new = replace(changed, version=old.version + 1)
            if commit_plan(self.store, new):
                break
        states = sorted(set(old.numbers.values()) - set(new.numbers.values()))
        tables = [s.number for name, s in old.tables.items() if name not in new.tables]
        if states or tables:
            note_dropped(self.store, new.version, states, tables)


def _numbered(plan: PlanVersion, added: Iterable[View] | None = None) -> PlanVersion:
    """The plan with a number for each state table it needs, and none for others.

    If views were only `added`, the tables of all others have theirs.
    """
    numbers: dict[str, int] = {} if added is None else dict(plan.numbers)
    following = plan.next_number
    for key in state_keys(plan.views.values() if added is None else added):
        if key in plan.numbers:
            numbers[key] = plan.numbers[key]
        else:
            numbers[key] = following
            following += 1
    return replace(plan, numbers=numbers, next_number=following)


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
        plan, views=_without(plan.views, name), generations=_without(plan.generations, name)
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
    kind = "table" if name in plan.tables else "view" if name in plan.views else None
    if kind is not None:
        raise CatalogError(f"{kind} {name} exists already; drop it first, or choose another name")


def _missing(name: str, kind: str, among: Mapping[str, object], accepted: bool) -> None:
    """No change if a missing object is accepted, else an error."""
    if accepted:
        return
    near = difflib.get_close_matches(name, among, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise CatalogError(f"there is no {kind} {name}{hint}")

"""The catalog: tables and views as plan versions, changed one at a time and all or nothing.

Every change makes the plan version after the newest one. It takes effect in the pipeline at the
next epoch boundary; a plan version is immutable, so an epoch that is being run again finds the plan
it began with.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NoReturn, TypeAlias, TypeVar

from viewkeep.engine.epochs import Epochs
from viewkeep.engine.programs import (
    PlanVersion,
    Successor,
    load_plan,
    newest_plan,
    save_definitions,
    shape_of,
    successor_name,
)
from viewkeep.engine.revision import extended, numbered, revise
from viewkeep.engine.successors import before_replacement
from viewkeep.errors import CatalogError, EpochGone, PlanOutdated
from viewkeep.expr import Scalar
from viewkeep.plan.alterations import SetDefault, altered
from viewkeep.plan.nodes import CellSource, Source, View, WantedKeys, sources
from viewkeep.plan.program import Program, producer_id
from viewkeep.sql.statements.nodes import AlterTable, CreateView
from viewkeep.stores.contract import Store
from viewkeep.types import Schema

_T = TypeVar("_T")
Options: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CatalogChange:
    """Tables and views to add, views to replace and to drop, in one change over the `basis`.

    `altered` are tables that are there, as they are to be.
    """

    basis: PlanVersion
    tables: Mapping[str, Source]
    views: Sequence[CreateView]
    drops: Sequence[str]
    altered: Mapping[str, Source] = field(default_factory=dict)


class Catalog:
    """The tables and views of one store. `changed` is called after each change."""

    def __init__(self, store: Store, changed: Callable[[], None] = lambda: None):
        self.store, self._changed = store, changed

    def current(self) -> PlanVersion:
        """The newest plan version."""
        return newest_plan(self.store)

    def resolve(self, name: str) -> Source | View | None:
        """The table or view of this name, as readers of the published epoch have it."""
        plan, published = self.current(), Epochs(self.store).read().published.plan
        if plan.version != published:
            with suppress(EpochGone):  # a later one was published just now
                plan = before_replacement(plan, load_plan(self.store, published))
        return plan.tables.get(name) or plan.views.get(name)

    def create_table(
        self,
        name: str,
        schema: Schema,
        if_not_exists: bool = False,
        options: Options = (),
        defaults: Sequence[tuple[str, Scalar]] = (),
    ) -> None:
        """Add a base table. The `options` say how it lies in a store that other programs use."""

        def change(plan: PlanVersion) -> PlanVersion | None:
            if if_not_exists and name in plan.tables:
                return None
            _refuse_taken(plan, name)
            source = self.source(name, plan.next_number, schema, options, defaults)
            self.store.tables.adopt(shape_of(source))
            return replace(
                plan, tables={**plan.tables, name: source}, next_number=plan.next_number + 1
            )

        self._commit(change)

    def source(
        self,
        name: str,
        number: int,
        schema: Schema,
        options: Options = (),
        defaults: Sequence[tuple[str, Scalar]] = (),
    ) -> Source:
        """A table of this store, by what its log tells of one."""
        rules = self.store.capabilities.cells
        if rules is not None:
            if defaults:
                raise CatalogError(f"column {defaults[0][0]}: tables of this store have no DEFAULT")
            return CellSource(name, number, schema, rules.ties.value, rules.versions, options)
        if options:
            raise CatalogError(
                f"table {name} cannot lie elsewhere than in this database: USING and OPTIONS are "
                "for databases at hbase://HOST:PORT/NAME"
            )
        source = Source(name, number, schema)
        for column, value in defaults:
            source = altered(source, SetDefault(column, value))
        return source

    def alter_table(
        self, wanted: AlterTable, basis: PlanVersion, broken: Callable[[Source], Mapping[str, str]]
    ) -> None:
        """Change the columns or the name of a base table; no row is rewritten.

        `broken` tells which views could not be written over the changed table as they are, and
        why. They refuse the change; with CASCADE they are dropped, with all that read them.
        """
        name = wanted.name

        def change(plan: PlanVersion) -> PlanVersion | None:
            if plan.version != basis.version:
                raise PlanOutdated("the tables or views changed meanwhile")
            old = plan.tables[name]
            if isinstance(old, CellSource):
                raise CatalogError(f"the columns of {name} are the store's own; ALTER is not there")
            new = old
            for alteration in wanted.alterations:
                new = altered(new, alteration)
            if new is old:
                return None
            if new.table != name:
                _refuse_taken(plan, new.table)
                _refuse_read(plan, name)
            lost = broken(new)
            if lost and not wanted.cascades:
                raise CatalogError(_broken(wanted, lost))
            for view in _with_readers(plan, lost):
                plan = _drop(plan, view)
            tables = {n: source for n, source in plan.tables.items() if n != name}
            return numbered(replace(plan, tables={**tables, new.table: new}))

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
    ) -> Sequence[str]:
        """Add a view. The pipeline loads it from the rows that are there, while others go on.

        `basis` is the plan that the view's SQL was understood by; what it reads must be the same.
        """
        return self.create_views([CreateView(view, if_not_exists, or_replace)], basis)

    def create_views(
        self, wanted: Sequence[CreateView], basis: PlanVersion | None = None
    ) -> Sequence[str]:
        """Add views in one change, all or none; each may read those before it.

        Of a view that is replaced and answers, the new version is loaded beside it, and takes its
        name once all of this change are loaded. The names of those are returned.
        """
        self._check_partial(statement.view for statement in wanted)
        generations = save_definitions(self.store, [statement.view for statement in wanted])
        beside = list[str]()

        def change(plan: PlanVersion) -> PlanVersion | None:
            addition = _Addition(plan, wanted, basis or plan, self._answers(plan))
            made = addition.made(generations)
            beside[:] = addition.beside
            return made

        self._commit(change)
        return beside

    def apply(self, wanted: CatalogChange) -> None:
        """Make a change of many tables and views, all or none; PlanOutdated if others were first.

        If it replaces or drops a view that answers, all its views take their names together, and
        what it drops answers until then.
        """
        self._check_partial(statement.view for statement in wanted.views)
        generations = save_definitions(self.store, [statement.view for statement in wanted.views])

        def change(plan: PlanVersion) -> PlanVersion | None:
            if plan.version != wanted.basis.version:
                raise PlanOutdated("the tables or views changed meanwhile")
            for source in wanted.tables.values():
                self.store.tables.adopt(shape_of(source))
            return self.preview(wanted, generations)

        self._commit(change)

    def _check_partial(self, views: Iterable[View]) -> None:
        """Refuse partial views where readers cannot read state, or write which keys they want."""
        has = self.store.capabilities
        for view in views:
            if view.wanted is not None and (has.views_apart or has.cells is not None):
                raise CatalogError(
                    f"{view.name} cannot be partial: readers of this store have views alone, and "
                    "not the state that keys are computed from. Create it without partial"
                )

    def preview(
        self, wanted: CatalogChange, generations: Sequence[int] | None = None
    ) -> PlanVersion | None:
        """The plan that a change would make; None if it changes nothing."""
        if generations is None:
            generations = [-number for number, _ in enumerate(wanted.views, 1)]
        plan, tables = wanted.basis, {**wanted.basis.tables, **wanted.altered}
        for name, source in wanted.tables.items():
            _refuse_taken(plan, name)
            tables[name] = source
        plan = replace(plan, tables=tables, next_number=plan.next_number + len(wanted.tables))
        answers = self._answers(plan)
        addition = _Addition(plan, wanted.views, plan, answers, wanted.drops, together=True)
        made = addition.made(generations) or (plan if wanted.tables or wanted.altered else None)
        return numbered(made) if made is not None and wanted.altered else made

    def _answers(self, plan: PlanVersion) -> Callable[[str], bool]:
        """Tells whether a view of this plan can be read now."""
        epochs = Epochs(self.store)
        published = epochs.read().published
        program = load_plan(self.store, published.plan).program

        def answers(name: str) -> bool:
            placement = program.placements.get(name)
            known = placement is not None and placement.view == plan.views.get(name)
            out = name in plan.failed or name in plan.repairs
            return known and not out and epochs.ready(name, published)

        return answers

    def drop_view(self, name: str, if_exists: bool = False) -> None:
        """Remove a view that no other view is written over; its state goes as epochs go by."""

        def change(plan: PlanVersion) -> PlanVersion | None:
            if not (name in plan.views or name in plan.unreadable or name in plan.successors):
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
            todo = list(names or (name for name in plan.failed if name in plan.views))
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


class _Addition:
    """The views of one change: which are added, which replace others, and which of those at once.

    One that answers is replaced by a successor that is loaded beside it; so is, with it, what reads
    it. Any other is replaced at once. If one that answers is replaced or dropped in a change that
    is to come `together`, all its views are successors, and what it drops leaves with them.
    """

    def __init__(
        self,
        plan: PlanVersion,
        wanted: Sequence[CreateView],
        basis: PlanVersion,
        answers: Callable[[str], bool],
        drops: Sequence[str] = (),
        *,
        together: bool = False,
    ):
        self.drops, self.together = drops, together
        self.plan, self.wanted, self.basis, self.answers = plan, wanted, basis, answers
        self.names = {statement.view.name for statement in wanted}
        self.views, self.generations = dict(plan.views), dict(plan.generations)
        self.origins, self.successors = dict(plan.origins), dict(plan.successors)
        self.failed, self.repairs = dict(plan.failed), dict(plan.repairs)
        self.unreadable, self.leaving = dict(plan.unreadable), dict(plan.leaving)
        # Views of one name and key have one table of wanted keys, whichever comes first.
        self.key_tables = {keys: keys.number for keys in plan.wanted_keys}
        self.next_number = plan.next_number
        self.added: dict[str, View] = {}  # by the names that the program has for them
        self.beside: list[str] = []
        self.lost = False  # whether some view is no longer kept

    def made(self, generations: Sequence[int]) -> PlanVersion | None:
        """The plan with these views; None if all are there as they are."""
        self.together = self.together and self._changes_what_answers()
        for statement, generation in zip(self.wanted, generations, strict=True):
            self._add(statement, generation)
        for name in self.drops:
            self._drop(name)
        if not self.added and not self.lost:
            return None
        made = self._now()
        return numbered(made) if self.lost else extended(made, self.plan, self.added.values())

    def _changes_what_answers(self) -> bool:
        replaced = (
            statement.view.name
            for statement in self.wanted
            if statement.view.name in self.views and not self._is_kept(statement.view)
        )
        return any(map(self.answers, chain(self.drops, replaced)))

    def _drop(self, name: str) -> None:
        """Take a view away, now or when the views that come with this change take their names."""
        last = {**self.views, **{n: successor.view for n, successor in self.successors.items()}}
        users = [n for n, view in last.items() if name in view.reads and n not in self.drops]
        if users:
            _refuse_users(name, sorted(users))
        self._forget_successor(name)
        if self.beside and name in self.views and self.answers(name):
            self.leaving[name] = self.plan.version + 1
        else:
            self._forget(name)
            self.generations.pop(name, None)

    def _add(self, statement: CreateView, generation: int) -> None:
        view, name = statement.view, statement.view.name
        is_there = name in self.views or name in self.successors
        if is_there and statement.if_not_exists:
            return
        if is_there and not statement.or_replace:
            _refuse_taken(self._now(), name)
        if self._is_kept(view):
            self._forget_successor(name)
            return
        self._refuse_others(view)
        reads_new = any(read in self.beside for read in view.reads)
        answers = name in self.views and self.answers(name)
        if self.together or reads_new or answers:
            self._forget_successor(name)
            _refuse_taken(self._now(), successor_name(name))
            view = self._numbered(view)
            successor = Successor(view, generation, self.plan.version + 1)
            self.successors[name] = successor
            self.added[successor.apart.name] = successor.apart
            self.beside.append(name)
            return
        if statement.or_replace:
            self._forget(name)
        _refuse_taken(self._now(), name)
        self.views[name] = self.added[name] = self._numbered(view)
        self.generations[name] = generation

    def _numbered(self, view: View) -> View:
        """The view, with the table of its wanted keys if it is partial."""
        if view.wanted is None:
            return view
        if view.wanted not in self.key_tables:
            self.key_tables[view.wanted] = self.next_number
            self.next_number += 1
        return view.numbered(self.key_tables[view.wanted])

    def _is_kept(self, view: View) -> bool:
        name = view.name
        return self.views.get(name) == view and not (name in self.failed or name in self.repairs)

    def _refuse_others(self, view: View) -> None:
        """Refuse what would take a view from under another, or build on one that changes."""
        _refuse_changed(self._now(), view, self.basis, self.names)
        if view.name in self.views or view.name in self.successors:
            _refuse_read(self._now(), view.name, {*self.names, *self.drops})
        for read in view.reads:
            if read in self.successors and read not in self.names:
                raise CatalogError(
                    f"{read}, which {view.name} reads, is being replaced; try again when "
                    f"viewkeep status no longer lists {successor_name(read)}"
                )
            if read in self.leaving:
                raise CatalogError(f"{read}, which {view.name} reads, is being dropped")

    def _forget_successor(self, name: str) -> None:
        self.lost |= self.leaving.pop(name, None) is not None
        self.lost |= self.successors.pop(name, None) is not None
        self.failed.pop(successor_name(name), None)
        self.unreadable.pop(successor_name(name), None)

    def _forget(self, name: str) -> None:
        """Let the view of this name go, with all that is known of it."""
        self._forget_successor(name)
        for known in (self.views, self.unreadable):
            self.lost |= name in known
        for items in (self.views, self.origins, self.failed, self.repairs, self.unreadable):
            items.pop(name, None)

    def _now(self) -> PlanVersion:
        return replace(
            self.plan,
            views=self.views,
            generations=self.generations,
            origins=self.origins,
            successors=self.successors,
            failed=self.failed,
            repairs=self.repairs,
            unreadable=self.unreadable,
            leaving=self.leaving,
            next_number=self.next_number,
        )


def _drop(plan: PlanVersion, name: str) -> PlanVersion:
    gone = successor_name(name)
    return replace(
        plan,
        views=_without(plan.views, name),
        generations=_without(plan.generations, name),
        origins=_without(plan.origins, name),
        successors=_without(plan.successors, name),
        failed=_without(_without(plan.failed, name), gone),
        repairs=_without(plan.repairs, name),
        unreadable=_without(_without(plan.unreadable, name), gone),
        leaving=_without(plan.leaving, name),
    )


def _with_readers(plan: PlanVersion, names: Iterable[str]) -> set[str]:
    """Some views and all that read one of them."""
    found, todo = set[str](), list(names)
    views = [*plan.views.values(), *(successor.view for successor in plan.successors.values())]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [view.name for view in views if name in view.reads]
    return found


def _broken(wanted: AlterTable, lost: Mapping[str, str]) -> str:
    """Why views refuse a change of a table."""
    reasons = "; ".join(f"{name}: {why}" for name, why in sorted(lost.items()))
    return (
        f"{wanted.name} is read by {', '.join(sorted(lost))}, which could not go on ({reasons}). "
        "Replace or drop them first"
    ) + ("" if not wanted.drops_columns else ", or write CASCADE to drop them")


def _without(items: Mapping[str, _T], name: str) -> dict[str, _T]:
    return {key: value for key, value in items.items() if key != name}


def _refuse_read(plan: PlanVersion, name: str, besides: Container[str] = ()) -> None:
    """Refuse to take away what the SQL of a view names: it could not be verified any more.

    `besides` are views that change too.
    """
    coming = [successor.view for successor in plan.successors.values()]
    readers = {view.name for view in (*plan.views.values(), *coming) if name in view.reads}
    if users := sorted(user for user in readers if user not in besides):
        _refuse_users(name, users)


def _refuse_users(name: str, users: list[str]) -> NoReturn:
    raise CatalogError(f"{name} is read by {', '.join(users)}; drop {_those(users)} first")


def _refuse_changed(
    plan: PlanVersion, view: View, basis: PlanVersion, added: Container[str]
) -> None:
    """Refuse a view whose tables or views are not those that its SQL was understood by."""
    known = {*plan.tables, *plan.views, *plan.successors}
    lost = [name for name in view.reads if name not in known]
    lost += [
        name
        for name in view.reads
        if name not in added and plan.generations.get(name) != basis.generations.get(name)
    ]
    lost += [
        name
        for name in view.reads
        if name in basis.tables and not _is_same_table(plan.tables.get(name), basis.tables[name])
    ]
    numbers = {source.number for source in plan.tables.values()}
    bases = (base for base in sources(view.node) if not isinstance(base, WantedKeys))
    lost += [base.table for base in bases if base.number not in numbers]
    if lost:
        raise CatalogError(
            f"{lost[0]}, which {view.name} reads, was dropped or replaced meanwhile; try again"
        )


def _is_same_table(now: Source | None, known: Source) -> bool:
    return now is not None and (now, now.rows) == (known, known.rows)


def _those(users: list[str]) -> str:
    return "that view" if len(users) == 1 else "those views"


def _refuse_taken(plan: PlanVersion, name: str) -> None:
    views = {*plan.views, *plan.unreadable, *plan.successors}
    views |= {successor.apart.name for successor in plan.successors.values()}
    kind = "table" if name in plan.tables else "view" if name in views else None
    if kind is not None:
        raise CatalogError(f"{kind} {name} exists already; drop it first, or choose another name")


def _missing(name: str, kind: str, among: Mapping[str, object], accepted: bool) -> None:
    """No change if a missing object is accepted, else an error."""
    if accepted:
        return
    near = difflib.get_close_matches(name, among, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise CatalogError(f"there is no {kind} {name}{hint}")

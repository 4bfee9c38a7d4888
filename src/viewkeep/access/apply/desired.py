"""What a program asks for, compared with the tables and views that are there.

Law: a program says which tables and views there should be and by which SQL; OR REPLACE and IF NOT
EXISTS in it change nothing. What is there as the program says stays as it is, with its state. A
table with other columns is altered where ALTER TABLE can do it (`table_changes`), and no view that
answers loses a column by that. The views that the program does not name and that read one that
changes are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from viewkeep.access.apply.table_changes import table_changes
from viewkeep.access.definitions import create_view, has_star, in_order
from viewkeep.access.statements.altering import broken_views, needing_views
from viewkeep.access.statements.rewriting import newest_views, written_again
from viewkeep.catalog import CatalogChange
from viewkeep.engine.programs import PlanVersion
from viewkeep.errors import CatalogError, UnknownName, Unsupported
from viewkeep.expr import Scalar
from viewkeep.plan.alterations import altered
from viewkeep.plan.nodes import Source, View
from viewkeep.plan.share_groups import Existing
from viewkeep.sql.parse.syntax import parse, text_of
from viewkeep.sql.statements import nodes as st
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.definitions import name_of, statement_text
from viewkeep.sql.statements.nodes import AlterTable
from viewkeep.types import Schema

MakeSource = Callable[
    [str, int, Schema, tuple[tuple[str, str], ...], Sequence[tuple[str, Scalar]]], Source
]


@dataclass
class Desired:
    """A program over a basis: the change that it takes, and what it leaves as it is."""

    basis: PlanVersion
    prune: bool
    make_source: MakeSource
    unknown: Callable[[str], Exception]
    tables: dict[str, Source] = field(default_factory=dict)  # new ones
    alters: dict[str, AlterTable] = field(default_factory=dict)  # of tables that are there
    views: dict[str, st.CreateView] = field(default_factory=dict)  # new ones and others
    named: dict[str, Source | View] = field(default_factory=dict)  # all that the program names
    written_again: set[str] = field(default_factory=set)  # that the program does not name
    existing: Existing = field(init=False)  # what is kept, also for views of the program before

    def __post_init__(self) -> None:
        self.existing = self.basis.program.existing

    @staticmethod
    def of(
        text: str,
        basis: PlanVersion,
        make_source: MakeSource,
        unknown: Callable[[str], Exception],
        prune: bool = False,
    ) -> Desired:
        """The change that makes the program true. `unknown` gives the error for a name."""
        desired = Desired(basis, prune, make_source, unknown)
        for tree in parse(text):
            desired._take(tree)
        if not prune:
            for name in desired.not_named:
                if name in desired._there:
                    desired._database_view(name)
        for alter in desired.alters.values():
            desired._refuse_broken(alter)
        return desired

    @property
    def change(self) -> CatalogChange:
        """The change of the catalog."""
        wanted, drops = dict(self.views), self.drops
        if wanted or self.tables or self.alters or drops:
            # What comes and goes by an earlier change does so together with all that changes now.
            drops += [name for name in self.basis.leaving if name not in self.named]
            for name, successor in self.basis.successors.items():
                if name not in wanted and name not in drops:
                    wanted[name] = st.CreateView(successor.view, or_replace=True)
        ordered = [wanted[view.name] for view in in_order(s.view for s in wanted.values())]
        return CatalogChange(self.basis, self.tables, ordered, drops, self.altered_tables)

    @property
    def altered_tables(self) -> dict[str, Source]:
        """The tables that change, as they will be."""
        named = {name: self.named[name] for name in self.alters}
        return {name: table for name, table in named.items() if isinstance(table, Source)}

    @property
    def drops(self) -> list[str]:
        """The views that the program takes away."""
        return [name for name in self.not_named if name in self._views_there] if self.prune else []

    @property
    def not_named(self) -> list[str]:
        """The tables and views that are there, and stay there, without being named."""
        there = {*self.basis.tables, *self._views_there} - self.basis.leaving.keys()
        return sorted(there - self.named.keys())

    @property
    def _there(self) -> Mapping[str, View]:
        return newest_views(self.basis)

    @property
    def _views_there(self) -> set[str]:
        return {*self._there, *self.basis.unreadable} - self.basis.leaving.keys()

    def _take(self, tree: exp.Expr) -> None:
        if not isinstance(tree, exp.Create):
            raise Unsupported(
                "a program consists of CREATE TABLE, CREATE VIEW and CREATE INDEX",
                fragment=text_of(tree)[:80],
                hint="Run other statements with viewkeep sql",
            )
        kind = str(tree.args.get("kind") or "").upper()
        name = tree.this.name.lower() if kind == "INDEX" else name_of(tree.this)
        if name in self.named:
            raise CatalogError(f"the program creates {name} twice")
        known = self._there.get(name)
        if kind != "TABLE" and known is not None and self._is_same(tree, known):
            self.named[name] = known
            return
        statement = analyse(tree, self._resolve, self.existing)
        if isinstance(statement, st.CreateTable):
            self._take_table(statement)
        elif isinstance(statement, st.CreateView):
            if name in self.basis.tables:
                raise CatalogError(f"{name} is a table here and a view in the program")
            self._take_view(statement)

    def _is_same(self, tree: exp.Create, known: View) -> bool:
        """Whether a view has the same text and reads what it has read."""
        if known.name in self.basis.leaving or has_star(known.statement):
            return False
        changed = any(name in self.views or name in self.tables for name in self._resolved(known))
        return not changed and statement_text(tree) == (known.statement or create_view(known))

    def _resolved(self, view: View) -> list[str]:
        """What a view reads, with those of them written again that have to be."""
        for name in view.reads:
            if name not in self.named:
                self._resolve(name)
        return list(view.reads)

    def _take_table(self, wanted: st.CreateTable) -> None:
        name, known = wanted.name, self.basis.tables.get(wanted.name)
        if name in self._views_there:
            raise CatalogError(f"{name} is a view here and a table in the program")
        if known is None:
            number = self.basis.next_number + len(self.tables)
            known = self.tables[name] = self.make_source(
                name, number, wanted.schema, wanted.options, wanted.defaults
            )
        elif alterations := table_changes(known, wanted, drop_columns=self.prune):
            self.alters[name] = AlterTable(name, alterations)
            for alteration in alterations:
                known = altered(known, alteration)
        self.named[name] = known

    def _refuse_broken(self, alter: AlterTable) -> None:
        """Refuse a change of a table that views would not survive.

        One that is replaced answers over the changed table until the new one is loaded.
        """
        new = self.altered_tables[alter.name]
        broken = broken_views(alter, new, self.basis, self._after)
        needing = needing_views(alter, self.basis)
        lost = {
            name: why for name, why in broken.items() if name in needing or name not in self.views
        }
        if lost:
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(lost.items()))
            raise CatalogError(
                f"table {alter.name} cannot change as the program says while views answer that "
                f"could not go on ({reasons}). Apply a program first in which they are other views "
                "or none, and the table is as it is"
            )

    def _after(self, name: str) -> Source | View:
        return self.altered_tables.get(name) or self.basis.tables.get(name) or self._there[name]

    def _take_view(self, wanted: st.CreateView) -> None:
        name = wanted.view.name
        if self._there.get(name) != wanted.view or name in self.basis.leaving:
            self.views[name] = replace(wanted, or_replace=True, if_not_exists=False)
            self.existing = self.existing.with_view(wanted.view)
        self.named[name] = wanted.view

    def _resolve(self, name: str) -> Source | View:
        if name in self.named:
            return self.named[name]
        if name in self.basis.tables:
            return self.basis.tables[name]
        if name not in self._there:
            raise self.unknown(name)
        if self.prune:
            raise UnknownName(
                f"the program lacks the view {name}",
                hint="Name it before what reads it, or leave out --prune",
            )
        return self._database_view(name)

    def _database_view(self, name: str) -> View:
        """A view that the program does not name, over what it reads."""
        view = self._there[name]
        if name in self.views:
            return self.views[name].view
        below = self._resolved(view)
        if any(read in self.views for read in below):
            again = written_again(view, self.views, self._resolve, self.existing)
            if again.view != view:
                self.views[name] = again
                self.written_again.add(name)
                self.existing = self.existing.with_view(again.view)
            return again.view
        return view

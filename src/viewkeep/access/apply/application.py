"""A program over a database: what would change, and doing it.

Law: what is done is what was shown. If other changes came in between and another change would be
needed now, nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from viewkeep.access.apply.desired import Desired
from viewkeep.access.apply.table_changes import told
from viewkeep.access.reads import DatabaseReader
from viewkeep.catalog import Catalog
from viewkeep.engine.estimates import Estimates, LoadCost
from viewkeep.engine.programs import PlanVersion, successor_name
from viewkeep.errors import CatalogError, PlanOutdated
from viewkeep.plan.nodes import View
from viewkeep.plan.program import Placement

Action: TypeAlias = Literal["add", "alter", "replace", "drop", "keep", "left"]

_TRIES = 5  # while the pipeline and others change the catalog


@dataclass(frozen=True)
class ObjectChange:
    """What a program does to one table or view.

    `alter` changes columns of a table, which `note` tells; no row is rewritten. `left` is one that
    the program does not name and that stays. `rows`, `bytes` and `seconds` say what it takes to
    load a view that is added or replaced: rows to read, bytes to hold at most, processor time; None
    where nobody can tell. `reused` is the bytes of state that is there already. What several views
    share is counted for the first of them.
    """

    action: Action
    kind: Literal["table", "view"]
    name: str
    note: str = ""
    rows: int | None = 0
    bytes: int | None = 0
    seconds: float | None = 0.0
    reused: int = 0


def apply(
    reader: DatabaseReader, catalog: Catalog, text: str, *, prune: bool, dry_run: bool
) -> Application:
    """Bring tables and views to what a program says, unless that is only to be looked at.

    What is there as the program says stays, with its state. Tables with other columns are altered.
    Views that answer are replaced at one epoch, together with all that is added. What the program
    does not name stays, or with `prune` its views and columns are dropped; tables never are.
    """
    application = Application(reader, catalog, text, prune)
    if not dry_run:
        application.commit()
    return application


class Application:
    """A program and the change that it takes; `commit` makes it."""

    def __init__(self, reader: DatabaseReader, catalog: Catalog, text: str, prune: bool = False):
        self._reader, self._catalog, self._text, self._prune = reader, catalog, text, prune
        self._prepare()

    def _prepare(self) -> None:
        catalog, basis = self._catalog, self._catalog.current()
        unknown = self._reader.unknown
        desired = Desired.of(self._text, basis, catalog.source, unknown, self._prune)
        self._change = desired.change
        after = catalog.preview(self._change) or basis
        estimates = Estimates(catalog.store, basis, after)
        self.changes = tuple(_changes(desired, basis, after, estimates))
        self.freed = estimates.freed
        self.total = sum((LoadCost(c.rows, c.bytes, c.seconds) for c in self.changes), LoadCost())

    @property
    def pending(self) -> bool:
        """Whether anything is to be done."""
        return any(change.action not in ("keep", "left") for change in self.changes)

    def commit(self) -> None:
        """Make the change, all of it or none."""
        shown = self._steps
        for _ in range(_TRIES):
            if not self.pending:
                return
            try:
                self._catalog.apply(self._change)
                return
            except PlanOutdated:
                self._prepare()
            if self._steps != shown:
                break
        raise CatalogError("the tables or views changed meanwhile; look at the change again")

    @property
    def _steps(self) -> list[tuple[Action, str, str]]:
        return [(change.action, change.name, change.note) for change in self.changes]

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "pending": self.pending,
            "changes": [vars(change) for change in self.changes],
            "bytes": self.total.bytes,
            "seconds": self.total.seconds,
            "freed": self.freed,
        }


def _changes(
    desired: Desired, basis: PlanVersion, after: PlanVersion, estimates: Estimates
) -> Iterator[ObjectChange]:
    for name in desired.tables:
        yield ObjectChange("add", "table", name)
    for name, alter in desired.alters.items():
        yield ObjectChange("alter", "table", name, told(alter.alterations))
    counted: set[str] = set()
    for name, statement in desired.views.items():
        placement = _placement(after, statement.view)
        operators = placement.operators if placement else frozenset[str]()
        work = estimates.loading(operators - counted)
        reused = estimates.reused(operators - counted)
        counted |= operators
        is_there = name in basis.views or name in basis.successors
        note = ""
        if name in desired.written_again:
            below = [read for read in statement.view.reads if read in desired.views]
            note = f"reads {', '.join(below)}, which changes"
        yield ObjectChange(
            "replace" if is_there else "add",
            "view",
            name,
            note,
            work.rows,
            work.bytes,
            work.seconds,
            reused,
        )
    for name in desired.drops:
        yield ObjectChange("drop", "view", name)
    for name, found in desired.named.items():
        if name not in desired.tables and name not in desired.views and name not in desired.alters:
            yield ObjectChange("keep", "view" if isinstance(found, View) else "table", name)
    for name in desired.not_named:
        if name in basis.tables:
            yield ObjectChange("left", "table", name)
        elif name not in desired.drops and name not in desired.written_again:
            yield ObjectChange("left", "view", name)


def _placement(after: PlanVersion, view: View) -> Placement | None:
    """Where the plan has a view, under its name or beside the one that it is to replace."""
    placements = after.program.placements
    for name in (successor_name(view.name), view.name):
        found = placements.get(name)
        if found is not None and found.view.node == view.node:
            return found
    return None

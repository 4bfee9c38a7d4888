"""Who changes the schema, and which tables and views there must be then.

Law: a change that was acknowledged is in the catalog, with the text it was given, until another one
changes the same name; a change that was refused is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from viewkeep.engine.programs import PlanVersion, successor_name
from viewkeep.errors import CatalogError, UnknownName

from . import schema
from .actor import Actor
from .model import Finding, in_duckdb
from .world import Process


class Names:
    """What each name stands for: the text of a view, "" for a table."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.unknown: set[str] = set()  # names whose change may or may not have happened
        self.under_way: list[set[str]] = []  # for each change, names that others changed meanwhile

    @contextmanager
    def changing(self, name: str, text: str | None) -> Iterator[None]:
        """A change of a name to this text (None: it goes) is acknowledged, refused, or neither."""
        meanwhile: set[str] = set()
        self.under_way.append(meanwhile)
        try:
            yield
        except (CatalogError, UnknownName):
            raise
        except BaseException:
            self.unknown.add(name)
            raise
        else:
            self._changed(name, text, name in meanwhile)
        finally:
            self.under_way.pop()  # the last one to begin is the first to end

    def _changed(self, name: str, text: str | None, is_unordered: bool) -> None:
        for others in self.under_way:
            others.add(name)
        if is_unordered:
            self.unknown.add(name)
        elif text is None:
            self.texts.pop(name, None)
        else:
            self.texts[name] = in_duckdb(text) if text else ""

    def check(self, plan: PlanVersion) -> None:
        """The newest plan has what was acknowledged, and nothing else."""
        if self.under_way:
            return
        coming = {name: successor.view for name, successor in plan.successors.items()}
        views = {**plan.views, **coming}
        there = {name: in_duckdb(view.sql) for name, view in views.items()}
        # One that was to replace another and failed was acknowledged, and is not what will be.
        self.unknown |= {name for name in views if successor_name(name) in plan.failed}
        there.update(dict.fromkeys(plan.tables, ""))
        for name in self.unknown:
            self.texts.pop(name, None)
            if name in there:
                self.texts[name] = there[name]
        self.unknown.clear()
        if there != self.texts:
            names = {n for n in (*there, *self.texts) if there.get(n) != self.texts.get(n)}
            raise Finding(f"of the names {sorted(names)} the catalog has {there}, not {self.texts}")


class Definer(Actor):
    """Schema changes as they come."""

    weight = 1.8
    hosts = ("definer", "second_definer")

    def act(self, process: Process) -> None:
        db, rng = process.db, self.rng
        kinds = ("drop", "drop", "replace", "notes", "create", "create", "rebuild", "repair")
        kind = rng.choice(kinds)
        views = self.views(process)
        self.happened("schema change")
        with suppress(CatalogError, UnknownName):  # another view reads it, or it has just gone
            if kind == "drop" and views:
                self.drop_view(db, rng.choice(views))
            elif kind == "replace":
                name = rng.choice(sorted(schema.REPLACEMENTS))
                text = rng.choice((schema.REPLACEMENTS, schema.VIEWS))[name]
                self.create(db, name, text, "OR REPLACE ")
                self.happened("view replaced")
            elif kind == "notes":
                self.change_notes(db)
            elif kind == "rebuild" and views:
                db.catalog.rebuild_view(rng.choice(views))
                self.happened("view rebuilt")
            elif kind == "repair":
                self.world.happened["view repaired"] += len(db.repair())
            else:
                self.create_view(db, rng.choice(sorted(schema.VIEWS)))

    def change_notes(self, db: Any) -> None:
        current = db.catalog.current()
        if "notes" not in current.tables:
            self.create_table(db, "notes", schema.NOTES)
        elif "noted" not in current.views and self.rng.random() < 0.5:
            self.create(db, "noted", schema.NOTED)
        else:
            if "noted" in current.views:
                self.drop_view(db, "noted")
            with self.round.names.changing("notes", None):
                db.sql("DROP TABLE notes")

    def create_table(self, db: Any, name: str, text: str) -> None:
        with self.round.names.changing(name, ""):
            db.sql(text)

    def create(self, db: Any, name: str, text: str, how: str = "") -> None:
        with self.round.names.changing(name, text):
            db.sql(f"CREATE {how}VIEW {name} AS {text}")

    def drop_view(self, db: Any, name: str) -> None:
        with self.round.names.changing(name, None):
            db.sql(f"DROP VIEW {name}")

    def create_view(self, db: Any, name: str) -> None:
        """A view, and sometimes one over it."""
        self.create(db, name, schema.VIEWS[name])
        for over, (under, text) in schema.OVER_VIEWS.items():
            if under == name and self.rng.random() < 0.6:
                self.create(db, over, text)

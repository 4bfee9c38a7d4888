"""Plan versions in the store: immutable records that every process loads by number and keeps.

A plan version is one meta record `plan/NUMBER` that lists the tables and views in force and the
numbers of their state tables. Creating the record `plan/N+1` where none is *is* the commit of a
change, so changes are serial and all or nothing. View definitions are records of their own
(`definition/GENERATION`), written before the plan that names them.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

from viewkeep.codec.tablerows import TableHistory
from viewkeep.errors import Corrupt, EpochGone, StoreError, Unsupported
from viewkeep.plan.nodes import CellSource, Source, View, WantedKeys
from viewkeep.plan.program import Placement, Program, compile_program
from viewkeep.plan.serial import decode, encode
from viewkeep.stores.contract import Cut, NamedTable, NamedView, Store
from viewkeep.stores.contract.records import record_from
from viewkeep.types import Schema


@dataclass(frozen=True)
class Failure:
    """A view was set aside: at which epoch, when (nanoseconds since 1970) and why."""

    epoch: int
    at: int
    reason: str


@dataclass(frozen=True)
class Successor:
    """A view that is loaded beside the one that answers under its name, until it takes that name.

    Those of one `group` take their names together: at the epoch after the one with which all of
    them are ready.
    """

    view: View
    generation: int
    group: int

    @property
    def apart(self) -> View:
        """The view under the name that it has until then."""
        return replace(self.view, name=successor_name(self.view.name))


def successor_name(name: str) -> str:
    """What a view is called while it is loaded to replace another."""
    return f"{name} (new)"


@dataclass(frozen=True)
class PlanVersion:
    """All tables and views at one version.

    `generations` names each view's definition record; `numbers` gives the table number of every
    state key (operator id and purpose) in use; `next_number` is the first number never used.
    Views that have `failed` are known but not kept: the program lacks them, and so it does those in
    `repairs`, until an epoch covers these cuts. Of views that are `unreadable`
    only the names and reasons are known: their definitions are damaged, or of another version.
    `successors` are loaded to replace the views of their names. `origins` has the first generation
    of a view that has replaced others, which tells it from one that was dropped and created anew.
    Views that are `leaving` answer until the successors of a group take their names.
    """

    version: int
    tables: Mapping[str, Source] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    next_number: int = 1
    failed: Mapping[str, Failure] = field(default_factory=dict)
    repairs: Mapping[str, Cut] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    successors: Mapping[str, Successor] = field(default_factory=dict)
    origins: Mapping[str, int] = field(default_factory=dict)
    leaving: Mapping[str, int] = field(default_factory=dict)

    @property
    def kept_views(self) -> list[View]:
        """The views that epochs keep: all but those that failed or wait for their repair."""
        out = {*self.failed, *self.repairs}
        kept = [view for name, view in self.views.items() if name not in out]
        return kept + [successor.apart for successor in self.successors.values()]

    @property
    def state_numbers(self) -> set[int]:
        """The numbers of the state tables in use."""
        return set(self.numbers.values())

    @property
    def table_numbers(self) -> set[int]:
        """The numbers of the base tables, and of the tables of wanted keys."""
        numbers = {source.number for source in self.tables.values()}
        return numbers | {keys.number for keys in self.wanted_keys}

    @property
    def wanted_keys(self) -> set[WantedKeys]:
        """The tables of wanted keys: views of one name and key have the same."""
        views = chain(self.views.values(), (s.view for s in self.successors.values()))
        return {view.wanted for view in views if view.wanted is not None}

    def origin(self, name: str) -> int | None:
        """What stays the same for a view while others replace it; None if there is no such view."""
        return self.origins.get(name, self.generations.get(name))

    @cached_property
    def program(self) -> Program:
        """The physical plan of all views that are kept."""
        tables = self.tables.values()
        return compile_program(self.kept_views, self.numbers.__getitem__, tables)

    @property
    def is_compiled(self) -> bool:
        """Whether this process has the physical plan already."""
        return "program" in vars(self)

    def compiled(self, program: Program) -> PlanVersion:
        """This plan, of whose kept views and numbers somebody made the physical plan already."""
        vars(self)["program"] = program
        return self


EMPTY = PlanVersion(0)
NUMBERS_KEPT = 256  # of dropped versions
_DROPPED = b""  # the record of a version whose number stays taken
_cache: dict[tuple[str, int], tuple[bytes, PlanVersion]] = {}  # with their records
# Versions never change, so a store that was opened once is asked for each of them once.
_opened: WeakKeyDictionary[Store, dict[int, PlanVersion]] = WeakKeyDictionary()
_definitions: dict[bytes, View] = {}  # by the bytes of their records
_lock = threading.Lock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


def plan_key(version: int) -> str:
    return f"plan/{version:012d}"


def load_plan(store: Store, version: int) -> PlanVersion:
    """The plan of this version. Versions are immutable, so each process loads one once."""
    if version == 0:
        return EMPTY
    with _lock:
        if (plan := _opened.get(store, {}).get(version)) is not None:
            return plan
        known = _cache.get((store.url, version))
    record = store.meta.get(plan_key(version))
    # Another database may have been made at this url since: its records differ.
    if known is not None and record in (known[0], _DROPPED, None):
        _remember(store, known[1], known[0])
        return known[1]
    if not record:
        if any(key > plan_key(version) for key, _ in store.meta.scan("plan/")):
            raise EpochGone(f"plan version {version} is no longer kept: a later one is published")
        raise Corrupt(f"plan version {version} is missing from {store.url}")
    plan = _decode(store, version, record)
    _remember(store, plan, record)
    return plan


def _remember(store: Store, plan: PlanVersion, record: bytes) -> None:
    with _lock:
        for old in [key for key in _cache if key[0] == store.url and key[1] < plan.version - 8]:
            del _cache[old]
        _cache[store.url, plan.version] = (record, plan)
        mine = _opened.setdefault(store, {})
        mine[plan.version] = plan
        for before in [version for version in mine if version < plan.version - 8]:
            del mine[before]
    store.learn(
        [shape_of(source) for source in plan.tables.values()],
        lambda: [_view_shape(placement) for placement in plan.program.placements.values()],
    )


def shape_of(source: Source) -> NamedTable:
    """A table as its store knows it."""
    options = source.options if isinstance(source, CellSource) else ()
    return NamedTable(source.table, source.number, source.schema, options)


def _view_shape(placement: Placement) -> NamedView:
    table = placement.table
    return NamedView(
        placement.view.name,
        table.number,
        Schema(table.columns, table.key_names),
        placement.columns,
    )


def newest_plan(store: Store) -> PlanVersion:
    """The plan of the newest version, whether or not an epoch has run it yet."""
    while records := store.meta.scan("plan/"):
        with suppress(EpochGone):  # a newer one was published just now
            return load_plan(store, int(records[-1][0].removeprefix("plan/")))
    return EMPTY


def table_history(store: Store, number: int) -> TableHistory | None:
    """What the rows of a base table have looked like up to now; None if it is gone."""
    tables = newest_plan(store).tables.values()
    return next((source.rows for source in tables if source.number == number), None)


def commit_plan(store: Store, plan: PlanVersion) -> bool:
    """Make this the newest plan; False if another writer took its version first."""
    record = _encode(plan)
    if not store.meta.cas(plan_key(plan.version), None, record):
        return False
    if list(plan.views) == list(plan.generations):  # as all other processes will read it
        _remember(store, plan, record)
    return True


def save_definitions(store: Store, views: Sequence[View]) -> list[int]:
    """Store the definitions of views under generations of their own, and return those.

    What could not be read back is refused before anything is stored; what was read back is known to
    this process, which need not read it again.
    """
    written = [_written(view) for view in views]
    bodies = [body for body, _ in written]
    while True:
        counter = store.meta.get("generations")
        last = int(counter or 0)
        if store.meta.cas("generations", counter, str(last + len(views)).encode()):
            break
    generations = list(range(last + 1, last + 1 + len(views)))
    for generation, body in zip(generations, bodies, strict=True):
        store.meta.cas(f"definition/{generation}", None, body)
    with _lock:
        _definitions.update(written)
    return generations


def _written(view: View) -> tuple[bytes, View]:
    """The record of a view, and what it reads back as: the same view, which compiles."""
    try:
        body = json.dumps(encode(view)).encode()
        back = _read(body)
        if back != view:
            raise ValueError("it reads back as another view")
    except Exception as error:
        raise Unsupported(
            f"view {view.name} cannot be stored: {_reason(error)}",
            hint="This is an error of viewkeep; write the query in another way",
        ) from error
    return body, back


def load_definition(store: Store, generation: int) -> View | None:
    """The view of a definition record; None if there is none that can be read."""
    found = _definition_or_reason(store, generation)
    return found if isinstance(found, View) else None


def drop_plans_before(store: Store, version: int) -> None:
    """Forget plan versions older than `version`; definitions are small and stay.

    Their numbers stay taken for a while: for one who began when an older version was the newest,
    the next number must not look as if nobody had ever used it.
    """
    records = store.meta.scan("plan/")
    for key, body in records:
        age = version - int(key.removeprefix("plan/"))
        if age > NUMBERS_KEPT:
            store.meta.cas(key, body, None)
        elif age > 0 and body != _DROPPED:
            store.meta.cas(key, body, _DROPPED)


def _encode(plan: PlanVersion) -> bytes:
    value = {
        "tables": {name: encode(source) for name, source in plan.tables.items()},
        "views": dict(plan.generations),
        "numbers": dict(plan.numbers),
        "next_number": plan.next_number,
        "failed": {name: vars(failure) for name, failure in plan.failed.items()},
        "repairs": {name: cut.to_json() for name, cut in plan.repairs.items()},
        "successors": {name: (s.generation, s.group) for name, s in plan.successors.items()},
        "origins": dict(plan.origins),
        "leaving": dict(plan.leaving),
        "wanted": {
            generation: view.wanted.number
            for generation, view in _by_generation(plan)
            if view.wanted is not None
        },
        "id": uuid.uuid4().hex,  # no two plans of any databases have the same record
    }
    return json.dumps(value).encode()


def _by_generation(plan: PlanVersion) -> Iterator[tuple[int, View]]:
    """The views of a plan and those that are to replace some, by their definitions."""
    yield from ((plan.generations[name], view) for name, view in plan.views.items())
    yield from ((s.generation, s.view) for s in plan.successors.values())


def _decode(store: Store, version: int, record: bytes) -> PlanVersion:
    value: dict[str, Any] = json.loads(record)
    tables = {name: decode(source) for name, source in value["tables"].items()}
    wanted = value.get("wanted", {})
    views: dict[str, View] = {}
    unreadable: dict[str, str] = {}
    for name, number in value["views"].items():
        found = _with_wanted(_definition_or_reason(store, number), wanted.get(str(number)))
        if isinstance(found, View):
            views[name] = found
        else:
            unreadable[name] = found  # the others go on
    successors: dict[str, Successor] = {}
    for name, (number, group) in value.get("successors", {}).items():
        found = _with_wanted(_definition_or_reason(store, number), wanted.get(str(number)))
        if isinstance(found, View):
            successors[name] = Successor(found, number, group)
        else:
            unreadable[successor_name(name)] = found
    failed = {
        name: record_from(Failure, failure) for name, failure in value.get("failed", {}).items()
    }
    return PlanVersion(
        version,
        tables,
        views,
        value["views"],
        value["numbers"],
        value["next_number"],
        failed,
        {name: Cut.from_json(cut) for name, cut in value.get("repairs", {}).items()},
        unreadable,
        successors,
        value.get("origins", {}),
        value.get("leaving", {}),
    )


def _with_wanted(found: View | str, number: int | None) -> View | str:
    """A view with its table of wanted keys, if it is partial; or why there is none."""
    if isinstance(found, str) or found.wanted is None:
        return found
    return "its keys are not known" if number is None else found.numbered(number)


def _definition_or_reason(store: Store, generation: int) -> View | str:
    """The view of a definition record, or why nobody can read it.

    A store that does not answer says nothing about the record, so its error passes.
    """
    try:
        return _definition(store, generation)
    except Exception as error:  # whatever a damaged record leads to
        if isinstance(error, StoreError) and not isinstance(error, Corrupt):
            raise
        return _reason(error)


def _definition(store: Store, generation: int) -> View:
    body = store.meta.get(f"definition/{generation}")
    if body is None:
        raise Corrupt(f"view definition {generation} is missing from {store.url}")
    with _lock:
        known = _definitions.get(body)
    if known is not None:
        return known
    view = _read(body)
    with _lock:
        _definitions[body] = view
    return view


def _read(body: bytes) -> View:
    """The view of a record; any error if there is none in it that would run."""
    view = decode(json.loads(body))
    if not isinstance(view, View):
        raise TypeError(f"a {type(view).__name__} stands in its place")
    compile_program([view], lambda key: 0)
    return view


def _reason(error: Exception) -> str:
    text = str(error).partition("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

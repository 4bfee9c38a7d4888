"""Verification: a view's own SQL, evaluated by Spark SQL over the base tables, must be the view.

Law: both sides are read at one pinned epoch, and compared as multisets of visible rows; of a
partial view, those of the keys that are wanted at that epoch. The recomputation shares nothing with
the engine but the bytes of base rows: a view over a view is evaluated down to the base. DOUBLE
values may differ by 1e-12 relative, since a sum that is kept and one that is recomputed add in
different orders; all else is exact. Where rows differ, they are recomputed once more with our
meaning spelt out where it differs from Spark's on purpose: only what differs then counts. Base rows
are all read too: one that is damaged is reported, and no view is rebuilt from it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from viewkeep.access.damage import damaged_logs, damaged_tables
from viewkeep.access.live import lost_rows
from viewkeep.access.reads import view_failed
from viewkeep.catalog import Catalog
from viewkeep.deferred import pl
from viewkeep.engine.epochs import Epochs, Pin
from viewkeep.engine.programs import PlanVersion, load_plan
from viewkeep.errors import CatalogError, NotReady, ViewkeepError
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    CellSource,
    Node,
    Source,
    Window,
    WindowCall,
)
from viewkeep.spark.compare import MISSING, compare
from viewkeep.spark.datasource import KEPT_ROWS, KEYS, read
from viewkeep.spark.session import session
from viewkeep.sql.spark_sql.adapted import adapted
from viewkeep.stores import borrow_store
from viewkeep.stores.contract import Store

PIN_SECONDS = 3600.0
SAMPLE_ROWS = 20
_LOST = "{} of its rows are not what its log has brought (DELTA holds others)"


@dataclass(frozen=True)
class Verdict:
    """What verification found of one view, or of a base table or log that is damaged.

    `missing` rows are in the recomputation and not in the view, `extra` rows the other way round;
    `sample` shows some of them. `problem` says why a view, table or log could not be read, or the
    view not recomputed. `refused` says why a view that differs was not repaired.
    """

    view: str
    epoch: int
    rows: int = 0
    missing: int = 0
    extra: int = 0
    seconds: float = 0.0
    sample: pl.DataFrame | None = field(default=None, compare=False, repr=False)
    problem: str | None = None
    repaired: bool = False
    refused: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the view is what its SQL says."""
        return not (self.missing or self.extra or self.problem)

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain values; sample rows as dicts of text."""
        value = {k: v for k, v in vars(self).items() if k != "sample"}
        shown = None if self.sample is None else self.sample.cast(pl.String).to_dicts()
        return {**value, "ok": self.ok, "sample": shown}

    def __str__(self) -> str:
        where = f"{self.view} at epoch {self.epoch}"
        after = "; it is being rebuilt from the base" if self.repaired else ""
        after = f"; not rebuilt: {self.refused}" if self.refused else after
        if self.problem:
            return f"DAMAGED  {where}: {self.problem}{after}"
        if not self.ok:
            return f"DIFFERS  {where}: {self.missing} rows missing, {self.extra} rows extra{after}"
        return f"ok       {where}: {self.rows} rows equal ({self.seconds:.1f} s)"


def verify(
    url: str,
    views: Iterable[str] | None = None,
    *,
    repair: bool = False,
    spark: SparkSession | None = None,
) -> list[Verdict]:
    """Compare views (default: all that are ready) with their recomputation at the published epoch.

    The base tables that they read (default: all, and the logs) are read as a whole; those that are
    damaged have verdicts of their own. With `repair`, views that differ get fresh state, which the
    pipeline loads from the base, unless that is damaged.
    """
    own = session(spark=spark)
    store = borrow_store(url)
    epochs = Epochs(store)
    wanted = [view.lower() for view in views or ()]
    with _pinned(epochs) as pin:
        plan = load_plan(store, pin.plan)
        tables, logs = set(plan.tables), {}
        if wanted:
            tables = {table for name in wanted for table in _tables(plan, name)}
        else:
            wanted = [name for name in plan.views if epochs.ready(name, pin)]
            logs = damaged_logs(store)
        for name in wanted:
            if name not in plan.views:
                raise CatalogError(f"there is no view {name} at epoch {pin.epoch}")
            if name in plan.failed:
                raise view_failed(name, plan.failed[name], url)
            if not epochs.ready(name, pin):
                raise NotReady(f"view {name} is still being loaded; run the pipeline first")
        with _Definitions(own, url, plan, pin.epoch, len(wanted) > 1) as definitions:
            verdicts = [_judge(definitions, name) for name in wanted]
    lost = _lost(store, epochs, [plan.tables[name] for name in sorted(tables)])
    damaged = damaged_tables(store, (plan.tables[name] for name in sorted(tables)))
    if repair:
        catalog = Catalog(store)
        for place, verdict in enumerate(verdicts):
            if verdict.ok:
                continue
            unsound = sorted(_tables(plan, verdict.view) & damaged.keys())
            if unsound:
                reason = f"table {', '.join(unsound)} is damaged; restore a backup"
                verdicts[place] = replace(verdict, refused=reason)
            else:
                catalog.rebuild_view(verdict.view)
                verdicts[place] = replace(verdict, repaired=True)
    base = [Verdict(f"table {name}", pin.epoch, problem=why) for name, why in damaged.items()]
    base += [Verdict(f"log {log}", pin.epoch, problem=why) for log, why in logs.items()]
    base += [
        Verdict(f"table {name}", pin.epoch, problem=_LOST.format(n)) for name, n in lost.items()
    ]
    return verdicts + base


def _lost(store: Store, epochs: Epochs, tables: Iterable[Source]) -> dict[str, int]:
    """The tables of which DELTA has other rows than they have, and how many."""
    with _pinned(epochs) as pin:
        found = {
            source.table: lost_rows(store, epochs, source, pin)
            for source in tables
            if isinstance(source, CellSource)
        }
    return {table: count for table, count in found.items() if count}


def _tables(plan: PlanVersion, name: str) -> set[str]:
    """The base tables that a view is computed from, directly or by other views."""
    if name in plan.tables:
        return {name}
    view = plan.views.get(name)
    return {table for read in view.reads for table in _tables(plan, read)} if view else set()


class _Definitions:
    """Temporary Spark views under the names of tables and views, each view over the base.

    With `several` views to come, Spark keeps the base tables, in memory or on disk, once read.
    """

    def __init__(self, spark: SparkSession, url: str, plan: PlanVersion, epoch: int, several: bool):
        self.spark, self.url, self.plan, self.epoch = spark, url, plan, epoch
        self._several = several
        self._adapted = False
        self._made: set[str] = set()
        self._kept: list[DataFrame] = []

    def __enter__(self) -> _Definitions:
        return self

    def __exit__(self, *error: object) -> None:
        for table in self._kept:
            table.unpersist()

    def recomputed(self, view: str) -> DataFrame:
        """The view's SQL over the base tables."""
        return self.spark.table(f"`{self._make(view)}`")

    def adapted(self, view: str) -> DataFrame | None:
        """The view's SQL with our meaning spelt out; None if that is Spark's anyway."""
        texts = {name: self._text(name) for name in self._views_below(view)}
        if not any(texts.values()):
            return None
        made = {name for name in self._made if name in self.plan.tables}
        before, self._made, self._adapted = self._made, set(made), True
        try:
            return self.recomputed(view)
        finally:
            # Spark has resolved the names: the next view is defined by its own text again.
            self._made, self._adapted = before & made, False

    def _views_below(self, view: str) -> set[str]:
        found, left = set(), [view]
        while left:
            name = left.pop()
            if name in self.plan.views and name not in found:
                found.add(name)
                left += self.plan.views[name].reads
        return found

    def _text(self, view: str) -> str | None:
        found = self.plan.views[view]
        return adapted(found.sql, not _averages_decimals(found.node))

    def stored(self, view: str) -> DataFrame:
        """The view's rows as the pipeline has kept them."""
        kept = None if self.plan.views[view].wanted is None else KEPT_ROWS
        return read(self.spark, self.url, view, epoch=self.epoch, kept=kept)

    def wanted(self, view: str, rows: DataFrame) -> DataFrame:
        """Those of a view's rows that it is to have: of a partial one, those of wanted keys."""
        wanted = self.plan.views[view].wanted
        if wanted is None:
            return rows
        keys = read(self.spark, self.url, view, epoch=self.epoch, kept=KEYS)
        same = [rows[f"`{name}`"].eqNullSafe(keys[f"`{name}`"]) for name in wanted.values]
        return rows.join(keys, same, "left_semi")

    def _make(self, name: str) -> str:
        if name in self._made:
            return name
        if name in self.plan.tables:
            made = read(self.spark, self.url, name, epoch=self.epoch)
            if self._several:
                made = made.persist(StorageLevel.MEMORY_AND_DISK)
                self._kept.append(made)
        elif name in self.plan.views:
            view = self.plan.views[name]
            for read_name in view.reads:
                self._make(read_name)
            made = self.spark.sql((self._text(name) if self._adapted else None) or view.sql)
        else:
            raise CatalogError(f"it reads {name}, which was dropped")
        made.createOrReplaceTempView(f"`{name}`")
        self._made.add(name)
        return name


def _judge(definitions: _Definitions, view: str) -> Verdict:
    began = time.perf_counter()
    found = Verdict(view, definitions.epoch)
    try:
        stored = definitions.stored(view)
        recomputed = definitions.wanted(view, definitions.recomputed(view))
        difference = compare(recomputed, stored)
        if difference.left is not None and (ours := definitions.adapted(view)) is not None:
            difference = compare(definitions.wanted(view, ours), stored)
        found = replace(found, rows=difference.rows)
        if difference.left is not None:
            counts = difference.counts()
            sample = pl.from_arrow(difference.left.limit(SAMPLE_ROWS).toArrow())
            assert isinstance(sample, pl.DataFrame)
            found = replace(
                found,
                missing=counts.get(MISSING, 0),
                extra=sum(counts.values()) - counts.get(MISSING, 0),
                sample=sample,
            )
    except Exception as error:
        found = replace(found, problem=_first_line(error))
    return replace(found, seconds=time.perf_counter() - began)


def _averages_decimals(node: Node) -> bool:
    """Whether a plan has an AVG of decimals, which Spark computes exactly itself."""
    left, seen = [node], set()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        calls: Sequence[AggregateCall | WindowCall] = ()
        if isinstance(node, Aggregate):
            calls = node.aggregates
        elif isinstance(node, Window):
            calls = node.calls
        if any(call.function.startswith("avg") and call.type.is_decimal for call in calls):
            return True
        left += node.inputs
    return False


def _first_line(error: Exception) -> str:
    """The cause's own words out of what Spark wraps around an exception of a task."""
    if isinstance(error, ViewkeepError):
        return str(error)
    named = re.findall(r"^viewkeep\.errors\.(\w+): (.+)$", str(error), re.M)
    if named:
        return f"{named[-1][0]}: {named[-1][1]}"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _pinned(epochs: Epochs) -> Iterator[Pin]:
    pin = epochs.pin(PIN_SECONDS)
    try:
        yield pin
    finally:
        epochs.unpin(pin)

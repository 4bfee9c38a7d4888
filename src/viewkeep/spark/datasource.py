"""The Spark DataSource `viewkeep`: a table or view at one epoch, and rows put into tables.

    spark.read.format("viewkeep").option("url", url).option("table", "votes").load()
    frame.write.format("viewkeep").option("url", url).option("table", "votes").mode("append").save()
    spark.readStream.format("viewkeep").option("url", url).option("view", "scores").load()

Law: a DataFrame reads one epoch, however often it is evaluated; the epoch is pinned when the
DataFrame is made, and `epoch_of` tells it. Writing is in `sink`, following a view in `changes`.

Spark 4.3 tells a Python source which filters apply but not which columns are wanted, so columns are
chosen by the option `columns` or by giving `.schema(...)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructField, StructType

from viewkeep.access.reads import view_failed
from viewkeep.deferred import pa
from viewkeep.engine.cells.past import TablePast
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.loading import Loading
from viewkeep.engine.programs import PlanVersion, load_plan, newest_plan
from viewkeep.errors import (
    CatalogError,
    EpochGone,
    InvalidReadPoint,
    NotReady,
    PartialKey,
    UnknownName,
)
from viewkeep.plan.nodes import CellSource, View
from viewkeep.plan.program import Placement
from viewkeep.spark.changes import BEGINNING, KEEP_SECONDS, FollowedView, ViewChanges
from viewkeep.spark.convert import arrow_batches, spark_schema
from viewkeep.spark.pushdown import KeyRange, key_range
from viewkeep.spark.registration import register_source
from viewkeep.spark.rows import BaseRows, PastRows, Rows, ViewRows
from viewkeep.spark.sink import StreamWriter, TableWriter
from viewkeep.stores import borrow_store
from viewkeep.stores.contract import Cut
from viewkeep.types import Column

FORMAT = "viewkeep"
PIN_SECONDS = 600.0
KEPT_ROWS, KEYS = "rows", "keys"  # what the option `kept` reads of a partial view
_EPOCH_KEY = "viewkeep.epoch"  # in the metadata of each column


def register(spark: SparkSession) -> None:
    """Make `format("viewkeep")` known to a session; viewkeep's own sessions know it already.

    It also lets Spark hand filters to Python sources, without which it refuses to read this one.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    register_source(spark, ViewkeepSource)


def read(
    spark: SparkSession,
    url: str,
    table: str,
    *,
    columns: Sequence[str] | None = None,
    epoch: int | None = None,
    kept: str | None = None,
) -> DataFrame:
    """A table or view at the published epoch, or at a pinned one.

    `kept` reads of a partial view the `rows` that it has, or the `keys` that are wanted.
    """
    register(spark)
    reader = spark.read.format(FORMAT).option("url", url).option("table", table)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    if epoch is not None:
        reader = reader.option("epoch", str(epoch))
    if kept is not None:
        reader = reader.option("kept", kept)
    return reader.load()


def epoch_of(frame: DataFrame) -> int | None:
    """The epoch that a DataFrame of this source stands at, which its columns say.

    None if no column says one: it reads the newest rows, its schema was given, or it was not read
    from here. An error if it was made of DataFrames at different epochs.
    """
    fields = frame.schema.fields
    found = {f.metadata[_EPOCH_KEY] for f in fields if _EPOCH_KEY in (f.metadata or {})}
    if len(found) > 1:
        raise InvalidReadPoint(
            f"the columns stand at epochs {', '.join(map(str, sorted(found)))}; read both "
            'DataFrames with .option("epoch", n) of one of them'
        )
    return int(found.pop()) if found else None


@dataclass(frozen=True)
class Point:
    """What is read: an epoch with its cut, plan and what it lacks; no epoch for the newest rows."""

    epoch: int | None
    cut: Cut | None
    plan: int
    loading: Loading


class ViewkeepSource(DataSource):
    """Options: url, table; to read also epoch, at (`stable` or `latest`), columns, pin_seconds,

    and of a partial view what of it is `kept` (`rows` or `keys`);

    to write `atomic` (true), and for a stream `query`, its name. To follow a view: url, view,
    startingEpoch (`beginning`, `now` or a number), maxEpochsPerTrigger, keep_seconds, columns.
    """

    _point: Point | None = None

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        if self.options.get("view") is not None:
            followed = FollowedView.of(borrow_store(self._option("url")), self._view())
            return spark_schema(_chosen(followed.columns, self.options.get("columns")))
        columns = _chosen(self._rows().columns, self.options.get("columns"))
        epoch = self._point.epoch if self._point is not None else None
        return _standing_at(spark_schema(columns), epoch)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self._rows(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        start = str(self.options.get("startingEpoch", BEGINNING))
        keep = float(self.options.get("keep_seconds", KEEP_SECONDS))
        most = self.options.get("maxEpochsPerTrigger")
        url = borrow_store(self._option("url")).url
        limit = None if most is None else int(most)
        return ViewChanges(url, self._view(), schema, start, keep, limit)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        table = self._option("table").lower()
        if overwrite:
            raise CatalogError(f"{table}: rows are put into the table; use mode('append')")
        atomic = str(self.options.get("atomic", "true")).lower() != "false"
        return TableWriter(borrow_store(self._option("url")).url, table, atomic)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        query = self.options.get("query") or self.options.get("checkpointLocation")
        if not query:
            raise CatalogError('a stream into viewkeep needs .option("query", NAME)')
        url, table = borrow_store(self._option("url")).url, self._option("table").lower()
        return StreamWriter(url, table, f"{table}: {query}")

    def _rows(self) -> Rows:
        url, name = self._option("url"), self._option("table").lower()
        store = borrow_store(url)
        if self._point is None:
            # Set when Spark asks for the schema, and pickled with this source from then on.
            self._point = self._resolve(url)
        point = self._point
        plan = load_plan(store, point.plan)
        placement = plan.program.placements.get(name)
        if placement is not None:
            _check_ready(placement, point)
            if (wanted := placement.view.wanted) is not None:
                kept = str(self.options.get("kept", "")).lower()
                if kept == KEYS:
                    return BaseRows(store.url, wanted, point.cut)
                _check_kept(placement.view, kept)
            return ViewRows(store.url, placement, point.epoch)
        source = plan.tables.get(name) or newest_plan(store).tables.get(name)
        if source is None:
            newest = newest_plan(store)
            if name in newest.failed:
                raise view_failed(name, newest.failed[name], url)
            if name in newest.views:
                raise NotReady(f"view {name} waits to be loaded; run the pipeline first")
            raise _unknown(plan, name)
        if point.epoch is not None and isinstance(source, CellSource):
            past = TablePast.of(source, plan.program, point.loading, point.epoch)
            return PastRows(store.url, source, None, past)
        return BaseRows(store.url, source, point.cut)

    def _resolve(self, url: str) -> Point:
        store = borrow_store(url)
        epochs = Epochs(store)
        if self.options.get("at", "stable") == "latest":
            published = epochs.read().published
            return Point(None, None, published.plan, published.loading)
        wanted = self.options.get("epoch")
        if wanted is not None:
            for pin in epochs.pins():
                if pin.epoch == int(wanted):
                    return Point(pin.epoch, pin.cut, pin.plan, pin.loading)
            if epochs.read().published.epoch != int(wanted):
                raise EpochGone(f"epoch {wanted} is neither published nor pinned")
        pin = epochs.pin(float(self.options.get("pin_seconds", PIN_SECONDS)))
        if wanted is not None and pin.epoch != int(wanted):
            epochs.unpin(pin)
            raise EpochGone(f"epoch {wanted} was replaced by {pin.epoch} before it was pinned")
        return Point(pin.epoch, pin.cut, pin.plan, pin.loading)

    def _view(self) -> str:
        if self.options.get("table") is not None:
            raise CatalogError(
                'a stream follows .option("view", ...), and a DataFrame reads .option("table", '
                "...); give one of them"
            )
        return self._option("view").lower()

    def _option(self, name: str) -> str:
        value = self.options.get(name)
        if value is None:
            raise CatalogError(f'format("viewkeep") needs .option("{name}", ...)')
        return str(value)


class PlainReader(DataSourceReader):
    """One partition per node of a table or shard of a view."""

    def __init__(self, rows: Rows, schema: StructType):
        self._rows, self._schema = rows, schema
        self._range = KeyRange()

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in self._rows.parts(self._range)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        names = self._schema.fieldNames()
        for frame in self._rows.frames(partition.value, self._range, names):
            yield from arrow_batches(frame, self._schema)


class TableReader(PlainReader):
    """Reads the partitions that the filters leave."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Narrows the range of keys. All filters are handed back: Spark checks them again."""
        self._range = key_range(self._rows.key_codec, self._rows.key, filters)
        yield from filters


class FoundSource(ViewkeepSource):
    """The source as Spark finds it by itself (`pyspark_viewkeep`).

    Spark refuses readers that take filters unless the session allows them, which `register` sees
    to; one that was found by itself cannot know, and leaves filters to Spark.
    """

    def reader(self, schema: StructType) -> DataSourceReader:
        return PlainReader(self._rows(), schema)


def _standing_at(schema: StructType, epoch: int | None) -> StructType:
    if epoch is None:
        return schema
    fields = [StructField(f.name, f.dataType, f.nullable, {_EPOCH_KEY: epoch}) for f in schema]
    return StructType(fields)


def _chosen(there: Sequence[Column], columns: Any) -> list[Column]:
    if columns is None:
        return list(there)
    known = {column.name: column for column in there}
    names = [name.strip().lower() for name in str(columns).split(",")]
    if lost := [name for name in names if name not in known]:
        raise UnknownName(f"no column {lost[0]}; there are {', '.join(known)}")
    return [known[name] for name in names]


def _check_ready(placement: Placement, point: Point) -> None:
    if not placement.feeds.isdisjoint(point.loading):
        raise NotReady(f"view {placement.view.name} is still being loaded")


def _check_kept(view: View, kept: str) -> None:
    if kept != KEPT_ROWS:
        raise PartialKey(
            f"view {view.name} is partial, and a DataFrame is of all rows. With "
            f'.option("kept", "{KEPT_ROWS}") it has the rows of the keys that are wanted, which '
            f'.option("kept", "{KEYS}") gives'
        )


def _unknown(plan: PlanVersion, name: str) -> UnknownName:
    known = sorted({*plan.tables, *plan.views})
    return UnknownName(f"no table or view {name}; there are {', '.join(known) or 'none'}")

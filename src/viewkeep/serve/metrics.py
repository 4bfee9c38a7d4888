"""What Prometheus is told of a server and its database.

Law: figures of the database are read when they are asked for, so that they are those of the store
and not of this server; what the server does is counted as it happens. A store that does not answer
takes nothing away but its own figures. Routes are counted by their pattern, never by what clients
make up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from viewkeep.engine.costs import read_costs
from viewkeep.engine.epochs import Published
from viewkeep.engine.failures import trouble_of
from viewkeep.engine.lag import lag_seconds
from viewkeep.engine.lease import holder
from viewkeep.serve.limits import Stopping
from viewkeep.stores.contract import Cut, Sizes

if TYPE_CHECKING:
    from viewkeep.database import Database
    from viewkeep.serve.hub import Hub

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_REQUEST_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
_EPOCH_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one server; each server has its own registry."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._standing = _Standing()
        registry.register(self._standing)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._requests = Histogram(
            "viewkeep_http_request_seconds",
            "Requests by route and status, and how long they took.",
            ("method", "route", "status"),
            registry=registry,
            buckets=_REQUEST_BUCKETS,
        )
        self._epochs = Histogram(
            "viewkeep_epoch_seconds",
            "How long epochs took, of those that this server saw published.",
            registry=registry,
            buckets=_EPOCH_BUCKETS,
        )
        self.feeds = Gauge(
            "viewkeep_open_feeds", "Change feeds that clients follow.", registry=registry
        )
        self.events = Counter(
            "viewkeep_feed_events", "Events sent to the followers of feeds.", registry=registry
        )
        self.connections = Gauge(
            "viewkeep_connections", "Open connections.", ("protocol",), registry=registry
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(method, route, str(status)).observe(seconds)

    async def follow(self, hub: Hub) -> None:
        """Note the epochs as they are published, until the hub ends."""
        seen = hub.published.epoch
        try:
            while True:
                published = await hub.wait(seen)
                seen = published.epoch
                self._epochs.observe(published.seconds)
        except Stopping:
            return

    def text(self, figures: Figures | None) -> bytes:
        """All of them, in Prometheus' text format; None for a store that does not answer."""
        self._standing.figures = figures
        return generate_latest(self._registry)


MOST_VIEWS = 100  # of which the cost is told


@dataclass(frozen=True)
class Figures:
    """How a database stands, at one look."""

    published: Published
    head: Cut
    sizes: Sizes
    driven: bool
    failed: int  # views
    failures: int  # since the epoch was published
    lag_seconds: float
    costs: Mapping[str, tuple[float, int]]  # views that cost most: processor time, rows

    @classmethod
    def of(cls, db: Database) -> Figures:
        """Look at a database."""
        store, published = db.store, db.epochs.read().published
        driven, failed = holder(store) is not None, len(db.catalog.current().failed)
        trouble = trouble_of(store)
        failures = 0 if trouble is None else trouble.count
        spent = read_costs(store).of_views(db.catalog.current().program)
        costs = dict(sorted(spent.items(), key=lambda cost: -cost[1][0])[:MOST_VIEWS])
        head, late = store.log.head(), lag_seconds(db.epochs, published)
        return cls(published, head, store.sizes(), driven, failed, failures, late, costs)


class _Standing(Collector):
    """How the database stands, looked up for each answer."""

    figures: Figures | None = None

    def collect(self) -> Iterator[Metric]:
        found = self.figures
        yield _gauge("store_answers", "1 if the store answers in time.", int(found is not None))
        if found is None:
            return
        published, head, sizes = found.published, found.head, found.sizes
        covered = published.cut
        yield _gauge("published_epoch", "The newest epoch that is published.", published.epoch)
        yield _gauge(
            "published_timestamp_seconds", "When it was published, since 1970.", published.at / 1e9
        )
        yield CounterMetricFamily(
            "viewkeep_operations",
            "Operations that published epochs cover.",
            value=covered.operations,
        )
        behind = GaugeMetricFamily(
            "viewkeep_lag_operations", "Operations that no epoch covers yet.", labels=["log"]
        )
        for log, end in head.positions.items():
            behind.add_metric([log], max(0, end - covered.position(log)))
        yield behind
        yield _gauge(
            "lag_seconds",
            "The age of the oldest write that no published epoch covers.",
            found.lag_seconds if not covered.covers(head) else 0.0,
        )
        yield _gauge("failed_views", "Views that were set aside because they failed.", found.failed)
        yield _gauge("failures", "Failures since the last epoch was published.", found.failures)
        yield _gauge("loading_feeds", "Inputs of views that load.", len(published.loading))
        yield _gauge("base_bytes", "Bytes of base rows.", sizes.base_bytes)
        yield _gauge("state_bytes", "Bytes of view state.", sizes.state_bytes)
        yield _gauge("used_bytes", "Bytes in use, of everything.", sizes.used_bytes)
        if sizes.max_bytes is not None:
            yield _gauge("max_bytes", "Bytes after which no rows are taken.", sizes.max_bytes)
        if sizes.free_bytes is not None:
            yield _gauge("free_bytes", "Bytes that the disk has left.", sizes.free_bytes)
        kept = sum(sizes.log_operations.values())
        yield _gauge("log_operations", "Operations that the logs keep.", kept)
        rows = sum(one.rows for one in sizes.unreadable.values())
        cells = sum(one.cells for one in sizes.unreadable.values())
        unreadable = CounterMetricFamily(
            "viewkeep_unreadable",
            "Row keys and cells of tables that others write, which could not be read.",
            labels=["what"],
        )
        unreadable.add_metric(["row"], rows)
        unreadable.add_metric(["cell"], cells)
        yield unreadable
        processor = CounterMetricFamily(
            "viewkeep_view_processor_seconds",
            "Processor time of the views that cost most, with their parts of what views share.",
            labels=["view"],
        )
        for view, (seconds, _) in found.costs.items():
            processor.add_metric([view], seconds)
        yield processor
        yield _gauge("driver", "1 while a pipeline holds the driver's lease.", int(found.driven))


def _gauge(name: str, said: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"viewkeep_{name}", said, value=value)

"""The view maintenance papers' experiments where they made them: over HBase, with its own clients.

The cluster, its client, the pipeline and its workers share the machine, so figures are of all of
them together. The throughput of views is that of a log which is full before the pipeline begins, as
in the papers; how the client writes beside it and how far views are behind are measured apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial

import polars as pl
from peers.offered import quantiles

from suite.bench import Bench, read
from suite.contract import OURS, Experiment, Outcome, Result, System, Workload, Wrong
from suite.data import rows
from suite.hbase import REGIONS, Cluster, Operations, Site, Spent, cluster_of, operations
from suite.task import ANSWER, Task, inserts
from suite.workloads.vms import SUMS, VIEWS, T, joining, over_t, selections, view_updates
from viewkeep.engine.local import catch_up
from viewkeep.spark.datasource import register
from viewkeep.stores.hbase.wire import Cell, Column, Put, Row

COUNT = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"
GROUP, READS = 7, 100
ALONE, SCAN, SPARK = "HBase, no maintenance", "client's scan", "Spark's scan"
LOAD, PROBE = 2_000, -1  # operations/s offered; the group and the key of the rows that are timed
PROBE_SECONDS = 0.1
WARM_PROBES = 20
Servers = Callable[[], Cluster]


class Hbase(Workload):
    """What do views over HBase cost, and what do they save?"""

    name = "hbase"

    def experiments(self, bench: Bench) -> list[Experiment]:
        start, count = cluster_of(bench), bench.size.pick(400_000, 80_000, 800)
        found = [
            _from_log(bench, start, "count by group", over_t(count, COUNT), servers)
            for servers in (1, 2)
        ]
        for name, task in (
            ("q1 projection", over_t(count, "SELECT k, g FROM t")),
            ("q2 selection, 50 %", over_t(count, "SELECT k, g, x FROM t WHERE x < 500000")),
            ("q3 aggregates", over_t(count, SUMS.format(x="x"), count, count // 100)),
            ("q4 join", joining(count, count // 100, changes=True)),
        ):
            found.append(_from_log(bench, start, name, task))
        for servers in (1, 2):
            task = selections(count // 20, 10)
            found.append(_from_log(bench, start, f"{VIEWS} selection views", task, servers))
        whole = over_t(count, COUNT)
        found.append(
            Experiment(
                "count by group, while clients write",
                {OURS: partial(while_written, bench, start, whole)},
                whole.expected,
            )
        )
        found.append(_writing(bench, start))
        found.append(
            Experiment(f"{LOAD:,} operations/s offered", {OURS: partial(offered, bench, start)})
        )
        found += [
            _appending(bench, start, some) for some in bench.size.pick((1, 8, 64), (8,), (2,))
        ]
        found += [
            _reading(bench, start, size)
            for size in bench.size.pick((10_000, 100_000), (10_000,), (1_000,))
        ]
        return found


def _from_log(
    bench: Bench, start: Servers, name: str, task: Task, servers: int | None = None
) -> Experiment:
    system: System = partial(from_log, bench, start, task, servers or 2)
    if task.digest:
        system = partial(view_updates, system, task)
    axis = None if servers is None else ("region servers", float(servers))
    return Experiment(name, {OURS: system}, task.expected, axis)


def from_log(bench: Bench, start: Servers, task: Task, servers: int, runs: int) -> Outcome:
    """A part of the operations for each run: written, then taken from the log by a pipeline.

    A first part warms the processes up and does not count.
    """
    spark = bench.spark()
    samples: dict[str, list[float]] = {}
    with database(bench, start(), task, servers) as (site, files):
        for run in range(-1, runs):
            count = 0
            for table, file in files.items():
                low, high = part_of(file, run + 1, runs + 1)
                site.write(table, file, low, high - low)
                count += high - low
            site.await_log()
            pipeline, spent = site.db.pipeline(spark=spark), Spent(site.cluster)
            began = time.perf_counter()
            with pipeline:
                site.await_views()
                seconds = time.perf_counter() - began
                used = spent()
            if run >= 0:
                samples.setdefault("operations/s", []).append(count / seconds)
                for who, value in used.items():
                    name = f"processor time of {who}, us/operation"
                    samples.setdefault(name, []).append(value / count * 1e6)
        return Outcome(samples, read(site.db, task))


def part_of(file: Operations, part: int, parts: int) -> tuple[int, int]:
    """Where one of some equal parts begins and ends."""
    return file.count * part // parts, file.count * (part + 1) // parts


def while_written(bench: Bench, start: Servers, task: Task, runs: int) -> Outcome:
    """From the first write until the views have the last one, with a pipeline that runs."""
    samples: dict[str, list[float]] = {}
    with database(bench, start(), task) as (site, files), bench.pipeline(site.db):
        for run in range(-1, runs):
            low, high = part_of(files["t"], run + 1, runs + 1)
            began = time.perf_counter()
            wrote = site.write("t", files["t"], low, high - low)
            site.await_log()
            site.await_views()
            seconds = time.perf_counter() - began
            if run >= 0:
                samples.setdefault("operations/s", []).append((high - low) / seconds)
                samples.setdefault("client's writes, operations/s", []).append((high - low) / wrote)
        return Outcome(samples, read(site.db, task))


def _writing(bench: Bench, start: Servers) -> Experiment:
    """What maintenance costs the client: the same writes with it and without."""
    measured = cache(partial(_written, bench, start))
    systems: dict[str, System] = {
        name: lambda runs, name=name: measured(runs)[name] for name in (OURS, ALONE)
    }
    return Experiment("client's writes", systems)


def _written(bench: Bench, start: Servers, runs: int) -> dict[str, Outcome]:
    """In turns: beside a pipeline that keeps up, and without the peer.

    The tables are of one database; one of them is written only while there is no peer, when the
    pipeline has nothing to do.
    """
    count = bench.size.pick(60_000, 20_000, 500)
    frame = rows(count * (runs + 1), 1_000)
    task = Task("writing", {"t": T, "alone": T}, {ANSWER: COUNT}, lambda: inserts(t=frame))
    rates: dict[str, list[float]] = {OURS: [], ALONE: []}
    file = Operations.of(task.changes, list(T), bench.place("operations") / "t")
    with start().database({name: list(T) for name in task.tables}, len(frame)) as site:
        site.db.sql(f"CREATE VIEW {ANSWER} AS {COUNT}")
        catch_up(site.db.store)
        with bench.pipeline(site.db):
            for run in range(runs + 1):
                site.report(True)
                kept = site.write("t", file, run * count, count)
                site.await_log()
                site.await_views()
                site.report(False)
                alone = site.write("alone", file, run * count, count)
                if run:
                    rates[OURS].append(count / kept)
                    rates[ALONE].append(count / alone)
        found = sum(row["n"] for row in site.db.scan(ANSWER).rows())
        if found != len(frame):
            raise Wrong(f"the view counts {found:,} rows of {len(frame):,}")
    return {name: Outcome({"operations/s": found}) for name, found in rates.items()}


def offered(bench: Bench, start: Servers, runs: int) -> Outcome:
    """At a steady load, from before a write until a read of the view shows it.

    What is timed are rows of one group, which another client puts every tenth of a second.
    """
    seconds = 5 * bench.size.seconds
    frame = rows(int(LOAD * seconds * (runs + 1)), 1_000)
    task = Task(
        "offered",
        {"t": T},
        {ANSWER: "SELECT g, COUNT(*) AS n, MAX(x) AS newest FROM t GROUP BY g"},
        lambda: inserts(t=frame),
    )
    samples: dict[str, list[float]] = {}
    with database(bench, start(), task) as (site, files), bench.pipeline(site.db):
        probes, each = Probes(site), int(LOAD * seconds)
        for _ in range(WARM_PROBES):
            probes.put()
            probes.take()
        for run in range(runs + 1):
            with probes.running():
                took = site.write("t", files["t"], run * each, each, threads=1, rate=LOAD)
            spent = probes.take()
            if run:
                for label, value in quantiles(spent):
                    samples.setdefault(f"{label}, s", []).append(value / 1e3)
                share = min(1.0, each / took / LOAD)
                samples.setdefault("share of the offered load", []).append(share)
        site.await_log()
        site.await_views()
        counted = sum(row["n"] for row in site.db.scan(ANSWER).rows()) - probes.count
        if counted != each * (runs + 1):
            raise Wrong(f"the view counts {counted:,} rows of {each * (runs + 1):,}")
    return Outcome(samples)


class Probes:
    """Rows of a group of their own, numbered; how long until a read of the view showed each."""

    def __init__(self, site: Site):
        self._site, self.count = site, 0
        self._written = dict[int, float]()
        self._spent = list[float]()

    def put(self) -> None:
        self.count += 1
        number = self.count
        cells = [
            Cell(b"f", name, value.to_bytes(8, "big", signed=True), number)
            for name, value in ((b"g", PROBE), (b"x", number))
        ]
        self._written[number] = time.perf_counter()
        key = (1 << 40) + number
        self._site.client.put(f"{self._site.name}:t", [Put(key.to_bytes(8, "big"), cells)])

    def look(self) -> None:
        row = self._site.db.get(ANSWER, PROBE)
        now = time.perf_counter()
        for number in range(1, (row["newest"] if row else 0) + 1):
            if (began := self._written.pop(number, None)) is not None:
                self._spent.append(now - began)

    def take(self) -> list[float]:
        """The times of all that were put since the last call, once all are seen."""
        while self._written:
            self.look()
        found, self._spent = self._spent, []
        return found

    @contextmanager
    def running(self) -> Iterator[None]:
        """Put and look in threads of their own while the block runs."""
        done, failures = threading.Event(), list[BaseException]()

        def repeat(step: Callable[[], None], pause: float) -> None:
            try:
                while not done.wait(pause):
                    step()
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=repeat, args=pair)
            for pair in ((self.put, PROBE_SECONDS), (self.look, 0.02))
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]


def _appending(bench: Bench, start: Servers, appenders: int) -> Experiment:
    """How many appends the log table takes: each reads its row of heads and changes one of them."""
    return Experiment(
        "appends to one log table",
        {OURS: partial(appended, bench, start, appenders)},
        axis=("appenders", float(appenders)),
    )


def appended(bench: Bench, start: Servers, appenders: int, runs: int) -> Outcome:
    cluster, rates = start(), list[float]()
    with cluster.database({"t": list(T)}, appenders * REGIONS) as site:
        words = (site.db.store.log.table, f"{site.name}:t", appenders, 2 * bench.size.seconds)
        for _ in range(runs):
            rates.append(cluster.measure("viewkeep.hbase.Appenders", *words))
    return Outcome({"appends/s": rates})


def _reading(bench: Bench, start: Servers, count: int) -> Experiment:
    """One group: a view by its key, a scan by the client, and one by Spark."""
    task = Task(
        "reading",
        {"t": T},
        {ANSWER: "SELECT g, SUM(x) AS total, COUNT(*) AS n FROM t GROUP BY g"},
        lambda: inserts(t=rows(count, 100)),
    )

    def expected() -> Result:
        return {ANSWER: task.expected()[ANSWER].filter(pl.col("g") == GROUP)}

    measured = cache(partial(_read, bench, start, task))
    systems: dict[str, System] = {
        name: lambda runs, name=name: measured(runs)[name] for name in (OURS, SCAN, SPARK)
    }
    return Experiment("reading one group", systems, expected, ("rows", float(count)))


def _read(bench: Bench, start: Servers, task: Task, runs: int) -> dict[str, Outcome]:
    spark = bench.spark()
    sql = f"SELECT g, SUM(x) AS total, COUNT(*) AS n FROM t WHERE g = {GROUP} GROUP BY g"
    with database(bench, start(), task) as (site, files):
        site.write("t", files["t"])
        site.await_log()
        catch_up(site.db.store)
        register(spark)

        def by_view() -> pl.DataFrame:
            for _ in range(READS):
                row = site.db.get(ANSWER, GROUP)
            return pl.DataFrame([row])

        def by_client() -> pl.DataFrame:
            total = count = 0
            for row in _scanned(site):
                values = {cell.qualifier: int.from_bytes(cell.value, "big") for cell in row.cells}
                if values[b"g"] == GROUP:
                    total, count = total + values[b"x"], count + 1
            return pl.DataFrame({"g": [GROUP], "total": [total], "n": [count]})

        def by_spark() -> pl.DataFrame:
            options = {"url": site.db.url, "table": "t"}
            spark.read.format("viewkeep").options(**options).load().createOrReplaceTempView("t")
            return pl.DataFrame(spark.sql(sql).toArrow())

        return {
            OURS: _timed(by_view, runs, READS),
            SCAN: _timed(by_client, runs, 1),
            SPARK: _timed(by_spark, runs, 1),
        }


def _scanned(site: Site) -> Iterator[Row]:
    """All rows of the table, a page at a time, with the two columns that are needed."""
    page, start, more = 10_000, b"", True
    columns = [Column(b"f", b"g"), Column(b"f", b"x")]
    while more:
        rows = site.client.scan(f"{site.name}:t", start, None, columns, limit=page)
        yield from rows
        more = len(rows) == page
        if more:
            start = (rows[-1].key or b"") + b"\0"


def _timed(read: Callable[[], pl.DataFrame], runs: int, times: int) -> Outcome:
    found, spent = read(), list[float]()
    for _ in range(runs):
        began = time.perf_counter()
        found = read()
        spent.append((time.perf_counter() - began) / times * 1e3)
    return Outcome({"read, ms": spent}, {ANSWER: found})


@contextmanager
def database(
    bench: Bench, cluster: Cluster, task: Task, servers: int = 2
) -> Iterator[tuple[Site, dict[str, Operations]]]:
    """An empty database with a task's views loaded, and its operations as files."""
    cluster.serve(servers)
    files = operations(task, bench.place("operations"))
    keys = max(file.count for file in files.values())
    with cluster.database({name: list(of) for name, of in task.tables.items()}, keys) as site:
        for name, sql in task.views.items():
            site.db.sql(f"CREATE VIEW {name} AS {sql}")
        catch_up(site.db.store)
        yield site, files

"""The pipeline: opens, runs and publishes one epoch after another, in the end by a streaming query.

What is there at its start is worked off first, by a thread of the driver, and the query is started
after that: it is there to wait for operations, and its start would take a core for a second. Large
epochs are jobs of the query's micro-batches; small ones are left to a resident task, whose turns
are micro-batches too (`resident.py`). The store's record says which epoch is open, so it does not
matter who opens or runs it. Law: whatever ends the pipeline (a stop, a failed task, a killed
process, a newer driver), the store holds a published epoch and at most one open epoch with a stored
cut, from which the next driver goes on.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from viewkeep.engine.epochs import Epochs, Limits, OpenEpoch, Published
from viewkeep.engine.failures import forget_trouble
from viewkeep.engine.housekeeping import Housekeeper
from viewkeep.engine.lease import Lease
from viewkeep.engine.load_pace import LOAD_PAUSE, LoadPace
from viewkeep.engine.pace import MOST, Pace, Work
from viewkeep.engine.programs import load_plan
from viewkeep.engine.recovery import FIRST_PAUSE, Patience, Recovery
from viewkeep.engine.report import Report
from viewkeep.engine.resident import Assignment, End, new_id
from viewkeep.errors import Fenced, PipelineError, Timeout, ViewkeepError
from viewkeep.spark.causes import as_error
from viewkeep.spark.goal import CatchUpGoal, behind
from viewkeep.spark.registration import register_source
from viewkeep.spark.resident import Watch, run_resident
from viewkeep.spark.runner import run_alone, run_epoch, touch_workers
from viewkeep.spark.session import running, session
from viewkeep.spark.signals import until_signal
from viewkeep.spark.source import FORMAT, LogSource
from viewkeep.stores import open_store
from viewkeep.stores.contract import Store

LEASE_SECONDS = 30.0
GRACE_SECONDS = 10.0  # how long `stop` lets a running epoch end by itself
HEAD_SECONDS = 5.0  # of epochs without a backlog, and the query is started though there is work
LULL_SECONDS = 0.3  # without work, and it is started: who only catches up has stopped by then
LOOK_SECONDS = 1.0  # between two looks at a query that runs
CHECK_SECONDS = 0.1  # between two looks of one who waits at whether it still runs
WARM_SECONDS = 15.0
RESIDENT_SECONDS = 30.0  # of a resident's turn
ONE_CORE_SECONDS = 1.0  # of one that keeps other jobs of the application from their only core
START_POLL = 0.02  # while the query starts


class Pipeline:
    """Keeps all views of a database fresh while it runs. Also a context manager.

    `database` is an open database or its url. `master` is any Spark master. `limits` bounds an
    epoch: operations, bytes of log, and rows of a view being loaded; `max_operations` the first of
    them alone. `every` is the least time in seconds from one epoch to the next. `load_pause` is
    the longest time in seconds that a write waits for views that are loaded (`LoadPace`). With
    `resident`, small epochs run in a task that stays; else each is a job and a micro-batch of its
    own. `patience` says when a view that fails is set aside. `on_epoch` is called with each epoch
    that this pipeline published; a resident that is killed may take its last ones along.
    """

    def __init__(
        self,
        database: Any,
        *,
        master: str | None = None,
        spark: SparkSession | None = None,
        limits: Limits = MOST,
        max_operations: int | None = None,
        every: float = 0.0,
        load_pause: float = LOAD_PAUSE,
        resident: bool = True,
        lease_seconds: float = LEASE_SECONDS,
        patience: Patience | None = None,
        on_epoch: Callable[[Published], None] | None = None,
    ):
        # Each thread makes its own `Epochs` over the store: one is not to be shared by threads.
        self._database = database
        self._own: Store | None = None
        self.url = self._store.url
        if max_operations is not None:
            limits = replace(limits, operations=max_operations)
        if not 0 <= every < math.inf:
            raise ValueError(f"every must be a number of seconds from 0 on, not {every}")
        if not 0 <= load_pause < math.inf:
            raise ValueError(f"load_pause must be a number of seconds from 0 on, not {load_pause}")
        self._limits, self._every, self._resident = limits, every, resident
        self._load_pause = load_pause
        self._lease_seconds, self._on_epoch = lease_seconds, on_epoch
        self._master, self._given = master, spark
        self._lease: Lease | None = None
        self._driver: threading.Thread | None = None
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._asked = threading.Event()  # set when the query runs its first epoch
        self._patience = patience or Patience()
        self._recovery = Recovery(self._patience, self._ended)
        self._suspects = False  # look for culprits before the open epoch is run
        self._once = False
        self._began = math.inf  # when the epoch that runs was begun
        self._allowed = self._patience.seconds  # for it
        self._overdue = False
        self._stuck: PipelineError | None = None  # why epochs fail again and again
        self._work = Work()
        self._too_large = 0  # the epoch that a resident gave back, since it needs all cores
        self._losses = 0  # turns in a row that failed without an epoch to blame
        self._troubled = True  # there may be a record of earlier failures
        self._tag = f"viewkeep-{uuid.uuid4().hex}"  # of its jobs
        self._house = Housekeeper()
        self._running = threading.Lock()  # held while an epoch runs, so that `stop` can wait for it
        self._folder: str | None = None

    # -- running -----------------------------------------------------------------------------

    def start(self) -> Pipeline:
        """Become the driver and start working; returns at once."""
        lease = self._begin()
        self._driver = threading.Thread(target=self._drive, args=(lease,), daemon=True)
        self._driver.start()
        return self

    def run_once(self) -> Published:
        """Catch up with all that is written now, then stop; gives the last epoch published.

        There is nothing to wait for, so it needs no query.
        """
        lease = self._begin()
        self._once = True
        try:
            # Nobody is served before it ends, so views are loaded at full speed.
            epochs, pace = Epochs(self._store), Pace(self._limits, loads=LoadPace(math.inf))
            goal = CatchUpGoal.now(self._store)
            while not goal.reached(epochs.read().published):
                if not self._advance(epochs, lease, pace):
                    break
            self._house.round(self._store, now=True)
        except Exception as error:
            self._fail(error)
        finally:
            self.stop()
        self.check()
        try:
            return Epochs(self._store).read().published
        finally:
            self._close_store()

    def run_forever(self) -> None:
        """Work until SIGTERM or Ctrl-C, which end it cleanly, or until it fails."""
        with self, until_signal(self._ended):
            while not self._ended.wait(0.2):
                self._look()
        self.check()

    def check(self) -> None:
        """Raise PipelineError if the pipeline has failed; Fenced if a newer driver took over."""
        self._look()
        failure = self._failure
        if isinstance(failure, PipelineError):
            raise failure
        if failure is not None:
            raise as_error(failure) from failure

    def wait(self, timeout: float | None = None) -> Published:
        """Wait until the views hold all that was written before this call, and are loaded.

        Raises PipelineError if the pipeline ended or fails again and again, Timeout (which says how
        far behind the views are) if that took longer than `timeout` seconds.
        """
        epochs, goal = Epochs(self._store), CatchUpGoal.now(self._store)
        deadline = None if timeout is None else time.monotonic() + timeout
        looked, done = time.monotonic(), epochs.read().published
        while True:
            if goal.reached(done):
                return done
            now = time.monotonic()
            if now - looked >= CHECK_SECONDS:
                looked = now
                self.check()
                if self._ended.is_set() or self._lease is None:
                    raise PipelineError("the pipeline is not running, so the views cannot catch up")
                if (stuck := self._stuck) is not None:
                    raise PipelineError(f"{stuck}; the pipeline goes on trying") from stuck
            if deadline is not None and now > deadline:
                raise Timeout(behind(done, goal.cut, timeout))
            left = CHECK_SECONDS if deadline is None else min(CHECK_SECONDS, deadline - now)
            done = epochs.wait(done.epoch, left)

    def stop(self) -> None:
        """End the query and give the lease back. An epoch that is running may end first."""
        self._ended.set()
        if self._driver is not None and self._driver is not threading.current_thread():
            self._driver.join(2 * GRACE_SECONDS)
        if self._lease is not None:
            with contextlib.suppress(ViewkeepError):
                Epochs(self._store).release(self._lease)
            self._lease = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self._close_store()

    @property
    def exception(self) -> PipelineError | None:
        """What ended the pipeline, if it was not `stop`."""
        self._look()
        return None if self._failure is None else as_error(self._failure)

    def __enter__(self) -> Pipeline:
        return self.start() if self._lease is None else self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- one epoch ---------------------------------------------------------------------------

    def _run_batch(self, batch: DataFrame, number: int) -> None:
        """Run the open epoch. Spark calls it once per offset that the source gave.

        `batch` is not read: collecting its ranges costs 36 ms and they say no more than the open
        epoch's record. If no epoch is open, Spark replays a batch of an epoch already published, or
        it is a resident's turn.
        """
        self._asked.set()
        with self._running:
            # An epoch that failed is still open, and Spark asks for it only once.
            while self._run_resident() if self._is_for_resident() else self._run_open():
                pass

    def _drive(self, lease: Lease) -> None:
        """Work off what is there, then leave the epochs to a query until the pipeline ends.

        Operations that come while the query starts do not wait for it.
        """
        try:
            epochs = Epochs(self._store)
            pace = Pace(self._limits, self._every, loads=LoadPace(self._load_pause))
            now = time.monotonic()
            until, quiet = now + HEAD_SECONDS, now + LULL_SECONDS
            while now < min(until, quiet) and not self._ended.is_set():
                if self._advance(epochs, lease, pace):
                    quiet = time.monotonic() + LULL_SECONDS
                    if pace.was_full:
                        until = time.monotonic() + HEAD_SECONDS
                else:
                    self._ended.wait(START_POLL)
                now = time.monotonic()
            if self._ended.is_set():
                return
            with ThreadPoolExecutor(1, "viewkeep-query") as pool:
                starting = pool.submit(self._start_query, lease)
                while _starts(starting) and not self._ended.is_set():
                    if not self._advance(epochs, lease, pace):
                        self._ended.wait(START_POLL)
            while not self._ended.wait(LOOK_SECONDS):
                self._look()
                self._keep_house()
        except Exception as error:
            self._fail(error)
        finally:
            self._stop_query()

    def _advance(self, epochs: Epochs, lease: Lease, pace: Pace) -> bool:
        """Open and run the next epoch; False if there is none, or it is the query's to run."""
        with self._running:
            if self._asked.is_set() or self._ended.is_set() or self._lease is not lease:
                return False
            began = time.monotonic()
            if not pace.is_due(began):
                return False
            if epochs.open_next(lease.term, pace.limits_at(began)) is None:
                self._is_well()
                return False
            pace.begin(began)
            self._run_open()
            pace.learn(epochs.read().published, time.monotonic())
            return True

    def _keep_house(self) -> None:
        """Housekeeping of an idle pipeline; one that runs epochs has it between them."""
        if self._running.acquire(blocking=False):
            try:
                if not self._ended.is_set():
                    self._house.round(self._store)
            finally:
                self._running.release()

    def _run_open(self) -> bool:
        """Run and publish the open epoch, if there is one; whether it failed and is still open.

        `_running` is held.
        """
        lease = self._lease
        if self._ended.is_set() or lease is None:
            return False
        epochs = Epochs(self._store)
        epoch = epochs.read().open
        if epoch is None:
            return False
        try:
            if self._suspects:
                self._suspects = False
                if self._recovery.search(self._store, lease.term, epoch):
                    return False
            reports = self._run_on_spark(epoch)
            self._work.learn(epoch, reports)
            published = epochs.publish(lease.term, epoch, reports)
            self._allowed, self._stuck = self._patience.seconds, None
        except Exception as error:
            return self._recover(lease, epoch, error)
        try:
            self._house.note(published, sum(report.rows_written for report in reports))
            self._house.round(self._store)
        except Exception as error:
            self._fail(error)
        self._tell(published)
        return False

    def _is_for_resident(self) -> bool:
        """Whether a resident is to have the epochs, from the open one on if there is one."""
        if not self._resident or self._suspects or self._ended.is_set():
            return False
        epoch = Epochs(self._store).read().open
        if epoch is None:
            return True
        program = load_plan(self._store, epoch.plan).program
        return epoch.epoch != self._too_large and self._work.is_little(epoch, program)

    def _run_resident(self) -> bool:
        """Leave the epochs to a resident for a while; whether one is open then that is to be run.

        `_running` is held.
        """
        lease = self._lease
        if self._ended.is_set() or lease is None:
            return False
        store, epochs = self._store, Epochs(self._store)
        given = Assignment(
            new_id(),
            lease.term,
            self._limits,
            self._work,
            self._every,
            self._load_pause,
            RESIDENT_SECONDS if self._limits.tasks > 1 else ONE_CORE_SECONDS,
            reports=self._on_epoch is not None,
        )
        watch = Watch(epochs.read())
        self._overdue = False

        def look() -> bool:
            record = epochs.read()
            self._began = watch.began(record, time.monotonic())
            if watch.has_published(record):
                self._allowed, self._stuck, self._losses = self._patience.seconds, None, 0
            return self._ended.is_set()

        try:
            turn = run_resident(self._spark, store, given, self._tag, look=look, note=self._tell)
        except Exception as error:
            return self._recover(lease, epochs.read().open, error)
        finally:
            self._began = math.inf
        self._work = turn.work
        record = epochs.read()
        if record.term != lease.term:
            self._fail(Fenced(f"a driver of term {record.term} has replaced this one"))
            return False
        if turn.end is End.LARGE and record.open is not None:
            self._too_large = record.open.epoch
            return True
        return False

    def _tell(self, published: Published) -> None:
        """Call `on_epoch`. What it raises ends the pipeline.

        It is not raised into Spark, which would only print it: the driver's thread ends the query.
        """
        if self._on_epoch is not None:
            try:
                self._on_epoch(published)
            except Exception as error:
                self._fail(error)

    def _run_on_spark(self, epoch: OpenEpoch) -> list[Report]:
        """Run an epoch, which is stopped when it takes too long (`_stop_overdue`)."""
        self._spark.sparkContext.addJobTag(self._tag)
        self._overdue, self._began = False, time.monotonic()
        try:
            program = load_plan(self._store, epoch.plan).program
            if epoch.epoch != self._too_large and self._work.is_little(epoch, program):
                reports = run_alone(self._spark, self.url, epoch)
                if reports is not None:
                    return reports
            return run_epoch(self._spark, self.url, epoch)
        finally:
            self._began = math.inf

    def _recover(self, lease: Lease, epoch: OpenEpoch | None, error: Exception) -> bool:
        """Do what helps after an epoch has failed; whether it is to be run again.

        If none is open, a resident failed between two epochs, and another one may do better.
        """
        failure = as_error(error)
        if isinstance(failure, Fenced) or self._ended.is_set() or not self._spark_runs():
            self._fail(error)
            return False
        if epoch is None:
            self._losses += 1
            if self._losses >= self._patience.failures:
                self._fail(error)
            return not self._ended.wait(FIRST_PAUSE)
        reason = str(failure)
        if self._overdue:
            reason = f"an epoch took more than {self._allowed:g} s"
            self._allowed *= 2  # if no view is to blame, it needs the time
        try:
            pause = self._recovery.after(
                self._store, lease.term, epoch, reason, hopeless=self._overdue
            )
        except Exception as other:
            self._fail(other)
            return False
        if pause and self._recovery.is_exhausted:
            self._stuck = failure
            if self._once:
                self._fail(error)
        self._ended.wait(pause)
        return pause > 0

    def _spark_runs(self) -> bool:
        try:
            context = self._spark.sparkContext
            return context._jsc is not None and not context._jsc.sc().isStopped()
        except Exception:
            return False

    def _is_well(self) -> None:
        """There is nothing to do: what failed before this pipeline began fails no more."""
        if self._troubled:
            self._troubled = False
            forget_trouble(self._store)

    # -- private -----------------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        """The open database's store; or one of our own, from its first use until `stop`."""
        given: Store | None = getattr(self._database, "store", None)
        if given is not None:
            return given
        if self._own is None:
            self._own = open_store(str(self._database))
        return self._own

    def _close_store(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def _begin(self) -> Lease:
        """Become the driver: from now on the lease is kept and Spark is there."""
        if self._lease is not None:
            raise PipelineError("this pipeline runs already")
        if self._driver is not None and self._driver.is_alive():
            raise PipelineError(
                "an epoch of this pipeline's last run has not ended; make a new one"
            )
        self._ended.clear()
        self._asked.clear()
        self._failure = None
        self._once, self._troubled, self._stuck = False, True, None
        epochs = Epochs(self._store)
        lease = self._lease = epochs.acquire(self._lease_seconds)
        try:
            self._suspects = self._recovery.begin(self._store)
            self._spark = running(self._master, spark=self._given)
            cores = self._spark.sparkContext.defaultParallelism
            self._limits = replace(self._limits, tasks=cores)
            threading.Thread(target=self._renew, args=(epochs, lease), daemon=True).start()
        except BaseException:
            self.stop()
            raise
        return lease

    def _start_query(self, lease: Lease) -> StreamingQuery:
        """Start the query, which is known from then on, whatever becomes of who waits for it."""
        spark = session(spark=self._spark)
        register_source(spark, LogSource)
        self._folder = tempfile.mkdtemp(prefix="viewkeep-checkpoint-")
        options = {
            "url": self.url,
            "term": str(lease.term),
            "operations": str(self._limits.operations),
            "size": str(self._limits.size),
            "chunk": str(self._limits.chunk),
            "tasks": str(self._limits.tasks),
            "every": str(self._every),
            "load_pause": str(self._load_pause),
            "resident": "true" if self._resident else "false",
        }
        stream = spark.readStream.format(FORMAT).options(**options).load()
        writer = stream.writeStream.foreachBatch(self._run_batch)
        self._query = writer.option("checkpointLocation", self._folder).start()
        return self._query

    def _stop_query(self) -> None:
        """End the query, if there is one; an epoch that is running may end first."""
        query = self._query
        if query is not None:
            if self._running.acquire(timeout=GRACE_SECONDS):
                self._running.release()
            else:
                self._cancel_jobs()
            with contextlib.suppress(Exception):  # Spark may be gone already
                query.stop()
            self._query = None

    def _renew(self, epochs: Epochs, lease: Lease) -> None:
        """The heartbeat: extends the lease until the pipeline ends, or ends it if it is lost."""
        pause = min(lease.ttl / 4, WARM_SECONDS, self._patience.seconds / 2)
        while not self._ended.wait(pause):
            try:
                epochs.renew(lease)
                self._stop_overdue()
                self._keep_warm()
            except ViewkeepError as error:
                self._fail(error)

    def _stop_overdue(self) -> None:
        """Cancel the jobs of an epoch that takes too long. Spark ends workers that do not hear."""
        if time.monotonic() - self._began > self._allowed:
            self._overdue = True
            self._cancel_jobs()

    def _cancel_jobs(self) -> None:
        with contextlib.suppress(Exception):  # Spark may be stopping
            self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def _keep_warm(self) -> None:
        """Give idle workers an empty task: Spark drops those that were idle for a minute."""
        if self._running.acquire(blocking=False):
            try:
                if not self._ended.is_set():
                    with contextlib.suppress(Exception):  # Spark may be stopping
                        touch_workers(self._spark)
            finally:
                self._running.release()

    def _look(self) -> None:
        """Notice that the query has ended by itself."""
        query = self._query
        if query is None or self._ended.is_set():
            return
        try:
            active, found = query.isActive, query.exception()
        except (Py4JError, OSError) as error:
            failure = PipelineError("Spark has ended, and the pipeline with it")
            failure.__cause__ = error
            self._fail(failure)
            return
        if not active:
            if found is not None:
                self._fail(found)
            self._ended.set()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None and not self._ended.is_set():
            self._failure = error
            self._ended.set()


def _starts(starting: Future[StreamingQuery]) -> bool:
    """Whether the query is still on its way to its first question for operations."""
    if not starting.done():
        return True
    query = starting.result()
    return query.isActive and str(query.status["message"]).startswith("Initializing")

"""The Spark session that viewkeep runs on, with the few settings that matter and why.

Law: a session that is already active is used as it is; what viewkeep needs beyond it (time zone,
NULL rules, checkpoint writing) is set on a session of its own over the same context, so the
caller's settings never change.
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from viewkeep.errors import PipelineError
from viewkeep.spark.datasource import register

MASTER_VARIABLE = "VIEWKEEP_MASTER"
DEFAULT_MASTER = "local[*]"
TASK_FAILURES = 4  # tries of one task, as on a cluster; plain local mode would try once

# Fixed when the context starts. Figures: two cores, an epoch of two levels.
CONTEXT_SETTINGS: dict[str, str] = {
    # Blobs reach Python workers by a Unix socket instead of a loopback connection.
    "spark.python.unix.domain.socket.enabled": "true",
    # A worker keeps its open store, its plan and its imports from one epoch to the next.
    "spark.python.worker.reuse": "true",
    # Workers that start later are forked with the engine imported, which takes 0.4 s to import.
    "spark.python.daemon.module": "viewkeep.spark.daemon",
    # A worker is one of several on the machine, and polars would start a thread per core in each.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    # No server, no progress line over the terminal of the application.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Stages are few and short: waiting for a better place costs more than reading from afar.
    "spark.locality.wait": "0",
    # Arrow blobs hardly shrink and the shuffle lies on a local disk.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # Shuffle files go when the JVM collects their RDD; at the latest after this, not half an hour.
    "spark.cleaner.periodicGC.interval": "5min",
    # The lists of finished jobs must not grow with the number of epochs.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
    # Hadoop sets the permissions of every file it makes by starting a process, twice with checksum
    # files: 65 ms a micro-batch for the checkpoint; 10 ms with the raw file system.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

# Set on viewkeep's own session; they work on any context.
SESSION_SETTINGS: dict[str, str] = {
    # The reference semantics of views: instants in UTC, NULL where an expression has no value.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    # Verification shuffles little data; 200 partitions would be 200 tasks of nothing.
    "spark.sql.shuffle.partitions": "8",
    # The checkpoint is dispensable, so it is written in the cheapest way and hardly kept.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    # The source waits for operations itself (`source.WAIT`); the engine need not wait again.
    "spark.sql.streaming.pollingDelay": "1ms",
}


def session(
    master: str | None = None,
    *,
    spark: SparkSession | None = None,
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """A session with viewkeep's settings, over the active context or a new one.

    `master` is any Spark master; the environment variable VIEWKEEP_MASTER or `local[*]` stand in
    for it. `settings` are further Spark settings of a new context.
    """
    base = spark or SparkSession.getActiveSession() or _adopt()
    if base is None:
        base = _start(
            retrying(master or os.environ.get(MASTER_VARIABLE) or DEFAULT_MASTER), settings
        )
    elif master is not None and retrying(master) != retrying(str(base.sparkContext.master)):
        raise PipelineError(
            f"Spark runs on {base.sparkContext.master} in this process and cannot change to "
            f"{master}; stop that session first, or leave `master` out"
        )
    own = base.newSession()
    # Writing looks a format up in the thread's active session, which is `base`.
    for known in (base, own):
        register(known)
    for key, value in SESSION_SETTINGS.items():
        own.conf.set(key, value)
    return own


def retrying(master: str) -> str:
    """The master with task retries: local mode gives up after the first failure unless told."""
    match = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{match[1] or 1},{TASK_FAILURES}]" if match else master


def log_file() -> Path | None:
    """Where Spark's own messages go in this process; None if viewkeep did not start Spark."""
    return _log_path


_log: IO[bytes] | None = None
_log_path: Path | None = None


def _adopt() -> SparkSession | None:
    """A session over a context that runs already but is not active in this thread."""
    context = SparkContext._active_spark_context
    return SparkSession(context) if context is not None else None


def _start(master: str, settings: dict[str, str] | None) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName("viewkeep")
    properties = Path(__file__).with_name("log4j2.properties")
    wanted = CONTEXT_SETTINGS | {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={properties.as_uri()}",
    }
    if master.startswith("local"):
        # Nothing but this machine talks to it, and the host's name need not resolve.
        wanted |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for key, value in (wanted | (settings or {})).items():
        conf.set(key, value)
    if SparkContext._gateway is None:
        # The JVM's standard error (start-up notes, worker tracebacks after a kill) goes to a file:
        # what concerns the caller comes back as an exception.
        gateway = launch_gateway(conf, {"stderr": _open_log()})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    with _own_interrupts():
        return SparkSession(SparkContext.getOrCreate(conf))


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keeps the application's answer to Ctrl-C, which a new SparkContext would replace."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _open_log() -> IO[bytes]:
    global _log, _log_path
    if _log is None:
        handle, name = tempfile.mkstemp(prefix="viewkeep-spark-", suffix=".log")
        _log = open(handle, "wb")  # noqa: SIM115 - the JVM writes to it until this process ends
        _log_path = Path(name)
        atexit.register(_log_path.unlink, missing_ok=True)
    return _log

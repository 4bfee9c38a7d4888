"""The JVM that Spark runs in: its settings, starting it, and starting it ahead of its use.

Half of a pipeline's start is the JVM's, so a process that knows it will need one says so before it
imports the rest. Law: a process starts at most one JVM; a session that finds one under way waits
for that one, and what the JVM prints goes to a file.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

MASTER_VARIABLE = "VIEWKEEP_MASTER"
DEFAULT_MASTER = "local[*]"
TASK_FAILURES = 4  # tries of one task, as on a cluster; plain local mode would try once

JVM_OPTIONS = (
    # Nothing here may keep a JVM of another make from starting.
    "-XX:+IgnoreUnrecognizedVMOptions",
    # Code is optimised after ten times the usual calls: of the 12 s of processor time that a start
    # took, the optimising compiler had 4, for code that runs once. What stays hot is optimised.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    # Room for Spark's classes from the beginning; growing to it meant three collections.
    "-XX:MetaspaceSize=256m",
)

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
    # glibc gives arrays back to the kernel as soon as they are freed, and the next one is mapped
    # and cleared anew: a tenth of the time of an epoch. Workers keep what the next array needs.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
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


def configuration(master: str | None, settings: dict[str, str] | None = None) -> SparkConf:
    """What a new context is made with; `settings` go before viewkeep's own."""
    used = retrying(master or os.environ.get(MASTER_VARIABLE) or DEFAULT_MASTER)
    conf = SparkConf().setMaster(used).setAppName("viewkeep")
    for key, value in (own_settings(used) | (settings or {})).items():
        conf.set(key, value)
    return conf


def own_settings(master: str) -> dict[str, str]:
    """Viewkeep's settings of a new context on a master."""
    properties = Path(__file__).with_name("log4j2.properties")
    options = (f"-Dlog4j2.configurationFile={properties.as_uri()}", *JVM_OPTIONS)
    wanted = CONTEXT_SETTINGS | {"spark.driver.extraJavaOptions": " ".join(options)}
    if master.startswith("local"):
        # Nothing but this machine talks to it, and the host's name need not resolve.
        wanted |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return wanted


def retrying(master: str) -> str:
    """The master with task retries: local mode gives up after the first failure unless told."""
    match = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{match[1] or 1},{TASK_FAILURES}]" if match else master


def begin(master: str | None) -> None:
    """Start the JVM in the background, for a session with this master that will be made soon."""
    global _ahead
    with _lock:
        if SparkContext._gateway is None and _ahead is None:
            pool = ThreadPoolExecutor(1, "viewkeep-jvm")
            _ahead = pool.submit(_launch, configuration(master))
            pool.shutdown(wait=False)


def ensure(conf: SparkConf) -> None:
    """The JVM is up and PySpark knows it."""
    global _ahead
    with _lock:
        if SparkContext._gateway is None:
            under_way, _ahead = _ahead, None
            gateway = _launch(conf) if under_way is None else under_way.result()
            SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def log_file() -> Path | None:
    """Where Spark's own messages go in this process; None if viewkeep did not start Spark."""
    return _log_path


_lock = threading.Lock()
_ahead: Future[Any] | None = None
_log: IO[bytes] | None = None
_log_path: Path | None = None


def _launch(conf: SparkConf) -> Any:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The JVM's standard error (start-up notes, worker tracebacks after a kill) goes to a file: what
    # concerns the caller comes back as an exception.
    return launch_gateway(conf, {"stderr": _open_log()})  # type: ignore[no-untyped-call]


def _open_log() -> IO[bytes]:
    global _log, _log_path
    if _log is None:
        handle, name = tempfile.mkstemp(prefix="viewkeep-spark-", suffix=".log")
        _log = open(handle, "wb")  # noqa: SIM115 - the JVM writes to it until this process ends
        _log_path = Path(name)
        atexit.register(_log.close)
        atexit.register(_log_path.unlink, missing_ok=True)
    return _log

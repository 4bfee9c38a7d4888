"""The Spark session that viewkeep runs on, with the few settings that matter and why.

Law: a session that is already active is used as it is; what viewkeep needs beyond it (time zone,
NULL rules, checkpoint writing) is set on a session of its own over the same context, so the
caller's settings never change.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from socketserver import BaseServer

from pyspark import SparkContext
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.sql import SparkSession

from viewkeep.errors import PipelineError
from viewkeep.spark.datasource import register
from viewkeep.spark.gateway import configuration, ensure, retrying
from viewkeep.spark.runner import touch_workers

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
    base = running(master, spark=spark, settings=settings)
    own = base.newSession()
    # Writing looks a format up in the thread's active session, which is `base`.
    for known in (base, own):
        register(known)
    for key, value in SESSION_SETTINGS.items():
        own.conf.set(key, value)
    return own


def running(
    master: str | None = None,
    *,
    spark: SparkSession | None = None,
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """The session that is there, or the first one of a new context.

    It runs jobs at once. SQL, which takes more than a second to start, starts with its first use.
    """
    if spark is None:
        _forget_ended()
    base = spark or SparkSession.getActiveSession() or _adopt()
    if spark is not None and spark.sparkContext.applicationId not in _checked:
        check_workers(spark)
        _checked.add(str(spark.sparkContext.applicationId))
    if base is None:
        return _start(master, settings)
    if master is not None and retrying(master) != retrying(str(base.sparkContext.master)):
        raise PipelineError(
            f"Spark runs on {base.sparkContext.master} in this process and cannot change to "
            f"{master}; stop that session first, or leave `master` out"
        )
    return base


_checked = set[str]()  # ids of applications whose workers can run viewkeep


def check_workers(spark: SparkSession) -> None:
    """PipelineError if the Python of this session's workers cannot run viewkeep."""
    # A lambda travels by value, so workers without viewkeep can run it.
    look = eval(_LOOK)
    try:
        # Not `first`: a worker whose input is not read to its end is not used again.
        ((version, executable, lost),) = spark.sparkContext.parallelize([0], 1).map(look).collect()
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise PipelineError(f"Spark's workers cannot run Python: {reason[-1]}") from error
    if lost:
        raise PipelineError(
            f"Spark's workers run {executable} (Python {version}), which lacks "
            f"{', '.join(lost)}; install viewkeep there, or have them run a Python that has it: "
            f"set PYSPARK_PYTHON, or spark.pyspark.python, before the session is made (here it is "
            f"{sys.executable})"
        )


_LOOK = """lambda _: (
    "%d.%d" % __import__("sys").version_info[:2],
    __import__("sys").executable,
    [
        name
        for name in ("viewkeep", "lmdb", "polars", "pyarrow", "numpy", "sqlglot")
        if __import__("importlib.util").util.find_spec(name) is None
    ],
)"""


def _adopt() -> SparkSession | None:
    """A session over a context that runs already but is not active in this thread."""
    context = SparkContext._active_spark_context
    return SparkSession(context) if context is not None else None


def _forget_ended() -> None:
    """Forget a context whose JVM has ended, so that a new one can be started in this process."""
    context = SparkContext._active_spark_context
    if context is None:
        return
    try:
        context._jsc.sc().isStopped()
    except Exception:  # whatever it is: nobody answers
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def _start(master: str | None, settings: dict[str, str] | None) -> SparkSession:
    conf = configuration(master, settings)
    ensure(conf)
    for kind in (AccumulatorTCPServer, AccumulatorUnixServer):
        kind.handle_error = _server_error  # type: ignore[method-assign,assignment]
    with _own_interrupts():
        made = SparkSession(SparkContext.getOrCreate(conf))
    # Workers start while the caller goes on; its first job would wait for them a second or two.
    threading.Thread(target=_start_workers, args=(made,), daemon=True).start()
    return made


def _server_error(server: BaseServer, request: object, address: object) -> None:
    """Say nothing where the JVM has ended first, as when both are told to end: no error is lost."""
    if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
        BaseServer.handle_error(server, request, address)  # type: ignore[arg-type]


def _start_workers(spark: SparkSession) -> None:
    with contextlib.suppress(Exception):  # Spark may be stopping
        touch_workers(spark)


@contextlib.contextmanager
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

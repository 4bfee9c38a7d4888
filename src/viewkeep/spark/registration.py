"""Making a DataSource known to a session.

Law: registering twice, or in several sessions of one context, is harmless. Spark looks a name up in
the thread's *active* session while it registers in the given one, and refuses a name that another
session of the context has; so the given session is the active one meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register `source` under its name in this session."""
    with _active(spark):
        spark.dataSource.register(source)


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    assert spark._jvm is not None
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()

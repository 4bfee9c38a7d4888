"""Spark's types and Arrow layouts for ours.

Law: a value keeps its meaning both ways; TIMESTAMP is an instant, which Spark shows in the
session's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from viewkeep.deferred import pa, pl
from viewkeep.types import Column, DataType

_SPARK: dict[str, st.DataType] = {
    "BOOLEAN": st.BooleanType(),
    "INT": st.IntegerType(),
    "BIGINT": st.LongType(),
    "DOUBLE": st.DoubleType(),
    "STRING": st.StringType(),
    "BINARY": st.BinaryType(),
    "DATE": st.DateType(),
    "TIMESTAMP": st.TimestampType(),
}


def spark_type(type: DataType) -> st.DataType:
    """The Spark SQL type of a column type."""
    if type.is_decimal:
        return st.DecimalType(type.precision, type.scale)
    if type.is_array:
        return st.ArrayType(spark_type(type.element))
    return _SPARK[type.name]


def spark_schema(columns: Iterable[Column]) -> st.StructType:
    """The Spark schema of these columns."""
    return st.StructType(
        [st.StructField(column.name, spark_type(column.type), True) for column in columns]
    )


def arrow_batches(frame: pl.DataFrame, schema: st.StructType) -> list[pa.RecordBatch]:
    """The frame in exactly the layout that Spark expects of a batch with this schema."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    columns = [_utc(table.column(field.name), field.type).cast(field.type) for field in wanted]
    return list(pa.Table.from_arrays(columns, schema=wanted).to_batches())


def _utc(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    # Casting a naive timestamp to one with a zone reads it as UTC, which is what ours are.
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(wanted) else column

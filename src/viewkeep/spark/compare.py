"""Comparing two DataFrames as multisets of rows, on Spark.

Law: rows are equal if all values are, NULL equal to NULL; DOUBLE values may differ by TOLERANCE
relative. Rows that are exactly equal cancel out first, so what is paired up by tolerance is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType

TOLERANCE = 1e-12
MISSING, EXTRA = "missing", "extra"
DIFFERENCE = "difference"  # column of `Difference.left`: MISSING or EXTRA
_WEIGHT, _PLACE = "__weight", "__place"


@dataclass(frozen=True)
class Difference:
    """The number of rows found, and the rows that differ; `left` is None if none does."""

    rows: int
    left: DataFrame | None

    def counts(self) -> dict[str, int]:
        """How many rows are missing and how many are extra."""
        if self.left is None:
            return {}
        counted = self.left.groupBy(DIFFERENCE).count().collect()
        return {row[DIFFERENCE]: int(row["count"]) for row in counted}


def compare(expected: DataFrame, found: DataFrame) -> Difference:
    """What of `expected` is missing in `found`, and what is extra there. Columns go by place."""
    # Numbers for names: a view may show two columns under one name, or a name that needs quoting.
    names = found.columns
    places = [f"c{place}" for place in range(len(names))]
    wanted = [field.dataType for field in found.schema.fields]
    left = expected.toDF(*places).select(
        [F.col(place).cast(type).alias(place) for place, type in zip(places, wanted, strict=True)]
    )
    both = left.withColumn(_WEIGHT, F.lit(1)).unionAll(
        found.toDF(*places).withColumn(_WEIGHT, F.lit(-1))
    )
    # One shuffle finds the rows that do not cancel out.
    uneven = both.groupBy(places).agg(F.sum(_WEIGHT).alias(_WEIGHT)).where(F.col(_WEIGHT) != 0)
    uneven = uneven.persist()
    try:
        rows = found.count()
        if uneven.isEmpty():
            return Difference(rows, None)
        doubles = [p for p, type in zip(places, wanted, strict=True) if type == DoubleType()]
        single = uneven.select(
            *places,
            F.when(F.col(_WEIGHT) > 0, MISSING).otherwise(EXTRA).alias(DIFFERENCE),
            F.explode(F.sequence(F.lit(1), F.abs(F.col(_WEIGHT)))).alias(_PLACE),
        )
        rest = _unpaired(single, places, doubles) if doubles else single.drop(_PLACE)
        rest = rest.toDF(*names, DIFFERENCE).localCheckpoint()
        return Difference(rows, None if rest.isEmpty() else rest)
    finally:
        uneven.unpersist()


def _unpaired(rows: DataFrame, places: list[str], doubles: list[str]) -> DataFrame:
    """The rows without a partner on the other side that differs in DOUBLE values by little.

    Within rows that agree in all other columns, both sides are put in order and paired by place:
    values that differ by little keep their order, unless they are as close to one another.
    """
    others = [place for place in places if place not in doubles]
    order = Window.partitionBy(DIFFERENCE, *others).orderBy(*doubles)
    placed = rows.drop(_PLACE).withColumn(_PLACE, F.row_number().over(order))
    a = placed.where(F.col(DIFFERENCE) == MISSING).alias("a")
    b = placed.where(F.col(DIFFERENCE) == EXTRA).alias("b")
    same = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in [*others, _PLACE]]
    near = [_near(F.col(f"a.{name}"), F.col(f"b.{name}")) for name in doubles]
    condition = reduce(lambda x, y: x & y, same + near)
    missing = a.join(b, condition, "left_anti")
    extra = b.join(a, condition, "left_anti")
    return missing.unionAll(extra).drop(_PLACE)


def _near(x: Column, y: Column) -> Column:
    close = F.abs(x - y) <= TOLERANCE * F.greatest(F.abs(x), F.abs(y))
    return x.eqNullSafe(y) | F.coalesce(close, F.lit(False))

"""Which executor a task prefers, and that Spark hears of it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from viewkeep.spark import placement

EXECUTORS = [f"executor_10.0.0.{number}_{number}" for number in range(5)]


@pytest.mark.parametrize("tasks", [1, 4, 5, 12, 64])
def test_each_executor_has_its_share(tasks: int) -> None:
    found = placement.assigned(EXECUTORS, tasks)
    assert len(found) == tasks
    assert found == placement.assigned(EXECUTORS, tasks)
    assert max(found.count(executor) for executor in EXECUTORS) <= -(-tasks // 5)


def test_few_tasks_move_when_an_executor_goes() -> None:
    before, after = (placement.assigned(some, 60) for some in (EXECUTORS, EXECUTORS[:-1]))
    stayed = [a == b for a, b in zip(before, after, strict=True) if a != EXECUTORS[-1]]
    assert sum(stayed) >= 0.6 * len(stayed)


def test_one_executor_leaves_no_choice() -> None:
    assert placement.assigned(EXECUTORS[:1], 4) == []


def test_spark_hears_of_it(spark: SparkSession) -> None:
    rdd = spark.sparkContext.parallelize(range(10), 3)
    located = placement._located(rdd, EXECUTORS[:3])
    inner = located._jrdd.rdd()
    heard = [inner.preferredLocations(part).mkString() for part in inner.partitions()]
    assert heard == EXECUTORS[:3]
    assert sorted(located.map(lambda number: number * 2).collect()) == list(range(0, 20, 2))
    routed = located.map(lambda number: (number, number)).partitionBy(2)
    assert sorted(placement._located(routed, EXECUTORS[:2]).values().collect()) == list(range(10))

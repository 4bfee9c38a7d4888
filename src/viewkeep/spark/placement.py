"""Where tasks would best run: shards whose state is apart stay with the executor that had them.

Law: this is speed and never correctness. Whatever Spark decides, a task replays what its machine
lacks. While the executors stay the same, so does the place of each task; if one goes or comes, few
tasks move.

An RDD of the JVM that passes its input on, partition by partition, is given the preferred
location of each. Spark has no public call for that: `CoalescedRDD` asks its partitions, which are
set here. Where this fails, tasks run anywhere.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext

_SECONDS = 1.0  # between two looks at which executors there are


@dataclass
class KnownExecutors:
    """The executors of the application, as of the last look."""

    _looked: float = 0.0
    _executors: list[str] = field(default_factory=list)

    def assign(self, context: SparkContext, tasks: int) -> list[str]:
        """A preferred location for each task; none if there is nothing to choose."""
        now = time.monotonic()
        if now - self._looked > _SECONDS:
            self._executors, self._looked = _executors(context), now
        return assigned(self._executors, tasks)


_known = KnownExecutors()


def assigned(executors: list[str], tasks: int) -> list[str]:
    """An executor for each task: the same ones while executors are the same, and evenly many.

    Each task takes the executor that it likes best of those that are not full. What it likes is
    a hash of both names, so that one executor more or less moves few tasks.
    """
    if len(executors) < 2:
        return []
    room = dict.fromkeys(executors, -(-tasks // len(executors)))
    found = []
    for task in range(tasks):
        free = [executor for executor in executors if room[executor]]
        best = max(free, key=lambda executor: crc32(f"{task} {executor}".encode()))
        room[best] -= 1
        found.append(best)
    return found


def placed(rdd: RDD[Any], is_apart: bool) -> RDD[Any]:
    """The same RDD, whose partitions prefer an executor each, if state is apart."""
    if not is_apart:
        return rdd
    context, tasks = rdd.ctx, rdd.getNumPartitions()
    try:
        locations = _known.assign(context, tasks)
        return _located(rdd, locations) if locations else rdd
    except (Py4JError, TypeError):
        return rdd


def _executors(context: SparkContext) -> list[str]:
    """The executors as Spark names locations, in order."""
    known = context._jsc.sc().statusStore().executorList(True)
    found = []
    for index in range(known.size()):
        executor = known.apply(index)
        if executor.id() != "driver":
            host = executor.hostPort().rpartition(":")[0]
            found.append(f"executor_{host}_{executor.id()}")
    return sorted(found)


def _located(rdd: RDD[Any], locations: list[str]) -> RDD[Any]:
    context, inner = rdd.ctx, rdd._jrdd
    jvm, gateway = context._jvm, context._gateway
    assert jvm is not None
    assert gateway is not None
    passed_on, parent = inner.coalesce(len(locations)), inner.rdd()
    options = {location: jvm.scala.Option.apply(location) for location in set(locations)}
    partitions = gateway.new_array(jvm.org.apache.spark.Partition, len(locations))
    for index, location in enumerate(locations):
        indices = gateway.new_array(jvm.int, 1)
        indices[0] = index
        partitions[index] = jvm.org.apache.spark.rdd.CoalescedRDDPartition(
            index, parent, indices, options[location]
        )
    outer = passed_on.rdd()
    kept = outer.getClass().getSuperclass().getDeclaredField("partitions_")
    kept.setAccessible(True)
    kept.set(outer, partitions)
    return RDD(passed_on, context, rdd._jrdd_deserializer)

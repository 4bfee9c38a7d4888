"""The operators: one class each, with the state it reads and writes, and its two lanes."""

from __future__ import annotations

from typing import Any

from viewkeep.engine.operators.aggregate import AggregateExecutor
from viewkeep.engine.operators.arrange import ArrangeExecutor
from viewkeep.engine.operators.executor import Executor, Fed, Reader
from viewkeep.engine.operators.join import JoinExecutor
from viewkeep.engine.operators.top_k import TopKExecutor
from viewkeep.engine.operators.window import WindowExecutor
from viewkeep.plan.nodes import Aggregate, Arrange, Join, TopK, Window
from viewkeep.plan.program import Operator

EXECUTORS: dict[type, type[Executor[Any, Any]]] = {
    Arrange: ArrangeExecutor,
    Aggregate: AggregateExecutor,
    Join: JoinExecutor,
    TopK: TopKExecutor,
    Window: WindowExecutor,
}


def executor(operator: Operator) -> Executor[Any, Any]:
    """What runs an operator."""
    return EXECUTORS[type(operator.node)](operator)


__all__ = ["EXECUTORS", "Executor", "Fed", "Reader", "executor"]

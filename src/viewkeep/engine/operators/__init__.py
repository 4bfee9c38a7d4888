"""The operators: one class each, with the state it reads and writes, and its two lanes.

Law: both lanes of an operator write the same bytes.
"""

from __future__ import annotations

from typing import Any

from viewkeep.engine.operators.aggregate.executor import AggregateExecutor
from viewkeep.engine.operators.arrange import ArrangeExecutor
from viewkeep.engine.operators.delta import DeltaExecutor
from viewkeep.engine.operators.executor import Executor, Fed, Reader
from viewkeep.engine.operators.join.executor import JoinExecutor
from viewkeep.engine.operators.threshold import ThresholdExecutor
from viewkeep.engine.operators.top_k import TopKExecutor
from viewkeep.engine.operators.window import WindowExecutor
from viewkeep.plan.nodes import Aggregate, Arrange, Delta, Join, Threshold, TopK, Window
from viewkeep.plan.program import Program

EXECUTORS: dict[type, type[Executor[Any, Any]]] = {
    Delta: DeltaExecutor,
    Arrange: ArrangeExecutor,
    Aggregate: AggregateExecutor,
    Join: JoinExecutor,
    Threshold: ThresholdExecutor,
    TopK: TopKExecutor,
    Window: WindowExecutor,
}


class Executors:
    """What runs the operators of one program, made when it is asked for.

    Those of the operators that the program `before` has too are taken over.
    """

    def __init__(self, program: Program, before: Executors | None = None):
        self.program = program
        self._known = {} if before is None else before._made
        self._made: dict[str, Executor[Any, Any]] = {}

    def __getitem__(self, name: str) -> Executor[Any, Any]:
        made = self._made.get(name)
        if made is None:
            operator = self.program.by_id[name]
            made = self._known.get(name)
            if made is None or made.operator != operator:
                made = EXECUTORS[type(operator.node)](operator)
            self._made[name] = made
        return made


_kept: list[Executors] = []
_PROGRAMS = 4


def executors(program: Program) -> Executors:
    """The executors of a program, kept for the last few."""
    for known in list(_kept):
        if known.program is program:
            return known
    made = Executors(program, _kept[0] if _kept else None)
    _kept.insert(0, made)
    del _kept[_PROGRAMS:]
    return made


__all__ = ["EXECUTORS", "Executor", "Executors", "Fed", "Reader", "executors"]

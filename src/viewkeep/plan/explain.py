"""EXPLAIN: views as trees of operators with their zones, levels and state tables.

One line per operator or step, the result first. An operator line says its level, its zone (the
columns that choose the shard), its state tables with their keys, and whether it is shared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from viewkeep.plan.nodes import AggregateCall, Arrange, Filter, Project, Source
from viewkeep.plan.program import Operator, Placement, Program, StateTable


def explain(program: Program, names: Collection[str], before: Program | None = None) -> str:
    """The trees of these views. Operators that `before` has already are marked as reused."""
    known = frozenset(before.by_id) if before else frozenset[str]()
    blocks = ["\n".join(_view(program, program.placements[name], known)) for name in names]
    return "\n\n".join(blocks)


def _view(program: Program, placement: Placement, known: frozenset[str]) -> Iterator[str]:
    view, table = placement.view, placement.table
    columns = ", ".join(outer for outer, _ in placement.columns)
    yield f"view {view.name} ({columns})"
    operator = next(op for op in program.operators if table in op.tables)
    if operator.node != view.node:
        yield f"  reads state table {table.number} of the operator below directly"
    yield from _operator(program, operator, known, 0)


def _operator(
    program: Program, operator: Operator, known: frozenset[str], depth: int
) -> Iterator[str]:
    pad = "   " * depth
    users = sum(operator.feed.id in p.feeds for p in program.placements.values())
    notes = [f"level {operator.level}", f"zone [{', '.join(operator.zone)}]"]
    if users > 1:
        notes.append(f"used by {users} views")
    if operator.id in known:
        notes.append("reused")
    yield f"{pad}└─ {_title(operator)}  · {' · '.join(notes)}"
    inner = pad + "   "
    for table in operator.tables:
        yield f"{inner}state {table.number}: {_table(table)}"
    for step in reversed(operator.feed.steps):
        yield f"{inner}{_step(step)}"
    producer = operator.feed.producer
    if not operator.feed.local:
        yield f"{inner}⇄ re-distributed by [{', '.join(operator.zone)}]"
    if isinstance(producer, Source):
        yield f"{inner}└─ Δ DELTA {producer.table} (key {', '.join(producer.row_key)})  · level 0"
    else:
        yield from _operator(program, program.by_id[producer], known, depth + 1)


def _title(operator: Operator) -> str:
    node = operator.node
    if isinstance(node, Arrange):
        local = operator.feed.local
        key = ", ".join(p.name + (" DESC" if p.descending else "") for p in node.key)
        return f"{'▤ VIEW' if local else '▤ INDEX'} by ({key})"
    calls = ", ".join(_call(call) for call in node.aggregates) or "DISTINCT"
    by = ", ".join(str(key.expr) for key in node.keys)
    return f"γ {calls}" + (f" by {by}" if by else "")


def _call(call: AggregateCall) -> str:
    function, _, distinct = call.function.partition("_")
    inside = "*" if call.argument is None else str(call.argument)
    return f"{function.upper()}({'DISTINCT ' if distinct == 'distinct' else ''}{inside})"


def _step(step: Filter | Project) -> str:
    if isinstance(step, Filter):
        return f"σ SELECTION {step.predicate}"
    return f"π PROJECTION {', '.join(str(out.expr) for out in step.outputs)}"


def _table(table: StateTable) -> str:
    key = ", ".join(p.name + (" DESC" if p.descending else "") for p in table.key)
    purpose = "PRE-AGGREGATION, " if table.purpose.startswith("values") else ""
    return f"{purpose}{table.purpose} under ({key}), {len(table.columns)} columns"

"""EXPLAIN: views as trees of operators with their zones, levels and state tables.

One line per operator or step, the result first. An operator line says its level, its zone (the
columns that choose the shard), its state tables with their keys, and whether it is shared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    CellSource,
    Delta,
    Filter,
    Join,
    KeyPart,
    Project,
    Source,
    TopK,
    Values,
    Window,
)
from viewkeep.plan.passes.aggregate_first import choice
from viewkeep.plan.program import Operator, OperatorFeed, Placement, Program, StateTable


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
    printed: set[str] = set()
    waiting: list[tuple[str, Operator | str]] = [("", operator)]
    while waiting:
        pad, one = waiting.pop()
        if isinstance(one, str):
            yield pad + one
            continue
        lines = _operator(program, one, known, one.id in printed)
        printed.add(one.id)
        waiting.extend((pad + inner, line) for inner, line in reversed(list(lines)))


_Line: TypeAlias = tuple[str, "Operator | str"]  # how far in, and a text or what is to be printed
_INNER = "   "


def _operator(
    program: Program, operator: Operator, known: frozenset[str], printed: bool
) -> Iterator[_Line]:
    """An operator with what it reads, unless that is printed above."""
    users = sum(program.uses(name, operator.id) for name in program.placements)
    notes = [f"level {operator.level}", f"zone [{', '.join(operator.zone)}]"]
    if users > 1:
        notes.append(f"used by {users} views")
    if operator.id in known:
        notes.append("reused")
    if printed:
        notes.append("as above")
    yield "", f"└─ {title(operator)}  · {' · '.join(notes)}"
    if printed:
        return
    for table in operator.tables:
        yield _INNER, f"state {table.number}: {_table(table)}"
    if isinstance(operator.node, Aggregate) and (chosen := choice(operator.node)):
        yield _INNER, f"aggregated first: {chosen}"
    for feed in operator.feeds:
        yield from _input(program, operator, feed)
    for port in operator.ports:
        for step in reversed(port.steps):
            yield _INNER, _step(step)
        yield _INNER, program.by_id[port.producer]


def _input(program: Program, operator: Operator, feed: OperatorFeed) -> Iterator[_Line]:
    for step in reversed(feed.steps):
        yield _INNER, _step(step)
    if not feed.local:
        yield _INNER, f"⇄ re-distributed by [{', '.join(operator.zone)}]"
    producer = feed.producer
    if isinstance(producer, CellSource):
        yield _INNER, f"└─ operations on cells of {producer.table}  · level 0"
    elif isinstance(producer, Source):
        key = ", ".join(producer.row_key)
        yield _INNER, f"└─ Δ DELTA {producer.table} (key {key})  · level 0"
    elif isinstance(producer, Values):
        yield _INNER, f"└─ VALUES, {len(producer.rows)} rows"
    else:
        yield _INNER, program.by_id[producer]


def title(operator: Operator) -> str:
    """What an operator does, in a line."""
    node = operator.node
    if isinstance(node, Arrange):
        key = ", ".join(p.name + (" DESC" if p.descending else "") for p in node.key)
        if node.group is not None:
            return f"▥ ARRANGEMENT by ({key})"
        keyed = operator.feeds[0].local
        return f"{'▤ VIEW' if keyed else '▤ INDEX'} by ({key})"
    if isinstance(node, Delta):
        return f"Δ DELTA {node.input.table} (key {', '.join(node.row_key)})"
    if isinstance(node, Join):
        on = ", ".join(f"{m.left} {'<=>' if m.null_safe else '='} {m.right}" for m in node.on)
        return f"⋈ {node.kind.upper()} REVERSE-JOIN" + (f" on {on}" if on else "")
    if isinstance(node, TopK):
        after = f" after {node.offset}" if node.offset else ""
        first = "rows" if node.limit is None else f"TOP-K {node.limit}"
        return f"⊤ {first}{after}" + _per(node.partition, node.order)
    if isinstance(node, Window):
        calls = ", ".join(call.name for call in node.calls)
        return f"⊞ WINDOW {calls}" + _per(node.partition, node.order)
    calls = ", ".join(_call(call) for call in node.aggregates) or "DISTINCT"
    by = ", ".join(str(key.expr) for key in node.keys)
    return f"γ {calls}" + (f" by {by}" if by else "")


def _per(partition: Sequence[str], order: Sequence[KeyPart]) -> str:
    by = ", ".join(part.name + (" DESC" if part.descending else "") for part in order)
    per = f" per {', '.join(partition)}" if partition else ""
    return per + (f" by {by}" if by else "")


def _call(call: AggregateCall) -> str:
    if call.function == "count_star":
        return "COUNT(*)"
    function = call.function.removesuffix("_distinct")
    distinct = "DISTINCT " if function != call.function else ""
    inside = [str(call.argument), *(str(part) for part in call.parameters)]
    inside += [f"{part.expr}{' DESC' if part.descending else ''}" for part in call.by]
    return f"{function.upper()}({distinct}{', '.join(inside)})"


def _step(step: Filter | Project) -> str:
    if isinstance(step, Filter):
        return f"σ SELECTION {step.predicate}"
    return f"π PROJECTION {', '.join(str(out.expr) for out in step.outputs)}"


def _table(table: StateTable) -> str:
    key = ", ".join(p.name + (" DESC" if p.descending else "") for p in table.key)
    purpose = "PRE-AGGREGATION, " if table.purpose.startswith("values") else ""
    return f"{purpose}{table.purpose} under ({key}), {len(table.columns)} columns"

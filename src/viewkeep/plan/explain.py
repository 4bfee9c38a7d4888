"""EXPLAIN: views as trees of operators with their zones, levels and state tables.

One line per operator or step, the result first. An operator line says its level, its zone (the
columns that choose the shard), its state tables with their keys, and whether it is shared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

from viewkeep.plan.nodes import Aggregate
from viewkeep.plan.nodes.parts import order_text
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
        lines = _operator(program, view.name, one, known, one.id in printed)
        printed.add(one.id)
        waiting.extend((pad + inner, line) for inner, line in reversed(list(lines)))


_Line: TypeAlias = tuple[str, "Operator | str"]  # how far in, and a text or what is to be printed
_INNER = "   "


def _operator(
    program: Program, name: str, operator: Operator, known: frozenset[str], printed: bool
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
    if isinstance(operator.node, Aggregate):
        if chosen := choice(operator.node):
            yield _INNER, f"aggregated first: {chosen}"
        yield from ((_INNER, line) for line in _kept_with(program, name, operator, operator.node))
    for feed in operator.feeds:
        yield from _input(program, operator, feed)
    for port in operator.ports:
        for step in reversed(port.steps):
            yield _INNER, step.title
        yield _INNER, program.by_id[port.producer]


def _kept_with(program: Program, name: str, operator: Operator, node: Aggregate) -> Iterator[str]:
    """The calls of an Aggregate that a view does not read, and the views that do."""
    read = _columns_read(program, name, operator)
    others = [other for other in program.placements if other != name]
    by_views: dict[tuple[str, ...], list[str]] = {}
    for call in node.aggregates:
        if call.name not in read:
            users = [
                other
                for other in others
                if program.uses(other, operator.id)
                and call.name in _columns_read(program, other, operator)
            ]
            by_views.setdefault(tuple(users), []).append(call.title)
    for views, calls in by_views.items():
        kept = f"kept with {_list('view', views)}" if views else "kept for no view any more"
        yield f"{kept}: {', '.join(calls)}"


def _list(noun: str, names: Collection[str]) -> str:
    return f"{noun}{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _columns_read(program: Program, name: str, operator: Operator) -> set[str]:
    """The columns of an operator's rows that a view reads, itself or through other operators."""
    placement = program.placements[name]
    found = set[str]()
    if placement.table in operator.tables:
        found |= {inner for _, inner in placement.columns}
    for other, feed in program.consumers(operator.id):
        if other.id in placement.operators:
            found |= feed.narrowed[0]
    for other, port in program.readers(operator.id):
        if other.id in placement.operators:
            found |= other.ports[port].narrowed[0]
    return found


def _input(program: Program, operator: Operator, feed: OperatorFeed) -> Iterator[_Line]:
    for step in reversed(feed.steps):
        yield _INNER, step.title
    if not feed.local:
        yield _INNER, f"⇄ re-distributed by [{', '.join(operator.zone)}]"
    if isinstance(feed.producer, str):
        yield _INNER, program.by_id[feed.producer]
    else:
        yield _INNER, f"└─ {feed.producer.title}"


def title(operator: Operator) -> str:
    """What an operator does, in a line."""
    return operator.node.title(bool(operator.feeds) and operator.feeds[0].local)


def _table(table: StateTable) -> str:
    key = order_text(table.key, " DESC")
    purpose = "PRE-AGGREGATION, " if table.purpose.startswith("values") else ""
    return f"{purpose}{table.purpose} under ({key}), {len(table.columns)} columns"

"""A plan as text: an indented tree, one line per node, the result first.

Law: equal plans have equal texts. Columns that are passed on as they are stand without their
expression, so a line says what its node does and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from viewkeep.expr import Ref
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    Fence,
    Filter,
    Frame,
    Join,
    KeyPart,
    Match,
    Named,
    Node,
    Project,
    Source,
    TopK,
    Union,
    Values,
    Window,
    WindowCall,
    inputs,
)


def show(node: Node) -> str:
    """The tree of a plan, without a line break at its end."""
    return "\n".join(_lines(node, 0))


def _lines(node: Node, depth: int) -> Iterator[str]:
    yield "  " * depth + _line(node)
    for below in inputs(node):
        yield from _lines(below, depth + 1)


def _line(node: Node) -> str:
    match node:
        case Source():
            return f"source {node.table}"
        case Values():
            rows = ", ".join(f"({', '.join(map(repr, row))})" for row in node.rows)
            return f"values ({', '.join(c.name for c in node.columns)}) {rows}{_key(node.row_key)}"
        case Filter():
            return f"filter {node.predicate}"
        case Project():
            return f"project {_named(node.outputs)}"
        case Union():
            return f"union{_key(node.row_key)}"
        case Join():
            on = ", ".join(map(_match, node.on))
            return f"{node.kind} join" + (f" on {on}" if on else "")
        case Aggregate():
            by = f" by {_named(node.keys)}" if node.keys else ""
            calls = ", ".join(map(_call, node.aggregates))
            return "aggregate" + (f" {calls}" if calls else "") + by
        case TopK():
            limit = "all" if node.limit is None else str(node.limit)
            offset = f" after {node.offset}" if node.offset else ""
            return f"top {limit}{offset}{_placed(node.partition, node.order)}"
        case Window():
            calls = ", ".join(map(_window_call, node.calls))
            return f"window {calls}{_placed(node.partition, node.order)}"
        case Arrange():
            kept = ", ".join(node.kept)
            return f"arrange ({kept}) under ({_order(node.key)})"
        case Fence():
            return f"fence {node.id}"


def _key(names: tuple[str, ...]) -> str:
    return f" key ({', '.join(names)})"


def _named(outputs: Iterable[Named]) -> str:
    return ", ".join(
        out.name
        if isinstance(out.expr, Ref) and out.name == out.expr.name
        else f"{out.name} = {out.expr}"
        for out in outputs
    )


def _match(match: Match) -> str:
    return f"{match.left} {'<=>' if match.null_safe else '='} {match.right}"


def _call(call: AggregateCall) -> str:
    """A call by its name, and what it computes where the name does not say so."""
    inside = "*" if call.argument is None else str(call.argument)
    by = [f"{part.expr}{' desc' if part.descending else ''}" for part in call.by]
    inside += f" order by {', '.join(by)}" if by else ""
    inside += "".join(f"; {value!r}" for value in call.parameters)
    return f"{call.name} = {call.function}({inside})"


def _window_call(call: WindowCall) -> str:
    inside = ", ".join(map(str, call.arguments))
    nulls = " ignore nulls" if call.ignore_nulls else ""
    return f"{call.name} = {call.function}({inside}){nulls}{_frame(call.frame)}"


def _frame(frame: Frame | None) -> str:
    if frame is None:
        return ""
    start = "unbounded" if frame.start is None else str(frame.start)
    stop = "unbounded" if frame.stop is None else str(frame.stop)
    return f" {frame.unit} {start} to {stop}"


def _placed(partition: tuple[str, ...], order: tuple[KeyPart, ...]) -> str:
    text = f" per {', '.join(partition)}" if partition else ""
    return text + (f" order by {_order(order)}" if order else "")


def _order(parts: Iterable[KeyPart]) -> str:
    return ", ".join(part.name + (" desc" if part.descending else "") for part in parts)

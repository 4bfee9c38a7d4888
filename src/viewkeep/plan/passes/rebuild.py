"""Nodes made again over other inputs, whose row keys may have changed.

Law: a node made here has every column that the old one had, and the row key of its inputs. Columns
that are added for a row key alone are called like nothing else, and nobody above reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from viewkeep.expr import Expr, Lit, Ref, unused
from viewkeep.plan.conditions import TRUE, conjunction
from viewkeep.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Match,
    Named,
    Node,
    Project,
    TopK,
    Union,
    Window,
    inputs,
)
from viewkeep.types import Column, DataType


def over(node: Node, below: tuple[Node, ...]) -> Node:
    """The node over other inputs, which have at least the columns of the old ones."""
    if all(new is old for new, old in zip(below, inputs(node), strict=True)):
        return node
    if isinstance(node, Project):
        return projected(below[0], node.outputs)
    if isinstance(node, Union):
        return united(below, node.row_key, [column.name for column in node.columns])
    if isinstance(node, Join):
        return joined(node.kind, below[0], below[1], node.on, ours=names(node.left))
    assert isinstance(node, Filter | Aggregate | TopK | Window), "an Arrange is never an input"
    return replace(node, input=below[0])


def names(node: Node) -> set[str]:
    """What the columns of a node are called."""
    return {column.name for column in node.columns}


def filtered(node: Node, conditions: Iterable[Expr]) -> Node:
    """The rows of a node for which all conditions are true: by one Filter, or by none."""
    if isinstance(node, Filter):
        conditions = (node.predicate, *conditions)
        node = node.input
    predicate = conjunction(conditions)
    return node if predicate == TRUE else Filter(node, predicate)


def copied(columns: Iterable[Column]) -> tuple[Named, ...]:
    """Columns passed on as they are, in the order of their names."""
    return tuple(
        Named(column.name, Ref(column.name, column.type))
        for column in sorted(columns, key=lambda column: column.name)
    )


def projected(node: Node, outputs: Iterable[Named]) -> Project:
    """A projection that computes the outputs, and keeps the row key; sorted by name."""
    made = {out.name: out for out in outputs}
    kept = {out.expr.name for out in made.values() if isinstance(out.expr, Ref)}
    types = {column.name: column.type for column in node.columns}
    for name in node.row_key:
        if name not in kept:
            free = unused(name, made)
            made[free] = Named(free, Ref(name, types[name]))
    return Project(node, tuple(made[name] for name in sorted(made)))


def is_narrowing(node: Node) -> bool:
    """Whether a node does nothing but to leave columns out, or to put them in another order."""
    return isinstance(node, Project) and all(
        isinstance(out.expr, Ref) and out.expr.name == out.name for out in node.outputs
    )


def narrowed(node: Node, needed: Collection[str]) -> Node:
    """The node with the needed columns and its row key alone, and at least one column."""
    kept = {name for name in names(node) if name in needed or name in node.row_key}
    kept = kept or {min(names(node))}
    if len(kept) == len(node.columns):
        return node
    return exactly(node, sorted(kept))


def exactly(node: Node, wanted: list[str]) -> Node:
    """The node with just these columns in this order; its row key is among them."""
    if [column.name for column in node.columns] == wanted:
        return node
    if isinstance(node, Project):
        outputs = {out.name: out for out in node.outputs}
        return Project(node.input, tuple(outputs[name] for name in wanted))
    columns = {column.name: column for column in node.columns}
    return Project(node, tuple(Named(name, Ref(name, columns[name].type)) for name in wanted))


def joined(
    kind: str, left: Node, right: Node, on: tuple[Match, ...], ours: Collection[str]
) -> Join:
    """A join whose sides may have got columns of the same name, for their row keys.

    `ours` are the columns that somebody may read from the left side; of a name that both sides
    have, the other side's column is called otherwise.
    """
    if kind in ("inner", "left") and (both := names(left) & names(right)):
        taken = names(left) | names(right)
        left = renamed(left, both - set(ours), taken)
        right = renamed(right, both & set(ours), taken)
    return Join(kind, left, right, on)


def renamed(node: Node, clashing: Collection[str], taken: Collection[str]) -> Node:
    """The node with other names for columns whose names clash, unlike those taken."""
    if not clashing:
        return node
    used = {*taken, *names(node)}
    outputs = []
    for column in node.columns:
        name = column.name
        if name in clashing:
            name = unused(name, used)
            used.add(name)
        outputs.append(Named(name, Ref(column.name, column.type)))
    return Project(node, tuple(outputs))


def united(branches: Iterable[Node], row_key: tuple[str, ...], columns: Iterable[str]) -> Union:
    """A union of these columns; row keys that are not among them get columns of their own."""
    shown = sorted(columns)
    made = list(branches)
    added = [
        [c for c in node.columns if c.name in node.row_key and c.name not in shown] for node in made
    ]
    slots = _slots(added, shown)
    if slots:
        made = [
            _with_slots(node, shown, extra, slots) for node, extra in zip(made, added, strict=True)
        ]
        row_key += tuple(name for name, _ in slots)
        shown = sorted([*shown, *(name for name, _ in slots)])
    return Union(tuple(exactly(node, shown) for node in made), row_key)


def _slots(added: list[list[Column]], taken: list[str]) -> list[tuple[str, DataType]]:
    """Columns, by type, that hold the added ones of each branch."""
    wanted: list[DataType] = []
    for extra in added:
        types = [column.type for column in extra]
        for type_ in types:
            wanted += [type_] * (types.count(type_) - wanted.count(type_))
    slots: list[tuple[str, DataType]] = []
    for type_ in sorted(wanted, key=str):
        used = {*taken, *(name for name, _ in slots)}
        number = next(n for n in range(len(used) + 1) if f"#key{n}" not in used)
        slots.append((f"#key{number}", type_))
    return slots


def _with_slots(
    node: Node, shown: list[str], extra: list[Column], slots: list[tuple[str, DataType]]
) -> Node:
    left = list(extra)
    outputs = list(copied(column for column in node.columns if column.name in shown))
    for name, type_ in slots:
        held = next((column for column in left if column.type == type_), None)
        if held is None:
            outputs.append(Named(name, Lit(None, type_)))
        else:
            left.remove(held)
            outputs.append(Named(name, Ref(held.name, held.type)))
    return projected(node, outputs)

"""Aggregates of the same groups that need different calls: one state table instead of several.

Law: the same rows under the same names, and a view alone has no table more. An Aggregate becomes a
projection of another one over the same input, by the same keys, that has all of its calls. Within a
view, one gets the calls of all. One that exists for other views is used as it is and never gets
more calls, since its groups would have to be loaded again.

A view must not pay for calls that it does not need. So the further calls of an existing Aggregate
may read only columns that the view's own read, must not collect values, and should change no more
often than those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from viewkeep.expr import Expr, Ref, unused
from viewkeep.ops.aggregates.function import Kept
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    Named,
    Node,
    Project,
    View,
    columns_read,
    nodes,
    projected,
)
from viewkeep.plan.passes.merge_projects import merged_project

_Groups: TypeAlias = tuple[str, tuple[Expr, ...]]


@dataclass(frozen=True)
class Existing:
    """What is kept already, for this or another view: joins by their ids, and Aggregates.

    `groups` has the Aggregates by their input and keys, the first that was created first.
    """

    joins: frozenset[str] = frozenset()
    groups: Mapping[_Groups, tuple[Aggregate, ...]] = field(default_factory=dict)

    def with_aggregates(self, those: Iterable[Node]) -> Existing:
        """Also the Aggregates among some nodes."""
        groups = dict(self.groups)
        for node in those:
            if isinstance(node, Aggregate):
                grouped = _groups(node)
                groups[grouped] = tuple(dict.fromkeys((*groups.get(grouped, ()), node)))
        return replace(self, groups=groups)

    def with_view(self, view: View) -> Existing:
        """Also the Aggregates of a view that will be created together with the next one."""
        return self.with_aggregates(nodes([view.node]))


NOTHING: Final = Existing()


def share_groups(view: Arrange, existing: Existing, kept: Node) -> Arrange:
    """The view's node with Aggregates shared; `kept` is the operator that has the view's rows."""
    order = list(nodes([view]))
    alike = _alike(node for node in order if node != kept)
    made: dict[str, Node] = {}
    for node in order:
        below = tuple(made[one.id] for one in node.inputs)
        now = node if below == node.inputs else node.with_inputs(below)
        if node.id in alike:
            several = [replace(one, input=below[0]) for one in alike[node.id]]
            own = next(one for one in several if one == now)
            now = _seen_as(own, _shared(own, several, existing))
        elif now is not node:
            now = _merged(now)
        made[node.id] = now
    return replace(view, input=made[view.input.id])


def _alike(those: Iterable[Node]) -> dict[str, list[Aggregate]]:
    """The Aggregates that have the same groups as each of them, itself included, by its id."""
    found: dict[_Groups, list[Aggregate]] = {}
    for node in those:
        if isinstance(node, Aggregate):
            found.setdefault(_groups(node), []).append(node)
    return {node.id: several for several in found.values() for node in several}


def _merged(node: Node) -> Node:
    """Two projections on one another become one."""
    return merged_project(node) if isinstance(node, Project) else node


def _shared(node: Aggregate, several: Sequence[Aggregate], existing: Existing) -> Aggregate:
    """The Aggregate whose groups are read: an existing one, or one for `several` of the view."""
    known = existing.groups.get(_groups(node), ())
    if (found := next((one for one in known if _serves(one, node)), None)) is not None:
        return found
    return _united([one for one in several if not any(_serves(wide, one) for wide in known)])


def _united(several: Sequence[Aggregate]) -> Aggregate:
    """One with the calls of all, each once."""
    first, *rest = sorted(dict.fromkeys(several), key=lambda node: node.id)
    calls = {_content(call): call for call in first.aggregates}
    taken = {key.name for key in first.keys} | {call.name for call in first.aggregates}
    for call in (call for node in rest for call in node.aggregates):
        if _content(call) not in calls:
            name = unused(call.name, taken)
            taken.add(name)
            calls[_content(call)] = replace(call, name=name)
    if len(calls) == len(first.aggregates):
        return first
    return replace(first, aggregates=tuple(sorted(calls.values(), key=lambda call: call.name)))


def _seen_as(node: Aggregate, wide: Aggregate) -> Node:
    """The columns of an Aggregate, under their names, from one that has its calls."""
    if wide == node:
        return node
    pairs = zip(node.keys, wide.keys, strict=True)
    outputs = [Named(key.name, Ref(other.name, key.expr.type)) for key, other in pairs]
    names = {_content(call): call.name for call in wide.aggregates}
    outputs += [Named(c.name, Ref(names[_content(c)], c.type)) for c in node.aggregates]
    return projected(wide, outputs)


def _serves(wide: Aggregate, node: Aggregate) -> bool:
    """Whether an existing Aggregate has all of a node's calls, and others that cost it nothing."""
    needed = {_content(call) for call in node.aggregates}
    further = [call for call in wide.aggregates if _content(call) not in needed]
    if len(wide.aggregates) - len(further) < len(needed):
        return False
    if not further:
        return True
    read = columns_read(expr for call in further for expr in call.expressions())
    return (
        read <= columns_read(node.expressions())
        and all(call.entry.kept in (Kept.COUNT, Kept.TOTALS, Kept.EXTREME) for call in further)
        and any(_changes_often(call) for call in node.aggregates)
    )


def _changes_often(call: AggregateCall) -> bool:
    """Whether a row more or less usually changes the value of a call."""
    return call.entry.kept in (Kept.COUNT, Kept.TOTALS) and not call.is_distinct


def _groups(node: Aggregate) -> _Groups:
    return node.input.id, tuple(key.expr for key in node.keys)


def _content(call: AggregateCall) -> AggregateCall:
    """A call whatever it is called."""
    return replace(call, name="")

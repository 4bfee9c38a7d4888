"""Logical plan nodes: frozen, self-validating, with ids derived from their content.

Every node says its output `columns` and its `row_key`: columns that identify an output row. Output
columns are named by the canonical text of what they compute, never by an alias, so two queries
that compute the same thing are the same node. Aliases live in `View` alone.

Law: what there is to know of a node stands in its class (`node.py` has the list, with defaults that
are right for any node). Nobody else asks what kind of node it is, to know its structure.
"""

from viewkeep.ops.aggregates.call import AggregateCall, Ordering
from viewkeep.plan.nodes.aggregate import Aggregate
from viewkeep.plan.nodes.arrange import Arrange
from viewkeep.plan.nodes.arrangements import Side, in_group_order, merged, strip, traced
from viewkeep.plan.nodes.calls import WINDOW_FUNCTIONS, Frame, WindowCall
from viewkeep.plan.nodes.delta import Delta
from viewkeep.plan.nodes.facts import facts, transferred
from viewkeep.plan.nodes.filter import Filter, filtered
from viewkeep.plan.nodes.join import JOINS, MOST_KEYS, Join, joined
from viewkeep.plan.nodes.leaves import (
    CellSource,
    Fence,
    LeafNode,
    Source,
    Values,
    WantedKeys,
    sources,
)
from viewkeep.plan.nodes.node import (
    Change,
    Node,
    OperatorNode,
    PartitionNode,
    ReaderNode,
    StatefulNode,
    StepNode,
    TableShape,
    columns_read,
    names,
    nodes,
    over,
    same_over,
)
from viewkeep.plan.nodes.nulls import has_value, never_null
from viewkeep.plan.nodes.parts import CARRIED, KeyPart, Match, Named
from viewkeep.plan.nodes.project import (
    Project,
    copied,
    exactly,
    is_narrowing,
    narrowed,
    projected,
    renamed,
)
from viewkeep.plan.nodes.threshold import Threshold
from viewkeep.plan.nodes.top_k import TopK
from viewkeep.plan.nodes.union import Union, united
from viewkeep.plan.nodes.view import View
from viewkeep.plan.nodes.window import Window

__all__ = [
    "CARRIED",
    "JOINS",
    "MOST_KEYS",
    "WINDOW_FUNCTIONS",
    "Aggregate",
    "AggregateCall",
    "Arrange",
    "CellSource",
    "Change",
    "Delta",
    "Fence",
    "Filter",
    "Frame",
    "Join",
    "KeyPart",
    "LeafNode",
    "Match",
    "Named",
    "Node",
    "OperatorNode",
    "Ordering",
    "PartitionNode",
    "Project",
    "ReaderNode",
    "Side",
    "Source",
    "StatefulNode",
    "StepNode",
    "TableShape",
    "Threshold",
    "TopK",
    "Union",
    "Values",
    "View",
    "WantedKeys",
    "Window",
    "WindowCall",
    "columns_read",
    "copied",
    "exactly",
    "facts",
    "filtered",
    "has_value",
    "in_group_order",
    "is_narrowing",
    "joined",
    "merged",
    "names",
    "narrowed",
    "never_null",
    "nodes",
    "over",
    "projected",
    "renamed",
    "same_over",
    "sources",
    "strip",
    "traced",
    "transferred",
    "united",
]

"""What every node of a plan says of itself; the kinds of node; walking plans.

A new node defines its fields, `columns`, `row_key`, `line`, and `over` if its input is not called
`input`. All else has a default that is right for any node, if not always the best: a pass that
knows nothing of a node leaves it as it is, over inputs that the pass has changed.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from viewkeep.expr import Expr, references
from viewkeep.plan.nodes.parts import KeyPart
from viewkeep.types import Column

if TYPE_CHECKING:
    from viewkeep.plan.nodes.arrangements import Side

Change: TypeAlias = Callable[[Expr], Expr]


class Node:
    """A relation: what it is computed from, its columns, and what tells its rows apart.

    What a node says of itself (`id`, `columns`, `row_key`) is computed when it is made, from what
    its inputs say: so a plan may be deep, and what is shared in it is never walked twice. Nodes are
    compared by their ids.
    """

    if TYPE_CHECKING:  # fields of some nodes; those of a class must not be defaults of theirs

        @property
        def columns(self) -> tuple[Column, ...]:
            """The columns of its rows."""

        @property
        def row_key(self) -> tuple[str, ...]:
            """The columns that identify a row."""

        @property
        def inputs(self) -> tuple[Node, ...]:
            """The nodes that it is computed from; what is behind a fence is not among them."""

    row_by_row: ClassVar[bool] = False
    """Whether each row is made of one row of an input, whatever the others are."""
    computes: ClassVar[bool] = True
    """Whether some columns are computed, so that they read others, wanted or not."""
    narrows: ClassVar[bool] = False
    """Whether rows of its inputs are kept or compared, so that these get no columns unasked."""

    def __init_subclass__(cls) -> None:
        validate = cls.__dict__.get("__post_init__")

        def settle(self: Node) -> None:
            if validate is not None:
                validate(self)
            _ = self.columns, self.row_key, self.id

        cls.__post_init__ = settle  # type: ignore[attr-defined]

    @cached_property
    def id(self) -> str:
        """Equal for equal plans, in every process and version of a database."""
        parts = [type(self).__name__]
        for field in fields(self):  # type: ignore[arg-type]
            if not field.metadata.get("identity", True):
                continue
            value = getattr(self, field.name)
            several = value if isinstance(value, tuple) else (value,)
            parts += [v.id if isinstance(v, Node) else repr(v) for v in several]
            parts.append(field.name)
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return self is other or self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    # -- structure -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def line(self) -> str:
        """What it does, as a line of a plan's text; columns that are passed on are not named."""

    def expressions(self) -> Iterator[Expr]:
        """All that it computes of its inputs' columns."""
        return iter(())

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        """The node over other inputs, which have the columns and row keys of the old ones."""
        (below,) = inputs
        changed: dict[str, Any] = {"input": below}
        return replace(self, **changed)  # type: ignore[type-var]

    def mapped(self, change: Change, inputs: tuple[Node, ...]) -> Node:
        """The node over such inputs, with all its expressions changed."""
        return self.with_inputs(inputs)

    def over(self, inputs: tuple[Node, ...]) -> Node:
        """The node over inputs that have at least the old ones' columns, and maybe other row keys.

        It has every column that it had. One that is added for a row key is called like no other.
        """
        return self.with_inputs(inputs)

    @property
    def has_one_row(self) -> bool:
        """Whether there is exactly one row, whatever the inputs are, and this node is why."""
        return False

    @property
    def compared(self) -> Iterable[str]:
        """Its columns by whose values rows are grouped, ordered or told apart."""
        return self.row_key

    # -- what passes ask -----------------------------------------------------------------------

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        """The columns that it reads of each input, to have the needed ones and its row key."""
        return tuple(names(below) for below in self.inputs)

    def without_unused(self, needed: Collection[str]) -> Node:
        """The same rows without what is computed for other columns; maybe one of its inputs."""
        return self

    def over_pruned(self, inputs: tuple[Node, ...], needed: Collection[str]) -> Node:
        """The node over inputs that have the columns it reads for the needed ones, and these."""
        return self.over(inputs)

    def moved(self, condition: Expr) -> Expr | None:
        """A condition on its rows as one on the rows of each input that says the same; or None."""
        return None

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        """Some columns that are never NULL, given such columns of the inputs."""
        return ()

    def facts(self, below: Sequence[frozenset[Expr]]) -> Iterable[Expr]:
        """Some conditions on single columns that hold of all rows, given those of the inputs."""
        return ()


class StepNode(Node):
    """A node that is no operator: its rows are made of an input's rows in memory, on the way."""

    row_by_row = True
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    @abstractmethod
    def title(self) -> str:
        """What it does, as a line of EXPLAIN."""


@dataclass(frozen=True)
class TableShape:
    """A state table that an operator keeps. The first `shard_by` key columns choose the shard.

    With `group`, the first so many key columns are a group that is scanned by its prefix.
    """

    purpose: str
    columns: tuple[Column, ...]
    key: tuple[KeyPart, ...]
    shard_by: tuple[str, ...]
    group: int | None = None


class OperatorNode(Node):
    """A node that runs as an operator: its class is in `engine.operators`."""

    @property
    def drawn_as(self) -> str:
        """What it is, in a word, for the dashboard's drawing."""
        return type(self).__name__.lower()

    @abstractmethod
    def title(self, local: bool) -> str:
        """What it does, as a line of EXPLAIN; `local` if its input comes from its own zone."""


class StatefulNode(OperatorNode):
    """An operator that keeps state tables, the first of which holds its rows."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def base_key(self) -> tuple[str, ...] | None:
        """The key whose rows lie where the log of a base table with that key is, if any do."""
        return None

    @abstractmethod
    def tables(self, by_row_key: bool) -> tuple[TableShape, ...]:
        """The state tables; `by_row_key` if the producer's rows lie by this node's row key."""

    @abstractmethod
    def copied_from(self, column: str) -> str | None:
        """The input column whose key bytes a column of the key has; None if it is computed."""


class ReaderNode(OperatorNode):
    """An operator without state, which reads arrangements of its inputs."""

    narrows = True

    @abstractmethod
    def sides(self) -> tuple[Side, ...]:
        """What it reads: a side for each input."""

    @property
    def empty_without(self) -> tuple[int, ...]:
        """The sides of which none may be empty, or it is empty itself."""
        return (0,)

    @property
    def zones(self) -> int:
        """By how many sides' groups its rows are told to lie: they are equal in each row."""
        return 1


class PartitionNode(ReaderNode):
    """A reader of one arrangement: by partition, and in an order within."""

    input: Node
    partition: tuple[str, ...]
    order: tuple[KeyPart, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key

    def moved(self, condition: Expr) -> Expr | None:
        return condition if set(references(condition)) <= set(self.partition) else None

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        return below[0]

    def facts(self, below: Sequence[frozenset[Expr]]) -> Iterable[Expr]:
        return below[0]

    def sides(self) -> tuple[Side, ...]:
        from viewkeep.plan.nodes.arrangements import by_partition

        return (by_partition(self),)

    @property
    def compared(self) -> Iterable[str]:
        return (*self.row_key, *self.ordered_by)

    @property
    def ordered_by(self) -> set[str]:
        """The columns of the partition and the order."""
        return {*self.partition, *(part.name for part in self.order)}


def names(node: Node) -> set[str]:
    """What the columns of a node are called."""
    return {column.name for column in node.columns}


def columns_read(exprs: Iterable[Expr]) -> set[str]:
    """The columns that some expressions read."""
    return {name for expr in exprs for name in references(expr)}


def need(wanted: Iterable[str], columns: Iterable[Column]) -> None:
    """Refuse a node that reads what its input has not got."""
    if missing := set(wanted) - {column.name for column in columns}:
        raise ValueError(f"{sorted(missing)} is not computed by the input")


def nodes(roots: Iterable[Node]) -> Iterator[Node]:
    """The nodes of plans, inputs before what reads them, each once."""
    done: set[str] = set()
    waiting: list[tuple[Node, bool]] = [(root, False) for root in reversed(list(roots))]
    while waiting:
        node, ready = waiting.pop()
        if node.id in done:
            continue
        if ready:
            done.add(node.id)
            yield node
        else:
            waiting.append((node, True))
            waiting.extend((below, False) for below in reversed(node.inputs))


def same_over(node: Node, made: Mapping[str, Node]) -> Node:
    """The node over other objects for its inputs, by their ids, which are those of the old ones."""
    below = tuple(made[one.id] for one in node.inputs)
    if all(new is old for new, old in zip(below, node.inputs, strict=True)):
        return node
    return node.with_inputs(below)


def over(node: Node, below: tuple[Node, ...]) -> Node:
    """The node over other inputs, which have at least the columns of the old ones."""
    if all(new is old for new, old in zip(below, node.inputs, strict=True)):
        return node
    return node.over(below)

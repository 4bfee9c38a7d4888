"""Logical plan nodes: frozen, self-validating, with ids derived from their content.

Every node says its output `columns` and its `row_key`: columns that identify an output row. Output
columns are named by the canonical text of what they compute, never by an alias, so two queries
that compute the same thing are the same node. Aliases live in `View` alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, TypeAlias

from viewkeep.cells import CellRules, TieRule
from viewkeep.errors import QueryTooLarge, Unsupported
from viewkeep.expr import Expr, Ref, Scalar, references
from viewkeep.types import Column, DataType, Schema


@dataclass(frozen=True)
class Named:
    """An expression and the output column that it computes."""

    name: str
    expr: Expr

    @property
    def column(self) -> Column:
        return Column(self.name, self.expr.type)


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function over the rows of a group.

    `function` is one of AGGREGATES. `argument` is None for `count_star` alone. A FILTER clause has
    become a CASE inside the argument. `by` orders the rows for functions that depend on an order,
    and holds the further arguments of those that take several; `parameters` are constants such as
    a separator or a fraction.
    """

    name: str
    function: str
    argument: Expr | None
    type: DataType
    by: tuple[Ordering, ...] = ()
    parameters: tuple[Scalar, ...] = ()

    def __post_init__(self) -> None:
        if self.function not in AGGREGATES:
            raise ValueError(f"no such aggregate: {self.function}")
        if (self.argument is None) != (self.function == "count_star"):
            raise ValueError(f"{self.function} has the wrong number of arguments")
        read = [*([] if self.argument is None else [self.argument]), *(p.expr for p in self.by)]
        if self.function != "count" and any(expr.type.is_array for expr in read):
            raise Unsupported("an ARRAY is not aggregated", hint="Aggregate its elements before")


@dataclass(frozen=True)
class Ordering:
    """An expression that rows are ordered by, and its direction."""

    expr: Expr
    descending: bool = False


_MADE_OF_DISTINCT = (
    "count", "sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp", "bit_xor",
    "percentile_cont", "percentile_disc", "string_agg", "array_agg",
)  # fmt: skip
AGGREGATES = (
    "count_star", *_MADE_OF_DISTINCT, *(f"{name}_distinct" for name in _MADE_OF_DISTINCT),
    "min", "max", "min_by", "max_by", "covar_pop", "covar_samp", "corr", "bool_and", "bool_or",
)  # fmt: skip


@dataclass(frozen=True)
class KeyPart:
    """A column of a state table's key and its direction."""

    name: str
    descending: bool = False


class _Identified:
    """Gives a node its content-derived id, by which it is compared.

    What a node says of itself (`id`, `columns`, `row_key`) is computed when it is made, from what
    its inputs say: so a plan may be deep, and what is shared in it is never walked twice.
    """

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
            value = getattr(self, field.name)
            several = value if isinstance(value, tuple) else (value,)
            parts += [v.id if isinstance(v, _Identified) else repr(v) for v in several]
            parts.append(field.name)
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identified):
            return NotImplemented
        return self is other or self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, eq=False)
class Source(_Identified):
    """DELTA: the changes of a base table, old row to new row per key."""

    table: str
    number: int
    schema: Schema

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.schema.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.schema.key


@dataclass(frozen=True, eq=False)
class CellSource(Source):
    """A base table whose log says what happened to cells, not what its rows were before."""

    ties: str  # of cells.TieRule
    versions: bool  # whether single versions of a cell may be deleted

    @cached_property
    def rules(self) -> CellRules:
        """How its operations are merged."""
        return CellRules(TieRule(self.ties), self.versions)


@dataclass(frozen=True, eq=False)
class Delta(_Identified):
    """DELTA: the rows of a base table out of the operations on its cells."""

    input: CellSource

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key


@dataclass(frozen=True, eq=False)
class Filter(_Identified):
    """SELECTION: the rows for which `predicate` is true."""

    input: Node
    predicate: Expr

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key


@dataclass(frozen=True, eq=False)
class Project(_Identified):
    """PROJECTION: computed columns. Keeps the input's row key among its outputs, maybe renamed."""

    input: Node
    outputs: tuple[Named, ...]

    def __post_init__(self) -> None:
        names = [out.name for out in self.outputs]
        if len(set(names)) != len(names):
            raise ValueError(f"duplicate column in {sorted(names)}")
        if lost := set(self.input.row_key) - set(self._copies):
            raise ValueError(f"a projection must keep the row key; {sorted(lost)} is lost")

    @cached_property
    def _copies(self) -> dict[str, str]:
        """For each input column that is passed on as it is, its output; its own name if it may."""
        found: dict[str, str] = {}
        for out in self.outputs:
            if isinstance(out.expr, Ref) and (
                out.name == out.expr.name or out.expr.name not in found
            ):
                found[out.expr.name] = out.name
        return found

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(out.column for out in self.outputs)

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return tuple(self._copies[name] for name in self.input.row_key)


@dataclass(frozen=True, eq=False)
class Aggregate(_Identified):
    """COUNT, SUM, MIN ... of the input's rows per group. No keys: one row, even of no input."""

    input: Node
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        made = tuple(Column(call.name, call.type) for call in self.aggregates)
        return tuple(key.column for key in self.keys) + made

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)


@dataclass(frozen=True, eq=False)
class Values(_Identified):
    """Rows that are written in the query, and never change."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    row_key: tuple[str, ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row of values has another number of columns")
        if not self.row_key and len(self.rows) > 1:
            raise ValueError("several rows need a row key")
        _need(self.row_key, self.columns)


@dataclass(frozen=True, eq=False)
class Union(_Identified):
    """The rows of all inputs, which have the same columns; `row_key` tells them all apart.

    So the row key has a column that differs between inputs, unless their rows differ already.
    """

    inputs: tuple[Node, ...]
    row_key: tuple[str, ...]

    def __post_init__(self) -> None:
        shapes = {tuple((c.name, c.type) for c in node.columns) for node in self.inputs}
        if len(shapes) != 1:
            raise ValueError("the inputs of a union differ in their columns")
        _need(self.row_key, self.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.inputs[0].columns


JOINS = ("inner", "left", "semi", "anti")
MOST_KEYS: Final = 1_000
"""Columns of a join's row key. Joins of joins on other columns than keys double them."""


@dataclass(frozen=True)
class Match:
    """A condition of a join: equal values left and right; NULL equals NULL if `null_safe`."""

    left: Expr
    right: Expr
    null_safe: bool = False

    def __post_init__(self) -> None:
        if self.left.type != self.right.type:
            raise ValueError(f"{self.left.type} is matched with {self.right.type}")


@dataclass(frozen=True, eq=False)
class Join(_Identified):
    """REVERSE-JOIN: the rows of `left` with their partners in `right`.

    `inner`: each row with each partner. `left`: also rows without a partner, NULL on the right.
    `semi`, `anti`: rows with a partner, rows without, and no columns of the right. RIGHT and FULL
    joins, and conditions that are not matches, are made of these. Columns of both sides differ in
    name. Without matches every row is a partner.
    """

    kind: str
    left: Node
    right: Node
    on: tuple[Match, ...]

    def __post_init__(self) -> None:
        if self.kind not in JOINS:
            raise ValueError(f"no such join: {self.kind}")
        ours, theirs = ({c.name for c in side.columns} for side in (self.left, self.right))
        if self.shows_right and (both := ours & theirs):
            raise ValueError(f"{sorted(both)} are columns of both sides")
        for match in self.on:
            _need(references(match.left), self.left.columns)
            _need(references(match.right), self.right.columns)
        if len(self.row_key) > MOST_KEYS:
            raise QueryTooLarge(
                f"the rows of a join are told apart by more than {MOST_KEYS:,} columns",
                hint="Join by whole keys, or group the rows of each side before",
            )

    @cached_property
    def shows_right(self) -> bool:
        """Whether the columns of the right side are part of the result."""
        return self.kind in ("inner", "left")

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns + (self.right.columns if self.shows_right else ())

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        """Both row keys; one of them where the other side has at most one partner for a row."""
        if not self.shows_right or _covered(self.right, [match.right for match in self.on]):
            return self.left.row_key
        if self.kind == "inner" and _covered(self.left, [match.left for match in self.on]):
            return self.right.row_key
        return self.left.row_key + self.right.row_key


def _covered(side: Node, matched: list[Expr]) -> bool:
    return {Ref(c.name, c.type) for c in side.columns if c.name in side.row_key} <= set(matched)


@dataclass(frozen=True, eq=False)
class TopK(_Identified):
    """TOP-K: of each partition the rows after the first `offset`, at most `limit`, in an order.

    Rows that the order does not tell apart follow their row key. `limit` None means all.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[KeyPart, ...]
    limit: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        _need((*self.partition, *(part.name for part in self.order)), self.input.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key


@dataclass(frozen=True)
class Frame:
    """The rows around a row that a window function sees, by distance; None is unbounded.

    Distances count from the row: -2 is two rows before. `rows` counts rows; `range` counts peers
    (rows that the order does not tell apart) as one, and its bounds are 0 or None.
    """

    unit: str
    start: int | None
    stop: int | None

    def __post_init__(self) -> None:
        if self.unit not in ("rows", "range"):
            raise ValueError(f"no such frame: {self.unit}")
        if self.unit == "range" and {self.start, self.stop} - {0, None}:
            raise ValueError("a range has no distances")


@dataclass(frozen=True)
class WindowCall:
    """A function over the rows of a partition around each row.

    `arguments` are expressions over the input's columns. Offsets of `lag`, `lead` and `ntile`,
    and the place of `nth_value`, are constants among them.
    """

    name: str
    function: str
    arguments: tuple[Expr, ...]
    type: DataType
    frame: Frame | None = None
    ignore_nulls: bool = False

    def __post_init__(self) -> None:
        if self.function not in WINDOW_FUNCTIONS:
            raise ValueError(f"no such window function: {self.function}")


WINDOW_FUNCTIONS = (
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile",
    "lag", "lead", "first_value", "last_value", "nth_value",
    "count_star", "count", "sum", "avg", "min", "max",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Window(_Identified):
    """WINDOW: each row with the values of functions over its partition, in an order.

    Rows that the order does not tell apart follow their row key where a function has to choose.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[KeyPart, ...]
    calls: tuple[WindowCall, ...]

    def __post_init__(self) -> None:
        _need((*self.partition, *(part.name for part in self.order)), self.input.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + tuple(Column(call.name, call.type) for call in self.calls)

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key


@dataclass(frozen=True, eq=False)
class Arrange(_Identified):
    """A state table of the input's rows (the `kept` columns), under a key that starts as asked.

    INDEX is an Arrange whose key starts with other columns than the row key. The row key's columns
    are always part of the key, last, so that the key is unique. With `group`, the first so many
    columns of the key are a group whose rows lie on one shard, for joins, TOP-K and windows.
    """

    input: Node
    key: tuple[KeyPart, ...]
    kept: tuple[str, ...]
    group: int | None = None

    def __post_init__(self) -> None:
        names = [part.name for part in self.key]
        if len(set(names)) != len(names):
            raise ValueError(f"duplicate column in key {names}")
        if missing := set(self.input.row_key) - set(names):
            raise ValueError(f"the key lacks {sorted(missing)} of the row key")
        if missing := (set(names) | set(self.kept)) - {c.name for c in self.input.columns}:
            raise ValueError(f"{sorted(missing)} is not computed by the input")

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        wanted = set(self.kept) | {part.name for part in self.key}
        return tuple(column for column in self.input.columns if column.name in wanted)

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.key)


@dataclass(frozen=True, eq=False)
class Fence(_Identified):
    """A part of a plan that passes neither change nor look into, under the id of that part.

    `plan.passes.fragments` cuts large plans by fences. A finished plan has none.
    """

    node: Node

    @cached_property
    def id(self) -> str:
        return self.node.id

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.node.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.node.row_key


Node: TypeAlias = (
    Source | Values | Filter | Project | Union | Join | Aggregate | TopK | Window | Arrange | Fence
)


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is computed from; what is behind a fence is not among them."""
    if isinstance(node, Source | Values | Fence):
        return ()
    if isinstance(node, Union):
        return node.inputs
    if isinstance(node, Join):
        return (node.left, node.right)
    return (node.input,)


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
            waiting.extend((below, False) for below in reversed(inputs(node)))


def sources(node: Node) -> Iterator[Source]:
    """The base tables that a node is computed from, each once."""
    return (below for below in nodes([node]) if isinstance(below, Source))


def _need(names: Iterable[str], columns: Iterable[Column]) -> None:
    if missing := set(names) - {column.name for column in columns}:
        raise ValueError(f"{sorted(missing)} is not computed by the input")


@dataclass(frozen=True)
class View:
    """A named view: its SQL, the Arrange node that keeps it, and what its columns are called.

    `columns` pairs each visible name with a column of `node`, in order; a node column that is only
    part of the key is hidden. `reads` names the tables and views that the SQL is written over; the
    plan itself stands on base tables alone. `statement` is what creates the view, as its author
    wrote it; `sql` is the query in a form that means the same to Spark.
    """

    name: str
    sql: str
    node: Arrange
    columns: tuple[tuple[str, str], ...]
    reads: tuple[str, ...] = ()
    statement: str = dataclasses.field(default="", compare=False)

    @property
    def schema(self) -> Schema:
        """The visible columns, then the hidden key columns, under their shown names."""
        types = {column.name: column.type for column in self.node.columns}
        shown = {inner: outer for outer, inner in reversed(self.columns)}
        columns = [Column(outer, types[inner]) for outer, inner in self.columns]
        taken = set(self.visible)
        for part in self.node.key:
            if part.name not in shown:
                name = part.name
                while name in taken:  # an alias may be called as a hidden column is
                    name = f"#{name}"
                taken.add(name)
                shown[part.name] = name
                columns.append(Column(name, types[part.name]))
        return Schema(tuple(columns), tuple(shown[part.name] for part in self.node.key))

    @property
    def visible(self) -> tuple[str, ...]:
        return tuple(outer for outer, _ in self.columns)

"""Random plans over three small tables, shaped as the SQL front end shapes them, and odder."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.plan.conditions import arranged, conjunction, connected
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
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
)
from viewkeep.types import BIGINT, BOOLEAN, INT, Column, DataType, Schema


def table(name: str, number: int, key: str, *others: str) -> Source:
    """A table of BIGINT columns."""
    columns = [Column(key, BIGINT, False), *(Column(other, BIGINT) for other in others)]
    return Source(name, number, Schema(tuple(columns), (key,)))


T = table("t", 1, "id", "a", "b")
P = table("p", 2, "id", "t_id", "v")
Q = Source(
    "q",
    3,
    Schema(
        (Column("k", BIGINT, False), Column("l", BIGINT, False), Column("w", BIGINT)), ("k", "l")
    ),
)
ONE = Values((Column("one", BIGINT),), ((1,),), ())
TABLES = (T, P, Q)

_VALUE = st.none() | st.integers(0, 3)


@st.composite
def contents(draw: st.DrawFn) -> dict[str, list[tuple[object, ...]]]:
    """A few rows for each table, with unique keys."""
    made: dict[str, list[tuple[object, ...]]] = {}
    for source in TABLES:
        key = st.tuples(*(st.integers(0, 3) for _ in source.row_key))
        keys = draw(st.lists(key, max_size=5, unique=True))
        rest = len(source.columns) - len(source.row_key)
        made[source.table] = [(*key, *(draw(_VALUE) for _ in range(rest))) for key in keys]
    return made


def numbers(node: Node) -> list[Ref]:
    """The columns that may be calculated with."""
    return [Ref(c.name, c.type) for c in node.columns if c.type == BIGINT]


@dataclass
class Maker:
    """Draws plans. Labels tell relations apart, as those of the SQL front end do."""

    draw: st.DrawFn
    labels: dict[str, int] = field(default_factory=dict)

    def node(self, depth: int) -> Node:
        """A plan of at most a depth."""
        if depth == 0:
            return self.draw(st.sampled_from(TABLES))
        kinds = [
            self.filter, self.filter, self.project, self.aggregate, self.top, self.window,
            self.join, self.join, self.join, self.join, self.cluster, self.mixed, self.union,
            self.narrow, self.with_one,
        ]  # fmt: skip
        return self.draw(st.sampled_from(kinds))(depth - 1)

    def relation(self, depth: int) -> Node:
        """A plan whose columns are called `label.column`."""
        node = self.node(depth)
        root = node.table if isinstance(node, Source) else node.id[:6]
        self.labels[root] = self.labels.get(root, 0) + 1
        label = root if self.labels[root] == 1 else f"{root}#{self.labels[root]}"
        return Project(
            node,
            tuple(Named(f"{label}.{c.name}", Ref(c.name, c.type)) for c in node.columns),
        )

    def expr(self, refs: list[Ref]) -> Expr:
        if not refs:
            return Lit(self.draw(st.integers(0, 3)), BIGINT)
        one = self.draw(st.sampled_from(refs))
        kind = self.draw(st.sampled_from(["ref", "ref", "add", "lit", "case", "coalesce"]))
        if kind == "ref":
            return one
        if kind == "lit":
            return Lit(self.draw(_VALUE), BIGINT)
        other = self.draw(st.sampled_from([*refs, Lit(1, BIGINT)]))
        if kind == "add":
            return arranged(Call("add", (one, other), BIGINT))
        if kind == "coalesce":
            return Call("coalesce", (one, other), BIGINT)
        return Call("case", (self.comparison(refs), one, other), BIGINT)

    def comparison(self, refs: list[Ref]) -> Expr:
        kind = self.draw(
            st.sampled_from(
                ["eq", "eq", "lt", "ge", "ne", "null_safe_eq", "is_null", "is_not_null"]
            )
        )
        one = self.expr(refs)
        if isinstance(one, Lit):
            one = self.draw(st.sampled_from(refs)) if refs else one
        if kind.startswith("is_"):
            return Call(kind, (one,), BOOLEAN)
        literal = Lit(self.draw(st.integers(0, 3)), BIGINT)
        other = self.draw(st.sampled_from([literal, literal, *refs]))
        return arranged(Call(kind, (one, other), BOOLEAN))

    def condition(self, refs: list[Ref], depth: int = 2) -> Expr:
        kinds = ["is", "is", "and", "or", "not", "common"] if depth else ["is"]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "is":
            return self.comparison(refs)
        if kind == "not":
            return Call("not", (self.comparison(refs),), BOOLEAN)
        if kind == "common":
            shared = self.comparison(refs)
            parts = [conjunction([shared, self.comparison(refs)]) for _ in range(2)]
            return connected("or", parts)
        return connected(kind, [self.condition(refs, depth - 1) for _ in range(2)])

    def filter(self, depth: int) -> Node:
        node = self.node(depth)
        return Filter(node, self.condition(numbers(node)))

    def narrow(self, depth: int) -> Node:
        node = self.node(depth)
        kept = [c for c in node.columns if c.name in node.row_key or self.draw(st.booleans())]
        kept = kept or list(node.columns)
        return Project(node, tuple(Named(c.name, Ref(c.name, c.type)) for c in kept))

    def project(self, depth: int) -> Node:
        node = self.node(depth)
        refs = numbers(node)
        outputs = {c.name: Named(c.name, Ref(c.name, c.type)) for c in node.columns}
        for expr in [self.expr(refs) for _ in range(2)]:
            outputs.setdefault(f"{expr}'", Named(f"{expr}'", expr))
        dropped = [
            name for name in outputs if name not in node.row_key and self.draw(st.booleans())
        ]
        for name in dropped[: len(outputs) - 1]:
            del outputs[name]
        return Project(node, tuple(outputs[name] for name in sorted(outputs)))

    def aggregate(self, depth: int) -> Node:
        node = self.node(depth)
        refs = numbers(node)
        keys = {str(e): e for e in [self.expr(refs) for _ in range(self.draw(st.integers(0, 2)))]}
        keys = {name: expr for name, expr in keys.items() if not isinstance(expr, Lit)}
        calls = [AggregateCall("count(*)", "count_star", None, BIGINT)]
        for function in ("sum", "min"):
            argument = self.expr(refs)
            calls.append(AggregateCall(f"{function} {argument}", function, argument, BIGINT))
        return Aggregate(
            node, tuple(Named(f"key {name}", expr) for name, expr in keys.items()), tuple(calls)
        )

    def placed(self, node: Node) -> tuple[tuple[str, ...], tuple[KeyPart, ...]]:
        """A partition, and an order without ties: who breaks them is not said."""
        names = [ref.name for ref in numbers(node)]
        if not names:
            return (), tuple(KeyPart(name) for name in node.row_key)
        partition = self.draw(st.lists(st.sampled_from(names), max_size=1))
        first = KeyPart(self.draw(st.sampled_from(names)), self.draw(st.booleans()))
        rest = [KeyPart(name) for name in node.row_key if name != first.name]
        return tuple(partition), (first, *rest)

    def top(self, depth: int) -> Node:
        node = self.node(depth)
        limit, offset = self.draw(st.sampled_from([1, 2, None])), self.draw(st.integers(0, 1))
        return TopK(node, *self.placed(node), limit, offset)

    def window(self, depth: int) -> Node:
        node = self.node(depth)
        calls = [WindowCall(f"row_number {node.id[:6]}", "row_number", (), BIGINT)]
        if refs := numbers(node):
            calls.append(WindowCall(f"max {node.id[:6]}", "max", (self.expr(refs),), BIGINT))
        return Window(node, *self.placed(node), tuple(calls))

    def matches(self, left: Node, right: Node, most: int = 2) -> tuple[Match, ...]:
        ours, theirs = numbers(left), numbers(right)
        return tuple(
            Match(self.expr(ours), self.expr(theirs), self.draw(st.integers(0, 5)) == 0)
            for _ in range(self.draw(st.integers(0, most)))
        )

    def join(self, depth: int) -> Node:
        left, right = self.relation(depth), self.relation(depth)
        kind = self.draw(st.sampled_from(["inner", "inner", "left", "left", "semi", "anti"]))
        return self.maybe_filtered(Join(kind, left, right, self.matches(left, right)))

    def cluster(self, depth: int) -> Node:
        """Several relations in a row, mostly inner joins on columns."""
        node = self.relation(0)
        for _ in range(self.draw(st.integers(1, 3))):
            right = self.relation(0 if depth < 2 else self.draw(st.integers(0, 1)))
            kind = self.draw(st.sampled_from(["inner"] * 5 + ["left"]))
            ours, theirs = numbers(node), numbers(right)
            on = []
            if ours and theirs and self.draw(st.integers(0, 3)):
                on = [Match(self.draw(st.sampled_from(ours)), self.draw(st.sampled_from(theirs)))]
            node = self.maybe_filtered(Join(kind, node, right, tuple(on)))
        return node

    def maybe_filtered(self, node: Node) -> Node:
        if numbers(node) and self.draw(st.booleans()):
            return Filter(node, self.condition(numbers(node)))
        return node

    def mixed(self, depth: int) -> Node:
        """A join with a condition that is no match: over the rows for which it is true."""
        left, right = self.relation(depth), self.relation(depth)
        both = Join("inner", left, right, self.matches(left, right, 1))
        chosen = Filter(both, self.condition(numbers(both)))
        theirs = {c.name for c in right.columns}
        self.labels["*"] = self.labels.get("*", 0) + 1
        mark = "*" * self.labels["*"]
        inner = Project(
            chosen,
            tuple(
                Named(c.name if c.name in theirs else c.name + mark, Ref(c.name, c.type))
                for c in both.columns
                if c.name in theirs or c.name in chosen.row_key or c.name in left.row_key
            ),
        )
        types = {c.name: c.type for c in left.columns}
        on = [
            Match(Ref(name, types[name]), Ref(name + mark, types[name]), True)
            for name in left.row_key
        ]
        kind = self.draw(st.sampled_from(["left", "semi", "anti"]))
        return self.maybe_filtered(Join(kind, left, inner, tuple(on)))

    def with_one(self, depth: int) -> Node:
        """A product with one row."""
        left = self.relation(depth)
        self.labels["one"] = self.labels.get("one", 0) + 1
        name = f"one#{self.labels['one']}.one"
        one = Project(ONE, (Named(name, Ref("one", BIGINT)),))
        return self.maybe_filtered(Join("inner", left, one, ()))

    def union(self, depth: int) -> Node:
        """Branches with a column of their own, and their row keys in common columns."""
        nodes = [self.node(depth) for _ in range(2)]
        slots: list[DataType] = []
        for node in nodes:
            types = [next(c.type for c in node.columns if c.name == k) for k in node.row_key]
            for type_ in types:
                slots += [type_] * (types.count(type_) - slots.count(type_))
        branches = tuple(self.branch(i, node, slots) for i, node in enumerate(nodes))
        return Union(branches, ("#branch", *(f"#key{i}" for i in range(len(slots)))))

    def branch(self, number: int, node: Node, slots: list[DataType]) -> Node:
        refs = numbers(node)
        outputs = [Named("#branch", Lit(number, INT))]
        outputs += [Named(name, self.expr(refs)) for name in ("u", "v")]
        keys = [Ref(c.name, c.type) for k in node.row_key for c in node.columns if c.name == k]
        for i, type_ in enumerate(slots):
            held = next((key for key in keys if key.type == type_), None)
            if held is not None:
                keys.remove(held)
            outputs.append(Named(f"#key{i}", held or Lit(None, type_)))
        return Project(node, tuple(outputs))


@st.composite
def plans(draw: st.DrawFn, depth: int = 3) -> Node:
    """A random plan."""
    return Maker(draw).node(draw(st.integers(1, depth)))

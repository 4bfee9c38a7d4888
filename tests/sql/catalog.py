"""A small catalog to analyse statements against, and plans as one canonical line of text."""

from __future__ import annotations

from viewkeep.plan.nodes import Aggregate, Arrange, Filter, Named, Node, Project, Source, View
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateView, Query, Select, Statement
from viewkeep.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Column,
    Schema,
    decimal,
)

T = Source(
    "t",
    1,
    Schema(
        (
            Column("id", BIGINT, False),
            Column("a", INT),
            Column("b", INT),
            Column("s", STRING),
            Column("x", DOUBLE),
            Column("m", decimal(10, 2)),
            Column("d", DATE),
            Column("ts", TIMESTAMP),
            Column("f", BOOLEAN),
            Column("bin", BINARY),
        ),
        ("id",),
    ),
)
P = Source(
    "p",
    2,
    Schema(
        (Column("k1", BIGINT, False), Column("k2", STRING, False), Column("v", INT)), ("k1", "k2")
    ),
)


class Names:
    """The tables t and p, and the views made from statements."""

    def __init__(self, *views: str):
        self.known: dict[str, Source | View] = {"t": T, "p": P}
        for text in views:
            self.view(text)

    def statement(self, text: str) -> Statement:
        (tree,) = parse(text)
        return analyse(tree, self.known.get)

    def view(self, text: str) -> View:
        made = self.statement(text)
        assert isinstance(made, CreateView)
        self.known[made.view.name] = made.view
        return made.view

    def query(self, text: str) -> Query:
        made = self.statement(text)
        assert isinstance(made, Select)
        return made.query


def shown(node: Node) -> str:
    """A plan as text: the producer first, then what is done to its rows."""
    if isinstance(node, Source):
        return node.table
    below = shown(node.input)
    if isinstance(node, Filter):
        return f"{below} | where {node.predicate}"
    if isinstance(node, Project):
        return f"{below} | select {_columns(node.outputs)}"
    if isinstance(node, Aggregate):
        calls = ", ".join(f"{call.name} {call.type}" for call in node.aggregates)
        return f"{below} | group by [{_columns(node.keys)}] {calls}".rstrip()
    assert isinstance(node, Arrange)
    key = ", ".join(part.name + (" desc" if part.descending else "") for part in node.key)
    return f"{below} | keep ({', '.join(node.kept)}) under ({key})"


def _columns(outputs: tuple[Named, ...]) -> str:
    return ", ".join(
        out.name if out.name == str(out.expr) else f"{out.name} = {out.expr}" for out in outputs
    )

"""Nodes made again over inputs that have got columns of the same names."""

from __future__ import annotations

from viewkeep.expr import Ref
from viewkeep.plan.nodes import Join, Match, Named, Node, Project, Source, joined, names, renamed
from viewkeep.types import BIGINT, Column, Schema

from .plans import T


def called(*columns: str) -> Node:
    """The rows of t, whose row key is the first of these columns, which are all its id."""
    return Project(T, tuple(Named(name, Ref("id", BIGINT)) for name in columns))


def test_columns_that_clash_get_different_names() -> None:
    node = called("id", "id'")
    made = renamed(node, {"id", "id'"}, {"id", "id'"})
    assert len(names(made)) == 2
    assert not names(made) & {"id", "id'"}


def test_a_join_of_sides_whose_row_keys_are_called_alike() -> None:
    key = ("k", "k'")
    columns = tuple(Column(name, BIGINT, False) for name in key)
    left = Source("l", 1, Schema((*columns, Column("a", BIGINT)), key))
    right = Source("r", 2, Schema((*columns, Column("b", BIGINT)), key))
    on = (Match(Ref("a", BIGINT), Ref("b", BIGINT)),)
    made = joined("inner", left, right, on, ours={"a"})
    assert isinstance(made, Join)
    assert len(made.row_key) == len(set(made.row_key)) == 4

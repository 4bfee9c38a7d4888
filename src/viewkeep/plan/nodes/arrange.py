"""VIEW, INDEX and ARRANGEMENT."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from viewkeep.plan.nodes.node import Node, StatefulNode, TableShape, names
from viewkeep.plan.nodes.parts import KeyPart, order_text
from viewkeep.types import Column


@dataclass(frozen=True, eq=False)
class Arrange(StatefulNode):
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
        parts = [part.name for part in self.key]
        if len(set(parts)) != len(parts):
            raise ValueError(f"duplicate column in key {parts}")
        if missing := set(self.input.row_key) - set(parts):
            raise ValueError(f"the key lacks {sorted(missing)} of the row key")
        if missing := (set(parts) | set(self.kept)) - names(self.input):
            raise ValueError(f"{sorted(missing)} is not computed by the input")

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        wanted = set(self.kept) | {part.name for part in self.key}
        return tuple(column for column in self.input.columns if column.name in wanted)

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.key)

    @property
    def line(self) -> str:
        return f"arrange ({', '.join(self.kept)}) under ({order_text(self.key)})"

    def title(self, local: bool) -> str:
        kind = "▤ VIEW" if local else "▤ INDEX"
        kind = kind if self.group is None else "▥ ARRANGEMENT"
        return f"{kind} by ({order_text(self.key, ' DESC')})"

    @property
    def drawn_as(self) -> str:
        return "view" if self.group is None else "arrangement"

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        return (names(self),)

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        return below[0]

    @property
    def base_key(self) -> tuple[str, ...] | None:
        return self.row_key if self.group is None and self._is_ascending else None

    @property
    def _is_ascending(self) -> bool:
        return not any(part.descending for part in self.key)

    def tables(self, by_row_key: bool) -> tuple[TableShape, ...]:
        shard_by = self.row_key[:1] if self.group is None else self.row_key[: self.group]
        if by_row_key and self.base_key is not None:
            shard_by = self.row_key
        return (TableShape("rows", self.columns, self.key, shard_by, self.group),)

    def copied_from(self, column: str) -> str | None:
        turned = any(part.descending for part in self.key if part.name == column)
        return None if turned else column

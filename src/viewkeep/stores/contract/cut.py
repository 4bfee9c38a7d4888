"""Cuts: consistent positions in all logs of a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Cut:
    """A position in every node log: the operations committed at or before `moment`.

    `offsets[n]` counts the operations of node n's log that lie before the cut. Moments are
    nanoseconds since 1970 as stamped by the store at commit; they never go back within a node.
    """

    moment: int
    offsets: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        return {"moment": self.moment, "offsets": list(self.offsets)}

    @staticmethod
    def from_json(value: Mapping[str, object]) -> Cut:
        moment, offsets = value["moment"], value["offsets"]
        assert isinstance(moment, int)
        assert isinstance(offsets, list)
        return Cut(moment, tuple(offsets))

    def __str__(self) -> str:
        return json.dumps(self.to_json())

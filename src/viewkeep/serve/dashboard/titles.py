"""Titles of operators for people: as EXPLAIN has them, without ids.

The plan tells apart columns of the same name by the id of the operator that computes them; whoever
looks at a drawing sees that by its lines.
"""

from __future__ import annotations

import re

from viewkeep.plan.program import Program

_MARK = re.compile(r"\b([0-9a-f]{6})\.")  # the start of an operator's id, before a column


class Titles:
    """Shortens the texts of one program."""

    def __init__(self, program: Program):
        self._known = {operator.id[:6] for operator in program.operators}

    def short(self, text: str) -> str:
        """The text without the ids in it."""
        return _MARK.sub(lambda found: "" if found[1] in self._known else found[0], text)

"""docs/functions.md, written from the registry: `python -m viewkeep.ops.functions.listing`.

Law: the page is a function of the registry alone; a test fails when the file is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from viewkeep.ops.functions import FAMILIES, Function

_HEAD = """\
# Functions

Scalar functions of views, queries and writes. They do what Spark SQL does with ANSI mode off and
the session time zone UTC: NULL where there is no value ([semantics](design/semantics.md)). Names
are case-insensitive. Operators have names here too, which EXPLAIN prints. Aggregates are in
[sql](sql.md).

This page is written by `python -m viewkeep.ops.functions.listing > docs/functions.md`.
"""


def page() -> str:
    """The text of docs/functions.md."""
    blocks = [_HEAD]
    for family, functions in FAMILIES.items():
        if functions:
            blocks.append(f"## {family}\n\n" + "\n".join(_table(functions)) + "\n")
    return "\n".join(blocks)


def _table(functions: tuple[Function, ...]) -> Iterator[str]:
    yield "| name | also | what it gives | example |"
    yield "|---|---|---|---|"
    for function in sorted(functions, key=lambda f: f.name):
        also = ", ".join(f"`{alias}`" for alias in function.aliases)
        cells = (f"`{function.name}`", also, function.doc, f"`{function.example}`")
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(page())

"""The SQL of a view for people: a clause a line.

Law: what is shown means what was written. Where laying out would change a statement's tree, it is
shown as it was written.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError

from viewkeep.errors import SqlSyntaxError
from viewkeep.sql.parse.syntax import Dialect


class _Shown(Dialect):
    class Generator(Spark.Generator):  # type: ignore[misc]
        # Spark's own makes a subquery of QUALIFY.
        TRANSFORMS: Any = {k: v for k, v in Spark.Generator.TRANSFORMS.items() if k != exp.Select}


def laid_out(sql: str) -> str:
    """The text of a query, a clause a line."""
    try:
        (tree,) = Dialect().parse(sql)
        text: str = _Shown().generate(tree, pretty=True)
        return text if Dialect().parse(text) == [tree] else sql
    except (SqlglotError, SqlSyntaxError, ValueError):
        return sql

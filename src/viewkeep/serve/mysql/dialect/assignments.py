"""SET: which variables a statement sets to what.

Law: all values are worked out before the first variable is set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from viewkeep.serve.mysql.dialect.rewrite import parse
from viewkeep.serve.mysql.faults import Fault, syntax
from viewkeep.serve.mysql.literals import SplitStatement

_TRANSACTION = re.compile(r"^SET\s+(?:(?:SESSION|LOCAL|GLOBAL)\s+)?TRANSACTION\b", re.IGNORECASE)

Evaluate = Callable[[list[exp.Expr]], list[Any]]


@dataclass(frozen=True)
class VariableAssignment:
    """A variable and its value; `own` for @name, `charset` for SET NAMES."""

    name: str
    value: Any
    own: bool = False
    charset: bool = False


def assignments_of(statement: SplitStatement, evaluate: Evaluate) -> list[VariableAssignment]:
    """What a SET sets; isolation levels are taken and change nothing."""
    if _TRANSACTION.match(statement.shape):
        return []
    tree = parse(statement)
    if not isinstance(tree, exp.Set):
        raise syntax(f"this SET was not understood: {statement.text[:80]}")
    found = []
    for item in tree.expressions:
        kind = str(item.args.get("kind") or "").upper()
        if kind == "TRANSACTION":
            continue
        if kind in ("NAMES", "CHARACTER SET"):
            found.append(VariableAssignment("names", item.this.name, charset=True))
            continue
        if kind == "GLOBAL":
            raise Fault(1227, "42000", "variables are set for a session, not for the server")
        pair = item.this
        if not isinstance(pair, exp.EQ):
            raise syntax(f"this SET was not understood: {statement.text[:80]}")
        if isinstance(pair.this, exp.SessionParameter) and pair.this.args.get("kind") == "global":
            raise Fault(1227, "42000", "variables are set for a session, not for the server")
        own = isinstance(pair.this, exp.Parameter)
        found.append(
            VariableAssignment(pair.this.name.lower(), _value(pair.expression, evaluate), own)
        )
    return found


def _value(node: exp.Expr, evaluate: Evaluate) -> Any:
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    if isinstance(node, exp.Literal) and node.name.isdecimal():
        return int(node.name)
    if isinstance(node, exp.Boolean):
        return int(bool(node.this))
    if isinstance(node, exp.Column | exp.Var):
        return node.name  # a word: ON, utf8mb4, DEFAULT
    return evaluate([node])[0]

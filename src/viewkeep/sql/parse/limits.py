"""How large and how deep a statement may be, checked before anything walks it.

Law: whatever passes here is parsed, lowered, spelt and run with the stack that any thread has.
Nesting is what parser and lowering recurse on: parentheses, CASE, types inside types, operators in
front of their operand. Chains of operators are walked by loops; AND and OR are flat, and a chain of
others is as deep as it is long, which `expr.MOST_DEEP` bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlglot import Token, TokenType, exp

from viewkeep.errors import QueryTooLarge, SqlSyntaxError
from viewkeep.expr import MOST_DEEP, Call, Expr

MOST_NESTED: Final = 32
"""Parentheses, function calls, CASEs and subqueries within one another."""
MOST_OPERATORS: Final = 20_000
"""Operators in one statement."""
MOST_SETS: Final = 2_000
"""UNION, INTERSECT and EXCEPT in one statement."""
MOST_JOINED: Final = 64
"""Relations in one inner or full join: planning takes up to the fourth power of their number."""
MOST_CALLS: Final = 10_000
"""Operators and functions in one expression, those of derived tables put in."""
_MOST_TREE = 160  # levels of a syntax tree: a nested subquery has five

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
_CONTAINERS = {TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT}
_SETS = {TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT}
_OPERATORS = {
    TokenType.AND, TokenType.OR, TokenType.XOR, TokenType.PLUS, TokenType.DASH, TokenType.STAR,
    TokenType.SLASH, TokenType.MOD, TokenType.DIV, TokenType.DPIPE, TokenType.AMP, TokenType.PIPE,
    TokenType.CARET, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT,
    TokenType.GTE, TokenType.NULLSAFE_EQ, TokenType.IS, TokenType.LIKE, TokenType.ILIKE,
    TokenType.RLIKE, TokenType.BETWEEN, TokenType.IN, TokenType.DCOLON, TokenType.WHEN,
}  # fmt: skip
_STARTS = {TokenType.L_PAREN, TokenType.COMMA}  # a sign after these belongs to a number


def check_tokens(tokens: Iterable[Token]) -> None:
    """Refuse a statement that is nested too deeply, or has too many operators, before parsing."""
    nested = prefixed = contained = operators = sets = 0
    before = None
    for token in tokens:
        kind = token.token_type
        if kind == TokenType.SEMICOLON:
            nested = contained = operators = sets = 0
        elif kind in _OPEN:
            nested += 1
        elif kind in _CLOSE:
            nested = max(0, nested - 1)
        elif kind == TokenType.LT and before in _CONTAINERS:
            contained += 1
        elif kind == TokenType.GT and contained:
            contained -= 1
        elif kind in _SETS:
            sets += 1
        prefixed = prefixed + 1 if kind in _PREFIX else 0
        operators += kind in _OPERATORS and before not in _STARTS
        before = kind
        if nested + prefixed + contained > MOST_NESTED:
            raise too_nested()
        if operators > MOST_OPERATORS or sets > MOST_SETS:
            many = sets > MOST_SETS
            word, most = ("set operations", MOST_SETS) if many else ("operators", MOST_OPERATORS)
            raise SqlSyntaxError(
                f"the statement has more than {most:,} {word}",
                hint="Keep the values in a table and join with it, or split the statement",
            )


def check_tree(tree: exp.Expr) -> None:
    """Refuse a syntax tree that is too deep, but for the left operands of operators."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > _MOST_TREE:
            raise too_nested()
        chained = node.this if isinstance(node, exp.Binary | exp.SetOperation) else None
        for below in node.iter_expressions():
            waiting.append((below, depth if below is chained else depth + 1))


def too_nested() -> SqlSyntaxError:
    """The error for a statement that is nested too deeply."""
    return SqlSyntaxError(
        f"the statement is nested too deeply; {MOST_NESTED} levels of parentheses, functions, CASE "
        "and subqueries are the limit",
        hint="Name inner queries with WITH, or create views",
    )


def check_joined(relations: int) -> None:
    """Refuse an inner or full join of too many relations."""
    if relations > MOST_JOINED:
        raise SqlSyntaxError(
            f"a join has more than {MOST_JOINED} relations",
            hint="Join some of them in a view of their own",
        )


def check_expression(expr: Expr) -> None:
    """Refuse a typed expression that is too deep or too large."""
    if isinstance(expr, Call) and (expr.depth > MOST_DEEP or expr.size > MOST_CALLS):
        raise too_large(expr.depth > MOST_DEEP)


def too_large(deep: bool) -> QueryTooLarge:
    """The error for an expression that is too deep, or else has too many calls."""
    if deep:
        reason = f"an expression is more than {MOST_DEEP} operators and functions deep"
    else:
        reason = f"an expression has more than {MOST_CALLS:,} operators and functions"
    hint = "Compute parts of it in a view of their own; AND, OR and IN may be of any length"
    return QueryTooLarge(reason, hint=hint)

"""Text to syntax trees, by sqlglot's Spark dialect with every function left under its own name.

sqlglot rewrites many functions into its own vocabulary, which is made for translation and loses
what was written. Here `date_sub(d, 2)` stays a call of `date_sub`, to be looked up by that name.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from sqlglot import TokenType, exp
from sqlglot.dialects import Spark
from sqlglot.errors import ParseError, TokenError

from viewkeep.errors import SqlSyntaxError
from viewkeep.sql.parse.limits import check_tokens, check_tree, too_nested

_SPECIAL_FORMS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "TRIM", "SUBSTRING", "SUBSTR")
# What sqlglot says in words of its own code, and what it means.
_INNER_WORDS = (
    (re.compile(r" but got <Token .*", re.DOTALL), ""),
    (
        re.compile(r"Required keyword: '\w+' missing for <class '[\w.]*?(\w+)'>"),
        r"\1 is not complete",
    ),
)


class _Parser(Spark.Parser):  # type: ignore[misc]
    # Forms with keywords between their arguments need their own parsers; no other function does.
    FUNCTIONS: Any = {}
    FUNCTION_PARSERS = {name: Spark.Parser.FUNCTION_PARSERS[name] for name in _SPECIAL_FORMS}

    def parse(self, raw_tokens: Any, sql: Any = None) -> Any:
        check_tokens(raw_tokens)
        # A WINDOW clause has a name after its word; `window(ts, '1 hour')` is a function.
        for token, following in pairwise(raw_tokens):
            if token.token_type == TokenType.WINDOW and following.token_type == TokenType.L_PAREN:
                token.token_type = TokenType.VAR
        return super().parse(raw_tokens, sql)

    def _parse_as_command(self, start: Any) -> Any:
        # A CREATE that is understood in part would be kept as text, and refused as a whole.
        if self._curr and start.token_type == TokenType.CREATE:
            kinds = (t.token_type for t in self._tokens if t.token_type in self.CREATABLES)
            if next(kinds, None) in (TokenType.TABLE, TokenType.VIEW):
                self.raise_error("Unexpected token", self._curr)
        return super()._parse_as_command(start)

    def _warn_unsupported(self, *args: Any) -> None:
        """Statements that sqlglot keeps as text are taken or refused by `analyse`."""


class _Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
    STRING_ESCAPES = ["\\", "'", '"']  # a quote is doubled within quotes, too


class _Generator(Spark.Generator):  # type: ignore[misc]
    def with_properties(self, properties: exp.Properties) -> str:
        # Of a view: WITH (partial = TRUE), as it is written, and not TBLPROPERTIES.
        pairs = [f"{part.name} = {self.sql(part, 'value')}" for part in properties.expressions]
        return f"{self.seg('WITH', sep='')} ({', '.join(pairs)})" if pairs else ""


class Dialect(Spark):  # type: ignore[misc]
    """Spark SQL as viewkeep reads and prints it."""

    Parser, Tokenizer, Generator = _Parser, _Tokenizer, _Generator


def parse(text: str) -> list[exp.Expr]:
    """The statements of a text; SqlSyntaxError with line and column where it does not parse."""
    _refuse_halves(text)
    try:
        # A comment after the last `;` comes as a tree of its own.
        trees = [
            tree
            for tree in Dialect().parse(text)
            if tree is not None and not isinstance(tree, exp.Semicolon)
        ]
        for tree in trees:
            check_tree(tree)
        return trees
    except ParseError as error:
        detail = error.errors[0] if error.errors else {}
        line, column = detail.get("line"), detail.get("col")
        near = str(detail.get("highlight") or "").strip()
        reason = str(detail.get("description") or error)
        for pattern, words in _INNER_WORDS:
            reason = pattern.sub(words, reason)
        reason = reason.rstrip(". ")
        where = f" at line {line}, column {column}" if line else ""
        raise SqlSyntaxError(f"syntax error{where}: {reason}", fragment=near or None) from error
    except TokenError as error:
        raise SqlSyntaxError(f"syntax error: {error}") from error
    except RecursionError as error:
        raise too_nested() from error


def _refuse_halves(text: str) -> None:
    """Refuse a text that no UTF-8 is of: a view would be stored with what no worker can read."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        fragment = text[max(0, error.start - 20) : error.end].encode(errors="backslashreplace")
        raise SqlSyntaxError(
            "the text has half of a surrogate pair", fragment=fragment.decode()
        ) from error


def parse_expression(text: str) -> exp.Expr:
    """An expression of ours as a syntax tree."""
    tree: exp.Expr = Dialect().parse(text)[0]
    return tree


def text_of(tree: exp.Expr) -> str:
    """A syntax tree as SQL that Spark takes."""
    return tree.sql(dialect=Dialect, comments=False)

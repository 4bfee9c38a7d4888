"""What each role may do: the one table of HTTP routes and of statements.

Law: what does not stand here needs the highest role, and a test fails if a route or a statement of
MySQL does not. A role may do all that those before it may.
"""

from __future__ import annotations

import re
from enum import IntEnum

from sqlglot import TokenType
from sqlglot.errors import TokenError
from starlette.routing import compile_path

from viewkeep.sql.parse.syntax import Dialect


class Role(IntEnum):
    """Roles, from the lowest to the highest."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    def __str__(self) -> str:
        return self.name.lower()


_READ, _WRITE, _ADMIN = Role.READ, Role.WRITE, Role.ADMIN

# Method and path, as the routes have them. Those with SQL let all in: each statement has its role.
ROUTES: dict[tuple[str, str], Role] = {
    ("GET", "/v1/{name}/row"): _READ,
    ("GET", "/v1/{name}/rows"): _READ,
    ("GET", "/v1/{name}/aggregate"): _READ,
    ("GET", "/v1/{name}/schema"): _READ,
    ("GET", "/v1/{name}/changes"): _READ,
    ("WEBSOCKET", "/v1/{name}/changes/ws"): _READ,
    ("POST", "/v1/links"): _READ,
    ("POST", "/v1/read"): _READ,
    ("POST", "/v1/sql"): _READ,
    ("GET", "/v1/explain"): _READ,
    ("GET", "/v1/status"): _READ,
    ("GET", "/v1/tables"): _READ,
    ("GET", "/v1/views"): _READ,
    ("GET", "/v1/openapi.json"): _READ,
    ("PUT", "/v1/{name}/rows"): _WRITE,
    ("POST", "/v1/{name}/rows"): _WRITE,
    ("DELETE", "/v1/{name}/row"): _WRITE,
    ("POST", "/v1/{name}/delete"): _WRITE,
    ("GET", "/health"): _READ,  # open to all, as the next
    ("GET", "/ready"): _READ,
    ("GET", "/metrics"): _READ,
    ("GET", "/"): _READ,
    ("GET", "/docs"): _READ,
    ("GET", "/views/{name}"): _READ,
    ("GET", "/web/{name}"): _READ,
    ("GET", "/dashboard/graph"): _READ,
    ("GET", "/dashboard/views"): _READ,
    ("GET", "/dashboard/view"): _READ,
    ("GET", "/dashboard/history"): _READ,
    ("GET", "/dashboard/epochs"): _READ,
    ("GET", "/dashboard/slowest"): _READ,
    ("GET", "/dashboard/live"): _READ,
    ("GET", "/dashboard/sample"): _READ,
    ("GET", "/dashboard/sql"): _READ,
    ("GET", "/dashboard/read"): _READ,
    ("POST", "/dashboard/sql"): _READ,
    ("GET", "/dashboard/verify"): _READ,
    ("POST", "/dashboard/verify"): _ADMIN,
    ("DELETE", "/dashboard/verify"): _ADMIN,
}

# The first word of a statement, over HTTP and MySQL. One that begins with WITH may write.
STATEMENTS: dict[str, Role] = {
    **dict.fromkeys(("SELECT", "VALUES", "WITH", "EXPLAIN", "DESCRIBE", "DESC", "SHOW"), _READ),
    **dict.fromkeys(("SET", "USE", "PREPARE", "EXECUTE", "DEALLOCATE"), _READ),
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"), _READ),
    "UNLOCK": _READ,
    **dict.fromkeys(("INSERT", "REPLACE", "UPDATE", "DELETE", "TRUNCATE"), _WRITE),
    **dict.fromkeys(("CREATE", "DROP", "ALTER", "RENAME"), _ADMIN),
}
_WRITING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
_PATTERNS = [(method, compile_path(path)[0], role) for (method, path), role in ROUTES.items()]
_FIRST = re.compile(r"[\s(]*(\w+)")
_TOKENS = re.compile(r"\w+|\(")
_QUOTED = frozenset({TokenType.STRING, TokenType.IDENTIFIER})


def role_for_request(method: str, path: str) -> Role:
    """The role that a request needs; `WEBSOCKET` is the method of one."""
    found = [role for own, pattern, role in _PATTERNS if own == method and pattern.match(path)]
    return max(found, default=Role.ADMIN)


def role_for_sql(text: str) -> Role:
    """The role that one statement of ours needs."""
    first = _FIRST.match(text)
    word = "" if first is None else first[1].upper()
    if word in STATEMENTS and word != "WITH":
        return STATEMENTS[word]
    try:
        tokens = Dialect().tokenize(text)
    except TokenError:
        return Role.READ  # it is refused with what is wrong in it
    words = ["" if token.token_type in _QUOTED else token.text.upper() for token in tokens]
    while words and words[0] == "(":
        del words[0]
    return _role_for_words(words)


def role_for_mysql(words: list[str], shape: str) -> Role:
    """The role that a statement of MySQL needs, by its first words and its text without values."""
    if words[:2] == ["DROP", "PREPARE"]:
        return Role.READ
    return _role_for_words(_TOKENS.findall(shape.upper()) if words[:1] == ["WITH"] else words)


def _role_for_words(words: list[str]) -> Role:
    if not words:
        return Role.READ  # there is nothing to do
    if words[0] == "WITH" and any(map(_writes, words, [*words[1:], ""])):
        return Role.WRITE
    return STATEMENTS.get(words[0], Role.ADMIN)


def _writes(word: str, after: str) -> bool:
    """REPLACE is also a function."""
    return word in _WRITING or (word == "REPLACE" and after != "(")

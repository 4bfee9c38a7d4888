"""What a session remembers for its client: variables of its own, and statements that it prepared.

Law: both are bounded in number, and together they are no larger than two packets may be.
"""

from __future__ import annotations

import re
from typing import Any

from viewkeep.serve.mysql.faults import Fault, syntax
from viewkeep.serve.mysql.literals import SplitStatement, split

_MOST = 1_000
_NAME = r"(`[^`]+`|[\w$]+)"
_PREPARE = re.compile(rf"PREPARE\s+{_NAME}\s+FROM\s+(\0s|@[\w$]+)$", re.IGNORECASE)
_EXECUTE = re.compile(
    rf"EXECUTE\s+{_NAME}(?:\s+USING\s+(@[\w$]+(?:\s*,\s*@[\w$]+)*))?$", re.IGNORECASE
)
_DEALLOCATE = re.compile(rf"(?:DEALLOCATE|DROP)\s+PREPARE\s+{_NAME}$", re.IGNORECASE)


class Remembered:
    """The variables and the prepared statements of one session, by name."""

    def __init__(self, most_bytes: int):
        self._most = most_bytes
        self._variables: dict[str, Any] = {}
        self._statements: dict[str, SplitStatement] = {}

    def get(self, name: str) -> Any:
        """The value of @name; NULL if it was never set."""
        return self._variables.get(name)

    def set(self, name: str, value: Any) -> None:
        """Set @name."""
        kept = {**self._variables, name: value}
        size = sum(len(v) for v in kept.values() if isinstance(v, str | bytes))
        if len(kept) > _MOST or size > self._most:
            raise Fault(
                1041, "HY000", f"a session has at most {_MOST} variables of {self._most:,} bytes"
            )
        self._variables = kept

    def prepare(self, statement: SplitStatement) -> None:
        """PREPARE name FROM text or variable."""
        match = _PREPARE.match(statement.shape)
        if match is None:
            raise syntax("PREPARE takes a name and a text: PREPARE s FROM 'SELECT ...'")
        given = statement.values[0] if statement.values else self.get(match[2][1:].lower())
        statements = split(str(given))
        if len(statements) != 1:
            raise syntax("one statement is prepared at a time")
        kept = {**self._statements, _bare(match[1]): statements[0]}
        if len(kept) > _MOST or sum(one.size for one in kept.values()) > self._most:
            raise Fault(
                1461,
                "42000",
                f"a session prepares at most {_MOST} statements, {self._most:,} bytes",
            )
        self._statements = kept

    def executed(self, statement: SplitStatement) -> tuple[SplitStatement, list[Any]]:
        """EXECUTE name USING variables: the statement and the values for it."""
        match = _EXECUTE.match(statement.shape)
        if match is None:
            raise syntax("EXECUTE takes a name and variables: EXECUTE s USING @a")
        found = self._statements.get(_bare(match[1]))
        if found is None:
            raise _unknown(match[1], "EXECUTE")
        names = [part.strip()[1:].lower() for part in (match[2] or "").split(",") if part.strip()]
        return found, [self.get(name) for name in names]

    def deallocate(self, statement: SplitStatement) -> None:
        """DEALLOCATE PREPARE name."""
        match = _DEALLOCATE.match(statement.shape)
        if match is None:
            raise syntax("DEALLOCATE PREPARE takes a name")
        if self._statements.pop(_bare(match[1]), None) is None:
            raise _unknown(match[1], "DEALLOCATE PREPARE")


def _bare(name: str) -> str:
    return name.strip("`").lower()


def _unknown(name: str, word: str) -> Fault:
    return Fault(
        1243, "HY000", f"Unknown prepared statement handler ({_bare(name)}) given to {word}"
    )

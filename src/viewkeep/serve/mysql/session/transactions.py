"""Transactions as far as they can be honest: every statement is one of its own.

Law: BEGIN, COMMIT and savepoints are taken, and change nothing. A ROLLBACK succeeds in silence only
if there was nothing to undo; after writes it says that they stay.
"""

from __future__ import annotations

import re

from viewkeep.serve.mysql.faults import Fault, syntax

_SAVEPOINTS = 1_000  # at most
_NAME = r"(`[^`]+`|[\w$]+)"
_SAVEPOINT = re.compile(rf"(SAVEPOINT|RELEASE\s+SAVEPOINT)\s+{_NAME}$", re.IGNORECASE)
_BACK_TO = re.compile(rf"ROLLBACK(?:\s+WORK)?\s+TO(?:\s+SAVEPOINT)?\s+{_NAME}$", re.IGNORECASE)


class Transactions:
    """Which writes of a session a ROLLBACK would have to undo."""

    def __init__(self) -> None:
        self.open = False
        self._writes = self._settled = 0  # statements that wrote; those before the transaction
        self._savepoints: dict[str, int] = {}

    def begin(self) -> None:
        """A transaction begins; the one before it is done."""
        self.settle()
        self.open = True

    def settle(self) -> None:
        """The transaction is done."""
        self._settled = self._writes
        self._savepoints = {}
        self.open = False

    def wrote(self) -> None:
        """A statement has written rows."""
        self._writes += 1
        if not self.open:
            self._settled = self._writes

    def savepoint(self, shape: str) -> None:
        """SAVEPOINT and RELEASE SAVEPOINT."""
        match = _SAVEPOINT.match(shape)
        if match is None:
            raise syntax("SAVEPOINT takes a name")
        name = match[2].strip("`").lower()
        if match[1].upper().startswith("RELEASE"):
            if self._savepoints.pop(name, None) is None:
                raise _unknown(name)
        elif self.open:
            if len(self._savepoints) >= _SAVEPOINTS:
                raise Fault(1041, "HY000", f"a transaction has at most {_SAVEPOINTS} savepoints")
            self._savepoints[name] = self._writes

    def rollback(self, shape: str) -> str | None:
        """ROLLBACK [TO SAVEPOINT]; what to say if writes were to be undone."""
        match = _BACK_TO.match(shape)
        if match is not None:
            name = match[1].strip("`").lower()
            if name not in self._savepoints:
                raise _unknown(name)
            return _stays(self._writes - self._savepoints[name])
        writes = self._writes - self._settled if self.open else 0
        self.settle()
        return _stays(writes)


def _stays(writes: int) -> str | None:
    if not writes:
        return None
    statements = "statement has" if writes == 1 else "statements have"
    return (
        f"{writes} {statements} written, and that is not undone: every statement is a transaction "
        "of its own"
    )


def _unknown(name: str) -> Fault:
    return Fault(1305, "42000", f"SAVEPOINT {name} does not exist")

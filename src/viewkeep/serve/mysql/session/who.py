"""Who a client is, and what it may do.

Law: a statement that the user's role does not allow is refused before anything of it is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeep.serve.mysql.faults import denied_statement
from viewkeep.serve.mysql.literals import SplitStatement
from viewkeep.serve.roles import Role, role_for_mysql


@dataclass(frozen=True)
class Who:
    """A user with a role, and the number of the connection."""

    user: str
    number: int
    role: Role

    def check(self, statement: SplitStatement) -> None:
        """Fault if the role does not allow a statement."""
        if self.role is Role.ADMIN:
            return
        needed = role_for_mysql(statement.words, statement.shape)
        if self.role < needed:
            raise denied_statement(statement.words[0], self.user, str(needed), str(self.role))

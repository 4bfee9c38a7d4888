"""What statements would take away, so that the page asks before it sends them.

Law: nothing is parsed: the first words tell, so that a statement the parser refuses is refused by
it, and one in a comment or a text is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.errors import TokenError

from viewkeep.sql.parse.syntax import Dialect


def losses(statements: Sequence[str]) -> list[str]:
    """The statements that drop something, or delete all rows of a table, without their comments."""
    found = []
    for text in statements:
        try:
            words = [token.text for token in Dialect().tokenize(text)]
        except TokenError:  # the parser says what is wrong with it
            continue
        upper = [word.upper() for word in words]
        dropped = upper[:1] in (["DROP"], ["TRUNCATE"])
        altered = upper[:1] == ["ALTER"] and "DROP" in upper
        emptied = upper[:2] == ["DELETE", "FROM"] and "WHERE" not in upper
        if dropped or altered or emptied:
            found.append(" ".join(words))
    return found

"""What was parsed, analysed and planned before, kept for statements that come again.

Law: what is kept is only ever used for a statement that means the same: a template for texts that
differ in constants at places where these decide nothing but themselves, an analysed statement for
the same text and values over the same catalog. The number of both is bounded, and so are their
characters; the one not used for longest goes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlglot import exp

from viewkeep.access.duckdb.query import DuckQuery
from viewkeep.access.statements.lookups import PointRead
from viewkeep.access.statements.queries import Planned
from viewkeep.engine.programs import PlanVersion
from viewkeep.errors import SqlError
from viewkeep.sql.parse.parameters import bound, parse_as, parse_with_parameters, place_of
from viewkeep.sql.parse.templates import PARAMETER, marked
from viewkeep.sql.statements.nodes import Statement
from viewkeep.sql.statements.shapes import LookupShape, Shape, shape_of

TEMPLATES, STATEMENTS = 1_000, 500
LONGEST = 16_384  # characters of a text that is kept
# Of all texts that are kept. The garbage collector looks at their trees in one go, while nothing
# else runs: about one object a character, 0.3 us each.
CHARACTERS = 65_536

T = TypeVar("T")


class Recent(Generic[T]):
    """A bounded number of things by key, of a bounded size; the longest unused goes first."""

    def __init__(self, most: int, size: int = CHARACTERS):
        self._most, self._free = most, size
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: T, size: int) -> None:
        with self._lock:
            before = self._kept.pop(key, None)
            self._free -= size - (before[1] if before else 0)
            self._kept[key] = (value, size)
            while self._kept and (len(self._kept) > self._most or self._free < 0):
                _, (_, freed) = self._kept.popitem(last=False)
                self._free += freed

    def __len__(self) -> int:
        return len(self._kept)


@dataclass(slots=True)
class Template:
    """Statements that differ in constants alone: their shape, and what it became last.

    `checked` is the catalog in which the shape was last looked at; there `lookup` is None if the
    statement is no read by key.
    """

    shape: Shape | None
    tree: exp.Expr | None
    lookup: PointRead | None = None
    checked: PlanVersion | None = None

    @property
    def is_lookup(self) -> bool:
        """Whether it may be a read by key."""
        return isinstance(self.shape, LookupShape)


SHAPELESS = Template(None, None)


@dataclass(frozen=True, slots=True)
class Analysed:
    """A statement as it was analysed over a catalog, with the plan if it is a SELECT."""

    basis: PlanVersion
    statement: Statement | DuckQuery
    planned: Planned | None


class StatementCache:
    """What one database keeps of the statements it has run; threads and sessions share it."""

    def __init__(self) -> None:
        self._templates: Recent[Template] = Recent(TEMPLATES)
        self._analysed: Recent[Analysed] = Recent(STATEMENTS)
        self._parsed: Recent[tuple[list[exp.Expr], int]] = Recent(STATEMENTS)

    def analysed(self, text: str, parameters: Sequence[object], dialect: str) -> Analysed | None:
        """The statement of a text with these values, as it was analysed last."""
        return self._analysed.get(_key(text, parameters, dialect))

    def keep(
        self, text: str, parameters: Sequence[object], dialect: str, analysed: Analysed
    ) -> None:
        """Keep what was analysed, unless it is large."""
        key = _key(text, parameters, dialect)
        size = sum(map(len, key))
        if size <= LONGEST:
            self._analysed.put(key, analysed, size)

    def parsed(self, text: str, dialect: str) -> tuple[list[exp.Expr], int]:
        """The trees of a text with its parameters as places, which must not be changed."""
        found = self._parsed.get((text, dialect))
        if found is None:
            found = parse_with_parameters(text, dialect)
            if len(text) <= LONGEST:
                self._parsed.put((text, dialect), found, len(text))
        return found

    def template(self, key: str, text: str, dialect: str) -> Template:
        """The template of a text, whose `split` gave this key."""
        found = self._templates.get((dialect, key))
        if found is None:
            found = _template(text, dialect)
            self._templates.put((dialect, key), found, len(text) if found.tree else len(key))
        return found


def _key(text: str, parameters: Sequence[object], dialect: str) -> tuple[str, ...]:
    """What tells statements apart: 1, 1.0 and TRUE are equal in Python, and not in SQL."""
    values = [f"{type(value).__name__} {value!r}" for value in parameters]
    return (text, dialect, *values)


def _template(text: str, dialect: str) -> Template:
    """Parse a text with its constants taken out; no shape unless they can be put back in."""
    named, pieces = marked(text)
    try:
        trees, written = parse_as(named, dialect), parse_as(text, dialect)
    except SqlError:
        return SHAPELESS
    if len(trees) != 1 or len(written) != 1:
        return SHAPELESS
    (tree,) = trees
    shape = shape_of(tree)
    if shape is None or _put_back(tree, pieces) != written[0]:
        return SHAPELESS
    return Template(shape, tree)


def _put_back(tree: exp.Expr, pieces: list[str]) -> exp.Expr | None:
    """The tree with the constants as they were written."""
    numbers = [place_of(place) for place in tree.find_all(exp.Placeholder)]
    if sorted(number for number in numbers if number is not None) != list(range(len(pieces))):
        return None
    return bound(tree, [_written(piece) for piece in pieces])


def _written(piece: str) -> exp.Expr:
    if piece == PARAMETER:
        return exp.Placeholder()
    if piece[0] in "'\"":
        return exp.Literal.string(piece[1:-1])
    return exp.Literal.number(piece)

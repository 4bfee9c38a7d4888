"""LIKE and ILIKE: a pattern is texts, `_` for any character, and `%` for any text between.

Law: matching is linear in the text and in the pattern. Between two `%` stands a *piece* of fixed
length; the first place of each piece after the one before is as good as any, so nothing is tried
twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from viewkeep.deferred import pl
from viewkeep.errors import TypeMismatch, Unsupported
from viewkeep.ops.functions.function import Build, Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.regex import escaped
from viewkeep.ops.functions.rowform import RowForm, RowSite
from viewkeep.ops.functions.rowtexts import lower
from viewkeep.ops.functions.rowwise import each
from viewkeep.ops.functions.signatures import constant_text, fixed
from viewkeep.types import BOOLEAN, STRING, DataType

ANY_TEXT, ANY_CHAR = "%", "_"
LONGEST_PIECE = 4_096
"""Characters between two % with a _ among them: for each, a character of a text costs one bit."""
_CACHED = 10_000  # characters of a pattern whose matcher is kept
_FEW = 16  # signs of a constant pattern that Rust's engine runs; its time grows with their number


def like_parts(pattern: str, escape: str = "\\") -> tuple[str, ...] | None:
    """The pattern as `%`, `_` and texts led by `=`; None if an escape stands before another."""
    parts: list[str] = []
    text: list[str] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            char = next(chars, "")
            if char not in (ANY_TEXT, ANY_CHAR, escape):
                return None
        elif char in (ANY_TEXT, ANY_CHAR):
            if text:
                parts.append("=" + "".join(text))
                text.clear()
            parts.append(char)
            continue
        text.append(char)
    if text:
        parts.append("=" + "".join(text))
    return tuple(parts)


def is_too_long(parts: Sequence[str]) -> bool:
    """Whether a pattern would take quadratic time."""
    length, any_char = 0, False
    for part in (*parts, ANY_TEXT):
        if part == ANY_TEXT:
            if any_char and length > LONGEST_PIECE:
                return True
            length, any_char = 0, False
        elif part == ANY_CHAR:
            length, any_char = length + 1, True
        else:
            length += len(part) - 1
    return False


@dataclass(frozen=True)
class _Piece:
    """Characters in a row, None for any; `text` if all are given."""

    chars: tuple[str | None, ...]
    text: str | None
    places: dict[str, int]  # character -> bits of the places that it may have

    def stands_at(self, text: str, at: int) -> bool:
        if self.text is not None:
            return text.startswith(self.text, at)
        inside = text[at : at + len(self.chars)]
        return all(c is None or c == given for c, given in zip(self.chars, inside, strict=True))

    def find(self, text: str, start: int, stop: int) -> int:
        """The first place of the piece within bounds, -1 if there is none."""
        if self.text is not None:
            return text.find(self.text, start, stop)
        # One bit for each place of the piece that the characters so far may end at.
        last, ends, others = 1 << len(self.chars) - 1, 0, self.places[""]
        for at in range(start, stop):
            ends = (ends << 1 | 1) & self.places.get(text[at], others)
            if ends & last:
                return at + 1 - len(self.chars)
        return -1


class LikePattern:
    """A pattern ready to be matched, by the pieces that its `%` leave between them."""

    def __init__(self, parts: Sequence[str]):
        pieces: list[list[str | None]] = [[]]
        for part in parts:
            if part == ANY_TEXT:
                pieces.append([])
            elif part == ANY_CHAR:
                pieces[-1].append(None)
            else:
                pieces[-1].extend(part[1:])
        self._pieces = [_piece(tuple(piece)) for piece in pieces]
        self._least = sum(map(len, pieces))

    def matches(self, text: str) -> bool:
        """Whether the whole text is as the pattern says."""
        first, last, end = self._pieces[0], self._pieces[-1], len(text)
        if end < self._least or (len(self._pieces) == 1 and end > self._least):
            return False
        tail = end - len(last.chars)
        if not (first.stands_at(text, 0) and last.stands_at(text, tail)):
            return False
        at = len(first.chars)
        for piece in self._pieces[1:-1]:
            if piece.chars:
                at = piece.find(text, at, tail)
                if at < 0:
                    return False
                at += len(piece.chars)
        return True


def _piece(chars: tuple[str | None, ...]) -> _Piece:
    if None not in chars:
        return _Piece(chars, "".join(filter(None, chars)), {})
    anywhere = sum(1 << place for place, char in enumerate(chars) if char is None)
    places = {"": anywhere}
    for place, char in enumerate(chars):
        if char is not None:
            places[char] = places.get(char, anywhere) | 1 << place
    return _Piece(chars, None, places)


def like_pattern(pattern: str, escape: str = "\\") -> LikePattern | None:
    """The matcher of a pattern; None if it is too long, or an escape stands before another sign."""
    make = _kept_pattern if len(pattern) <= _CACHED else _made_pattern
    return make(pattern, escape)


def _made_pattern(pattern: str, escape: str) -> LikePattern | None:
    parts = like_parts(pattern, escape)
    return None if parts is None or is_too_long(parts) else LikePattern(parts)


_kept_pattern = lru_cache(maxsize=1000)(_made_pattern)


def like_constant(text: pl.Expr, parts: Sequence[str]) -> pl.Expr:
    """A column matched by one pattern, in the fastest way that there is for it."""
    texts = [part[1:] for part in parts if part[0] == "="]
    shape = "".join(part[0] for part in parts)
    # Most patterns are a text with % around it, for which there is something faster than a regex.
    if shape in ("", "="):
        return text == "".join(texts)
    if shape == "=%":
        return text.str.starts_with(texts[0])
    if shape == "%=":
        return text.str.ends_with(texts[0])
    if shape == "%=%":
        return text.str.contains(texts[0], literal=True)
    if sum(len(part) for part in parts if part[0] != "=") <= _FEW and sum(map(len, texts)) < 1000:
        signs = {ANY_TEXT: ".*", ANY_CHAR: "."}
        body = "".join(signs.get(p) or escaped(p[1:]) for p in parts)
        return text.str.contains(rf"(?s)\A{body}\z")
    # By row: a long pattern would cost Rust's engine its length for each character.
    return each(LikePattern(parts).matches, pl.Boolean(), text)


def _like(fold: bool) -> Build:
    def build(site: Site) -> pl.Expr:
        escape = str(site.constants.get(2, "\\"))
        text = site.first.str.to_lowercase() if fold else site.first
        constant = site.constants.get(1)
        if isinstance(constant, str):
            parts = like_parts(_lower(constant) if fold else constant, escape)
            return pl.lit(None, pl.Boolean) if parts is None else like_constant(text, parts)
        pattern = site.args[1].str.to_lowercase() if fold else site.args[1]

        def one(value: str, by: str) -> bool | None:
            matcher = like_pattern(by, escape)
            return None if matcher is None else matcher.matches(value)

        # By row: polars takes one pattern for a column. A wrong one has no value, so it is NULL.
        return each(one, pl.Boolean(), text, pattern)

    return build


def _row(fold: bool) -> RowForm:
    def form(site: RowSite) -> str:
        constant, escape = site.constants.get(1), str(site.constants.get(2, "\\"))
        text = f"{site.use(lower)}({site.first})" if fold else site.first
        if isinstance(constant, str):
            parts = like_parts(_lower(constant) if fold else constant, escape)
            if parts is None:
                return "None"
            if source := _bytes_test(text, parts):
                return source
        pattern = f"{site.use(lower)}({site.args[1]})" if fold else site.args[1]
        return f"{site.use(is_like)}({text}, {pattern}, {escape!r})"

    return form


def _bytes_test(text: str, parts: Sequence[str]) -> str | None:
    """The test of a pattern that bytes can tell: a character's bytes stand in no other's."""
    texts = [part[1:].encode() for part in parts if part[0] == "="]
    match "".join(part[0] for part in parts):
        case "" | "=":
            return f"{text} == {b''.join(texts)!r}"
        case "=%":
            return f"{text}.startswith({texts[0]!r})"
        case "%=":
            return f"{text}.endswith({texts[0]!r})"
        case "%=%":
            return f"{texts[0]!r} in {text}"
    return None


def is_like(text: bytes, pattern: bytes, escape: str) -> bool | None:
    """Whether a text is as a pattern says; None if its escape is wrong."""
    matcher = like_pattern(pattern.decode(), escape)
    return None if matcher is None else matcher.matches(text.decode())


def _lower(text: str) -> str:
    return str(pl.select(pl.lit(text).str.to_lowercase()).item())


def _resolve(name: str) -> Resolve:
    known = fixed(name, STRING, STRING, STRING, result=BOOLEAN, optional=1)

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        signature = known(given, constants)
        escape = "\\"
        if len(given) == 3:
            escape = constant_text(name, constants, 2, "escape character")
            if len(escape) != 1:
                raise TypeMismatch(f"the escape of {name} must be one character")
        pattern = constants.get(1)
        if not isinstance(pattern, str):
            return signature
        parts = like_parts(pattern, escape)
        if parts is None:
            raise TypeMismatch(
                f"in the pattern {pattern!r} an escape stands before an ordinary character",
                hint=f"{escape} may stand before %, _ and {escape}",
            )
        if is_too_long(parts):
            raise Unsupported(
                f"a pattern of {name} has _ among more than {LONGEST_PIECE:,} characters",
                hint=f"Put a {ANY_TEXT} between them",
            )
        return signature

    return resolve


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "like",
        _resolve("like"),
        _like(False),
        "Whether the text is as a pattern in which % is any text and _ any character.",
        "'abc' LIKE 'a%'",
        row=_row(False),
    ),
    Function(
        "ilike",
        _resolve("ilike"),
        _like(True),
        "LIKE without regard to capital and small letters.",
        "'ABC' ILIKE 'a%'",
        row=_row(True),
    ),
)

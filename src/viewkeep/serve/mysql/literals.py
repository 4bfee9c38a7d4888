"""A statement's text without its constants, so that statements which differ by them alone are one.

Law: `shape` and `values` together say the same as the text: the shape has a mark for each constant,
with its kind, and the constants follow in order. Comments and spaces do not count. Nothing is
parsed: it is one pass of one regular expression, which is what makes it fast.

A regular expression lets no other thread run until it has matched. So of a long text it matches no
more than some kilobytes at once: it finds where a string or a comment begins, and its end is looked
for piece by piece.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import count
from typing import TypeAlias

from sqlglot.dialects import MySQL

from viewkeep.serve.limits import has_more_tokens
from viewkeep.serve.mysql.faults import Fault, syntax

Constant: TypeAlias = int | float | str | bytes | Decimal

# Of the alternatives the first that fits is taken, so the order matters.
_TOKENS = r"""
      (?P<plain>(?:[A-Za-z_$\u0080-\uffff][\w$\u0080-\uffff]*+(?!\s*+['"])
        |[ \n(),.=<>+!%&|^~]{1,4096}+|\*(?!/)){1,512}+)
    | (?P<space>(?:\s|--(?=\s|$)[^\n]*+|\#[^\n]*+COMMENT){1,4096}+)
    | (?P<hint>/\*!\d*+|\*/)
    BEGINNING
    | (?P<binary>[xX]'(?P<hex>[^']*+)'BYTES)
    TEXT
    | (?P<name>`(?:[^`\0]{1,256}+|``){1,256}+`|@{0,2}[A-Za-z_$\u0080-\uffff][\w$\u0080-\uffff]*+)
    | (?P<number>(?:0[xX](?P<zerox>[0-9A-Fa-f]+)
        |(?:\d+(?:\.\d*)?|\.\d+)(?P<exponent>[eE][+-]?\d+)?)(?![\w$]))
    | (?P<mark>\?)
    | (?P<end>;)
    | (?P<other>[-+*/%<>=!|&^~(),.:@{}\[\]\\]|[0-9][\w$]*)
"""
_INTRODUCER = r"_utf8mb4\s*+|_utf8mb3\s*+|_utf8\s*+|[nN](?=')"


def _pattern(**parts: str) -> re.Pattern[str]:
    text = _TOKENS
    for name, part in parts.items():
        text = text.replace(name, part)
    return re.compile(text, re.VERBOSE | re.DOTALL)


_TOKEN = _pattern(
    COMMENT=r"|/\*(?!!).*?(?:\*/|\Z)",
    BEGINNING="",
    BYTES=r"""
        |_binary\s*+(?:'(?P<bytes>(?:[^'\\]++|\\.|'')*+)'
            |"(?P<quoted>(?:[^"\\]++|\\.|"")*+)")""",
    TEXT=rf"""
    | (?P<text>(?:{_INTRODUCER})?
        (?:'(?P<single>(?:[^'\\]++|\\.|'')*+)'|"(?P<double>(?:[^"\\]++|\\.|"")*+)"))""",
)
_LONG_TOKEN = _pattern(
    COMMENT="",
    BEGINNING=rf"""
    | (?P<comment>/\*)
    | (?P<begins>(?:(?P<binary_string>_binary\s*+)|{_INTRODUCER})?(?P<quote>['"]))""",
    BYTES="",
    TEXT="",
)
_INSIDE = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.|{quote}{quote})*+", re.DOTALL) for quote in "'\""
}
_PIECE = 64 * 1024  # characters of a text that are matched at once
_DIGITS = 4_000  # of a number
_ESCAPED = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_KINDS = {int: "n", Decimal: "d", float: "f", str: "s", bytes: "b"}
_WORD = re.compile(r"\w+")
_PLACE = re.compile(r"`[^`]*`|\0.|\?")
MARK = "\0"  # begins the mark of a constant in a shape; no statement has it


@dataclass(frozen=True)
class SplitStatement:
    """One statement: its shape and its constants."""

    shape: str
    values: tuple[Constant, ...]
    parameters: int = 0  # how many `?` it has

    @cached_property
    def words(self) -> list[str]:
        """The first words, in upper case."""
        return _WORD.findall(self.shape[:200].upper())

    @property
    def size(self) -> int:
        """About how many characters it holds."""
        texts = [value for value in self.values if isinstance(value, str | bytes)]
        return len(self.shape) + sum(map(len, texts))

    def check_length(self, longest: int, most_tokens: int) -> None:
        """Fault if it is too long to be parsed."""
        if len(self.shape) > longest:
            raise _too_long(longest)
        text = self.written(lambda place, value: "0")
        if has_more_tokens(text, most_tokens, MySQL):
            raise Fault(1153, "HY000", f"a statement has at most {most_tokens:,} tokens here")

    def bound(self, given: Sequence[Constant | bool | None]) -> SplitStatement:
        """The statement with values in the places of its `?`."""
        values: list[Constant] = []
        own, theirs = iter(self.values), iter(given)

        def fill(match: re.Match[str]) -> str:
            if match[0][0] == "`":
                return match[0]
            if match[0] != "?":
                values.append(next(own))
                return match[0]
            value = next(theirs)
            if value is None or isinstance(value, bool):
                return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
            return _signed(value, values)

        return SplitStatement(_PLACE.sub(fill, self.shape), tuple(values))

    def written(self, write: Callable[[int, Constant], str]) -> str:
        """The text, with each constant as `write` gives it for its place."""
        places = count()

        def fill(match: re.Match[str]) -> str:
            if match[0][0] != MARK:
                return match[0]
            place = next(places)
            return write(place, self.values[place])

        return _PLACE.sub(fill, self.shape)

    @property
    def text(self) -> str:
        """The text in MySQL's dialect, without comments."""
        return self.written(lambda _, value: mysql_text(value))


def mysql_text(value: Constant) -> str:
    """A constant as MySQL writes it."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, float):
        shown = repr(value)
        return shown if "e" in shown else f"{shown}e0"
    if isinstance(value, Decimal):
        shown = format(value, "f")
        return shown if "." in shown else f"{shown}."
    return str(value)


def _signed(value: Constant, values: list[Constant]) -> str:
    """The mark of a constant; a negative number is a minus and a constant."""
    if isinstance(value, (str, bytes)) or math.copysign(1, value) > 0:
        values.append(value)
        return f"{MARK}{_KINDS[type(value)]}"
    values.append(-value)
    return f"(-{MARK}{_KINDS[type(value)]})"


def split(text: str, longest: int = sys.maxsize, most: int = sys.maxsize) -> list[SplitStatement]:
    """The statements of a text; a Fault where it has what no statement has.

    A Fault, too, for more than `most` statements, or more than `longest` characters without the
    constants.
    """
    found: list[SplitStatement] = []
    shape: list[str] = []
    values: list[Constant] = []
    at = marks = length = 0
    size = len(text)
    token = _TOKEN if size <= _PIECE else _LONG_TOKEN

    def finish() -> None:
        nonlocal marks
        joined = "".join(shape).strip()
        if joined:
            found.append(SplitStatement(joined, tuple(values), marks))
            if len(found) > most:
                raise Fault(1153, "HY000", f"a text has at most {most:,} statements")
        shape.clear()
        values.clear()
        marks = 0

    while at < size:
        match = token.match(text, at)
        if match is None:
            raise syntax(f"syntax error near: {text[at : at + 60]!r}")
        kind = match.lastgroup
        at = match.end()
        if kind == "plain" or kind == "name" or kind == "other":
            if match[0] == "-" and shape and shape[-1] == "-":
                shape.append(" ")  # before a space, which a comment becomes, -- would begin one
            shape.append(match[0])
            length += len(match[0])
        elif kind == "space" or kind == "hint":
            shape.append(" ")
        elif kind == "comment":
            shape.append(" ")
            end = text.find("*/", at)
            at = size if end < 0 else end + 2
        elif kind == "end":
            finish()
        elif kind == "mark":
            marks += 1
            shape.append("?")
        else:
            value: Constant
            if kind == "begins":
                inner, at = _string(text, at, match["quote"])
                value = _text(inner, match["quote"], binary=match["binary_string"] is not None)
            else:
                value = _constant(match)
            if isinstance(value, str) and _after_text(shape):
                # Texts with nothing but spaces between them are one.
                while not shape[-1].startswith(MARK):
                    shape.pop()
                values[-1] = str(values[-1]) + value
            else:
                if shape and (shape[-1][-1].isalnum() or shape[-1][-1] in "_$@"):
                    shape.append(" ")  # so that x"1" does not become x'1', which is a number
                values.append(value)
                shape.append(f"{MARK}{_KINDS[type(value)]}")
                length += 2
        if length > longest:
            raise _too_long(longest)
    finish()
    return found


def _too_long(longest: int) -> Fault:
    return Fault(
        1153, "HY000", f"SQL without its constants has at most {longest:,} characters here"
    )


def _string(text: str, at: int, quote: str) -> tuple[str, int]:
    """What stands between the quote before `at` and the one that ends it, and where that ends."""
    start, inside = at, _INSIDE[quote]
    while at < len(text):
        match = inside.match(text, at, at + _PIECE)
        assert match is not None  # it matches nothing, too
        at = match.end()
        # The piece may end within an escape, or between two quotes that mean one.
        if text[at : at + 1] == "\\" or text[at : at + 2] == quote * 2:
            at += 2
        elif text[at : at + 1] == quote:
            return text[start:at], at + 1
    raise syntax(f"a string has no end: {text[start - 1 : start + 60]!r}")


def _after_text(shape: list[str]) -> bool:
    for part in reversed(shape):
        if not part.isspace():
            return part == f"{MARK}{_KINDS[str]}"
    return False


def _constant(match: re.Match[str]) -> Constant:
    number = match["number"]
    if number is not None:
        if len(number) > _DIGITS and match["zerox"] is None:
            raise syntax(f"a number has more than {_DIGITS:,} digits: {number[:60]}")
        if match["zerox"] is not None:
            digits = match["zerox"]
            return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
        if match["exponent"] is not None:
            return float(number)
        return Decimal(number) if "." in number else int(number)
    if match["binary"] is not None:
        if match["hex"] is not None:
            try:
                return bytes.fromhex(match["hex"])
            except ValueError:
                raise syntax(f"this is no hexadecimal number: {match[0][:60]}") from None
        inner, quote = (match["bytes"], "'") if match["quoted"] is None else (match["quoted"], '"')
        return _text(inner, quote, binary=True)
    single = match["single"]
    return _text(single, "'") if single is not None else _text(match["double"], '"')


def _text(inner: str, quote: str, *, binary: bool = False) -> str | bytes:
    """The value of a string by what stands between its quotes."""
    text = _unescaped(inner, quote)
    if binary:
        return text.encode("utf-8", "surrogateescape")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Fault(
                1300, "HY000", "a text is not valid in the session's character set"
            ) from error
    return text


def _unescaped(text: str, quote: str) -> str:
    if "\\" not in text and quote not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped is None:
            return match[0][0] if match[0][0] == quote else match[0]
        if escaped in "%_":
            return "\\" + escaped  # these stay escaped for LIKE
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPED.sub(plain, text)

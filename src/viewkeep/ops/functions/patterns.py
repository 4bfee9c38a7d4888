"""LIKE and regular expressions with Java's meaning, on polars' engine where it has the same.

Law: a pattern is a constant, translated once: to polars (Rust) where that is exact, otherwise to
Python's `re`, by row, since it has lookaround, back references and Java's empty matches. What
neither can express is refused when the statement is read. Classes and case are ASCII, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from viewkeep.errors import TypeMismatch, Unsupported
from viewkeep.ops.functions.function import Build, Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.rowwise import each
from viewkeep.ops.functions.signatures import constant_int, constant_text, fixed
from viewkeep.types import BOOLEAN, INT, STRING, DataType

_ENDS = "\n\r\x85\u2028\u2029"
_SETS = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": " \t\n\x0b\x0c\r",
    "h": " \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": "\n\x0b\x0c\r\x85\u2028\u2029",
}
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Alnum": "0-9A-Za-z",
    "Punct": r"!-/:-@\[-`{-\~",
    "Space": _SETS["s"],
    "XDigit": "0-9A-Fa-f",
    "ASCII": "\x00-\x7f",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\x0c", "a": "\x07", "e": "\x1b"}
_META = set("\\.+*?()|[]{}^$#&-~")


class _InexpressibleError(Exception):
    """The dialect has nothing for a part of the pattern."""


@dataclass(frozen=True)
class Regex:
    """A Java pattern for both engines; `rust` or `python` is None where it cannot be expressed."""

    rust: str | None
    python: re.Pattern[str] | None
    groups: int


# -- LIKE ------------------------------------------------------------------------------------------


@lru_cache(maxsize=1000)
def _like_parts(pattern: str, escape: str) -> tuple[str, ...] | None:
    """The pattern as `%`, `_` and texts led by `=`; None if its escapes are wrong."""
    parts: list[str] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            char = next(chars, "")
            if char not in ("%", "_", escape):
                return None
        elif char in "%_":
            parts.append(char)
            continue
        if parts and parts[-1][0] == "=":
            parts[-1] += char
        else:
            parts.append("=" + char)
    return tuple(parts)


@lru_cache(maxsize=1000)
def _like_regex(pattern: str, escape: str) -> re.Pattern[str] | None:
    parts = _like_parts(pattern, escape)
    if parts is None:
        return None
    signs = {"%": ".*", "_": "."}
    return re.compile("".join(signs.get(p) or re.escape(p[1:]) for p in parts), re.DOTALL)


def _like_constant(text: pl.Expr, pattern: str, escape: str) -> pl.Expr:
    parts = _like_parts(pattern, escape) or ()
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
    signs = {"%": ".*", "_": "."}
    body = "".join(signs.get(p) or _escaped(p[1:]) for p in parts)
    return text.str.contains(f"(?s)^{body}$")


def _like(fold: bool) -> Build:
    def build(site: Site) -> pl.Expr:
        escape = str(site.constants.get(2, "\\"))
        text = site.first.str.to_lowercase() if fold else site.first
        constant = site.constants.get(1)
        if isinstance(constant, str):
            return _like_constant(text, _lower(constant) if fold else constant, escape)
        pattern = site.args[1].str.to_lowercase() if fold else site.args[1]

        def one(value: str, by: str) -> bool | None:
            regex = _like_regex(by, escape)
            return None if regex is None else regex.fullmatch(value) is not None

        # By row: polars takes one regex for a column. A wrong escape has no value, so it is NULL.
        return each(one, pl.Boolean(), text, pattern)

    return build


def _lower(text: str) -> str:
    return str(pl.select(pl.lit(text).str.to_lowercase()).item())


def _like_resolve(name: str) -> Resolve:
    known = fixed(name, STRING, STRING, STRING, result=BOOLEAN, optional=1)

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        signature = known(given, constants)
        escape = "\\"
        if len(given) == 3:
            escape = constant_text(name, constants, 2, "escape character")
            if len(escape) != 1:
                raise TypeMismatch(f"the escape of {name} must be one character")
        pattern = constants.get(1)
        if isinstance(pattern, str) and _like_parts(pattern, escape) is None:
            raise TypeMismatch(
                f"in the pattern {pattern!r} an escape stands before an ordinary character",
                hint=f"{escape} may stand before %, _ and {escape}",
            )
        return signature

    return resolve


# -- regular expressions ---------------------------------------------------------------------------


@lru_cache(maxsize=1000)
def regex(pattern: str, search_only: bool = False) -> Regex:
    """A Java pattern translated; raises Unsupported if no engine can run it.

    With `search_only`, it does not matter which characters a match covers.
    """
    made: list[str | None] = []
    groups, why = 0, ""
    for rust in (True, False):
        translator = _Translator(pattern, rust, search_only)
        try:
            text = translator.run()
            if rust:
                pl.select(pl.lit("").str.contains(text))
            else:
                re.compile(text)
            made.append(text)
            groups = translator.groups
        except (
            _InexpressibleError,
            re.error,
            pl.exceptions.ComputeError,
            IndexError,
            ValueError,
        ) as e:
            made.append(None)
            why = str(e).split("\n")[0]
    if made == [None, None]:
        raise Unsupported(
            f"the regular expression {pattern!r} cannot be run: {why}",
            hint="Use literals, classes, groups, alternatives and quantifiers",
        )
    return Regex(made[0], None if made[1] is None else re.compile(made[1]), groups)


class _Translator:
    """One pass over a Java pattern, which writes it out in one dialect."""

    def __init__(self, pattern: str, rust: bool, search_only: bool):
        flags = re.match(r"\(\?([is]+)\)", pattern)
        self.text = pattern[flags.end() :] if flags else pattern
        self.fold = bool(flags) and "i" in (flags[1] if flags else "")
        self.dot_all = bool(flags) and "s" in (flags[1] if flags else "")
        self.rust, self.search_only = rust, search_only
        self.at, self.groups = 0, 0

    def run(self) -> str:
        out = []
        while self.at < len(self.text):
            out.append(self.item())
        return "".join(out)

    def take(self, count: int = 1) -> str:
        taken = self.text[self.at : self.at + count]
        if len(taken) < count:
            raise _InexpressibleError("it ends too early")
        self.at += count
        return taken

    def item(self) -> str:
        char = self.take()
        if char == "\\":
            return self.escape()
        if char == "[":
            return self.set()
        if char == "(":
            return self.group()
        if char == ".":
            return "(?s:.)" if self.dot_all else f"[^{_ENDS}]"
        if char == "^":
            return r"\A"
        if char == "$":
            return self.end()
        if char in "*+?}":
            if self.text[self.at : self.at + 1] == "+":
                self.only(python=True, what="a possessive quantifier")
            return char
        return char if char in "|){" else self.literal(char)

    def literal(self, char: str) -> str:
        if self.fold and char.isascii() and char.isalpha():
            return f"[{char.lower()}{char.upper()}]"
        return _escaped(char)

    def only(self, *, python: bool, what: str) -> None:
        if self.rust == python:
            raise _InexpressibleError(what)

    def end(self) -> str:
        # Java's $ also stands before a last line end.
        if not self.rust:
            return r"(?:(?=(?:\r\n|[\r\x85\u2028\u2029])?\Z)|(?<!\r)(?=\n\Z))"
        if not self.search_only or self.text[self.at : self.at + 1] not in ("", "|", ")"):
            raise _InexpressibleError("$")
        return rf"(?:\r\n|[{_ENDS}])?\z"

    def escape(self) -> str:
        char = self.take()
        if char == "Q":
            stop = self.text.find("\\E", self.at)
            quoted = self.text[self.at :] if stop < 0 else self.text[self.at : stop]
            self.at = len(self.text) if stop < 0 else stop + 2
            return "".join(map(self.literal, quoted))
        if char.lower() in _SETS:
            return f"[{'^' if char.isupper() else ''}{_SETS[char.lower()]}]"
        if char in "bBA":
            return "\\" + char
        if char == "z":
            return r"\z" if self.rust else r"\Z"
        if char == "Z":
            return self.end()
        if char == "R":
            return rf"(?:\r\n|[{_SETS['v']}])"
        if char in "pP":
            return self.property(char)
        if char in "123456789":
            self.only(python=True, what="a back reference")
            if self.fold:
                raise _InexpressibleError("a back reference in any case")
            return f"(?:\\{char})"
        return self.literal(self.code(char))

    def code(self, char: str) -> str:
        """The character that an escape stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "u":
            return chr(int(self.take(4), 16))
        if char == "x":
            if self.text[self.at : self.at + 1] == "{":
                stop = self.text.index("}", self.at)
                digits, self.at = self.text[self.at + 1 : stop], stop + 1
                return chr(int(digits, 16))
            return chr(int(self.take(2), 16))
        if char.isalnum():
            raise _InexpressibleError(f"\\{char}")
        return char

    def property(self, sign: str) -> str:
        if self.take() != "{":
            raise _InexpressibleError("\\p without braces")
        stop = self.text.index("}", self.at)
        name, self.at = self.text[self.at : stop], stop + 1
        if name in _POSIX:
            letters = "A-Za-z" if self.fold and name in ("Lower", "Upper") else _POSIX[name]
            return f"[{'^' if sign == 'P' else ''}{letters}]"
        self.only(python=False, what=f"\\p{{{name}}}")
        return f"\\{sign}{{{name.removeprefix('Is')}}}"

    def group(self) -> str:
        for lead in ("?:", "?=", "?!", "?<=", "?<!", "?>"):
            if self.text.startswith(lead, self.at):
                self.at += len(lead)
                if lead != "?:":
                    self.only(python=True, what=f"({lead}")
                return "(" + lead
        self.groups += 1
        if self.text.startswith("?", self.at):
            named = re.match(r"\?<([A-Za-z][A-Za-z0-9]*)>", self.text[self.at :])
            if not named:
                raise _InexpressibleError("flags other than (?i) and (?s) at the start")
            self.at += named.end()
            return f"(?P<{named[1]}>"
        return "("

    def set(self) -> str:
        out, items = ["["], 0
        if self.text.startswith("^", self.at):
            out.append(self.take())
        while (char := self.take()) != "]" or not items:
            items += 1
            if char == "[":
                self.only(python=False, what="a class in a class")
                out.append(self.set())
            elif char == "&" and self.text.startswith("&", self.at):
                self.only(python=False, what="&&")
                self.take()
                out.append("&&")
            elif char == "\\" and self.text[self.at : self.at + 1].lower() in {*_SETS, "p"}:
                inner = self.escape()
                if inner[1] == "^" or inner[0] == "\\":
                    self.only(python=False, what="a negated class in a class")
                    out.append(inner)
                else:
                    out.append(inner[1:-1])
            else:
                out.append(self.range(self.code(self.take()) if char == "\\" else char))
        return "".join(out) + "]"

    def range(self, low: str) -> str:
        high = low
        follows = self.text[self.at + 1 : self.at + 2]
        if self.text.startswith("-", self.at) and follows not in ("]", "[", ""):
            self.take()
            high = self.take()
            high = self.code(self.take()) if high == "\\" else high
        text = _in_set(low) if low == high else f"{_in_set(low)}-{_in_set(high)}"
        if self.fold:
            codes = range(ord(low), min(ord(high), 127) + 1)
            text += "".join(chr(c).swapcase() for c in codes if chr(c).isalpha())
        return text


def _escaped(text: str) -> str:
    return "".join("\\" + char if char in _META else char for char in text)


def _in_set(char: str) -> str:
    return "\\" + char if char in "\\[]^-&~" else char


# -- functions of regular expressions --------------------------------------------------------------


def _may_be_empty(pattern: str) -> bool:
    """Whether a match may be empty (perhaps not): engines differ in where they find empty ones."""
    signs = ("*", "?", "{", "|", "^", "$", "()", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\Q")
    return not pattern or any(sign in pattern for sign in signs)


def _constant_pattern(
    name: str, known: Resolve, check: Callable[[Regex, Constants, int], None] | None = None
) -> Resolve:
    """A function whose second argument is a constant pattern; NULL is one too."""

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        signature = known(given, constants)
        if not (1 in constants and constants[1] is None):
            pattern = regex(constant_text(name, constants, 1, "pattern"))
            if check:
                check(pattern, constants, len(given))
        return signature

    return resolve


def _unless_null(result: pl.DataType, build: Callable[[Site, str], pl.Expr]) -> Build:
    def built(site: Site) -> pl.Expr:
        pattern = site.constants[1]
        return build(site, pattern) if isinstance(pattern, str) else pl.lit(None, dtype=result)

    return built


def _run(site: Site, dtype: pl.DataType, made: Regex, one: Callable[..., object]) -> pl.Expr:
    """By row in Python, for the reasons at the top of the module."""
    if made.python is None:
        raise Unsupported("a regular expression cannot be run in this function")
    return each(one, dtype, site.first)


def _rlike(site: Site, pattern: str) -> pl.Expr:
    made = regex(pattern, search_only=True)
    if made.rust is not None:
        return site.first.str.contains(made.rust)
    return _run(site, pl.Boolean(), made, lambda s: _python(made).search(s) is not None)


def _python(made: Regex) -> re.Pattern[str]:
    assert made.python is not None
    return made.python


def _check_group(made: Regex, constants: Constants, count: int) -> None:
    group = constant_int("regexp_extract", constants, 2, "group") if count == 3 else 1
    if not 0 <= group <= made.groups:
        raise TypeMismatch(
            f"the pattern of regexp_extract has no group {group}",
            hint=f"It has {made.groups}; 0 is the whole match",
        )


def _extract(site: Site, pattern: str) -> pl.Expr:
    made, group = regex(pattern), site.constants.get(2, 1)
    assert isinstance(group, int)
    if made.rust is not None:
        found = site.first.str.extract(made.rust, group).fill_null("")
        return pl.when(site.first.is_not_null()).then(found)

    def one(text: str) -> str:
        match = _python(made).search(text)
        return (match[group] or "") if match else ""

    return _run(site, pl.String(), made, one)


def _count(site: Site, pattern: str) -> pl.Expr:
    made = regex(pattern)
    if made.rust is not None and (made.python is None or not _may_be_empty(pattern)):
        return site.first.str.count_matches(made.rust).cast(pl.Int32)
    return _run(site, pl.Int32(), made, lambda s: sum(1 for _ in _python(made).finditer(s)))


def _replacement(text: str, groups: int) -> list[str | int]:
    """Java's replacement text as texts and numbers of groups."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            parts.append(text[at])
            at += 1
        elif char == "$":
            if not text[at : at + 1].isdecimal() or int(text[at]) > groups:
                raise TypeMismatch(
                    f"in the replacement {text!r}, $ stands before no group of the pattern",
                    hint="Write \\$ for the sign itself",
                )
            number, at = int(text[at]), at + 1
            while text[at : at + 1].isdecimal() and number * 10 + int(text[at]) <= groups:
                number, at = number * 10 + int(text[at]), at + 1
            parts.append(number)
        else:
            parts.append(char)
    return parts


def _check_replacement(made: Regex, constants: Constants, count: int) -> None:
    if not (2 in constants and constants[2] is None):
        _replacement(constant_text("regexp_replace", constants, 2, "replacement"), made.groups)


def _replace(site: Site, pattern: str) -> pl.Expr:
    made, new = regex(pattern), site.constants[2]
    if not isinstance(new, str):
        return pl.lit(None, dtype=pl.String)
    parts = _replacement(new, made.groups)
    if made.rust is not None and (made.python is None or not _may_be_empty(pattern)):
        by = "".join(f"${{{p}}}" if isinstance(p, int) else p.replace("$", "$$") for p in parts)
        return site.first.str.replace_all(made.rust, by)

    def expand(match: re.Match[str]) -> str:
        return "".join(p if isinstance(p, str) else match[p] or "" for p in parts)

    return _run(site, pl.String(), made, lambda s: _python(made).sub(expand, s))


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "like",
        _like_resolve("like"),
        _like(False),
        "Whether the text is as a pattern in which % is any text and _ any character.",
        "'abc' LIKE 'a%'",
    ),
    Function(
        "ilike",
        _like_resolve("ilike"),
        _like(True),
        "LIKE without regard to capital and small letters.",
        "'ABC' ILIKE 'a%'",
    ),
    Function(
        "rlike",
        _constant_pattern("rlike", fixed("rlike", STRING, STRING, result=BOOLEAN)),
        _unless_null(pl.Boolean(), _rlike),
        "Whether a regular expression is found in the text.",
        "'abc' RLIKE '^a.c$'",
        ("regexp", "regexp_like"),
    ),
    Function(
        "regexp_replace",
        _constant_pattern(
            "regexp_replace",
            fixed("regexp_replace", STRING, STRING, STRING, result=STRING),
            _check_replacement,
        ),
        _unless_null(pl.String(), _replace),
        "With every match of a regular expression replaced; $1 stands for its first group.",
        "regexp_replace('a1b22', '([0-9]+)', '<$1>')",
    ),
    Function(
        "regexp_extract",
        _constant_pattern(
            "regexp_extract",
            fixed("regexp_extract", STRING, STRING, INT, result=STRING, optional=1),
            _check_group,
        ),
        _unless_null(pl.String(), _extract),
        "A group (1 unless given, 0 for all) of the first match, '' if there is none.",
        "regexp_extract('a12', '([a-z])([0-9]+)', 2)",
    ),
    Function(
        "regexp_count",
        _constant_pattern("regexp_count", fixed("regexp_count", STRING, STRING, result=INT)),
        _unless_null(pl.Int32(), _count),
        "How many matches of a regular expression there are.",
        "regexp_count('a1b2', '[0-9]')",
    ),
)

"""Java's regular expressions, read into a tree that engines of linear time can run.

Law: what is read here means the same in Java, in Rust's engine (`rust`) and in `pike`. Classes and
case are ASCII, as in Java. What only a backtracking engine can run (lookaround, back references,
possessive quantifiers) is refused when the statement is read, and so is what Rust means in another
way, or would need too much memory for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from viewkeep.deferred import pl
from viewkeep.errors import Unsupported

ENDS = "\n\r\x85\u2028\u2029"
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
_EDGES = {"b": "word", "B": "inside", "A": "start", "z": "last", "Z": "end"}
_META = set("\\.+*?()|[]{}^$#&-~")
_DEEPEST = 100
_SIMPLER = "Use literals, classes, groups, alternatives and quantifiers"
_LOOK = "Match what stands around it too, and take a group of the match"
_REFUSED_GROUPS = {
    "?=": ("lookahead", _LOOK),
    "?!": ("lookahead", _LOOK),
    "?<=": ("lookbehind", _LOOK),
    "?<!": ("lookbehind", _LOOK),
    "?>": ("an atomic group", "Use (?:...)"),
}


@dataclass(frozen=True)
class Char:
    """One character of a class, which is written as Rust writes it."""

    text: str


@dataclass(frozen=True)
class Edge:
    """A place between characters.

    `start` and `last` are those of the text, `end` is also before a last line end, `word` and
    `inside` tell whether a word begins or ends there.
    """

    kind: str


@dataclass(frozen=True)
class Several:
    """Parts one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """The first option that leads to a match."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """A body several times, as often as possible unless it is lazy; no `most` is any number."""

    body: Node
    least: int
    most: int | None
    lazy: bool


@dataclass(frozen=True)
class Group:
    """A body whose match is remembered under a number."""

    body: Node
    number: int


Node: TypeAlias = Char | Edge | Several | Choice | Repeat | Group


@dataclass(frozen=True)
class Regex:
    """A pattern as it was written, its tree, its text for Rust, and the number of its groups.

    In `rust`, `$` holds at the end of the text alone: for texts that end with a line end, it is
    not what Java means if `has_end`.
    """

    pattern: str
    tree: Node
    rust: str
    groups: int
    has_end: bool
    may_be_empty: bool
    empty_loop: bool  # something that may be empty is repeated: engines take different turns
    runs_on: bool  # a search may go on for long after its match: all matches take quadratic time


@lru_cache(maxsize=1000)
def regex(pattern: str) -> Regex:
    """A Java pattern, read; raises Unsupported if no engine of linear time means the same."""
    reader = _Reader(pattern)
    tree = reader.whole()
    nodes = list(_walk(tree))
    rust = to_rust(tree)
    try:
        pl.select(pl.lit("").str.contains(rust))
    except (pl.exceptions.ComputeError, ValueError) as error:
        large = "size limit" in str(error)
        reason = "it needs too much memory" if large else str(error).splitlines()[-1]
        raise _refused(pattern, reason, "Repeat less" if large else _SIMPLER) from error
    return Regex(
        pattern,
        tree,
        rust,
        reader.groups,
        any(node == Edge("end") for node in nodes),
        may_be_empty(tree),
        any(isinstance(n, Repeat) and n.most != 1 and may_be_empty(n.body) for n in nodes),
        _runs_on(tree, ends=True, choice=False),
    )


def may_be_empty(node: Node) -> bool:
    """Whether a match may have no characters."""
    if isinstance(node, Char):
        return False
    if isinstance(node, Several):
        return all(map(may_be_empty, node.parts))
    if isinstance(node, Choice):
        return any(map(may_be_empty, node.options))
    if isinstance(node, Repeat):
        return node.least == 0 or may_be_empty(node.body)
    return may_be_empty(node.body) if isinstance(node, Group) else True


def _runs_on(node: Node, *, ends: bool, choice: bool) -> bool:
    """Whether a search may go on for long after the match that it finds.

    It does where a way that is preferred repeats something without end (`.*` in `a(.*b)?`), and
    needs more after that, while another way has matched already. `ends` says that nothing needs to
    follow the node, `choice` that there are other ways than through it.
    """
    if isinstance(node, Several):
        follows = ends
        for part in reversed(node.parts):
            if _runs_on(part, ends=follows, choice=choice):
                return True
            follows = follows and may_be_empty(part)
        return False
    if isinstance(node, Choice):
        return any(_runs_on(option, ends=ends, choice=True) for option in node.options)
    if isinstance(node, Repeat):
        if node.most is None and choice and not ends:
            return True
        # In a loop, the rest of the body is needed before it may end.
        return _runs_on(node.body, ends=ends, choice=choice or node.least != node.most)
    return isinstance(node, Group) and _runs_on(node.body, ends=ends, choice=choice)


def to_rust(node: Node) -> str:
    """The tree in the words of Rust's engine."""
    if isinstance(node, Char):
        return node.text
    if isinstance(node, Edge):
        signs = {"start": r"\A", "end": r"\z", "last": r"\z", "word": r"\b", "inside": r"\B"}
        return signs[node.kind]
    if isinstance(node, Several):
        return "".join(map(to_rust, node.parts))
    if isinstance(node, Choice):
        return f"(?:{'|'.join(map(to_rust, node.options))})"
    if isinstance(node, Group):
        return f"({to_rust(node.body)})"
    most = "" if node.most is None else str(node.most)
    counts = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    count = counts.get((node.least, node.most), f"{{{node.least},{most}}}")
    return f"(?:{to_rust(node.body)}){count}{'?' if node.lazy else ''}"


def escaped(text: str) -> str:
    """A text as a pattern of Rust that it alone matches."""
    return "".join("\\" + char if char in _META else char for char in text)


def _walk(node: Node) -> list[Node]:
    found, left = [], [node]
    while left:
        node = left.pop()
        found.append(node)
        if isinstance(node, Several):
            left += node.parts
        elif isinstance(node, Choice):
            left += node.options
        elif isinstance(node, Repeat | Group):
            left.append(node.body)
    return found


def _refused(pattern: str, why: str, hint: str) -> Unsupported:
    shown = pattern if len(pattern) <= 100 else pattern[:100] + "..."
    return Unsupported(f"the regular expression {shown!r} cannot be run: {why}", hint=hint)


class _Reader:
    """One pass over a Java pattern."""

    def __init__(self, pattern: str):
        flags = re.match(r"\(\?([is]+)\)", pattern)
        self.pattern = pattern
        self.text = pattern[flags.end() :] if flags else pattern
        self.fold = flags is not None and "i" in flags[1]
        self.dot_all = flags is not None and "s" in flags[1]
        self.at, self.groups, self.depth = 0, 0, 0
        self.names: set[str] = set()

    def refuse(self, why: str, hint: str = _SIMPLER) -> Unsupported:
        return _refused(self.pattern, why, hint)

    def whole(self) -> Node:
        tree = self.choice()
        if self.at < len(self.text):
            raise self.refuse(") closes no group")
        return tree

    def take(self, count: int = 1) -> str:
        taken = self.text[self.at : self.at + count]
        if len(taken) < count:
            raise self.refuse("it ends too early")
        self.at += count
        return taken

    def next(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def choice(self) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.refuse(f"groups are nested more than {_DEEPEST} deep")
        options = [self.several()]
        while self.next() == "|":
            self.take()
            options.append(self.several())
        self.depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def several(self) -> Node:
        parts: list[Node] = []
        while self.next() not in ("", "|", ")"):
            parts += self.quantified()
        return parts[0] if len(parts) == 1 else Several(tuple(parts))

    def quantified(self) -> list[Node]:
        parts = self.item()
        if self.next() not in ("*", "+", "?", "{"):
            return parts
        if not parts:
            raise self.refuse("there is nothing to repeat")
        if isinstance(parts[-1], Edge):
            raise self.refuse(f"{self.next()} repeats a place between characters")
        least, most = self.count()
        lazy = self.next() == "?"
        if lazy:
            self.take()
        if self.next() == "+":
            raise self.refuse("possessive quantifiers are not supported", "Leave the last + out")
        if self.next() in ("*", "?", "{"):
            raise self.refuse("two quantifiers follow each other")
        return [*parts[:-1], Repeat(parts[-1], least, most, lazy)]

    def count(self) -> tuple[int, int | None]:
        sign = self.take()
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        stop = self.text.find("}", self.at)
        counts = re.fullmatch(r"(\d{1,9})(,(\d{0,9}))?", self.text[self.at : stop], re.ASCII)
        if stop < 0 or counts is None:
            raise self.refuse("{ begins no number of repetitions", r"Write \{ for the sign itself")
        self.at = stop + 1
        least = int(counts[1])
        most = least if counts[2] is None else int(counts[3]) if counts[3] else None
        if most is not None and most < least:
            raise self.refuse("a quantifier has a maximum below its minimum")
        return least, most

    def item(self) -> list[Node]:
        char = self.take()
        if char == "\\":
            return self.escape()
        if char == "[":
            return [Char(self.set())]
        if char == "(":
            return [self.group()]
        if char == ".":
            return [Char("(?s:.)" if self.dot_all else f"[^{ENDS}]")]
        if char in "^$":
            return [Edge("start" if char == "^" else "end")]
        if char in "*+?{":
            raise self.refuse(f"{char} repeats nothing", f"Write \\{char} for the sign itself")
        return [self.literal(char)]

    def literal(self, char: str) -> Char:
        if self.fold and char.isascii() and char.isalpha():
            return Char(f"[{char.lower()}{char.upper()}]")
        return Char(escaped(char))

    def escape(self) -> list[Node]:
        char = self.take()
        if char == "Q":
            stop = self.text.find("\\E", self.at)
            quoted = self.text[self.at :] if stop < 0 else self.text[self.at : stop]
            self.at = len(self.text) if stop < 0 else stop + 2
            return list(map(self.literal, quoted))
        if char.lower() in _SETS:
            return [Char(f"[{'^' if char.isupper() else ''}{_SETS[char.lower()]}]")]
        if char in _EDGES:
            return [Edge(_EDGES[char])]
        if char in "pP":
            return [Char(self.property(char))]
        if char in "123456789k":
            raise self.refuse("back references are not supported", "Compare two groups outside")
        return [self.literal(self.code(char))]

    def code(self, char: str) -> str:
        """The character that an escape stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in "ux":
            digits = self.take(4) if char == "u" else self.take() if self.next() == "{" else ""
            if digits == "{":
                digits, _, _ = self.text[self.at :].partition("}")
                self.take(len(digits) + 1)
            digits = digits or self.take(2)
            if not re.fullmatch("[0-9A-Fa-f]{1,6}", digits):
                raise self.refuse(f"\\{char} stands before no hexadecimal digits")
            number = int(digits, 16)
            if 0xD800 <= number < 0xE000 or number > 0x10FFFF:
                raise self.refuse(f"{digits} is no character", "Write the character itself")
            return chr(number)
        if char.isalnum():
            raise self.refuse(f"\\{char} is not supported")
        return char

    def property(self, sign: str) -> str:
        if self.take() != "{":
            raise self.refuse(f"\\{sign} needs braces")
        name, closed, _ = self.text[self.at :].partition("}")
        if not closed or not re.fullmatch(r"\w+(=\w+)?", name, re.ASCII):
            raise self.refuse(f"\\{sign} needs the name of a class in braces")
        self.at += len(name) + 1
        if name in _POSIX:
            letters = "A-Za-z" if self.fold and name in ("Lower", "Upper") else _POSIX[name]
            return f"[{'^' if sign == 'P' else ''}{letters}]"
        # Other names mean something in one engine only, or are folded in one only.
        if self.fold or not re.fullmatch(r"[A-Z][a-z]?|Is\w+|\w+=\w+", name):
            raise self.refuse(f"the class {name} is not supported here", r"Use \p{L} and the like")
        return f"\\{sign}{{{name.removeprefix('Is')}}}"

    def group(self) -> Node:
        for lead, (what, hint) in _REFUSED_GROUPS.items():
            if self.text.startswith(lead, self.at):
                raise self.refuse(f"{what} is not supported", hint)
        number = None
        if self.text.startswith("?:", self.at):
            self.take(2)
        else:
            self.groups += 1
            number = self.groups
            if self.next() == "?":
                named = re.match(r"\?<([A-Za-z][A-Za-z0-9]*)>", self.text[self.at :])
                if not named:
                    raise self.refuse("only the flags (?i) and (?s) at the start are supported")
                if named[1] in self.names:
                    raise self.refuse(f"two groups are called {named[1]}")
                self.names.add(named[1])
                self.at += named.end()
        body = self.choice()
        if self.next() != ")":
            raise self.refuse("a group is not closed")
        self.take()
        # A group that is not remembered is still one thing to repeat.
        return Several((body,)) if number is None else Group(body, number)

    def set(self) -> str:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.refuse(f"classes are nested more than {_DEEPEST} deep")
        out, items, negated = ["["], 0, self.next() == "^"
        if negated:
            out.append(self.take())
        while (char := self.take()) != "]" or not items:
            items += 1
            if char == "[" or (char == "&" and self.next() == "&"):
                if negated:
                    raise self.refuse(
                        "a class within a negated class is not supported", "Write it as [a&&[^b]]"
                    )
                if char == "&":
                    self.take()
                out.append(self.set() if char == "[" else "&&")
            elif char == "\\" and self.next().lower() in (*_SETS, "p"):
                (inner,) = self.escape()
                assert isinstance(inner, Char)
                plain = inner.text[0] == "[" and inner.text[1] != "^"
                out.append(inner.text[1:-1] if plain else inner.text)
            else:
                out.append(self.range(self.code(self.take()) if char == "\\" else char))
        self.depth -= 1
        return "".join(out) + "]"

    def range(self, low: str) -> str:
        high = low
        if self.next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", "[", ""):
            self.take()
            high = self.take()
            high = self.code(self.take()) if high == "\\" else high
            if high < low:
                raise self.refuse(f"{low}-{high} is no range")
        text = _in_set(low) if low == high else f"{_in_set(low)}-{_in_set(high)}"
        if self.fold:
            codes = range(ord(low), min(ord(high), 127) + 1)
            text += "".join(chr(c).swapcase() for c in codes if chr(c).isalpha())
        return text


def _in_set(char: str) -> str:
    return "\\" + char if char in "\\[]^-&~" else char

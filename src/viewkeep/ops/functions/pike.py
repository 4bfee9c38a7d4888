"""A small matcher of regular expressions for what Rust's engine means otherwise than Java.

Law: it finds the matches that Java finds, among them empty ones next to others and those before a
last line end, in time linear in the text: all ways to match go on at once, each place of the
program at most once for each character (Pike's construction). It is Python, some microseconds for
each character, so only the texts that need it come here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias
from unicodedata import category

from viewkeep.deferred import pl
from viewkeep.errors import Unsupported
from viewkeep.ops.functions.regex import Char, Choice, Edge, Group, Node, Regex, Repeat, Several

MOST_STEPS = 1_000  # of a program: what each character may cost
Slots: TypeAlias = tuple[int, ...]
"""Where the match and each group begin and end; -1 where a group took no part."""


@lru_cache(maxsize=100)
def machine(regex: Regex) -> Machine:
    """The machine of a pattern; raises Unsupported if it would be too slow."""
    return Machine(regex)


class Machine:
    """A program: `char`, `edge` and `save` go on to the next step, `split` to two others."""

    def __init__(self, regex: Regex):
        self._pattern = regex.pattern
        self._steps: list[tuple[str, int, int]] = []
        self._edges: list[str] = []
        self._classes: dict[str, int] = {}
        self._known: dict[str, int] = {}  # character -> a bit for each class that has it
        self._slots = 2 * regex.groups + 2
        self._emit(Group(regex.tree, 0))
        self._step("match")

    def matches(self, text: str) -> Iterator[Slots]:
        """All matches as Java finds them, one after the other."""
        self._learn(text)
        start = 0
        while start <= len(text):
            found = self._find(text, start)
            if found is None:
                return
            yield found
            start = found[1] + (found[0] == found[1])

    # -- running -------------------------------------------------------------------------------

    def _find(self, text: str, start: int) -> Slots | None:
        """The first match from a place on, by Java's preference."""
        found: Slots | None = None
        unset = (-1,) * self._slots
        threads: list[tuple[int, Slots]] = []
        known = self._known
        for at in range(start, len(text) + 1):
            seen: set[int] = set()
            now: list[tuple[int, Slots]] = []
            for step, slots in threads:
                self._follow(step, slots, text, at, seen, now)
            if found is None:
                self._follow(0, unset, text, at, seen, now)
            threads = []
            bits = known[text[at]] if at < len(text) else 0
            for step, slots in now:
                kind, one, _ = self._steps[step]
                if kind == "match":
                    found = slots
                    break  # whoever comes later is less preferred
                if bits >> one & 1:
                    threads.append((step + 1, slots))
            if not threads and found is not None:
                break
        return found

    def _follow(
        self,
        step: int,
        slots: Slots,
        text: str,
        at: int,
        seen: set[int],
        now: list[tuple[int, Slots]],
    ) -> None:
        """The steps at which a character is awaited from this one on, in order of preference."""
        left = [(step, slots)]
        while left:
            step, slots = left.pop()
            if step in seen:
                continue
            seen.add(step)
            kind, one, other = self._steps[step]
            if kind == "split":
                left.append((other, slots))
                left.append((one, slots))
            elif kind == "save":
                left.append((step + 1, (*slots[:one], at, *slots[one + 1 :])))
            elif kind == "edge":
                if _holds(self._edges[one], text, at):
                    left.append((step + 1, slots))
            else:
                now.append((step, slots))

    def _learn(self, text: str) -> None:
        """Ask Rust which classes have the characters, so that both engines agree."""
        new = [char for char in set(text) if char not in self._known]
        if not new:
            return
        column = pl.Series(new)
        bits = dict.fromkeys(new, 0)
        for name, number in self._classes.items():
            for char in column.filter(column.str.contains(rf"\A(?:{name})\z")):
                bits[char] |= 1 << number
        self._known |= bits

    # -- making --------------------------------------------------------------------------------

    def _step(self, kind: str, one: int = 0, other: int = 0) -> int:
        if len(self._steps) >= MOST_STEPS:
            raise Unsupported(
                f"the regular expression {self._pattern[:100]!r} is too large for this function",
                hint="Repeat less, and avoid $ and what may match an empty text",
            )
        self._steps.append((kind, one, other))
        return len(self._steps) - 1

    def _emit(self, node: Node) -> None:
        if isinstance(node, Char):
            self._step("char", self._classes.setdefault(node.text, len(self._classes)))
        elif isinstance(node, Edge):
            self._edges.append(node.kind)
            self._step("edge", len(self._edges) - 1)
        elif isinstance(node, Several):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, Group):
            self._step("save", 2 * node.number)
            self._emit(node.body)
            self._step("save", 2 * node.number + 1)
        elif isinstance(node, Choice):
            self._choice(node)
        else:
            self._repeat(node)

    def _choice(self, node: Choice) -> None:
        ends = []
        for option in node.options[:-1]:
            split = self._step("split")
            self._emit(option)
            ends.append(self._step("split"))
            self._steps[split] = ("split", split + 1, len(self._steps))
        self._emit(node.options[-1])
        for end in ends:
            self._steps[end] = ("split", len(self._steps), len(self._steps))

    def _repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.body)
        if node.most is None:
            split = self._step("split")
            self._emit(node.body)
            self._step("split", split, split)
            self._fork(split, node.lazy)
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self._step("split"))
            self._emit(node.body)
        for split in splits:
            self._fork(split, node.lazy)

    def _fork(self, split: int, lazy: bool) -> None:
        """Let a step go into the body after it or past the end, which it prefers if lazy."""
        inside, past = split + 1, len(self._steps)
        self._steps[split] = ("split", past, inside) if lazy else ("split", inside, past)


def _holds(kind: str, text: str, at: int) -> bool:
    if kind == "start":
        return at == 0
    if kind == "last":
        return at == len(text)
    if kind == "end":
        rest = text[at : at + 3]
        if len(rest) == 1 and rest == "\n":
            return not text.endswith("\r\n")
        return rest in ("", "\r\n", "\r", "\x85", "\u2028", "\u2029")
    before = at > 0 and _in_word(text[at - 1])
    after = at < len(text) and _in_word(text[at])
    return (before != after) == (kind == "word")


@lru_cache(maxsize=10_000)
def _in_word(char: str) -> bool:
    kind = category(char)
    return kind[0] in "LM" or kind in ("Nd", "Pc")

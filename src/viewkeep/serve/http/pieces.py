"""JSON read and written in pieces, so that no part of it keeps the interpreter for long.

Law: what is read and written is what `json` would read and write in one call. But each call of it
has at most some kilobytes or one string to do, and other threads run between the calls: `json` lets
no thread in until it has ended, which took three seconds for 16 MiB of empty lists.

A large list is cut into pieces of whole elements. Where to cut is a guess (the last `},` of a
stretch), and a wrong guess is noticed: its piece has an open bracket or string and does not parse.
Then the stretch is read element by element.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any

from viewkeep.serve.limits import TooLarge

WHOLE = 64 * 1024  # characters that are parsed at once
DEEPEST = 16  # levels of lists and objects that are larger than that
MOST_MEMBERS = 10_000  # of an object that is
_WINDOWS = (1024, 8 * 1024, WHOLE)  # tried one after another for an element of unknown size
_WRITTEN = 256 * 1024  # characters that are encoded at once, about
_MOST_ROWS = 4_096  # elements that are

_SPACE = re.compile(r"[ \t\n\r]*+")
_SCALAR = re.compile(r"[^ \t\n\r,\]}]{1,5000}+")


class JsonReader:
    """Reads documents as one decoder does; lists have at most `most` elements."""

    def __init__(self, decoder: json.JSONDecoder, most: int):
        # The stubs of `json` leave it out.
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]
        self._most = most
        self._spare = 0  # characters that may be read in vain
        self._count = 0  # lists and objects that there may still be
        self._counts = False  # whether there might be more than that

    def read(self, text: str) -> Any:
        """The value of a document. JSONDecodeError says where it is wrong."""
        self._spare = 2 * len(text)
        self._count = 4 * self._most
        # An upper bound: brackets in strings are counted too.
        self._counts = text.count("[") + text.count("{") > self._count
        value, end = self._value(text, _after_space(text, 0), 0)
        end = _after_space(text, end)
        if end != len(text):
            raise JSONDecodeError("Extra data", text, end)
        return value

    def _value(self, text: str, at: int, depth: int) -> tuple[Any, int]:
        kind = text[at : at + 1]
        if kind == '"':
            return _string(text, at)
        if kind not in ("{", "["):
            return self._scalar(text, at)
        for window in _WINDOWS if self._spare > 0 else _WINDOWS[:1]:
            try:
                value, end = self._scan(text[at : at + window], 0)
            except (JSONDecodeError, StopIteration):
                self._spare -= window
                if at + window >= len(text):
                    break
            else:
                self._note(value)
                return value, at + end
        if depth >= DEEPEST:
            raise JSONDecodeError(f"More than {DEEPEST} levels of large values", text, at)
        return self._object(text, at, depth) if kind == "{" else self._list(text, at, depth)

    def _scalar(self, text: str, at: int) -> tuple[Any, int]:
        match = _SCALAR.match(text, at)
        if match is None:
            raise JSONDecodeError("Expecting value", text, at)
        try:
            value, end = self._scan(match[0], 0)
        except StopIteration:
            raise JSONDecodeError("Expecting value", text, at) from None
        return value, at + end

    def _object(self, text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        members = 0
        at = _after_space(text, at + 1)
        if text[at : at + 1] == "}":
            return found, at + 1
        while True:
            if text[at : at + 1] != '"':
                raise JSONDecodeError("Expecting property name in double quotes", text, at)
            name, at = _string(text, at)
            at = _after_space(text, at)
            if text[at : at + 1] != ":":
                raise JSONDecodeError("Expecting ':' delimiter", text, at)
            found[name], at = self._value(text, _after_space(text, at + 1), depth + 1)
            members += 1
            if members > MOST_MEMBERS:
                raise TooLarge(f"an object has at most {MOST_MEMBERS:,} members here")
            at = _after_space(text, at)
            if text[at : at + 1] == "}":
                return found, at + 1
            if text[at : at + 1] != ",":
                raise JSONDecodeError("Expecting ',' delimiter", text, at)
            at = _after_space(text, at + 1)

    def _list(self, text: str, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = _after_space(text, at + 1)
        if text[at : at + 1] == "]":
            return found, at + 1
        one_by_one = 0  # up to here
        while True:
            several = None if at < one_by_one else self._several(text, at)
            if several is None:
                one_by_one = max(one_by_one, at + WHOLE)
                value, at = self._value(text, at, depth + 1)
                found.append(value)
            else:
                found += several[0]
                at = several[1]
            if len(found) > self._most:
                raise TooLarge(f"a list has at most {self._most:,} elements here; send it in parts")
            at = _after_space(text, at)
            if text[at : at + 1] == "]":
                return found, at + 1
            if text[at : at + 1] != ",":
                raise JSONDecodeError("Expecting ',' delimiter", text, at)
            at = _after_space(text, at + 1)

    def _several(self, text: str, at: int) -> tuple[list[Any], int] | None:
        """The elements of a stretch that begins with one; None if the guess was wrong."""
        if self._spare <= 0:
            return None
        stretch = text[at : at + WHOLE]
        closing = {"{": "}", "[": "]"}.get(stretch[:1], "")
        cut = stretch.rfind(f"{closing},") + len(closing)
        if cut <= len(closing):
            return None
        try:
            found, end = self._scan(f"[{stretch[:cut]}]", 0)
        except (JSONDecodeError, StopIteration):
            self._spare -= cut
            return None
        if end != cut + 2:
            return None
        self._note(found)
        return found, at + cut

    def _note(self, value: object) -> None:
        """Count the lists and objects of a value, which the garbage collector will look at."""
        if not self._counts:
            return
        left = [value]
        while left:
            held = left.pop()
            if isinstance(held, dict | list):
                self._count -= 1
                left += held.values() if isinstance(held, dict) else held
        if self._count < 0:
            raise TooLarge(
                f"a request has at most {4 * self._most:,} lists and objects; send it in parts"
            )


def _string(text: str, at: int) -> tuple[str, int]:
    value, end = scanstring(text, at + 1, True)
    return value, end


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def written(value: object, encode: Callable[[object], str]) -> Iterator[str]:
    """The JSON of a value; long lists in it, and in objects in it, in pieces."""
    if isinstance(value, dict) and any(isinstance(held, list | dict) for held in value.values()):
        mark = "{"
        for name, held in value.items():
            yield f"{mark}{encode(name)}:"
            yield from written(held, encode)
            mark = ","
        yield "}"
    elif isinstance(value, list) and len(value) > 1:
        yield from _written_list(value, encode)
    else:
        yield encode(value)


def _written_list(values: Sequence[object], encode: Callable[[object], str]) -> Iterator[str]:
    mark, at, count = "[", 0, 16
    while at < len(values):
        piece = encode(values[at : at + count])
        yield mark
        yield piece[1:-1]
        mark, at = ",", at + count
        # As many as fill a piece, if the next ones are as large as these.
        count = max(1, min(_MOST_ROWS, 4 * count, count * _WRITTEN // len(piece)))
    yield "]"

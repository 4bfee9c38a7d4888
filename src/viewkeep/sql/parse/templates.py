"""A statement's text as a template and the constants in it, found without parsing.

Law: two texts with one template differ in whole numbers and quoted strings alone, each at its
place; what cannot be told apart safely (comments, escapes, prefixed strings, other numbers) has no
template. Whether a constant may be exchanged at its place is decided on the parsed template.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Final, TypeAlias

Constant: TypeAlias = int | str

PARAMETER: Final = "?"
MARK = "viewkeep_place_"  # the places in the text to be parsed are :viewkeep_place_0, ...

# Strings, quoted names, parameters and numbers; then what makes a text one without a template.
# Each begins with characters of its own, before it looks back, which `re` finds quickly.
_PIECES = re.compile(
    r"""('(?<!\w')[^']*'|"(?<!\w")[^"]*"|`[^`]*`|\?|[0-9](?<![\w.][0-9])[\w.]*"""
    r"""|['"]|--|/[*/]|[#:$@\0-\10])"""
)
_LONGEST_TEXT = 16_384
_LONGEST_NUMBER = 18  # digits, which every BIGINT has room for
_NUMBER = "\1"
_STRINGS = {"'": "\2", '"': "\3"}  # told apart: in some dialects the latter are names


def split(text: str) -> tuple[str, list[Constant | None]] | None:
    """The template and the constants in order, None for each `?`; None if there is no template."""
    if "\\" in text or "''" in text or '""' in text or len(text) > _LONGEST_TEXT:
        return None
    parts = _PIECES.split(text)
    constants: list[Constant | None] = []
    for place in range(1, len(parts), 2):
        piece = parts[place]
        first = piece[0]
        if (first == "'" or first == '"') and len(piece) > 1:
            constants.append(piece[1:-1])
            parts[place] = _STRINGS[first]
        elif first == PARAMETER:
            constants.append(None)
        elif piece.isdecimal() and piece.isascii():
            if len(piece) > _LONGEST_NUMBER:
                return None
            constants.append(int(piece))
            parts[place] = _NUMBER
        elif first != "`":
            return None
    return "".join(parts), constants


def marked(text: str) -> tuple[str, list[str]]:
    """A text that has a template, with its constants and parameters named, and those as written."""
    numbers = count()
    pieces: list[str] = []

    def name(match: re.Match[str]) -> str:
        if match[0][0] == "`":
            return match[0]
        pieces.append(match[0])
        return f" :{MARK}{next(numbers)} "

    return _PIECES.sub(name, text), pieces

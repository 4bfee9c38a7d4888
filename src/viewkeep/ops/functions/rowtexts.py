"""Row forms of text functions, and what they call: text is UTF-8 bytes, and stays so where it can.

Law: each gives what its kernel gives. ASCII text is treated as bytes. Other text has positions of
code points, and the case of its letters is that of polars' tables, which are newer than Python's.
"""

from __future__ import annotations

from collections.abc import Callable

from viewkeep.deferred import pl
from viewkeep.ops.functions.rowform import RowForm, RowSite
from viewkeep.types import BINARY

_LARGEST = 2**31 - 1
LONGEST = 1 << 20  # bytes of a text that is made of a shorter one


def length(text: bytes) -> int:
    """The number of characters."""
    return len(text) if text.isascii() else len(text.decode())


def upper(text: bytes) -> bytes:
    """In capital letters."""
    if text.isascii():
        return text.upper()
    return _encoded(pl.Series([text.decode()]).str.to_uppercase())


def lower(text: bytes) -> bytes:
    """In small letters."""
    if text.isascii():
        return text.lower()
    return _encoded(pl.Series([text.decode()]).str.to_lowercase())


def _encoded(one: pl.Series) -> bytes:
    text: str = one.item()
    return text.encode()


def text_part(text: bytes, position: int, count: int | None = None) -> bytes:
    """`count` characters from a position, which counts from 1, or from the end if negative."""
    if text.isascii():
        return bytes_part(text, position, count)
    shown = text.decode()
    start, stop = _span(len(shown), position, count)
    return shown[start:stop].encode()


def bytes_part(data: bytes, position: int, count: int | None = None) -> bytes:
    """`count` bytes from a position, which counts from 1, or from the end if negative."""
    start, stop = _span(len(data), position, count)
    return data[start:stop]


def _span(size: int, position: int, count: int | None) -> tuple[int, int]:
    start = position - 1 if position > 0 else size + position if position < 0 else 0
    stop = size if count is None else min(max(start + count, 0), _LARGEST)
    return max(start, 0), stop


def right_part(text: bytes, count: int) -> bytes:
    """The last characters."""
    shown = text.decode()
    return shown[max(len(shown) - max(count, 0), 0) :].encode()


def trimmed(text: bytes, characters: bytes) -> bytes:
    """Without these characters at both ends."""
    return text.decode().strip(characters.decode()).encode()


def trimmed_start(text: bytes, characters: bytes) -> bytes:
    """Without these characters at the start."""
    return text.decode().lstrip(characters.decode()).encode()


def trimmed_end(text: bytes, characters: bytes) -> bytes:
    """Without these characters at the end."""
    return text.decode().rstrip(characters.decode()).encode()


def replaced(text: bytes, old: bytes, new: bytes = b"") -> bytes | None:
    """With every occurrence of a text replaced; None if that makes it longer and too long."""
    if not old:
        return text
    if len(text) * len(new) > LONGEST * len(old) and len(new) > len(old):
        made = len(text) + text.count(old) * (len(new) - len(old))
        if made > max(len(text), LONGEST):
            return None
    return text.replace(old, new)


def position(text: bytes, part: bytes) -> int:
    """The position of a part in characters, 0 if it is not there."""
    before = text.find(part)
    return 0 if before < 0 else length(text[:before]) + 1


def calls(helper: Callable[..., object]) -> RowForm:
    """The row form that calls a helper with all arguments."""
    return lambda site: f"{site.use(helper)}({', '.join(site.args)})"


def length_form(site: RowSite) -> str | None:
    """The number of characters, or of bytes."""
    return f"len({site.first})" if site.types[0] == BINARY else calls(length)(site)


def part_form(site: RowSite) -> str | None:
    """A part from a position on."""
    is_binary = site.types[0] == BINARY
    return calls(bytes_part if is_binary else text_part)(site)


def left_form(site: RowSite) -> str:
    """The first characters, or bytes."""
    part = bytes_part if site.types[0] == BINARY else text_part
    return f"{site.use(part)}({site.first}, 1, {site.args[1]})"


def trim_form(strip: str, helper: Callable[..., object]) -> RowForm:
    """Without spaces, by the method `strip`, or without the characters given, by a helper."""

    def form(site: RowSite) -> str | None:
        return calls(helper)(site) if len(site.args) == 2 else f'{site.first}.{strip}(b" ")'

    return form


def concat_ws_form(site: RowSite) -> str:
    """The texts that are not NULL, with a separator between them."""
    separator, *parts = site.args
    listed = ", ".join(parts) + ("," if parts else "")
    joined = f"{separator}.join([part for part in ({listed}) if part is not None])"
    return f"None if {separator} is None else {joined}" if site.maybe_null[0] else joined

"""Tokens: short printable strings by which a session, a feed or a scan goes on elsewhere.

Law: a token that was cut, changed, made for something else or by another database is refused with
InvalidToken, never half understood. A token is a claim about positions, not a permission.

    token = kind.database.part.part...check   parts of digits and letters, between dots; the
                                              database by its id
    check = crc32 of what stands before it, 8 hexadecimal digits
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from zlib import crc32

from viewkeep.errors import InvalidToken
from viewkeep.stores.contract import Cut

LONGEST = 4096
_SHAPE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)*\.[0-9a-f]{8}", re.ASCII)


def write_token(kind: str, database: str, parts: Sequence[int | str]) -> str:
    """The token of some parts; `kind` names what it is for and the version of its form."""
    text = ".".join([kind, database, *map(str, parts)])
    return f"{text}.{crc32(text.encode()):08x}"


def read_token(kind: str, database: str, token: object, what: str) -> list[str]:
    """The parts of a token of this kind and database."""
    if not isinstance(token, str) or len(token) > LONGEST or not _SHAPE.fullmatch(token):
        raise InvalidToken(f"this is no token of a {what}: {str(token)[:60]!r}")
    text, _, check = token.rpartition(".")
    found, *parts = text.split(".")
    if found != kind:
        raise InvalidToken(f"this token is not one of a {what} (it starts with {found!r})")
    if f"{crc32(text.encode()):08x}" != check:
        raise InvalidToken(f"the token of the {what} is damaged; take it over whole")
    if not parts or parts[0] != database:
        raise InvalidToken(
            f"the token of the {what} is of another database ({parts[0] if parts else 'none'}); "
            f"this one is {database}"
        )
    return parts[1:]


def read_number(text: str, what: str) -> int:
    """A part that is a number."""
    if not text.isdecimal() or len(text) > 19:
        raise InvalidToken(f"the token of the {what} is damaged: {text[:30]!r} is no number")
    return int(text)


def write_bytes(data: bytes) -> str:
    """Bytes, such as a key, as a part."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def read_bytes(text: str, what: str) -> bytes:
    """A part that is bytes."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise InvalidToken(f"the token of the {what} is damaged; take it over whole") from error


def cut_parts(cut: Cut | None) -> list[int | str]:
    """The cut of some writes as parts: for each log its name, its position and its number."""
    if cut is None:
        return []
    return [
        part
        for log, at in sorted(cut.positions.items())
        for part in (write_bytes(log.encode()), at, cut.births.get(log, 1))
    ]


def read_cut(parts: Sequence[str], what: str) -> Cut | None:
    """The cut of such parts."""
    if len(parts) % 3:
        raise InvalidToken(f"the token of the {what} is damaged: a log has no position")
    positions, births = dict[str, int](), dict[str, int]()
    for name, at, birth in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        try:
            log = read_bytes(name, what).decode()
        except UnicodeDecodeError as error:
            raise InvalidToken(f"the token of the {what} is damaged: {name[:30]!r}") from error
        positions[log], births[log] = read_number(at, what), read_number(birth, what)
    births = {log: birth for log, birth in births.items() if birth > 1}
    return Cut(positions, births=births) if positions else None

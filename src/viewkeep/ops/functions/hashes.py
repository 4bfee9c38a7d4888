"""Hashes and other codes of bytes; a string is taken as its UTF-8.

Law: the same bytes give the same result everywhere and always, so results may be stored. All hashes
go by row: polars has none that are standard.
"""

from __future__ import annotations

import hashlib
import zlib

from viewkeep.deferred import pl
from viewkeep.ops.functions.function import Function, Site
from viewkeep.ops.functions.rowwise import each
from viewkeep.ops.functions.signatures import fixed
from viewkeep.types import BIGINT, BINARY, INT, STRING

_SHA2 = {
    0: hashlib.sha256,
    224: hashlib.sha224,
    256: hashlib.sha256,
    384: hashlib.sha384,
    512: hashlib.sha512,
}


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _sha2(data: bytes, bits: int) -> str | None:
    hash_ = _SHA2.get(bits)
    return hash_(data).hexdigest() if hash_ else None


def _base64(site: Site) -> pl.Expr:
    # Spark writes lines of 76 characters, as in mail.
    lines = site.first.bin.encode("base64").str.replace_all("(.{76})", "${1}\r\n")
    return lines.str.strip_chars_end("\r\n")


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "md5",
        fixed("md5", BINARY, result=STRING),
        lambda s: each(_md5, pl.String(), s.first),
        "The MD5 hash in hexadecimal digits.",
        "md5('a')",
    ),
    Function(
        "sha1",
        fixed("sha1", BINARY, result=STRING),
        lambda s: each(_sha1, pl.String(), s.first),
        "The SHA-1 hash in hexadecimal digits.",
        "sha1('a')",
        ("sha",),
    ),
    Function(
        "sha2",
        fixed("sha2", BINARY, INT, result=STRING),
        lambda s: each(_sha2, pl.String(), *s.args),
        "The SHA-2 hash of 224, 256 (or 0), 384 or 512 bits; NULL for another number of bits.",
        "sha2('a', 256)",
    ),
    Function(
        "crc32",
        fixed("crc32", BINARY, result=BIGINT),
        lambda s: each(zlib.crc32, pl.Int64(), s.first),
        "The CRC-32 checksum.",
        "crc32('a')",
    ),
    Function(
        "base64",
        fixed("base64", BINARY, result=STRING),
        _base64,
        "The bytes in base 64, in lines of 76 characters.",
        "base64('abc')",
    ),
)

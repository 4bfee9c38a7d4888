"""Links to change feeds that need no password: signed, for one feed, until a moment.

Law: a link opens the feed it was signed for, with the parameters it was signed with, and nothing
else, until it expires. The key is made of the password by a slow function, since whoever has a link
could otherwise try passwords against it; a new password, or a change of the users, ends all links.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from hashlib import scrypt
from urllib.parse import parse_qs, urlsplit

from viewkeep.serve.http.errors import InvalidRequest

LONGEST_SECONDS = 30 * 24 * 3600.0
_FEEDS = ("/changes", "/changes/ws")
_MARK = "&signature="


class FeedLinks:
    """Signs links, and checks them.

    `secret` gives what the key is made of now; `database` is the id of the database they lead to.
    """

    def __init__(self, secret: Callable[[], str], database: str):
        self._secret, self._database = secret, database
        self._made = ("", b"")  # the last secret, and its key

    @property
    def _key(self) -> bytes:
        secret = self._secret()
        if self._made[0] != secret:
            salt = b"viewkeep feed links of " + self._database.encode()
            key = scrypt(secret.encode(), salt=salt, n=1 << 14, r=8, p=1, dklen=32)
            self._made = secret, key
        return self._made[1]

    def sign(self, path: str, seconds: float) -> str:
        """The link for the path of a feed with its parameters, for so long from now."""
        parts = urlsplit(path)
        if parts.scheme or parts.netloc or parts.fragment or not is_feed(parts.path):
            raise InvalidRequest("a link is for the path of a feed, such as /v1/scores/changes")
        if {"signature", "expires"} & parse_qs(parts.query).keys():
            raise InvalidRequest("the path has a signature already")
        before = f"{parts.query}&" if parts.query else ""
        query = f"{before}expires={int(time.time() + seconds)}"
        return f"{parts.path}?{query}{_MARK}{self._signature(parts.path, query)}"

    def opens(self, path: str, query: str) -> bool:
        """Whether a request for a feed carries a signature for just this, which has not expired."""
        signed, mark, signature = query.rpartition(_MARK)
        if not mark or not is_feed(path):
            return False
        if not hmac.compare_digest(signature.encode(), self._signature(path, signed).encode()):
            return False
        expires = parse_qs(signed).get("expires", ["0"])[-1]
        return expires.isdecimal() and time.time() < int(expires)

    def _signature(self, path: str, query: str) -> str:
        return hmac.digest(self._key, f"{path}?{query}".encode(), "sha256").hex()


def is_feed(path: str) -> bool:
    """Whether this is the path of a change feed."""
    return path.startswith("/v1/") and path.endswith(_FEEDS)

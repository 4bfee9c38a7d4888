"""Who may ask over HTTP: the password, and no other site through a user's browser.

Law: with a password, nothing but `/health` and `/ready` is answered to who does not know it.
Without one the server is on loopback, and answers only requests that were addressed to loopback: a
foreign name that leads here (DNS rebinding) is refused. What writes, and a WebSocket, is refused if
a browser sends it for a site that is not allowed. A signed link opens its feed without a password.
Wrong passwords slow their address down (`guesses`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from viewkeep.serve.guesses import Guesses
from viewkeep.serve.http.errors import Forbidden, InvalidRequest, Unauthorized
from viewkeep.serve.links import FeedLinks
from viewkeep.serve.settings import Settings, checked_origin, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = frozenset({"/health", "/ready"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Guarded:
    """Lets through who may ask."""

    def __init__(
        self, app: ASGIApp, settings: Settings, guesses: Guesses, links: FeedLinks | None = None
    ):
        self._app, self._settings, self._guesses = app, settings, guesses
        self._links = links
        self._origins = frozenset(map(checked_origin, settings.allow_origins))
        password = settings.password
        self._password = None if password is None else password.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = dict(scope["headers"])
            host = _text(headers.get(b"host"))
            if self._password is None:
                self._check_host(host)
            elif scope["path"] not in OPEN and not self._is_linked(scope):
                client = scope.get("client") or ("",)
                await self._check_password(headers.get(b"authorization"), self._password, client[0])
            if scope["type"] == "websocket" or scope["method"] not in _SAFE:
                _check_origin(_text(headers.get(b"origin")), host, self._origins)
        await self._app(scope, receive, send)

    def _is_linked(self, scope: Scope) -> bool:
        """Whether this reads a feed by a signed link."""
        if self._links is None or scope.get("method", "GET") != "GET":
            return False
        query = scope["query_string"]
        # The key takes 50 ms to make, and only a signature needs it.
        return b"&signature=" in query and self._links.opens(scope["path"], query.decode("latin-1"))

    def _check_host(self, host: str | None) -> None:
        name = _name_of(host)
        if name is None or not (is_loopback(name) or name == self._settings.host.lower()):
            raise Forbidden(
                f"the request is addressed to {host!r}, and this server answers to localhost alone;"
                " to serve under another name, give it a password"
            )

    async def _check_password(self, given: bytes | None, password: bytes, address: str) -> None:
        if given is None:
            raise Unauthorized("a password is needed: Authorization: Bearer PASSWORD, or Basic")
        scheme, _, rest = given.partition(b" ")
        offered: bytes | None = None
        if scheme.lower() == b"bearer":
            offered = rest.strip()
        elif scheme.lower() == b"basic":
            try:
                offered = base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                offered = None
        await self._guesses.turn(address)
        if offered is None or not hmac.compare_digest(offered, password):
            self._guesses.wrong(address)
            raise Unauthorized("the password is wrong")
        self._guesses.right(address)


def _check_origin(origin: str | None, host: str | None, allowed: frozenset[str]) -> None:
    """Refuse what a browser sends for another site; programs send no Origin."""
    if origin is None or origin.lower() in allowed:
        return
    try:
        site = urlsplit(origin).netloc if "://" in origin else ""
    except ValueError:
        site = ""
    if not site or site.lower() != (host or "").lower():
        raise Forbidden(f"the request comes from another site: {origin!r}")


def _name_of(host: str | None) -> str | None:
    """The name in a Host header, without the port and the brackets of IPv6."""
    if host is None:
        return None
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _text(header: bytes | None) -> str | None:
    if header is None:
        return None
    try:
        return header.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidRequest("a header is not ASCII") from None

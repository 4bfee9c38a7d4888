"""Who may ask over HTTP: passwords and roles, and no other site through a user's browser.

Law: with a password or users, nothing but `/health` and `/ready` is answered to who knows none, and
nothing that the user's role does not allow (`roles`). What is being answered ends when its user is
removed or changed.
Without one the server is on loopback, and answers only requests that were addressed to loopback: a
foreign name that leads here (DNS rebinding) is refused. What writes, and a WebSocket, is refused if
a browser sends it for a site that is not allowed. A signed link opens its feed without a password.
Wrong passwords slow their address down (`guesses`).
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from viewkeep.serve.credentials import Credentials, Grant
from viewkeep.serve.http.errors import Forbidden, InvalidRequest, Unauthorized
from viewkeep.serve.links import FeedLinks
from viewkeep.serve.roles import Role, role_for_request, role_for_sql
from viewkeep.serve.settings import Settings, checked_origin, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = frozenset({"/health", "/ready"})
_ROLE = "viewkeep.role"  # of a request's scope: the role of its user
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Guarded:
    """Lets through who may ask."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        credentials: Credentials,
        links: FeedLinks | None = None,
    ):
        self._app, self._settings, self._credentials = app, settings, credentials
        self._links = links
        self._origins = frozenset(map(checked_origin, settings.allow_origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = dict(scope["headers"])
            host = _text(headers.get(b"host"))
            scope[_ROLE] = Role.READ
            if not self._credentials.needed:
                self._check_host(host)
                scope[_ROLE] = Role.ADMIN
            elif scope["path"] not in OPEN:
                grant = self._linked(scope)
                if grant is None:
                    client = scope.get("client") or ("",)
                    grant = await self._grant(headers.get(b"authorization"), client[0])
                    method = scope.get("method", "WEBSOCKET")
                    needed = role_for_request(method, scope["path"])
                    _check_role(grant.role, needed, f"{method} {scope['path']}")
                scope[_ROLE] = grant.role
                send = self._while_holding(grant, send)
            if scope["type"] == "websocket" or scope["method"] not in _SAFE:
                _check_origin(_text(headers.get(b"origin")), host, self._origins)
        await self._app(scope, receive, send)

    def _linked(self, scope: Scope) -> Grant | None:
        """What reads a feed by a signed link."""
        if self._links is None or scope.get("method", "GET") != "GET":
            return None
        query = scope["query_string"]
        # The key takes 50 ms to make, and only a signature needs it.
        if b"&signature=" not in query:
            return None
        if not self._links.opens(scope["path"], query.decode("latin-1")):
            return None
        return Grant(Role.READ, secret=self._credentials.secret)

    def _while_holding(self, grant: Grant, send: Send) -> Send:
        """Send as long as the grant holds, since answers of feeds last; then only why they end."""
        held, lasts = True, False

        async def checked(message: Message) -> None:
            nonlocal held, lasts
            if lasts and held and not self._credentials.holds(grant):
                held = False
                raise Unauthorized("the user has been removed or changed")
            lasts = message["type"] in ("http.response.body", "websocket.send")
            await send(message)

        return checked

    def _check_host(self, host: str | None) -> None:
        name = _name_of(host)
        if name is None or not (is_loopback(name) or name == self._settings.host.lower()):
            raise Forbidden(
                f"the request is addressed to {host!r}, and this server answers to localhost alone;"
                " to serve under another name, give it a password"
            )

    async def _grant(self, given: bytes | None, address: str) -> Grant:
        if given is None:
            raise Unauthorized("a password is needed: Authorization: Bearer PASSWORD, or Basic")
        scheme, _, rest = given.partition(b" ")
        name: str | None = None
        offered: bytes | None = None
        if scheme.lower() == b"bearer":
            offered = rest.strip()
        elif scheme.lower() == b"basic":
            try:
                user, _, offered = base64.b64decode(rest.strip(), validate=True).partition(b":")
                name = user.decode(errors="replace")
            except (binascii.Error, ValueError):
                offered = None
        grant = await self._credentials.grant(address, name, offered)
        if grant is None:
            raise Unauthorized("the password is wrong")
        return grant


def check_sql(scope: Scope, texts: Iterable[str]) -> None:
    """Forbidden if the role of a request does not allow one of these statements."""
    role: Role = scope[_ROLE]
    if role is Role.ADMIN:
        return
    for text in texts:
        _check_role(role, role_for_sql(text), "this statement")


def check_writes(scope: Scope) -> None:
    """Forbidden if the role of a request does not allow to write."""
    _check_role(scope[_ROLE], Role.WRITE, "this statement")


def _check_role(role: Role, needed: Role, what: str) -> None:
    if role < needed:
        raise Forbidden(f"{what} needs the role {needed}; this user has the role {role}")


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

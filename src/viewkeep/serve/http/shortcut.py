"""Point reads past the framework: the most frequent request, at a fraction of its cost.

Law: the answer is the one that the route gives. Only a plain `GET /v1/{name}/row` with nothing but
`key` and `at` is taken; whatever else there is in a request goes to the route.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from viewkeep.serve.http.reading import ROW, row_answer
from viewkeep.serve.http.sessions import HEADER
from viewkeep.serve.service import Service

_START, _END = ROW.split("{name}")
_SESSION = HEADER.lower().encode()


class PointReads:
    """Answers reads by key itself, and hands on the rest."""

    def __init__(self, app: ASGIApp, routes: FastAPI, service: Service):
        self._app, self._service = app, service
        self._route = next(route for route in routes.routes if getattr(route, "path", "") == ROW)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _plain(scope)
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = self._route
        answer = await row_answer(self._service, *found)
        await answer(scope, receive, send)


def _plain(scope: Scope) -> tuple[str, list[str], str | None, str | None] | None:
    """Name, key, `at` and session of a request; None if it is another, or not a plain one."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    path: str = scope["path"]
    if not (path.startswith(_START) and path.endswith(_END)):
        return None
    name = path[len(_START) : -len(_END)]
    if not name or "/" in name:
        return None
    key, at = [], None
    for field, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if field == "key":
            key.append(value)
        elif field == "at" and at is None and value in ("stable", "latest"):
            at = value
        else:
            return None
    sessions = [value for header, value in scope["headers"] if header == _SESSION]
    if len(sessions) > 1:
        return None
    return name, key, at, sessions[0].decode("latin-1") if sessions else None

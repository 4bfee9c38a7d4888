"""Errors over HTTP: one shape of JSON for all, and one status for each class of error.

Law: whatever goes wrong, the answer is `{"error": {kind, message, fragment, hint}}`; what viewkeep
did not raise on purpose is logged with its traceback and tells the client nothing of the inside.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from viewkeep import errors
from viewkeep.serve.http.answers import Json
from viewkeep.serve.limits import Stopping, TooLarge

log = logging.getLogger("viewkeep.serve")


class ErrorDetail(BaseModel):
    """What went wrong and what to do about it."""

    kind: str = Field(description="The class of the error, as in `viewkeep.errors`.")
    message: str = Field(description="What went wrong, in words.")
    fragment: str | None = Field(None, description="The part of a statement that is to blame.")
    hint: str | None = Field(None, description="What would work.")


class Error(BaseModel):
    """The answer to every request that fails."""

    error: ErrorDetail


class InvalidRequest(errors.ViewkeepError):
    """A request that is not as the interface wants it."""


class Unauthorized(errors.ViewkeepError):
    """The password is missing or wrong."""


class Forbidden(errors.ViewkeepError):
    """A request that the user's role does not allow, or that a browser sends for another site."""


# The status of a class holds for those below it, unless they have their own.
STATUS: dict[type[Exception], int] = {
    errors.ViewkeepError: 500,
    errors.SqlError: 400,
    errors.UnknownName: 404,
    errors.QueryTooLarge: 413,
    errors.CatalogError: 409,
    errors.InvalidRow: 400,
    errors.Conflict: 409,
    errors.NotReady: 503,
    errors.PartialKey: 400,
    errors.ViewFailed: 500,
    errors.EpochGone: 410,
    errors.InvalidReadPoint: 400,
    errors.InvalidToken: 400,
    errors.Timeout: 504,
    errors.StoreFull: 507,
    errors.Locked: 503,
    errors.OutcomeUnknown: 504,
    InvalidRequest: 400,
    Unauthorized: 401,
    Forbidden: 403,
    TooLarge: 413,
    errors.Overloaded: 429,
    errors.QueryCancelled: 499,  # which nobody reads but the log
    Stopping: 503,
}
_HEADERS = {
    401: {"WWW-Authenticate": 'Basic realm="viewkeep", charset="UTF-8"'},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}
_SAID = {
    400: "The request, a statement, a row or a token is not right",
    401: "The password is missing or wrong",
    403: "The user's role does not allow it, or the request comes from another site",
    404: "There is no such table, view or column",
    409: "It exists already, is in use, or was changed meanwhile; nothing was written",
    410: "The epoch is not kept any more; for a feed: subscribe anew",
    413: "The request, its answer, or the memory that a query needs is too large",
    429: "Too much work waits; try again",
    503: "The view is not loaded yet, or the server is stopping; try again",
    504: "Waiting took too long; the message says how far behind the view is",
    507: "The disk is full",
}


def status_of(error: BaseException) -> int:
    """The HTTP status of an error."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def detail_of(error: BaseException) -> dict[str, Any]:
    """An error as JSON; what was not raised on purpose stays inside."""
    if not isinstance(error, errors.ViewkeepError):
        return _detail("InternalError", "something went wrong inside the server; its log says what")
    if isinstance(error, errors.SqlError):
        return _detail(type(error).__name__, error.reason, error.fragment, error.hint)
    return _detail(type(error).__name__, str(error))


def answer_of(error: BaseException) -> Json:
    """The whole answer to a request that failed."""
    status = status_of(error)
    return Json({"error": detail_of(error)}, status, _HEADERS.get(status))


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of an operation for its OpenAPI description, with those that all have."""
    wanted: Iterable[int] = sorted({400, 401, 403, 413, 429, 503, *statuses})
    found: dict[int | str, dict[str, Any]] = {
        status: {"model": Error, "description": _SAID[status]} for status in wanted
    }
    return {**found, "default": {"model": Error, "description": "Any other failure"}}


def add_handlers(app: FastAPI) -> None:
    """Answer the errors of an application's routes."""

    async def raised(request: Request, error: Exception) -> Json:
        return answer_of(error)

    async def invalid(request: Request, error: Exception) -> Json:
        assert isinstance(error, RequestValidationError)
        return answer_of(InvalidRequest("; ".join(_problem(found) for found in error.errors()[:3])))

    async def refused(request: Request, error: Exception) -> Json:
        assert isinstance(error, HTTPException)
        # What went wrong while the body was read comes as the cause of a status 400.
        if isinstance(error.__cause__, errors.ViewkeepError):
            return answer_of(error.__cause__)
        if error.__cause__ is not None:
            return answer_of(InvalidRequest(f"body: {error.__cause__}"))
        kind = HTTPStatus(error.status_code).phrase.title().replace(" ", "")
        path = request.url.path
        said = f"{error.detail}: {request.method} {path}; /v1/openapi.json lists what there is"
        message = said if error.status_code in (404, 405) else str(error.detail)
        return Json({"error": _detail(kind, message)}, error.status_code, error.headers)

    app.add_exception_handler(errors.ViewkeepError, raised)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, refused)


class ClientGone(OSError):
    """The connection was lost under an answer; there is nobody to tell."""


class Answering:
    """Answers what is raised outside of the routes: by the guards, or by a fault of ours."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            try:
                await send(message)
            except RuntimeError as error:
                if "handler is closed" in str(error):  # as uvloop says it
                    raise ClientGone from error
                raise

        try:
            await self._app(scope, receive, noting)
        except ClientGone:
            return
        except Exception as error:
            if started and isinstance(error.__cause__, Unauthorized):  # the user has been removed
                await send({"type": "http.response.body", "body": b""})
                return
            if not isinstance(error, errors.ViewkeepError):
                log.exception("a request failed: %s", scope.get("path"), exc_info=error)
            if not started and scope["type"] in ("http", "websocket"):
                await answer_of(error)(scope, receive, send)


def _detail(
    kind: str, message: str, fragment: str | None = None, hint: str | None = None
) -> dict[str, Any]:
    return {"kind": kind, "message": message, "fragment": fragment, "hint": hint}


def _problem(found: Any) -> str:
    where = ".".join(str(part) for part in found["loc"])
    detail = found.get("ctx", {}).get("error", "")
    return f"{where}: {found['msg']}" + (f" ({detail})" if detail else "")

"""Sessions over HTTP: a header that a client hands on from answer to request.

Law: a request with the token of an earlier answer sees what that one wrote, and no older epoch than
it saw, whichever server of the database it asks. Waiting for an epoch holds neither the loop nor a
thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Header

from viewkeep.access.reads import At
from viewkeep.access.sessions import Session
from viewkeep.database import Database
from viewkeep.errors import NotReady, QueryTimeout, Timeout
from viewkeep.plan.nodes import Source, View
from viewkeep.serve.http.answers import Json
from viewkeep.serve.service import Service

HEADER = "Viewkeep-Session"

Token = Annotated[
    str | None,
    Header(
        alias=HEADER,
        description="The token of an earlier answer: this request then sees what that one wrote, "
        "and no older epoch than it saw.",
    ),
]
T = TypeVar("T")


async def reading(
    service: Service,
    token: str | None,
    found: Source | View,
    at: At | None,
    read: Callable[[Database | Session], T],
    *,
    quick: bool = False,
) -> tuple[T, str | None]:
    """Run a read of a table or view, and the token to give back.

    Base tables that are read as they are now need no session. A `quick` read is run in the loop.
    """
    if at != "latest" and (at is not None or isinstance(found, View)):
        return await within(service, token, _called(found), read, quick=quick)
    subject = service.db if token is None else await service.session(token)
    run = service.point if quick else service.run
    return await run(read, subject), token


async def within(
    service: Service,
    token: str | None,
    what: str,
    work: Callable[[Session], T],
    *,
    quick: bool = False,
    writes: bool = False,
) -> tuple[T, str]:
    """Run work in a session as soon as the published epoch covers it, and the session's token.

    Work that meets Timeout or NotReady is run again after the next epoch, so it must not have
    written before.
    """
    session = await service.session(token)
    run = service.point if quick else service.write if writes else service.run
    began = time.monotonic()
    while True:
        seen = service.hub.published.epoch
        try:
            found = await run(work, session)
            return found, session.token
        except QueryTimeout:
            raise
        except Timeout as error:
            waited = time.monotonic() - began
            if waited >= service.settings.max_seconds:
                raise session.behind(what, round(waited, 1)) or error from error
        except NotReady:
            waited = time.monotonic() - began
            if waited >= service.settings.max_seconds or not session.made_views:
                raise
        await _next(service, seen, service.settings.max_seconds - waited)


async def caught_up(service: Service, token: str | None, what: str) -> None:
    """Wait until the published epoch covers a session."""
    if token is not None:
        await within(service, token, what, lambda session: session.wait(), quick=True)


async def _next(service: Service, seen: int, left: float) -> None:
    """The next epoch, or the end of the time: the caller looks once more."""
    try:
        await service.hub.wait(seen, left)
    except TimeoutError:
        return


def _called(found: Source | View) -> str:
    return f"view {found.name}" if isinstance(found, View) else f"table {found.table}"


def answer(content: Any, token: str | None) -> Json:
    """An answer with the token of the session."""
    return Json(content, headers=None if token is None else {HEADER: token})

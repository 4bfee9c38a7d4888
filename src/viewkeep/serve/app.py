"""The HTTP application of a database: its routes, and what each request passes on its way.

A request passes, from the outside in: the log and the count of requests, the answer to errors, the
guard, the bound of its body, the shortcut of point reads, the route.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from viewkeep import __version__
from viewkeep.engine.identity import database_id
from viewkeep.serve.auth import Guarded
from viewkeep.serve.dashboard.routes import router
from viewkeep.serve.http import catalog, feeds, health, reading, statements, writing
from viewkeep.serve.http.answers import ExactRoute
from viewkeep.serve.http.connections import Attended
from viewkeep.serve.http.errors import Answering, add_handlers
from viewkeep.serve.http.shortcut import PointReads
from viewkeep.serve.limits import BoundedBody
from viewkeep.serve.links import FeedLinks
from viewkeep.serve.logs import Observed
from viewkeep.serve.service import Service
from viewkeep.serve.settings import checked_origin

_ABOUT = """Tables and views by key, range and SQL; writes; change feeds.

Values are exact: integers are numbers; DECIMAL, DATE and TIMESTAMP are text; BINARY is base64;
DOUBLE is a number, or "NaN", "Infinity", "-Infinity".

A session is a header: send the `Viewkeep-Session` of an earlier answer, and the request sees what
that one wrote and no older epoch than it saw.
"""
_SECURITY: dict[str, dict[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
}


def create_app(service: Service) -> FastAPI:
    """The application; the service is started and stopped by the caller."""
    app = _App(
        title="viewkeep",
        version=__version__,
        description=_ABOUT,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.router.route_class = ExactRoute
    app.state.service = service
    add_handlers(app)
    for part in (reading, writing, statements, feeds, catalog, health):
        part.routes(app, service)
    links = feed_links(service)
    feeds.link_routes(app, links)
    # The last one added is the outermost.
    app.add_middleware(Attended)
    app.add_middleware(PointReads, routes=app, service=service)
    limits = service.settings
    app.add_middleware(BoundedBody, max_body=limits.max_body, max_seconds=limits.max_seconds)
    app.add_middleware(Guarded, settings=limits, credentials=service.credentials, links=links)
    app.add_middleware(Answering)
    if limits.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[checked_origin(origin) for origin in limits.allow_origins],
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "Viewkeep-Session"],
            expose_headers=["Viewkeep-Session"],
        )
    app.add_middleware(Observed, metrics=service.metrics)
    app.include_router(router(service))
    return app


def feed_links(service: Service) -> FeedLinks | None:
    """What signs links to feeds; None where no password is needed."""
    credentials = service.credentials
    if not credentials.needed:
        return None
    return FeedLinks(lambda: credentials.secret or "", database_id(service.db.store))


class _App(FastAPI):
    """An application that says how the password is given; it is not needed everywhere."""

    def openapi(self) -> dict[str, Any]:
        described = super().openapi()
        described["components"]["securitySchemes"] = _SECURITY
        described["security"] = [{}, *({scheme: []} for scheme in _SECURITY)]
        return described

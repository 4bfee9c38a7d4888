"""What there is: tables and views with their columns, and how the database stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field

from viewkeep.plan.nodes import Source, View
from viewkeep.serve.http.answers import Json
from viewkeep.serve.http.errors import documented
from viewkeep.serve.http.selections import Name
from viewkeep.serve.service import Service


class ColumnShape(BaseModel):
    """A column."""

    name: str = Field(examples=["story"])
    type: str = Field(description="As in SQL.", examples=["BIGINT"])
    nullable: bool


class Shape(BaseModel):
    """A table or view."""

    name: str = Field(examples=["scores"])
    kind: str = Field(description="`table` or `view`.", examples=["view"])
    columns: list[ColumnShape]
    key: list[ColumnShape] = Field(description="In key order; a view need not show all of it.")
    sql: str | None = Field(description="Of a view.")


class Shapes(BaseModel):
    """Tables or views."""

    found: list[Shape]


class Standing(BaseModel):
    """How the database stands; as `Database.status()`."""

    url: str
    epoch: int
    lag: int = Field(description="Operations that no published epoch covers yet.")
    lag_seconds: float = Field(
        description="The age of the oldest write that no published epoch covers."
    )
    operations_per_second: float | None
    logs: list[dict[str, Any]]
    views: list[dict[str, Any]]
    tables: list[str]
    operators: list[dict[str, Any]]
    base_bytes: int
    state_bytes: int
    driver: str | None
    used_bytes: int = Field(description="In use, without what is free for reuse.")
    max_bytes: int | None = Field(description="`max_size`, after which no rows are taken.")
    free_bytes: int | None = Field(description="What the disk has left.")
    refusal: str | None = Field(description="Why no rows are taken now, if none are.")
    trouble: str | None = Field(description="Why the pipeline fails, if it does.")
    slowest: dict[str, Any] | None = Field(
        description="The slowest epoch of the last hour, with the operators that took most of it."
    )
    unreadable: list[dict[str, Any]] = Field(
        description="Tables that others write, of which row keys or cells could not be read: how "
        "many, each time that they were read, and the last reason."
    )


def routes(app: FastAPI, service: Service) -> None:
    """Add the routes that tell what there is."""
    db = service.db

    @app.get("/v1/status", tags=["catalog"], response_model=Standing, responses=documented())
    async def status() -> Json:
        """The published epoch, the lag of each node, the views' states, the sizes."""
        return Json(asdict(await service.run(db.status)))

    @app.get("/v1/tables", tags=["catalog"], response_model=Shapes, responses=documented())
    async def tables() -> Json:
        """The base tables."""
        return Json({"found": await service.run(_shapes, "table")})

    @app.get("/v1/views", tags=["catalog"], response_model=Shapes, responses=documented())
    async def views() -> Json:
        """The views."""
        return Json({"found": await service.run(_shapes, "view")})

    @app.get("/v1/{name}/schema", tags=["catalog"], response_model=Shape, responses=documented(404))
    async def schema(name: Name) -> Json:
        """The columns and the key of a table or view."""
        return Json(_shape(name.lower(), service.relation(name)))

    def _shapes(kind: str) -> list[dict[str, Any]]:
        current = db.catalog.current()
        found = current.tables if kind == "table" else current.views
        return [_shape(name, found[name]) for name in sorted(found)]


def _shape(name: str, found: Source | View) -> dict[str, Any]:
    schema = found.schema
    view = found if isinstance(found, View) else None

    def columns(names: tuple[str, ...]) -> list[dict[str, Any]]:
        return [
            {"name": n, "type": str(schema[n].type), "nullable": schema[n].nullable} for n in names
        ]

    return {
        "name": name,
        "kind": "table" if view is None else "view",
        "columns": columns(schema.names if view is None else tuple(view.visible)),
        "key": columns(schema.key),
        "sql": None if view is None else view.sql,
    }

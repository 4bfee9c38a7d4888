"""Writes: rows into base tables, and out of them.

Law: one request is one atomic write, all of its rows or none; when it is answered the rows are as
durable as the database. The answer's session token lets any later read see them. Of the errors only
OutcomeUnknown leaves open whether the rows were written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, Field

from viewkeep.access.sessions import Session
from viewkeep.serve.http.answers import Json
from viewkeep.serve.http.errors import documented
from viewkeep.serve.http.selections import Key, Table, Texts
from viewkeep.serve.http.sessions import Token, answer
from viewkeep.serve.http.values import key_of, key_of_texts, row_of
from viewkeep.serve.service import Service


class GivenRows(BaseModel):
    """Rows to write."""

    rows: list[dict[str, Any]] = Field(examples=[[{"id": 1, "story": 7}, {"id": 2, "story": 7}]])


class GivenKeys(BaseModel):
    """Keys of rows: each a value, a list in key order, or an object."""

    keys: list[Any] = Field(examples=[[1, 2]])


class Written(BaseModel):
    """What was done."""

    written: int = Field(description="How many rows, or keys, were given.", examples=[2])


Columns = Annotated[Texts, Query(description="Columns to set to NULL instead; repeat it.")]


def routes(app: FastAPI, service: Service) -> None:
    """Add the routes that write."""
    db = service.db

    async def write(token: str | None, work: Callable[[Session], int | None]) -> Json:
        session = await service.session(token)
        written = await service.write(work, session)
        return answer({"written": 1 if written is None else written}, session.token)

    def rows_of(given: GivenRows, table: str) -> list[dict[str, Any]]:
        schema = db.schema(table)
        return [
            row_of(row, schema, f"{table}, row {number}")
            for number, row in enumerate(given.rows, 1)
        ]

    @app.put(
        "/v1/{name}/rows",
        tags=["write"],
        response_model=Written,
        responses=documented(404, 507),
    )
    async def put(name: Table, given: GivenRows, session: Token = None) -> Json:
        """Insert or update rows; columns left out keep their values, or are NULL in a new row."""
        return await write(session, lambda own: own.put(name, rows_of(given, name)))

    @app.post(
        "/v1/{name}/rows",
        tags=["write"],
        response_model=Written,
        responses=documented(404, 409, 507),
    )
    async def insert(name: Table, given: GivenRows, session: Token = None) -> Json:
        """Insert rows; DuplicateKey and no change if one of the keys exists."""
        return await write(session, lambda own: own.insert(name, rows_of(given, name)))

    @app.delete(
        "/v1/{name}/row",
        tags=["write"],
        response_model=Written,
        responses=documented(404, 507),
    )
    async def delete(
        name: Table, key: Key = (), column: Columns = (), session: Token = None
    ) -> Json:
        """Delete a row by its key, or set some of its columns to NULL.

        Deleting what is not there changes nothing.
        """
        values = key_of_texts(key, db.schema(name), name)
        return await write(session, lambda own: own.delete(name, values, column or None))

    @app.post(
        "/v1/{name}/delete",
        tags=["write"],
        response_model=Written,
        responses=documented(404, 507),
    )
    async def delete_many(name: Table, given: GivenKeys, session: Token = None) -> Json:
        """Delete rows by their keys, as one write."""

        def delete(own: Session) -> int:
            schema = db.schema(name)
            return own.delete_many(name, [key_of(key, schema, name) for key in given.keys])

        return await write(session, delete)

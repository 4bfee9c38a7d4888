"""Writes: rows into base tables, and out of them.

Law: one request is one atomic write, all of its rows or none; when it is answered the rows are as
durable as the database. The answer's session token lets any later read see them. Of the errors only
OutcomeUnknown leaves open whether the rows were written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, Field, SkipValidation

from viewkeep.access.sessions import Session
from viewkeep.serve.http.answers import Json
from viewkeep.serve.http.errors import InvalidRequest, documented
from viewkeep.serve.http.selections import Key, Table, Texts
from viewkeep.serve.http.sessions import Token, answer
from viewkeep.serve.http.values import check_key, key_of, key_of_texts, row_of
from viewkeep.serve.limits import TooLarge
from viewkeep.serve.service import Service


class GivenRows(BaseModel):
    """Rows to write."""

    # Checked where it is written, in a thread.
    rows: Annotated[list[dict[str, Any]], SkipValidation] = Field(
        examples=[[{"id": 1, "story": 7}, {"id": 2, "story": 7}]]
    )


class GivenKeys(BaseModel):
    """Keys of rows: each a value, a list in key order, or an object."""

    keys: Annotated[list[Any], SkipValidation] = Field(examples=[[1, 2]])


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

    limits = service.settings

    def rows_of(given: GivenRows, table: str) -> list[dict[str, Any]]:
        rows = _listed(given.rows, "rows", limits.max_written)
        schema = db.schema(table)
        found = []
        for number, row in enumerate(rows, 1):
            where = f"{table}, row {number}"
            if not isinstance(row, dict):
                raise InvalidRequest(f"body.rows.{number - 1}: a row is an object")
            found.append(row_of(row, schema, where))
            for name in schema.key:
                check_key(row.get(name), limits.max_key, where)
        return found

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
            keys = _listed(given.keys, "keys", limits.max_written)
            found = [key_of(key, schema, name) for key in keys]
            for key in found:
                for value in key:
                    check_key(value, limits.max_key, name)
            return own.delete_many(name, found)

        return await write(session, delete)


def _listed(given: object, name: str, most: int) -> list[Any]:
    if not isinstance(given, list):
        raise InvalidRequest(f"body.{name}: it is a list")
    if len(given) > most:
        raise TooLarge(f"a request has at most {most:,} {name} here; send them in parts")
    return given

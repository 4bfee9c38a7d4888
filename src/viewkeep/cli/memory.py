"""The command that bounds what state may hold: memory."""

from __future__ import annotations

from typing import Annotated

import typer

import viewkeep
from viewkeep.cli.app import Json, Url, UrlCommand, app
from viewkeep.cli.output import console, print_json


@app.command(cls=UrlCommand)
def memory(
    url: Url,
    size: Annotated[
        str | None,
        typer.Argument(metavar="SIZE", help="Like 512MB or 2GiB; `none` lifts the bound."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bound what the state of views may hold, or show what it holds.

    Rows of partial views go to keep it, the least recently read first.

    Example: viewkeep memory news.vk 512MB
    """
    with viewkeep.open(url, create=False) as db:
        if size is not None:
            db.limit_memory(None if size.lower() == "none" else size)
        status = db.status()
    stays, may_go, bound = status.essential_bytes, status.evictable_bytes, status.memory_bound
    if as_json:
        print_json({"essential_bytes": stays, "evictable_bytes": may_go, "memory_bound": bound})
        return
    most = "There is no bound." if bound is None else f"The bound is {bound:,}."
    console.print(f"Rows of state hold {stays + may_go:,} bytes; {may_go:,} can be evicted. {most}")

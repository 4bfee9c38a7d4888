"""The command that brings failed views back: repair."""

from __future__ import annotations

from typing import Annotated

import typer

import viewkeep
from viewkeep.cli.app import Json, Url, UrlCommand, app
from viewkeep.cli.output import console, print_json


@app.command(cls=UrlCommand)
def repair(
    url: Url,
    views: Annotated[
        list[str] | None, typer.Argument(metavar="VIEW...", help="Default: all that failed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Have views that failed loaded afresh, and the failed views that read them.

    Example: viewkeep repair news.vk scores
    """
    with viewkeep.open(url, create=False) as db:
        repaired = db.repair(*(views or []))
    if as_json:
        print_json({"repaired": list(repaired)})
    elif repaired:
        names = ", ".join(repaired)
        console.print(f"The pipeline will load {names} afresh.", markup=False, highlight=False)
    else:
        console.print("No view has failed.")

"""The command that proves views right: verify."""

from __future__ import annotations

from typing import Annotated

import typer

import viewkeep
from viewkeep.cli.app import Json, Master, Url, UrlCommand, app
from viewkeep.cli.output import console, errors, print_json


@app.command(cls=UrlCommand)
def verify(
    url: Url,
    views: Annotated[
        list[str] | None, typer.Argument(metavar="VIEW...", help="Default: all views.")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild views that differ from the base.")
    ] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Compare views with Spark SQL over the base tables at one cut.

    Exit code 1 if one differs, or has failed and so has no rows to compare.

    Example: viewkeep verify news.vk
    """
    with viewkeep.open(url, create=False) as db:
        verdicts = db.verify(*(views or []), repair=repair, master=master)
        failed = [] if views else [view for view in db.status().views if view.state == "failed"]
    if as_json:
        print_json([verdict.to_json() for verdict in verdicts])
    else:
        from viewkeep.access.results import table_of

        for verdict in verdicts:
            console.print(str(verdict), markup=False, highlight=False)
            if not verdict.ok and verdict.sample is not None:
                console.print(table_of(verdict.sample))
    for view in failed:
        errors.print(view.problem, markup=False, highlight=False)
    if failed or not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(1)

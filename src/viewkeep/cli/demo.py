"""The command that shows viewkeep at work: demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from viewkeep.cli.app import app


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(help="How long to write.")] = 60.0,
    rate: Annotated[int, typer.Option(help="Votes written a second, at most.")] = 2000,
    keep: Annotated[
        Path | None,
        typer.Option(help="Make the database here and keep it. Default: a temporary folder."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Make it in this database instead, such as one on HBase."),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live table.")] = False,
    browse: Annotated[
        bool, typer.Option("--browse/--no-browse", help="Open the dashboard in a browser.")
    ] = True,
) -> None:
    """A news site with live views and a dashboard: writes for a minute, then verifies every view.

    Ctrl-C ends it at any time.

    Example: viewkeep demo --seconds 20
    """
    from viewkeep.spark.gateway import begin

    begin(None)  # Spark starts while the rest is imported, and the tables are made
    from viewkeep.demo import run_demo

    if not run_demo(seconds=seconds, rate=rate, keep=keep, plain=plain, browse=browse, url=url):
        raise typer.Exit(1)

"""The command that prepares an HBase cluster: hbase install."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from viewkeep.cli.app import Commands, Json, UrlCommand, app
from viewkeep.cli.output import console, print_json

hbase = typer.Typer(cls=Commands, no_args_is_help=True)
app.add_typer(hbase, name="hbase")

_PATIENCE = 15.0  # seconds for the Thrift server to answer


@hbase.callback()
def about() -> None:
    """Prepare an HBase cluster for viewkeep, and see what is missing.

    Example: viewkeep hbase install --check hbase://localhost:9090/news
    """


@hbase.command(cls=UrlCommand)
def install(
    url: Annotated[str, typer.Argument(metavar="URL", help="hbase://HOST:PORT/NAME")],
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is there and what is missing.")
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a probe row to arrive.")
    ] = 20.0,
    as_json: Json = False,
) -> None:
    """Make the log table of a database in HBase, and say what an administrator has to do.

    The jar and the replication peer need an administrator of HBase; this prints the steps.
    A probe makes a small table, writes to it and drops it again. Exit code 1: something is missing.
    """
    from viewkeep.stores.hbase.connection import HbaseConnection
    from viewkeep.stores.hbase.install import CheckState, InstallTarget, inspect, prepare

    target = InstallTarget.of(url)
    with closing(HbaseConnection(target.host, target.port, patience=_PATIENCE)) as connection:
        if not check:
            prepare(connection, target)
        found = []
        for one in inspect(connection, target, wait):
            found.append(one)
            if as_json:
                continue
            console.print(f"{one.state:8} {one.what}", markup=False, highlight=False)
            for line in one.remedy.splitlines():
                console.print(" " * 9 + line, markup=False, highlight=False, soft_wrap=True)
    missing = sum(one.state is CheckState.MISSING for one in found)
    if as_json:
        print_json([one._asdict() for one in found])
    elif not missing:
        console.print("Nothing is missing.")
    if missing:
        raise typer.Exit(1)

"""Commands that make a database and write to it: init, sql, load."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import viewkeep
from viewkeep.cli.app import Json, Url, UrlCommand, app
from viewkeep.cli.defer import defer
from viewkeep.cli.output import console, print_json, print_result
from viewkeep.errors import ViewkeepError

if TYPE_CHECKING:
    from viewkeep.database import Database

PROMPT, CONTINUED = "viewkeep> ", "     ...> "


@app.command(cls=UrlCommand)
def init(
    url: Url,
    nodes: Annotated[
        int, typer.Option(help="Node logs; writers of different nodes never wait.")
    ] = 2,
    shards: Annotated[
        int | None, typer.Option(help="State shards, a multiple of the nodes.", show_default=False)
    ] = None,
    durability: Annotated[
        str,
        typer.Option(help="full: acknowledged writes survive power loss. relaxed: see docs."),
    ] = "full",
    max_size: Annotated[
        str | None,
        typer.Option(
            help="The most it may take, for example 20GiB; then no rows are taken. Default: the "
            "disk.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new, empty database.

    Example: viewkeep init news.vk --nodes 4 --max-size 20GiB
    """
    most = None if max_size is None else _bytes(max_size)
    with viewkeep.make(url, nodes=nodes, shards=shards, durability=durability, max_size=most) as db:
        made = {"url": url, "nodes": db.store.tables.parts, "shards": db.store.state.shards}
    if as_json:
        print_json(made)
    else:
        console.print(f"made {url} ({made['nodes']} nodes, {made['shards']} shards)")


@app.command(cls=UrlCommand)
def sql(
    url: Url,
    text: Annotated[str | None, typer.Argument(help="Statements, separated by ;")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the statements from a file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run SQL statements: from the argument, a file, standard input, or a prompt.

    Examples: viewkeep sql news.vk "SELECT * FROM stories LIMIT 5", viewkeep sql news.vk -f site.sql
    """
    defer()
    with viewkeep.open(url) as db:
        if text is not None and file is not None:
            raise typer.BadParameter("give the statements as an argument or by --file, not both")
        if file is not None:
            text = file.read_text()
        elif text is None and not sys.stdin.isatty():
            text = sys.stdin.read()
        if text is None:
            _prompt(db, as_json)
        else:
            for result in db.execute(text):
                print_result(result, as_json)


@app.command(cls=UrlCommand)
def load(
    url: Url,
    table: Annotated[str, typer.Argument(help="The base table to load into.")],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A Parquet, CSV or Arrow file.")],
    format: Annotated[
        str | None,
        typer.Option(
            help="parquet, csv or arrow. Default: by the file's name.", show_default=False
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace rows whose key exists; default: refuse.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Load the rows of a file into a base table, in batches, with a progress bar.

    Example: viewkeep load news.vk votes votes.parquet
    """
    with viewkeep.open(url, create=False) as db:
        progress = not as_json and sys.stderr.isatty()
        done = db.load(table, path, format=format, replace=replace, progress=progress)
    if as_json:
        print_json({"table": table, "rows": done.rows})
    else:
        console.print(f"loaded {done.rows:,} rows into {table}")


@app.command(cls=UrlCommand)
def drop(
    url: Url,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a database with all its tables and views. No process may have it open.

    Example: viewkeep drop news.vk --yes
    """
    from viewkeep.stores import drop_store

    with viewkeep.open(url, create=False) as db:
        tables, views = len(db.tables()), len(db.views())
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("give --yes to remove a database without being asked")
        holds = f"{tables} tables and {views} views"
        typer.confirm(f"Remove {url} with its {holds} for ever?", abort=True)
    drop_store(url)
    if as_json:
        print_json({"url": url, "tables": tables, "views": views})
    else:
        console.print(f"Removed {url}.")


def _bytes(text: str) -> int:
    """A size in words: 20GiB, 500MB, 1048576."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 20GiB or 500MB")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def _prompt(db: Database, as_json: bool) -> None:
    """Statements typed by hand; an error does not end the prompt."""
    console.print("Statements end with ; — Ctrl-D leaves.")
    for text in _statements():
        try:
            for result in db.execute(text):
                print_result(result, as_json)
        except ViewkeepError as error:
            console.print(f"error: {error}", style="red", markup=False, highlight=False)


def _statements() -> Iterator[str]:
    lines: list[str] = []
    while True:
        try:
            line = input(CONTINUED if lines else PROMPT)
        except KeyboardInterrupt:
            console.print()
            lines = []
            continue
        except EOFError:
            console.print()
            return
        lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
        elif not "".join(lines).strip():
            lines = []

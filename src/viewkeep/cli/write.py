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
from viewkeep.cli.output import console, print_json, print_result
from viewkeep.errors import NoDatabase, ViewkeepError

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
    create: Annotated[
        bool, typer.Option("--create", help="Make the database if there is none, without asking.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run SQL statements: from the argument, a file, standard input, or a prompt.

    Where there is no database, it asks before it makes one; without a terminal, give --create.

    Examples: viewkeep sql news.vk "SELECT * FROM stories LIMIT 5", viewkeep sql news.vk -f site.sql
    """
    with _opened(url, create) as db:
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
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Parquet, CSV or Arrow files; folders and globs of them."
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            help="parquet, csv or arrow. Default: by the file's name.", show_default=False
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace rows whose key exists; default: refuse.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Take the files of one folder, each once, and new ones until Ctrl-C."
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --follow: take the files that are there, and end.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, help="With --follow: seconds between looks at the folder.")
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Load the rows of files into a base table, in batches, with a progress bar.

    Examples: viewkeep load news.vk votes votes.parquet, viewkeep load news.vk votes --follow inbox
    """
    if once and not follow:
        raise typer.BadParameter("--once goes with --follow")
    if follow and len(paths) != 1:
        raise typer.BadParameter("--follow takes one folder")
    with viewkeep.open(url, create=False) as db:
        if follow:
            _follow(db, table, Path(paths[0]), format, replace, None if once else every, as_json)
            return
        progress = not as_json and sys.stderr.isatty()
        done = db.load(table, paths, format=format, replace=replace, progress=progress)
    if as_json:
        print_json({"table": table, "rows": done.rows, "files": done.files})
    else:
        where = f" from {done.files:,} files" if done.files > 1 else ""
        console.print(f"loaded {done.rows:,} rows{where} into {table}")


def _follow(
    db: Database,
    table: str,
    folder: Path,
    format: str | None,
    replace: bool,
    every: float | None,
    as_json: bool,
) -> None:
    """Take the files of a folder; with `every`, until told to end, also between two files."""
    from viewkeep.cli.run import until_told

    loader = db.follow(table, folder, format=format, replace=replace)
    with until_told() as told:
        while not told.is_set():
            for taken in loader.look(settled=every is None):
                if as_json:
                    print_json({"file": taken.file, "rows": taken.rows})
                else:
                    console.print(f"{taken.file}: {taken.rows:,} rows", highlight=False)
                if told.is_set():
                    return
            if every is None:
                return
            told.wait(every)


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


def on_terminal() -> bool:
    """Whether somebody can answer a question."""
    return sys.stdin.isatty()


def _opened(url: str, create: bool) -> Database:
    """The database, or a new one if the user wants it."""
    try:
        return viewkeep.open(url, create=create)
    except NoDatabase as error:
        if not on_terminal():
            raise NoDatabase(f"{error}, or give --create") from error
        typer.confirm(f"There is no database at {url}. Make one?", abort=True, err=True)
        return viewkeep.open(url)


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

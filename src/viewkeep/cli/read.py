"""Commands that read: get, scan, explain, status."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import viewkeep
from viewkeep.cli.app import At, Json, Name, Url, UrlCommand, app, point_of
from viewkeep.cli.output import console, print_json, print_result

if TYPE_CHECKING:
    from viewkeep.database import Database
    from viewkeep.types import Schema

Bound = list[str] | None


@app.command(cls=UrlCommand)
def get(
    url: Url,
    name: Name,
    key: Annotated[
        list[str] | None, typer.Argument(metavar="KEY...", help="One value per key column.")
    ] = None,
    at: At = None,
    as_json: Json = False,
) -> None:
    """Read one row of a table or view by its key. Exit code 1 if there is none.

    Example: viewkeep get news.vk story_scores 42
    """
    with viewkeep.open(url, create=False) as db:
        row = db.get(name, _key(db, name, key or []), at=point_of(at))
    if row is None:
        if as_json:
            print_json(None)
        else:
            typer.echo(f"{name} has no row with that key", err=True)
        raise typer.Exit(1)
    if as_json:
        print_json(row)
    else:
        from rich.markup import escape
        from rich.table import Table

        from viewkeep.access.results import shown

        table = Table("column", "value", header_style="bold")
        for column, value in row.items():
            table.add_row(escape(column), escape(shown(value)))
        console.print(table)


@app.command(cls=UrlCommand)
def scan(
    url: Url,
    name: Name,
    prefix: Annotated[
        Bound, typer.Option(help="Value of the first key column; repeat for the next columns.")
    ] = None,
    start: Annotated[
        Bound, typer.Option("--from", help="First key, repeat per column; after the prefix.")
    ] = None,
    stop: Annotated[Bound, typer.Option("--to", help="Key to stop before, likewise.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many rows; 0 for all.")] = 100,
    reverse: Annotated[bool, typer.Option("--reverse", help="Backwards.")] = False,
    at: At = None,
    as_json: Json = False,
) -> None:
    """Read rows in key order: all, those of a prefix, or a range.

    Examples: viewkeep scan news.vk by_author --prefix ann, viewkeep scan news.vk stories --from 10
    --to 20
    """
    with viewkeep.open(url, create=False) as db:
        head = _key(db, name, prefix or [])
        skip = len(head)
        bounds = None
        if start is not None or stop is not None:
            bounds = (
                None if start is None else _key(db, name, start, skip),
                None if stop is None else _key(db, name, stop, skip),
            )
        result = db.scan(
            name,
            prefix=head or None,
            range=bounds,
            limit=limit or None,
            reverse=reverse,
            at=point_of(at),
        )
    print_result(result, as_json)


@app.command(cls=UrlCommand)
def explain(
    url: Url,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[VIEW|SQL]", help="A view or a statement. Default: all."),
    ] = None,
    code: Annotated[
        bool, typer.Option("--code", help="The Python generated for epochs of few rows.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how views are kept: zones, state tables and levels as a tree.

    Examples: viewkeep explain news.vk story_scores, viewkeep explain news.vk "SELECT ..."
    """
    with viewkeep.open(url, create=False) as db:
        text = db.explain(what, code=code)
    if as_json:
        print_json({"explain": text})
    else:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


@app.command(cls=UrlCommand)
def status(
    url: Url,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between looks with --watch.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Show the published epoch, lag per node, throughput, views and sizes.

    Example: viewkeep status news.vk --watch
    """
    with viewkeep.open(url, create=False) as db:
        if as_json:
            print_json(asdict(db.status()))
        elif not watch:
            from viewkeep.status import render

            console.print(render(db.status()))
        else:
            _watch(db, interval)


def _watch(db: Database, interval: float) -> None:
    from rich.live import Live

    from viewkeep.status import render

    with Live(render(db.status()), console=console, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(interval)
                live.update(render(db.status()), refresh=True)
        except KeyboardInterrupt:
            return


def _key(db: Database, name: str, texts: list[str], skip: int = 0) -> tuple[Any, ...]:
    """Key values out of their texts, by the types of the key columns."""
    from viewkeep.access.incoming import parse_value

    schema: Schema = db.schema(name)
    names = schema.key[skip:]
    if len(texts) > len(names):
        raise typer.BadParameter(f"the key of {name} is ({', '.join(schema.key)})")
    pairs = zip(texts, names, strict=False)
    return tuple(parse_value(text, schema[c].type, f"key column {c}") for text, c in pairs)

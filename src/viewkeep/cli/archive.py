"""Commands that take data out and bring it back: backup, restore, export."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import viewkeep
from viewkeep.cli.app import At, Json, Url, UrlCommand, app, point_of
from viewkeep.cli.output import console, print_json

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the backups.")]


@app.command(cls=UrlCommand)
def backup(
    url: Url,
    folder: Folder,
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="Then remove all but the newest N backups.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Back up all tables as they are now, while writers and the pipeline go on.

    A folder holds many backups; a later one writes only what has changed since.

    Example: viewkeep backup news.vk backups --keep 14
    """
    from viewkeep.access.backup import BackupFolder

    with viewkeep.open(url, create=False) as db, _rows("backing up", as_json) as on_rows:
        done = db.backup(folder, on_rows=on_rows)
    freed = BackupFolder(folder).keep(keep) if keep is not None else 0
    if as_json:
        print_json({**vars(done), "freed": freed})
        return
    console.print(
        f"Backup {done.name}: {done.rows:,} rows, {done.new_parts:,} of {done.parts:,} parts "
        f"written ({done.new_bytes:,} bytes).",
        highlight=False,
    )
    if keep is not None:
        console.print(f"Kept the newest {keep}; freed {freed:,} bytes.", highlight=False)


@app.command()
def restore(
    folder: Folder,
    url: Annotated[str | None, typer.Argument(help="The database to make.")] = None,
    name: Annotated[
        str | None,
        typer.Option("--backup", help="Which backup. Default: the newest.", show_default=False),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the backups, and end.")] = False,
    nodes: Annotated[
        int | None, typer.Option(help="Default: as it was.", show_default=False)
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="Default: as it was.", show_default=False)
    ] = None,
    durability: Annotated[str, typer.Option(help="full or relaxed; as for init.")] = "full",
    as_json: Json = False,
) -> None:
    """Make a database from a backup. The pipeline then loads its views.

    Examples: viewkeep restore backups news2.vk, viewkeep restore backups --list
    """
    if listing:
        _list(folder, as_json)
        return
    if url is None:
        raise typer.BadParameter("name the database to make, or ask for --list")
    with _rows("restoring", as_json) as on_rows:
        db = viewkeep.restore(
            folder,
            url,
            backup=name,
            nodes=nodes,
            shards=shards,
            durability=durability,
            on_rows=on_rows,
        )
    with db:
        made = {"url": url, "tables": len(db.tables()), "views": len(db.views())}
    if as_json:
        print_json(made)
    else:
        console.print(
            f"Restored {url} (tables: {made['tables']}, views: {made['views']}). The pipeline "
            f"loads the views: viewkeep run {url}",
            markup=False,
            highlight=False,
        )


@app.command(cls=UrlCommand)
def export(
    url: Url,
    name: Annotated[str, typer.Argument(help="A table or view.")],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    format: Annotated[
        str | None,
        typer.Option(
            help="parquet, csv, arrow or sql. Default: by the file's name.", show_default=False
        ),
    ] = None,
    at: At = None,
    as_json: Json = False,
) -> None:
    """Write the rows of a table or view to a Parquet, CSV, Arrow or SQL file.

    Example: viewkeep export news.vk scores scores.parquet
    """
    with viewkeep.open(url, create=False) as db, _rows("exporting", as_json) as on_rows:
        rows = db.export(
            name, path, format=format, at=point_of(at), on_rows=lambda count: on_rows(name, count)
        )
    if as_json:
        print_json({"name": name, "path": str(path), "rows": rows})
    else:
        console.print(f"Exported {rows:,} rows to {path}.", markup=False, highlight=False)


def _list(folder: Path, as_json: bool) -> None:
    from viewkeep.access.backup import BackupFolder

    for saved in BackupFolder(folder).backups():
        if as_json:
            rows = {table.name: table.rows for table in saved.tables}
            print_json({"name": saved.name, "moment": saved.moment, "tables": rows})
        else:
            tables = ", ".join(f"{table.name} ({table.rows:,})" for table in saved.tables)
            console.print(f"{saved.name}  {tables}", markup=False, highlight=False)


@contextmanager
def _rows(what: str, as_json: bool) -> Iterator[Callable[[str, int], None]]:
    """Progress: a count of rows, where somebody looks on."""
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    shown = not as_json and sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    total = 0
    with Progress(*columns, disable=not shown, transient=True) as progress:
        task = progress.add_task(what, total=None)

        def on_rows(name: str, count: int) -> None:
            nonlocal total
            total += count
            progress.update(task, description=f"{what} {name}: {total:,} rows")

        yield on_rows

"""The command that brings a database to what a file of CREATE statements says: apply."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import viewkeep
from viewkeep.cli.app import Json, Url, UrlCommand, app
from viewkeep.cli.output import console, print_json, size_text

if TYPE_CHECKING:
    from viewkeep.access.apply.application import Application, ObjectChange

PENDING = 2  # the exit code of a dry run that found something to do
_SIGNS = {"add": "+", "alter": "~", "replace": "~", "drop": "-", "keep": "=", "left": "?"}


@app.command(cls=UrlCommand)
def apply(
    url: Url,
    file: Annotated[
        Path, typer.Argument(help="CREATE TABLE, VIEW and INDEX statements; - is standard input.")
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what would change; exit code 2 if anything."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop views and columns that the file does not name.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring tables and views to what a file says, in one change.

    Exit codes: 0 done or nothing to do, 1 failure, 2 a dry run found something to do.

    Example: viewkeep apply news.vk site.sql --dry-run
    """
    text = sys.stdin.read() if str(file) == "-" else file.read_text()
    with viewkeep.open(url, create=False) as db:
        application = db.apply(text, prune=prune, dry_run=True)
        do_it = application.pending and not dry_run
        if not as_json:
            _show(application)
        if do_it and not yes:
            if as_json or not sys.stdin.isatty():
                raise typer.BadParameter("give --yes to change a database without being asked")
            typer.confirm("Apply?", abort=True)
        if do_it:
            application.commit()
    if as_json:
        print_json({"url": url, "applied": do_it, **application.to_json()})
    elif do_it:
        console.print("Applied. viewkeep status shows how far the views are loaded.")
    if dry_run and application.pending:
        raise typer.Exit(PENDING)


def _show(application: Application) -> None:
    width = max((len(change.name) for change in application.changes), default=0)
    for change in application.changes:
        text = f"{_SIGNS[change.action]} {change.kind:5} {change.name:{width}}  {_told(change)}"
        console.print(text.rstrip(), markup=False, highlight=False, soft_wrap=True)
    if not application.pending:
        console.print("Nothing to do.")
        return
    total, freed = application.total, application.freed
    parts = [f"at most {size_text(total.bytes)} to build", f"{size_text(freed)} to free"]
    parts.append(f"about {_seconds(total.seconds)} of processor time")
    console.print(", ".join(parts), markup=False, highlight=False)


def _told(change: ObjectChange) -> str:
    """What is to be known of one table or view."""
    if change.action == "left":
        stays = "is not in the file, and stays"
        return stays if change.kind == "table" else f"{stays}; --prune drops it"
    if change.kind == "table":
        return change.note
    if change.action not in ("add", "replace"):
        return ""
    parts = [change.note] if change.note else []
    if change.rows is None:
        parts.append("the rows to read are not known")
    elif change.rows or change.bytes:
        parts.append(f"reads {change.rows:,} rows, builds at most {size_text(change.bytes)}")
    if change.reused:
        parts.append(f"uses {size_text(change.reused)} that is there")
    return "; ".join(parts)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown amount"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"

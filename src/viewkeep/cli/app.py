"""The Typer application that the commands register with: errors, the URL argument, `--json`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from viewkeep.errors import ViewkeepError

if TYPE_CHECKING:
    import viewkeep

URL_VARIABLE = "VIEWKEEP_URL"


class Commands(TyperGroup):
    """Turns the errors that viewkeep raises on purpose into one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ViewkeepError, OSError) as error:
            if isinstance(error, BrokenPipeError) or ctx.params.get("debug"):
                raise
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


class UrlCommand(TyperCommand):
    """A command whose first argument is a URL, taken from VIEWKEEP_URL where it is left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        default = os.environ.get(URL_VARIABLE)
        if default and not any(looks_like_url(arg) for arg in args):
            args = [default, *args]
        return super().parse_args(ctx, args)


def looks_like_url(text: str) -> bool:
    """Whether an argument names a database: `x.vk`, `lmdb:x`, or its folder."""
    if text.rstrip("/").endswith(".vk") or re.fullmatch(r"[a-z][a-z0-9+]+:\S+", text):
        return True
    return len(text) < 1000 and Path(text, "viewkeep.json").is_file()


def databases(incomplete: str) -> list[str]:
    """What a shell completes a URL to: databases, and folders that may hold some."""
    head, slash, start = incomplete.rpartition("/")
    folder = Path(head + slash or ".")
    found = [
        f"{head}{slash}{path.name}"
        for path in (sorted(folder.iterdir()) if folder.is_dir() else ())
        if path.is_dir() and path.name.startswith(start) and not path.name.startswith(".")
    ]
    return [text if looks_like_url(text) else f"{text}/" for text in found]


def names(ctx: typer.Context, incomplete: str) -> list[str]:
    """What a shell completes a name to: tables and views of the database that stands before it."""
    import viewkeep

    url = ctx.params.get("url") or os.environ.get(URL_VARIABLE)
    if not url:
        return []
    try:
        with viewkeep.open(url, create=False) as db:
            return [name for name in (*db.tables(), *db.views()) if name.startswith(incomplete)]
    except (ViewkeepError, OSError):
        return []


app = typer.Typer(
    cls=Commands,
    name="viewkeep",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help=f"The database, for example news.vk. Default: ${URL_VARIABLE}.",
        autocompletion=databases,
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A table or view.", autocompletion=names)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Master = Annotated[
    str | None, typer.Option(help="The Spark master. Default: local\\[*].", show_default=False)
]
At = Annotated[
    str | None,
    typer.Option(
        help="stable: at the published epoch (default for views). latest: the newest rows.",
        show_default=False,
    ),
]


def point_of(at: str | None) -> viewkeep.At | None:
    """What `--at` says."""
    if at not in (None, "stable", "latest"):
        raise typer.BadParameter(f"--at is stable or latest, not {at}")
    return cast("viewkeep.At | None", at)


def _version(asked: bool) -> None:
    if asked:
        from viewkeep import __version__

        typer.echo(f"viewkeep {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    debug: Annotated[bool, typer.Option(help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """SQL views over key-value tables, kept fresh by a Spark pipeline.

    Exit codes: 0 done, 1 failure or differences found, 2 wrong usage.
    """

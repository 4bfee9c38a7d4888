"""The command that serves: serve."""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import viewkeep
from viewkeep.cli.app import Json, Master, Url, UrlCommand, app
from viewkeep.cli.output import console, print_json
from viewkeep.cli.run import until_told
from viewkeep.errors import InvalidSetting
from viewkeep.serve.settings import HTTP_PORT, MIB, MYSQL_PORT, Settings

if TYPE_CHECKING:
    from viewkeep.serve.server import Addresses

PASSWORD_VARIABLE = "VIEWKEEP_PASSWORD"
LOOK_SECONDS = 0.5
_DEFAULT = Settings()
_LIMITS, _TLS = "Limits", "TLS"


@app.command(cls=UrlCommand)
def serve(
    url: Url,
    host: Annotated[
        str, typer.Option(help="The address to listen at; any but loopback needs a password.")
    ] = _DEFAULT.host,
    port: Annotated[
        int, typer.Option(help="The port of HTTP; 0 for a free one.", min=0, max=65535)
    ] = HTTP_PORT,
    mysql_port: Annotated[
        int, typer.Option(help="The port of the MySQL protocol; 0: a free one.", min=0, max=65535)
    ] = MYSQL_PORT,
    no_mysql: Annotated[
        bool, typer.Option("--no-mysql", help="Do not serve the MySQL protocol.")
    ] = False,
    run: Annotated[
        bool, typer.Option("--run", help="Run the pipeline too, in this process.")
    ] = False,
    master: Master = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file with the password. Default: ${PASSWORD_VARIABLE}, else none is needed.",
            show_default=False,
        ),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(
            help="A file of users with roles, as `viewkeep users` writes it.", show_default=False
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="A certificate chain (PEM).", show_default=False, rich_help_panel=_TLS),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(help="Its private key (PEM).", show_default=False, rich_help_panel=_TLS),
    ] = None,
    max_body: Annotated[
        int, typer.Option(help="MiB of one request.", min=1, rich_help_panel=_LIMITS)
    ] = _DEFAULT.max_body // MIB,
    max_rows: Annotated[
        int, typer.Option(help="Rows of one answer.", min=1, rich_help_panel=_LIMITS)
    ] = _DEFAULT.max_rows,
    max_seconds: Annotated[
        float, typer.Option(help="Seconds of one request.", min=0.1, rich_help_panel=_LIMITS)
    ] = _DEFAULT.max_seconds,
    max_answer: Annotated[
        int, typer.Option(help="MiB of a query's answer.", min=1, rich_help_panel=_LIMITS)
    ] = _DEFAULT.max_answer // MIB,
    max_query_memory: Annotated[
        int, typer.Option(help="MiB that a query may hold.", min=16, rich_help_panel=_LIMITS)
    ] = _DEFAULT.max_query_memory // MIB,
    max_memory: Annotated[
        int, typer.Option(help="MiB of all large queries.", min=16, rich_help_panel=_LIMITS)
    ] = _DEFAULT.max_memory // MIB,
    max_connections: Annotated[
        int, typer.Option(help="Connections of each protocol.", min=1, rich_help_panel=_LIMITS)
    ] = _DEFAULT.max_connections,
    idle_seconds: Annotated[
        float,
        typer.Option(
            help="Seconds that a MySQL connection may say nothing.",
            min=1,
            rich_help_panel=_LIMITS,
        ),
    ] = _DEFAULT.idle_seconds,
    stalled_seconds: Annotated[
        float,
        typer.Option(
            help="Seconds for a client to take what it is sent.", min=1, rich_help_panel=_LIMITS
        ),
    ] = _DEFAULT.stalled_seconds,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="A site whose pages may use this server from a browser, such as "
            "https://example.com; repeat for more.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        str, typer.Option(help="A line for each request on stderr: text, json, or none.")
    ] = "text",
    as_json: Json = False,
) -> None:
    """Serve a database over HTTP and to MySQL clients, until Ctrl-C or SIGTERM.

    Examples: viewkeep serve news.vk --run, viewkeep serve news.vk --host 0.0.0.0 --password-file
    secret --tls-certificate cert.pem --tls-key key.pem
    """
    if log_format not in ("text", "json", "none"):
        raise typer.BadParameter(f"--log-format is text, json or none, not {log_format}")
    settings = Settings(
        host=host,
        http_port=port,
        mysql_port=None if no_mysql else mysql_port,
        password=_password(password_file),
        users=users,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        max_body=max_body * MIB,
        max_rows=max_rows,
        max_seconds=max_seconds,
        max_answer=max_answer * MIB,
        max_query_memory=max_query_memory * MIB,
        max_memory=max_memory * MIB,
        max_connections=max_connections,
        idle_seconds=idle_seconds,
        stalled_seconds=stalled_seconds,
        allow_origins=tuple(allow_origin or ()),
    )
    from viewkeep.cli.supervise import keep_running
    from viewkeep.serve.logs import write_logs
    from viewkeep.serve.server import Server

    if log_format != "none":
        write_logs(sys.stderr, "json" if log_format == "json" else "text")
    with (
        viewkeep.open(url, create=run) as db,
        until_told() as told,
        Server(db, settings) as server,
    ):
        _print_addresses(server.addresses, as_json)
        # What is there now stays. The collector need not look at it again, which took 60 ms a time.
        gc.freeze()
        if run:
            keep_running(partial(db.pipeline, master), db.store, told)
        while not told.wait(LOOK_SECONDS):
            pass


def _password(file: Path | None) -> str | None:
    """The first line of the file, or the environment's."""
    if file is None:
        return os.environ.get(PASSWORD_VARIABLE)
    lines = file.read_text().splitlines()
    if not lines or not lines[0]:
        raise InvalidSetting(f"the password file {file} is empty")
    return lines[0]


def _print_addresses(found: Addresses, as_json: bool) -> None:
    if as_json:
        print_json({"http": found.http_url, "mysql_port": found.mysql_port})
        sys.stdout.flush()
        return
    console.print(f"HTTP   {found.http_url}", highlight=False)
    if found.mysql_port is not None:
        console.print(f"MySQL  {found.host}, port {found.mysql_port}", highlight=False)
    console.print("[dim]Ctrl-C ends it[/dim]")

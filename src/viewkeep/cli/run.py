"""The command that keeps views: run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

import viewkeep
from viewkeep.cli.app import Json, Master, Url, UrlCommand, app
from viewkeep.cli.output import console, print_json

if TYPE_CHECKING:
    from viewkeep.database import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.status import Status

LOOK_SECONDS = 0.5


@app.command(cls=UrlCommand)
def run(
    url: Url,
    once: Annotated[bool, typer.Option("--once", help="Catch up, then exit.")] = False,
    master: Master = None,
    max_operations: Annotated[
        int | None,
        typer.Option(help="The largest number of operations of one epoch.", show_default=False),
    ] = None,
    every: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="The least seconds from one epoch to the next; fewer epochs take less processor "
            "time. Default: 0, as fresh as it can be.",
            show_default=False,
        ),
    ] = 0.0,
    load_pause: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="The longest that a write waits for views that are loaded, in seconds; "
            "from 1 on, views load at full speed.",
        ),
    ] = 0.1,
    resident: Annotated[
        bool,
        typer.Option(
            help="Run small epochs in one Spark task that stays, or each as a job of its own."
        ),
    ] = True,
    failures: Annotated[
        int,
        typer.Option(help="Failures after which views that fail are set aside.", min=1),
    ] = 3,
    epoch_seconds: Annotated[
        float,
        typer.Option(help="The longest time of an epoch; one that takes longer fails.", min=1.0),
    ] = 1800.0,
    operator_memory: Annotated[
        int | None,
        typer.Option(
            help="MiB that one operator may need when the pipeline looks for views that fail. "
            "Default: most of what is free.",
            min=256,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the pipeline that keeps the views, until Ctrl-C or SIGTERM.

    Examples: viewkeep run news.vk, viewkeep run news.vk --once --master spark://host:7077
    """
    _start_spark(url, master)
    with viewkeep.open(url, create=False) as db:
        report = _print_epoch if once and not as_json else None
        pipeline = db.pipeline(
            master,
            max_operations=max_operations,
            every=every,
            load_pause=load_pause,
            resident=resident,
            failures=failures,
            epoch_seconds=epoch_seconds,
            operator_memory=None if operator_memory is None else operator_memory << 20,
            on_epoch=report,
        )
        if once:
            pipeline.run_once()
        else:
            with until_told() as told, pipeline:
                _follow(db, pipeline, told, as_json)
        status = db.status()
    if as_json:
        print_json({"epoch": status.epoch, "lag": status.lag})
    else:
        console.print(f"published epoch {status.epoch}; {status.lag:,} operations behind")


def _start_spark(url: str, master: str | None) -> None:
    """Have Spark start while the rest is imported, unless the url is one that will be refused."""
    if Path(url.removeprefix("lmdb:")).exists():
        from viewkeep.spark.gateway import begin

        begin(master)


def _print_epoch(published: Published) -> None:
    """The progress of a run that catches up: a line per epoch."""
    loading = f", {sum(published.loaded.values()):,} rows loaded" if published.loading else ""
    console.print(
        f"epoch {published.epoch}: {published.operations:,} operations{loading} "
        f"in {published.seconds:.2f} s"
    )


@contextmanager
def until_told() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, so that the pipeline ends between two epochs."""
    told = threading.Event()

    def tell(signum: int, frame: object) -> None:
        told.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(
    db: Database, pipeline: viewkeep.Pipeline, told: threading.Event, as_json: bool
) -> None:
    """A status line that lives on a terminal; elsewhere one line per epoch or failure."""
    from viewkeep.engine.failures import trouble_of
    from viewkeep.status import line

    if console.is_terminal and not as_json:
        with Live(Text("starting"), console=console, transient=True, auto_refresh=False) as live:
            while not told.wait(LOOK_SECONDS):
                pipeline.check()
                live.update(Text(line(db.status())), refresh=True)
        return
    seen: tuple[int, int] | None = None
    while not told.wait(LOOK_SECONDS):
        pipeline.check()
        status: Status = db.status()
        trouble = trouble_of(db.store)
        if seen != (now := (status.epoch, 0 if trouble is None else trouble.count)):
            seen = now
            if as_json:
                print_json({"epoch": status.epoch, "lag": status.lag, "trouble": status.trouble})
            else:
                print(line(status), flush=True)

"""Runs the demo and shows it: a live table on a terminal, plain lines elsewhere, and the dashboard.

Law: what one frame shows is one published cut: all its rows come out of one snapshot.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import webbrowser
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from viewkeep import database
from viewkeep.database import Database
from viewkeep.demo.site import TABLES, VIEWS, Traffic
from viewkeep.engine.epochs import Published
from viewkeep.errors import InvalidSetting, NotReady, Timeout
from viewkeep.serve.server import Server
from viewkeep.serve.settings import Settings
from viewkeep.spark.pipeline import Pipeline
from viewkeep.spark.signals import until_signal

TABLE_WIDTH = 80
FRAME_SECONDS = 0.5
PLAIN_SECONDS = 5.0
WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.25

ABOUT = """\
A news site: an application writes stories, votes and comments as rows, and knows nothing of views.
Eight SQL views over them (joins, top ten, distinct counts, views on views) are kept by a pipeline
on Spark, which follows the log of writes and changes only the rows of views that are affected."""
FRAME = """\
This table is ten rows of the view front_page, read like any table; votes, means, comments and
authors come from four views and always fit together: all views move to a new epoch at once."""


@dataclass
class Pulse:
    """What the last epochs say of throughput and freshness."""

    _writes: deque[int] = field(default_factory=deque)  # when, oldest first
    _epochs: deque[tuple[int, int, float]] = field(default_factory=lambda: deque(maxlen=20))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_write(self, moment: int) -> None:
        """Note a write that is about to begin, in nanoseconds."""
        with self._lock:
            self._writes.append(moment)

    def on_epoch(self, published: Published) -> None:
        """Note an epoch: when, its operations, and how long its oldest write had to wait."""
        with self._lock:
            oldest = None
            while self._writes and self._writes[0] <= published.cut.watermark:
                moment = self._writes.popleft()
                oldest = moment if oldest is None else oldest
            if oldest is not None:
                age = (published.at - oldest) / 1e9
                self._epochs.append((published.at, published.operations, age))

    def line(self) -> str:
        """The figures in words."""
        with self._lock:
            seen = list(self._epochs)
        if len(seen) < 2:
            return "the first epochs are on their way"
        rate = sum(o for _, o, _ in seen[1:]) / max(1e-9, (seen[-1][0] - seen[0][0]) / 1e9)
        fresh = median(age for _, _, age in seen)
        return f"{rate:,.0f} operations/s · a write is in every view within {fresh:.2f} s"


def run_demo(
    *,
    seconds: float,
    rate: int,
    keep: Path | None,
    plain: bool,
    browse: bool = False,
    url: str | None = None,
) -> bool:
    """The whole show; False if a view was wrong. With `browse`, the dashboard is opened.

    It is in a folder, which is removed afterwards unless it is one to `keep`, or at an empty
    database of any kind, at `url`. Ctrl-C and SIGTERM end it early.
    """
    console, told = Console(), threading.Event()
    live = console.is_terminal and not plain
    with (
        until_signal(told),
        _folder(keep) as folder,
        database.open(url or folder / "news.vk") as db,
        _dashboard(db) as address,
    ):
        console.print(f"[bold]viewkeep demo[/bold]\n{ABOUT}\n", highlight=False)
        db.sql(TABLES + VIEWS)
        pulse = Pulse()
        traffic = Traffic(db, rate, pulse.on_write)
        console.print(
            f"Made {len(db.tables())} tables, {len(db.views())} views and "
            f"{traffic.publish_stories()} stories. Spark starts; that takes some seconds ..."
        )
        console.print(f"The dashboard, while this runs: [bold]{address}[/bold]   Ctrl-C ends it.")
        if browse and live and _has_desktop():
            webbrowser.open(address)
        with db.pipeline(on_epoch=pulse.on_epoch) as pipeline:
            if _caught_up(pipeline, told) is not None:
                traffic.start()
                try:
                    if live:
                        _show_live(console, db, traffic, pulse, pipeline, seconds, address, told)
                    else:
                        _show_plain(console, db, traffic, pulse, pipeline, seconds, told)
                finally:
                    traffic.stop()
            if told.is_set():
                console.print("Ending ...")
            else:
                console.print(f"{traffic.written:,} operations written. The views catch up ...")
            began = time.perf_counter()
            published = _caught_up(pipeline, told)
            took = time.perf_counter() - began
            if published is not None:
                console.print(
                    f"Caught up in {took:.1f} s: epoch {published.epoch} covers every write."
                )
                console.print(_front_page(db))
        ok = _verified(console, db, told)
        _what_next(console, url or (f"{keep}/news.vk" if keep else None))
        return ok is not False


def _caught_up(pipeline: Pipeline, told: threading.Event) -> Published | None:
    """Wait until the views cover all writes; None if told to end before."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not told.is_set():
        try:
            return pipeline.wait(LOOK_SECONDS)
        except Timeout:
            if time.monotonic() > deadline:
                raise
    return None


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="viewkeep-demo-") as made:
        yield Path(made)


@contextmanager
def _dashboard(db: Database) -> Iterator[str]:
    """Serves the database over HTTP; gives the address. Another port if the usual one is taken."""
    try:
        server = Server(db, Settings(mysql_port=None)).start()
    except InvalidSetting:
        server = Server(db, Settings(http_port=0, mysql_port=None)).start()
    try:
        yield server.http_url
    finally:
        server.stop()


def _has_desktop() -> bool:
    """Whether a browser would open a window, and not take over the terminal."""
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform == "darwin" or bool(shown)


def _show_live(
    console: Console,
    db: Database,
    traffic: Traffic,
    pulse: Pulse,
    pipeline: Pipeline,
    seconds: float,
    address: str,
    told: threading.Event,
) -> None:
    end = time.monotonic() + seconds
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while (left := end - time.monotonic()) > 0 and not told.is_set():
            pipeline.check()
            head = f"{traffic.written:,} operations written · {left:.0f} s to go · Ctrl-C ends it"
            figures = Text(f"{head}\n{pulse.line()}\ndashboard: {address}", style="cyan")
            live.update(Group(_front_page(db), Text(FRAME, "dim"), figures), refresh=True)
            told.wait(min(FRAME_SECONDS, max(0.0, left)))


def _show_plain(
    console: Console,
    db: Database,
    traffic: Traffic,
    pulse: Pulse,
    pipeline: Pipeline,
    seconds: float,
    told: threading.Event,
) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not told.wait(min(PLAIN_SECONDS, left)):
        pipeline.check()
        with db.snapshot() as snapshot:
            first = snapshot.scan("front_page", limit=1).rows()
        top = f"top story {first[0]['story']} with {first[0]['votes']:,} votes" if first else ""
        print(
            f"epoch {db.status().epoch} · {traffic.written:,} operations written · "
            f"{pulse.line()} · {top}",
            flush=True,
        )


def _front_page(db: Database) -> RenderableType:
    """The top stories, a view of ten rows, and the totals, both at one cut."""
    table = Table(header_style="bold", title="front page", width=TABLE_WIDTH)
    table.add_column("story", no_wrap=True, overflow="ellipsis", ratio=1)
    for name, right in _COLUMNS:
        width = max(len(name), 6)
        table.add_column(name, justify="right" if right else "left", no_wrap=True, min_width=width)
    try:
        with db.snapshot() as snapshot:
            stories = snapshot.scan("front_page").rows()
            totals = snapshot.get("totals") or {}
            table.caption = (
                f"epoch {snapshot.epoch}: {totals.get('votes', 0):,} votes, "
                f"mean {totals.get('mean') or 0:.2f} stars, {totals.get('voters', 0):,} voters"
            )
    except NotReady as error:
        return Text(str(error))
    for story in stories:
        table.add_row(
            story["title"],
            f"{story['votes']:,}",
            f"{story['mean']:.2f}",
            f"{story['comments']:,}",
            f"{story['people']:,}",
            f"{story['author']} ({story['score']:,})",
        )
    return table


_COLUMNS = (
    ("votes", True),
    ("mean", True),
    ("comments", True),
    ("people", True),
    ("author (stars)", False),
)


def _verified(console: Console, db: Database, told: threading.Event) -> bool | None:
    """Whether every view is right; None if told to end before that is known."""
    if told.is_set():
        console.print("Ended early; the views were not verified.")
        return None
    console.print(
        "\nVerifying: Spark SQL computes every view anew from the tables, and compares ..."
    )
    try:
        with _interruptible():
            verdicts = db.verify()
    except KeyboardInterrupt:
        console.print("Ended early; the views were not verified.")
        return None
    for verdict in verdicts:
        console.print(f"  {verdict}", markup=False, highlight=False)
    ok = bool(verdicts) and all(verdict.ok for verdict in verdicts)
    console.print("[bold green]Every view is right.[/]" if ok else "[bold red]A view is wrong.[/]")
    return ok


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt here, where nothing looks whether it was told to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _what_next(console: Console, kept: str | None) -> None:
    url = kept or "news.vk"
    console.print("\n[bold]What to try next[/bold]")
    if kept is None:
        console.print(
            "  viewkeep demo --keep .            keep the database: it will be news.vk here"
        )
    console.print(f'  viewkeep sql {url} "SELECT * FROM front_page LIMIT 5"', markup=False)
    console.print(f"  viewkeep explain {url} front_page", markup=False)
    console.print(
        f"  viewkeep serve {url} --run      and write from another terminal", markup=False
    )
    console.print("  docs/tutorial.md                  your own tables and views, step by step")

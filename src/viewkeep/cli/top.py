"""The command that shows a database at work in the terminal: top."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import viewkeep
from viewkeep.cli.app import Json, Url, UrlCommand, app
from viewkeep.cli.output import console, print_json

if TYPE_CHECKING:
    from viewkeep.database import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.engine.load_progress import LoadProgress
    from viewkeep.status import Status

BARS = "▁▂▃▄▅▆▇█"
KEPT = 240  # looks: four minutes at one a second
RATE_SECONDS = 5.0
_ENDING = ("q", "Q", "\x1b", "\x04")  # q, Escape, Ctrl-D; Ctrl-C is a signal
_WIDE = 120  # columns, from which views and state stand side by side
_AROUND = 13  # lines of the screen that are not rows of those tables
_FEWEST = 5  # rows of a table, however low the screen


@dataclass(frozen=True)
class Look:
    """A status, and what only two of them together tell."""

    at: float
    status: Status
    published: Published
    loading: dict[str, LoadProgress]
    short: Callable[[str], str]  # of an operator's title
    kept_per_second: float | None = None
    written_per_second: float | None = None

    @property
    def covered(self) -> int:
        """Operations that the published epoch covers."""
        return self.status.covered

    @property
    def written(self) -> int:
        """Operations that the logs have taken."""
        return self.status.written


class Watcher:
    """The last looks at one database."""

    def __init__(self, db: Database):
        self._db = db
        self.looks: deque[Look] = deque(maxlen=KEPT)

    def look(self) -> Look:
        """Look once more."""
        from viewkeep.serve.dashboard.titles import Titles

        now, status = time.monotonic(), self._db.status()
        published = self._db.epochs.read().published
        titles = Titles(self._db.catalog.current().program)
        look = Look(now, status, published, self._loading(status, published), titles.short)
        earlier = next((old for old in self.looks if old.at >= now - RATE_SECONDS), None)
        if earlier is not None and now > earlier.at:
            passed = now - earlier.at
            look = replace(
                look,
                kept_per_second=(look.covered - earlier.covered) / passed,
                written_per_second=(look.written - earlier.written) / passed,
            )
        self.looks.append(look)
        return look

    def _loading(self, status: Status, published: Published) -> dict[str, LoadProgress]:
        from viewkeep.engine.load_progress import Loads
        from viewkeep.engine.programs import load_plan

        program = load_plan(self._db.store, published.plan).program
        loads = Loads(self._db.store, program, published)
        found = {}
        for view in status.views:
            placement = program.placements.get(view.name)
            progress = loads.of(placement) if placement is not None else None
            if progress is not None and view.state == "loading":
                found[view.name] = progress
        return found


@app.command(cls=UrlCommand)
def top(
    url: Url,
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once, then exit.")] = False,
    as_json: Json = False,
) -> None:
    """Show throughput, freshness, lag, views and state live in the terminal; q ends it.

    Example: viewkeep top news.vk
    """
    with viewkeep.open(url, create=False) as db:
        watcher = Watcher(db)
        if as_json:
            _print_lines(watcher, interval, once)
        elif once or not console.is_terminal:
            watcher.look()
            console.print(render(watcher.looks))
        else:
            _show(watcher, interval)


def _show(watcher: Watcher, interval: float) -> None:
    watcher.look()
    with (
        _keys() as pressed,
        Live(screen=True, console=console, auto_refresh=False) as live,
    ):
        try:
            while True:
                live.update(render(watcher.looks, height=console.height), refresh=True)
                if pressed(interval) in _ENDING:
                    return
                watcher.look()
        except KeyboardInterrupt:
            return


def _print_lines(watcher: Watcher, interval: float, once: bool) -> None:
    """A JSON document per look; all that `status --json` has, and the rates."""
    try:
        while True:
            look = watcher.look()
            rates = {
                "kept_per_second": look.kept_per_second,
                "written_per_second": look.written_per_second,
                "loading": {name: asdict(progress) for name, progress in look.loading.items()},
            }
            print_json({**asdict(look.status), **rates})
            sys.stdout.flush()
            if once:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        return


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key and gives it, or "" when the time is over."""
    if not sys.stdin.isatty():
        yield _nothing
        return
    source = sys.stdin.fileno()
    before = termios.tcgetattr(source)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([source], [], [], seconds)
        return os.read(source, 16).decode(errors="replace")[:1] if ready else ""

    tty.setcbreak(source)
    try:
        yield pressed
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


def _nothing(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def render(looks: Sequence[Look], width: int | None = None, height: int | None = None) -> Group:
    """The whole screen; as many rows as `height` lines hold, or all."""
    look = looks[-1]
    width = width or console.width
    parts: list[RenderableType] = [_header(look), Text(), _plots(looks, width)]
    if look.status.views:
        wide = width >= _WIDE
        rows = None if height is None else max(_FEWEST, (height - _AROUND) // (1 if wide else 2))
        tables = [_views(look, rows), _operators(look, rows)]
        if wide:
            beside = Table.grid(padding=(0, 3))
            beside.add_column()
            beside.add_column(ratio=1)
            beside.add_row(*tables)
            parts.append(beside)
        else:
            parts += tables
    elif not look.status.tables:
        parts.append(Text("\nThe database is empty. Make a table and a view: viewkeep sql URL\n"))
    parts.append(_nodes(look.status))
    return Group(*parts)


def _header(look: Look) -> Text:
    status = look.status
    line = Text.assemble(
        ("viewkeep ", "bold"), (status.url, "cyan"), ("  epoch ", "dim"), f"{status.epoch:,}"
    )
    if status.driver is None:
        line.append("  no pipeline", "yellow")
        line.append(f" (start one: viewkeep run {status.url})", "dim")
    else:
        line.append("  driven by ", "dim").append(status.driver)
    return line


def _plots(looks: Sequence[Look], width: int) -> Table:
    look = looks[-1]
    bars = max(10, min(KEPT, width - 32))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right", min_width=10)
    table.add_column(no_wrap=True)
    rows: list[tuple[str, str, list[float | None], str]] = [
        ("kept", _rate(look.kept_per_second), [one.kept_per_second for one in looks], "blue"),
        (
            "written",
            _rate(look.written_per_second),
            [one.written_per_second for one in looks],
            "blue",
        ),
        (
            "freshness",
            _seconds(look.status.lag_seconds),
            [one.status.lag_seconds for one in looks],
            "green",
        ),
        ("behind", f"{look.status.lag:,} op", [float(one.status.lag) for one in looks], "yellow"),
        (
            "epoch took",
            _seconds(look.published.seconds),
            [one.published.seconds for one in looks],
            "magenta",
        ),
    ]
    for name, figure, values, style in rows:
        table.add_row(name, Text(figure, "bold"), Text(sparkline(values[-bars:]), style))
    return table


def sparkline(values: Sequence[float | None]) -> str:
    """Values as bars, the largest as the highest; a space where there is none."""
    most = max((value for value in values if value is not None), default=0.0)
    drawn = []
    for value in values:
        if value is None:
            drawn.append(" ")
        else:
            share = 0.0 if most <= 0 else max(0.0, value) / most
            drawn.append(BARS[min(len(BARS) - 1, int(share * len(BARS)))])
    return "".join(drawn)


def _views(look: Look, rows: int | None) -> Table:
    """Those that are not ready first."""
    table = Table(box=SIMPLE, header_style="bold", pad_edge=False)
    table.add_column("view", min_width=16)
    table.add_column("state")
    if look.loading:
        table.add_column("loaded")
    table.add_column("processor", justify="right")
    whole = sum(view.seconds for view in look.status.views)
    views = sorted(look.status.views, key=lambda view: (view.state == "ready", view.name))
    for view in views[:rows]:
        style = {"ready": "green", "loading": "blue", "failed": "red"}.get(view.state, "yellow")
        cells: list[RenderableType] = [view.name, Text(f"● {view.state}", style)]
        if look.loading:
            cells.append(_bar(look.loading.get(view.name)))
        cells.append(f"{view.seconds / whole:.0%}" if whole else "")
        table.add_row(*cells)
    if rows is not None and len(views) > rows:
        table.add_row(f"and {len(views) - rows} more")
    return table


def _bar(progress: LoadProgress | None) -> RenderableType:
    if progress is None:
        return ""
    drawn = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=progress.share, width=14)
    drawn.add_row(bar, f"{progress.share:.0%}, {progress.rows:,} rows")
    return drawn


def _operators(look: Look, rows: int | None) -> Table:
    table = Table(box=SIMPLE, header_style="bold", pad_edge=False, expand=True)
    table.add_column("largest state", no_wrap=True, overflow="ellipsis", ratio=3)
    for name, width in (("level", 5), ("rows", 9), ("size", 9)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("used by", no_wrap=True, overflow="ellipsis", ratio=1)
    for operator in look.status.operators[:rows]:
        used = ", ".join(operator.users[:3]) + (" …" if len(operator.users) > 3 else "")
        what, size = look.short(operator.what), _size(operator.bytes)
        table.add_row(what, str(operator.level), f"{operator.rows:,}", size, used)
    return table


def _nodes(status: Status) -> Text:
    line = Text("nodes  ", "dim")
    for node in status.logs:
        line.append(f"{node.log}: ", "dim")
        line.append(f"{node.lag:,} behind", "yellow" if node.lag else "")
        line.append(f", {node.kept:,} kept   ", "dim")
    line.append(
        f"base {_size(status.base_bytes)}, state {_size(status.state_bytes)}   q ends", "dim"
    )
    return line


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}/s"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:,.0f} ms" if 0 < value < 1 else f"{value:,.1f} s"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"

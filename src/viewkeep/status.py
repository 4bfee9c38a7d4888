"""How a database stands: its published epoch, the lag of its views, their state, its sizes.

A status is one look; nothing in it is kept or measured in the background, except what the pipeline
leaves in its epoch records.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from rich.console import Group
from rich.table import Table
from rich.text import Text

from viewkeep.access.reads import loading_of, view_failed, view_unreadable
from viewkeep.catalog import Catalog
from viewkeep.engine.costs import Costs, EpochCost, read_costs
from viewkeep.engine.epochs import Epochs, Published
from viewkeep.engine.failures import trouble_of
from viewkeep.engine.lag import lag_seconds
from viewkeep.engine.lease import holder
from viewkeep.engine.load_progress import Loads
from viewkeep.engine.memory import memory_of
from viewkeep.engine.programs import PlanVersion, load_plan, successor_name
from viewkeep.plan.explain import title
from viewkeep.plan.program import Program
from viewkeep.stores.contract import Sizes, Store, TableSize

RECENT_SECONDS = 30.0
_SHOWN = 20  # operators


@dataclass(frozen=True)
class LogStatus:
    """One log: where it ends, where the published cut lies in it, what it still keeps."""

    log: str
    end: int
    published: int
    kept: int

    @property
    def lag(self) -> int:
        """Operations that no published epoch covers yet."""
        return self.end - self.published


@dataclass(frozen=True)
class ViewStatus:
    """One view: `ready`, `loading` with its progress, `waiting` for the pipeline, or `failed`."""

    name: str
    state: str
    progress: str = ""
    problem: str = ""  # since when and why it has failed, and what to do
    seconds: float = 0.0  # of processor time so far, with its part of what views share


@dataclass(frozen=True)
class OperatorStatus:
    """An operator with state: what it is, who uses it, how much it holds."""

    id: str
    what: str
    level: int
    users: tuple[str, ...]  # views that stand on it
    rows: int
    bytes: int
    seconds: float = 0.0  # of processor time so far


@dataclass(frozen=True)
class Status:
    """How a database stands at one look."""

    url: str
    epoch: int
    logs: tuple[LogStatus, ...]
    covered: int  # operations before the published cut
    written: int  # operations that the logs have taken
    lag: int  # operations that no published epoch covers
    lag_seconds: float  # age of the oldest write that no published epoch covers
    operations_per_second: float | None  # of the last epoch; None if it lies long back
    views: tuple[ViewStatus, ...]
    tables: tuple[str, ...]
    operators: tuple[OperatorStatus, ...]  # those with state, the largest first
    base_bytes: int
    state_bytes: int
    driver: str | None  # who holds the driver lease
    used_bytes: int = 0  # of the whole database
    max_bytes: int | None = None  # after which no rows are taken
    free_bytes: int | None = None  # on the disk
    refusal: str | None = None  # why no rows are taken now
    trouble: str | None = None  # failures since the last epoch was published
    slowest: EpochCost | None = None  # epoch of the last hour, with the operators that took most
    unreadable: tuple[UnreadableStatus, ...] = ()  # tables that others write
    essential_bytes: int = 0  # of rows of state that must stay
    evictable_bytes: int = 0  # of those that may go, key by key, to keep both within the bound
    memory_bound: int | None = None


@dataclass(frozen=True)
class UnreadableStatus:
    """Of a table's rows, those that are left out, and the cells that are read as NULL."""

    table: str
    rows: int
    cells: int
    last: str  # reason


def status_of(store: Store, catalog: Catalog, epochs: Epochs, url: str) -> Status:
    """Look at a database."""
    published = epochs.read().published
    head, sizes, current = store.log.head(), store.sizes(), catalog.current()
    logs = tuple(
        LogStatus(log, end, published.cut.position(log), sizes.log_operations.get(log, 0))
        for log, end in head.positions.items()
    )
    lease, costs = holder(store), read_costs(store)
    loads = Loads(store, load_plan(store, published.plan).program, published)
    spent = costs.of_views(current.program)
    memory = memory_of(store, current.program, sizes.tables)
    return Status(
        url=url,
        epoch=published.epoch,
        logs=logs,
        covered=published.cut.operations,
        written=head.operations,
        lag=max(0, head.operations - published.cut.operations),
        lag_seconds=0.0 if published.cut.covers(head) else lag_seconds(epochs, published),
        operations_per_second=_rate(published),
        views=tuple(
            replace(_view(name, epochs, current, url, loads), seconds=spent.get(name, (0.0, 0))[0])
            for name in sorted({*current.views, *current.unreadable, *successors(current)})
        ),
        tables=tuple(sorted(current.tables)),
        operators=_operators(current.program, sizes, costs),
        base_bytes=sizes.base_bytes,
        state_bytes=sizes.state_bytes,
        driver=None if lease is None else f"process {lease.pid} on {lease.host}",
        used_bytes=sizes.used_bytes,
        max_bytes=sizes.max_bytes,
        free_bytes=sizes.free_bytes,
        refusal=sizes.refusal,
        trouble=_trouble(store),
        slowest=_slowest(costs),
        unreadable=_unreadable(current, sizes),
        essential_bytes=memory.essential,
        evictable_bytes=memory.evictable,
        memory_bound=memory.bound,
    )


def _unreadable(current: PlanVersion, sizes: Sizes) -> tuple[UnreadableStatus, ...]:
    found = ((name, sizes.unreadable.get(current.tables[name].number)) for name in current.tables)
    return tuple(
        UnreadableStatus(name, one.rows, one.cells, one.last)
        for name, one in sorted(found)
        if one is not None
    )


def _operators(program: Program, sizes: Sizes, costs: Costs) -> tuple[OperatorStatus, ...]:
    users: dict[str, list[str]] = {}
    for name, placement in program.placements.items():
        for below in placement.operators:
            users.setdefault(below, []).append(name)
    found = []
    for operator in program.operators:
        held = [sizes.tables.get(table.number, TableSize()) for table in operator.tables]
        size = sum(held, TableSize())
        if operator.tables:
            names = tuple(sorted(users.get(operator.id, ())))
            what, spent = title(operator), costs.operators.get(operator.id, (0.0, 0))[0]
            figures = (operator.level, names, size.rows, size.bytes, spent)
            found.append(OperatorStatus(operator.id, what, *figures))
    return tuple(sorted(found, key=lambda operator: (-operator.bytes, operator.id)))


def successors(plan: PlanVersion) -> dict[str, str]:
    """The views that are to replace others, by the names they have until then, and whom."""
    named = (*plan.successors, *plan.views)
    known = {successor_name(name): name for name in named}
    there = {successor.apart.name for successor in plan.successors.values()}
    return {new: name for new, name in known.items() if new in there or new in plan.failed}


def _view(name: str, epochs: Epochs, plan: PlanVersion, url: str, loads: Loads) -> ViewStatus:
    failure = plan.failed.get(name)
    if failure is not None and (replaced := successors(plan).get(name)) is not None:
        problem = (
            f"the view that was to replace {replaced} failed at epoch {failure.epoch}: "
            f"{failure.reason}. {replaced} goes on as it was"
        )
        return ViewStatus(name, "failed", problem=problem)
    if failure is not None:
        return ViewStatus(name, "failed", problem=str(view_failed(name, failure, url)))
    if (reason := plan.unreadable.get(name)) is not None:
        return ViewStatus(name, "failed", problem=str(view_unreadable(name, reason)))
    progress = loading_of(epochs, name)
    if progress is None:
        return ViewStatus(name, "waiting")
    if not progress:
        return ViewStatus(name, "ready")
    placement = loads.program.placements.get(name)
    load = None if placement is None else loads.of(placement)
    parts = (progress, "" if load is None else str(load))
    return ViewStatus(name, "loading", ", ".join(filter(None, parts)))


def _slowest(costs: Costs) -> EpochCost | None:
    """The slowest of those that are not older than an hour."""
    recent = [one for one in costs.slowest if time.time_ns() - one.at < 3600 * 10**9]
    return max(recent, key=lambda one: one.seconds, default=None)


def _trouble(store: Store) -> str | None:
    trouble = trouble_of(store)
    if trouble is None:
        return None
    times = "once" if trouble.count == 1 else f"{trouble.count} times"
    pause = (trouble.retry_at - time.time_ns()) / 1e9
    later = f"; the next attempt is in {pause:.0f} s" if pause > 0.5 else ""
    return f"the pipeline has failed {times} since epoch {trouble.after}: {trouble.reason}{later}"


def _rate(published: Published) -> float | None:
    """Operations per second of the last epoch; None if it lies long back or held none."""
    recent = time.time_ns() - published.at < RECENT_SECONDS * 1e9
    if not recent or not published.operations or not published.seconds:
        return None
    return published.operations / published.seconds


def line(status: Status) -> str:
    """A status as one line."""
    parts = [f"epoch {status.epoch}", f"{status.lag:,} operations behind"]
    if status.lag:
        parts.append(f"{status.lag_seconds:.1f} s")
    if status.operations_per_second:
        parts.append(f"{status.operations_per_second:,.0f} operations/s")
    for state in ("waiting", "loading", "failed"):
        views = [view for view in status.views if view.state == state]
        if views:
            names = [f"{view.name} {view.progress}".strip() for view in views]
            parts.append(f"{state} {', '.join(names)}")
    if status.refusal:
        parts.append("takes no rows: " + status.refusal)
    if status.trouble:
        parts.append(status.trouble)
    return " · ".join(parts)


def render(status: Status) -> Group:
    """A status for the terminal."""
    logs = Table("log", "end", "published", "behind", "kept", header_style="bold")
    for log in status.logs:
        figures = (log.end, log.published, log.lag, log.kept)
        logs.add_row(log.log, *[f"{figure:,}" for figure in figures])
    views = Table("view", "state", "loaded", header_style="bold")
    views.add_column("processor", justify="right")
    whole = sum(view.seconds for view in status.views)
    for view in status.views:
        views.add_row(view.name, view.state, view.progress, _spent(view.seconds, whole))
    sizes = f"base {_size(status.base_bytes)} · {_state(status)} · {_room(status)}"
    driver = f"driver: {status.driver or 'none (start one: viewkeep run ' + status.url + ')'}"
    top = Text(f"{status.url} · {line(status)}", style="bold")
    tables = f"tables: {', '.join(status.tables) or 'none'}"
    parts: list[Table | Text] = [views, _state_table(status)] if status.views else []
    parts += [Text(view.problem, style="red") for view in status.views if view.problem]
    parts += [Text(_unreadable_told(one), style="yellow") for one in status.unreadable]
    return Group(top, logs, *parts, f"{tables}\n{sizes}\n{driver}{_slowest_told(status)}")


def _unreadable_told(found: UnreadableStatus) -> str:
    """What of a table views do not have; a row counts each time it is read."""
    return (
        f"table {found.table}: {found.rows:,} row keys could not be read and were left out, "
        f"{found.cells:,} cells are NULL; the last: {found.last}"
    )


def _slowest_told(status: Status) -> str:
    """The slowest epoch of the last hour, and the operator that took most of it."""
    slow = status.slowest
    if slow is None:
        return ""
    told = f"{slow.seconds:.2f} s for {slow.operations:,} operations"
    names = {operator.id: operator.what for operator in status.operators}
    name, seconds, rows = next(iter(slow.operators), ("", 0.0, 0))
    most = f"; {seconds:.2f} s of it {names[name]}, {rows:,} rows" if name in names else ""
    return f"\nslowest epoch of the last hour: {slow.epoch} took {told}{most}"


def _state(status: Status) -> str:
    """What the files of state hold; of its rows, how many may go, and the bound."""
    told = f"state {_size(status.state_bytes)}"
    if status.evictable_bytes or status.memory_bound is not None:
        rows = f"rows {_size(status.essential_bytes)} and {_size(status.evictable_bytes)} evictable"
        bound = status.memory_bound
        told += f" ({rows}{'' if bound is None else f', at most {_size(bound)}'})"
    return told


def _room(status: Status) -> str:
    """What is in use, the limit, and what the disk has left."""
    most = "" if status.max_bytes is None else f" of at most {_size(status.max_bytes)}"
    free = "" if status.free_bytes is None else f" · disk {_size(status.free_bytes)} free"
    return f"in use {_size(status.used_bytes)}{most}{free}"


def _state_table(status: Status) -> Table:
    """The largest operators, with who uses them."""
    names = ("state of", "level", "rows", "size", "processor", "used by")
    made = Table(*names, header_style="bold")
    whole = sum(operator.seconds for operator in status.operators)
    for operator in status.operators[:_SHOWN]:
        users = ", ".join(operator.users[:3])
        if len(operator.users) > 3:
            users += f" and {len(operator.users) - 3} more"
        what = operator.what if len(operator.what) <= 60 else operator.what[:59] + "…"
        figures = (f"{operator.rows:,}", _size(operator.bytes), _spent(operator.seconds, whole))
        made.add_row(what, str(operator.level), *figures, users)
    if len(status.operators) > _SHOWN:
        made.add_row(f"and {len(status.operators) - _SHOWN} more", "", "", "", "", "")
    return made


def _spent(seconds: float, whole: float) -> str:
    """Processor time, and its share of that of all."""
    return f"{seconds:.2f} s ({seconds / whole:.0%})" if whole else ""


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")

"""The command that says what the views of a running pipeline cost, and what to do: profile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

import viewkeep
from viewkeep.cli.app import Json, Url, UrlCommand, app
from viewkeep.cli.output import console, print_json

if TYPE_CHECKING:
    from viewkeep.engine.costs import Costs
    from viewkeep.plan.program import Program

_SHOWN = 12  # views and operators
_LARGE_SHARE = 0.2  # of the processor time of all operators
_FEW_OPERATIONS = 20  # per epoch, where most of the time is the epochs' own
_FAN_OUT = 20  # changed rows for one operation


@app.command(cls=UrlCommand)
def profile(
    url: Url,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to look.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Say what each view of a running pipeline costs, for a minute, and what to do about it.

    Example: viewkeep profile news.vk --seconds 10
    """
    from viewkeep.engine.costs import read_costs

    with viewkeep.open(url, create=False) as db:
        before = read_costs(db.store)
        began = time.monotonic()
        with console.status(f"watching {url} for {seconds:g} s"):
            time.sleep(seconds)
        costs, took = read_costs(db.store).since(before), time.monotonic() - began
        program = db.catalog.current().program
    advice = list(_advice(program, costs, took))
    if as_json:
        views = {
            view: {"seconds": spent, "rows": rows}
            for view, (spent, rows) in costs.of_views(program).items()
        }
        print_json(
            {
                "watched": took,
                "epochs": costs.epochs,
                "operations": costs.operations,
                "processor_seconds": costs.seconds,
                "views": views,
                "operators": [
                    {"operator": what, "views": users, "seconds": spent, "rows": rows}
                    for what, users, spent, rows in _operators(program, costs)
                ],
                "advice": advice,
            }
        )
        return
    console.print(
        f"{costs.epochs:,} epochs with {costs.operations:,} operations in {took:.0f} s: "
        f"{costs.seconds:.2f} s of processor time, {100 * costs.seconds / took:.0f} % of a core"
    )
    if costs.operators:
        console.print(_views_table(program, costs))
        console.print(_operators_table(program, costs))
    for line in advice:
        console.print(f"· {line}", highlight=False)


def _operators(program: Program, costs: Costs) -> list[tuple[str, list[str], float, int]]:
    """What each operator or table is, which views stand on it, and its cost; the dearest first."""
    from viewkeep.engine.blame import described, views_on

    found = []
    for name, (spent, rows) in costs.operators.items():
        if users := sorted(views_on(program, name)):  # else it has left the plan
            found.append((described(program, name), users, spent, rows))
    return sorted(found, key=lambda one: -one[2])


def _views_table(program: Program, costs: Costs) -> Table:
    table = Table("view", header_style="bold")
    for heading in ("processor", "share", "per epoch", "rows changed"):
        table.add_column(heading, justify="right")
    views = costs.of_views(program)
    whole = sum(spent for spent, _ in views.values()) or 1.0
    for view in sorted(views, key=lambda view: -views[view][0])[:_SHOWN]:
        spent, rows = views[view]
        each = 1e3 * spent / max(1, costs.epochs)
        share = f"{spent / whole:.0%}"
        table.add_row(view, f"{spent:.2f} s", share, f"{each:.2f} ms", f"{rows:,}")
    if len(views) > _SHOWN:
        table.add_row(f"and {len(views) - _SHOWN:,} more", "", "", "", "")
    return table


def _operators_table(program: Program, costs: Costs) -> Table:
    table = Table("operator", "used by", header_style="bold")
    table.add_column("processor", justify="right")
    table.add_column("rows changed", justify="right")
    for what, users, spent, rows in _operators(program, costs)[:_SHOWN]:
        used = ", ".join(users[:3]) + (f" and {len(users) - 3} more" if len(users) > 3 else "")
        table.add_row(what, used, f"{spent:.2f} s", f"{rows:,}")
    return table


def _advice(program: Program, costs: Costs, took: float) -> Iterator[str]:
    """What stands out, and what would help."""
    if not costs.epochs:
        yield (
            "No epoch was published in this time: nothing was written, or no pipeline runs "
            "(viewkeep status says which)."
        )
        return
    operators = _operators(program, costs)
    inside = sum(spent for _, _, spent, _ in operators)
    if costs.operations < _FEW_OPERATIONS * costs.epochs and inside < costs.seconds / 2:
        each = costs.operations / costs.epochs
        yield (
            f"An epoch has {each:.1f} operations, and most of its time is not the views' own. "
            "Fewer, larger epochs take less: viewkeep run --every 0.5, if views may be that late."
        )
    for what, users, spent, rows in operators[:3]:
        if spent < _LARGE_SHARE * inside:
            continue
        if what.startswith("⋈") and rows > _FAN_OUT * costs.operations:
            met = rows / max(1, costs.operations)
            yield (
                f"{what} ({users[0]}) changes {met:,.0f} rows for each operation: a row meets many "
                "rows of the other side. Aggregate that side before the join, or join on more "
                "columns."
            )
        elif what.startswith("⊞"):
            yield (
                f"{what} ({users[0]}) computes a changed partition anew. Partition by more "
                "columns, or ask for the first rows alone: QUALIFY ROW_NUMBER() <= n."
            )
        elif what.startswith("γ") and rows > _FAN_OUT * costs.operations:
            yield f"{what} ({users[0]}) changes many groups for each operation; is its key meant?"
        elif spent > 0.5 * inside:
            yield (
                f"{what} ({', '.join(users[:3])}) takes {spent / inside:.0%} of the views' time: "
                f"viewkeep explain {users[0]} shows what it reads."
            )
    if costs.seconds > 0.9 * took:
        yield (
            "The pipeline uses a whole core or more. More shards and cores share the work of large "
            "epochs; --every lessens that of small ones."
        )

"""Runs experiments one after the other and says what came of each system.

Law: every system of every experiment has exactly one entry: `ok` with figures, `failed` with the
difference or the error, or `not measured` with the reason.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from suite.bench import Bench
from suite.contract import Experiment, NotMeasured, Result, System, Workload, Wrong
from suite.equality import difference

Entry = dict[str, Any]


def run(
    workloads: Iterable[Workload],
    bench: Bench,
    console: Console,
    only: Container[tuple[str, str]] | None = None,
) -> list[Entry]:
    """All experiments of some workloads, or `only` those with these names of both."""
    planned = [
        (one.name, what)
        for one in workloads
        for what in one.experiments(bench)
        if only is None or (one.name, what.name) in only
    ]
    entries: list[Entry] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=sum(len(what.systems) for _, what in planned))
        for workload, experiment in planned:
            expected: Result | None = None
            for system, act in experiment.systems.items():
                progress.update(bar, description=f"{workload}: {title(experiment)}, {system}")
                if expected is None and experiment.expected is not None:
                    expected = experiment.expected()
                entry = _entry(workload, experiment, system, act, bench.size.runs, expected)
                entries.append(entry)
                console.print(_line(entry), highlight=False)
                progress.advance(bar)
    return entries


def title(experiment: Experiment) -> str:
    """The experiment's name, with the place on its axis."""
    if experiment.axis is None:
        return experiment.name
    return f"{experiment.name}, {experiment.axis[1]:,.10g} {experiment.axis[0]}"


def _entry(
    workload: str,
    experiment: Experiment,
    system: str,
    act: System,
    runs: int,
    expected: Result | None,
) -> Entry:
    entry: Entry = {
        "workload": workload,
        "experiment": experiment.name,
        "title": title(experiment),
        "axis": list(experiment.axis) if experiment.axis else None,
        "system": system,
        "status": "ok",
        "figures": {},
        "versions": {},
    }
    began = time.perf_counter()
    try:
        outcome = act(runs)
        if expected is not None:
            if outcome.result is None:
                raise Wrong("it gave no rows to check")
            told = difference(outcome.result, expected)
            if told:
                raise Wrong(f"its result differs: {told}")
        entry["figures"] = figures(outcome.samples)
        entry["versions"] = dict(outcome.versions)
    except NotMeasured as reason:
        entry |= {"status": "not measured", "reason": str(reason)}
    except Exception as error:  # one system that fails must not end the run of the others
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        entry |= {"status": "failed", "reason": f"{type(error).__name__}: {error}{notes}"}
    entry["seconds"] = round(time.perf_counter() - began, 1)
    return entry


def figures(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The values of each run with their median, the least and the most."""
    return {
        name: {
            "median": statistics.median(values),
            "least": min(values),
            "most": max(values),
            "runs": list(values),
        }
        for name, values in samples.items()
        if values
    }


def _line(entry: Entry) -> str:
    head = f"{entry['workload']}: {entry['title']}, {entry['system']}"
    if entry["status"] != "ok":
        return f"[red]{head}: {entry['status']}[/red]: {entry['reason']}"
    shown = [f"{name} {shorten(figure['median'])}" for name, figure in entry["figures"].items()]
    return f"{head}: {'; '.join(shown)}"


def shorten(value: float) -> str:
    """A figure to three or four digits."""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"

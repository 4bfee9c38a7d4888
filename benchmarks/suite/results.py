"""What a run leaves: one JSON document with the machine, the versions, the commit and all entries.

Committed results are `benchmarks/results/latest.json`, one run for each size. Ratios compare
figures of one run with one another, so that they hold on other machines too: how many times better
viewkeep is than another system, and how well a figure holds along an axis. More is always better.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from suite.contract import OURS, Size, higher_is_better
from suite.runner import Entry, figures, shorten

ROOT = Path(__file__).parents[2]
LATEST = Path("benchmarks", "results", "latest.json")
PACKAGES = ("viewkeep", "pyspark", "lmdb", "polars", "pyarrow", "duckdb", "numpy")
Run = dict[str, Any]


def describe(size: Size, entries: list[Entry]) -> Run:
    """The document of a run."""
    commit = _said("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12")
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "size": size.name,
        "work": {name: getattr(size, name) for name in ("operations", "runs", "seconds")},
        "commit": commit,
        "machine": machine(),
        "versions": {name: version(name) for name in PACKAGES} | _peer_versions(entries),
        "entries": [{**entry, "commit": commit} for entry in entries],
    }


def machine() -> dict[str, Any]:
    """Cores, memory, Python, Java."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory, GiB": round(memory / 2**30, 1),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _said("java", "-version").partition("\n")[0],
    }


def save(run: Run, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=1) + "\n")


def committed(root: Path = ROOT) -> dict[str, Run]:
    """The committed run of each size."""
    path = root / LATEST
    return json.loads(path.read_text()) if path.exists() else {}


def show(run: Run, console: Console) -> None:
    """All figures, then what has none."""
    table = Table("workload", "experiment", "system", "figure", "median", "least to most")
    for entry in run["entries"]:
        for name, figure in entry["figures"].items():
            spread = f"{shorten(figure['least'])} to {shorten(figure['most'])}"
            cells = (entry["workload"], entry["title"], entry["system"], name)
            table.add_row(*cells, shorten(figure["median"]), spread)
    console.print(table)
    for entry in run["entries"]:
        if entry["status"] != "ok":
            head = f"{entry['workload']}: {entry['title']}, {entry['system']}"
            console.print(f"{head}: {entry['status']}: {entry['reason']}", markup=False)


class Ratio(NamedTuple):
    """What is compared: a figure of an experiment, with another system or along an axis."""

    workload: str
    experiment: str
    what: str

    def __str__(self) -> str:
        return f"{self.workload}: {self.what}"

    @property
    def place(self) -> tuple[str, str]:
        return self.workload, self.experiment


def ratios(run: Run) -> dict[Ratio, float]:
    """All ratios of a run."""
    return against_others(run) | dict(_along_axes(run["entries"]))


def against_others(run: Run) -> dict[Ratio, float]:
    """How many times better viewkeep is than each other system."""
    return dict(_against_others(run["entries"]))


def pooled(run: Run, more: Run) -> Run:
    """A run with the samples of another run of the same work added to its own.

    An experiment that failed in one of them has failed.
    """
    further = {(*_place(entry), entry["system"]): entry for entry in more["entries"]}

    def added(entry: Entry) -> Entry:
        again = further.get((*_place(entry), entry["system"]))
        if again is None or entry["status"] != "ok":
            return entry
        if again["status"] != "ok":
            return again
        samples = {
            name: [*figure["runs"], *again["figures"][name]["runs"]]
            for name, figure in entry["figures"].items()
        }
        return {**entry, "figures": figures(samples)}

    return {**run, "entries": [added(entry) for entry in run["entries"]]}


def _against_others(entries: list[Entry]) -> Iterator[tuple[Ratio, float]]:
    ours = {_place(entry): entry for entry in entries if entry["system"] == OURS}
    for entry in entries:
        mine = ours.get(_place(entry))
        if entry["system"] == OURS or mine is None:
            continue
        for figure in filter(_steady, entry["figures"].keys() & mine["figures"].keys()):
            what = f"{entry['title']}: {figure}: than {entry['system']}"
            ratio = Ratio(entry["workload"], entry["experiment"], what)
            yield ratio, _better(figure, _median(mine, figure), _median(entry, figure))


def _along_axes(entries: list[Entry]) -> Iterator[tuple[Ratio, float]]:
    families: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry["axis"] and entry["system"] == OURS:
            families.setdefault((entry["workload"], entry["experiment"]), []).append(entry)
    for (workload, experiment), family in families.items():
        first = min(family, key=lambda entry: entry["axis"][1])
        last = max(family, key=lambda entry: entry["axis"][1])
        if first is last:
            continue
        for figure in filter(_steady, first["figures"].keys() & last["figures"].keys()):
            what, start, end = first["axis"][0], first["axis"][1], last["axis"][1]
            told = f"{experiment}: {figure}: {start:,g} to {end:,g} {what}"
            ratio = Ratio(workload, experiment, told)
            yield ratio, _better(figure, _median(last, figure), _median(first, figure))


def _steady(figure: str) -> bool:
    """Whether a figure repeats well enough to be compared: tails of a distribution do not."""
    return not figure.startswith("share") and "p95" not in figure and "p99" not in figure


def _better(figure: str, one: float, other: float) -> float:
    """How many times better one value is than another."""
    if not higher_is_better(figure):
        one, other = other, one
    return one / other if other else float("inf")


def _median(entry: Entry, figure: str) -> float:
    return float(entry["figures"][figure]["median"])


def _place(entry: Entry) -> tuple[str, str]:
    return entry["workload"], entry["title"]


def _peer_versions(entries: list[Entry]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        found |= {name: told for name, told in entry["versions"].items() if name not in PACKAGES}
    return found


def _said(*command: str) -> str:
    """What a program printed, wherever it prints; nothing if it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip()

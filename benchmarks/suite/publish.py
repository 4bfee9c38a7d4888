"""Puts a run where readers find it: committed results, the tables of docs/benchmarks.md, the plots.

The page keeps its words; what lies between the two markers is written anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from suite.contract import OURS
from suite.peers import PEERS
from suite.plots import plots
from suite.results import LATEST, Run, against_others, committed
from suite.runner import Entry, shorten

PAGE = Path("docs", "benchmarks.md")
FIGURES = Path("docs", "figures")
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def publish(run: Run, root: Path) -> None:
    """Write a run below `root`. Sizes other than this one stay as they were committed.

    A run of some workloads replaces those alone.
    """
    runs = committed(root)
    before = runs.get(run["size"])
    if before is not None:
        measured = {entry["workload"] for entry in run["entries"]}
        kept = [entry for entry in before["entries"] if entry["workload"] not in measured]
        versions = {**before["versions"], **run["versions"]}
        run = {**run, "versions": versions, "entries": [*kept, *run["entries"]]}
    runs[run["size"]] = run
    path = root / LATEST
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(runs, indent=1) + "\n")
    shown = runs.get("full", run)
    folder = root / FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    names = plots(shown, folder)
    _replace(root / PAGE, "\n".join(tables(shown, names)))


def tables(run: Run, figures: dict[str, list[str]]) -> Iterator[str]:
    """The generated part of the page: where and when, then a table for each workload."""
    machine, versions = run["machine"], run["versions"]
    yield f"Size `{run['size']}`, {run['at'][:10]}, commit {run['commit']}; "
    yield f"{machine['cores']} cores, {machine['memory, GiB']} GiB, {machine['java']}."
    yield f"Versions: {', '.join(f'{name} {told}' for name, told in versions.items())}."
    workloads = dict.fromkeys(entry["workload"] for entry in run["entries"])
    for workload in workloads:
        entries = [entry for entry in run["entries"] if entry["workload"] == workload]
        yield f"\n### {workload}\n"
        others = {entry["commit"] for entry in entries} - {run["commit"]}
        if others:
            yield f"Measured at commit {', '.join(sorted(others))}.\n"
        yield from _pivot(entries)
        for name in figures.get(workload, []):
            yield f"\n![{workload}, plotted](figures/{name})"
    yield from _losses(run)
    yield "\n### What the peers do not do\n"
    yield "| peer | what it does not do |\n|---|---|"
    for spec in {spec.module: spec for spec in PEERS.values()}.values():
        yield f"| {spec.title.partition(',')[0]} | {spec.lacks()} |"


def _losses(run: Run) -> Iterator[str]:
    """Every figure in which another system is ahead."""
    yield "\n### Where viewkeep is behind\n"
    lost = {name: ratio for name, ratio in against_others(run).items() if ratio < 1}
    if not lost:
        yield "In no figure of this run."
        return
    yield "| figure | the other is ahead, times |\n|---|---:|"
    for name, ratio in sorted(lost.items()):
        yield f"| {str(name).replace(': than ', ': ')} | {1 / ratio:.2f} |"


def _pivot(entries: list[Entry]) -> Iterator[str]:
    """A row for each figure of an experiment, a column for each system."""
    systems = list(dict.fromkeys([OURS, *(entry["system"] for entry in entries)]))
    yield f"| experiment | figure | {' | '.join(systems)} |"
    yield f"|---|---|{'---:|' * len(systems)}"
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for entry in entries:
        for name, figure in entry["figures"].items():
            median, least, most = (shorten(figure[key]) for key in ("median", "least", "most"))
            text = median if least == most else f"{median} ({least} to {most})"
            cells.setdefault((entry["title"], name), {})[entry["system"]] = text
    for (title, figure), row in cells.items():
        yield f"| {title} | {figure} | {' | '.join(row.get(name, '') for name in systems)} |"
    for entry in entries:
        if entry["status"] != "ok":
            reason = " ".join(entry["reason"].split())[:200]
            yield f"\n*{entry['title']}, {entry['system']}: {entry['status']}:* {reason}"


def _replace(page: Path, text: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    old = page.read_text() if page.exists() else f"{BEGIN}\n{END}\n"
    head, _, rest = old.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")

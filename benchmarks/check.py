"""Compares a run with the committed one of its size; fails where a ratio fell by more than 25 %.

    make bench-check                a quick run, then the comparison
    make bench-check JSON=out.json  the comparison alone

Ratios only (`suite/results.py`): viewkeep against each peer within a run, and growth along an axis.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import run as bench
from rich.console import Console
from rich.table import Table
from suite import results
from suite.contract import OURS
from suite.results import Run

ALLOWED = 0.25


def fallen(now: Run, before: Run, allowed: float = ALLOWED) -> list[tuple[str, float, float]]:
    """Ratios that are worse than allowed: (name, committed, now)."""
    old, new = results.ratios(before), results.ratios(now)
    return [
        (name, old[name], new[name])
        for name in sorted(old.keys() & new.keys())
        if new[name] < (1 - allowed) * old[name]
    ]


def broken(now: Run) -> list[str]:
    """Experiments in which viewkeep itself failed."""
    return [
        f"{entry['workload']}: {entry['title']}: {entry['reason']}"
        for entry in now["entries"]
        if entry["system"] == OURS and entry["status"] == "failed"
    ]


def missing(now: Run, before: Run) -> list[str]:
    """Ratios that were committed and cannot be compared now."""
    return sorted(results.ratios(before).keys() - results.ratios(now).keys())


def main(given: list[str] | None = None, root: Path = results.ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="a run's results; without it a quick run is made")
    arguments, further = parser.parse_known_args(given)
    console = Console()
    if arguments.json:
        now = json.loads(arguments.json.read_text())
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "now.json"
            bench.main(["--quick", "--json", str(path), *further])
            now = json.loads(path.read_text())
    before = results.committed(root).get(now["size"])
    if before is None:
        console.print(f"no run of size {now['size']} is committed in {results.LATEST}")
        return 2
    if before["work"] != now["work"]:
        console.print(f"the committed run did {before['work']}, this one {now['work']}")
        return 2
    return report(now, before, console)


def report(now: Run, before: Run, console: Console) -> int:
    """Say what fell, what broke and what could not be compared; the exit code."""
    worse, failed = fallen(now, before), broken(now)
    measured = {entry["workload"] for entry in now["entries"]}
    absent = [name for name in missing(now, before) if name.partition(":")[0] in measured]
    if worse:
        table = Table("ratio (more is better)", "committed", "now", "change")
        for name, old, new in worse:
            table.add_row(name, f"{old:.2f}", f"{new:.2f}", f"{new / old - 1:+.0%}")
        console.print(table)
    for line in failed:
        console.print(f"failed: {line}", markup=False)
    for name in absent:
        console.print(f"not compared: {name}", markup=False)
    compared = len(results.ratios(before).keys() & results.ratios(now).keys())
    console.print(f"{compared} ratios compared, {len(worse)} fell by more than {ALLOWED:.0%}")
    return 1 if worse or failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

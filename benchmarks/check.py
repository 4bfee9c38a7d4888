"""Compares a run with the committed one of its size; fails where a ratio fell by more than 25 %.

    make bench-check                a quick run, then the comparison
    make bench-check JSON=out.json  the comparison alone

Ratios only (`suite/results.py`): viewkeep against each peer within a run, and growth along an axis.
A quick run is short and machines have bad minutes: what fell is measured again, twice at most, and
judged by the medians of all its runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import run as bench
from rich.console import Console
from rich.table import Table
from suite import results
from suite.contract import OURS
from suite.results import Ratio, Run

ALLOWED = 0.25
AGAIN = 2


def fallen(now: Run, before: Run, allowed: float = ALLOWED) -> list[tuple[Ratio, float, float]]:
    """Ratios that are worse than allowed: (what, committed, now)."""
    old, new = results.ratios(before), results.ratios(now)
    return [
        (ratio, old[ratio], new[ratio])
        for ratio in sorted(old.keys() & new.keys())
        if new[ratio] < (1 - allowed) * old[ratio]
    ]


def settled(now: Run, before: Run, measure: Callable[[set[tuple[str, str]]], Run]) -> Run:
    """The run with further samples of the experiments in which a ratio fell."""
    for _ in range(AGAIN):
        places = {ratio.place for ratio, _, _ in fallen(now, before)}
        if not places:
            break
        now = results.pooled(now, measure(places))
    return now


def broken(now: Run) -> list[str]:
    """Experiments in which viewkeep itself failed."""
    return [
        f"{entry['workload']}: {entry['title']}: {entry['reason']}"
        for entry in now["entries"]
        if entry["system"] == OURS and entry["status"] == "failed"
    ]


def missing(now: Run, before: Run) -> list[Ratio]:
    """Ratios that were committed and cannot be compared now."""
    return sorted(results.ratios(before).keys() - results.ratios(now).keys())


def main(given: list[str] | None = None, root: Path = results.ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="a run's results; without it a quick run is made")
    arguments, further = parser.parse_known_args(given)
    console = Console()
    asked = bench.parse(["--quick", *further])
    if arguments.json:
        now = json.loads(arguments.json.read_text())
    else:
        now = bench.measure(asked, console)
    before = results.committed(root).get(now["size"])
    if before is None:
        console.print(f"no run of size {now['size']} is committed in {results.LATEST}")
        return 2
    if before["work"] != now["work"]:
        console.print(f"the committed run did {before['work']}, this one {now['work']}")
        return 2

    def again(places: set[tuple[str, str]]) -> Run:
        console.print(f"measured again: {'; '.join(': '.join(place) for place in sorted(places))}")
        return bench.measure(asked, console, places)

    return report(now if arguments.json else settled(now, before, again), before, console)


def report(now: Run, before: Run, console: Console) -> int:
    """Say what fell, what broke and what could not be compared; the exit code."""
    worse, failed = fallen(now, before), broken(now)
    measured = {entry["workload"] for entry in now["entries"]}
    absent = [ratio for ratio in missing(now, before) if ratio.workload in measured]
    if worse:
        table = Table("ratio (more is better)", "committed", "now", "change")
        for ratio, old, new in worse:
            table.add_row(str(ratio), f"{old:.2f}", f"{new:.2f}", f"{new / old - 1:+.0%}")
        console.print(table)
    for line in failed:
        console.print(f"failed: {line}", markup=False)
    for ratio in absent:
        console.print(f"not compared: {ratio}", markup=False)
    compared = len(results.ratios(before).keys() & results.ratios(now).keys())
    console.print(f"{compared} ratios compared, {len(worse)} fell by more than {ALLOWED:.0%}")
    return 1 if worse or failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

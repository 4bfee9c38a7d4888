"""Runs the benchmark suite: every workload on every system, in one run on one machine.

    make bench                          all of it, some 30 minutes
    make bench QUICK=1                  smaller, some minutes
    make bench WORKLOAD=vote JSON=out.json PEERS=flink,pathway

`--publish` writes the committed results, the tables of docs/benchmarks.md and the plots.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Container
from pathlib import Path

from rich.console import Console
from suite import results
from suite.bench import Bench
from suite.contract import SIZES
from suite.peers import PEERS
from suite.publish import publish
from suite.runner import run
from suite.workloads import OPTIONAL, WORKLOADS


def parse(given: list[str] | None = None) -> argparse.Namespace:
    known = {one.name: one for one in (*WORKLOADS, *OPTIONAL)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(known))
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--quick", action="store_const", dest="size", const="quick")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--peers", help=f"only these, or none: {','.join(PEERS)}")
    parser.add_argument("--operations", type=int, help="instead of the size's own number")
    parser.add_argument("--seconds", type=float, help="of experiments at an offered load")
    parser.add_argument("--runs", type=int, help="of each system")
    parser.add_argument("--publish", type=Path, nargs="?", const=results.ROOT, metavar="FOLDER")
    arguments = parser.parse_args(given)
    if arguments.publish and (arguments.operations or arguments.seconds or arguments.runs):
        parser.error("only a run of a size as it is can be published")
    for name in arguments.workloads:
        if name not in known:
            parser.error(f"there is no workload {name}; there are {', '.join(known)}")
    chosen = arguments.peers
    names = (
        list(PEERS) if chosen is None else [n for n in chosen.split(",") if n not in ("", "none")]
    )
    for name in names:
        if name not in PEERS:
            parser.error(f"there is no peer {name}; there are {', '.join(PEERS)}")
    arguments.peers = {name: PEERS[name] for name in names}
    wanted = arguments.workloads or [one.name for one in WORKLOADS]
    arguments.workloads = [known[name] for name in wanted]
    changed = {name: getattr(arguments, name) for name in ("operations", "seconds", "runs")}
    changed["soak"] = arguments.seconds
    arguments.size = dataclasses.replace(
        SIZES[arguments.size], **{name: value for name, value in changed.items() if value}
    )
    return arguments


def measure(
    arguments: argparse.Namespace,
    console: Console,
    only: Container[tuple[str, str]] | None = None,
) -> results.Run:
    """Run what was asked for, or `only` some experiments of it."""
    with (
        tempfile.TemporaryDirectory(prefix="viewkeep-bench-") as folder,
        Bench(arguments.size, Path(folder), arguments.peers) as bench,
    ):
        return results.describe(arguments.size, run(arguments.workloads, bench, console, only))


def main(given: list[str] | None = None) -> int:
    arguments = parse(given)
    console = Console()
    made = measure(arguments, console)
    results.show(made, console)
    if arguments.json:
        results.save(made, arguments.json)
    if arguments.publish:
        publish(made, arguments.publish)
    return 1 if any(entry["status"] == "failed" for entry in made["entries"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())

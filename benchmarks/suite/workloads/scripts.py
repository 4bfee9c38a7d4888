"""Reads in process and over the MySQL protocol: `benchmarks/reads.py` and `benchmarks/wire.py`.

Both are scripts of their own that check what they read and fail if it is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

from suite.bench import Bench
from suite.contract import OURS, Experiment, NotMeasured, Outcome, Workload

FOLDER = Path(__file__).parents[2]
MARIADB = "MariaDB"
Samples = dict[str, list[float]]


class Reads(Workload):
    """How fast are rows of a view read in the application's own process?"""

    name = "reads"

    def experiments(self, bench: Bench) -> list[Experiment]:
        return [Experiment("reads in process", {OURS: partial(self._run, bench)})]

    def _run(self, bench: Bench, runs: int) -> Outcome:
        rows, reads = bench.size.pick((1_000_000, 100_000), (100_000, 20_000), (1_000, 10_000))
        samples: Samples = {}
        for _ in range(runs):
            path = bench.place("reads")
            _call("reads", "--rows", str(rows), "--reads", str(reads), "--json", str(path))
            for what, figures in json.loads(path.read_text()).items():
                for name, value in figures.items():
                    unit = ", us" if name.startswith("p") else ""
                    samples.setdefault(f"{what}: {name}{unit}", []).append(value)
        return Outcome(samples)


class Wire(Workload):
    """How long does a point SELECT take over the MySQL protocol, beside MariaDB's?"""

    name = "wire"

    def experiments(self, bench: Bench) -> list[Experiment]:
        measured = cache(partial(self._measure, bench))
        return [
            Experiment(
                "point SELECT by PyMySQL",
                {
                    OURS: lambda runs: Outcome(measured(runs)["viewkeep"]),
                    MARIADB: lambda runs: Outcome(measured(runs)["mariadb"]),
                },
            )
        ]

    def _measure(self, bench: Bench, runs: int) -> dict[str, Samples]:
        found: dict[str, Samples] = {"viewkeep": {}, "mariadb": {}}
        reads = bench.size.pick(5_000, 1_000, 200)
        for _ in range(runs):
            said = _call("wire", "--reads", str(reads))
            figures = json.loads(said.strip().rpartition("\n")[2])
            for name, value in figures.items():
                server, _, figure = name.partition(" ")
                if server in found:
                    found[server].setdefault(figure, []).append(value)
        return found


def _call(name: str, *arguments: str) -> str:
    """What a script printed."""
    script = FOLDER / f"{name}.py"
    if not script.exists():
        raise NotMeasured(f"there is no benchmarks/{script.name}")
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script.name} failed: {done.stderr.strip()[-1500:]}")
    return done.stdout

"""Reads in process and over connections: `benchmarks/reads.py` and `benchmarks/wire.py`.

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
MARIADB, REDIS = "MariaDB", "Redis"
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
    """How long does a read by key take over a connection, beside MariaDB and Redis?"""

    name = "wire"
    PAIRS = {
        "point SELECT by PyMySQL": {OURS: "viewkeep by PyMySQL", MARIADB: "MariaDB by PyMySQL"},
        "point read by a socket": {OURS: "viewkeep by HTTP", REDIS: "Redis"},
    }

    def experiments(self, bench: Bench) -> list[Experiment]:
        measured = cache(partial(self._measure, bench))

        def outcome(reader: str, runs: int) -> Outcome:
            return Outcome(measured(runs)[reader])

        return [
            Experiment(what, {system: partial(outcome, reader) for system, reader in pair.items()})
            for what, pair in self.PAIRS.items()
        ]

    def _measure(self, bench: Bench, runs: int) -> dict[str, Samples]:
        found: dict[str, Samples] = {}
        reads = bench.size.pick(5_000, 1_000, 200)
        for _ in range(runs):
            said = _call("wire", "--reads", str(reads))
            for name, value in json.loads(said.strip().rpartition("\n")[2]).items():
                reader, _, figure = name.partition(": ")
                if figure:
                    found.setdefault(reader, {}).setdefault(figure, []).append(value)
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

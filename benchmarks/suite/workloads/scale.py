"""What state on the workers' own disks costs, beside state in the store: `benchmarks/scale.py`.

The same votes go to four databases by turns, each of which ends with the same rows.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from random import Random

import scale

from suite.bench import Bench
from suite.contract import OURS, Experiment, Outcome, Workload, Wrong

# One figure for each way to keep state, so that ratios between them are of one run.
WAYS = ("embedded", "sticky", "taken over", "new machine")


class Scale(Workload):
    """What does an epoch cost whose state lies on a worker's disk, and one that has to catch up?"""

    name = "scale"

    def experiments(self, bench: Bench) -> list[Experiment]:
        return [
            Experiment(
                "news site, state apart",
                {OURS: partial(measured, bench, size)},
                axis=("votes in an epoch", float(size)),
            )
            for size in bench.size.pick(scale.SIZES, scale.SIZES[:2], scale.SIZES[:1])
        ]


def measured(bench: Bench, size: int, runs: int) -> Outcome:
    """Processor time of epochs of so many votes, each way in turns."""
    place = bench.place("scale")
    place.mkdir()
    with ExitStack() as stack:
        scenes = []
        for name in WAYS:
            scene = scale.Scene(place, name, "relaxed")
            scene.fill(Random(1))
            stack.callback(scene.close)
            scenes.append(scene)
        rounds = runs * bench.size.pick(7, 3, 2)
        try:
            spent, grown = scale.measure(scenes, size, rounds)
        except AssertionError as error:
            raise Wrong("the databases do not end with the same rows") from error
    figures = {
        f"{name}, processor ms": [1e3 * processor for _, processor in times]
        for name, times in spent.items()
    }
    return Outcome({**figures, "changelog, bytes for each vote": [grown]})

"""Partial views beside full ones: epochs, reads, memory, and a new view on a database in use.

`benchmarks/partial.py` is the same at its own sizes.
"""

from __future__ import annotations

from functools import cache
from functools import partial as bind

import partial

from suite.bench import Bench
from suite.contract import OURS, Experiment, Outcome, System, Workload


class Partial(Workload):
    """What does a view cost that keeps only the keys that are read?"""

    name = "partial"

    def experiments(self, bench: Bench) -> list[Experiment]:
        stories, votes = bench.size.pick((100_000, 1_000_000), (20_000, 200_000), (200, 2_000))
        updates, count = bench.size.pick(1_000, 500, 50), bench.size.pick(5_000, 1_000, 50)
        seconds = 5 * bench.size.seconds

        @cache
        def epochs() -> dict[float, dict[str, list[float]]]:
            return partial.epochs(stories, votes, list(partial.SHARES), updates, rounds=7)

        @cache
        def reads() -> dict[str, list[float]]:
            return partial.reads(stories, votes, count)

        @cache
        def bounds() -> list[partial.Figures]:
            return list(partial.bounds(stories, votes, list(partial.BOUNDS), count))

        def of_epochs(view: str, share: float, runs: int) -> Outcome:
            return Outcome({f"{updates:,} votes, ms": epochs()[share][view]})

        def of_reads(kind: str, runs: int) -> Outcome:
            return Outcome({"read, us": reads()[kind]})

        def of_bounds(place: int, runs: int) -> Outcome:
            return Outcome({name: [value] for name, value in bounds()[place].items()})

        def of_takeover(query: str, runs: int) -> Outcome:
            found = [partial.takeover(stories, votes, query, seconds) for _ in range(runs)]
            return Outcome({name: [one[name] for one in found] for name in found[0]})

        experiments = [
            Experiment(
                f"an epoch, {view} view",
                _ours(bind(of_epochs, view, share)),
                axis=("% of keys wanted", 100 * share),
            )
            for view in ("full", "partial")
            for share in partial.SHARES
        ]
        experiments += [
            Experiment(f"reads: {kind}", _ours(bind(of_reads, kind)))
            for kind in ("full", "hit", "miss")
        ]
        experiments += [
            Experiment("a bound on memory", _ours(bind(of_bounds, place)), axis=("%", 100 * share))
            for place, share in enumerate(partial.BOUNDS)
        ]
        experiments += [
            Experiment(f"a new view, {name}", _ours(bind(of_takeover, query)))
            for name, query in (("partial", partial.PARTIAL), ("full", partial.FULL))
        ]
        return experiments


def _ours(system: System) -> dict[str, System]:
    return {OURS: system}

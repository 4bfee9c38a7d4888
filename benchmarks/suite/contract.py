"""The words of the suite: a workload is experiments, an experiment gives systems the same work.

Law: a system's figures count only if its result equals what the experiment expects, or, where it
expects nothing, if the system did its own check and raised no error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import polars as pl

if TYPE_CHECKING:
    from suite.bench import Bench

T = TypeVar("T")
Result = Mapping[str, pl.DataFrame]  # rows by the name of what holds them
OURS = "viewkeep"


class NotMeasured(Exception):
    """A system that cannot take part here; the message says why."""


class Wrong(Exception):
    """A system's own check failed; the message says how the result differs."""


@dataclass(frozen=True)
class Outcome:
    """What some runs of a system gave: a value per run for each figure, and the rows at the end."""

    samples: Mapping[str, Sequence[float]]
    result: Result | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


System = Callable[[int], Outcome]  # takes the number of runs


@dataclass(frozen=True)
class Experiment:
    """The same work for some systems. Experiments of one name differ by their `axis` alone."""

    name: str
    systems: Mapping[str, System]
    expected: Callable[[], Result] | None = None
    axis: tuple[str, float] | None = None  # what grows from one to the next, and where it stands


@dataclass(frozen=True)
class Size:
    """How much work: `tiny` is for tests of the suite, its figures say nothing."""

    name: str
    operations: int
    runs: int
    seconds: float  # of an experiment at an offered load
    soak: float  # seconds of the soak
    limit: float  # seconds that a peer may take for one experiment

    def pick(self, full: T, quick: T, tiny: T) -> T:
        return {"full": full, "quick": quick, "tiny": tiny}[self.name]


SIZES = {
    size.name: size
    for size in (
        Size("full", operations=1_000_000, runs=3, seconds=3.0, soak=3600.0, limit=600.0),
        Size("quick", operations=200_000, runs=3, seconds=2.0, soak=60.0, limit=180.0),
        Size("tiny", operations=2_000, runs=1, seconds=0.3, soak=3.0, limit=120.0),
    )
}


class Workload(ABC):
    """Experiments around one question; its docstring asks it."""

    name: str

    @abstractmethod
    def experiments(self, bench: Bench) -> list[Experiment]:
        """What to run at the bench's size. Making the list is cheap: rows are made when run."""


def higher_is_better(figure: str) -> bool:
    """Whether more of a figure is better: rates and shares; of times and sizes less is."""
    return figure.endswith(("/s", "second")) or figure.startswith("share")

"""A store that fails on purpose: crashes before or after chosen calls, and duplicate delivery.

Law: with the same plan and the same calls, the same faults happen; apart from them every call is
the inner store's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from viewkeep.stores.contract import Log, Meta, State, Store, Tables, Views
from viewkeep.stores.wrapped import WrappedStore

Fault = Literal["before", "after", "twice"]

_PARTS = {"log": Log, "tables": Tables, "state": State, "views": Views, "meta": Meta}
METHODS = frozenset(
    {f"{part}.{name}" for part, kind in _PARTS.items() for name in dir(kind) if name[0] != "_"}
    | {"learn", "ticks", "wait", "sizes", "close"}
)
# Calls the contract lets anyone repeat; duplicating others would change their meaning.
REPEATABLE = frozenset(
    {
        "log.read",
        *(f"state.{name}" for name in ("apply", "revert", "sweep", "get", "scan")),
    }
)


class InjectedCrash(BaseException):
    """The process 'died' here. Not an Exception, so that no code treats it as expected."""


@dataclass
class FaultPlan:
    """Which calls fail: (method, k) -> fault, where k counts that method's calls from 1.

    `before` crashes without the call, `after` crashes once it is done, `twice` delivers it twice.
    `happened` lists the faults that have occurred.
    """

    faults: dict[tuple[str, int], Fault] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    happened: list[tuple[str, int, Fault]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for (method, _), fault in self.faults.items():
            if method not in METHODS:
                raise ValueError(f"a store has no method {method!r}")
            if fault == "twice" and method not in REPEATABLE:
                raise ValueError(f"{method} may not be delivered twice")

    @staticmethod
    def seeded(
        seed: int, rates: Mapping[str, float], calls: int = 1000, twice: float = 0.0
    ) -> FaultPlan:
        """Random crashes at these rates per method among its first `calls` calls.

        `twice` is the rate of duplicate delivery of `state.apply`.
        """
        source = random.Random(seed)
        faults: dict[tuple[str, int], Fault] = {}
        for method in sorted(rates):
            for k in range(1, calls + 1):
                if source.random() < rates[method]:
                    faults[method, k] = source.choice(("before", "after"))
        for k in range(1, calls + 1):
            if source.random() < twice:
                faults.setdefault(("state.apply", k), "twice")
        return FaultPlan(faults)

    def next(self, method: str) -> Fault | None:
        """Count a call and tell its fault."""
        self.calls[method] += 1
        k = self.calls[method]
        fault = self.faults.get((method, k))
        if fault is not None:
            self.happened.append((method, k, fault))
        return fault


class FaultyStore(WrappedStore):
    """`inner` with the faults of `plan`. Several of these may share one plan, as drivers do."""

    def __init__(self, inner: Store, plan: FaultPlan):
        super().__init__(inner)
        self.plan = plan

    def call(self, method: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        fault = self.plan.next(method)
        if fault == "before":
            raise InjectedCrash(f"before {method}, call {self.plan.calls[method]}")
        result = act(*args, **options)
        if fault == "twice":
            result = act(*args, **options)
        if fault == "after":
            raise InjectedCrash(f"after {method}, call {self.plan.calls[method]}")
        return result

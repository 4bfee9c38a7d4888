"""A store that fails on purpose: crashes before or after chosen calls, and duplicate delivery.

Law: with the same plan and the same calls, the same faults happen; apart from them every call is
the inner store's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from viewkeep.codec.patterns import KeyPattern
from viewkeep.stores.contract import (
    Changed,
    Chunk,
    Cut,
    Floor,
    Found,
    LogBatch,
    Sizes,
    StateWrite,
    Store,
    TableWrite,
)

Fault = Literal["before", "after", "twice"]

METHODS = (
    "write",
    "get",
    "scan",
    "head",
    "ticks",
    "bounded_cut",
    "read_log",
    "truncate_log",
    "drop_table",
    "state_get",
    "state_scan",
    "state_find",
    "state_floor",
    "state_changes",
    "state_apply",
    "state_revert",
    "state_sweep",
    "state_drop",
    "meta_get",
    "meta_cas",
    "meta_scan",
    "check_counts",
    "sizes",
    "close",
)
# Calls the contract lets anyone repeat; duplicating others would change their meaning.
REPEATABLE = (
    "state_apply",
    "state_revert",
    "state_sweep",
    "state_get",
    "state_scan",
    "read_log",
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

        `twice` is the rate of duplicate delivery of `state_apply`.
        """
        source = random.Random(seed)
        faults: dict[tuple[str, int], Fault] = {}
        for method in sorted(rates):
            for k in range(1, calls + 1):
                if source.random() < rates[method]:
                    faults[method, k] = source.choice(("before", "after"))
        for k in range(1, calls + 1):
            if source.random() < twice:
                faults.setdefault(("state_apply", k), "twice")
        return FaultPlan(faults)

    def next(self, method: str) -> Fault | None:
        """Count a call and tell its fault."""
        self.calls[method] += 1
        k = self.calls[method]
        fault = self.faults.get((method, k))
        if fault is not None:
            self.happened.append((method, k, fault))
        return fault


class FaultyStore(Store):
    """`inner` with the faults of `plan`. Several of these may share one plan, as drivers do."""

    def __init__(self, inner: Store, plan: FaultPlan):
        self.inner, self.plan = inner, plan
        self.url, self.nodes, self.shards = inner.url, inner.nodes, inner.shards
        self.capabilities = inner.capabilities

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        fault = self.plan.next(method)
        if fault == "before":
            raise InjectedCrash(f"before {method}, call {self.plan.calls[method]}")
        act = getattr(self.inner, method)
        result = act(*args, **options)
        if fault == "twice":
            result = act(*args, **options)
        if fault == "after":
            raise InjectedCrash(f"after {method}, call {self.plan.calls[method]}")
        return result

    def write(self, writes: Sequence[TableWrite]) -> dict[int, int]:
        return self._call("write", writes)  # type: ignore[no-any-return]

    def get(self, table: int, keys: Sequence[bytes], at: Cut | None = None) -> list[bytes | None]:
        return self._call("get", table, keys, at)  # type: ignore[no-any-return]

    def scan(
        self,
        node: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: Cut | None = None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        options = {"start": start, "stop": stop, "limit": limit, "at": at, "reverse": reverse}
        return self._call("scan", node, table, only=only, **options)  # type: ignore[no-any-return]

    def head(self) -> Cut:
        return self._call("head")  # type: ignore[no-any-return]

    def ticks(self) -> object:
        return self._call("ticks")

    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        return self._call("bounded_cut", start, stop, operations, size)  # type: ignore[no-any-return]

    def read_log(
        self, node: int, start: int, stop: int, tables: frozenset[int] | None = None
    ) -> Iterator[LogBatch]:
        return self._call("read_log", node, start, stop, tables)  # type: ignore[no-any-return]

    def truncate_log(self, before: Cut, budget: int = 10_000) -> bool:
        return self._call("truncate_log", before, budget)  # type: ignore[no-any-return]

    def drop_table(self, table: int, budget: int = 10_000) -> bool:
        return self._call("drop_table", table, budget)  # type: ignore[no-any-return]

    def state_get(
        self, shard: int, table: int, keys: Sequence[bytes], at: int | None
    ) -> list[bytes | None]:
        return self._call("state_get", shard, table, keys, at)  # type: ignore[no-any-return]

    def state_scan(
        self,
        shard: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: int | None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        options = {"start": start, "stop": stop, "limit": limit, "at": at, "reverse": reverse}
        return self._call("state_scan", shard, table, only=only, **options)  # type: ignore[no-any-return]

    def state_find(
        self,
        shard: int,
        table: int,
        prefixes: Sequence[bytes],
        at: int | None,
        *,
        limits: Sequence[int] | None = None,
        size: int = 20_000,
    ) -> Iterator[Found]:
        options = {"limits": limits, "size": size}
        return self._call("state_find", shard, table, prefixes, at, **options)  # type: ignore[no-any-return]

    def state_floor(
        self,
        shard: int,
        table: int,
        keys: Sequence[bytes],
        lows: Sequence[tuple[bytes, int]],
        at: int | None,
    ) -> Floor:
        return self._call("state_floor", shard, table, keys, lows, at)  # type: ignore[no-any-return]

    def state_changes(
        self,
        shard: int,
        table: int,
        after: int,
        upto: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
    ) -> Changed:
        options = {"start": start, "stop": stop, "limit": limit}
        return self._call("state_changes", shard, table, after, upto, **options)  # type: ignore[no-any-return]

    def state_apply(
        self, shard: int, epoch: int, horizon: int, writes: Sequence[StateWrite]
    ) -> None:
        self._call("state_apply", shard, epoch, horizon, writes)

    def state_revert(self, shard: int, after: int, upto: int) -> None:
        self._call("state_revert", shard, after, upto)

    def state_sweep(self, shard: int, horizon: int, budget: int = 10_000) -> bool:
        return self._call("state_sweep", shard, horizon, budget)  # type: ignore[no-any-return]

    def state_drop(self, shard: int, table: int, budget: int = 10_000) -> bool:
        return self._call("state_drop", shard, table, budget)  # type: ignore[no-any-return]

    def meta_get(self, key: str) -> bytes | None:
        return self._call("meta_get", key)  # type: ignore[no-any-return]

    def meta_cas(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        return self._call("meta_cas", key, old, new)  # type: ignore[no-any-return]

    def meta_scan(self, prefix: str) -> list[tuple[str, bytes]]:
        return self._call("meta_scan", prefix)  # type: ignore[no-any-return]

    def check_counts(self, node: int) -> None:
        self._call("check_counts", node)

    def sizes(self) -> Sizes:
        return self._call("sizes")  # type: ignore[no-any-return]

    def close(self) -> None:
        self._call("close")

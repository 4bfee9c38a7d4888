"""Latency at an offered load: operations are due at fixed times, whether or not the last one ended.

Law: an operation's latency runs from the moment it was due, so waiting behind a slow one counts
(no coordinated omission). One client thread, as one connection of an application would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence


def offer(
    operations: Sequence[tuple[str, int]],  # ("r" or "w", key)
    load: float,  # operations a second
    read: Callable[[int], object],
    write: Callable[[int, int], object],  # the operation's number, its key
) -> dict[str, float]:
    """Do the operations; the rate reached, and quantiles of read and write latency in ms."""
    spent: dict[str, list[float]] = {"r": [], "w": []}
    began = time.perf_counter()
    for number, (kind, key) in enumerate(operations):
        due = began + number / load
        left = due - time.perf_counter()
        if left > 0:
            time.sleep(left)
        if kind == "r":
            read(key)
        else:
            write(number, key)
        spent[kind].append(time.perf_counter() - due)
    reached = len(operations) / (time.perf_counter() - began)
    figures = {"share of the offered load": min(1.0, reached / load)}
    for kind, name in (("r", "read"), ("w", "write")):
        figures |= {f"{name} {label}, ms": value for label, value in quantiles(spent[kind])}
    return figures


def quantiles(seconds: list[float]) -> Iterator[tuple[str, float]]:
    """Median, 95th and 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    for label, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        if ordered:
            yield label, 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

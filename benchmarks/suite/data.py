"""Rows for the workloads: seeded, so that every system and every run sees the same."""

from __future__ import annotations

import numpy as np
import polars as pl

from suite.task import Change

STORIES, ZIPF = 50_000, 1.08
BATCH = 20_000
PUTS = 0.9  # of the operations; the rest are deletions
MOST = 1_000_000  # values of x are below


def draw(random: np.random.Generator, values: int, count: int, zipf: bool) -> np.ndarray:
    """Numbers below `values`, uniform or by Zipf's law (then scattered, so that 0 is not hot)."""
    if not zipf:
        return random.integers(0, values, count)
    weights = np.arange(1, values + 1, dtype=np.float64) ** -ZIPF
    ranks = np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count))
    return np.random.default_rng(0).permutation(values)[np.minimum(ranks, values - 1)]


def votes(count: int, stories: int, zipf: bool, seed: int = 1) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    return pl.DataFrame({"vote": np.arange(count), "story": draw(random, stories, count, zipf)})


def stories(count: int) -> pl.DataFrame:
    return pl.DataFrame({"story": np.arange(count), "title": [f"story {n}" for n in range(count)]})


def history(
    table: str, operations: int, keys: int, groups: int, zipf: bool = False
) -> list[Change]:
    """Batches of puts and deletions of rows (k, g, x), nine to one.

    Keys are drawn from `keys`, uniform or by Zipf's law, so that a put is an insert or an update.
    """
    random, found = np.random.default_rng(2), list[Change]()
    for made in range(0, operations, BATCH):
        batch = min(BATCH, operations - made)
        chosen = draw(random, keys, batch, zipf)
        stored = int(batch * PUTS)
        rows = _rows(random, chosen[:stored], groups)
        found.append(Change(table, rows, pl.Series(chosen[stored:])))
    return found


def rows(count: int, groups: int, seed: int = 2) -> pl.DataFrame:
    """Rows (k, g, x) with keys from 0 on."""
    return _rows(np.random.default_rng(seed), np.arange(count), groups)


def _rows(random: np.random.Generator, keys: np.ndarray, groups: int) -> pl.DataFrame:
    drawn = {"g": random.integers(0, groups, len(keys)), "x": random.integers(0, MOST, len(keys))}
    return pl.DataFrame({"k": keys, **drawn})

"""The suites of the engine through DELTA: over logs that are stripped, repeated and shuffled."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..engine import test_crashes as crashes
from ..engine import test_histories as histories
from ..random import test_random_queries as queries
from ..slt import test_slt as slt
from ..tpch import test_tpch as tpch
from .logs import WORST, awkward_logs

DELIVERED = "logs=3,lose=30,rivals=20"
SAMPLE = 25  # of so many cases one runs by default
RATES = {**crashes.RATES, "log.cells": 0.03, "tables.scan_cells": 0.05, "log.settled": 0.01}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="viewkeep-awkward-", dir=slt.FOLDER) as made:
        yield Path(made)


def test_some_cases() -> None:
    for file in slt.FILES:
        chosen = [case for case in slt.CASES[::SAMPLE] if case.file == file]
        if chosen:
            run_cases(chosen, WORST)
            run_cases(chosen[:1], DELIVERED)


@pytest.mark.long
@pytest.mark.parametrize("options", [WORST, f"{WORST},ties=value", "twice=100,window=5", DELIVERED])
@pytest.mark.parametrize("file", slt.FILES, ids=[file.stem for file in slt.FILES])
def test_all_cases(file: Path, options: str) -> None:
    run_cases([case for case in slt.CASES if case.file == file], options)


def run_cases(cases: list[slt.Case], options: str) -> None:
    with awkward_logs(options):
        failures = slt.run(cases)
    assert not failures, "\n\n".join(map(str, failures.values()))


def test_tpch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = tpch.generate
    monkeypatch.setattr(tpch, "generate", lambda *of: thinned(generate(*of)))
    with awkward_logs():
        tpch.run(folder, scale=0.01, batches=1, size=100)


def thinned(data: Path) -> Path:
    """A sixtieth of the orders, a tenth of the parts and of the customers."""
    of = {"lineitem": ("l_orderkey", 60), "orders": ("o_orderkey", 60)}
    of |= {"partsupp": ("ps_partkey", 10), "part": ("p_partkey", 10), "customer": ("c_custkey", 10)}
    for table, (column, share) in of.items():
        file = data / f"{table}.parquet"
        rows = pl.read_parquet(file)
        rows.filter(pl.col(column).hash(1) % share == 0).write_parquet(file)
    return data


@pytest.mark.long
@pytest.mark.parametrize("options", [WORST, DELIVERED])
def test_tpch_at_a_larger_scale(folder: Path, options: str) -> None:
    with awkward_logs(options):
        tpch.run(folder, scale=0.01, batches=4, size=600)


def history_test(examples: int) -> Any:
    """Random histories over views of every type, with crashes of epochs and both lanes."""

    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=histories.slow,
        phases=histories.phases,
    )
    @given(
        st.lists(st.sampled_from(histories.VIEWS), min_size=2, max_size=4, unique=True),
        histories.histories,
        st.integers(0, 2**32),
    )
    def run(selects: list[str], history: list[tuple[str, Any]], seed: int) -> None:
        statements = histories.created(selects)
        split = seed % (len(statements) + 1)
        with awkward_logs(seed=seed):
            histories.play(statements[:split], statements[split:], history, seed)

    return run


def test_histories() -> None:
    history_test(25)()


@pytest.mark.long
def test_many_histories() -> None:
    history_test(300)()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_every_view_type(seed: int) -> None:
    with awkward_logs(seed=seed):
        histories.test_every_view_type_takes_part()


def some(count: int) -> list[Any]:
    """Seeds, of which the first run by default."""
    few = 2
    return [*range(few), *(pytest.param(n, marks=pytest.mark.long) for n in range(few, count))]


@pytest.mark.parametrize("seed", some(40))
def test_a_driver_that_dies_anywhere(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashes, "RATES", RATES)
    with awkward_logs(seed=seed):
        crashes.test_a_driver_that_dies_anywhere(tmp_path, seed)


@pytest.mark.parametrize("seed", some(10))
def test_a_driver_that_wakes_up_late(tmp_path: Path, seed: int) -> None:
    with awkward_logs(seed=seed):
        crashes.test_a_driver_that_wakes_up_late(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("options", [WORST, DELIVERED])
def test_random_queries(folder: Path, options: str) -> None:
    with awkward_logs(options):
        queries.run(folder, 60.0, 2_000_000)

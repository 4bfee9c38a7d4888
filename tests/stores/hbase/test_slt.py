"""Some cases of `tests/slt`, over tables of HBase: DuckDB agrees at every step.

`SAMPLE=5 make test-hbase ARGS=tests/stores/hbase/test_slt.py` runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

import viewkeep
from viewkeep.stores.hbase.connection import HbaseConnection

from ...slt.runner import Case, Runner
from ...slt.test_slt import CASES, FILES

pytestmark = pytest.mark.hbase

SAMPLE = int(os.environ.get("SAMPLE", "40"))  # of so many cases one runs


def fits(case: Case) -> bool:
    """Cases of refusals leave their rows, which `DROP TABLE` leaves in HBase for the next case."""
    return case.file.stem != "refusals"


def test_some_cases(
    connection: HbaseConnection,
    namespace: str,
    peer: Callable[[str], None],
    tmp_path: Path,
) -> None:
    numbers = count()

    def make() -> viewkeep.Database:
        name = f"{namespace}_{next(numbers)}"
        url = f"hbase://{connection.address}/{name}?state={tmp_path / name}"
        made = viewkeep.make(url, shards=2)
        peer(f"{name}:log")
        return made

    chosen = [case for case in CASES[::SAMPLE] if fits(case)]
    with closing(Runner(make)) as runner:
        for file in FILES:
            runner.run([case for case in chosen if case.file == file])
    assert not runner.failures, "\n\n".join(map(str, runner.failures.values()))
    for number in range(next(numbers)):
        for table in connection.tables(f"{namespace}_{number}"):
            connection.drop_table(table)
        connection.drop_namespace(f"{namespace}_{number}")

"""Spark SQL, whose dialect this is, gives the rows of every view of the cases as well.

DuckDB proves the engine; this proves that the text kept with a view means the same to Spark.
"""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeep
from viewkeep.database import Database

from .runner import Runner, read_cases
from .test_slt import FILES, FOLDER


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_spark_agrees(spark: SparkSession, file: Path) -> None:
    numbers = count()
    wrong: dict[str, str] = {}

    def proof(db: Database) -> None:
        if db.views():
            texts = {name: db.catalog.current().views[name].sql for name in db.views()}
            verdicts = db.verify(spark=spark)
            wrong.update({f"{v.view}: {texts[v.view]}": str(v) for v in verdicts if not v.ok})

    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:

        def make() -> Database:
            return viewkeep.make(Path(folder) / f"{next(numbers)}.vk", durability="relaxed")

        runner = Runner(make, proof)
        try:
            failures = runner.run(read_cases(file))
        finally:
            runner.close()
    assert not failures, "\n\n".join(map(str, failures.values()))
    assert not wrong, "\n\n".join(f"{name}\n{text}" for name, text in wrong.items())

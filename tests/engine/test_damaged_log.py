"""A damaged log: no table or view is to blame, and the status says what to do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import viewkeep
from viewkeep.engine.failures import note_trouble
from viewkeep.engine.local import catch_up
from viewkeep.errors import Corrupt
from viewkeep.spark.causes import as_error

TRACE = "org.apache.spark.SparkException: Job aborted\nTraceback:\nviewkeep.errors.{}: {}\n\n\tat x"


def test_the_status_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "damaged.vk"
    with closing(viewkeep.make(str(path), nodes=1, shards=1, durability="relaxed")) as db:
        db.sql("CREATE TABLE t (a INT PRIMARY KEY, s STRING)")
        db.sql("CREATE VIEW v AS SELECT s, count(*) AS n FROM t GROUP BY s")
        catch_up(db.store)
        db.put("t", {"a": 1, "s": "first"})
        db.put("t", {"a": 1, "s": None})  # the first row is in the log alone
    file = path / "node-0" / "data.mdb"
    content = file.read_bytes()
    assert b"first" in content
    file.write_bytes(content.replace(b"first", b"forst"))
    with closing(viewkeep.open(str(path))) as db:
        with pytest.raises(Corrupt, match="log segment at operation 0") as raised:
            catch_up(db.store)
        failure = as_error(RuntimeError(TRACE.format("Corrupt", raised.value)))  # as Spark says it
        note_trouble(db.store, str(failure))
        trouble = str(db.status().trouble)
        assert trouble.startswith("the pipeline has failed once since epoch ")
        assert f"{file} is damaged: the checksum of the log segment at operation 0" in trouble
        assert trouble.endswith("Restore the database from a backup")
        assert db.get("t", 1) == {"a": 1, "s": None}
        assert [view.state for view in db.status().views] == ["ready"]

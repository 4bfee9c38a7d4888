"""The peers by name: where each lives, what it can do, and how its process is run.

Law: a peer that cannot run here is reported as not measured, with the reason; it is never left out
in silence.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from peers.contract import Job

from suite.contract import NotMeasured, Outcome
from suite.task import ANSWER, Task

if TYPE_CHECKING:
    from suite.bench import Bench

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".bench"
INSTALL = "make bench-peers"


@dataclass(frozen=True)
class PeerSpec:
    """One peer in one configuration. Several may share a module and an environment."""

    title: str
    module: str
    environment: str
    packages: tuple[str, ...]
    tasks: frozenset[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)  # program -> Debian package

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.environment / "bin" / "python"

    def missing(self) -> str | None:
        """Why it cannot run here, if so."""
        if not (ENVIRONMENTS / self.environment / ".installed").exists():
            return f"its environment is not there; make it: {INSTALL}"
        gone = [name for name in self.programs if not program(name)]
        return f"{', '.join(gone)} not installed; {INSTALL}" if gone else None

    def about(self) -> str:
        """The docstring of its file."""
        text = (Path(__file__).parents[1] / "peers" / f"{self.module}.py").read_text()
        return ast.get_docstring(ast.parse(text)) or ""

    def lacks(self) -> str:
        """What its file says that it does not do."""
        return " ".join(self.about().split("What it does not do: ")[1].split("\n\n")[0].split())


_SPARK = ("pyspark", "lmdb", "pyarrow", "pandas")
_QUERIES = frozenset({"count", "joined", "sums", "join"})
_FLINK = ("apache-flink==2.3.0",)

PEERS: dict[str, PeerSpec] = {
    "streaming": PeerSpec(
        "Structured Streaming, RocksDB",
        "structured_streaming",
        "spark",
        _SPARK,
        frozenset({"count", "sums", "join"}),
    ),
    "recompute": PeerSpec(
        "Spark, full recomputation", "spark_recompute", "spark", _SPARK, _QUERIES
    ),
    "flink": PeerSpec("Flink SQL, heap", "flink", "flink", _FLINK, _QUERIES, {"state": "heap"}),
    "flink-rocksdb": PeerSpec(
        "Flink SQL, RocksDB", "flink", "flink", _FLINK, _QUERIES, {"state": "rocksdb"}
    ),
    "pathway": PeerSpec(
        "Pathway, static, in memory", "pathway", "pathway", ("pathway==0.33.0",), _QUERIES
    ),
    "mariadb": PeerSpec(
        "MariaDB, triggers",
        "mariadb",
        "mariadb",
        ("pymysql",),
        frozenset({"count", "mix"}),
        programs={"mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"},
    ),
    "redis": PeerSpec(
        "Redis, counters",
        "redis",
        "redis",
        ("redis==8.1.0",),
        frozenset({"count", "mix"}),
        programs={"redis-server": "redis-server"},
    ),
}


def program(name: str) -> str | None:
    """Where a program is; servers lie outside the path of most users."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def run_peer(
    spec: PeerSpec, task: Task, bench: Bench, options: Mapping[str, object], runs: int
) -> Outcome:
    """Run a task in the peer's own process, and read its answer."""
    reason = spec.missing()
    if reason:
        raise NotMeasured(reason)
    folder = bench.place(spec.environment)
    folder.mkdir()
    tables = bench.files(task)
    (sql,) = task.views.values()
    columns = task.columns
    job = Job(
        task.name,
        sql,
        tables,
        columns,
        str(folder),
        runs=runs,
        options={**spec.options, **options},
    )
    given, answered = folder / "job.json", folder / "answer.json"
    given.write_text(json.dumps(asdict(job)))
    try:
        _execute(spec, given, answered, folder / "log.txt", bench.size.limit)
        answer = json.loads(answered.read_text())
        rows = pl.read_csv(answer["result"], infer_schema_length=None)
        return Outcome(answer["samples"], {ANSWER: rows}, answer["versions"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _execute(spec: PeerSpec, given: Path, answered: Path, log: Path, limit: float) -> None:
    """One process group, ended as a whole when its time is over."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PATHWAY_THREADS": "2",
        "PYSPARK_PYTHON": str(spec.python),
    }
    command = [str(spec.python), "-m", f"peers.{spec.module}", str(given), str(answered)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=given.parent,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(f"not done after {limit:g} s") from None
            raise
    if code or not answered.exists():
        raise RuntimeError(f"ended with {code}: {log.read_text(errors='replace')[-1500:]}")

"""Deferred modules behave as imported ones, and load when a name of theirs is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import viewkeep

SOURCE = Path(viewkeep.__file__).parent
LIBRARIES = {"numpy", "polars", "pyarrow"}
# The script of a process that imports nothing of viewkeep.
ALONE = SOURCE / "access" / "duckdb" / "child.py"


def output(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_module_loads_at_its_first_use(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("print('runs')\nvalue = 7\n")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from viewkeep.deferred import DeferredModule
slow = DeferredModule("slow")
print("slow" in sys.modules)
print(slow.value, slow.value)
print(type(slow).__name__, sys.modules["slow"] is slow)
"""
    assert output(code).splitlines() == ["False", "runs", "7 7", "module False"]


def test_threads_use_a_module_at_once(tmp_path: Path) -> None:
    """Its code runs once, and no thread sees a part of what it makes."""
    (tmp_path / "half.py").write_text(
        "import sys\nstate = 'half'\nsys.begun.set()\nsys.go_on.wait()\nstate = 'whole'\n"
    )
    code = f"""
import sys, threading; sys.path.insert(0, {str(tmp_path)!r})
from viewkeep.deferred import DeferredModule
sys.begun, sys.go_on = threading.Event(), threading.Event()
half, seen = DeferredModule("half"), []
threads = [threading.Thread(target=lambda: seen.append(half.state)) for _ in range(4)]
threads[0].start()
sys.begun.wait()
for thread in threads[1:]:
    thread.start()
threads[1].join(timeout=0.2)  # ends at once where it need not wait
sys.go_on.set()
for thread in threads:
    thread.join()
print(seen)
"""
    assert output(code) == str(["whole"] * 4)


def test_what_comes_later_is_there(tmp_path: Path) -> None:
    """A part that is imported, or a name that is set, after the first use."""
    package = tmp_path / "whole"
    package.mkdir()
    (package / "__init__.py").write_text("value = 7\n")
    (package / "part.py").write_text("inner = 8\n")
    code = f"""
import importlib, sys; sys.path.insert(0, {str(tmp_path)!r})
from viewkeep.deferred import DeferredModule
whole = DeferredModule("whole")
print(whole.value)
importlib.import_module("whole.part")
sys.modules["whole"].late = 9
print(whole.part.inner, whole.late)
"""
    assert output(code).splitlines() == ["7", "8 9"]


@pytest.mark.parametrize("name", ["np", "pa", "pl"])
def test_a_name_that_is_not_there(name: str) -> None:
    code = (
        f"from viewkeep.deferred import {name}\n"
        f"for _ in range(2):\n"
        f"    try: {name}.nothing_of_the_kind\n"
        "    except AttributeError: print('refused')"
    )
    assert output(code).split() == ["refused", "refused"]


def test_no_module_imports_a_large_library_at_once() -> None:
    """One that does would load it for every command, and for every test with a database."""
    for path in SOURCE.rglob("*.py"):
        if path == ALONE:
            continue
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not LIBRARIES & set(names), (
                f"{path.relative_to(SOURCE)}: from viewkeep.deferred import np, pa, pl instead"
            )


def test_a_view_in_memory_needs_no_large_library_but_numpy() -> None:
    code = """
import sys
import viewkeep.testing
with viewkeep.testing.database() as db:
    db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT)")
    db.sql("CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story")
    db.put("votes", {"id": 1, "story": 7})
    print(db.get("scores", 7))
print(sorted({"polars", "pyarrow", "pandas", "duckdb", "pyspark"} & set(sys.modules)))
"""
    assert output(code).splitlines() == ["{'story': 7, 'votes': 1}", "[]"]


def test_workers_are_forked_with_all_libraries() -> None:
    """What the daemon lacks, each new worker of Spark would import for itself."""
    code = """
import sys
from viewkeep.spark.daemon import preload
preload()
print(sorted({"numpy", "polars", "pyarrow", "lmdb"} & set(sys.modules)))
"""
    assert output(code) == str(["lmdb", "numpy", "polars", "pyarrow"])

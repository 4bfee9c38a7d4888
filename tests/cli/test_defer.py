"""Deferred modules behave as imported ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Threads use the module at once; its code takes a while, and must run once.
USE = """
import sys, threading
from viewkeep.cli.defer import defer
sys.path.insert(0, {folder!r})
defer("slow")
import slow
assert "runs" not in vars(slow)
seen, start = [], threading.Barrier(4)
def use():
    start.wait()
    seen.append((slow.last, slow.runs))
threads = [threading.Thread(target=use) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
import slow.part
assert slow.part.whole == 7
print(seen)
"""


def test_threads_use_a_deferred_module_at_once(tmp_path: Path) -> None:
    package = tmp_path / "slow"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import sys\nsys.setswitchinterval(1e-6)\nruns = 1\n"
        "total = sum(range(300_000))\nfrom slow import part\nlast = part.whole\n"
    )
    (package / "part.py").write_text("whole = 7\n")
    code = USE.format(folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([(7, 1)] * 4)


# A second thread asks for a name while the first one runs the code that gives it.
HALF = """
import sys, threading
from viewkeep.cli.defer import defer
sys.path.insert(0, {folder!r})
sys.begun, sys.go_on = threading.Event(), threading.Event()
defer("half")
import half
seen = []
first = threading.Thread(target=lambda: half.state)
second = threading.Thread(target=lambda: seen.append(half.state))
first.start()
sys.begun.wait()
second.start()
second.join(timeout=0.2)  # ends at once where it need not wait
sys.go_on.set()
second.join()
print(seen)
"""


def test_other_threads_see_a_deferred_module_whole(tmp_path: Path) -> None:
    package = tmp_path / "half"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import sys\nstate = 'half'\nsys.begun.set()\nsys.go_on.wait()\nstate = 'whole'\n"
    )
    code = HALF.format(folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['whole']"


def test_a_part_of_a_deferred_module(tmp_path: Path) -> None:
    """Importing a part runs the whole first, as it does without deferring."""
    package = tmp_path / "whole"
    package.mkdir()
    (package / "__init__.py").write_text("order = ['whole']\n")
    (package / "part.py").write_text("import whole\nwhole.order.append('part')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "from viewkeep.cli.defer import defer; defer('whole', 'missing'); "
        "from whole.part import whole; print(whole.order)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['whole', 'part']"


@pytest.mark.parametrize("name", ["polars", "pyarrow", "numpy"])
def test_a_name_that_is_not_there(name: str) -> None:
    code = (
        f"from viewkeep.cli.defer import defer; defer(); import {name}\n"
        f"try: {name}.nothing_of_the_kind\n"
        "except AttributeError: print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "refused"

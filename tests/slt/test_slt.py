"""Every case of `cases/*.slt`, in process and without Spark; the runner says what a case proves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

import pytest

import viewkeep

from .runner import Case, Failed, Runner, read_cases

FILES = sorted((Path(__file__).parent / "cases").glob("*.slt"))
CASES = [case for file in FILES for case in read_cases(file)]
# In memory where there is such a folder: these tests are about values, not about disks.
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None


def run(cases: list[Case]) -> dict[str, Failed]:
    """Run cases of one file together, which is much faster; what failed, by id."""
    numbers = count()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:

        def make() -> viewkeep.Database:
            path = Path(folder) / f"slt{next(numbers)}.vk"
            return viewkeep.make(path, nodes=2, shards=2, durability="relaxed")

        runner = Runner(make)
        try:
            return runner.run(cases)
        finally:
            runner.close()


@pytest.fixture(scope="module")
def failures_of(request: pytest.FixtureRequest) -> Callable[[Path], dict[str, Failed]]:
    """What failed among the chosen cases of a file; they run when the first of them is asked."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = {item.callspec.id for item in items if item.originalname == "test_case"}

    @cache
    def failures(file: Path) -> dict[str, Failed]:
        return run([case for case in CASES if case.file == file and case.id in chosen])

    return failures


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_case(failures_of: Callable[[Path], dict[str, Failed]], case: Case) -> None:
    failed = failures_of(case.file).get(case.id)
    if failed is not None:
        raise failed


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 300

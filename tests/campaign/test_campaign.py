"""A short part of the fault campaign, the same every time; `make test-campaign` plays more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


def campaign(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.campaign", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


def test_fifty_rounds_have_no_finding() -> None:
    ended = campaign("--rounds", "50", "--seed", "1")
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    # The faults that the rounds are about really happen.
    faults = ("death before a commit", "another step after a call", "stale driver")
    for fault in (*faults, "snapshot read", "view replaced", "round with processes"):
        assert re.search(rf"[1-9][\d,]*  {fault}", ended.stdout), fault


def test_a_round_is_replayed_by_its_seed() -> None:
    first, second = (campaign("--rounds", "1", "--seed", "5", "--history") for _ in range(2))
    assert "driver" in first.stdout
    assert _without_time(first.stdout) == _without_time(second.stdout)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_finds_its_place(mutant: Mutant) -> None:
    """What docs/campaign.md says of them can be tried again."""
    text = (ROOT / "src" / "viewkeep" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    assert f"`{mutant.name}`" in (ROOT / "docs" / "campaign.md").read_text()


def _without_time(output: str) -> list[str]:
    return [line for line in output.splitlines() if " rounds in " not in line]


@pytest.mark.skipif(shutil.which("cc") is None, reason="power loss needs a C compiler")
def test_threads_that_share_commits_lose_nothing_when_the_power_fails() -> None:
    ended = campaign("--threads", "--rounds", "5", "--seed", "1")
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    assert re.search(r"15  threads met a power loss", ended.stdout)

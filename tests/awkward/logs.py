"""Runs other suites over databases with awkward logs: a plain path then means one of those."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from viewkeep import stores
from viewkeep.testing.awkward import AwkwardStore

WORST: Final = "twice=30,reorder=1,rivals=20"


@contextmanager
def awkward_logs(options: str = WORST, seed: int = 1) -> Iterator[None]:
    """New databases at plain paths have awkward logs."""
    resolve = stores._resolve

    def awkward(url: str) -> tuple[stores.Connector, str]:
        if url.startswith("awkward:"):
            return resolve(url)
        return AwkwardStore, f"seed={seed},{options}:{url.removeprefix('lmdb:')}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_resolve", awkward)
        yield

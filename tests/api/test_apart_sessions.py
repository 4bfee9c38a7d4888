"""Sessions of a database whose state is apart; its epochs run on another machine."""

from __future__ import annotations

import pytest

from .test_sessions import (  # noqa: F401
    running,
    site,
    test_a_token_is_read_your_writes_elsewhere,
    test_every_read_sees_own_writes,
    test_reads_are_monotonic_over_processes_and_tokens,
    test_reads_never_go_back,
)


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE", "apart")

"""Sessions, feeds and reads of a database whose state is apart; its epochs run on another machine.

`STORE=apart make test` runs all tests that use `db` in this way.
"""

from __future__ import annotations

import pytest

from .test_feeds import (  # noqa: F401
    site,
    test_a_killed_pipeline_neither_loses_nor_doubles,
    test_other_views_come_and_go,
    test_readers_in_threads_while_epochs_pass,
    test_rows_then_changes,
    test_what_the_view_does_not_show_is_no_change,
)
from .test_reads import test_a_transfer_never_changes_the_total  # noqa: F401


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE", "apart")

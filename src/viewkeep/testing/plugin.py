"""The pytest plugin: the fixture `viewkeep_db`. pytest finds it where viewkeep is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from viewkeep.testing import database

if TYPE_CHECKING:
    from viewkeep import Database


@pytest.fixture
def viewkeep_db() -> Iterator[Database]:
    """An empty database in memory, whose views hold each write at once."""
    with database() as db:
        yield db

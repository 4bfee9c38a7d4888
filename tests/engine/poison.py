"""A function of SQL that fails on one value: `md5` of the text 'poison' does what it is told to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import pytest

from viewkeep.ops import evaluate
from viewkeep.ops.functions import hashes

POISON = "poison"


def raise_error() -> str:
    raise ValueError("the well is poisoned")


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """md5('poison') raises; other texts have their md5, as DuckDB has it."""
    poison_md5(monkeypatch, raise_error)
    yield
    forget_compiled()


def poison_md5(monkeypatch: pytest.MonkeyPatch, act: Callable[[], str]) -> None:
    def md5(text: str | bytes) -> str:
        raw = text.encode() if isinstance(text, str) else text
        return act() if raw == POISON.encode() else hashlib.md5(raw).hexdigest()

    monkeypatch.setattr(hashes, "_md5", md5)
    forget_compiled()


def forget_compiled() -> None:
    """Expressions that were compiled hold the kernels of that time."""
    for cached in (evaluate._prepared, evaluate._copies, evaluate._staged):
        cached.cache_clear()

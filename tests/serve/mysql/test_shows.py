"""SHOW ... LIKE: which names it chooses."""

from __future__ import annotations

import pytest

from viewkeep.serve.mysql.catalog.shows import _matcher

CHOSEN = {
    "%": ["votes", ""],
    "VO%": ["votes"],
    "vote_": ["votes"],
    "v\\_tes": ["v_tes"],
    "\\v\\otes": ["votes"],
    "100\\%": ["100%"],
    "a\\\\b": ["a\\b"],
    "a\\": ["a\\"],
    "": [""],
}


@pytest.mark.parametrize("like", CHOSEN)
def test_like(like: str) -> None:
    names = ["votes", "v_tes", "100%", "100x", "a\\b", "a\\", ""]
    matches = _matcher(like)
    wanted = set(CHOSEN[like]) if like != "%" else set(names)
    assert {name for name in names if matches(name)} == wanted


def test_a_pattern_of_many_signs_is_answered_at_once() -> None:
    assert not _matcher("%a" * 1000 + "%b")("a" * 10_000)

"""Cuts over logs that come and go."""

from __future__ import annotations

import pytest

from viewkeep.access.tokens import cut_parts, read_cut
from viewkeep.errors import InvalidToken
from viewkeep.stores.contract import START, Cut, united

# Log a began with the database; it ended and was dropped when b (2) and c (3) had begun.
EARLY = Cut({"a": 7}, operations=7, begun=1)
MIDDLE = Cut({"a": 9, "b": 40, "c": 0}, operations=12, begun=3, births={"b": 2, "c": 3})
LATE = Cut({"b": 55, "c": 8}, operations=20, begun=3, births={"b": 2, "c": 3})
CHAIN = [START, EARLY, MIDDLE, LATE]


@pytest.mark.parametrize("place", range(len(CHAIN)))
def test_later_cuts_cover_earlier_ones(place: int) -> None:
    cut = CHAIN[place]
    assert all(cut.covers(other) for other in CHAIN[: place + 1])
    assert not any(cut.covers(other) for other in CHAIN[place + 1 :])


def test_a_log_that_has_ended_is_covered_and_one_to_come_is_not() -> None:
    of_a, of_c = Cut({"a": 9}, begun=1), Cut({"c": 1}, begun=3, births={"c": 3})
    assert LATE.covers(of_a)
    assert LATE.covers(of_c)
    assert not EARLY.covers(of_c)
    assert not START.covers(of_a)
    both = united([None, of_a, of_c])
    assert both is not None
    assert [cut.covers(both) for cut in CHAIN] == [False, False, False, True]
    assert MIDDLE.uncovered(both) == Cut({"c": 1}, begun=3, births={"c": 3})
    assert (MIDDLE.short_of(both), LATE.short_of(both)) == (1, 0)
    assert LATE.uncovered(both) is None


def test_nothing_of_a_log_is_covered_by_any_cut() -> None:
    assert START.covers(Cut({"x": 0}, begun=5, births={"x": 5}))
    assert united([None, START]) is None


@pytest.mark.parametrize("cut", CHAIN, ids=str)
def test_cuts_as_json_and_in_tokens(cut: Cut) -> None:
    assert Cut.from_json(cut.to_json()) == cut
    told = read_cut([str(part) for part in cut_parts(cut)], "session")
    assert (told or START).positions == cut.positions
    assert (told or START).births == cut.births


@pytest.mark.parametrize("parts", [["YQ"], ["YQ", "x", "1"], ["_w", "1", "1"]], ids=str)
def test_damaged_positions_in_tokens(parts: list[str]) -> None:
    with pytest.raises(InvalidToken, match="damaged"):
        read_cut(parts, "session")

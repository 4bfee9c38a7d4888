"""The laws of cell operations: whatever the order, the number and the batches, one state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ops.cells.model import KEPT, KEYS, RULES, operations, visible_row

from viewkeep.cells import CellKind, CellOperation, CellRules, delete_versions, put
from viewkeep.errors import Corrupt, Unsupported
from viewkeep.ops.cells import form, ranges, row
from viewkeep.ops.cells.ranges import DeletedRanges
from viewkeep.ops.cells.row import NOTHING, RowState

State = tuple[dict[bytes, RowState], DeletedRanges]
EMPTY: State = ({}, DeletedRanges())


def apply(state: State, batch: Sequence[CellOperation], rules: CellRules) -> State:
    """A table's state after a batch: rows that say nothing are not kept."""
    rows, deleted = dict(state[0]), state[1]
    deleted = ranges.joined(deleted, ranges.of(o for o in batch if _is_range(o)))
    for key in KEYS:
        mine = [one for one in batch if not _is_range(one) and one.key == key]
        new = row.merged(rows.pop(key, NOTHING), mine, deleted.covering(key), rules)
        if new != NOTHING:
            rows[key] = new
    return rows, deleted


def purge(state: State, below: int) -> State:
    rows = {key: row.purged(one, below) for key, one in state[0].items()}
    return {k: one for k, one in rows.items() if one != NOTHING}, ranges.purged(state[1], below)


def bytes_of(state: State) -> object:
    return {key: form.pack(one) for key, one in sorted(state[0].items())}, state[1]


def shown(state: State) -> dict[bytes, object]:
    return {key: row.visible(state[0].get(key, NOTHING)) for key in KEYS}


def _is_range(one: CellOperation) -> bool:
    return one.kind is CellKind.DELETE_RANGE


@st.composite
def histories(draw: st.DrawFn, **limits: Any) -> tuple[CellRules, list[CellOperation]]:
    rules = draw(st.sampled_from(RULES))
    return rules, draw(st.lists(operations(rules, **limits), max_size=10))


def split(source: st.DataObject, found: Iterable[CellOperation]) -> list[list[CellOperation]]:
    batches: list[list[CellOperation]] = [[]]
    for one in found:
        if source.draw(st.booleans()):
            batches.append([])
        batches[-1].append(one)
    return batches


@given(histories())
def test_visible_rows_are_those_of_the_set(case: tuple[CellRules, list[CellOperation]]) -> None:
    rules, history = case
    state = apply(EMPTY, history, rules)
    assert shown(state) == {key: visible_row(history, key, rules) for key in KEYS}


@given(histories(), st.data())
def test_order_number_and_batches_mean_nothing(
    case: tuple[CellRules, list[CellOperation]], data: st.DataObject
) -> None:
    rules, history = case
    again = data.draw(st.lists(st.sampled_from(history), max_size=5)) if history else []
    other = data.draw(st.permutations([*history, *again]))
    step = partial(apply, rules=rules)
    assert bytes_of(step(EMPTY, history)) == bytes_of(reduce(step, split(data, other), EMPTY))


@given(st.sampled_from(RULES), st.data())
def test_joins(rules: CellRules, data: st.DataObject) -> None:
    """`joined` is commutative, associative and idempotent, on rows and on ranges."""
    history = st.lists(operations(rules, keys=KEYS[1:2]), max_size=5)
    one, two, three = (
        row.merged(
            NOTHING,
            [o for o in data.draw(history) if not _is_range(o)],
            None,
            rules,
        )
        for _ in range(3)
    )
    join = partial(row.joined, rules=rules)
    assert join(one, two) == join(two, one)
    assert join(join(one, two), three) == join(one, join(two, three))
    assert join(one, one) == one
    first, second = (ranges.of(o for o in data.draw(history) if _is_range(o)) for _ in range(2))
    assert ranges.joined(first, second) == ranges.joined(second, first)
    assert ranges.joined(first, first) == first


@given(st.lists(st.integers(0, 40), max_size=40), st.lists(st.integers(0, 40)), st.data())
def test_a_cell_of_many_versions_stays_small(
    puts: list[int], deleted: list[int], data: st.DataObject
) -> None:
    """As many as are kept may be deleted one by one, in any order; older ones count no more."""
    rules = RULES[0]
    history = [put(0, b"a", at, [(1, b"%d" % at)]) for at in puts]
    history += [delete_versions(0, b"a", at, [1]) for at in deleted]
    state = row.merged(NOTHING, history, None, rules)
    assert row.visible(state) == visible_row(history, b"a", rules)
    assert all(len(one.versions) + len(one.gone) <= KEPT for one in state.columns.values())
    other = data.draw(st.permutations(history))
    parts = [row.merged(NOTHING, part, None, rules) for part in split(data, other)]
    whole = reduce(partial(row.joined, rules=rules), parts, NOTHING)
    assert form.pack(whole) == form.pack(state)


@given(histories(high=3), histories(low=4), st.data())
def test_purging_changes_nothing_that_is_seen(
    early: tuple[CellRules, list[CellOperation]],
    late: tuple[CellRules, list[CellOperation]],
    data: st.DataObject,
) -> None:
    """While nothing below the bound comes, or is ignored as `apply` here does not need to.

    What is kept is the same too, whether it was purged early, or late, or both.
    """
    rules = early[0] if early[0].versions == late[0].versions else RULES[0]
    below, first, second = 4, early[1], late[1]
    if not rules.versions:
        assert not any(one.kind is CellKind.DELETE_VERSIONS for one in (*first, *second))
    before = apply(EMPTY, first, rules)
    assert shown(purge(before, below)) == shown(before)
    soon, never = apply(purge(before, below), second, rules), apply(before, second, rules)
    assert shown(soon) == shown(never)
    assert bytes_of(purge(soon, below)) == bytes_of(purge(never, below))
    higher = below + data.draw(st.integers(0, 6))
    assert bytes_of(purge(purge(never, below), higher)) == bytes_of(purge(never, higher))


@given(histories(), st.integers(-4, 10))
def test_due_is_when_purging_changes_something(
    case: tuple[CellRules, list[CellOperation]], below: int
) -> None:
    rules, history = case
    for state in apply(EMPTY, history, rules)[0].values():
        when = row.due(state)
        assert (row.purged(state, below) != state) == (when is not None and when <= below)


@given(histories(low=-(2**63), high=2**63 - 1))
def test_bytes_of_a_row_and_back(case: tuple[CellRules, list[CellOperation]]) -> None:
    rules, history = case
    for state in apply(EMPTY, history, rules)[0].values():
        data = form.pack(state)
        assert form.unpack(data) == state
        for cut in range(len(data)):
            with pytest.raises(Corrupt):
                form.unpack(data[:cut])


def test_a_row_of_one_operation_is_small() -> None:
    """Five bytes and a timestamp for the row, three for each column besides its value."""
    state = row.of(
        put(1, b"k", 1_700_000_000_000_000, [(i, b"12345678") for i in range(8)]), RULES[1]
    )
    assert len(form.pack(state)) == 1 + 8 + 1 + 8 * (3 + 8)


def test_a_version_is_deleted_only_where_the_store_says_so() -> None:
    with pytest.raises(Unsupported, match="Declare `versions`"):
        row.of(delete_versions(1, b"k", 5, [1]), RULES[1])


@given(histories())
def test_segments_are_few_and_differ(case: tuple[CellRules, list[CellOperation]]) -> None:
    found = [one for one in case[1] if _is_range(one)]
    segments = ranges.of(found).segments
    assert len(segments) <= 2 * len(found)
    for one, after in pairwise(segments):
        assert one.stop is not None
        assert one.start < one.stop <= after.start
        assert one.stop < after.start or one.through != after.through

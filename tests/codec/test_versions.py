"""Version lists against a plain dict of {epoch: body}."""

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec import versions
from viewkeep.errors import Corrupt

bodies = st.none() | st.binary(max_size=4)
# Each step moves the epoch and the horizon on a little; a step of 0 writes the same epoch again.
steps = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), bodies), min_size=1, max_size=12)


def model_visible(model, at):
    epochs = [epoch for epoch in model if at is None or epoch <= at]
    return model[max(epochs)] if epochs else None


@given(steps)
def test_readers_from_the_horizon_on_see_the_model(history):
    model: dict[int, bytes | None] = {}
    value, epoch, horizon = None, 1, 0
    for forward, lag, body in history:
        epoch += forward
        horizon = max(horizon, epoch - 1 - lag)
        value = versions.push(value, epoch, body, horizon)
        model[epoch] = body
        assert versions.push(value, epoch, body, horizon) == value
        assert versions.newest_epoch(value) == epoch
        assert versions.is_deleted(value) == (body is None)
        for at in [*range(horizon, epoch + 2), None]:
            assert versions.visible(value, at) == model_visible(model, at)
            assert versions.visible_many([value, None], at) == [model_visible(model, at), None]
        for after in range(horizon, epoch + 2):
            for upto in range(after, epoch + 2):
                bodies = [(e, model_visible(model, e)) for e in range(after, upto + 1)]
                changes = [b for a, b in pairwise(bodies) if a[1] != b[1]]
                assert versions.between(value, after, upto) == [bodies[0], *changes]


@given(st.lists(st.tuples(st.lists(st.tuples(st.integers(1, 3), bodies), max_size=3), bodies)))
def test_pushing_many_is_pushing_each(rows):
    values = []
    for history, _ in rows:
        value = None
        for epoch, body in sorted(history, key=lambda version: version[0]):
            value = versions.push(value, epoch, body, epoch - 1)
        values.append(value)
    new = [body for _, body in rows]
    for horizon in range(4):
        each = [versions.push(v, 4, b, horizon) for v, b in zip(values, new, strict=True)]
        assert versions.push_many(values, 4, new, horizon) == each
        stored = [value and value + b"tail" for value in values]
        assert versions.push_many(stored, 4, new, horizon, 4) == each
    firsts = [versions.push(None, 4, body, 0) for body in new]
    assert versions.first_many(4, new) == firsts
    assert versions.first_many(4, [body for body in new if body]) == [
        first for first, body in zip(firsts, new, strict=True) if body
    ]


@pytest.mark.parametrize("count", [3, 200])
@given(
    st.lists(st.tuples(st.integers(1, 3), bodies), min_size=1, max_size=3, unique_by=lambda v: v[0])
)
def test_what_follows_a_stored_list_is_not_read(count, history):
    value = None
    for epoch, body in sorted(history, key=lambda version: version[0]):
        value = versions.push(value, epoch, body, 0)
    for at in (None, 0, 1, 2, 3):
        body = versions.visible(value, at)
        assert versions.visible(value + b"tail", at, 4) == body
        stored = [None, *([value + b"tail"] * count)]
        assert versions.visible_many(stored, at, 4) == [None, *([body] * count)]


def test_two_versions_are_kept_in_steady_state():
    value = None
    for epoch in range(1, 50):
        value = versions.push(value, epoch, b"body", epoch - 1)
    assert len(value) == 2 * (12 + 4)


def test_a_late_write_stays_behind_newer_versions():
    value = versions.push(None, 5, b"five", 0)
    value = versions.push(value, 3, b"three", 0)
    assert [versions.visible(value, at) for at in (2, 3, 4, 5)] == [
        None,
        b"three",
        b"three",
        b"five",
    ]


@given(st.binary(max_size=40), st.integers(0, 5))
def test_rubbish_is_refused_or_read(data, at):
    for act in (
        lambda: versions.visible(data, at),
        lambda: versions.visible_many([data], at),
        lambda: versions.push(data, 6, b"", 5),
        lambda: versions.between(data, at, 6),
    ):
        with contextlib.suppress(Corrupt):
            act()


def test_a_cut_list_is_corrupt():
    value = versions.push(None, 1, b"body", 0)
    for length in range(1, len(value)):
        with pytest.raises(Corrupt):
            versions.visible(value[:length], 1)
        with pytest.raises(Corrupt):
            versions.between(value[:length], 0, 1)

"""Random histories against plain dicts: base rows, log, rows at cuts, and versioned state."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from viewkeep.codec.packed import Packed
from viewkeep.errors import EpochGone
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import Kind, StateWrite, TableWrite
from viewkeep.stores.lmdb import state

from .conformance import ROWS, key, log_entries, row, scan_all

numbers = st.integers(0, 7)
names = st.sampled_from(["a", "b", "\0", "long" * 30])
values = st.tuples(names | st.none(), st.integers(0, 3) | st.none())
operation = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(numbers, values), max_size=5)),
    st.tuples(st.just("name"), st.lists(st.tuples(numbers, values), max_size=5)),
    st.tuples(st.just("update"), st.lists(st.tuples(numbers, values), max_size=5)),
    st.tuples(st.just("delete"), st.lists(st.tuples(numbers, values), max_size=5)),
)
base_histories = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(operation, min_size=1, max_size=3)),
        st.tuples(st.just("truncate"), st.integers(1, 3)),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=10,
)


class Shared:
    """One store for all examples, each with a table of its own, since making one takes longer."""

    def __init__(self, path):
        self.path = str(path)
        self.store = create_store(self.path, durability="relaxed")
        self.table = 0
        self.epoch = 0

    def reopen(self):
        self.store.close()
        self.store = open_store(self.path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = Shared(tmp_path_factory.mktemp("histories") / "db")
    yield made
    made.store.close()


def table_write(table, kind, items):
    keys = [key(number) for number, _ in items]
    if kind == "delete":
        return TableWrite(table, ROWS, Kind.DELETE, keys)
    rows = [row(number, *value) for number, value in items]
    return TableWrite(
        table,
        ROWS,
        Kind.PUT,
        keys,
        rows,
        columns=(1,) if kind == "name" else None,
        existing_only=kind == "update",
    )


def model_write(model, logged, kind, items):
    """The same operations on a dict; the operations that must be logged."""
    for number, value in items:
        name, old = key(number), model.get(key(number))
        if old is None and kind in ("delete", "update"):
            continue
        if kind == "delete":
            del model[name]
        elif kind == "name":
            before = ROWS.decode_one(old) if old else (None, None, None)
            model[name] = ROWS.encode_one((before[0], value[0], before[2]))
        else:
            model[name] = row(number, *value)
        logged.append((name, model.get(name), old))


@settings(max_examples=80)
@given(base_histories)
def test_base_rows_log_and_cuts(shared, history):
    shared.table += 1
    table, model = shared.table, {}
    start = shared.store.log.head()
    past = [(start, {})]
    for what, detail in history:
        if what == "reopen":
            shared.reopen()
        elif what == "truncate":
            chosen = min(detail, len(past) - 1)
            while shared.store.log.truncate(past[chosen][0], budget=2):
                pass
            past = past[chosen:]
        else:
            logged = []
            shared.store.tables.write([table_write(table, kind, items) for kind, items in detail])
            for kind, items in detail:
                model_write(model, logged, kind, items)
            cut = shared.store.log.head()
            entries = log_entries(shared.store, past[-1][0], cut)
            for name in {entry[0] for entry in logged}:
                mine = [e[3:] for node in entries for e in node if e[3] == name]
                assert mine == [entry for entry in logged if entry[0] == name]
            assert sum(map(len, entries)) == len(logged)
            past.append((cut, dict(model)))
        store = shared.store
        assert scan_all(store, table, limit=2) == model
        assert store.tables.get(table, [key(n) for n in range(8)]) == [
            model.get(key(n)) for n in range(8)
        ]
        for cut, rows in past:
            assert scan_all(store, table, limit=2, at=cut) == rows
            assert scan_all(store, table, limit=3, at=cut, reverse=True) == rows


state_histories = st.lists(
    st.tuples(
        st.lists(st.dictionaries(numbers, st.none() | st.binary(max_size=3)), max_size=2),
        st.integers(0, 3),  # how far the horizon lags behind the epoch before
        st.sampled_from(["", "again", "sweep", "reopen"]),
        st.booleans(),  # whether all rows are said to be new, true or not
        st.booleans(),  # whether they come packed
    ),
    max_size=10,
)


@pytest.fixture
def no_rows_are_few():
    """What is done for many rows is done for few."""
    before, state._FEW = state._FEW, 0
    yield
    state._FEW = before


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state_histories)
def test_versioned_state(shared, no_rows_are_few, history):
    shared.table += 1
    tables = (shared.table, shared.table + 100_000)
    shared.epoch += 1
    horizon = first = shared.epoch
    shared.store.state.apply(0, first, first - 1, [])
    model = {first: {}}
    for changes, lag, event, are_new, are_packed in history:
        shared.epoch += 1
        epoch = shared.epoch
        horizon = max(horizon, epoch - 1 - lag)
        form = Packed.from_list if are_packed else list
        writes = [
            StateWrite(table, form([key(n) for n in rows]), form(list(rows.values())), are_new)
            for table, rows in zip(tables, changes, strict=False)
        ]
        for _ in range(2 if event == "again" else 1):
            shared.store.state.apply(0, epoch, horizon, writes)
        now = dict(model[epoch - 1])
        for table, rows in zip(tables, changes, strict=False):
            now.update({(table, key(n)): body for n, body in rows.items()})
        model[epoch] = {place: body for place, body in now.items() if body is not None}
        if event == "sweep":
            while shared.store.state.sweep(0, horizon, budget=2):
                pass
        if event == "reopen":
            shared.reopen()
        for at in [*range(horizon, epoch + 1), None]:
            expected = model[epoch if at is None else at]
            for table in tables:
                mine = {k: body for (owner, k), body in expected.items() if owner == table}
                chunk = shared.store.state.scan(0, table, limit=99, at=at)
                assert dict(zip(chunk.keys, chunk.rows, strict=True)) == mine
                assert chunk.keys == sorted(chunk.keys)
                keys = [key(n) for n in range(8)]
                assert shared.store.state.get(0, table, keys, at) == [mine.get(k) for k in keys]
        if horizon > first:
            with pytest.raises(EpochGone):
                shared.store.state.get(0, tables[0], [key(1)], horizon - 1)

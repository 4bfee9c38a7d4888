"""Between epochs: drop log records, versions, plans and tables that nobody can ask for any more.

Law: nothing at or after the oldest kept epoch (the published one, or an older pin) is touched. All
of it is budgeted, so that no epoch waits long for it, and all of it may be repeated or left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from viewkeep.engine.epochs import Epochs
from viewkeep.engine.programs import drop_plans_before, newest_plan
from viewkeep.stores.contract import Store

_DROPPED = "dropped"


def housekeep(store: Store, budget: int = 10_000, operations: int | None = None) -> None:
    """One round, after epochs were published; `budget` bounds each transaction it makes.

    `operations` are those of the epochs since the last round, or of the last epoch. A round may
    remove twice what they brought, so that what is left over shrinks.
    """
    epochs = Epochs(store)
    record = epochs.read()
    published, pins = record.published, epochs.pins()
    oldest = min([published.cut, *(pin.cut for pin in pins)], key=lambda cut: cut.moment)
    brought = published.operations if operations is None else operations
    rounds = 1 + 2 * brought // budget
    _repeat(lambda: store.truncate_log(oldest, budget), rounds)
    horizon = min([published.epoch, *(pin.epoch for pin in pins)])
    if record.open is not None:
        horizon = min(horizon, record.open.horizon)
    for shard in range(store.shards):
        _repeat(partial(store.state_sweep, shard, horizon, budget), rounds)
    oldest_plan = min([published.plan, *(pin.plan for pin in pins)])
    drop_plans_before(store, oldest_plan)
    _drop_tables(store, oldest_plan, budget)


def _repeat(step: Callable[[], bool], rounds: int) -> None:
    """Run a step until it has nothing left, at most `rounds` times."""
    for _ in range(rounds):
        if not step():
            return


def note_dropped(store: Store, version: int, states: list[int], tables: list[int]) -> None:
    """Remember state and base tables that plan `version` no longer has, to remove them later."""
    while True:
        raw = store.meta_get(_DROPPED)
        noted = json.loads(raw) if raw else []
        noted.append({"version": version, "states": states, "tables": tables})
        if store.meta_cas(_DROPPED, raw, json.dumps(noted).encode()):
            return


def _drop_tables(store: Store, version: int, budget: int) -> None:
    """Remove tables that plans up to `version` have dropped, once every kept plan is past them."""
    raw = store.meta_get(_DROPPED)
    if raw is None:
        return
    kept = set(newest_plan(store).numbers.values())
    left = []
    for item in json.loads(raw):
        more = item["version"] > version
        if not more:
            for number in item["states"]:
                if number not in kept:
                    for shard in range(store.shards):
                        more |= store.state_drop(shard, number, budget)
            for number in item["tables"]:
                more |= store.drop_table(number, budget)
        if more:
            left.append(item)
    store.meta_cas(_DROPPED, raw, json.dumps(left).encode() if left else None)

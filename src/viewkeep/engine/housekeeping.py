"""Between epochs: drop what nobody can ask for any more, and keys that state has no room for.

Law: nothing at or after the oldest kept epoch (the published one, or an older pin) is touched. All
of it is budgeted, so that no epoch waits long for it, and all of it may be repeated or left out.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from viewkeep.engine.cells.loading import drop_chunks_before
from viewkeep.engine.epochs import Epochs, Pin, Published
from viewkeep.engine.memory import keep_within
from viewkeep.engine.programs import drop_plans_before, load_plan
from viewkeep.engine.revision import DROPPED
from viewkeep.engine.views import versioned_parts
from viewkeep.stores.contract import Store


@dataclass
class Housekeeper:
    """Rounds of housekeeping after epochs, at most one in so many seconds.

    A round takes turns of the application's writers and syncs their files, so not every epoch has
    one. What a round leaves over, the next one goes on with.
    """

    seconds: float = 1.0
    _brought: int | None = None  # rows and operations since the last round; None: nothing to do
    _last: float = -math.inf

    def note(self, epoch: Published, rows: int) -> None:
        """An epoch was published that has written so many rows."""
        self._brought = (self._brought or 0) + max(epoch.operations, rows)

    def round(self, store: Store, now: bool = False) -> None:
        """A round, if there is something to do and the last one is long enough ago, or `now`."""
        began = time.monotonic()
        if self._brought is None or (began - self._last < self.seconds and not now):
            return
        brought, self._brought, self._last = self._brought, None, began
        if housekeep(store, brought=brought):
            self._brought = self._brought or 0


def housekeep(store: Store, budget: int = 10_000, brought: int | None = None) -> bool:
    """One round, after epochs were published; whether it has left something over.

    `budget` bounds each transaction it makes. `brought` is what the epochs since the last round
    have written or read, or the operations of the last epoch: a round may remove twice as much, so
    that what is left over shrinks.
    """
    epochs = Epochs(store)
    record = epochs.read()
    published, pins = record.published, epochs.pins()
    # Cuts follow one another as their epochs do.
    kept: list[Published | Pin] = [published, *pins]
    oldest = min(kept, key=lambda point: point.epoch)
    rounds = 1 + 2 * (published.operations if brought is None else brought) // budget
    more = _repeat(lambda: store.log.truncate(oldest.cut, budget), rounds)
    horizon = oldest.epoch
    if record.open is not None:
        horizon = min(horizon, record.open.horizon)
    for shard in range(store.state.shards):
        for part in versioned_parts(store):
            more |= _repeat(partial(part.sweep, shard, horizon, budget), rounds)
    if not more:  # else rows of keys that have gone may take room still
        keep_within(store, published.plan, oldest.cut)
    drop_chunks_before(store, published.epoch)
    oldest_plan = min([published.plan, *(pin.plan for pin in pins)])
    drop_plans_before(store, oldest_plan)
    return _drop_tables(store, oldest_plan, budget) or more


def waits_for_epoch(store: Store) -> bool:
    """Whether tables were dropped that are removed only after a later epoch, or a pin's end."""
    return store.meta.get(DROPPED) is not None


def _repeat(step: Callable[[], bool], rounds: int) -> bool:
    """Run a step until it has nothing left, at most `rounds` times; whether there is more."""
    return all(step() for _ in range(rounds))


def _drop_tables(store: Store, version: int, budget: int) -> bool:
    """Remove tables that plans up to `version` have dropped, once every kept plan is past them.

    Whether the budget left some rows of them over.
    """
    raw = store.meta.get(DROPPED)
    if raw is None:
        return False
    # A number is in use by plans in a row. One before `item["version"]` had it, so if a kept plan
    # has it still (the noted change was never made), the oldest of those does.
    oldest = load_plan(store, version)
    states, tables = oldest.state_numbers, oldest.table_numbers
    left, over = [], False
    for item in json.loads(raw):
        waits, more = item["version"] > version, False
        if not waits:
            for number in item["states"]:
                if number not in states:
                    for shard in range(store.state.shards):
                        for part in versioned_parts(store):
                            more |= part.drop(shard, number, budget)
            for number in item["tables"]:
                if number not in tables:
                    more |= store.tables.drop(number, budget)
        over |= more
        if waits or more:
            left.append(item)
    store.meta.cas(DROPPED, raw, json.dumps(left).encode() if left else None)
    return over

"""What operators cost: processor time and rows, added up over the epochs of a database.

Law: a cost is charged once, for the epoch that was published, and never decides anything. Whoever
publishes adds to the record at most once a second, so a process that is killed loses the costs of
less than that. The record keeps the costliest operators; an operator's id is derived from what it
does, so a view that is created again goes on with the figures it had. Of single epochs it keeps the
slowest of each minute, for the last sixty minutes that had one, with the operators that took most.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from viewkeep.errors import StoreError
from viewkeep.stores.contract import Store
from viewkeep.stores.contract.records import record_from

if TYPE_CHECKING:
    from viewkeep.engine.epochs import Published
    from viewkeep.engine.report import Report
    from viewkeep.plan.program import Program

RECORD = "costs"
MOST = 1_000  # operators that are kept
_EVERY = 1.0  # seconds between two additions of one process
_MINUTES = 60  # of which the slowest epoch is kept
_MINUTE = 60 * 10**9
_NAMED = 5  # operators of a slow epoch

Tally = dict[str, tuple[float, int]]  # operator -> seconds of processor time, rows it changed


@dataclass(frozen=True)
class EpochCost:
    """One epoch: when it was published, how long it took, and on what."""

    epoch: int
    at: int  # nanoseconds since 1970
    seconds: float
    operations: int
    processor: float  # seconds of processor time of all its tasks
    operators: tuple[tuple[str, float, int], ...]  # the costliest: id, processor time, rows changed


@dataclass(frozen=True)
class Costs:
    """Sums over epochs. `operators` has those of operators; `seconds` is of everything.

    `slowest` has single epochs, the newest first.
    """

    epochs: int = 0
    operations: int = 0
    seconds: float = 0.0
    operators: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    slowest: tuple[EpochCost, ...] = ()

    def since(self, before: Costs) -> Costs:
        """What came after an earlier look."""
        changed = {
            name: (
                seconds - before.operators.get(name, (0.0, 0))[0],
                rows - before.operators.get(name, (0.0, 0))[1],
            )
            for name, (seconds, rows) in self.operators.items()
        }
        return Costs(
            self.epochs - before.epochs,
            self.operations - before.operations,
            self.seconds - before.seconds,
            {name: cost for name, cost in changed.items() if cost[0] > 0 or cost[1]},
            tuple(one for one in self.slowest if one not in before.slowest),
        )

    def of_views(self, program: Program) -> dict[str, tuple[float, int]]:
        """Costs by view: of what several views share, each bears an equal part."""
        users: dict[str, list[str]] = {}
        for view, placement in program.placements.items():
            for name in placement.operators:
                users.setdefault(name, []).append(view)
        found = {view: [0.0, 0.0] for view in program.placements}
        for name, (seconds, rows) in self.operators.items():
            for view in users.get(name, ()):
                found[view][0] += seconds / len(users[name])
                found[view][1] += rows / len(users[name])
        return {view: (seconds, round(rows)) for view, (seconds, rows) in found.items()}


def read_costs(store: Store) -> Costs:
    """The sums so far."""
    return _decode(store.meta.get(RECORD))


class _Rest:
    """What this process has still to add to the record of one store."""

    def __init__(self) -> None:
        self.costs, self.last = Costs(), -_EVERY


_rests: WeakKeyDictionary[Store, _Rest] = WeakKeyDictionary()


def note_costs(
    store: Store, operations: int, reports: Iterable[Report], published: Published | None = None
) -> None:
    """An epoch was published."""
    rest = _rests.setdefault(store, _Rest())
    own: Tally = {}
    processor = 0.0
    for report in reports:
        processor += report.processor
        _add(own, report.costs)
    before = rest.costs
    operators = dict(before.operators)
    _add(operators, own)
    slowest = before.slowest
    if published is not None:
        slowest = _slowest((*slowest, _epoch_cost(published, processor, own)))
    counts = before.epochs + 1, before.operations + operations
    rest.costs = Costs(*counts, before.seconds + processor, operators, slowest)
    if time.monotonic() - rest.last >= _EVERY:
        tell_costs(store)


def tell_costs(store: Store) -> None:
    """Add what there is to the record: an epoch was published a while ago, or none follows."""
    rest = _rests.get(store)
    if rest is None or not rest.costs.epochs:
        return
    rest.last = time.monotonic()
    with suppress(StoreError):  # the disk may be full, and these are but figures
        while True:
            raw = store.meta.get(RECORD)
            if store.meta.cas(RECORD, raw, _encode(_sum(_decode(raw), rest.costs))):
                break
        rest.costs = Costs()


def _epoch_cost(published: Published, processor: float, operators: Tally) -> EpochCost:
    top = nlargest(_NAMED, operators.items(), key=lambda item: item[1])
    named = tuple((name, round(seconds, 6), rows) for name, (seconds, rows) in top)
    took = round(published.seconds, 4), published.operations, round(processor, 6)
    return EpochCost(published.epoch, published.at, *took, named)


def _slowest(epochs: Iterable[EpochCost]) -> tuple[EpochCost, ...]:
    """The slowest of each minute, the newest first: of the last minutes that had an epoch."""
    found: dict[int, EpochCost] = {}
    for one in epochs:
        minute = one.at // _MINUTE
        if minute not in found or found[minute].seconds < one.seconds:
            found[minute] = one
    return tuple(found[minute] for minute in sorted(found, reverse=True)[:_MINUTES])


def _sum(one: Costs, other: Costs) -> Costs:
    operators = dict(one.operators)
    _add(operators, other.operators)
    if len(operators) > MOST:
        costly = sorted(operators, key=lambda name: operators[name], reverse=True)[:MOST]
        operators = {name: operators[name] for name in costly}
    return Costs(
        one.epochs + other.epochs,
        one.operations + other.operations,
        one.seconds + other.seconds,
        operators,
        _slowest((*one.slowest, *other.slowest)),
    )


def _add(into: Tally, costs: Mapping[str, tuple[float, int]]) -> None:
    for name, (seconds, rows) in costs.items():
        before = into.get(name, (0.0, 0))
        into[name] = (before[0] + seconds, before[1] + rows)


def _encode(costs: Costs) -> bytes:
    operators = {name: [round(cost[0], 6), cost[1]] for name, cost in costs.operators.items()}
    slowest = [astuple(one) for one in costs.slowest]
    return json.dumps({**vars(costs), "operators": operators, "slowest": slowest}).encode()


def _decode(raw: bytes | None) -> Costs:
    if raw is None:
        return Costs()
    read = json.loads(raw)
    operators = {name: (cost[0], cost[1]) for name, cost in read["operators"].items()}
    slowest = []
    for epoch, at, seconds, operations, processor, named, *_ in read.get("slowest", ()):
        spent = tuple((name, cost, rows) for name, cost, rows in named)
        slowest.append(EpochCost(epoch, at, seconds, operations, processor, spent))
    return record_from(Costs, read, operators=operators, slowest=tuple(slowest))

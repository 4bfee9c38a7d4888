"""The bound on the memory that state takes, and which keys of partial views go to keep it.

State of partial views may be given up key by key: `evictable`. All other state is `essential`. Law:
while evictable state is left, what state holds is brought below the bound; the keys that were read
longest ago go first. Giving up a key is an operation of the log, so the view is exact at each
epoch. Rows take room until they are swept, so no more keys go until those that went before are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from viewkeep.engine.memory_bound import bound_of, keep_bound, size_of
from viewkeep.engine.programs import load_plan, newest_plan
from viewkeep.engine.wanted import WantedTable
from viewkeep.errors import InvalidSetting
from viewkeep.plan.nodes import WantedKeys
from viewkeep.plan.program import Program, StateTable
from viewkeep.stores.contract import Cut, Store, TableSize, united

_GIVEN_UP = "memory/given_up"  # the cut that covers the keys that have gone last
_GOAL = 0.9  # of the bound, that is left after keys have gone: they go seldom, and many at once
_KEYS = 10_000  # given up by one write


@dataclass(frozen=True)
class Memory:
    """What state holds: bytes that may not be evicted and that may, and the bound, if any."""

    essential: int
    evictable: int
    bound: int | None


def memory_of(store: Store, program: Program, sizes: Mapping[int, TableSize]) -> Memory:
    """What state holds, by a program and the sizes of state tables."""
    above = _above_wanted(program).values()
    evictable = {table.number for tables in above for table in tables}
    parts = [0, 0]
    for number, size in sizes.items():
        parts[number in evictable] += size.bytes
    return Memory(parts[0], parts[1], bound_of(store))


def set_bound(store: Store, size: str | int | None) -> None:
    """Bound what state may hold; None lifts the bound. InvalidSetting below what is essential."""
    if size is None:
        keep_bound(store, None)
        return
    program, sizes = newest_plan(store).program, store.sizes().tables
    wanted, held = size_of(size), memory_of(store, program, sizes)
    if wanted < held.essential:
        raise InvalidSetting(
            f"state that cannot be evicted holds {held.essential:,} bytes, so the bound cannot be "
            f"{wanted:,}; only rows of partial views can"
        )
    keep_bound(store, wanted)


def keep_within(store: Store, version: int, oldest: Cut) -> int:
    """Give keys up if state holds more than its bound; how many.

    `version` is the published plan, `oldest` the oldest cut that is kept.
    """
    bound = bound_of(store)
    if bound is None:
        return 0
    given_up = store.meta.get(_GIVEN_UP)
    if given_up is not None and not oldest.covers(Cut.from_json(json.loads(given_up))):
        return 0
    program = load_plan(store, version).program
    sizes = store.sizes().tables
    held = memory_of(store, program, sizes)
    surplus = held.essential + held.evictable - bound
    if surplus <= 0 or not held.evictable:
        return 0
    share = min(1.0, (surplus + (1 - _GOAL) * bound) / held.evictable)
    gone, cuts = list(_oldest(store, program, sizes, share)), list[Cut]()
    for start in range(0, len(gone), _KEYS):
        by_table: dict[WantedKeys, list[bytes]] = {}
        for wanted, key in gone[start : start + _KEYS]:
            by_table.setdefault(wanted, []).append(key)
        writes = [WantedTable(wanted).given_up(keys) for wanted, keys in by_table.items()]
        cuts.append(store.tables.write(writes))
    if (cut := united(cuts)) is not None:
        store.meta.cas(_GIVEN_UP, given_up, json.dumps(cut.to_json()).encode())
    return len(gone)


def _oldest(
    store: Store, program: Program, sizes: Mapping[int, TableSize], share: float
) -> Iterator[tuple[WantedKeys, bytes]]:
    """The keys that hold about this share of what may be evicted, read longest ago."""
    above = _above_wanted(program)
    keys, left = list[tuple[int, float, WantedKeys, bytes]](), 0.0
    for placement in program.placements.values():
        wanted = placement.view.wanted
        if wanted is None:
            continue
        tables = {
            table.number for one in placement.operators & above.keys() for table in above[one]
        }
        held = sum(sizes[number].bytes for number in tables if number in sizes)
        found = list(WantedTable(wanted).all(store))
        left += held * share
        keys += [(used, held / len(found), wanted, key) for key, used in found]
    for _, size, wanted, key in sorted(keys, key=itemgetter(0)):
        if left <= 0:
            return
        left -= size
        yield wanted, key


def _above_wanted(program: Program) -> dict[str, tuple[StateTable, ...]]:
    """The operators that have rows of wanted keys alone, and their state tables."""
    found: dict[str, tuple[StateTable, ...]] = {}
    for operator in program.operators:  # producers come before consumers
        begins = any(isinstance(feed.producer, WantedKeys) for feed in operator.feeds)
        if begins or any(producer in found for producer in operator.producers):
            found[operator.id] = operator.tables
    return found

"""Pages of values of many groups, read from one end until each group has what it seeks.

Law: a round is one call, however many groups there are, and there are few rounds, since each reads
four times as many pages of a group as the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from viewkeep.codec.keys import prefix_end
from viewkeep.engine.state import ShardState
from viewkeep.plan.program import StateTable
from viewkeep.stores.contract import KeyRange

_MOST_PAGES = 256  # of a group in a round


def seek_pages(
    state: ShardState,
    table: StateTable,
    prefixes: Mapping[int, bytes],
    take: Callable[[int, bytes], bool],
    *,
    reverse: bool,
) -> None:
    """Give pages at the epoch before to `take`, with their group, until it returns True.

    `prefixes` are those of the groups' keys. Pages come in the order of their keys, or backwards.
    """
    ranges: dict[int, KeyRange] = {
        group: (prefix, prefix_end(prefix)) for group, prefix in prefixes.items()
    }
    limit = 1
    while ranges:
        groups, pages = list(ranges), Counter[int]()
        limits = [limit] * len(groups)
        for found in state.scan_ranges(
            table, list(ranges.values()), limits=limits, reverse=reverse
        ):
            for place, key, page in zip(found.places, found.keys, found.rows, strict=True):
                group = groups[place]
                if group not in ranges:
                    continue
                pages[group] += 1
                if take(group, page):
                    del ranges[group]
                else:
                    start, stop = ranges[group]
                    ranges[group] = (start, key) if reverse else (key + b"\0", stop)
        ranges = {group: range_ for group, range_ in ranges.items() if pages[group] == limit}
        limit = min(limit * 4, _MOST_PAGES)

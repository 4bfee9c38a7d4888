"""What has arrived for the operators of one shard, given to each in parts of bounded size.

Law: all rows of a key are in one part, so an operator that works key by key may do one part after
the other, and write each before it sees the next. TOP-K and windows get all rows of a group in one.
How rows are shared out depends on the rows alone, not on the order in which they came: sums of
DOUBLEs are rounded with each part. What does not fit in memory waits in a spool, so a level takes
the memory of a part, however much comes.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from viewkeep.codec.key_order import hash_keys
from viewkeep.deferred import np, pl
from viewkeep.delta import KEY, chosen
from viewkeep.engine.amounts import amount, amount_of, row_amounts
from viewkeep.engine.exchange import VALUES, Exchanged, Frames, Item
from viewkeep.engine.frames import Body, from_body, to_body
from viewkeep.engine.groups import group_bytes
from viewkeep.engine.spool import HELD_BYTES, Message, Place, Spool
from viewkeep.plan.program import Operator

PART_ROWS = 500_000  # of one part, as amounts, about
_LATER_BYTES = 8 << 20  # of what is passed on to later levels
_SAMPLED = 256  # one key of so many says where parts begin
_AMOUNT = "#amount"

_Column: TypeAlias = "Callable[[pl.DataFrame], pl.Series]"


class Batches:
    """Frames of one name, in memory or in a spool. Iterating gives them in batches, each time."""

    def __init__(self, spool: Spool):
        self._spool = spool
        self._items: list[pl.DataFrame | Body | Place] = []
        self.rows = self.size = self.held = 0  # bytes in all, and of those the ones in memory

    def put(self, frame: pl.DataFrame | Body) -> None:
        """Take a frame."""
        if isinstance(frame, Body):
            rows, size = frame.rows, frame.size
        else:
            rows, size = frame.height, int(frame.estimated_size())
        self._items.append(frame)
        self.rows += rows
        self.size += size
        self.held += size

    def spill(self) -> None:
        """Write all that is in memory to the spool."""
        for place, item in enumerate(self._items):
            if not isinstance(item, Place):
                body = item if isinstance(item, Body) else to_body(item)
                self._items[place] = self._spool.put(pickle.dumps(body, protocol=5))
        self.held = 0

    def frames(self) -> Iterator[pl.DataFrame]:
        """The frames one by one, as they came."""
        return map(self._load, self._items)

    def taken(self) -> Iterator[pl.DataFrame]:
        """The frames one by one, each held no longer."""
        self._items.reverse()
        while self._items:
            yield self._load(self._items.pop())

    @property
    def amount(self) -> int:
        """The amount of all."""
        return amount_of(self.rows, self.size)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        waiting, held = list[pl.DataFrame](), 0
        for frame in self.frames():
            waiting.append(frame)
            held += amount(frame)
            if held >= PART_ROWS:
                yield pl.concat(waiting)
                waiting, held = [], 0
        if waiting:
            yield pl.concat(waiting)

    def _load(self, item: pl.DataFrame | Body | Place) -> pl.DataFrame:
        if isinstance(item, pl.DataFrame):
            return item
        return from_body(item if isinstance(item, Body) else pickle.loads(self._spool.get(item)))


class Inbox:
    """What has arrived for one shard: frames by operator and name, and items for later levels."""

    def __init__(self, here: Container[str]):
        self._here, self._spool = here, Spool()
        self._inputs: dict[str, dict[str, Batches]] = {}
        self._later, self._later_size = list[Item](), 0
        self._held = 0  # bytes in memory since the last look at them
        self.rows = 0

    def receive(self, shard: int, blobs: Iterable[bytes]) -> Iterator[Message]:
        """Take messages; pass on what is for later levels."""
        for blob in blobs:
            for target, name, body in pickle.loads(blob):
                if target in self._here:
                    self.rows += body.rows
                    self._add(self._batches(target, name), body, body.size)
                else:
                    self._later.append((target, name, body))
                    self._later_size += body.size
            if self._later_size > _LATER_BYTES:
                yield from self._passed_on(shard)
        yield from self._passed_on(shard)

    def put(self, target: str, name: str, frame: pl.DataFrame) -> None:
        """Add a frame that was made on this shard."""
        self._add(self._batches(target, name), frame, int(frame.estimated_size()))

    def __contains__(self, operator: str) -> bool:
        return operator in self._inputs

    @property
    def targets(self) -> list[str]:
        """The operators for which something has come."""
        return list(self._inputs)

    def taken(self, operator: str, name: str) -> list[pl.DataFrame]:
        """The frames of one name, which are few; they are then no longer among the parts."""
        found = self._inputs.get(operator, {}).pop(name, None)
        return [] if found is None else list(found.taken())

    def parts(self, to: Exchanged) -> Iterator[Frames]:
        """All that has arrived for an operator, key range by key range.

        Each frame is combined but those of values. If nothing has come that is one empty part.
        """
        for names in self._shares(to.operator, _keys):
            yield {name: _whole(to, name, batches) for name, batches in names.items()}

    def ports(self, operator: Operator) -> Iterator[Mapping[str, Iterable[pl.DataFrame]]]:
        """All that has arrived for a reader, by port; of one that has groups, some after others.

        The changes at a port come in batches if they are many.
        """
        if len(operator.ports) > 1:
            shares = iter([self._inputs.pop(operator.id, {})])
        else:
            shares = self._shares(operator, partial(group_bytes, operator))
        for names in shares:
            few = _count(names.values()) < 2
            yield {
                name: [pl.concat(batches.taken())] if few else batches
                for name, batches in names.items()
            }

    def _shares(self, operator: Operator, by: _Column) -> Iterator[dict[str, Batches]]:
        """All that has arrived for an operator, in ranges of a column of bytes; one if nothing."""
        found = self._inputs.pop(operator.id, {})
        count = _count(found.values())
        if count < 2:
            yield found
            return
        firsts = _firsts(found.values(), count, by)
        shared = [{name: Batches(self._spool) for name in found} for _ in range(len(firsts) + 1)]
        self._inputs[operator.id] = {
            f"{place} {name}": batches
            for place, names in enumerate(shared)
            for name, batches in names.items()
        }
        for name, batches in found.items():
            for frame in batches.taken():
                places = firsts.search_sorted(by(frame), "right").to_numpy()
                for place in np.unique(places).tolist():
                    part = chosen(frame, places == place)
                    self._add(shared[place][name], part, int(part.estimated_size()))
        del self._inputs[operator.id]
        for names in shared:
            come = {name: batches for name, batches in names.items() if batches.rows}
            if come:
                yield come

    def _batches(self, target: str, name: str) -> Batches:
        names = self._inputs.setdefault(target, {})
        if name not in names:
            names[name] = Batches(self._spool)
        return names[name]

    def _add(self, batches: Batches, frame: pl.DataFrame | Body, size: int) -> None:
        batches.put(frame)
        self._held += size
        if self._held > HELD_BYTES:
            waiting = [one for names in self._inputs.values() for one in names.values()]
            if sum(one.held for one in waiting) > HELD_BYTES // 2:
                for one in waiting:
                    one.spill()
            self._held = sum(one.held for one in waiting)

    def _passed_on(self, shard: int) -> Iterator[Message]:
        if self._later:
            yield shard, pickle.dumps(self._later, protocol=5)
            self._later, self._later_size = [], 0


def _keys(frame: pl.DataFrame) -> pl.Series:
    return frame[KEY]


def _count(batches: Iterable[Batches]) -> int:
    """In how many parts all this comes."""
    return math.ceil(sum(one.amount for one in batches) / PART_ROWS)


def _firsts(batches: Iterable[Batches], count: int, by: _Column) -> pl.Series:
    """The first keys of all parts but one, so that each has about the same amount.

    Chosen by what the rows are and not by where they stand, so that rows which come in another
    order make the same parts.
    """
    sample = [pl.DataFrame(schema={KEY: pl.Binary, _AMOUNT: pl.Int64})]
    for one in batches:
        for frame in one.frames():
            sampled = (hash_keys(frame[KEY]) >> np.uint32(12)) % np.uint32(_SAMPLED) == 0
            rows = chosen(frame, sampled)
            amounts = pl.Series(_AMOUNT, row_amounts(rows))
            sample.append(pl.DataFrame([by(rows).alias(KEY), amounts]))
    keys = pl.concat(sample).sort(KEY)
    ends = keys[_AMOUNT].cum_sum()
    if ends.is_empty():
        return keys[KEY]
    wanted = pl.Series([int(ends[-1]) * number // count for number in range(1, count)])
    places = ends.search_sorted(wanted, "right")
    return keys[KEY].gather(places).unique().sort()


def _whole(to: Exchanged, name: str, batches: Batches) -> pl.DataFrame:
    parts = list(batches.taken())
    return pl.concat(parts) if name.startswith(VALUES) else to.combine(name, parts)

"""Reads of partial views: what is kept is read as of any view, the rest is computed and wanted.

Law: a read of a key gives what the full view would, at the epoch that is read. Rows that are found
are those of a wanted key, of which the view has all rows. Where none are found, the wanted keys of
that epoch tell a key without rows from one that nobody wanted; the latter is answered by an upquery
and noted as wanted, so that the view has it from the next epoch on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from viewkeep.access.ranges import ScanBounds
from viewkeep.access.relations import ViewRelation
from viewkeep.access.writes import Key
from viewkeep.codec.keys import KEPT
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.upquery import PartialState
from viewkeep.engine.wanted import Uses, WantedTable
from viewkeep.errors import EpochGone, InvalidRow, PartialKey, ViewkeepError
from viewkeep.plan.program import Placement, Program
from viewkeep.stores.contract import Store

_TRIES = 10  # at the published epoch, where a read of the newest rows needs one

Pairs = list[tuple[bytes, bytes]]


class PartialRelation(ViewRelation):
    """A partial view, as if it were whole for whoever reads it by its key."""

    def __init__(self, program: Program, placement: Placement, shards: int):
        super().__init__(placement, shards)
        self.partial = PartialState(program, placement)
        self._width = len(self.partial.codec.types)
        self._wanted = WantedTable(self.partial.wanted)
        self._noted: tuple[int, set[bytes]] = (0, set())
        self._uses = Uses(self._wanted)
        self.misses = 0  # keys that were not kept when they were read

    # -- reads by key --------------------------------------------------------------------------

    def find_one(self, store: Store, key: Key, epoch: int | None) -> bytes | None:
        found = super().find_one(store, key, epoch)
        if found is not None:
            if self._uses.matter(store):
                self._uses.note(store, self.full_key(key)[: self._width])
            return found
        values = self.full_key(key)
        rows = self._missed(store, [self._key(values)], epoch)
        return rows.get(self.key_codec.encode_one(values)) if rows else None

    def find(self, store: Store, keys: Sequence[Key], epoch: int | None) -> list[bytes | None]:
        found = super().find(store, keys, epoch)
        if self._uses.matter(store):
            for key in keys:
                self._uses.note(store, self.full_key(key)[: self._width])
        absent = [place for place, row in enumerate(found) if row is None]
        if absent:
            values = [self.full_key(keys[place]) for place in absent]
            rows = self._missed(store, list({self._key(value) for value in values}), epoch)
            for place, value in zip(absent, values, strict=True):
                found[place] = rows.get(self.key_codec.encode_one(value))
        return found

    def scan(self, store: Store, bounds: ScanBounds, epoch: int | None) -> Pairs:
        self._check(bounds)
        found = super().scan(store, bounds, epoch)
        if found:
            self._uses.note(store, bounds.prefix[: self._width])
            return found
        return self._within(self._missed(store, [self._key(bounds.prefix)], epoch), bounds)

    def parts(self, store: Store, bounds: ScanBounds, epoch: int | None) -> list[Iterator[Pairs]]:
        self._check(bounds)
        missed = self._within(self._missed(store, [self._key(bounds.prefix)], epoch), bounds)
        self._uses.note(store, bounds.prefix[: self._width])
        return [iter([missed])] if missed else super().parts(store, bounds, epoch)

    def check_whole(self, what: str) -> None:
        by = ", ".join(self.partial.wanted.values)
        raise PartialKey(
            f"view {self.name} is partial by {by}: {what} would need keys that nobody has asked "
            f"for. Read it by {by}, or create it without partial"
        )

    # -- misses --------------------------------------------------------------------------------

    def _key(self, values: Sequence[object]) -> bytes:
        """The bytes of the wanted key of a whole key, or of a prefix that has it."""
        key = self.partial.codec.encode_one(values[: self._width])
        if len(key) >= KEPT:
            raise InvalidRow(f"{self.name}: a key of a partial view has fewer than {KEPT} bytes")
        return key

    def _check(self, bounds: ScanBounds) -> None:
        """PartialKey if bounds do not name a key."""
        if len(bounds.prefix) < self._width:
            self.check_whole("this read")

    def _missed(self, store: Store, keys: list[bytes], epoch: int | None) -> dict[bytes, bytes]:
        """The rows of those of the keys that the view does not have, by their keys in its table."""
        if epoch is not None:
            return self._missed_at(store, keys, epoch)
        # The newest rows are those of the published epoch where no others are kept.
        for _ in range(_TRIES):
            with suppress(EpochGone):
                return self._missed_at(store, keys, Epochs(store).read().published.epoch)
        return self._missed_at(store, keys, Epochs(store).read().published.epoch)

    def _missed_at(self, store: Store, keys: list[bytes], epoch: int) -> dict[bytes, bytes]:
        wanted = self.partial.are_wanted(store, keys, epoch)
        missed = [key for key, is_wanted in zip(keys, wanted, strict=True) if not is_wanted]
        if not missed:
            return {}
        self.misses += len(missed)
        rows = self.partial.rows(store, missed, epoch)
        self._note(store, missed, epoch)
        return rows

    def _within(self, rows: dict[bytes, bytes], bounds: ScanBounds) -> Pairs:
        """Those of some rows that lie within bounds, in order."""
        fits = self._fits(bounds)
        found = sorted(
            (
                (key, row)
                for key, row in rows.items()
                if bounds.start <= key
                and (bounds.stop is None or key < bounds.stop)
                and (bounds.only is None or bounds.only.matches(key))
                and (fits is None or fits(key, row))
            ),
            reverse=bounds.reverse,
        )
        return found if bounds.limit is None else found[: bounds.limit]

    def _note(self, store: Store, keys: Iterable[bytes], epoch: int) -> None:
        """Have the view keep these keys from the next epoch on.

        A read is not refused because that cannot be written: the key is missed again then.
        """
        at, noted = self._noted
        if at != epoch:
            self._noted = at, noted = epoch, set()
        new = [key for key in keys if key not in noted]
        if new:
            with suppress(ViewkeepError):
                self._wanted.want(store, new, epoch)
                noted.update(new)

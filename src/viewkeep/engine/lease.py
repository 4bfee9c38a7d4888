"""The driver lease: at most one live driver per database, and a term that only grows.

Law: every successful `acquire` returns a larger term than any before. The owner advances the
lease's beat; a lease whose beat has stood still for its ttl, by the clock of whoever looks, has
ended. So has one that was given back, or whose owner the store knows to be dead (`Meta.lives`),
which is quicker, and never needed.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, replace

from viewkeep.engine.standstill import standstills
from viewkeep.errors import Fenced, PipelineError
from viewkeep.stores.contract import Store
from viewkeep.stores.contract.records import record_from

_RECORD = "lease"
_PAUSE = 0.05  # seconds between two looks at the lease of a driver that may be dead


@dataclass(frozen=True)
class Lease:
    """Who drives the pipeline of a database, and in which term."""

    term: int
    host: str  # these two for people; nobody decides by them
    pid: int
    mark: str  # by which the store may know whether its owner lives
    ttl: float  # seconds that the beat may stand still
    beat: int = 0
    released: bool = False


def acquire(store: Store, ttl: float) -> Lease:
    """Take the lease, or raise PipelineError that names the driver who holds it.

    If the store cannot tell whether that driver lives, wait until its beat tells: it goes on, or it
    has stood still for the lease's ttl.
    """
    watched: Lease | None = None
    while True:
        raw = store.meta.get(_RECORD)
        held = None if raw is None else _lease_from(raw)
        if raw is not None and held is not None and _in_force(store, raw, held):
            left = held.ttl - standstills(store).seconds(_RECORD, raw)
            unknown = store.meta.lives(held.mark) is None
            if unknown and (watched is None or watched == held):
                watched = held
                time.sleep(max(0.0, min(_PAUSE, left)))
                continue
            raise PipelineError(
                f"another pipeline runs on this database (process {held.pid} on {held.host}); "
                f"stop it first, or wait: its lease ends in {max(0.0, left):.0f} s unless it is "
                "renewed"
            )
        term = 1 if held is None else held.term + 1
        mine = Lease(term, socket.gethostname(), os.getpid(), store.meta.mark(), ttl)
        if store.meta.cas(_RECORD, raw, _bytes(mine)):
            return mine


def renew(store: Store, lease: Lease) -> None:
    """Advance the lease's beat; raises Fenced if a newer driver holds it."""
    raw = store.meta.get(_RECORD)
    held = None if raw is None else _lease_from(raw)
    if held is None or held.term != lease.term:
        raise Fenced(f"the lease of term {lease.term} was taken by a newer driver")
    store.meta.cas(_RECORD, raw, _bytes(replace(lease, beat=held.beat + 1)))


def release(store: Store, lease: Lease) -> None:
    """End the lease now. Its term stays on record, so the next one is larger."""
    raw = store.meta.get(_RECORD)
    if raw is not None and _lease_from(raw).term == lease.term:
        store.meta.cas(_RECORD, raw, _bytes(replace(lease, released=True)))


def holder(store: Store) -> Lease | None:
    """The driver that holds the lease now, if any; one look cannot tell of a dead one elsewhere."""
    raw = store.meta.get(_RECORD)
    if raw is None:
        return None
    held = _lease_from(raw)
    return held if _in_force(store, raw, held) else None


class DriverWatch:
    """Tells a process that works for a driver whether that driver still lives."""

    def __init__(self, store: Store, term: int):
        self._store, self._term = store, term

    def lives(self) -> bool:
        """Whether the driver of the term still holds its lease."""
        held = holder(self._store)
        return held is not None and held.term == self._term


def _in_force(store: Store, raw: bytes, lease: Lease) -> bool:
    """Whether a lease still keeps others from driving, as far as this process can tell."""
    stood = standstills(store).seconds(_RECORD, raw)
    return not lease.released and stood < lease.ttl and store.meta.lives(lease.mark) is not False


def _lease_from(raw: bytes) -> Lease:
    return record_from(Lease, json.loads(raw))


def _bytes(lease: Lease) -> bytes:
    return json.dumps(asdict(lease)).encode()

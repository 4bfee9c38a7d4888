"""The driver lease: at most one live driver per database, and a term that only grows.

Law: every successful `acquire` returns a larger term than any before. A lease whose owner is a dead
process of this host is free at once; on another host it is free when it expires. A lease that would
last longer than its ttl was written by a clock that is ahead of ours: who wants it gives it its ttl
by our clock, which a driver that lives renews.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, replace

from viewkeep.errors import Fenced, PipelineError
from viewkeep.stores.contract import Store

_RECORD = "lease"
_RELEASED = 0.0  # when a lease expires that was given back


@dataclass(frozen=True)
class Lease:
    """Who drives the pipeline of a database, in which term, and until when if not renewed."""

    term: int
    host: str
    pid: int
    started: str  # tells a process from a later one with the same pid
    ttl: float
    expires: float


def acquire(store: Store, ttl: float) -> Lease:
    """Take the lease, or raise PipelineError that names the driver who holds it."""
    while True:
        raw = store.meta.get(_RECORD)
        held = None if raw is None else Lease(**json.loads(raw))
        if held is not None and _alive(held):
            longest = time.time() + held.ttl
            if held.expires > longest:
                held = replace(held, expires=longest)
                if not store.meta.cas(_RECORD, raw, _bytes(held)):
                    continue  # renewed or released meanwhile
            rest = max(0.0, held.expires - time.time())
            raise PipelineError(
                f"another pipeline runs on this database (process {held.pid} on {held.host}); "
                f"stop it first, or wait: its lease ends in {rest:.0f} s unless it is renewed"
            )
        term = 1 if held is None else held.term + 1
        pid = os.getpid()
        mine = Lease(term, socket.gethostname(), pid, _started(pid), ttl, time.time() + ttl)
        if store.meta.cas(_RECORD, raw, _bytes(mine)):
            return mine


def renew(store: Store, lease: Lease) -> None:
    """Extend the lease by its ttl; raises Fenced if a newer driver holds it."""
    raw = store.meta.get(_RECORD)
    if raw is None or Lease(**json.loads(raw)).term != lease.term:
        raise Fenced(f"the lease of term {lease.term} was taken by a newer driver")
    store.meta.cas(_RECORD, raw, _bytes(replace(lease, expires=time.time() + lease.ttl)))


def release(store: Store, lease: Lease) -> None:
    """End the lease now. Its term stays on record, so the next one is larger."""
    raw = store.meta.get(_RECORD)
    if raw is not None and Lease(**json.loads(raw)).term == lease.term:
        store.meta.cas(_RECORD, raw, _bytes(replace(lease, expires=_RELEASED)))


def holder(store: Store) -> Lease | None:
    """The driver that holds the lease now, if any."""
    raw = store.meta.get(_RECORD)
    held = None if raw is None else Lease(**json.loads(raw))
    return held if held is not None and _alive(held) else None


class DriverWatch:
    """Tells a process that works for a driver whether that driver still lives.

    It needs no common clock: a lease that was not renewed for its ttl, by the clock of the process
    that looks, has ended. So has one whose owner was a process of this host that is dead.
    """

    def __init__(self, store: Store, term: int):
        self._store, self._term = store, term
        self._seen: bytes | None = None
        self._since = time.monotonic()

    def lives(self) -> bool:
        """Whether the driver of the term still holds its lease."""
        raw = self._store.meta.get(_RECORD)
        if raw is None:
            return False
        if raw != self._seen:
            self._seen, self._since = raw, time.monotonic()
        lease = Lease(**json.loads(raw))
        if lease.term != self._term or lease.expires == _RELEASED:
            return False
        if lease.host == socket.gethostname() and _started(lease.pid) != lease.started:
            return False
        return time.monotonic() - self._since < lease.ttl


def _alive(lease: Lease) -> bool:
    if lease.expires < time.time():
        return False
    return lease.host != socket.gethostname() or _started(lease.pid) == lease.started


def _started(pid: int) -> str:
    """When a process of this host started, in clock ticks since boot; empty if it has ended.

    A zombie has ended, though its parent has not asked how.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        return ""


def _bytes(lease: Lease) -> bytes:
    return json.dumps(asdict(lease)).encode()

"""Memory of this process, and of a driver with all that it has started, as the kernel counts it.

Law: only what a process holds for itself counts. Pages of mapped files (the store's) are the
kernel's to keep or drop, and several processes would count them several times.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from viewkeep.engine.lease import Lease

_PROC = Path("/proc")


def of_process(pid: int) -> int | None:
    """The bytes that a process holds; None if there is no such process, or no /proc."""
    try:
        text = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def of_this_process() -> int | None:
    """The bytes that this process holds."""
    return of_process(os.getpid())


def of_driver(lease: Lease | None) -> int | None:
    """The bytes of the driver, its JVM and its workers; None if it runs on another machine.

    Where this process drives, its own bytes are not among them.
    """
    if lease is None or lease.host != socket.gethostname():
        return None
    family = set(_family(lease.pid, _session(lease.pid))) - {os.getpid()}
    found = [count for pid in family if (count := of_process(pid)) is not None]
    return sum(found) if found else None


def _family(pid: int, session: str) -> Iterator[int]:
    """A process and all below it. What runs in a session of its own is no part of it."""
    yield pid
    for children in (_PROC / str(pid) / "task").glob("*/children"):
        try:
            below = children.read_text().split()
        except OSError:  # it has ended meanwhile
            continue
        for child in below:
            if _session(int(child)) == session:
                yield from _family(int(child), session)


def _session(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[3]
    except OSError:
        return ""

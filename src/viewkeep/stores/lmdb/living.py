"""Whether a process of this machine still lives, told by a mark that it left.

Law: a mark is of one process alone, also after its number was given to another one. Of a process
on another machine nobody knows.
"""

from __future__ import annotations

import os
import socket


def mark() -> str:
    """The mark of this process."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{pid}/{_started(pid)}"


def lives(mark: str) -> bool | None:
    """Whether the process that left a mark lives; None if it was another machine's."""
    host, _, process = mark.rpartition("/")[0].rpartition("/")
    if host != socket.gethostname() or not process.isdecimal():
        return None
    return _started(int(process)) == mark.rpartition("/")[2]


def _started(pid: int) -> str:
    """When a process of this machine started, in clock ticks since boot; empty if it has ended.

    A zombie has ended, though its parent has not asked how.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        return ""

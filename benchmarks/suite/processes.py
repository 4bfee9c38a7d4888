"""The memory of processes that were started from here, as Linux tells it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

WORKER = "worker"  # in the command line of Spark's Python workers


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                parents.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def memory(pid: int) -> dict[str, float]:
    """MiB by kind: RssAnon is a process's own, VmRSS counts the pages of mapped files too."""
    found = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("RssAnon", "VmRSS"):
                found[name] = int(value.split()[0]) / 1024
    return found


def workers(pid: int) -> Iterator[int]:
    """The Python workers below a process."""
    for one in tree(pid):
        with contextlib.suppress(OSError):
            if WORKER in Path(f"/proc/{one}/cmdline").read_text():
                yield one


class Peak:
    """The most memory that any worker of a process was seen with, in MiB."""

    def __init__(self, pid: int):
        self.pid, self.own, self.resident = pid, 0.0, 0.0

    def __enter__(self) -> Peak:
        return self

    def __exit__(self, *ended: object) -> None:
        self.look()

    def look(self) -> None:
        for one in workers(self.pid):
            found = memory(one)
            self.own = max(self.own, found.get("RssAnon", 0.0))
            self.resident = max(self.resident, found.get("VmRSS", 0.0))

"""Which operators make an epoch fail: found by rehearsals, with and without the suspects.

Law: who is named has failed in a rehearsal, and a rehearsal without all that are named has ended
well. A process that died proves nothing by itself, since others may have taken the memory: it must
die at the same operator twice, and the epoch must end well without the views on it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from viewkeep.engine.blame import described, views_on
from viewkeep.engine.epochs import OpenEpoch
from viewkeep.engine.programs import load_plan
from viewkeep.plan.program import Program
from viewkeep.stores.contract import Store

_MOST = 20  # culprits of one epoch
_SHARE = 0.8  # of the memory that is free, for a rehearsal
_LINE = 4096
_START_SECONDS = 120.0  # of a process, before its first operator
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """How a rehearsal ended: well, or at an operator if one is to blame; it may have `died`."""

    ok: bool
    operator: str | None = None
    reason: str = ""
    died: bool = False


Rehearse = Callable[[Collection[str]], Outcome]  # without these views


def find_culprits(
    store: Store,
    epoch: OpenEpoch,
    seconds: float,
    memory: int | None = None,
    give_up: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """The operators that make an open epoch fail, with reasons; none if it runs, or nobody knows.

    `seconds` bounds the work of one operator, `memory` the bytes of the process; by default that is
    most of what is free now. The search ends without a result when it is to `give_up`.
    """
    bound = memory or _free_memory()

    def rehearse(views: Collection[str]) -> Outcome:
        return _rehearse(store.url, epoch.epoch, views, seconds, bound, give_up)

    program = load_plan(store, epoch.plan).program
    found = search(program, rehearse)
    return {name: f"{described(program, name)}: {why}" for name, why in found.items()}


def search(program: Program, rehearse: Rehearse) -> dict[str, str]:
    """The operators without which an epoch runs, and how each fails."""
    found: dict[str, Outcome] = {}
    outcome = rehearse(())
    while not outcome.ok:
        name, left = outcome.operator, _views(program, found)
        if name is None or name in found or len(found) == _MOST:
            return {}
        if outcome.died and rehearse(left).operator != name:
            return {}
        found[name] = outcome
        if not _views(program, found) - left:
            return {}
        outcome = rehearse(_views(program, found))
    for name in [name for name, how in found.items() if how.died]:
        others = {other: how for other, how in found.items() if other != name}
        if others and rehearse(_views(program, others)).ok:
            found = others
    return {name: how.reason for name, how in found.items()}


def _views(program: Program, culprits: Collection[str]) -> set[str]:
    return {view for name in culprits for view in views_on(program, name)}


def _rehearse(
    url: str,
    epoch: int,
    views: Collection[str],
    seconds: float,
    memory: int | None,
    give_up: Callable[[], bool],
) -> Outcome:
    """Rehearse an epoch in a process, which is killed if it says nothing for too long."""
    request = {"url": url, "epoch": epoch, "without": sorted(views), "memory": memory}
    command = [sys.executable, "-m", "viewkeep.engine.rehearsal"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(request).encode())
                process.stdin.close()
            last, in_time = _follow(process.stdout, seconds, give_up)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if give_up():
            return Outcome(False, None, "the search was given up")
        if last.startswith("{"):
            return Outcome(**json.loads(last))
        if not in_time:
            return Outcome(False, last or None, f"it ran for more than {seconds:g} s", died=True)
        how = f"the process ended ({_signal(process.returncode)}){_last_line(errors)}"
        return Outcome(False, last or None, how, died=True)


def _follow(channel: IO[bytes], seconds: float, give_up: Callable[[], bool]) -> tuple[str, bool]:
    """The last line that a rehearsal has written, and whether it ended within the time."""
    last, rest = "", b""
    deadline = time.monotonic() + max(seconds, _START_SECONDS)
    while not give_up():
        left = deadline - time.monotonic()
        if left <= 0:
            return last, False
        if not select.select([channel], [], [], min(left, _LOOK_SECONDS))[0]:
            continue
        part = os.read(channel.fileno(), 1 << 16)
        if not part:
            return last, True
        *lines, rest = (rest + part).split(b"\n")
        if lines:
            if lines[-1].decode() != last:
                deadline = time.monotonic() + seconds
            last = lines[-1].decode()
    return last, False


def _signal(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LINE))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""


def _free_memory() -> int | None:
    """Most of the bytes that are free on this machine, if that can be told."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        return int(int(free) * 1024 * _SHARE)
    return None

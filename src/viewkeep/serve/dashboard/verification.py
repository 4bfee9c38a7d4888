"""Verification on demand: one at a time, in a process of its own, so that Spark ends with it.

Law: whatever becomes of the server, no verification outlives it by its own will: stopping ends the
process and all that it has started.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from viewkeep.errors import Conflict

_COMMAND = ("-c", "from viewkeep.cli import main; main()", "verify")
_LAST_LINES = 3  # of what a process said that failed


@dataclass
class Run:
    """One verification. `state` is running, done, failed or stopped."""

    number: int
    views: tuple[str, ...]  # empty: all
    state: str = "running"
    began: float = field(default_factory=time.time)
    seconds: float | None = None
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None


class Verifier:
    """Runs `viewkeep verify URL --json`."""

    def __init__(self, url: str):
        self._url = url
        self._run: Run | None = None
        self._process: subprocess.Popen[str] | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, views: Sequence[str]) -> Run:
        """Start one; Conflict while another runs."""
        if self._run is not None and self._run.state == "running":
            raise Conflict("a verification is running; wait for it, or stop it")
        number = 1 if self._run is None else self._run.number + 1
        self._run = Run(number, tuple(views))
        self._process = subprocess.Popen(
            [sys.executable, *_COMMAND, self._url, "--json", "--", *views],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that its JVM and workers can be ended with it
        )
        self._task = asyncio.get_running_loop().create_task(self._wait(self._run, self._process))
        return self._run

    def last(self) -> Run | None:
        """The one that runs, or the last one."""
        return self._run

    async def stop(self) -> None:
        """End the one that runs, if any."""
        run, process, task = self._run, self._process, self._task
        if process is None or task is None:
            return
        if run is not None and process.poll() is None:
            run.state = "stopped"
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await task

    async def _wait(self, run: Run, process: subprocess.Popen[str]) -> None:
        output, said = await asyncio.to_thread(process.communicate)
        run.seconds = time.time() - run.began
        self._process = None
        if run.state == "stopped":
            return
        try:
            run.verdicts = json.loads(output.strip().splitlines()[-1])
            run.state = "done"
        except (IndexError, ValueError):
            run.state = "failed"
            lines = [line for line in said.splitlines() if line.strip()]
            run.problem = "\n".join(lines[-_LAST_LINES:]) or f"exit code {process.returncode}"


def plain(run: Run | None) -> dict[str, Any]:
    """A run as JSON takes it."""
    if run is None:
        return {"state": "idle"}
    seconds = time.time() - run.began if run.seconds is None else run.seconds
    return {
        "number": run.number,
        "views": list(run.views),
        "state": run.state,
        "seconds": round(seconds, 1),
        "verdicts": run.verdicts,
        "problem": run.problem,
    }
